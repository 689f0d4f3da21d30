#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# deps.sh - installs what is missing, by this machine's package manager
#
#   deps.sh [--check] GROUP…    groups: build, vm, bench, wire, fabric, above-APP, test, test-all
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

# What to look for: a command, or a file (patterns; any match will do). Then the
# package that brings it on Debian and Ubuntu, Fedora, openSUSE, Arch.
table='
build gcc                              gcc               gcc                  gcc              gcc
build make                             make              make                 make             make
build /usr/include/stdio.h             libc6-dev         glibc-devel          glibc-devel      glibc
build /usr/include/infiniband/verbs.h  libibverbs-dev    rdma-core-devel      rdma-core-devel  rdma-core
build /usr/include/rdma/rdma_cma.h     librdmacm-dev     rdma-core-devel      rdma-core-devel  rdma-core
build /etc/libibverbs.d/rxe.driver     ibverbs-providers libibverbs           libibverbs       rdma-core
build python3                          python3           python3              python3          python
build ibv_devinfo                      ibverbs-utils     libibverbs-utils     libibverbs-utils rdma-core
vm    /etc/libibverbs.d/rxe.driver     ibverbs-providers libibverbs           libibverbs       rdma-core
vm-x86_64  qemu-system-x86_64          qemu-system-x86   qemu-system-x86-core qemu-x86         qemu-system-x86
vm-aarch64 qemu-system-aarch64         qemu-system-arm   qemu-system-aarch64-core qemu-arm     qemu-system-aarch64
vm    static-busybox                   busybox-static    busybox              busybox-static   busybox
vm    rdma                             iproute2          iproute              iproute2         iproute2
vm    socat                            socat             socat                socat            socat
vm    xz                               xz-utils          xz                   xz               xz
vm    zstd                             zstd              zstd                 zstd             zstd
vm    setpriv                          util-linux        util-linux           util-linux       util-linux
vm    package-lists                    -                 -                    -                -
bench gnuplot                          gnuplot-nox       gnuplot              gnuplot          gnuplot
bench ib_write_bw                      perftest          perftest             perftest         perftest
wire  tcpdump                          tcpdump           tcpdump              tcpdump          tcpdump
wire  tshark                           tshark            wireshark-cli        wireshark        wireshark-cli
wire  tc                               iproute2          iproute-tc           iproute2         iproute2
fabric python3                         python3           python3              python3          python
fabric ibsim                           ibsim-utils       ibsim                -                -
fabric /usr/lib*/umad2sim/libumad2sim.so:/usr/lib*/*/umad2sim/libumad2sim.so  libumad2sim0  ibsim  -  -
fabric opensm                          opensm            opensm               opensm           opensm
fabric ibnetdiscover                   infiniband-diags  infiniband-diags     infiniband-diags infiniband-diags
fabric dot                             graphviz          graphviz             graphviz         graphviz
test  pytest                           python3-pytest    python3-pytest       python3-pytest   python-pytest
above-nvme nvme                        nvme-cli          nvme-cli             nvme-cli         nvme-cli
above-nfs  rpc.nfsd                    nfs-kernel-server nfs-utils            nfs-kernel-server nfs-utils
above-nfs  mount.nfs                   nfs-common        nfs-utils            nfs-client       nfs-utils
above-iser iscsid                      open-iscsi        iscsi-initiator-utils open-iscsi      open-iscsi
above-rds  python3                     python3           python3              python3          python
above-rsockets rcopy                   rdmacm-utils      librdmacm-utils      librdmacm-utils  rdma-core
above-libfabric fi_pingpong            libfabric-bin     libfabric            libfabric        libfabric
above-mpi  mpirun                      openmpi-bin       openmpi              openmpi          openmpi
above-mpi  mpicc                       libopenmpi-dev    openmpi-devel        openmpi-devel    openmpi
test  /usr/include/cmocka.h            libcmocka-dev     libcmocka-devel      libcmocka-devel  cmocka
test  rping                            rdmacm-utils      librdmacm-utils      librdmacm-utils  rdma-core
test  clang                            clang             clang                clang            clang
test  /usr/lib*/clang/*/lib/*/libclang_rt.fuzzer*:/usr/lib*/llvm-*/lib/clang/*/lib/*/libclang_rt.fuzzer*  libclang-rt-dev  compiler-rt  clang  compiler-rt
test  clang-format                     clang-format      clang-tools-extra    clang-tools      clang
test  cppcheck                         cppcheck          cppcheck             cppcheck         cppcheck
test  shellcheck                       shellcheck        ShellCheck           ShellCheck       shellcheck
test  shfmt                            shfmt             shfmt                shfmt            shfmt
test  black                            black             black                python3-black    python-black
test  /usr/lib*/python3*/dist-packages/pyverbs:/usr/lib*/python3*/site-packages/pyverbs  python3-pyverbs  python3-pyverbs  python3-pyverbs  rdma-core
test  sim_c                            similarity-tester -                   -                -
test-all valgrind                         valgrind          valgrind             valgrind         valgrind
test-all qemu-system-aarch64              qemu-system-arm   qemu-system-aarch64-core qemu-arm      qemu-system-aarch64
test-all aarch64-linux-gnu-gcc            gcc-aarch64-linux-gnu gcc-aarch64-linux-gnu cross-aarch64-gcc13 aarch64-linux-gnu-gcc
test-all chromium                         chromium          chromium             chromium         chromium
test-all modprobe                         kmod              kmod                 kmod             kmod
test-all mmdebstrap                       mmdebstrap        mmdebstrap           mmdebstrap       mmdebstrap
test-all /usr/share/keyrings/debian-archive-keyring.* debian-archive-keyring debian-keyring debian-archive-keyring debian-archive-keyring
'

lists() { compgen -G '/var/lib/apt/lists/*Packages*' >/dev/null; }
there() { # THING
	local pattern patterns
	case $1 in
	# It runs in the VM before there is a C library.
	static-busybox) command -v busybox >/dev/null && ! ldd "$(command -v busybox)" >/dev/null 2>&1 ;;
	# The VM's kernel is here already, or apt-get knows where to get it.
	package-lists) lists || [ -n "${KERNEL_DEB:-}" ] || compgen -G "$cache/*/vmlinux" >/dev/null ;;
	sim_c) command -v sim_c >/dev/null || ! command -v apt-get >/dev/null ;; # only Debian and Ubuntu have it
	zstd) command -v zstd >/dev/null || ! grep -qi ubuntu /etc/os-release ;; # packs its modules so
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
	case $wanted in build | vm | bench | wire | fabric | above-* | test | test-all) ;; *) echo "deps.sh: no group $wanted: build, vm, bench, wire, fabric, above-APP, test, test-all" >&2 && exit 2 ;; esac
	while read -r group thing names; do
		{ [[ $group = "$wanted" || $group = "$wanted-$machine" ]] && ! there "$thing"; } || continue
		read -ra names <<<"$names"
		name=${names[$column]}
		[[ " $missing " = *" $thing "* ]] || missing+=" $thing"
		[[ $name != - || $thing = package-lists || " $without " = *" $thing "* ]] || without+=" $thing"
		[[ $name = - || " $packages " = *" $name "* ]] || packages+=" $name"
	done <<<"$table"
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
