#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# The samples built with Debian 13's libibverbs and run on it, under this machine's kernel
# or the VM's; in a DIR by the name of sid with Debian unstable's. Its files are kept where
# testenv keeps its own; nothing is installed.
#
#   debian13.sh build DIR [SOURCE…]  fetches what is missing; the samples, or these, in DIR, run in there
#   debian13.sh in CMD [ARG…]        in the VM: runs CMD, which may run those programs
set -euo pipefail
[ "${1-}" != build ] || HV_BUILD=$(realpath -m "$2")
suite=trixie name=debian-13
[ "${HV_BUILD##*/}" != sid ] || suite=sid name=debian-sid
cd "$(dirname "$0")/.."
debian=${TESTENV_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/hello-verbs}/$name
libs=$debian/usr/lib/x86_64-linux-gnu

fetch() {
	[ ! -e "$debian/usr/include/rdma/rdma_cma.h" ] || return 0
	mkdir -p "${debian%/*}" # a fresh clone has none
	rm -rf "$debian.new"
	# extract: no maintainer's script runs, so this needs no root and changes nothing here
	# a mirror's list of packages may be some weeks old
	mmdebstrap --quiet --mode=chrootless --variant=extract --aptopt='Acquire::Check-Valid-Until "false"' \
		--include=libc6-dev,libibverbs-dev,librdmacm-dev,ibverbs-providers "$suite" "$debian.new" || return
	ln -sfn usr/lib usr/lib64 "$debian.new"
	mkdir -p "$debian.new"/{proc,sys,dev,programs}
	rm -rf "$debian"
	mv "$debian.new" "$debian"
}

case $1 in
build)
	testenv/deps.sh newer
	fetch
	mkdir -p "$HV_BUILD/programs"
	gcc="gcc --sysroot=$debian -B$libs -L$libs"
	for source in "${@:3}"; do
		name=$(basename "$source" .c)
		$gcc -D_GNU_SOURCE -O1 -w -Icommon -o "$HV_BUILD/programs/$name" "$source" common/[a-z]*.c -libverbs
	done
	[ $# -gt 2 ] || for sample in [0-9][0-9]_*; do
		make -s -j"$(nproc)" -C "$sample" OUT="$HV_BUILD/programs" CFLAGS="-Werror -O2 -g" CC="$gcc"
	done
	for program in "$HV_BUILD"/programs/*; do
		[ -f "$program" ] || continue # the objects
		name=$(basename "$program")
		printf '#!/bin/sh\nexec chroot "%s" "/programs/%s" "$@"\n' "$debian" "$name" >"$HV_BUILD/$name"
		chmod +x "$HV_BUILD/$name"
	done
	;;
in)
	[ -e /run/testenv ] || { echo "$0 in: only in the VM" && exit 2; } >&2
	mkdir -p "$debian/run" # where make check has what it loads into programs
	for dir in proc sys dev run; do mount --rbind /$dir "$debian/$dir"; done
	mount --bind "$HV_BUILD/programs" "$debian/programs"
	exec "${@:2}"
	;;
esac
