# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2034,SC2086,SC2154 # the names are run.sh's
# iSER: iSCSI, whose commands are SCSI's, over RDMA. The server lends a disk, the client has it as /dev/sda.
# client SEND 76 | the host sends a command: 48 bytes of iSCSI behind 28 of iSER, which say where its memory is | 主机发送命令：28 字节的 iSER 头说明内存在哪里，后面是 48 字节的 iSCSI
# client SEND + | the host sends a command with the first part of the data in the same message | 主机发送命令，数据的第一部分在同一条消息里
# server READ + | the target READs the rest of the data out of the host's memory | 目标端用 READ 从主机内存取走其余数据
# server WRITE + | the target WRITEs the data into the host's memory | 目标端用 WRITE 把数据写进主机内存
# server INVALIDATE + | the target sends the answer and invalidates the host's rkey | 目标端发送应答，并使主机的 rkey 失效
# server SEND + | the target sends the answer | 目标端发送应答
needs=above-iser
portal=10.0.1.1:3260
config=/sys/kernel/config
core=$config/target/core/iblock_0
name=iqn.2026-01.verbs:disk
group=$config/target/iscsi/$name/tpgt_1
block=${BLOCK:-65536} # bytes of one read or write
transport=iser
[ "${BY:-rdma}" = rdma ] || transport=default

serve() {
	has ib_isert
	mountpoint -q $config || mount -t configfs none $config
	mkdir -p $core/disk
	echo udev_path=/dev/ram0 >$core/disk/control
	echo 1 >$core/disk/enable
	mkdir -p $group/np/$portal $group/lun/lun_0
	[ $transport != iser ] || echo 1 >$group/np/$portal/iser
	ln -s $core/disk $group/lun/lun_0/disk
	echo 0 >$group/attrib/authentication
	echo 1 >$group/attrib/generate_node_acls # any initiator may log in
	echo 1 >$group/attrib/cache_dynamic_acls
	echo 0 >$group/attrib/demo_mode_write_protect
	echo 1 >$group/enable
}
join() {
	has ib_iser
	mkdir -p /run/lock/iscsi
	echo InitiatorName=iqn.2026-01.verbs:host >/etc/iscsi/initiatorname.iscsi
	iscsid
	iscsiadm -m node -o new -T $name -p $portal -I $transport >/dev/null &&
		iscsiadm -m node -T $name -p $portal -l >/dev/null &&
		until_true 20 [ -b /dev/sda ]
}
put() { dd if="$1" of=/dev/sda bs="$block" oflag=direct conv=nocreat status=none; }
get() { dd if=/dev/sda of="$1" bs="$block" count=$((bytes / block)) iflag=direct status=none; }
leave() {
	iscsiadm -m node -T $name -p $portal -u >/dev/null
	iscsiadm -m node -T $name -o delete
	iscsiadm -k 0
}
unserve() {
	echo 0 >$group/enable
	rm $group/lun/lun_0/disk
	rmdir $group/lun/lun_0 $group/np/$portal $group "${group%/*}" $core/disk $core
}
