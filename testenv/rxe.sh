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
	local netdev=${1:-} advice on
	command -v rdma >/dev/null || die "the command rdma is missing; the package iproute2 brings it"
	[ -e /sys/module/rdma_rxe ] || command -v modprobe >/dev/null ||
		die "the command modprobe is missing; the package kmod brings it"
	if [ ! -e /sys/module/rdma_rxe ] && ! modprobe rdma_rxe; then
		# shellcheck source=/dev/null
		case $(. /etc/os-release && echo "${ID:-} ${ID_LIKE:-}"),$(uname -r) in
		*ubuntu*) advice="try apt-get install linux-modules-extra-$(uname -r)" ;;
		*debian*cloud*) advice="the cloud kernel has none; install linux-image-amd64 and boot it" ;;
		*fedora* | *rhel*) advice="try dnf install kernel-modules-extra-$(uname -r)" ;;
		*) advice="this kernel ($(uname -r)) was made without it, or this is a container" ;;
		esac
		die "no kernel module rdma_rxe: $advice. The VM needs none: testenv/testenv.sh shell"
	fi
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
	[[ $(cat /sys/class/infiniband/rxe0/ports/1/state) == *ACTIVE ]] ||
		say "but $on is down or has no link: ip link set $on up"
	ip -o address show dev "$on" | grep -qv ' fe80:' ||
		say "but $on has no IP address, which the samples need: ip address add ADDRESS/24 dev $on"
}

make_dummy() { # sets netdev to a new interface, in a network that no route leads to
	local net
	netdev='rxe-dummy'
	[ ! -e /sys/class/net/rxe-dummy ] || return 0
	for net in 10.0.0 10.118.51 172.29.51 192.168.251; do
		[ -z "$(
			ip -4 route show table all match $net.0/24
			ip -4 route show table all root $net.0/24
		)" ] || continue
		say "no default route, so rxe0 goes on an interface for this machine alone: rxe-dummy, $net.1"
		ip link add rxe-dummy type dummy && ip address add $net.1/24 dev rxe-dummy &&
			ip link set rxe-dummy up && return
		die "no interface rxe-dummy; for one that is there (ip link): testenv.sh rxe-up NETDEV"
	done
	die "no default route, and no private network is free here: testenv.sh rxe-up NETDEV (ip link lists them)"
}

add() { # NETDEV
	local dev=/sys/class/net/$1 lower rxe why
	[ -e "$dev" ] || die "no network interface $1 here: ip link lists them"
	lower=$1
	while grep -qsx DEVTYPE=vlan "/sys/class/net/$lower/uevent"; do
		for lower in "/sys/class/net/$lower"/lower_*; do lower=${lower##*/lower_}; done
	done
	[ "$lower" = "$1" ] ||
		die "$1 is a VLAN: take its parent ($lower); the VLAN's addresses appear among that device's GIDs"
	for rxe in /sys/class/infiniband/*; do
		[ "$(cat "$rxe/parent" 2>/dev/null)" != "$1" ] || die "$1 has a Soft-RoCE device already, ${rxe##*/}: use that one"
	done
	case $(cat "$dev/type") in # as if_arp.h numbers them
	1) ;;
	772) die "$1 is the loopback interface: without NETDEV rxe-up finds one, or makes one" ;;
	*) die "$1 is no Ethernet interface (a tunnel, perhaps), which Soft-RoCE needs: testenv.sh rxe-up NETDEV" ;;
	esac
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
