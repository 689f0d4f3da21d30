#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# doctor.sh - what this machine has for RDMA, what is wrong with it, and the fix
#
# Reads and changes nothing, needs no root, and names neither machine nor user, so that
# its output can go into a question as it is. Exit status 0, also with problems.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${TESTENV_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/hello-verbs}
export PATH=$PATH:/usr/sbin:/sbin
shopt -s nullglob
problems=0 list=''
lang=${LAB_LANG:-${LC_ALL:-${LC_MESSAGES:-${LANG:-}}}}
[[ ${lang,,} != zh* ]] || exec > >(sed -Ef "$here/doctor.zh.sed")

row() { printf '%-9s %s\n' "$1" "$2"; }
problem() { # SENTENCE FIX
	problems=$((problems + 1))
	list+="PROBLEM: $1"$'\n'"    fix: $2"$'\n'
}
have() { command -v "$1" >/dev/null; }
# get NAME FILE - the variable NAME becomes the file's first line, or nothing.
get() { read -r "$1" 2>/dev/null <"$2" || printf -v "$1" ''; }
can_open() { [ -e "$1" ] && (exec 3<>"$1") 2>/dev/null; } # the shell would make the file
version() {                                               # COMMAND: the first thing in its output that looks like a version
	have "$1" && "$1" --version 2>/dev/null | grep -oEm1 '[0-9]+\.[0-9]+(\.[0-9]+)?' | head -n1
}
# Of a package, by whichever package manager there is.
package() {
	dpkg-query -Wf '${Version}' "$1" 2>/dev/null || rpm -q --qf '%{VERSION}' "$2" 2>/dev/null ||
		pacman -Q "$2" 2>/dev/null
}

# --- the system
# shellcheck source=/dev/null
os=$(. /etc/os-release 2>/dev/null && echo "${PRETTY_NAME:-}")
user=user
[ $EUID != 0 ] || user=root
row system "${os:-unknown}, kernel $(uname -r), $(uname -m), as $user"
if [ -e /run/testenv ]; then
	row machine "testenv's small VM, over the files of the machine outside (its own: make doctor there)"
else
	row project "$(git -c safe.directory='*' -C "$here" describe --always --dirty 2>/dev/null || echo 'no git here')"
	libibverbs=$(package libibverbs1 libibverbs) # dpkg and rpm may say so on stdout
	row versions "libibverbs ${libibverbs:-none}, gcc $(version gcc || echo none), qemu $(version "qemu-system-$(uname -m)" || echo none)"
fi

if [ -e /sys/module/rdma_rxe ]; then
	module=loaded
elif have modprobe && modprobe -qn rdma_rxe 2>/dev/null; then
	module=available
else
	module='not in this kernel'
fi
row rdma_rxe "$module"

# --- devices, ports, GIDs
# The samples take the GID of the TCP connection's own address, else the first of the
# best kind (choose_gid in common/device.c); here there is no connection.
gids() { # PORT'S DIRECTORY; leaves the best index in $best, and in $away whether its address is not here
	local n gid type kind shown hex rank rows=() best_rank=0
	best='' away=''
	# The table has many places, most of them empty: all zero.
	while read -r n gid; do
		get type "$1/gid_attrs/types/$n"
		hex=${gid//:/} shown=$gid
		if [[ $gid = 0000:0000:0000:0000:0000:ffff:* ]]; then
			rank=2 kind=IPv4-mapped
			printf -v shown '::ffff:%d.%d.%d.%d' "0x${hex:24:2}" "0x${hex:26:2}" "0x${hex:28:2}" "0x${hex:30:2}"
		elif [[ $gid = fe[89ab]?:* ]]; then
			rank=0 kind=link-local
		else
			rank=1 kind=IPv6
		fi
		[[ $type = 'RoCE v2' ]] && ((n < 256)) || rank=0
		if ((rank > best_rank)); then
			best_rank=$rank best=$n away=''
			grep -qs -e "|-- ${shown#::ffff:}\$" -e "^$hex " /proc/net/fib_trie /proc/net/if_inet6 || away=yes
		fi
		rows+=("$n $shown ($type, $kind)")
	done < <(grep -HvE '^[0:]*$' "$1"/gids/* 2>/dev/null | sed 's,.*/gids/,,; s,:, ,' | sort -n)
	for n in "${rows[@]}"; do
		[ "${n%% *}" != "$best" ] || [ -n "$away" ] || n+='  <- the samples take this one'
		row "  GID ${n%% *}" "${n#* }"
	done
}

devices=(/sys/class/infiniband/*)
active=0 elsewhere='' state='' layer='' netdev='' netdev_mtu=''
for device in "${devices[@]}"; do
	name=${device##*/}
	get type "$device/node_type"
	if [[ $type = 4:* ]]; then
		row device "$name: iWARP, which the samples pass over"
		continue
	fi
	# What some samples need, and not every device has.
	info=$(ibv_devinfo -v -d "$name" 2>/dev/null) lacks=''
	[[ $info != *ATOMIC_NONE* ]] || lacks+=', atomics (04)'
	[[ ! $info =~ max_srq:[[:space:]]+0[[:space:]] ]] || lacks+=', shared receive queues (10)'
	[[ ! $info =~ max_mw:[[:space:]]+0[[:space:]] ]] || lacks+=', memory windows (13)'
	# IB_UVERBS_DEVICE_FLUSH_GLOBAL and _ATOMIC_WRITE: bits for which older tools have no name.
	flags=0
	[[ ! $info =~ device_cap_flags_ex:[[:space:]]+(0x[0-9A-Fa-f]+) ]] || flags=${BASH_REMATCH[1]}
	[ -z "$info" ] || (((flags >> 38 & 5) == 5)) || lacks+=', FLUSH and ATOMIC WRITE (15)'
	[[ -z $info || $info =~ ODP_SUPPORT[[:space:]] ]] || lacks+=', on-demand paging (17)'
	[ -z "$lacks" ] || row device "$name has none of these: ${lacks:2}"
	for port in "$device"/ports/*; do
		get state "$port/state"
		get layer "$port/link_layer"
		get netdev "$device/parent" # Soft-RoCE's interface
		[ -n "$netdev" ] || get netdev "$port/gid_attrs/ndevs/0"
		get netdev_mtu "/sys/class/net/$netdev/mtu"
		mtu=$(ibv_devinfo -d "$name" -i "${port##*/}" 2>/dev/null | sed -n 's/.*active_mtu:[^0-9]*\([0-9]*\).*/\1/p')
		row device "$name port ${port##*/}: ${state#*: }, $layer, path MTU ${mtu:-unknown}${netdev:+, on $netdev}${netdev_mtu:+ (MTU $netdev_mtu)}"
		if [[ $state != 4:* ]]; then
			problem "port ${port##*/} of $name is not ACTIVE" "ip link set ${netdev:-IF} up, as root"
			continue
		fi
		active=$((active + 1))
		[ "$layer" = Ethernet ] || continue
		gids "$port"
		[ -n "$best" ] ||
			problem "$name has no RoCE v2 GID but link-local ones: ${netdev:-its interface} has no IP address" \
				"ip addr add 10.0.0.1/24 dev ${netdev:-IF}, as root (an address of a network that is in use nowhere else here)"
		[ -z "$away" ] || elsewhere=yes
		[ -z "$away" ] ||
			problem "the addresses of $name's GIDs are not in this network namespace: no program here can use them" \
				"leave the namespace (unshare, ip netns exec), start a container with --network=host, or move device and interface here: rdma dev set $name netns NAME, after rdma system set netns exclusive"
	done
done
nodes=(/dev/infiniband/uverbs*)
if [ ${#devices[@]} = 0 ] && [ ${#nodes[@]} != 0 ]; then
	row device none
	elsewhere=yes
	problem "${nodes[0]} is here, but no device in this network namespace" \
		"leave the namespace, or as root outside: rdma dev set NAME netns NAMESPACE, and its interface, too"
elif [ ${#devices[@]} = 0 ]; then
	row device none
	case $module in
	'not in this kernel') fix="'make shell' opens a small VM that has one (cloud kernels, WSL2 and containers have no rdma_rxe; README, Soft-RoCE on your own machine)" ;;
	*) fix="'make rxe-up' as root makes one of a network interface; without root 'make shell' opens a small VM that has one" ;;
	esac
	problem "no RDMA device here" "$fix"
fi

# --- may this user use them
for node in "${nodes[@]}"; do
	opened='can be opened'
	can_open "$node" || {
		opened='can NOT be opened'
		[ -z "$elsewhere" ] || continue # the reason was named
		problem "you can't open $node" "check its permissions (chmod a+rw $node as root, or a udev rule); in a container, start it with --device=$node"
	}
	row node "$node $(stat -c %A "$node"), $opened"
done
if [ ${#devices[@]} != 0 ] && [ ${#nodes[@]} = 0 ]; then
	problem "a device, but no /dev/infiniband/uverbs*" "modprobe ib_uverbs as root; in a container, start it with --device=/dev/infiniband/uverbs0"
fi
if [ ${#devices[@]} != 0 ] && ! can_open /dev/infiniband/rdma_cm; then
	row node "/dev/infiniband/rdma_cm can't be opened: 11 needs it (as root: modprobe rdma_ucm; in a container: --device)"
fi
if [ ${#devices[@]} != 0 ] && [ -z "$elsewhere" ] && have ibv_devices; then
	seen=$(ibv_devices 2>/dev/null)
	for device in "${devices[@]}"; do
		grep -qw "${device##*/}" <<<"$seen" ||
			problem "the kernel has ${device##*/}, libibverbs doesn't see it" "install ibverbs-providers (its userspace driver); IBV_SHOW_WARNINGS=1 ibv_devices says more"
	done
fi
memlock=$(ulimit -l)
if [ "$user" = root ]; then
	row memlock "$memlock KiB (root isn't held to it)"
else
	row memlock "$memlock KiB"
	[ "$memlock" = unlimited ] || [ "$memlock" -ge 4096 ] ||
		problem "only $memlock KiB of memory can be registered" "raise memlock in /etc/security/limits.conf and log in again (containers: --ulimit memlock=-1), or use a smaller --size"
fi

# --- the way to the peer
if [ "$user" != root ]; then
	firewall='only root sees it'
elif rules=$(nft list ruleset 2>/dev/null || iptables -S 2>/dev/null); then
	firewall='no rule that drops or rejects'
	! grep -qwiE 'drop|reject' <<<"$rules" ||
		firewall='has rules that drop or reject: two machines need UDP 4791 and TCP 18515'
else
	firewall='none to be seen'
fi
row firewall "$firewall"
# A listening socket on the samples' TCP port, 18515
if grep -qiE '^ *[0-9]+: [0-9A-F]+:4853 [0-9A-F:]+ 0A' /proc/net/tcp /proc/net/tcp6 2>/dev/null; then
	problem "something listens on TCP port 18515, perhaps a server left running" "end it, or use another port: -p on both sides"
fi

# --- the VM, for where there is no device
if [ -e /run/testenv ]; then
	kvm=''
elif [ ! -e /dev/kvm ]; then
	kvm='no /dev/kvm: the VM is emulated, which takes seconds longer'
elif ! can_open /dev/kvm; then
	kvm="/dev/kvm can't be opened: the VM is emulated; to be faster, join the group kvm"
elif grep -qsF "$(uname -nr)" "$cache/no-kvm"; then
	kvm='/dev/kvm was tried and hangs: the VM is emulated'
else
	kvm='/dev/kvm can be opened'
fi
[ -z "$kvm" ] || row kvm "$kvm"

declare -A verb=([build]=build [vm]="run the VM")
for group in build vm; do
	[ ! -e /run/testenv ] || break
	[ "$group" = build ] || [ "$active" = 0 ] || continue # no VM needed
	missing=$(LAB_LANG=en "$here/deps.sh" --check "$group" 2>&1) ||
		problem "missing to ${verb[$group]}:$(sed -n 's,^deps.sh: missing:,,p' <<<"$missing")" "make deps"
done

printf '%s' "$list"
row problems "$problems"
exec >&- && wait # for sed
