# SPDX-License-Identifier: BSD-2-Clause
# Open MPI: mpi.c sends messages of 64 KiB between two ranks, by libfabric's reliable datagrams over verbs.
needs=above-mpi
program=$root/build/above_mpi
# FI_UNIVERSE_SIZE: or it asks for a completion queue larger than rxe has.
by=(--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include "verbs;ofi_rxm" -x FI_UNIVERSE_SIZE=16)

prepare() { mkdir -p "$root/build" && mpicc -O2 -Wall -o "$program" "$here/mpi.c"; } # outside
# Ranks on two hosts without ssh: there.sh starts what mpirun wants there, and says so over the control wire.
both() {
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
		mpirun --host "$(uname -n):1,10.0.2.1:1" --mca plm_rsh_agent /run/agent.sh \
		--mca oob_tcp_if_include eth1 "${by[@]}" /run/above_mpi "$@"
}
serve() {
	echo there >/proc/sys/kernel/hostname # Open MPI 5 takes two of one name for one
	join
}
join() { ln -sf "$program" "$here/agent.sh" /run/; } # mpirun takes a blank in a path for its end
put() { both put "$1"; }
get() { both get "$1"; }
