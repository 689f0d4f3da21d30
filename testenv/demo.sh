#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Runs every sample that is given, as pairs, and ends with a table:
#   demo.sh DIRECTORY/PROGRAM...
# Exit status 0 only if all passed. What is yet to be written, or takes a newer kernel or library than
# there is here, counts neither as passed nor as failed; 77 if nothing is left.
set -u
here=$(dirname "$(readlink -f "$0")")
table=()
failed=0 unwritten=0 lacking=0

for sample in "$@"; do
	printf '\n=== %s ===\n' "${sample%/*}"
	output=$(cd "${sample%/*}" && "$here/pair.sh" "./${sample##*/}")
	status=$?
	printf '%s\n' "$output"
	results=() # of the sides: PASS or FAIL, or - where it printed none
	for role in server client; do
		[[ $output =~ RESULT\ [^$'\n']*\ role=$role\ status=([A-Z]*) ]]
		results+=("${BASH_REMATCH[1]:--}")
	done
	# a starter says it in English or in Chinese
	todo=$(grep -oE '(not written yet|尚未编写) \(TODO [0-9]+\)' <<<"$output" | sort | head -n 1)
	if [ -n "$todo" ]; then
		table+=("${sample%/*}: $todo")
		unwritten=$((unwritten + 1))
		continue
	fi
	if [ $status -eq 77 ]; then
		table+=("${sample%/*}: not here: $(sed -n "s/^${sample%%/*} [a-z]*: //p" <<<"$output" | head -n 1)")
		lacking=$((lacking + 1))
		continue
	fi
	printf -v row '%-18s %-8s %-8s' "${sample%/*}" "${results[@]}"
	table+=("$row")
	[ $status -eq 0 ] || failed=$((failed + 1))
done

printf '\n%-18s %-8s %-8s\n' sample server client
printf '%s\n' "${table[@]}"
ran=$(($# - unwritten - lacking))
printf '%d of %d pairs passed' $((ran - failed)) $ran
[ $unwritten -eq 0 ] || printf ', %d not written yet' $unwritten
[ $lacking -eq 0 ] || printf ', %d not here' $lacking
echo
[ $ran -gt 0 ] || [ $lacking -eq 0 ] || exit 77
[ $failed -eq 0 ]
