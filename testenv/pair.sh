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
if [ -z "$where" ]; then # the device's own address, if it has one: 127.0.0.1 is on no RDMA interface
	own=$(ip -4 -o address show dev "$(rdma link | sed 's/.*netdev //;s/ .*//;q')" | sed 's/.*inet //;s|/.*||;q')
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
