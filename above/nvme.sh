# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2034,SC2086,SC2154 # the names are run.sh's
# NVMe over Fabrics: the server lends a disk in its memory (brd), the client has it as /dev/nvme0n1.
needs=above-nvme
by=${BY:-rdma}
block=${BLOCK:-65536} # bytes of one read or write
config=/sys/kernel/config
disk=$config/nvmet/subsystems/disk
port=$config/nvmet/ports/1

serve() {
	has "nvmet_$by"
	mountpoint -q $config || mount -t configfs none $config
	mkdir -p $disk/namespaces/1 $port
	echo 1 >$disk/attr_allow_any_host
	echo /dev/ram0 >$disk/namespaces/1/device_path
	echo 1 >$disk/namespaces/1/enable
	echo "$by" >$port/addr_trtype
	echo ipv4 >$port/addr_adrfam
	echo $server >$port/addr_traddr
	echo 4420 >$port/addr_trsvcid
	ln -s $disk $port/subsystems/disk
}
join() {
	has "nvme_$by"
	nvme connect -t "$by" -a $server -s 4420 -n disk -i 1 && until_true 10 [ -b /dev/nvme0n1 ]
}
put() { dd if="$1" of=/dev/nvme0n1 bs="$block" oflag=direct conv=nocreat status=none; }
get() { dd if=/dev/nvme0n1 of="$1" bs="$block" count=$((bytes / block)) iflag=direct status=none; }
leave() { nvme disconnect -n disk && until_true 10 [ ! -b /dev/nvme0n1 ]; }
unserve() { rm $port/subsystems/disk && rmdir $port $disk/namespaces/1 $disk; }
