#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# shellcheck disable=SC2154 # testenv.sh, which reads this, has the rest
# shell.sh - up to four terminals in one VM
#
# A keeper process owns the VM, so that all terminals are equal. Each locks its
# slot while it lives; when no slot is locked, the keeper ends and takes the VM with it. The kernel
# drops the locks of whoever dies. $link leads to the session's directory; who comes or goes does
# so under $link.lock.
link=$cache/shell-$(uname -n)-$(id -u)-$(cksum <<<"$root" | cut -d ' ' -f 1)
kept() { # is there a keeper for directory $1?
	local free
	[ -O "$1/keeper" ] || return # a directory of another user would be a trap
	lock "$1/keeper" -ns
	free=$?
	unlock
	((free))
}

keeper() { # DIR KERNEL
	local n global used=1 end=$((SECONDS + ${TESTENV_LIMIT:-28800}))
	dir=$1 kernel=$2
	traps clean_up
	start
	while ((used)); do
		alive "$qemu" || failed 125 "the VM failed"
		((SECONDS < end)) || die 124 "the VM was stopped at the limit of ${TESTENV_LIMIT:-28800} s"
		for n in 1 2 3 4 5; do pause; done
		lock "$link.lock"
		global=$held used=0
		for n in $slots; do
			lock "$dir/slot$n" -n || used=1
			unlock
		done
		((used)) || rm -f "$link"
		unlock "$global"
	done
}

shell() {
	local n global slot log
	if native; then
		say "a shell of this machine, which has an RDMA device: see ibv_devinfo"
		exec bash
	fi
	[[ -t 0 && -t 1 ]] || die 2 "shell needs a terminal"
	prepare
	lock "$link.lock"
	global=$held
	if kept "$link"; then
		dir=$(readlink "$link")
	else
		say "$(zh && echo 正在启动虚拟机 || echo starting a VM)"
		session
		printf %s "$root" >"$dir/project"
		for n in $slots; do : >"$dir/slot$n"; done
		lock "$dir/keeper" # inherited by the keeper, and so held until it is gone
		setsid "$here/testenv.sh" keeper "$dir" "$kernel" \
			</dev/null >/dev/null 2>"$dir/keeper.log" {global}>&- &
		unlock
		ln -sfn "$dir" "$link"
	fi
	for n in $slots none; do
		[ "$n" != none ] || die 1 "all terminals of the VM are in use"
		lock "$dir/slot$n" -n && break
		unlock
	done
	slot=$held
	unlock "$global"
	exec {log}<"$dir/keeper.log" # still readable when the keeper has removed it
	while kept "$dir" && [ ! -e "$dir/ready" ]; do pause; done
	cat <&"$log" >&2
	[ -e "$dir/ready" ] || exit 125

	if zh; then
		export LAB_LANG=zh # make doctor in there speaks it, too
		cat <<-END
			这台虚拟机有 Soft-RoCE 设备 rxe0，地址 10.0.0.1，GID 索引 1。这里看到的是本机的文件，但写入的
			内容最后会丢弃，只有 results/ 下的保留。
			这是 4 个终端中的第 $n 个：在另一个终端里运行同样的命令，就进入这台虚拟机。
			用 exit 或 Ctrl-D 离开（没有反应时按 Ctrl-]）；最后一个离开时，虚拟机就结束。
		END
	else
		cat <<-END
			A VM with the Soft-RoCE device rxe0, address 10.0.0.1, GID index 1. The files are
			this machine's, but writes are dropped at the end, except those under results/.
			This is terminal $n of 4: the same command in another terminal joins this VM.
			Leave with exit or Ctrl-D (Ctrl-] if it hangs); the last to leave ends the VM.
		END
	fi
	tty=$(stty -g)
	traps leave
	trap '[ ! -p "$dir/control.in" ] || echo "size $$ $(stty size)" 1<>"$dir/control.in"' WINCH
	{
		stty size | sed 's/\(.*\) \(.*\)/stty rows \1 cols \2/'
		echo "tty >/run/tty$$"
		# Before each command the guest forgets what it has seen of the files, or
		# a program built anew out here would not be the one that runs in there.
		TESTENV_PASS="${TESTENV_PASS:-} TERM PS0 LAB_LANG"
		# shellcheck disable=SC2016 # for the guest's bash
		PS0='$(echo 3 >/proc/sys/vm/drop_caches)' script bash -i
	} >"$dir/open$$"
	tied socat -,rawer,escape=0x1d "UNIX-CONNECT:$dir/tty$n" <&0 {slot}>&- &
	children=$!
	# Opened for reading too: without a reader it would wait for one for ever.
	echo "open $$ $((n + 1))" 1<>"$dir/control.in"
	while alive "$children" && [ ! -e "$dir/end$$" ]; do pause; done
	kept "$dir" && exit
	printf '\n' >&2
	cat <&"$log" >&2
	die 125 "the VM is gone"
}

leave() { # the terminal is again what it was, and the slot free
	kill -9 "$children" 2>/dev/null
	wait "$children" 2>/dev/null
	stty "$tty" 2>/dev/null # it complains, and yet all is restored
	rm -f "$dir/open$$" "$dir/end$$"
	kept "$dir" || rm -rf "$dir"
}
