# SPDX-License-Identifier: BSD-2-Clause
# libfabric: endpoints, in the place of queue pairs. fi_pingpong sends 64 KiB to and fro, and checks each.
needs=above-libfabric
compares=itself

ping() { fi_pingpong -p verbs -e msg -S 65536 -I $((bytes / 65536)) -c "$@"; }
once() {
	there bash -c "$(declare -f ping); bytes=$bytes; ping" >/dev/null &
	# The client asks but once: not before the other one listens, on TCP port 47592, which is 0xB9E8.
	until_true 30 there grep -q ':B9E8 .* 0A' /proc/net/tcp
	ping $server && wait $!
}
put() { once; }
get() { once; }
