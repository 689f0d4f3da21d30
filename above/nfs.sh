# SPDX-License-Identifier: BSD-2-Clause
# NFS 4.2: the client mounts a directory of the server. A file's data is not in the RPC call.
needs=above-nfs
by=${BY:-rdma}
nfsd=/proc/fs/nfsd

serve() {
	has rpcrdma
	mkdir -p /run/export /var/lib/nfs/v4recovery
	touch /var/lib/nfs/etab /var/lib/nfs/rmtab
	mountpoint -q $nfsd || mount -t nfsd nfsd $nfsd
	exportfs -o rw,no_root_squash,insecure,fsid=0 10.0.1.2:/run/export
	rpc.mountd -N 3
	rpc.nfsd -N 3 -G 10 --rdma=20049 2 # listens on TCP port 2049, too
	# Or the first access waits for clients of before; kernels that remember none refuse this: then it waits 10 s.
	{ echo Y >$nfsd/v4_end_grace; } 2>/dev/null || :
}
join() {
	local port=20049
	[ "$by" = rdma ] || port=2049
	mkdir -p /run/mnt
	mount -t nfs -o "vers=4.2,proto=$by,port=$port" $server:/ /run/mnt
}
put() { dd if="$1" of=/run/mnt/file bs=64K conv=fsync status=none; }
get() {
	echo 3 >/proc/sys/vm/drop_caches # or it comes out of the client's memory
	dd if=/run/mnt/file of="$1" bs=64K status=none
}
leave() { umount /run/mnt; }
unserve() {
	rpc.nfsd 0
	exportfs -u 10.0.1.2:/run/export
	busybox killall rpc.mountd
	umount $nfsd
}
