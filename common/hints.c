/* SPDX-License-Identifier: BSD-2-Clause */
#include "report.h"

/* The hint is in the first row with the start of the message, and its errno or status, or 0. */
#define WC(status) "completion", IBV_WC_##status
static const struct {
    const char *begins;
    int number;
    const char *hint;
} hints[] = {
    {"no RDMA device", 0, "'make shell' has one in a VM; 'make rxe-up' (root) adds one here"},
    {"no ACTIVE port", 0, "is the interface up, with an IP address ('ip addr')? -d, -i, -g right?"},
    {"no such GID index", 0, "'ibv_devinfo -v' lists the GIDs; without -g one is chosen"},
    {"which port?", 0, "say with -d and -i; 'rdma link' lists the ports, 'ip addr' the addresses"},
    {"path MTU", 0, "an interface MTU of 4200 allows 4096: ip link set IF mtu 4200"},
    {"ibv_reg_mr", ENOMEM, "registered memory counts against 'ulimit -l': raise it"},
    {"ibv_reg_mr", EINVAL,
     "REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE as well; FLUSH_PERSISTENT needs persistent "
     "memory (rxe); with RDMAV_FORK_SAFE=1, huge pages need RDMAV_HUGEPAGES_SAFE=1"},
    {"ibv_reg_mr", EFAULT,
     "no memory there (NULL, freed, too long a range?), or read-only and LOCAL_WRITE was asked "
     "for"},
    {"ibv_create_cq", EINVAL, "ask for less: max_cqe (ibv_devinfo -v)"},
    {"ibv_create_srq", EINVAL, "ask for less: max_srq_wr, max_srq_sge (ibv_devinfo -v)"},
    {"ibv_create_qp with", 0, "ask for less inline data: --inline"},
    {"ibv_create_qp", 0, "ask for less: max_sge, max_qp_wr (ibv_devinfo -v), 'ulimit -l'"},
    {"ibv_modify_qp to RTR", EINVAL, "a mask bit missing? GIDs both IPv4 (no -g)? is_global = 1?"},
    {"ibv_modify_qp to RTR", 0, "use the IPv4-mapped RoCE v2 GID on both sides (-g)"},
    {"ibv_create_ah", 0,
     "leave -g out: GIDs must both be IPv4, of one network; RoCE: is_global = 1"},
    {"ibv_post_send", EINVAL,
     "QP not in RTS? num_sge above max_send_sge, inline data above max_inline_data? atomic not "
     "aligned?"},
    {"ibv_post_send", ENOMEM,
     "queue full: poll first (mlx5 also: too many SGEs, too much inline data, not in RTS)"},
    {"ibv_post_recv", EINVAL, "QP in RESET, or with an SRQ? num_sge above max_recv_sge?"},
    {"ibv_post_recv", ENOMEM, "queue full: it holds max_recv_wr receives that have not completed"},
    {"ibv_post_srq_recv", ENOMEM, "queue full: it holds max_wr receives that have not completed"},
    {"ibv_open_device", EACCES, "permissions: ls -l /dev/infiniband; in a container: --device"},
    {"ibv_", EACCES, "only the process and user that opened the device may use it: fork? setuid?"},
    {"ibv_", EBUSY, "undo in reverse order: the QP before its MRs and CQs, the PD last"},
    {"ibv_", EOPNOTSUPP, "this device, or its driver, cannot do that"},
    {"cannot", EADDRINUSE, "another server uses this port: choose another with -p on both sides"},
    {"cannot", EINVAL, "a link-local address needs its interface: append %IF, as in fe80::1%eth0"},
    {"cannot listen", 0, "is --bind an address of this host ('ip addr')? -p not below 1024?"},
    {"rdma_bind_addr", EADDRINUSE, "another server uses this port: choose another with -p"},
    {"rdma_bind_addr", EADDRNOTAVAIL,
     "another server uses this port (-p), or no such address here"},
    {"rdma_bind_addr", EINVAL, "a link-local address needs its interface: append %IF"},
    {"rdma_bind_addr", 0, "give the address of an RDMA interface ('rdma link', 'ip addr')"},
    {"rdma_resolve", 0, "is it an RDMA interface's address (not loopback; fe80::...: with %IF)?"},
    {"ibv_", 0, "see its manual page; does the device still exist ('rdma link', dmesg)?"},
    {"cannot connect", 0, "start the server first; are HOST, -p and the firewall right?"},
    {"no client came", 0, "start the client; are its HOST, -p and the firewall right?"},
    {"the server refused: ibv_modify_qp to RTR", 0,
     "both GIDs must be IPv4 or both IPv6: leave -g out"},
    {"the server refused: ibv_create_ah", 0, "both GIDs must be IPv4 or both IPv6: leave -g out"},
    {"the server refused: only one side has a GID", 0, "give -g to both sides, or to none"},
    {"the server refused: no ", 0, "its device, kernel or library cannot do that: see its output"},
    {"the server refused", 0, "start the same sample, same version, on both sides"},
    {"the peer is silent", 0, "see the peer's output first; more time: the client's --timeout"},
    {"the peer", 0, "see the peer's output"},
    {"no completion", 0, "is the peer alive, the request signalled, a receive posted?"},
    {WC(LOC_LEN_ERR), "the message is longer than the receive buffer"},
    {WC(LOC_QP_OP_ERR), "rxe: wrong lkey, SGE out of range, receive too short, link down"},
    {WC(LOC_PROT_ERR), "an SGE is outside its region, has a wrong lkey, or no LOCAL_WRITE"},
    {WC(WR_FLUSH_ERR), "see an earlier completion (rxe since 6.12 also: wrong lkey or SGE)"},
    {WC(MW_BIND_ERR), "check the memory window's type, range and rights"},
    {WC(BAD_RESP_ERR), "the answer fits no request: is the peer's QPN or PSN right?"},
    {WC(LOC_ACCESS_ERR), "a WRITE with immediate came for memory that it may not write"},
    {WC(REM_INV_REQ_ERR), "peer's QP refuses: access flags, max_dest_rd_atomic, alignment, length"},
    {WC(REM_ACCESS_ERR), "the peer's memory region refuses: rkey, address, length, rights"},
    {WC(REM_OP_ERR), "the peer could not execute the request: see its output"},
    {WC(RETRY_EXC_ERR), "no ACK: is the peer alive, in RTR? QPN, PSN, GID right? UDP 4791 open?"},
    {WC(RNR_RETRY_EXC_ERR), "the peer has posted no receive: it must do so before this side sends"},
    {"completion", 0, "see ibv_poll_cq(3) for this status, dmesg, and the peer's output"},
};

const char *hint_for(const char *message, int number) {
    for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++)
        if (strncmp(message, hints[i].begins, strlen(hints[i].begins)) == 0 &&
            (hints[i].number == 0 || hints[i].number == number))
            return hints[i].hint;
    return NULL;
}
