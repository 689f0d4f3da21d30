#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# deps.sh - installs what is missing, by this machine's package manager
#
#   deps.sh [--check] GROUP…    groups: build, vm, bench, wire, fabric, above-APP, test, newer, test-all
#
# Looks for the things themselves, not for packages, and says nothing when all
# are there. Otherwise it names them and the command, then runs that command;
# with --check it stops there, with status 1.
set -uo pipefail
export PATH=$PATH:/usr/sbin:/sbin

lang=${LAB_LANG:-${LC_ALL:-${LC_MESSAGES:-${LANG:-}}}}
told() { # ENGLISH CHINESE
	[[ ${lang,,} != zh* ]] || set -- "$2"
	echo "deps.sh: $1" >&2
}
cache=${TESTENV_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/hello-verbs}

lists() { compgen -G '/var/lib/apt/lists/*Packages*' >/dev/null; }
there() { # THING
	local pattern patterns
	case $1 in
	# It runs in the VM before there is a C library.
	static-busybox) command -v busybox >/dev/null && ! ldd "$(command -v busybox)" >/dev/null 2>&1 ;;
	# The VM's kernel is here already, or apt-get knows where to get it.
	package-lists) lists || [ -n "${KERNEL_DEB:-}" ] || compgen -G "$cache/*/vmlinux" >/dev/null ;;
	sim_c) command -v sim_c >/dev/null || ! command -v apt-get >/dev/null ;; # only Debian and Ubuntu have it
	/*)
		IFS=: read -ra patterns <<<"$1"
		for pattern in "${patterns[@]}"; do compgen -G "$pattern" >/dev/null && return; done
		return 1
		;;
	*) command -v "$1" >/dev/null ;;
	esac
}

check=''
[ "${1:-}" != --check ] || { check=yes && shift; }
if command -v apt-get >/dev/null; then
	column=0 install='env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends'
elif command -v dnf >/dev/null; then
	column=1 install='dnf install'
elif command -v zypper >/dev/null; then
	column=2 install='zypper install'
elif command -v pacman >/dev/null; then
	column=3 install='pacman -S --needed'
else
	column=0 install='(with this system'"'"'s package manager; Debian calls them)'
fi

missing='' packages='' without='' machine=$(uname -m)
for wanted; do
	while read -r group thing names; do
		{ [[ $group = "$wanted" || $group = "$wanted-$machine" ]] && ! there "$thing"; } || continue
		read -ra names <<<"$names"
		name=${names[$column]}
		[[ " $missing " = *" $thing "* ]] || missing+=" $thing"
		[[ $name != - || $thing = package-lists || " $without " = *" $thing "* ]] || without+=" $thing"
		[[ $name = - || " $packages " = *" $name "* ]] || packages+=" $name"
	done <"$(dirname "${BASH_SOURCE[0]}")/packages.txt"
done
[ -n "$missing" ] || exit 0

sudo=''
[ "$(id -u)" = 0 ] || sudo='sudo '
command=${packages:+$sudo$install$packages}
update="${sudo}apt-get update"
if [[ $install = *apt-get* ]] && ! lists; then command="$update${command:+ && $command}"; fi
told "missing:$missing" "缺少：${missing# }"
[ -z "$without" ] || told "no package of this system has:$without" "这个系统没有软件包能提供：${without# }"
told "${command:-nothing that a package would bring}" "${command:-没有软件包可以提供}"
[ -z "$check" ] && [[ $command = *apt-get* ]] || exit 1
if [ -n "$sudo" ] && ! command -v sudo >/dev/null; then
	told "you are not root and there is no sudo: ask the administrator for this" "你不是 root，这里也没有 sudo：请让管理员运行它"
	exit 1
fi
# Lists that are old name versions that are gone: then once more with fresh ones.
eval "$command" </dev/null >&2 ||
	{ [[ $command != "$update"* ]] && eval "$update && $command" </dev/null >&2; } || {
	told "that did not work. If you may not do it, ask the administrator for it" "没有成功。如果你没有权限，请让管理员来做"
	exit 1
}
