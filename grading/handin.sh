#!/usr/bin/env bash
# Runs what a student hands in, and writes it to one text file, handin-ID.txt:
#   handin.sh ID LAB [ANSWERS]      LAB: 05, 06 or 07, the one to measure
# On the RDMA device that is there, or in the VM, then measuring in virtual time. The file
# is written whatever happens; its last line says whether all of it is there and passed.
set -u
cd "$(dirname "$0")/.." || exit 1

run() { # NAME COMMAND… - one section of the file
	local name=$1 status
	shift
	echo "=== $name"
	"$@" 2>&1
	status=$?
	echo "=== $name exit $status"
	if [ $status -eq 0 ]; then echo "$name: passed" >&2; else echo "$name: FAILED" >&2; fi
	[ $status -eq 0 ] || failed=yes
}

# The parts that run where the device is.
pairs() { # ID SEED
	local sample arguments failed=''
	echo "ENV clock=${TESTENV_CLOCK:-real} kernel=$(uname -r) machine=$(uname -m)" \
		"cpus=$(nproc) devices=$(cd /sys/class/infiniband && echo *)"
	for sample in [0-9][0-9]_*/; do
		sample=${sample%/}
		case $sample in
		01*) arguments=--message=$1 ;;
		0[234]*) arguments=--seed=$2 ;;
		*) arguments=--student=$1 ;;
		esac
		run "$sample" testenv/pair.sh "$(program "$sample")" "$arguments"
	done
	[ -z "$failed" ]
}
all() { # ID SEED LAB SIZES
	local sample failed='' rounds=5
	[ "${TESTENV_CLOCK:-}" != virtual ] || rounds=1 # every round gives the same
	pairs "$1" "$2" || failed=yes
	echo "measuring $3, which takes a minute or two ..." >&2
	sample=$(echo "$3"_*)
	run measured testenv/pair.sh "$(program "$sample")" "--student=$1" --bench \
		--iters=$rounds "--sizes=$4" --timeout=300
	[ -z "$failed" ]
}
program() { echo "$1/$(sed -n 's/^SAMPLE = //p' "$1/Makefile")"; }

if [ "${1:-}" = inside ]; then
	"${@:2}"
	exit
fi

id=${1:-} lab=${2:-05} answers=${3:-}
[[ $id =~ ^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$ ]] || {
	echo "which student? make handin STUDENT=ID, up to 32 letters, digits, - and _" >&2
	exit 2
}
[[ $lab =~ ^0[567]$ ]] || { echo "LAB=$lab is not 05, 06 or 07" >&2; exit 2; }
[ -z "$answers" ] || [ -r "$answers" ] || { echo "cannot read $answers" >&2; exit 2; }
[ -n "$answers" ] || [ ! -r answers.txt ] || answers=answers.txt

sizes=$(sed -n 's/^sizes //p' grading/rubric.txt)
seed=$(grading/grade --student "$id" | sed -n 's/^LAYOUT.* seed=//p')
[ -n "$seed" ] || exit 1
if [ "${TESTENV:-}" = vm ] || ! testenv/testenv.sh has-device; then
	export TESTENV_CLOCK=virtual
fi
file=handin-$id.txt
interrupted=''
trap 'interrupted=yes' INT TERM HUP
{
	echo "HANDIN version=1 student=$id lab=$lab sizes=$sizes"
	TESTENV_LIMIT=${TESTENV_LIMIT:-1200} testenv/testenv.sh run \
		grading/handin.sh inside all "$id" "$seed" "$lab" "$sizes"
} >"$file"
status=$?
[ -z "$(tail -c 1 "$file")" ] || echo >>"$file" # what was interrupted may lack it
if [ -n "$answers" ]; then
	echo "=== answers"
	cat "$answers"
	echo
fi >>"$file"
if [ -n "$interrupted" ]; then
	echo "=== end interrupted"
elif [ $status -ne 0 ]; then
	echo "=== end failed, exit status $status"
else
	echo "=== end complete"
fi >>"$file"
echo "$file: $(tail -n 1 "$file" | sed 's/=== end //')" >&2
[ $status -eq 0 ] && [ -z "$interrupted" ]
