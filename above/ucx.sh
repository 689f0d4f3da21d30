# SPDX-License-Identifier: BSD-2-Clause
# UCX, under the same program as in mpi.sh: Open MPI hands each message to UCX, over RC queue pairs.
. "$here/mpi.sh"
needs=above-mpi
# GID 1, the IPv4 address, times out when UCX connects (by UD datagrams); GID 0 does not.
by=(--mca pml ucx --mca osc "^ucx" -x UCX_TLS=rc_v -x UCX_NET_DEVICES=rxe0:1 -x UCX_IB_GID_INDEX=0)
