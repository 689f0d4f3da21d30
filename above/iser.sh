# SPDX-License-Identifier: BSD-2-Clause
# iSER: iSCSI, whose commands are SCSI's, over RDMA.
. "$here/disk.sh"
needs=above-iser
portal=10.0.1.1:3260
name=iqn.2026-01.verbs:disk
group=$config/target/iscsi/$name/tpgt_1
transport=iser
[ "${BY:-rdma}" = rdma ] || transport=default

serve() {
	has ib_isert
	ready
	lend $group
	mkdir -p $group/np/$portal
	[ $transport != iser ] || echo 1 >$group/np/$portal/iser
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
		until_true 20 [ -b $disk ]
}
leave() {
	iscsiadm -m node -T $name -p $portal -u >/dev/null
	iscsiadm -m node -T $name -o delete
	iscsiadm -k 0
}
unserve() { take_back $group $group/np/$portal; }
