#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# The assignment's data by Open MPI (vector.c) over libfabric and over UCX, beside 05 and 07, in the
# same boot: 64 KiB in a message, 16 in flight, gaps as wide as the blocks. BLOCKS: some of these.
set -u
cd "$(dirname "$0")/.." || exit 1
export LC_ALL=C OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
read -ra blocks <<<"${BLOCKS:-64 512 1024 4096 65536}"
# See above/mpi.sh and above/ucx.sh.
libfabric=(--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include "verbs;ofi_rxm" -x FI_UNIVERSE_SIZE=16)
ucx=(--mca pml ucx --mca osc "^ucx" -x UCX_TLS=rc_v -x UCX_NET_DEVICES=rxe0:1 -x UCX_IB_GID_INDEX=0)

# mpi BLOCK OPTION… - MB/s
mpi() {
	mpirun -n 2 --oversubscribe --mca plm isolated --mca mpi_yield_when_idle 1 "${@:2}" build/vector "$1"
}
# ours SAMPLE BLOCK - MB/s by sgl, copy and contig
ours() {
	for method in sgl copy contig; do
		sed -n "s/^BENCH method=$method block_size=$2 .*bytes=65536 .*bw_MBps=\([^ ]*\).*/\1/p" "/tmp/$1" | head -n 1
	done
}

for sample in 05_gather_write/gather_write 07_gssr/gssr; do
	testenv/pair.sh $sample --bench --iters=1 --sizes=64K --timeout=100 >"/tmp/${sample:0:2}" || exit
done
echo "clock: ${TESTENV_CLOCK:-real} time; kernel $(uname -r); 64 KiB in a message, 16 in flight; MB/s"
row='%6s |%8s%8s%8s |%8s%8s%8s |%14s%10s\n'
# shellcheck disable=SC2059 # the same for all
printf "$row" '' '05' '' '' '07' '' '' 'Open MPI over' '' block sgl copy contig sgl copy contig libfabric UCX
for block in "${blocks[@]}"; do
	one=$(mpi "$block" "${libfabric[@]}") && other=$(mpi "$block" "${ucx[@]}") || exit
	# shellcheck disable=SC2046,SC2059 # three figures each
	printf "$row" "$block" $(ours 05 "$block") $(ours 07 "$block") "$one" "$other"
done
