# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2034,SC1091,SC2154 # the names are run.sh's
# UCX, under the same program as in mpi.sh: Open MPI hands each message to UCX, over RC queue pairs.
# client SEND 8256 | a fragment of 8 KiB behind a header: UCX has packed it | 8 KiB 的分片，前面是头：由 UCX 打包
# server SEND 8256 | a fragment of 8 KiB behind a header: UCX has packed it | 8 KiB 的分片，前面是头：由 UCX 打包
# client WRITE 0 | no data: once it is acknowledged, all before it has arrived (flush) | 没有数据：它得到确认，就说明之前的都已到达（flush）
# server WRITE 0 | no data: once it is acknowledged, all before it has arrived (flush) | 没有数据：它得到确认，就说明之前的都已到达（flush）
# client SEND + | a piece of a message, or a short one | 一条消息的一部分，或者一条短消息
# server SEND + | a piece of a message, or a short one | 一条消息的一部分，或者一条短消息
# server READ + | the receiver READs the message out of the sender's memory | 接收方用 READ 从发送方内存取走消息
# client READ + | the receiver READs the message out of the sender's memory | 接收方用 READ 从发送方内存取走消息
. "$here/mpi.sh"
needs=above-mpi
# GID 1, the IPv4 address, times out when UCX connects (by UD datagrams); GID 0 does not.
by=(--mca pml ucx --mca osc "^ucx" -x UCX_TLS=rc_v -x UCX_NET_DEVICES=rxe0:1 -x UCX_IB_GID_INDEX=0)
