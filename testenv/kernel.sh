#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# kernel.sh - the VM's kernel and initramfs, made once and kept in cache/
#
# Prints the directory that holds `vmlinux` and `initramfs`. Nothing is
# installed: the distribution's kernel package is downloaded and a few files
# are taken out of it, which needs no root. Later runs ask nobody.
#
#   KERNEL=PACKAGE       another kernel package, say linux-image-6.12-amd64
#   KERNEL_DEB="FILE…"   packages fetched by hand, for a machine without apt
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=$here/cache

# What init loads; what these need comes with them. A name that this kernel has
# built in, or no longer has, is passed over (rdma_rxe fails without
# crc32_generic up to Linux 6.13, later ones have no such module).
modules="virtio_pci 9pnet_virtio 9p overlay virtio_console
	crc32_generic rdma_ucm rdma_rxe dummy virtio_net af_packet sch_netem"

die() {
	echo "testenv: $*" >&2
	exit 1
}

# shellcheck source=/dev/null
os=$(. /etc/os-release && echo "${ID:-linux}-${VERSION_ID:-0} ${ID_LIKE:-}") || os=linux

# Prints the kernel package to use, versioned: linux-image-amd64 holds nothing
# but a dependency on linux-image-6.1.0-NN-amd64.
image() {
	local name=linux-image-amd64 real
	[[ $os != *ubuntu* ]] || name=linux-image-generic
	name=${KERNEL:-$name}
	real=$(apt-cache depends --important "$name" 2>/dev/null |
		sed -n 's/^ *|*Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | head -n1)
	echo "${real:-$name}"
}

# fetch IMAGE DIR - downloads the package, and on Ubuntu the two that hold its
# modules (rdma_rxe is in -extra), into DIR.
fetch() {
	local version=${1#linux-image-} extra
	version=${version#unsigned-}
	extra=$(apt-cache pkgnames linux-modules- |
		grep -Fx -e "linux-modules-$version" -e "linux-modules-extra-$version") || true
	echo "testenv: downloading $1 (once, to $cache)" >&2
	# shellcheck disable=SC2086 # a list of package names
	(cd "$2" && apt-get -qq download "$1" $extra </dev/null) >"$2/log" 2>&1 || {
		cat "$2/log" >&2
		die "apt-get could not download $1. If it has no package lists, run: sudo apt-get update"
	}
}

# unpack DEB DIR - the kernel and its modules, not the rest of the package.
unpack() {
	if command -v dpkg-deb >/dev/null; then
		# tar also complains of a pattern that matches nothing, so it is the
		# result that build checks: some packages hold no kernel, some no modules.
		dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2" --wildcards \
			'./boot/vmlinuz*' './lib/modules/*' './usr/lib/modules/*' 2>/dev/null || true
	else
		busybox dpkg-deb -x "$1" "$2"
	fi
}

# load NAME… - copies modules, uncompressed, to $root/modules and lists them in
# its file `order`, each after those it depends on (its .modinfo section names
# them): busybox insmod neither resolves nor unpacks.
load() {
	local name file to
	for name; do
		name=${name//-/_}
		to=$root/modules/$name.ko
		[ ! -e "$to" ] || continue
		file=$(grep -E "/${name//_/[-_]}\.ko(\.[a-z]+)?\$" <<<"$all" | head -n1) || continue
		case $file in
		*.xz) xz -dc "$file" ;;
		*.gz) busybox zcat "$file" ;;
		*.zst) zstd -qdc "$file" ;;
		*) cat "$file" ;;
		esac >"$to"
		# shellcheck disable=SC2046 # a list of names
		load $(tr '\0' '\n' <"$to" | sed -n 's/^depends=//p' | tr , ' ')
		echo "$name.ko" >>"$root/modules/order"
	done
}

# number FILE OFFSET SIZE - a little-endian number from a binary file.
number() { od -An -t "u$3" -j "$2" -N "$3" "$1" | tr -d ' '; }

# The kernel proper, out of its self-extracting wrapper: unpacking that takes 3 s
# of each emulated boot. Offsets: Linux Documentation/arch/x86/boot.rst.
extract() { # VMLINUZ
	local start size
	start=$((($(number "$1" 497 1) + 1) * 512 + $(number "$1" 584 4)))
	size=$(($(number "$1" 588 4) - 4)) # its last word is the size when unpacked
	head -c $((start + size)) "$1" | tail -c "$size" | case $(number "$1" "$start" 4) in
	1484404733) xz -dc ;; # busybox has not the filter that kernels are packed with
	4247762216) zstd -qdc ;;
	*) busybox zcat ;;
	esac
}

# build DIR DEB… - makes DIR/out/vmlinux and DIR/out/initramfs.
build() {
	local dir=$1 deb all root=$1/root
	shift
	mkdir -p "$dir/tree" "$root"/{bin,dev,host,modules,new,proc,rw,session,sys}
	for deb; do unpack "$deb" "$dir/tree"; done
	all=$(find "$dir/tree" -name '*.ko*')
	# shellcheck disable=SC2086 # a list of names
	load $modules
	[ -e "$root/modules/rdma_rxe.ko" ] || die "no module rdma_rxe in: $*"
	[ -n "$(ls "$dir"/tree/boot)" ] || die "no kernel in: $*"
	cp "$(command -v busybox)" "$root/bin/busybox"
	cp "$here/init" "$root/init"
	chmod 755 "$root/init"
	(cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null) >"$dir/out/initramfs"
	if ! extract "$dir"/tree/boot/vmlinuz* >"$dir/out/vmlinux" 2>/dev/null; then
		cp "$dir"/tree/boot/vmlinuz* "$dir/out/vmlinux" # boots too, slower
	fi
}

command -v busybox >/dev/null || die "busybox is missing: testenv/deps.sh vm"
base=${KERNEL:-${os%% *}}
# shellcheck disable=SC2086 # a list of files
[ -z "${KERNEL_DEB:-}" ] || base=deb-$(sha256sum -- $KERNEL_DEB | sha256sum | head -c 12)
# The sum in the name: what another version of these two files made is not ours.
out=$cache/$base-$(cat "$here/init" "$here/kernel.sh" | cksum | cut -d ' ' -f 1)
if [ ! -d "$out" ]; then
	mkdir -p "$cache"
	exec 9>"$cache/lock"
	flock 9
	# Work in one directory and rename it at the end, so that whatever has its
	# final name is whole. Under the lock, what is left of others is rubbish.
	work=$cache/work
	debs=$cache/debs-$base
	trap 'rm -rf "$work" 2>/dev/null' EXIT
	rm -rf "$work"
	if [ ! -d "$out" ]; then
		if [ -z "${KERNEL_DEB:-}" ] && [ ! -d "$debs" ]; then
			command -v apt-get >/dev/null || die "no apt-get here to fetch the VM's kernel with." \
				"Fetch the linux-image package of Debian by hand and set KERNEL_DEB=FILE"
			mkdir "$work"
			fetch "$(image)" "$work"
			mv "$work" "$debs"
		fi
		mkdir "$work" "$work/out"
		# shellcheck disable=SC2086 # a list of files
		build "$work" ${KERNEL_DEB:-"$debs"/*.deb}
		rm -rf "$cache/$base"-[0-9]* # of earlier versions
		mv "$work/out" "$out"
	fi
fi
echo "$out"
