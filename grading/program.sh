#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Grades programs that students wrote, each a folder of C files that is built like one of
# 05 to 07 and takes the same command line:
#   program.sh LAB FOLDER      FOLDER: one program's, or a folder of such folders
# Everything of theirs, compiler runs too, happens in the VM, there as nobody, with limits
# on time and memory, and out of sight of home directories, the suite and other hand-ins.
# Each runs as client and as server against the reference, and against itself, with layouts
# drawn anew each time and with the awkward ones.
#   ONLY="sgl NAME:each"   these parts alone; the second of that folder's program
#   ROUNDS=2          layouts to draw
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
export LC_ALL=C

# ---- in the VM, as root; the student's programs as nobody ----

work=/run/grade # the reference: nobody may look at it
open=/run/open  # what students' programs need

nobody() { # COMMAND… - with limits, and without what it leaves running
	(
		ulimit -t 60 -v 800000 -f 20480 -n 256 -u 100 -c 0
		exec setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs \
			timeout -s KILL 30 "$@"
	)
}

# Whatever a student's program says, cut and made printable.
clean() { tr -c '\11\12\40-\176' '?' | cut -c 1-160; }

builds() { # FOLDER - sets $why
	local said status
	rm -rf "${open:?}/build"
	mkdir "$open/build"
	find "$1" -maxdepth 1 -type f -name '*.[ch]' -size -1000k -exec cp {} "$open/build" \;
	chown -R 65534:65534 "$open/build"
	cd "$open/build" || exit
	said=$(nobody gcc -std=c11 -Wall -Wextra -I../common -I../blocks -o program ./*.c \
		../course.a -libverbs 2>&1 | head -c 4000)
	[ -f program ] && [ -x program ]
	status=$?
	chown -R 0:0 "$open/build" # from now on it changes nothing here
	chmod 1777 "$open/out"
	why=''
	[ "$status" -eq 0 ] || why="it doesn't build"
	[ -z "$said" ] || why=${why:-it builds with warnings}$'\n'$(clean <<<"$said" | grep -m 1 -E 'error|warning|undefined' || clean <<<"$said" | head -n 1)
	return "$status"
}

# side WHO ROLE ARGUMENTS… - runs one side; WHO: reference, liar, or student, whom the spy
# watches where $spy says how.
side() {
	local who=$1 role=$2 watch=''
	shift 2
	if [ "$who" != student ]; then
		timeout -s KILL 30 "$work/$who" "$@"
		return
	fi
	[ -z "$spy" ] || [ "${spy%% *}" != "$role" ] || watch="${spy#* } $open/out/spy.$role"
	nobody env -i ${watch:+LD_PRELOAD=$open/spy.so SPY="$watch"} "$open/build/program" "$@"
}

port=20000
declare -A status
# pair SERVER CLIENT ARGUMENTS… - leaves what each side said in $open/out/ROLE and how it
# ended in ${status[ROLE]}.
pair() {
	local server=$1 client=$2 pid tries=10
	shift 2
	port=$((port + 1))
	rm -rf "${open:?}"/out/*
	side "$server" server --port=$port --timeout=5 >"$open/out/server" 2>&1 &
	pid=$!
	side "$client" client "$@" --port=$port --timeout=5 127.0.0.1 >"$open/out/client" 2>&1
	status[client]=$?
	# A server that nobody called waits for ten minutes: less after a client that failed.
	[ "${status[client]}" -ne 0 ] || tries=60
	while kill -0 $pid 2>/dev/null && [ $((tries--)) -gt 0 ]; do sleep 0.1; done
	setpriv --reuid=65534 --regid=65534 --clear-groups bash -c 'kill -KILL -1' 2>/dev/null
	kill_tree $pid
	wait $pid 2>/dev/null
	status[server]=$?
}
kill_tree() { # a reference that waits on
	local child children=()
	read -ra children 2>/dev/null <"/proc/$1/task/$1/children"
	for child in "${children[@]}"; do kill_tree "$child"; done
	kill -KILL "$1" 2>/dev/null
}

# heard ROLE - what a side said: $result, the last of $results RESULT lines; $layout; $last,
# its last line; $words, the one before its RESULT and hint, or how bash says that it ended.
heard() {
	local line lines ended='program\.sh: line [0-9]+: +[0-9]+ ([A-Z][A-Za-z ]*[a-z])  +\('
	results=0 result='' layout='' last='' words=''
	mapfile -t -n 1000 lines <"$open/out/$1"
	for line in "${lines[@]}"; do
		last=$line
		case $line in
		'RESULT '*) results=$((results + 1)) result=$line ;;
		'LAYOUT '*) layout=$line ;;
		'  hint'*) ;;
		*) words=$line ;;
		esac
	done
	[[ ! $words =~ $ended ]] || words=${BASH_REMATCH[1]}
}
# has LINE NAME - the value of  NAME=value  as $value
has() {
	value=''
	[[ " $1 " =~ \ $2=([^ ]*)\  ]] && value=${BASH_REMATCH[1]}
}

# passed ROLE WHO - did a side, of which heard has told, pass, and if the student's, with
# the reference's digest? Or sets $why.
passed() {
	if [ "$results" -ne 1 ] || [ "$last" != "$result" ]; then
		why="the $1 ($2) ends without one RESULT line: $last"
	elif ! has "$result" status || [ "$value" != PASS ]; then
		why="the $1 ($2) didn't pass: $words"
	elif [ "${status[$1]}" -ne 0 ]; then
		why="the $1 ($2) says PASS and exits with ${status[$1]}"
	elif ! has "$result" digest || { [ -n "$digest" ] && [ "$value" != "$digest" ]; }; then
		why="the $1 ($2) has another digest than the message"
	elif ! has "$result" bytes || [ "$value" != $((size * num)) ]; then
		why="the $1 ($2) says that there were $value bytes"
	else
		has "$result" digest
		digest=$value
		return 0
	fi
	return 1
}

# move SERVER CLIENT METHOD LAYOUT - one right transfer, seen by the reference and the spy.
move() {
	local method=$3 seed=$RANDOM$RANDOM size num stride digest='' role other
	local -A who=([server]=$1 [client]=$2)
	local results result layout last words value
	read -r size num stride <<<"$4"
	spy=''
	case $lab,$2 in # whose requests are to be watched
	05,student | 07,student) spy="client 1" ;;
	06,student) spy="client 2" ;;
	esac
	[ "$lab,$1" != 07,student ] || spy="server 0"
	[ -z "$spy" ] || spy+=" $method $size $num $stride $seed"
	pair "$1" "$2" --method="$method" --block-size="$size" --block-num="$num" \
		--stride="$stride" --seed="$seed"
	why=''
	# The reference first: its memory, its digest; then what the student's own says.
	for role in server client; do
		[ "${who[$role]}" = reference ] || continue
		heard $role
		if [ -n "$layout" ] && [[ "$layout " != *" block_size=$size block_num=$num stride=$stride "*" seed=$seed "* ]]; then
			why="it asked for another layout than it was told to"
		elif ! passed $role reference; then
			[ "${status[$role]}" -lt 128 ] || why="the $role (reference) waited in vain"
			other=$([ $role = server ] && echo client || echo server)
			heard "$other"
			why+=$'\n'"the $other (student) says: $words"
		fi
	done
	for role in server client; do
		if [ -n "$why" ] || [ "${who[$role]}" != student ]; then continue; fi
		heard $role
		passed $role student || break
		if [ "${spy%% *}" = $role ]; then
			why="it keeps out what is to watch it"
			[ ! -e "$open/out/spy.$role" ] || read -r why <"$open/out/spy.$role"
			[ -z "$why" ] || why="the $role (student): $why"
		fi
	done
	[ -z "$why" ] || why+=$'\n'"method $method, block_size=$size block_num=$num stride=$stride"
	[ -z "$why" ]
}

# A message with a wrong byte: the side that receives it has to say so.
refuses() {
	local role=server seed=$RANDOM$RANDOM results result layout last words value
	spy=''
	if [ "$lab" = 06 ]; then
		role=client
		pair liar student --seed="$seed" --block-size=200 --block-num=50
	else
		pair student liar --seed="$seed" --block-size=200 --block-num=50
	fi
	heard $role
	why=''
	if ! has "$result" status || [ "$value" != FAIL ]; then
		why="the $role (student) says ${result:-nothing} of a message with a wrong byte"
	elif [ "${status[$role]}" -eq 0 ]; then
		why="the $role (student) exits with 0 after a message with a wrong byte"
	fi
	[ -z "$why" ]
}

one_part() { # PART - right, or $why
	local layout
	case $1 in
	sgl | copy | each)
		for layout in "${layouts[@]}"; do
			move reference student "$1" "$layout" && move student reference "$1" "$layout" || return
		done
		;;
	itself)
		for method in sgl copy each; do
			move student student $method "${layouts[0]}" || return
		done
		;;
	verifies) refuses && refuses ;;
	esac
}

inside() { # LAB FOLDER…
	local lab=$1 folder part points score total why built method spy='' layouts=() parts
	local only=" ${ONLY:-builds sgl copy each itself verifies} "
	shift
	mkdir -p $work $open/{common,blocks,out}
	chmod 700 $work
	cp "$root/grading/build/reference-$lab" $work/reference
	cp "$root/grading/build/liar-$lab" $work/liar
	cp "$root"/grading/build/{spy.so,course.a} $open
	cp "$root"/common/*.h $open/common
	cp "$root"/blocks/*.h $open/blocks
	parts=$(sed -n 's/^\(builds\|sgl\|copy\|each\|itself\|verifies\) *\([0-9]*\).*/\1 \2/p' \
		"$root/grading/rubric.txt")
	mkdir /run/hand-ins
	for folder; do
		mkdir "/run/hand-ins/${folder##*/}"
		find "$folder" -maxdepth 1 -type f -name '*.[ch]' -size -1000k \
			-exec cp {} "/run/hand-ins/${folder##*/}" \;
	done
	chmod 700 /run/hand-ins
	chmod 666 /dev/infiniband/uverbs*
	rm -f /run/cmd # what started this
	# Neither the reference's source nor anything else of this machine's owner is seen.
	for folder in "$root" "$(dirname "$1")" /home /root; do
		[ "$folder" = / ] || mount -t tmpfs -o size=64M,mode=1777 none "$folder"
	done
	cd /run || exit
	mount -t tmpfs -o size=64M,mode=1777 none $open/out

	for ((i = 0; i < ${ROUNDS:-2}; i++)); do
		local size=$((1 + RANDOM % 2500))
		layouts+=("$size $((33 + RANDOM % 100)) $((size + 1 + RANDOM % 500))")
	done
	# One block more than a list holds, of a byte; a full list; one block; no gaps; more
	# blocks than a send queue has room for.
	layouts+=("1 33 3" "64 32 100" "777 1 777" "100 40 100" "8 2100 9")

	for folder in /run/hand-ins/*; do
		score=0 total=0
		printf '\n#### %s\n' "${folder##*/}"
		builds "$folder"
		built=$?
		while read -r part points; do
			[[ $part = builds || $only = *" $part "* || $only = *" ${folder##*/}:$part "* ]] || continue
			if [ "$part" != builds ] && [ $built -ne 0 ]; then
				why="it doesn't build"
			elif [ "$part" != builds ]; then
				one_part "$part"
			fi
			total=$((total + points))
			if [ -z "$why" ]; then
				score=$((score + points))
				echo "== $part == OK ($points/$points)"
			else
				echo "== $part == FAIL (0/$points)"
				clean <<<"$why" | sed 's/^/     /'
			fi
		done <<<"$parts"
		echo "Score: $score/$total"
	done
	exit 0
}

if [ "${1:-}" = inside ]; then
	inside "${@:2}"
fi

# ---- on this machine ----

lab=${1:-} folder=${2:-}
[[ $lab =~ ^0[567]$ ]] || { echo "LAB=$lab is not 05, 06 or 07" >&2; exit 2; }
[ -d "$folder" ] || { echo "no folder: make grade-program DIR=FOLDER" >&2; exit 2; }
folder=$(cd "$folder" && pwd)
programs=("$folder")
if [ -z "$(find "$folder" -maxdepth 1 -name '*.c' -print -quit)" ]; then
	programs=()
	for one in "$folder"/*/; do
		one=${one%/}
		# A name with anything else in it doesn't get near a shell or a terminal.
		[[ ${one##*/} =~ ^[A-Za-z0-9._-]+$ && ! -L $one ]] || { echo "left out, for its name: ${one##*/}" | tr -c '\12\40-\176' '?'; continue; }
		programs+=("$one")
	done
	[ ${#programs[@]} -gt 0 ] || { echo "$folder holds no C files, and no folders" >&2; exit 2; }
fi
cd "$root" || exit
# With one CPU, where nobody waits by spinning, a pair takes less work.
TESTENV=vm TESTENV_CPUS=1 TESTENV_SEALED=yes TESTENV_PASS="ONLY ROUNDS" \
	TESTENV_LIMIT=${TESTENV_LIMIT:-$((120 + 400 * ${#programs[@]}))} \
	testenv/testenv.sh run grading/program.sh inside "$lab" "${programs[@]}"
