#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# kernel.sh - the VM's kernel and initramfs, made once for all copies of the project
#
# Prints the directory that holds `vmlinux` and `initramfs`. Nothing is installed, no root
# needed: a few files are taken out of the distribution's kernel packages. Later runs ask nobody.
#
#   KERNEL=PACKAGE       another kernel package, say linux-image-6.12-amd64
#   KERNEL_DEB="FILE…"   packages fetched by hand, for a machine without apt
#   TESTENV_ARCH=ARCH    for another processor than this machine's: x86_64 or aarch64
#   TESTENV_ROOT=DIR     the guest's root file system, whose static busybox is taken
#   TESTENV_MODULES="A…" modules that the VM loads beside its own
#   TESTENV_CACHE=DIR    where this is kept, instead of ~/.cache/hello-verbs
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${TESTENV_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/hello-verbs}
arch=${TESTENV_ARCH:-$(uname -m)}

# What init loads; what these need comes with them. A name that this kernel has built in, or no
# longer has, is passed over (rdma_rxe needs crc32_generic up to Linux 6.13).
modules="virtio_pci 9pnet_virtio 9p overlay virtio_console
	crc32_generic rdma_ucm rdma_rxe dummy virtio_net af_packet sch_netem ${TESTENV_MODULES:-}"

die() {
	echo "testenv: $*" >&2
	exit 1
}

# shellcheck source=/dev/null
os=$(. /etc/os-release && echo "${ID:-linux}-${VERSION_ID:-0} ${ID_LIKE:-}") || os=linux
case $arch in
x86_64) debian=amd64 machine=62 ;; # machine: as ELF numbers it (elf(5), e_machine)
aarch64) debian=arm64 machine=183 ;;
*) die "no kernel is known for a machine of type $arch" ;;
esac

# packages NAME - prints the packages that make up a kernel: this one, and those that it depends on.
# linux-image-amd64 is empty, and since Linux 7.0 the image of a version, too: linux-binary-VERSION
# has the kernel, linux-modules-VERSION the modules. Before 7.0 Ubuntu has more of them in
# linux-modules-extra-VERSION, on which only linux-image-generic depends.
packages() {
	local new=$1 all=$1 version
	while [ -n "$new" ]; do
		# shellcheck disable=SC2086 # a list of names
		new=$(apt-cache depends --important $new 2>/dev/null |
			sed -n 's/^ *|*Depends: \(linux-\(image\|binary\|modules\)-[^ ]*\)$/\1/p' |
			sort -u | grep -vxF "$all") || new=''
		all+=${new:+$'\n'$new}
	done
	while read -r version; do
		all+=$'\n'$(apt-cache pkgnames "linux-modules-extra-$version" | grep -Fx "linux-modules-extra-$version") || true
	done < <(sed -n 's/^linux-image-\(unsigned-\)\?\([0-9]\)/\2/p' <<<"$all")
	sort -u <<<"$all" | grep .
}

# room - ends where the cache's file system is too full for a kernel's packages and what is in them.
room() {
	local free
	free=$(df -Pm "$cache" | awk 'END { print $4 }')
	((free >= 700)) || die "only $free MB are free in $cache, and making the VM's kernel takes 700 MB, once." \
		"Make room, or name another directory: TESTENV_CACHE=DIR"
}

# fetch DIR - downloads this distribution's kernel.
fetch() {
	local name=linux-image-$debian names log
	[[ $os != *ubuntu* ]] || name="linux-image-generic"
	name=${KERNEL:-$name}
	names=$(packages "$name")
	echo "testenv: downloading the VM's kernel, $name (once, to $cache)" >&2
	# shellcheck disable=SC2086 # a list of package names
	log=$(cd "$1" && apt-get -qq -o APT::Sandbox::User=root download $names </dev/null 2>&1) || {
		echo "$log" >&2
		die "apt-get could not download" $names \
			"- is there a network? If apt-get has no package lists: sudo apt-get update"
	}
}

# unpack DEB DIR - all but what is sure not to be the kernel or a module.
unpack() {
	echo "testenv: unpacking ${1##*/}" >&2
	if command -v dpkg-deb >/dev/null; then
		dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2" --exclude='./usr/share/*' --exclude='./boot/System.map*'
	else
		busybox dpkg-deb -x "$1" "$2"
	fi || die "cannot unpack $1: is it a whole Debian package? If not, remove it${KERNEL_DEB:- with its directory}, and it is fetched again"
}

# load NAME… - copies modules, uncompressed, to $root/modules and lists them in its file `order`,
# each after those that its .modinfo section names: busybox insmod neither resolves nor unpacks.
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

# The kernel proper, out of its self-extracting wrapper: unpacking that takes 3 s of each emulated
# boot. Offsets: Documentation/arch/x86/boot.rst, drivers/firmware/efi/libstub/zboot-header.S.
extract() { # VMLINUZ
	local start size
	if [ "$(head -c 8 "$1" | tail -c 4)" = zimg ]; then
		start=$(number "$1" 8 4)
		size=$(number "$1" 12 4)
	elif [ "$arch" = x86_64 ]; then
		start=$((($(number "$1" 497 1) + 1) * 512 + $(number "$1" 584 4)))
		size=$(($(number "$1" 588 4) - 4)) # its last word is the size when unpacked
	else
		return 1
	fi
	head -c $((start + size)) "$1" | tail -c "$size" | case $(number "$1" "$start" 4) in
	1484404733) xz -dc ;; # busybox has not the filter that kernels are packed with
	4247762216) zstd -qdc ;;
	*) busybox zcat ;;
	esac
} 2>/dev/null

# build DIR DEB… - makes DIR/out/vmlinux and DIR/out/initramfs.
build() {
	local dir=$1 deb all linux root=$1/root try
	shift
	try="Another kernel may do: KERNEL=PACKAGE names one (apt-cache search --names-only ^linux-image),
or KERNEL_DEB='FILE…' packages that you have fetched, say linux-image-$debian of Debian 13"
	mkdir -p "$dir/tree" "$root"/{bin,dev,host,modules,new,proc,rw,session,sys}
	for deb; do unpack "$deb" "$dir/tree"; done
	all=$(find "$dir/tree" -name '*.ko' -o -name '*.ko.*')
	linux=$(find "$dir/tree" -type f -name 'vmlinu[xz]*' | sort | head -n1)
	[ -n "$linux" ] || die "no kernel (a file vmlinuz) in: ${*##*/}. $try"
	# shellcheck disable=SC2086 # a list of names
	load $modules
	[ -e "$root/modules/rdma_rxe.ko" ] || die "no Soft-RoCE (a file rdma_rxe.ko) in: ${*##*/}. $try"
	[ "$(number "$root/modules/rdma_rxe.ko" 18 2)" = $machine ] ||
		die "a kernel for another processor than $arch: ${*##*/}. $try"
	cp "$busybox" "$root/bin/busybox"
	cp "$here/init" "$root/init"
	chmod 755 "$root/init"
	(cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null) >"$dir/out/initramfs"
	extract "$linux" >"$dir/out/vmlinux" || cp "$linux" "$dir/out/vmlinux" # boots too, slower, but make check cannot read it
}

busybox=$(command -v "${TESTENV_ROOT:+$TESTENV_ROOT/bin/}busybox") || die "busybox is missing: testenv/deps.sh vm"
base=${KERNEL:-${os%% *}}-$debian
# shellcheck disable=SC2086 # a list of files
[ -z "${KERNEL_DEB:-}" ] || base=deb-$(sha256sum -- $KERNEL_DEB | sha256sum | head -c 12)-$debian
# The sum in the name: what another version of these two files made is not ours.
out=$cache/$base-$({ echo "${TESTENV_MODULES:-}" && cat "$here/init" "$here/kernel.sh"; } | cksum | cut -d ' ' -f 1)
{ mkdir -p "$cache" && [ -w "$cache" ] && true >>"$cache/lock"; } 2>/dev/null ||
	die "cannot write to $cache (no directory, read-only, or another's). Name another one: TESTENV_CACHE=DIR"
if [ ! -d "$out" ]; then
	exec 9>"$cache/lock"
	flock -n 9 || { echo "testenv: waiting for another testenv, which is making a kernel" >&2 && flock 9; }
	# What has its final name is whole. Under the lock, what is left of others' work is rubbish.
	work=$cache/work
	debs=$cache/debs-$base
	trap 'rm -rf "$work" 2>/dev/null' EXIT
	rm -rf "$work"
	if [ ! -d "$out" ]; then
		room
		if [ -z "${KERNEL_DEB:-}" ] && [ ! -d "$debs" ]; then
			command -v apt-get >/dev/null || die "no apt-get here to fetch the VM's kernel with." \
				"Fetch Debian's linux-image package for $debian by hand and set KERNEL_DEB=FILE"
			mkdir "$work"
			fetch "$work"
			mv "$work" "$debs"
		fi
		mkdir "$work" "$work/out"
		# shellcheck disable=SC2086 # a list of files
		build "$work" ${KERNEL_DEB:-"$debs"/*.deb}
		mv "$work/out" "$out"
	fi
fi
echo "$out"
