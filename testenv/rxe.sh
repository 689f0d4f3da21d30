#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# rxe.sh - a Soft-RoCE device in this machine itself: testenv.sh rxe-up and rxe-down
set -uo pipefail

say() { echo "testenv: $*" >&2; }
die() {
	say "$*"
	exit 1
}

up() { # [NETDEV]
	local netdev=${1:-} on
	[ -e /sys/module/rdma_rxe ] || modprobe rdma_rxe ||
		die "no kernel module rdma_rxe: README.md says which package has it. The VM needs none: make shell"
	modprobe -q rdma_ucm 2>/dev/null # for 11
	if [ ! -e /sys/class/infiniband/rxe0 ]; then
		# Where there is a way to other machines, their programs can be reached
		# too. Else an interface that leads nowhere will do for both sides here.
		[ -n "$netdev" ] ||
			netdev=$({
				ip route show default
				ip -6 route show default
			} | sed -n 's/.* dev \([^ ]*\).*/\1/p' | head -n1)
		[ -n "$netdev" ] || make_dummy
		add "$netdev"
	fi
	rdma link show rxe0/1
	on=$(cat /sys/class/infiniband/rxe0/parent)
	[ "${1:-$on}" = "$on" ] || die "rxe0 is on $on already, not on $1: testenv.sh rxe-down first"
}

make_dummy() { # sets netdev to a new interface, in a network that no route leads to
	local net=10.0.0.0/24
	netdev='rxe-dummy'
	[ ! -e /sys/class/net/rxe-dummy ] || return 0
	[ -z "$(
		ip -4 route show table all match $net
		ip -4 route show table all root $net
	)" ] || die "no default route, and $net is not free here: testenv.sh rxe-up NETDEV (ip link lists them)"
	say "no default route, so rxe0 goes on an interface for this machine alone: rxe-dummy, 10.0.0.1"
	ip link add rxe-dummy type dummy && ip address add 10.0.0.1/24 dev rxe-dummy &&
		ip link set rxe-dummy up && return
	die "no interface rxe-dummy; for one that is there (ip link): testenv.sh rxe-up NETDEV"
}

add() { # NETDEV
	local dev=/sys/class/net/$1 why
	[ -e "$dev" ] || die "no network interface $1 here: ip link lists them"
	[ "$(cat "$dev/type")" = 1 ] || # as if_arp.h numbers them
		die "$1 is no Ethernet interface, which Soft-RoCE needs: without NETDEV rxe-up finds one, or makes one"
	why=$(rdma link add rxe0 type rxe netdev "$1" 2>&1) ||
		die "no rxe0 on $1 ($why); for another interface (ip link): testenv.sh rxe-up NETDEV"
}

down() {
	[ ! -e /sys/class/infiniband/rxe0 ] || rdma link delete rxe0 || exit 1
	[ ! -e /sys/class/net/rxe-dummy ] || ip link delete rxe-dummy
}

if [ "$(id -u)" != 0 ]; then
	command -v sudo >/dev/null || die "$1 needs root"
	exec sudo "$0" "$@"
fi
case $1 in
rxe-up) up "${@:2}" ;;
rxe-down) down ;;
esac
