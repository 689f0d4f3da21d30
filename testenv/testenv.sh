#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# testenv.sh - an RDMA device for the programs built here, on any Linux machine
#
#   testenv.sh run CMD [ARG…]   runs CMD where a device is
#   testenv.sh shell            a shell there; up to four terminals join one VM
#   testenv.sh rxe-up [NETDEV]  makes a Soft-RoCE device in this machine (root)
#   testenv.sh rxe-down         removes it
#   testenv.sh has-device       status 0 if there is a device that you can open
#
# With a device in this machine, `where a device is` means here. Without one it means a small
# VM (QEMU, no root needed) whose kernel has Soft-RoCE. There CMD runs as root over this machine's
# files, in this directory, but what it writes is dropped at the end, except under results/ in the
# project's root. Its stdin is /dev/null; stdout, stderr and exit status are handed on.
#
#   TESTENV=vm|native    the VM even where there is a device; never the VM
#   TESTENV_PASS="A B"   environment variables that are passed into the VM
#   TESTENV_LIMIT=300    seconds for run (8 hours for shell); run takes more on a busy machine
#   TESTENV_HOSTS=2      two VMs joined by a wire: CMD runs in one, 10.0.1.2, and
#                        there.sh runs commands in the other, 10.0.1.1
#   TESTENV_MTU=1500     MTU under the VM's device (4200 gives path MTU 4096)
#   TESTENV_MEMORY=1024  MiB
#   TESTENV_CPUS=2       of the VM
#   TESTENV_CPU=max      QEMU's processor where one is emulated; else max, without rep movsb if TESTENV_CLOCK is unset
#   TESTENV_PROBES=FILE  kprobe events that a stopped VM has already (tracefs, kprobe_events)
#   TESTENV_SEALED=yes   the VM has not even results/ to write to
#   TESTENV_CLOCK=virtual  the VM, with one CPU and a clock that counts instructions:
#                        4 ns each, so that measurements repeat on any machine
#   TESTENV_PATIENCE=10  seconds that a VM with KVM has to show life (more on a busy machine)
#   TESTENV_ARCH=aarch64, TESTENV_ROOT=DIR  a VM with another processor, over a root file
#                        system of its own, in which the working directory lies
#   KERNEL, KERNEL_DEB   the VM's kernel, see kernel.sh
#   TESTENV_CACHE=DIR    where kernels, VMs and logs are kept: ~/.cache/hello-verbs
#
# Exit status: CMD's; 77 no device to be had, 124 over the limit, 125 VM failed.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
export TESTENV_CACHE=${TESTENV_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/hello-verbs}
cache=$TESTENV_CACHE
arch=${TESTENV_ARCH:-$(uname -m)}
export PATH=$PATH:/usr/sbin:/sbin
children='' dir='' kernel='' qemu='' other='' tty='' slots='1 2 3 4'

say() { echo "testenv: $*" >&2; }
die() { # STATUS SENTENCE
	say "$2"
	exit "$1"
}
lang=${LAB_LANG:-${LC_ALL:-${LC_MESSAGES:-${LANG:-}}}}
zh() { [[ ${lang,,} = zh* ]]; }

# patient SECONDS - prints more of them on a busy machine
patient() { local load && read -r load _ </proc/loadavg && echo $(($1 * (1 + ${load%.*} / $(nproc)))); }

# A device with a port that is up, and that one can open. (Permission bits do not tell: in a container the
# open itself may be refused.)
has_device() {
	local node
	grep -qs ACTIVE /sys/class/infiniband/*/ports/*/state || return 1
	for node in /dev/infiniband/uverbs*; do
		# shellcheck disable=SC2188 # the redirection is the test
		(<>"$node") 2>/dev/null && return
	done
	return 1
}
native() {
	[ "${TESTENV:-}" != vm ] && [ "${TESTENV_CLOCK:-}" != virtual ] &&
		[ "${TESTENV_HOSTS:-1}" = 1 ] && has_device
}

# Waits 0.1 s without a process for it: nothing is ever written to this pipe.
exec {tick}<> <(:)
pause() { read -rt 0.1 -u "$tick"; }

# What this script starts dies with it, be it by kill -9.
tied() { exec setpriv --pdeathsig KILL "$@"; }
alive() { kill -0 "$1" 2>/dev/null; }
kill_vm() { {
	kill -9 "$qemu"
	wait "$qemu"
} 2>/dev/null; } # bash would report it

clean_up() {
	exec 2>/dev/null # as in kill_vm
	# shellcheck disable=SC2086 # lists of process numbers
	kill -9 $qemu $other $children
	wait
	[ -z "$dir" ] || rm -rf "$dir"
}
traps() {
	# shellcheck disable=SC2064 # the name, now
	trap "$1" EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
}

# Whether and with which kernel a VM can run here.
prepare() {
	local lack='no RDMA device here'
	[ -z "$(ls /sys/class/infiniband 2>/dev/null)" ] || has_device || lack+=" with an ACTIVE port that $(id -un) can open"
	[ "${TESTENV:-}" != native ] || die 77 "$lack, and TESTENV=native rules the VM out"
	case $arch in
	x86_64 | aarch64) ;;
	*) die 77 "$lack, and there is no VM for a processor of type $arch" ;;
	esac
	"$here/deps.sh" --check vm || die 77 "$lack, and no VM without the above"
	[ "$lack" = 'no RDMA device here' ] || [ -n "${TESTENV:-}${TESTENV_CLOCK:-}" ] || say "$lack: a VM, then ('make doctor' says why)"
	[ "$(id -u)" != 0 ] || ! modprobe -qn rdma_rxe 2>/dev/null ||
		say "this kernel has Soft-RoCE: make rxe-up would give a device without a VM"
	kernel=$(tied "$here/kernel.sh") || exit 125
}

# session - makes $dir, which the VM shares: see init for what is in it.
session() {
	local tmp=${TMPDIR:-/tmp}
	# Sockets stand there: their names have 107 bytes, and neither blanks nor commas, for socat and QEMU.
	[[ ${#tmp} -lt 70 && $tmp != *[!a-zA-Z0-9_./+-]* ]] || tmp=/tmp
	dir=$(mktemp -d "$tmp/testenv.XXXXXX") || die 125 "TMPDIR names a directory that can be written and has room"
	mkfifo "$dir/control.in" "$dir/control.out"
}

# script COMMAND [ARG…] - prints a script that runs it in the guest as here.
script() {
	local name
	# shellcheck disable=SC2016 # the guest's variables
	printf 'cd %q || exit\nexec env -i HOME=/run LANG=C.UTF-8 PATH="$PATH" GLIBC_TUNABLES="$GLIBC_TUNABLES"' \
		"${PWD#"${TESTENV_ROOT:-}"}"
	for name in ${TESTENV_PASS:-} TESTENV_CACHE TESTENV_CLOCK TESTENV_HOSTS; do
		[ -z "${!name+set}" ] || printf ' %q' "$name=${!name}"
	done
	printf ' %q' "$@"
}

# wires DIR HOST - sets wires to QEMU's arguments for a host's two network cards: Ethernet frames
# over sockets in DIR, from host 1's to host 2's and back. The first is the wire that RDMA runs on
# and that may be cut; by the second the hosts are told what to do.
wires() {
	local name
	for name in wire control; do
		wires+=(-netdev "dgram,id=$name,local.type=unix,local.path=$1/$name$2,remote.type=unix,remote.path=$1/$name$((3 - $2))"
			-device "virtio-net-pci,netdev=$name,mac=52:54:00:00:0${#name}:0$2")
	done
}

# qemu_start ACCEL [ARG…] - QEMU on $dir, with more arguments for it. What a stopped VM was
# made with and what goes on with it must have the same devices, so all have all of them.
qemu_start() {
	local cpu=${TESTENV_CPU:-max,-erms,-fsrm} share=local,security_model=none,multidevs=remap results=$dir n terminals=()
	local rootfs=${TESTENV_ROOT:-/} accel=$1 cpus=(-smp "${TESTENV_CPUS:-2}") wires=() machine=pc console=ttyS0
	if [ "${TESTENV_CLOCK:-}" = virtual ]; then                                      # figures are compared: of a processor that copies by rep movsb
		accel=tcg,thread=single,tb-size=$((${TESTENV_MEMORY:-1024} < 1024 ? 128 : 512)) # MiB of translated code
		cpu=${TESTENV_CPU:-max} cpus=(-smp 1 -icount shift=2)
	fi
	if [ "$arch" = aarch64 ]; then # emulating all that a processor can be is slow there
		machine=virt,gic-version=max console=ttyAMA0 cpu=cortex-a72
	fi
	[ "$1" != kvm ] || cpu=host
	if [ "${TESTENV_HOSTS:-1}" = 2 ]; then
		wires "${dir%/other}" "$host"
		cpus=(-smp 1) # two on each would take turns on most machines
	fi
	if [ -d "$root/results" ] && [ -z "${TESTENV_SEALED:-}" ]; then
		printf %s "${root#"${TESTENV_ROOT:-}"}/results" >"$dir/results"
		results=$root/results
	fi
	for n in $slots; do
		if [ -e "$dir/slot$n" ]; then
			terminals+=(-chardev "socket,id=t$n,path=$dir/tty$n,server=on,wait=off")
		else
			terminals+=(-chardev "null,id=t$n")
		fi
		terminals+=(-device "virtserialport,chardev=t$n,nr=$((n + 1))")
	done
	[ "$arch" != x86_64 ] || terminals+=(-device "vmgenid,guid=auto") # new random numbers for each
	tied "qemu-system-$arch" -accel "$accel" -cpu "$cpu" "${cpus[@]}" "${@:2}" \
		-nodefaults -no-user-config -display none -no-reboot \
		-machine "$machine" -m "${TESTENV_MEMORY:-1024}" \
		-kernel "$kernel/vmlinux" -initrd "$kernel/initramfs" \
		-append "console=$console quiet panic=-1 no_timer_check testenv.mtu=${TESTENV_MTU:-1500} testenv.host=$host $hold" \
		-chardev "file,id=console,path=$dir/console" -serial chardev:console \
		-fsdev "$share,id=root,path=${rootfs//,/,,},readonly=on" \
		-device virtio-9p-pci,fsdev=root,mount_tag=root \
		-fsdev "$share,id=session,path=$dir" \
		-device virtio-9p-pci,fsdev=session,mount_tag=session \
		-fsdev "$share,id=results,path=${results//,/,,}" \
		-device virtio-9p-pci,fsdev=results,mount_tag=results \
		-device virtio-serial-pci -chardev "pipe,id=control,path=$dir/control" \
		-device virtserialport,chardev=control,nr=1 \
		"${wires[@]}" "${terminals[@]}" </dev/null >"$dir/qemu" 2>&1 &
	qemu=$!
}

lock() { # FILE [OPTION] - the file descriptor is in $held, in any case
	held=''
	{ exec {held}>"$1"; } 2>/dev/null && flock ${2:+"$2"} "$held"
}
unlock() { [ -z "${1:-$held}" ] || eval "exec ${1:-$held}>&-"; }

# stopped - sets $stopped to the directory of a stopped VM with rxe0 up, from where this one can go
# on (booting is most of what a command takes where VMs are emulated); makes it if there is none.
stopped() {
	local shape lock
	shape=$({
		cat "$here/testenv.sh" "${TESTENV_PROBES:-/dev/null}"
		stat -Lc '%s %Y' "$(command -v "qemu-system-$arch")"
		echo "$kernel ${TESTENV_ROOT:-} ${TESTENV_CPUS:-2} ${TESTENV_CLOCK:-} ${TESTENV_MTU:-1500}" \
			"${TESTENV_MEMORY:-1024} ${TESTENV_HOSTS:-1} $host ${TESTENV_CPU:-}"
	} | cksum)
	stopped=$cache/vm-${shape%% *}
	[ ! -d "$stopped" ] || return 0
	lock "$cache/vm.lock" -n ||
		{ unlock && say "waiting for another testenv, which starts a VM" && lock "$cache/vm.lock"; }
	lock=$held
	[ -d "$stopped" ] || store
	unlock "$lock"
	[ -d "$stopped" ]
}

# store - boots a VM up to where it holds, and stores its state in $stopped.
store() {
	local hold=testenv.hold end=$((SECONDS + $(patient 300)))
	say "$(zh && echo "正在启动虚拟机（只这一次；以后从这里继续）" || echo "starting a VM (once; later ones go on from there)")"
	rm -rf "$cache/vm-new"
	mkdir "$cache/vm-new"
	[ -z "${TESTENV_PROBES:-}" ] || cp "$TESTENV_PROBES" "$dir/probes"
	export TESTENV_STATE=$cache/vm-new/state # QEMU's child knows it by its name
	# One thread: with two, Linux 7.2 once died of an int3 in code that it was just patching.
	qemu_start tcg,thread=single -monitor "unix:$dir/monitor,server=on,wait=off"
	while alive "$qemu" && ((SECONDS < end)) && ! grep -qs '^testenv: holding' "$dir/console"; do pause; done
	# shellcheck disable=SC2016 # for QEMU's child
	printf '%s\n' 'migrate_set_parameter max-bandwidth 100G' \
		'migrate "exec:cat >\"$TESTENV_STATE\""' quit | socat -t 100 - "UNIX-CONNECT:$dir/monitor" >/dev/null 2>&1
	kill_vm
	if grep -qs '^testenv: holding' "$dir/console" && [ -s "$TESTENV_STATE" ]; then
		# Each takes 100 MB: those not used for a week go.
		find "$cache" -maxdepth 1 -name 'vm-[0-9]*' -mtime +7 -exec rm -rf {} +
		mv "$cache/vm-new" "$stopped"
	else
		say "no VM could be stored (is there room in $cache?): $(tail -qn1 "$dir/qemu" "$dir/console")"
	fi
	rm -f "$dir"/{console,qemu,monitor}
}

# resume - the stopped VM goes on. Fails if there is none, or it does not.
resume() {
	local stopped go
	stopped || return
	touch "$stopped"
	exec {go}<>"$dir/control.in" # what is in a pipe is lost when nobody has it open
	echo go >&"$go"
	export TESTENV_STATE=$stopped/state
	# shellcheck disable=SC2016 # for QEMU's child
	qemu_start tcg -incoming 'exec:cat "$TESTENV_STATE"'
	wait_alive "$(patient 60)" 2>/dev/null && unlock "$go" && return
	kill_vm
	say "the stopped VM in $stopped is of no use, so one is booted, and the next time a new one is made"
	rm -rf "$stopped"
	return 1
}

# start - starts the VM. A /dev/kvm that can be opened may yet hang the guest (nested hypervisors):
# it has 10 s to show life. If emulation then does better, that is remembered.
start() {
	local answer host=0 hold=''
	[ ! -e "$dir/host" ] || host=$(cat "$dir/host")
	answer="$(uname -nr) $(basename "${kernel%-*}")"
	if [ "${TESTENV_CLOCK:-}" = virtual ] || [ ! -w /dev/kvm ] || [ "$arch" != "$(uname -m)" ] ||
		grep -qsFx "$answer" "$cache/no-kvm"; then
		resume || qemu_start tcg
		return
	fi
	qemu_start kvm
	wait_alive "${TESTENV_PATIENCE:-$(patient 10)}" 2>/dev/null && return # as in kill_vm
	kill_vm
	resume || qemu_start tcg
	wait_alive "$(patient 60)" || return
	echo "$answer" >>"$cache/no-kvm"
	say "/dev/kvm does not work here, so the VM is emulated from now on; to try again, remove $cache/no-kvm"
}
wait_alive() { # SECONDS
	local end=$((SECONDS + $1))
	while alive "$qemu" && ((SECONDS < end)) && [ ! -e "$dir/alive" ]; do pause; done
	[ -e "$dir/alive" ]
}

# other_host - boots the second VM, which does what there.sh tells it.
other_host() {
	local dir=$dir/other
	mkdir "$dir"
	mkfifo "$dir/control.in" "$dir/control.out"
	echo 1 >"$dir/host"
	script "$here/there.sh" --serve >"$dir/cmd"
	: >"$dir/out"
	start
	other=$qemu
}

# failed STATUS SENTENCE - keeps the console log and ends.
failed() {
	local why log=$cache/log-$EPOCHSECONDS-$$
	kill_vm
	pause
	pause
	pause # for the last output to get out
	cat "$dir"/{,other/}{qemu,console,out} >"$log" 2>/dev/null
	why=$(tr -d '\r' <"$log" | sed -n 's/^testenv FAILED: //p; s/.*\(INFO: task .* blocked\|BUG: \|Oops: \|Kernel panic\)/\1/p' | head -n1)
	die "$1" "$2${why:+ ($why)}; its console log is $log"
}

run() {
	local limit end pid
	limit=$(patient "${TESTENV_LIMIT:-300}") end=$((SECONDS + limit))
	[ $# -gt 0 ] || die 2 "run needs a command"
	if native; then exec "$@"; fi
	prepare
	traps clean_up
	session
	trap 'failed 143 "the VM was stopped by a signal"' TERM
	script "$@" >"$dir/cmd"
	# The guest writes files and tail hands them on. A write over 9p is done when it returns.
	: >"$dir/out"
	if [ "${TESTENV_HOSTS:-1}" = 2 ]; then
		echo 2 >"$dir/host"
		other_host
	fi
	[ /dev/fd/1 -ef /dev/fd/2 ] || : >"$dir/err" # 2>&1: keep the order
	start
	tied tail -f -s 0.1 --pid="$qemu" -c +1 "$dir/out" 2>/dev/null &
	children=$!
	if [ -e "$dir/err" ]; then
		tied tail -f -s 0.1 --pid="$qemu" -c +1 "$dir/err" >&2 2>/dev/null &
		children+=" $!"
	fi
	while alive "$qemu" && [ ! -e "$dir/status" ]; do
		for pid in $children; do
			# Nobody reads any more: as SIGPIPE would.
			alive "$pid" || ! alive "$qemu" || exit 141
		done
		[ -z "$other" ] || alive "$other" || failed 125 "the other VM failed"
		((SECONDS < end)) ||
			failed 124 "the VM was stopped at the limit of $limit s"
		pause
	done
	kill_vm # it has nothing left to do but power off
	[ -z "$other" ] || qemu=$other kill_vm
	wait # for the last output to be read
	[ -s "$dir/status" ] || failed 125 "the VM failed"
	exit "$(cat "$dir/status")"
}

case ${1:-} in
run) "$@" ;;
shell | keeper)
	# shellcheck source=testenv/shell.sh
	. "$here/shell.sh"
	"$@"
	;;
rxe-up | rxe-down) exec "$here/rxe.sh" "$@" ;;
has-device) has_device ;;
*)
	sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
