#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# A simulated InfiniBand fabric with the real OpenSM, and a shell in which the real tools work.
#
#   fabric.sh start [COMMAND]   a shell, or one command; TOPOLOGY, HOSTS, ROUTING say which fabric
#   fabric.sh NAME [ARGUMENT…]  in that shell: what fabric-help lists
#
# Each process of a fabric has FABRIC=its directory in its environment.
set -u
here=$(dirname "$(realpath "$0")")
sbin=/usr/sbin
shopt -s nullglob
library=(/usr/lib*/umad2sim/libumad2sim.so /usr/lib*/*/umad2sim/libumad2sim.so)
help="at HOST [COMMAND…]         a command (a shell, if there is none) at another host
cut A B                    cut all links between two nodes
mend A B                   join them again
sweep                      let OpenSM look at the whole fabric again
start-sm HOST [OPTION…]    OpenSM at a host (-p 5: with this priority; -R updn: its routing)
stop-sm HOST               end the OpenSM at a host
sim COMMAND…               a command for the simulator's console (sim help lists them)
path A B                   the way from host to host, hop by hop, by the forwarding tables
load [all|neighbour|shift] how many paths share the links between switches
loops                      channels that can wait for each other in a ring (a deadlock by credits)
check-tables FILE          your forwarding tables, lines like: leaf1 host3 port 4
fabric-map [FILE]          a page: picture, LIDs, tables, paths; once more: red is what has changed
fabric-help                this list
ibstatus ibroute smpquery saquery …  the packages' tools"

die() {
	echo "fabric: $*" >&2
	exit 1
}

usage() { # NAME
	grep "^$1 " <<<"$help" >&2
	exit 1
}

processes() { # which have this in their environment; the options are grep's
	grep -lsz "$@" /proc/[0-9]*/environ | tr -cd '0-9\n'
}

# --- Around the shell.

end_all() {         # FOLDER: kills what is left of a fabric until nothing is, and removes its files
	local pids how=HUP # a shell gives back the terminal then
	while pids=$(processes -xF "FABRIC=$1") && [ -n "$pids" ]; do
		# shellcheck disable=SC2086
		kill -$how $pids 2>/dev/null
		how=KILL
		sleep 0.1
	done
	[ ! -e "$1/left" ] || xargs -d '\n' rm -rf <"$1/left" # see write_files
	rm -rf "$1"
}

# shellcheck disable=SC2016 # what it writes is expanded later
write_files() { # what OpenSM, bash and the commands read
	mkdir "$FABRIC/bin"
	mkfifo "$FABRIC/console"
	touch "$FABRIC/"{opensm,ibsim}.log
	echo {} >"$FABRIC/before.json" # of fabric-map
	# OpenSM looks at its log's file and the other SM often enough for a lab; at the fabric only
	# after a trap and when told to (sweep).
	printf '%s\n' 'force_log_flush TRUE' 'sminfo_polling_timeout 1000' 'sweep_interval 9999' \
		>"$FABRIC/opensm.conf"
	printf '%s\n' '[ ! -f ~/.bashrc ] || . ~/.bashrc' 'PATH=$FABRIC/bin:$PATH' \
		'PS1="at \$FABRIC_HOST> "' >"$FABRIC/rc"
	local name path
	for path in $sbin/{ib*,smp*,sminfo,saquery,perfquery,dump_*,opensm,osmtest,vendstat}; do
		# The library makes a directory for a tool, which a tool that is killed leaves.
		printf '#!/bin/sh\necho "$PWD/sys-$$" >>"$FABRIC/left"\nLD_PRELOAD=%s exec %s "$@"\n' \
			"${library[0]}" "$path" >"$FABRIC/bin/${path##*/}"
	done
	while read -r name _; do
		printf '#!/bin/sh\nexec "%s" %s "$@"\n' "$here/fabric.sh" "$name" >"$FABRIC/bin/$name"
	done <<<"$help"
	# coreutils has a cut, too, which other scripts call.
	sed -i '2i case $1 in -*) exec /usr/bin/cut "$@" ;; esac' "$FABRIC/bin/cut"
	chmod +x "$FABRIC/bin/"*
}

run() { # a command, which the simulator must survive. Bash lets what is in the background ignore signals.
	env --default-signal=INT,QUIT "$@" <&0 &
	wait -n $! "$ibsim" 2>/dev/null
	local status=$? said
	kill -0 "$ibsim" 2>/dev/null && return $status
	said=$(sed -n '/simulator ready/q; /cannot parse/d; s/^ibwarn: [^:]*: //p' "$FABRIC/ibsim.log" | tail -1)
	die "the simulator has ended: ${said:-no word}"
}

serve() { # [COMMAND]
	local began=$EPOCHREALTIME hosts switches ports sm=(start-sm "$SIM_HOST") shell=(--rcfile "$FABRIC/rc" -i)
	write_files
	ports=$(awk '/^[SCR]/ { n += $2 + 1 } END { print n + 1 }' "$FABRIC/net")
	hosts=$(grep -c ^Ca "$FABRIC/net") switches=$(grep -c ^Switch "$FABRIC/net")
	(cd "$FABRIC" && exec ibsim -s -N $((hosts + switches + 99)) -S $((switches + 9)) -P "$ports" \
		"$FABRIC/net" <>console >ibsim.log 2>&1) &
	ibsim=$!
	[ -z "${ROUTING:-}" ] || sm+=(-R "$ROUTING")
	run "$0" "${sm[@]}" || exit
	began=$((${EPOCHREALTIME/[.,]/} - ${began/[.,]/}))
	echo "$hosts hosts, $switches switches; OpenSM at $FABRIC_HOST: routed after" \
		"$((began / 1000000)).$((began / 100000 % 10)) s. exit ends it; fabric-help lists the commands."
	[ $# = 0 ] || shell=(-c "$1")
	run bash "${shell[@]}"
}

do_start() { # [COMMAND]: a fabric for as long as a shell or a command runs
	terminal=$(stty -g 2>/dev/null)
	folder=$(mktemp -dt fabric-XXXXXX) || exit
	trap 'exit 130' INT
	trap 'exit 1' TERM HUP
	trap finish EXIT
	exec 9> >(exec setsid "$0" keep "$folder")
	python3 "$here/topology.py" "${TOPOLOGY:-fat-tree}" "${HOSTS:-8}" >"$folder/net" || exit
	export FABRIC=$folder IBSIM_SOCKNAME=${folder##*/} OSM_CACHE_DIR=$folder OSM_TMP_DIR=$folder
	export PATH=$folder/bin:$PATH:$sbin IBPATH FABRIC_HOST SIM_HOST
	IBPATH=$(printf %q "$folder/bin")
	# The first host with a link at its port 1, where the simulated tools sit.
	IFS='"' read -r _ SIM_HOST _ FABRIC_HOST _ < <(grep -B1 '^\[1\]' "$folder/net" | grep ^Ca)
	serve "$@" 9>&-
}

finish() {
	trap '' INT TERM HUP TTOU
	exec 9>&- 2>/dev/null                  # and no word about jobs that are killed
	unset FABRIC                           # this process is to stay
	end_all "$folder"                      # if the keeper could not
	[ -z "$terminal" ] || stty "$terminal" # of a shell that was killed
}

# --- In the shell.

since() { # LOG BYTE: what the log says from there on
	tail -c "+$(($2 + 1))" "$FABRIC/$1.log"
}

wait_for() { # LOG BYTE [-z] PATTERN: until the log matches from there on; -z: over several lines
	until since "$1" "$2" | grep -qE "${@:3}"; do
		[ -z "${gone-}" ] || die "OpenSM has ended: wrong options?"
		kill -0 "${opensm:-$$}" 2>&- || local gone=yes
		[ "$(stat -fc %a "$FABRIC")" != 0 ] || die "no space left in $FABRIC"
		sleep 0.1
	done
}

find_node() { # NAME: sets id and name of the node that is called so or has this id
	local found
	mapfile -t found < <(wanted=$1 awk -F'"' '/^[SCR]/ && ($2 == ENVIRON["wanted"] ||
		$4 == ENVIRON["wanted"]) { print $2; print $4 }' "$FABRIC/net")
	[ ${#found[@]} = 2 ] || die "$((${#found[@]} / 2)) nodes are called '$1'; \$FABRIC/net has their ids"
	id=${found[0]} name=${found[1]}
}

take_seat() { # NAME: at this node
	find_node "$1"
	awk -F'"' -v id="$id" '/^[SCR]/ { on = $2 == id } on && /^(Switch|\[1\])/' "$FABRIC/net" | grep -q . ||
		die "$1 has no link at port 1, where the simulated tools sit"
	SIM_HOST=$id FABRIC_HOST=$name
}

do_at() {
	[ $# -gt 0 ] || usage at
	take_seat "$1"
	[ $# -gt 1 ] || set -- "$1" bash --rcfile "$FABRIC/rc" -i
	exec "${@:2}"
}

do_sim() {
	local begin
	begin=$(wc -c <"$FABRIC/ibsim.log")
	printf '%s\n# end\n' "$*" >"$FABRIC/console"
	wait_for ibsim "$begin" '# end'
	since ibsim "$begin" | sed 's/sim> //g; /# end/,$d'
}

change() { # VERB NAME A B: and waits for what OpenSM makes of it
	[ $# = 4 ] || usage "$2"
	find_node "$4"
	local peer=$id port ports
	find_node "$3"
	ports=$(awk -F'"' -v id="$id" -v peer="$peer" '/^[SCR]/ { on = $2 == id }
		on && /^\[/ && $2 == peer { split($1, part, /[][]/); print part[2] }' "$FABRIC/net")
	[ -n "$ports" ] || die "$3 and $4 have no link"
	for port in $ports; do
		do_sim "$1 \"$id\"[$port]" >/dev/null
		echo "$1 port $port of $3"
	done
	do_sweep
}

do_sweep() {
	local begin
	begin=$(wc -c <"$FABRIC/opensm.log")
	# shellcheck disable=SC2046
	kill -HUP $(processes "^FABRIC_SM=$FABRIC ") 2>/dev/null || die "no OpenSM runs"
	wait_for opensm "$begin" -z "INITIATING HEAVY SWEEP .*(\* SUBNET UP \*|ERR 0D01)"
}

do_start-sm() {
	[ $# -gt 0 ] || usage start-sm
	local begin option options=()
	wait_for ibsim 0 "simulator ready"
	take_seat "$1"
	for option in "${@:2}"; do
		[ ! -f "$option" ] || option=$(realpath "$option")
		options+=("$option")
	done
	begin=$(wc -c <"$FABRIC/opensm.log")
	cd "$FABRIC" || exit
	# -D 0x47: log errors and what happens, and dump tables
	FABRIC_SM="$FABRIC $id" LD_PRELOAD=${library[0]} $sbin/opensm -F opensm.conf -f "$FABRIC/opensm.log" \
		-D 0x47 "${options[@]}" </dev/null >/dev/null 2>&1 &
	local opensm=$!
	wait_for opensm "$begin" \
		"SUBNET UP|SM PORT DOWN|Entering STANDBY|[Ee]xiting|ERR.*rout|not a.*fat-tree"
}

do_stop-sm() {
	[ $# = 1 ] || usage stop-sm
	local pid pids
	find_node "$1"
	pids=$(processes -xF "FABRIC_SM=$FABRIC $id")
	[ -n "$pids" ] || die "no OpenSM at $1"
	for pid in $pids; do
		kill "$pid"
		timeout 60 tail -s 0.1 --pid="$pid" -f /dev/null || die "OpenSM does not end"
	done
}

# A shell script that reads /sys. The library moves that while a process lives that has looked there with
# it. No shell: each child's SIGCHLD would break off the library's poll ("ERR: real_poll failure").
do_ibstatus() {
	cd "$FABRIC" || exit
	LD_PRELOAD=${library[0]} exec python3 -c '
import os, subprocess, sys
del os.environ["LD_PRELOAD"]
os.listdir("/sys/class/infiniband")
sys.exit(subprocess.run(["sh", "-c", *sys.argv[1:]]).returncode)
' "$(sed "s|/sys/class/infiniband|\$FABRIC/sys-\$PPID&|" $sbin/ibstatus)" ibstatus "$@"
}

case ${1:-start} in
keep) # end everything when the pipe has no writer any more: when start has ended, however
	cat >/dev/null
	end_all "$2"
	;;
cut) change Unlink "$@" ;;
mend) change ReLink "$@" ;;
fabric-help) echo "$help" ;;
path | load | loops | check-tables | fabric-map)
	python3 "$here/report.py" "$@"
	status=$?
	[ $status != 2 ] || usage "$1"
	exit $status
	;;
*) "do_${1:-start}" "${@:2}" ;;
esac
