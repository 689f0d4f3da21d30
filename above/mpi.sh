# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2034,SC2086,SC2154 # the names are run.sh's
# Open MPI: mpi.c sends messages of 64 KiB between two ranks, by libfabric's reliable datagrams over verbs.
# client SEND 16448 | a quarter of a message, 16 KiB, behind a header of 64 bytes | 一条消息的四分之一（16 KiB），前面是 64 字节的头
# server SEND 16448 | a quarter of a message, 16 KiB, behind a header of 64 bytes | 一条消息的四分之一（16 KiB），前面是 64 字节的头
# client SEND + | a piece of a message, or a short one | 一条消息的一部分，或者一条短消息
# server SEND + | a piece of a message, or a short one | 一条消息的一部分，或者一条短消息
# server READ + | the receiver READs the message out of the sender's memory | 接收方用 READ 从发送方内存取走消息
# client READ + | the receiver READs the message out of the sender's memory | 接收方用 READ 从发送方内存取走消息
needs=above-mpi
program=$root/build/above_mpi
# What moves the messages. FI_UNIVERSE_SIZE: or it asks for a completion queue larger than rxe has.
by=(--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include "verbs;ofi_rxm" -x FI_UNIVERSE_SIZE=16)

prepare() { mkdir -p "$root/build" && mpicc -O2 -Wall -o "$program" "$here/mpi.c"; } # outside
# Ranks on two hosts without ssh: there.sh starts what mpirun wants there, and says so over the control wire.
both() {
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
		mpirun --host 10.0.2.2:1,10.0.2.1:1 --mca plm_rsh_agent "$here/agent.sh" \
		--mca oob_tcp_if_include eth1 "${by[@]}" "$program" "$@"
}
serve() { :; }
join() { :; }
put() { both put "$1"; }
get() { both get "$1"; }
leave() { :; }
unserve() { :; }
