#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# The assignment's data by three libraries (vector.c) beside 05 and 07, in the same boot. BLOCKS: some of these.
set -u
cd "$(dirname "$0")/.." || exit 1
# See above/mpi.sh and above/ucx.sh.
export LC_ALL=C FI_UNIVERSE_SIZE=16 UCX_TLS=rc_v UCX_NET_DEVICES=rxe0:1 UCX_IB_GID_INDEX=0
counters=/sys/class/infiniband/rxe0/ports/1/hw_counters

row() { printf '%6s |%8s%8s%8s |%8s%8s%8s |%17s%17s |%17s%17s\n' "$@"; }
# ours SAMPLE - MB/s by sgl, copy and contig
ours() {
	sed -nE "s/^BENCH method=(sgl|copy|contig) block_size=$block .* bw_MBps=([^ ]*).*/\2/p" "/tmp/$1" | head -n 3
}
# by LIBRARY OPTION… - adds its MB/s to figures, and SENDs and packets for each of its 336 messages
by() {
	local figure sends packets
	sends=$(<$counters/rdma_sends) packets=$(<$counters/sent_pkts)
	figure=$(mpirun --allow-run-as-root -n 2 --oversubscribe --mca plm_rsh_agent true --mca mpi_yield_when_idle 1 \
		--mca osc ^ucx "${@:2}" build/vector "$1" "$block") || exit
	sends=$((($(<$counters/rdma_sends) - sends) / 336)) packets=$((($(<$counters/sent_pkts) - packets) / 336))
	((packets >= 16)) || { echo "not by RDMA: $1, $packets packets" >&2 && exit 1; }
	figures+=("$figure ($sends, $packets)")
}

for sample in 05_gather_write/gather_write 07_gssr/gssr; do
	testenv/pair.sh $sample --bench --iters=1 --sizes=64K --timeout=100 >"/tmp/${sample:0:2}" || exit
done
echo "clock: ${TESTENV_CLOCK:-real} time; kernel $(uname -r); 64 KiB in a message, 16 in flight; MB/s
(SENDs and packets for a message, with acknowledgements)"
row '' 05 '' '' 07 '' '' MPI: '' alone: ''
row block sgl copy contig sgl copy contig libfabric UCX libfabric UCX
for block in ${BLOCKS:-64 512 1024 4096 65536}; do
	figures=()
	by mpi --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include "verbs;ofi_rxm"
	by mpi --mca pml ucx
	by libfabric --mca pml ob1 --mca btl self,vader
	by ucx --mca pml ob1 --mca btl self,vader
	# shellcheck disable=SC2046 # three figures each
	row "$block" $(ours 05) $(ours 07) "${figures[@]}"
done
