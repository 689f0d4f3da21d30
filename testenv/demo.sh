#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Runs every sample that is given, as pairs, and ends with a table:
#   demo.sh DIRECTORY/PROGRAM...
# Exit status 0 only if all passed.
set -u
here=$(dirname "$(readlink -f "$0")")
table=()
failed=0

for sample in "$@"; do
	printf '\n=== %s ===\n' "${sample%/*}"
	output=$(cd "${sample%/*}" && "$here/pair.sh" "./${sample##*/}")
	status=$?
	printf '%s\n' "$output"
	result() { # of one side: its status, or - where it printed none
		sed -n "s/^RESULT .* role=$1 status=\([A-Z]*\).*/\1/p" <<<"$output" | grep . || echo -
	}
	table+=("$(printf '%-18s %-8s %-8s' "${sample%/*}" "$(result server)" "$(result client)")")
	[ $status -eq 0 ] || failed=$((failed + 1))
done

printf '\n%-18s %-8s %-8s\n' sample server client
printf '%s\n' "${table[@]}"
printf '%d of %d pairs passed\n' $(($# - failed)) $#
[ $failed -eq 0 ]
