#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#   handin.sh ID LAB [DIR [ANSWERS]]
# Runs what a student hands in, and writes it to a text, handin-ID.txt; packs that with the student's program and
# a MANIFEST of both as handin-ID.zip. LAB: 05, 06 or 07, the one to measure; DIR: the program of it (else my05, or
# the sample's directory); ANSWERS: a text file (else answers.txt). On the RDMA device that is there, or in the VM,
# then in virtual time. The text is written whatever happens; its last line says if all of it is there and passed,
# and how many of the answers it has.
set -u
cd "$(dirname "$0")/.." || exit 1

run() { # NAME COMMAND… - one section of the file
	local name=$1 status
	shift
	echo "=== $name"
	"$@" 2>&1
	status=$?
	echo "=== $name exit $status"
	[ $status -eq 0 ] && echo "$name: passed" >&2 || echo "$name: ${todo:-FAILED}" >&2
	[ $status -eq 0 ] || failed=yes
}

# The parts that run where the device is.
pairs() { # ID SEED LAB DIR
	local sample own arguments todo failed=''
	echo "ENV clock=${TESTENV_CLOCK:-real} kernel=$(uname -r) machine=$(uname -m)" \
		"cpus=$(nproc) devices=$(cd /sys/class/infiniband && echo *)"
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
	local failed='' todo rounds=5
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

if [ "${1:-}" = inside ]; then
	"${@:2}"
	exit
fi

id=${1:-} lab=${2:-05} dir=${3:-} answers=${4:-}
layout=$(grading/grade.py --student "$id") || exit 2
[[ $lab =~ ^0[567]$ ]] || { echo "LAB=$lab is not 05, 06 or 07" >&2; exit 2; }
[ -n "$dir" ] || { [ -d "my$lab" ] && dir=my$lab; } || dir=$(echo "$lab"_*)
[ -f "$dir/Makefile" ] || { echo "$dir is no directory like those of make starter" >&2; exit 2; }
[ -z "$answers" ] || [ -r "$answers" ] || { echo "cannot read $answers" >&2; exit 2; }
[ -n "$answers" ] || [ ! -r answers.txt ] || answers=answers.txt

for own in "$dir" my0[1-7]; do
	[ ! -f "$own/Makefile" ] || make -s -C "$own" >&2 # what fails here, fails below
done
sizes=$(sed -n 's/^sizes //p' grading/rubric.txt)
seed=${layout##* seed=}
if [ "${TESTENV:-}" = vm ] || ! testenv/testenv.sh has-device; then
	export TESTENV_CLOCK=virtual
fi
file=handin-$id.txt
interrupted=''
trap 'interrupted=yes' INT TERM HUP
{
	echo "HANDIN version=1 student=$id lab=$lab sizes=$sizes"
	TESTENV_LIMIT=${TESTENV_LIMIT:-1200} testenv/testenv.sh run \
		grading/handin.sh inside all "$id" "$seed" "$lab" "$dir" "$sizes"
} >"$file"
status=$?
[ -z "$(tail -c 1 "$file")" ] || echo >>"$file" # what was interrupted may lack it
if [ -n "$answers" ]; then
	echo "=== answers"
	learn/answers.py plain "$answers"
fi >>"$file"
end='runs complete'
if count=$(learn/answers.py count ${answers:+"$answers"}); then
	end=complete
fi
if [ -n "$interrupted" ]; then
	end=interrupted
elif [ $status -ne 0 ]; then
	end="failed, exit status $status"
fi
echo "=== end $end ($count)" >>"$file"
pack=$(mktemp -d) || exit
cp "$file" "$pack"
mkdir "$pack/program"
(cd "$dir" && find . -type f \( -name '*.[ch]' -o -name Makefile \) -exec cp --parents -t "$pack/program" {} +)
sums=$(cd "$pack" && find . -type f -printf '%P\0' | xargs -0 sha256sum)
echo "$sums" >"$pack/MANIFEST" && python3 -m zipfile -c "${file%.txt}.zip" "$pack/".
odd=$(RESULTS=/dev/null grading/grade.py "$pack" | grep -A2 ' == FAIL')
rm -rf "$pack"
echo "$file: $(tail -n 1 "$file" | sed 's/=== end //'); with $dir in ${file%.txt}.zip, which is what you hand in" >&2
[ -z "$odd" ] || printf '%s\n' "what make grade will say of it:" "$odd" >&2
if [ -n "$answers" ]; then
	learn/answers.py "$answers" >&2
else
	echo "no answers.txt: $count (make answers makes the file)" >&2
fi
[ $status -eq 0 ] && [ -z "$interrupted" ]
