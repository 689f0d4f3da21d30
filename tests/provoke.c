/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One mistake with verbs, made for real on the RDMA device of this machine: provoke CASE. The
 * program ends as a sample does: by die(), with the reason and its hint. Two queue pairs of this
 * process are connected to each other. The cases fork-... show what fork does to verbs objects, and
 * print "holds" (exit status 0). See test_hints.py.
 */
#define _GNU_SOURCE
#include "device.h"
#include "pattern.h"
#include "qp.h"
#include "report.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PAGE = 4096,
    HUGE_PAGE = 2 << 20,
    ALL_RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                 IBV_ACCESS_REMOTE_ATOMIC
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp, *other;
static struct ibv_mr *mr, *no_right;
static struct port port;
static char *page, *target; /* a page each */

static void *map(size_t size, int rights, int flags) {
    void *memory = mmap(NULL, size, rights, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (memory == MAP_FAILED) die(errno, "mmap of %zu bytes", size);
    return memory;
}

static void open_pd(void) {
    static struct options opt = {.sample = "provoke", .gid_idx = GID_CHOOSE};
    const int any = socket(AF_INET, SOCK_DGRAM, 0);
    ctx = open_device(&opt, any, &port);
    close(any);
    pd = ibv_alloc_pd(ctx);
    if (!pd) die(errno, "ibv_alloc_pd");
}

static struct ibv_qp *new_qp(uint32_t wrs) {
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = wrs, .max_send_sge = 1, .max_recv_wr = wrs, .max_recv_sge = 1},
    };
    struct ibv_qp *made = ibv_create_qp(pd, &init);
    if (!made) die(errno, "ibv_create_qp");
    return made;
}

static void connect_to(struct ibv_qp *from, uint32_t qpn, int access) {
    const struct endpoint to = {.lid = port.lid, .qpn = qpn, .gid = port.gid, .mtu = port.mtu};
    qp_to_init(from, &port, access);
    qp_to_rtr(from, &port, &to, 1);
    qp_to_rts(from, 0, 1, 8); /* 1 ms, seven times */
}

/* The two queue pairs; access is what "other" allows. */
static void connect_pair(int access) {
    open_pd();
    cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
    if (!cq) die(errno, "ibv_create_cq");
    page = map(PAGE, PROT_READ | PROT_WRITE, 0);
    target = map(PAGE, PROT_READ | PROT_WRITE, 0);
    mr = ibv_reg_mr(pd, page, PAGE, ALL_RIGHTS | IBV_ACCESS_MW_BIND);
    no_right = ibv_reg_mr(pd, target, PAGE, 0);
    if (!mr || !no_right) die(errno, "ibv_reg_mr of 4096 bytes");
    qp = new_qp(4);
    other = new_qp(4);
    connect_to(qp, other->qp_num, access);
    connect_to(other, qp->qp_num, access);
}

static void ud_to_rts(void) {
    open_pd();
    cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
    if (!cq) die(errno, "ibv_create_cq");
    page = map(PAGE, PROT_READ | PROT_WRITE, 0);
    mr = ibv_reg_mr(pd, page, PAGE, ALL_RIGHTS);
    if (!mr) die(errno, "ibv_reg_mr of 4096 bytes");
    qp = new_qp(4);
    connect_to(qp, 0x7fffff, 0);
}

struct request {
    enum ibv_wr_opcode opcode;
    uint32_t offset, lkey, rkey, length, flags;
    int sges;
    uint64_t remote;
};

static int post(const struct request *r) {
    struct ibv_sge sge = {
        .addr = (uintptr_t)page + r->offset, .length = r->length, .lkey = r->lkey};
    struct ibv_sge two[2] = {sge, sge};
    struct ibv_send_wr wr = {.sg_list = two,
                             .num_sge = r->sges,
                             .opcode = r->opcode,
                             .send_flags = IBV_SEND_SIGNALED | r->flags};
    struct ibv_send_wr *bad_wr;
    wr.wr.rdma.remote_addr = r->remote;
    wr.wr.rdma.rkey = r->rkey;
    if (r->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = r->remote;
        wr.wr.atomic.rkey = r->rkey;
    }
    return ibv_post_send(qp, &wr, &bad_wr);
}

static struct request write_of(uint32_t length) {
    struct request write = {.rkey = mr->rkey, .length = length};
    write.opcode = IBV_WR_RDMA_WRITE;
    write.lkey = mr->lkey;
    write.sges = 1;
    write.remote = (uintptr_t)page;
    return write;
}

static void complete(const struct request *r) {
    struct ibv_wc wc;
    check(post(r), "ibv_post_send");
    wait_completion(cq, "the request", 20, &wc);
}

static void register_it(void *memory, size_t size, int access) {
    open_pd();
    if (!ibv_reg_mr(pd, memory, size, access)) die(errno, "ibv_reg_mr of %zu bytes", size);
}

/* --- What goes wrong when memory is registered, or an object is made. */
static void reg_null(void) { register_it(NULL, PAGE, IBV_ACCESS_LOCAL_WRITE); }
static void reg_unmapped(void) {
    open_pd(); /* which maps memory of its own */
    char *gone = map(PAGE, PROT_READ, 0);
    munmap(gone, PAGE);
    if (!ibv_reg_mr(pd, gone, PAGE, IBV_ACCESS_LOCAL_WRITE)) die(errno, "ibv_reg_mr of 4096 bytes");
}
static void reg_read_only(void) {
    static const char text[PAGE] = "constant";
    register_it((void *)(uintptr_t)text, PAGE, IBV_ACCESS_LOCAL_WRITE);
}
static void reg_too_long(void) {
    char *four = map(4 * PAGE, PROT_READ | PROT_WRITE, 0);
    munmap(four + 2 * PAGE, 2 * PAGE);
    register_it(four, 3 * PAGE, IBV_ACCESS_LOCAL_WRITE);
}
static void reg_remote_write_alone(void) {
    register_it(map(PAGE, PROT_READ | PROT_WRITE, 0), PAGE, IBV_ACCESS_REMOTE_WRITE);
}
static void reg_limit(void) {
    const struct rlimit least = {.rlim_cur = PAGE, .rlim_max = PAGE};
    open_pd();
    setrlimit(RLIMIT_MEMLOCK, &least);
    if (setresuid(65534, 65534, 65534) != 0) die(errno, "setresuid"); /* and no CAP_IPC_LOCK */
    const size_t size = 16 * PAGE;
    if (!ibv_reg_mr(pd, map(size, PROT_READ | PROT_WRITE, 0), size, 0))
        die(errno, "ibv_reg_mr of %zu bytes", size);
}
static void reg_huge(void) {
    register_it((char *)map(HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_HUGETLB) + PAGE, PAGE,
                IBV_ACCESS_LOCAL_WRITE);
}
static void qp_too_large(void) {
    open_pd();
    cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
    new_qp(1 << 30);
}
static void cq_too_large(void) {
    open_pd();
    if (!ibv_create_cq(ctx, 1 << 30, NULL, NULL, 0)) die(errno, "ibv_create_cq");
}
static void srq_too_large(void) {
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 1 << 30, .max_sge = 1}};
    open_pd();
    if (!ibv_create_srq(pd, &init)) die(errno, "ibv_create_srq");
}
static void pd_in_use(void) {
    connect_pair(0);
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
}
/* The GID of index 0 is link-local IPv6; the peer's is IPv4. */
static void ah_kinds(void) {
    open_pd();
    struct ibv_ah_attr attr = {.is_global = 1, .port_num = port.num};
    attr.grh.dgid = port.gid;
    attr.grh.sgid_index = 0;
    attr.grh.hop_limit = 64;
    if (!ibv_create_ah(pd, &attr)) die(errno, "ibv_create_ah");
}
static void to_rtr(uint8_t gid_index, const char *dgid) {
    struct ibv_qp_init_attr asked = {.qp_type = IBV_QPT_RC};
    struct port chosen;
    open_pd();
    cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
    asked.send_cq = cq;
    asked.recv_cq = cq;
    asked.cap.max_send_wr = 1;
    asked.cap.max_send_sge = 1;
    qp = ibv_create_qp(pd, &asked);
    if (!qp) die(errno, "ibv_create_qp");
    struct endpoint to = {.qpn = qp->qp_num, .gid = port.gid, .mtu = port.mtu};
    if (dgid) inet_pton(AF_INET6, dgid, &to.gid);
    chosen = port;
    chosen.gid_index = gid_index;
    qp_to_init(qp, &chosen, 0);
    qp_to_rtr(qp, &chosen, &to, 0);
}
static void rtr_kinds(void) { to_rtr(0, NULL); }
static void rtr_no_route(void) { to_rtr(0, "2001:db8::1"); }

/* --- What a post refuses. */
static void post_inline_too_long(void) {
    connect_pair(0);
    struct request r = write_of(PAGE);
    r.flags = IBV_SEND_INLINE;
    check(post(&r), "ibv_post_send of the note");
}
static void post_full(void) {
    ud_to_rts(); /* or rxe may empty the queue while it is filled */
    const struct request r = write_of(8);
    for (int i = 0; i < 10000; i++) check(post(&r), "ibv_post_send"); /* and nobody polls */
}
static void post_recv_full(void) {
    struct ibv_recv_wr wr = {.num_sge = 0}, *bad_wr;
    connect_pair(0);
    for (int i = 0; i < 10000; i++) check(ibv_post_recv(qp, &wr, &bad_wr), "ibv_post_recv");
}
static void post_recv_sges(void) {
    struct ibv_sge two[2] = {{0}};
    struct ibv_recv_wr wr = {.sg_list = two, .num_sge = 2}, *bad_wr;
    connect_pair(0);
    check(ibv_post_recv(qp, &wr, &bad_wr), "ibv_post_recv");
}
static void post_srq_full(void) {
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 1, .max_sge = 1}};
    struct ibv_recv_wr wr = {.num_sge = 0}, *bad_wr;
    open_pd();
    struct ibv_srq *srq = ibv_create_srq(pd, &init);
    if (!srq) die(errno, "ibv_create_srq");
    for (int i = 0; i < 10000; i++)
        check(ibv_post_srq_recv(srq, &wr, &bad_wr), "ibv_post_srq_recv");
}
static void destroy_unknown(void) {
    open_pd();
    cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
    if (!cq) die(errno, "ibv_create_cq");
    cq->handle += 1000; /* as if it had gone */
    check(ibv_destroy_cq(cq), "ibv_destroy_cq");
}
static void post_by_child(void) {
    connect_pair(IBV_ACCESS_REMOTE_WRITE);
    const pid_t child = fork();
    if (child > 0) {
        int status;
        waitpid(child, &status, 0);
        _exit(WEXITSTATUS(status));
    }
    const struct request r = write_of(8);
    check(post(&r), "ibv_post_send");
}
static void post_by_other_user(void) {
    connect_pair(IBV_ACCESS_REMOTE_WRITE);
    if (setresuid(65534, 65534, 65534) != 0) die(errno, "setresuid");
    const struct request r = write_of(8);
    check(post(&r), "ibv_post_send");
}

/* --- What a completion says. */
static void wc_loc_prot(void) {
    connect_pair(ALL_RIGHTS);
    struct request r = write_of(8);
    r.offset = PAGE - 4;
    complete(&r);
}
static void wc_loc_qp_op(void) {
    connect_pair(ALL_RIGHTS);
    struct request r = write_of(8);
    r.lkey ^= 0xffff00;
    complete(&r);
}
static void wc_flush(void) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    connect_pair(ALL_RIGHTS);
    check(ibv_modify_qp(qp, &attr, IBV_QP_STATE), "ibv_modify_qp to ERR");
    const struct request r = write_of(8);
    complete(&r);
}
static void wc_bind(void) {
    struct ibv_wc wc;
    connect_pair(ALL_RIGHTS);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    if (!mw) die(errno, "ibv_alloc_mw");
    struct ibv_send_wr bind = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED}, *bad_wr;
    bind.bind_mw.mw = mw;
    bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
    bind.bind_mw.bind_info.mr = no_right;
    bind.bind_mw.bind_info.addr = (uintptr_t)target;
    bind.bind_mw.bind_info.length = 8;
    check(ibv_post_send(qp, &bind, &bad_wr), "ibv_post_send");
    wait_completion(cq, "the bind", 20, &wc);
}
static void wc_rem_inv(void) {
    connect_pair(0);
    const struct request r = write_of(8);
    complete(&r);
}
static void wc_rem_access(void) {
    connect_pair(ALL_RIGHTS);
    struct request r = write_of(8);
    r.rkey ^= 0xffff00;
    complete(&r);
}
static void wc_rem_op(void) { /* the receive is too short */
    struct ibv_sge sge = {0};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad_wr;
    struct ibv_wc wc = {.status = IBV_WC_SUCCESS};
    connect_pair(ALL_RIGHTS);
    sge = (struct ibv_sge){.addr = (uintptr_t)page, .length = 1, .lkey = mr->lkey};
    check(ibv_post_recv(other, &wr, &bad_wr), "ibv_post_recv");
    struct request r = write_of(8);
    r.opcode = IBV_WR_SEND;
    check(post(&r), "ibv_post_send");
    const double deadline = now() + 20; /* the receive's completion may come first */
    while ((ibv_poll_cq(cq, 1, &wc) == 0 || wc.qp_num != qp->qp_num) && now() < deadline) continue;
    if (wc.qp_num == qp->qp_num && wc.status) die_wc(&wc, "the SEND");
}
static void wc_retry(void) {
    ud_to_rts();
    const struct request r = write_of(8);
    complete(&r);
}
static void wc_rnr(void) {
    connect_pair(ALL_RIGHTS);
    struct request r = write_of(8);
    r.opcode = IBV_WR_SEND;
    complete(&r);
}

/* --- What the handout says of fork. */
static void end_well(void) {
    printf("holds\n");
    exit(EXIT_SUCCESS);
}

static int status_of(pid_t child) {
    int status = 0;
    if (child < 0) die(errno, "fork");
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* The parent writes to its registered page after the fork; if that gave it a copy of the page, the
 * NIC would go on with the old one. */
static void fork_plain(void) {
    struct request r;
    connect_pair(ALL_RIGHTS);
    memset(page, 'a', PAGE);
    int tell[2];
    if (pipe(tell) != 0) die(errno, "pipe");
    const pid_t child = fork();
    if (child == 0) {
        char c;
        close(tell[1]);
        if (read(tell[0], &c, 1) != 0) _exit(2); /* until the parent closes it */
        _exit(page[0] == 'a' && page[8] == 'a' ? 0 : 1);
    }
    close(tell[0]);
    page[0] = 'b';
    r = write_of(8); /* the NIC copies bytes 0 to 7 to 8 to 15 of the same page */
    r.remote = (uintptr_t)page + 8;
    complete(&r);
    const bool moved = page[8] == 'b' && page[9] == 'a';
    close(tell[1]);
    const int status = status_of(child);
    if (!moved) die(0, "after a fork the NIC works on another page than the parent");
    if (status != 0) die(0, "the child sees what the NIC has written: %d", status);
    end_well();
}
static void fork_unneeded(void) {
    const enum ibv_fork_status status = ibv_is_fork_initialized();
    if (status != IBV_FORK_UNNEEDED) die(0, "ibv_is_fork_initialized: %d", (int)status);
    end_well();
}
/* The child has nothing where the whole page was. */
static void fork_init_costs_pages(void) {
    if (!getenv("RDMAV_FORK_SAFE")) check(ibv_fork_init(), "ibv_fork_init"); /* it does the same */
    open_pd();
    page = map(PAGE, PROT_READ | PROT_WRITE, 0);
    memset(page, 'a', PAGE);
    mr = ibv_reg_mr(pd, page, 8, 0); /* 8 bytes of the page */
    if (!mr) die(errno, "ibv_reg_mr of a word");
    const pid_t child = fork();
    if (child == 0) _exit(((volatile char *)page)[PAGE - 1] == 'a' ? 0 : 1);
    const int status = status_of(child);
    if (status != 128 + SIGSEGV) die(0, "the child could read the page's last byte: %d", status);
    end_well();
}
static void fork_init_too_late(void) {
    open_pd();
    mr = ibv_reg_mr(pd, map(PAGE, PROT_READ | PROT_WRITE, 0), PAGE, 0);
    if (ibv_fork_init() != EINVAL) die(0, "ibv_fork_init after a registration did not fail");
    end_well();
}
/* A child that opens the device itself can use it. */
static void fork_then_open(void) {
    open_pd();
    const pid_t child = fork();
    if (child == 0) {
        connect_pair(ALL_RIGHTS);
        const struct request r = write_of(8);
        complete(&r);
        _exit(0);
    }
    const int status = status_of(child);
    if (status != 0) die(0, "the child's own objects did not work: %d", status);
    end_well();
}

static const struct {
    const char *name;
    void (*provoke)(void);
} cases[] = {
#define CASE(name)                                                                                 \
    { #name, name }
    CASE(reg_null),
    CASE(reg_unmapped),
    CASE(reg_read_only),
    CASE(reg_too_long),
    CASE(reg_remote_write_alone),
    CASE(reg_limit),
    CASE(reg_huge),
    CASE(qp_too_large),
    CASE(cq_too_large),
    CASE(srq_too_large),
    CASE(pd_in_use),
    CASE(ah_kinds),
    CASE(rtr_kinds),
    CASE(rtr_no_route),
    CASE(post_inline_too_long),
    CASE(post_full),
    CASE(post_recv_full),
    CASE(post_recv_sges),
    CASE(post_srq_full),
    CASE(destroy_unknown),
    CASE(post_by_child),
    CASE(post_by_other_user),
    CASE(wc_loc_prot),
    CASE(wc_loc_qp_op),
    CASE(wc_flush),
    CASE(wc_bind),
    CASE(wc_rem_inv),
    CASE(wc_rem_access),
    CASE(wc_rem_op),
    CASE(wc_retry),
    CASE(wc_rnr),
    CASE(fork_plain),
    CASE(fork_unneeded),
    CASE(fork_init_costs_pages),
    CASE(fork_init_too_late),
    CASE(fork_then_open),
};

int main(int argc, char **argv) {
    report_as("provoke", "case");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (argc > 1 && strcmp(argv[1], cases[i].name) == 0) {
            cases[i].provoke();
            die(0, "%s went well", argv[1]);
        }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) puts(cases[i].name);
    return EXIT_USAGE;
}
