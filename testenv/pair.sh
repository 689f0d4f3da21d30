#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Runs one sample as two processes on this machine, and shows what each printed:
#   pair.sh PROGRAM [client's arguments]
# With TESTENV_HOSTS=2 (see testenv.sh) the server runs on the other host. PAIR_SERVER holds the
# server's arguments, PAIR_WAIT how many seconds a server may go on when its client has failed.
# Exit status: 0 if both passed, 77 if there is no usable RDMA device, else 1.
set -u
program=$1 && shift
there=() address=127.0.0.1 where=''
if [ "${TESTENV_HOSTS:-1}" = 2 ]; then
	there=("$(dirname "$(readlink -f "$0")")/there.sh") address=10.0.1.1
	where=" on $address"
fi

log=$(mktemp)
trap 'rm -f "$log" "$log.client"' EXIT

# shellcheck disable=SC2086 # a list of arguments
"${there[@]}" "$program" ${PAIR_SERVER:-} >"$log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null; exit 130' INT TERM HUP
# Prints an address of an RDMA interface, IPv4 if it has one. A link-local address needs its interface.
device_address() {
	local netdev
	for netdev in $(rdma link | sed -n 's/.* state ACTIVE .* netdev \([^ ]*\).*/\1/p') $(ip -o link show up type ipoib | sed 's/[^ ]* \([^:@]*\).*/\1/'); do
		ip -o address show dev "$netdev"
	done | sed -En 's|^\S+ +(\S+) +inet6? +(fe80[^/ ]*).*|\2%\1|; s|^.* inet6? +([^/ ]+)[/ ].*|\1|; p; q'
}
if [ -z "$where" ]; then                                   # a loopback address is on no RDMA interface: any sample but 11 takes it, too
	grep -qs '127\.0\.0\.1' /proc/net/fib_trie || address=::1 # a host without IPv4
	own=$(device_address 2>/dev/null)
	[[ -n $own || $program != *rdma_cm ]] || {
		echo "pair.sh: no RDMA interface has an address (rdma link, ip address)" >&2
		kill "$server"
		exit 1
	}
	address=${own:-$address}
fi
# Until the server says that it waits. A client tries for 5 s, or once (11); the other host may be slower.
try=0
while [ ! -s "$log" ] && kill -0 "$server" 2>/dev/null && ((try++ < 100)); do sleep 0.1; done
"$program" "$@" "$address" >"$log.client" 2>&1
client_status=$?

# A client that failed before it met the server leaves the server waiting for another.
if [ $client_status -ne 0 ]; then
	for ((try = 0; try < 5 * ${PAIR_WAIT:-1}; try++)); do
		kill -0 "$server" 2>/dev/null || break
		sleep 0.2
	done
	kill "$server" 2>/dev/null
fi
wait "$server"
server_status=$?

echo "--- server$where: $program${PAIR_SERVER:+ $PAIR_SERVER}"
printf '%s\n' "$(<"$log")"
echo "--- client${where:+ on 10.0.1.2}: $program${*:+ $*} $address"
printf '%s\n' "$(<"$log.client")"
case "$server_status $client_status" in
"0 0") exit 0 ;;
*77*) exit 77 ;;
*) exit 1 ;;
esac
