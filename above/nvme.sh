# SPDX-License-Identifier: BSD-2-Clause
# NVMe over Fabrics: the server lends a disk in its memory.
. "$here/disk.sh"
needs=above-nvme
by=${BY:-rdma}
disk=/dev/nvme0n1
system=$config/nvmet/subsystems/disk
port=$config/nvmet/ports/1

serve() {
	has "nvmet_$by"
	ready
	mkdir -p $system/namespaces/1 $port
	echo 1 >$system/attr_allow_any_host
	echo /dev/ram0 >$system/namespaces/1/device_path
	echo 1 >$system/namespaces/1/enable
	echo "$by" >$port/addr_trtype
	echo ipv4 >$port/addr_adrfam
	echo $server >$port/addr_traddr
	echo 4420 >$port/addr_trsvcid
	ln -s $system $port/subsystems/disk
}
join() {
	has "nvme_$by"
	nvme connect -t "$by" -a $server -s 4420 -n disk -i 1 && until_true 10 [ -b $disk ]
}
leave() { nvme disconnect -n disk && until_true 10 [ ! -b $disk ]; }
unserve() { rm $port/subsystems/disk && rmdir $port $system/namespaces/1 $system; }
