# SPDX-License-Identifier: BSD-2-Clause
# SRP: SCSI's commands over RDMA, without iSCSI between them.
. "$here/disk.sh"
needs=vm # the kernels alone
port=5555
id=$(sed 's/^\(....:\)\{4\}//' /sys/class/infiniband/rxe0/ports/1/gids/0 2>/dev/null) # of the server's port
srpt=$config/target/srpt
group=$srpt/$id/$id

serve() {
	has ib_srpt
	ready
	mkdir -p $srpt
	echo $port >$srpt/discovery_auth/rdma_cm_port
	lend $group
	# Who may log in. Linux takes for the name of a host the address that it has called.
	mkdir -p $group/acls/$server/lun_0
	ln -s $group/lun/lun_0 $group/acls/$server/lun_0/disk
	echo 1 >$group/enable
}
join() {
	has ib_srp
	local id
	id=$(there cat /sys/module/ib_srpt/parameters/srpt_service_guid)
	# 16 pages to a command: 64 KiB
	echo "id_ext=${id#0x},ioc_guid=${id#0x},dest=$server:$port,cmd_sg_entries=16,sg_tablesize=16" \
		>/sys/class/infiniband_srp/srp-rxe0-1/add_target
	until_true 10 [ -b $disk ]
}
leave() { echo 1 | tee /sys/class/srp_remote_ports/*/delete >/dev/null && until_true 10 [ ! -b $disk ]; }
unserve() {
	rm $group/acls/$server/lun_0/disk
	take_back $group $group/acls/$server/lun_0 $group/acls/$server
}
