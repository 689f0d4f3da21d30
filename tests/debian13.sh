#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# The samples built with Debian 13's libibverbs and run on it, under this machine's kernel
# or the VM's. Its files are kept where testenv keeps its own; nothing is installed.
#
#   debian13.sh build DIR      fetches what is missing; programs in DIR that run in there
#   debian13.sh in CMD [ARG…]  in the VM: runs CMD, which may run those programs
set -euo pipefail
[ "${1-}" != build ] || set -- build "$(realpath -m "$2")"
cd "$(dirname "$0")/.."
debian=${TESTENV_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/hello-verbs}/debian-13
libs=$debian/usr/lib/x86_64-linux-gnu

fetch() {
	[ ! -e "$debian/usr/include/rdma/rdma_cma.h" ] || return 0
	mkdir -p "${debian%/*}" # a fresh clone has none
	rm -rf "$debian.new"
	# extract: no maintainer's script runs, so this needs no root and changes nothing here
	mmdebstrap --quiet --mode=chrootless --variant=extract \
		--include=libc6-dev,libibverbs-dev,librdmacm-dev,ibverbs-providers trixie "$debian.new" || return
	ln -s usr/lib usr/lib64 "$debian.new"
	mkdir -p "$debian.new"/{proc,sys,dev,programs}
	rm -rf "$debian"
	mv "$debian.new" "$debian"
}

case $1 in
build)
	fetch
	mkdir -p "$2/programs"
	for sample in [0-9][0-9]_*; do
		make -s -j"$(nproc)" -C "$sample" OUT="$2/programs" CFLAGS="-Werror -O2 -g" \
			CC="gcc --sysroot=$debian -B$libs -L$libs"
	done
	for program in "$2"/programs/*; do
		[ -f "$program" ] || continue # the objects
		name=$(basename "$program")
		printf '#!/bin/sh\nexec chroot "%s" "/programs/%s" "$@"\n' "$debian" "$name" >"$2/$name"
		chmod +x "$2/$name"
	done
	;;
in)
	for dir in proc sys dev; do mount --rbind /$dir "$debian/$dir"; done
	mount --bind "$HV_BUILD/programs" "$debian/programs"
	exec "${@:2}"
	;;
esac
