# doctor.sh's words in Chinese: sed -E. What is not here stays English.
s/^(memlock .*) \(root isn't held to it\)/\1（root 不受此限制）/
s/^firewall  only root sees it/firewall  只有 root 能查看/
s/^firewall  no rule that drops or rejects/firewall  没有丢弃或拒绝包的规则/
s/^firewall  has rules that drop or reject: two machines need (.*) and (.*)/firewall  有丢弃或拒绝包的规则：两台机器之间需要放行 \1 和 \2/
s/^firewall  none to be seen/firewall  没有发现/
s/^machine   testenv's small VM, over.*/machine   testenv 的小虚拟机，使用外面机器的文件（外面机器的情况：在那里运行 make doctor）/
s/^rdma_rxe  loaded/rdma_rxe  已加载/
s/^rdma_rxe  available/rdma_rxe  可以加载/
s/^rdma_rxe  not in this kernel/rdma_rxe  这个内核没有该模块/
s/^device    none/device    无/
s/^(device .*): iWARP, which the samples pass over/\1：iWARP，示例会跳过它/
s/^(device .*) has none of these: (.*)/\1 不支持：\2/
s/atomics \(04\)/原子操作（04）/
s/shared receive queues \(10\)/SRQ（10）/
s/memory windows \(13\)/内存窗口（13）/
s/FLUSH and ATOMIC WRITE \(15\)/FLUSH 和 ATOMIC WRITE（15）/
s/on-demand paging \(17\)/按需分页（17）/
s/<- the samples take this one/<- 示例使用这一个/
s/^(node .*), can be opened/\1，可以打开/
s/^(node .*), can NOT be opened/\1，无法打开/
s/^(node .*) can't be opened: 11 needs it \(as root: (.*); in a container: --device\)/\1 无法打开：11 需要它（以 root 身份：\2；在容器里：--device）/
s/^kvm( +)no (\S+): the VM is emulated, .*/kvm\1没有 \2：虚拟机由软件模拟，要多花几秒/
s/^kvm( +)(\S+) can't be opened: .*/kvm\1\2 无法打开：虚拟机由软件模拟；要更快，请加入 kvm 组/
s/^kvm( +)(\S+) was tried and hangs.*/kvm\1\2 试过，会挂起：虚拟机由软件模拟/
s/^kvm( +)(\S+) can be opened/kvm\1\2 可以打开/
s/^PROBLEM: port (.*) of (.*) is not ACTIVE/问题：\2 的端口 \1 不是 ACTIVE/
s/^PROBLEM: (\S+) has no RoCE v2 GID but link-local ones: (.*) has no IP address/问题：\1 只有链路本地的 RoCE v2 GID：\2 没有 IP 地址/
s/^PROBLEM: the addresses of (.*)'s GIDs are not in this network namespace.*/问题：\1 的 GID 的地址不在这个网络命名空间里：这里的程序都无法使用/
s/^PROBLEM: (\S+) is here, but no device in this network namespace/问题：有 \1，但这个网络命名空间里没有设备/
s/^PROBLEM: no RDMA device here/问题：这里没有 RDMA 设备/
s/^PROBLEM: you can't open (.*)/问题：你无法打开 \1/
s/^PROBLEM: a device, but no (.*)/问题：有设备，但没有 \1/
s/^PROBLEM: the kernel has (.*), libibverbs doesn't see it/问题：内核有 \1，libibverbs 却看不到它/
s/^PROBLEM: only (.*) of memory can be registered/问题：最多只能注册 \1 内存/
s/^PROBLEM: something listens on TCP port 18515.*/问题：有程序在监听 TCP 端口 18515，可能是没有结束的服务端/
s/^PROBLEM: missing to build:/问题：编译还缺：/
s/^PROBLEM: missing to run the VM:/问题：运行虚拟机还缺：/
/^    fix: /{
	s/leave the namespace, or as root outside: (.*), and its interface, too/离开这个命名空间，或在外面以 root 身份运行 \1，并把它的网络接口也移过来/
	s/leave the namespace \((.*)\), start a container with (\S+), or move device and interface here: (rdma.*), after (.*)/离开这个命名空间（\1），用 \2 启动容器，或把设备和网络接口移到这里：先 \4，再 \3/
	s/ \(an address of a network that is in use nowhere else here\)/（选一个这里没有使用的网段的地址）/
	s/'make rxe-up' as root makes one of a network interface; without root/以 root 身份运行 'make rxe-up'，可用网络接口建一个；不是 root 时，/
	s/'make shell' opens a small VM that has one/'make shell' 会打开一个有设备的小虚拟机/
	s/ \(cloud kernels, WSL2 .*\)/（云内核、WSL2 和容器没有 rdma_rxe；见 README.zh.md）/
	s/check its permissions \((.*) as root, or a udev rule\); in a container, start it with (.*)/检查它的权限（以 root 身份运行 \1，或写 udev 规则）；在容器里，启动容器时加 \2/
	s/(modprobe \S+) as root; in a container, start it with (.*)/以 root 身份运行 \1；在容器里，启动容器时加 \2/
	s/install ibverbs-providers \(its userspace driver\); (.*) says more/安装 ibverbs-providers（它的用户态驱动）；\1 会给出更多信息/
	s/raise memlock in (.*) and log in again \(containers: (.*)\), or use a smaller --size/在 \1 里提高 memlock 后重新登录（容器：\2），或用更小的 --size/
	s/end it, or use another port: -p on both sides/结束它，或改用其他端口：两端都加 -p/
	s/^    fix: (.*), as root/    解决：以 root 身份运行 \1/
	s/^    fix: /    解决：/
}
s/^problems  /问题数    /
