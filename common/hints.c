#include "hints.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>

/*
 * What to look at, by the call that failed (a prefix of the message) and its error
 * number, 0 for any. The first row that fits is taken, so the particular stands before
 * the general. "completion" rows hold an ibv_wc_status instead (IBTA 11.6.2).
 */
static const struct {
    const char *call;
    int number;
    const char *hint;
} hint_table[] = {
    {"no RDMA device here", 0,
     "Soft-RoCE makes one out of any network interface: 'make rxe-up' as root; without "
     "root or without the rdma_rxe module, 'make shell' opens a small VM that has one. A "
     "device that 'rdma link' shows but this program doesn't: install ibverbs-providers; "
     "IBV_SHOW_WARNINGS=1 before the command shows why it is passed over"},
    {"no RDMA device named", 0, "'ibv_devices' lists them; -d names one"},
    {"no atomic operations", 0,
     "'ibv_devinfo -v' shows atomic_cap; Soft-RoCE has atomics, -d names another device"},
    {"no InfiniBand or RoCE", 0,
     "iWARP, EFA and others connect in other ways; Soft-RoCE does, and 'make rxe-up' "
     "adds one"},
    {"no ACTIVE port", 0,
     "'rdma link' shows the state; bring the interface up: ip link set IF up"},
    {"port ", 0, "without -i the first ACTIVE port is chosen"},
    {"ibv_open_device", EACCES,
     "may this user read and write /dev/infiniband/uverbs*? (ls -l; container: "
     "--device)"},
    {"ibv_open_device", 0, "is the device still there ('rdma link')? dmesg may say why"},
    {"ibv_query_", 0,
     "the device doesn't answer: is it still there ('rdma link'), does dmesg show "
     "errors?"},
    {"ibv_alloc_pd", 0,
     "the device is out of protection domains or the machine of memory: 'rdma resource "
     "show' lists what is in use and by whom"},
    {"ibv_create_comp_channel", 0,
     "out of file descriptors ('ulimit -n') or of memory: 'rdma resource show' lists "
     "what "
     "is in use"},
    {"ibv_create_cq", EINVAL, "more entries than max_cqe, see ibv_devinfo -v"},
    {"ibv_create_cq", 0,
     "the device is out of completion queues or the machine of memory: 'rdma resource "
     "show' lists what is in use and by whom"},
    {"ibv_reg_mr", ENOMEM,
     "registered memory stays locked in RAM and counts against 'ulimit -l': raise it, or "
     "use a smaller --size"},
    {"ibv_reg_mr", EINVAL,
     "rights that can't be: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE beside them; "
     "or the device takes no region so long (max_mr_size, ibv_devinfo -v)"},
    {"ibv_reg_mr", 0,
     "every page of it has to be this process's, and writable where the rights say so"},
    {"ibv_create_qp", EINVAL,
     "more SGEs, work requests or inline data than the device has: see ibv_devinfo -v"},
    {"ibv_create_qp", ENOMEM,
     "fewer work requests (max_qp_wr, ibv_devinfo -v), or a higher 'ulimit -l': some "
     "devices keep their queues in locked memory"},
    {"ibv_create_qp", 0,
     "'ibv_devinfo -v' shows the device's limits, 'rdma resource show' what is in use"},
    {"ibv_modify_qp to RTR", EINVAL,
     "GIDs of one kind on both sides, IPv4-mapped (best leave -g away); is_global = 1 on "
     "RoCE; a path MTU not above the port's (ibv_devinfo)"},
    {"ibv_modify_qp to RTR", ENETUNREACH,
     "no route to the peer's GID: use the IPv4-mapped RoCE v2 GID on both sides (-g)"},
    {"ibv_modify_qp to RTR", ETIMEDOUT,
     "the peer's GID doesn't answer neighbour discovery: a link-local or wrong GID? Use "
     "the IPv4-mapped RoCE v2 GID on both sides (-g)"},
    {"ibv_modify_qp", 0, "the manual page ibv_modify_qp(3) lists what each state needs"},
    {"ibv_post_send", EINVAL,
     "is the QP in RTS, num_sge within max_send_sge, an atomic's 8 bytes aligned to 8?"},
    {"ibv_post_send", ENOMEM,
     "the send queue is full: poll its completions first (from mlx4 and mlx5 also: too "
     "many SGEs, or a QP that isn't in RTS)"},
    {"ibv_post_send", 0, "the manual page ibv_post_send(3) lists what it checks"},
    {"ibv_post_recv", EINVAL,
     "is the QP in INIT or later, num_sge within max_recv_sge, next NULL in the last?"},
    {"ibv_post_recv", ENOMEM, "the receive queue is full: raise max_recv_wr"},
    {"ibv_post_recv", 0, "the manual page ibv_post_recv(3) lists what it checks"},
    {"ibv_poll_cq", 0,
     "the completion queue is broken, overrun perhaps: it needs room for every "
     "completion "
     "that may be there at a time; dmesg may say more"},
    {"ibv_req_notify_cq", 0, "is the device still there ('rdma link')?"},
    {"ibv_get_cq_event", 0, "is the device still there ('rdma link')?"},
    /* ibv_destroy_..., ibv_dereg_mr, ibv_dealloc_pd */
    {"ibv_de", EBUSY,
     "something still uses it: undo in reverse order of making, the QP before its MRs "
     "and "
     "CQs, all of them before the PD"},
    {"ibv_de", 0,
     "is the device still there ('rdma link')? What is left the kernel frees at exit"},
    {"ibv_close_device", 0,
     "is the device still there ('rdma link')? What is left the kernel frees at exit"},
    {"GID index", 0, "'ibv_devinfo -v' prints the GID table; without -g one is chosen"},
    {"no RoCE v2 GID", 0,
     "give the network interface an IPv4 address: ip addr add 10.0.0.1/24 dev IF"},
    {"path MTU", 0,
     "a netdev MTU of 1500 allows 1024; 4200 or more allows 4096: ip link set IF mtu "
     "4200"},
    {"cannot resolve", 0, "give the server's name or IP address as the last argument"},
    {"cannot listen", EADDRINUSE,
     "another server runs on this port: end it, or choose another with -p on both sides"},
    {"cannot connect", ECONNREFUSED,
     "start the server first: the same program without HOST; same -p on both sides?"},
    {"cannot connect", 0,
     "is HOST right, the server running there, and TCP let through by the firewall?"},
    {"no client", 0, "start the client: the same program with this machine's address"},
    {"the server refused: \"this side runs", 0,
     "start the same sample, from the same version, on both sides"},
    {"the server refused", 0,
     "what the reason names stands in this client's command line"},
    {"the peer closed", 0, "it failed or was stopped: its own output says why"},
    {"the peer is silent", 0,
     "is it stuck or stopped? If it is only slow, give the client a larger -t"},
    {"the peer sent", 0, "is the program at the other end one of these samples?"},
    {"only one side has a GID", 0, "give -g on both sides or on neither"},
    {"no completion", 0,
     "is the peer alive? Was the request posted with IBV_SEND_SIGNALED, a receive posted "
     "for a SEND? A larger -t gives a slow device more time"},

    {"completion", IBV_WC_LOC_LEN_ERR,
     "the message is longer than the receive buffer posted for it"},
    {"completion", IBV_WC_LOC_QP_OP_ERR,
     "on Soft-RoCE: an lkey that fits no region, a receive shorter than the message, or "
     "an interface that is down; else the QP's type, state or limits"},
    {"completion", IBV_WC_LOC_PROT_ERR,
     "an SGE reaches outside its memory region, has the wrong lkey, or is to be written "
     "to without IBV_ACCESS_LOCAL_WRITE"},
    {"completion", IBV_WC_WR_FLUSH_ERR,
     "flushed because the QP is in ERR: an earlier completion has the real reason (rxe "
     "in Linux 6.12 says this also of a wrong lkey, or an SGE outside its region)"},
    {"completion", IBV_WC_BAD_RESP_ERR,
     "an answer that doesn't fit the request: the peer's QPN or PSN is another "
     "connection's; --verbose shows both"},
    {"completion", IBV_WC_LOC_ACCESS_ERR,
     "what arrived may not be written here: the receive's memory region needs "
     "IBV_ACCESS_LOCAL_WRITE"},
    {"completion", IBV_WC_REM_INV_REQ_ERR,
     "the responder can't take this request: a verb that its QP's access flags leave "
     "out, an atomic's address not a multiple of 8, more READs than its "
     "max_dest_rd_atomic, or a SEND longer than its receive"},
    {"completion", IBV_WC_REM_ACCESS_ERR,
     "the peer's memory region doesn't allow it: check rkey, address, length, and the "
     "region's access flags"},
    {"completion", IBV_WC_REM_OP_ERR,
     "the responder couldn't finish: its own completion says why"},
    {"completion", IBV_WC_RETRY_EXC_ERR,
     "no acknowledgement came: is the peer alive and in RTR, its QPN, PSN and GID right "
     "(RoCE v2 on both sides), UDP port 4791 let through on both hosts?"},
    {"completion", IBV_WC_RNR_RETRY_EXC_ERR,
     "the peer had no receive posted: post receives before telling it that you are "
     "ready"},
    {"completion", IBV_WC_REM_ABORT_ERR, "the peer gave up: its own output says why"},
    {"completion", IBV_WC_FATAL_ERR,
     "the device has failed: dmesg says more; 'make rxe-down' and 'make rxe-up' make a "
     "new Soft-RoCE"},
    {"completion", IBV_WC_RESP_TIMEOUT_ERR,
     "no answer came in time: is the peer alive ('rdma resource show qp' there)?"},
    {"completion", IBV_WC_GENERAL_ERR, "the driver knows no better: dmesg may say more"},
    {"completion", 0,
     "of a service that these samples don't use (reliable datagrams, memory windows, tag "
     "matching): is wc filled in at all? ibv_poll_cq(3) lists the statuses"},
};

const char *hint_for(const char *message, int number)
{
    for (size_t i = 0; i < sizeof(hint_table) / sizeof(hint_table[0]); i++) {
        if (strncmp(message, hint_table[i].call, strlen(hint_table[i].call)) == 0 &&
            (hint_table[i].number == 0 || hint_table[i].number == number))
            return hint_table[i].hint;
    }
    return NULL;
}
