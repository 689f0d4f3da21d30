#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# there.sh - runs a command on the other of two hosts (TESTENV_HOSTS=2, testenv.sh)
#
#   there.sh CMD [ARG…]   as root, in this directory, stdin from /dev/null
#
# Hands its stdout, stderr and exit status on, in whole lines of text; as with
# ssh, that takes until all that CMD has started have closed them. If there.sh ends
# before, so do they. It takes the control wire, so that it gets through
# when the other is cut.
#
# The other host's part is there.sh --serve: each connection brings one line, a
# command for bash. The answer's lines begin with 1 (stdout), 2 (stderr), or with 0
# for the last, the exit status. Nobody but the two VMs is on that wire.
set -uo pipefail
# Marks each line as soon as it is there, and ends the last where its writer has not.
mark() { while IFS= read -r line || [ -n "$line" ]; do printf '%s%s\n' "$1" "$line"; done; }
case ${1:-} in
--serve)
	cd "$(dirname "$0")" || exit # socat has its own use for blanks, commas and quotes in a path
	exec socat TCP-LISTEN:1,bind=10.0.2.1,reuseaddr,fork "EXEC:./there.sh --answer,setsid"
	;;
--answer)
	IFS= read -r command
	# Who asked has gone, or has the whole answer: whatever it has started goes.
	{
		cat
		kill -9 0
	} <&0 >/dev/null &
	# 3: the answer; 4: the command's stderr; 5: its exit status
	exec 3>&1
	status=$({ { {
		bash -c "$command" </dev/null 2>&4 3>&- 4>&- 5>&-
		echo $? >&5
	} | mark 1 >&3; } 4>&1 | mark 2 >&3; } 5>&1)
	echo "0$status"
	wait
	;;
*)
	for ((try = 0; ; try++)); do # it may still be booting
		{ exec {there}<>/dev/tcp/10.0.2.1/1; } 2>/dev/null && break
		((try < 150)) || { echo "there.sh: the other host doesn't answer" >&2 && exit 125; }
		sleep 0.2
	done
	printf -v command ' %q' "$@"
	printf 'cd %q && exec%s\n' "$PWD" "$command" >&"$there"
	while IFS= read -r line <&"$there"; do
		case $line in
		1*) printf '%s\n' "${line#1}" ;;
		2*) printf '%s\n' "${line#2}" >&2 ;;
		*) exit "${line#0}" ;;
		esac
	done
	echo "there.sh: the other host has gone" >&2
	exit 125
	;;
esac
