#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#   handin.sh ID LAB [DIR]
# Runs what a student hands in. In results/handin-ID lie then: runs/, what each run printed; program/; answers.txt; and
# a manifest of them all, which begins with ID and LAB and ends with how it went. Packed, this is handin-ID.zip, the
# hand-in. LAB: 05, 06 or 07, the one to measure; DIR: the program of it (else my05, or the sample's directory);
# ANSWERS=FILE: another one than answers.txt. On the RDMA device that is there, or in the VM, then in virtual time.
# It is packed whatever happens.
set -u
cd "$(dirname "$0")/.." || exit 1

run() { # NAME COMMAND… - a file of the hand-in
	local name=$1 status
	shift
	"$@" >"$out/runs/$name.txt" 2>&1
	status=$?
	echo "=== exit $status" >>"$out/runs/$name.txt"
	[ $status -eq 0 ] && echo "$name: passed" >&2 || echo "$name: ${todo:-FAILED}" >&2
	[ $status -eq 0 ] || failed=yes
}

# The parts that run where the device is.
pairs() { # ID SEED LAB DIR
	local sample own arguments todo failed='' out=results/handin-$1
	mkdir -p "$out/runs"
	echo "ENV clock=${TESTENV_CLOCK:-real} kernel=$(uname -r) machine=$(uname -m)" \
		"cpus=$(nproc) devices=$(cd /sys/class/infiniband && echo *)" >"$out/runs/machine.txt"
	for sample in 0[1-7]_*/; do # the others are not handed in
		sample=${sample%/}
		own=$(own "$sample" "$3" "$4")
		todo=$(todo "$own")
		if [ -n "$todo" ] && [ "${sample%%_*}" != "$3" ]; then
			echo "$sample: $todo" >&2
			[[ $sample != 0[1-4]_* ]] || failed=yes # of 05 to 07 it is one that the student didn't choose
			continue
		fi
		case $sample in
		01*) arguments=--message=$1 ;;
		0[234]*) arguments=--seed=$2 ;;
		*) arguments=--student=$1 ;;
		esac
		run "$sample" testenv/pair.sh "$(program "$own")" "$arguments"
	done
	[ -z "$failed" ]
}
all() { # ID SEED LAB DIR SIZES
	local failed='' todo rounds=5 out=results/handin-$1
	todo=$(todo "$4")
	[ "${TESTENV_CLOCK:-}" != virtual ] || rounds=1 # every one gives the same
	pairs "$1" "$2" "$3" "$4" || failed=yes
	echo "measuring $4, which takes a minute or two ..." >&2
	run measured testenv/pair.sh "$(program "$4")" "--student=$1" --bench \
		--iters=$rounds "--sizes=$5" --timeout=300
	[ -z "$failed" ]
}
own() { # SAMPLE LAB DIR - its directory; of LAB the student's own, as of a sample that is a starter
	local dir=$1 own=my${1%%_*}
	[ ! -f "$own/Makefile" ] || [ -z "$(todo "$1")" ] || dir=$own
	[ "${1%%_*}" != "$2" ] || dir=$3
	echo "$dir"
}
program() { # DIR
	echo "$1/$(sed -n 's/^SAMPLE = //p' "$1/Makefile")"
}
todo() { # DIR - what is yet to be written
	[[ ! $(cat "$1"/*.c) =~ ('not written yet'|'尚未编写')' (TODO '[0-9]*')' ]] || echo "${BASH_REMATCH[0]}"
}

die() { # WORDS
	echo "$1" >&2
	exit 2
}

if [ "${1:-}" = inside ]; then
	"${@:2}"
	exit
fi

id=${1:-} lab=${2:-05} dir=${3:-} answers=${ANSWERS:-answers.txt}
layout=$(teach/expected.py "$id") || exit 2
[[ $lab =~ ^0[567]$ ]] || die "LAB=$lab is not 05, 06 or 07"
[ -n "$dir" ] || { [ -d "my$lab" ] && dir=my$lab; } || dir=$(echo "$lab"_*)
[ -f "$dir/Makefile" ] || die "$dir is no directory like those of make starter"
learn/answers.py count "$answers" >/dev/null || exit # says why, before all is run

for own in "$dir" my0[1-7]; do
	[ ! -f "$own/Makefile" ] || make -s -C "$own" >&2 # what fails here, fails below
done
sizes=$(sed -n 's/^sizes *= *//p' teach/rubric.txt)
if [ "${TESTENV:-}" = vm ] || ! testenv/testenv.sh has-device; then
	export TESTENV_CLOCK=virtual
fi
out=results/handin-$id
rm -rf "$out" "handin-$id.zip" && mkdir -p "$out"/{runs,program} || exit
end='runs complete'
trap 'end=interrupted' INT TERM HUP
TESTENV_LIMIT=${TESTENV_LIMIT:-1200} testenv/testenv.sh run \
	teach/handin.sh inside all "$id" "${layout##* seed=}" "$lab" "$dir" "$sizes"
status=$?
[ $status -eq 0 ] || [ "$end" = interrupted ] || end="failed, exit status $status"
(cd "$dir" && find . -type f \( -name '*.[ch]' -o -name Makefile \) -exec cp --parents -t "$OLDPWD/$out/program" {} +)
[ ! -e "$answers" ] || cat "$answers" >"$out/answers.txt"
count=$(learn/answers.py count "$answers")
sums=$(cd "$out" && find . -type f -printf '%P\0' | sort -z | xargs -0 sha256sum)
printf '%s\n' "HANDIN version=2 student=$id lab=$lab sizes=$sizes" "$sums" "end $end ($count)" >"$out/manifest"
python3 -m zipfile -c "handin-$id.zip" "$out/." || exit
odd=$(RESULTS=/dev/null teach/grade.py "$out" | grep -A2 ' == FAIL')
echo "handin-$id.zip: $end ($count); with $dir. This is what you hand in; what is in it: $out" >&2
[ -z "$odd" ] || printf '%s\n' "what make grade will say of it:" "$odd" >&2
if [ -e "$answers" ]; then
	learn/answers.py "$answers" >&2
else
	echo "no $answers: $count (make answers makes the file)" >&2
fi
[ "$end" = 'runs complete' ]
