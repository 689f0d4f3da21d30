/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One mistake with verbs, made for real on the RDMA device of this machine: provoke CASE. The
 * program ends as a sample does: by die(), with the reason and its hint. Two queue pairs of this
 * process are connected to each other. The cases fork_... show what fork does to verbs objects, and
 * print "holds" (exit status 0). See test_hints.py.
 */
#define _GNU_SOURCE
#include "device.h"
#include "qp.h"
#include "report.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PAGE = 4096,
    HUGE_PAGE = 2 << 20,
    NOBODY = 65534,
    TOO_MANY = 1 << 30,
    ALL_RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                 IBV_ACCESS_REMOTE_ATOMIC
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp, *other;
static struct ibv_mr *mr;
static struct port port;
static char *page;
static struct ibv_sge sge; /* of the next request */
static struct ibv_send_wr wr;

static void *map(size_t size, int rights, int flags) {
    void *memory = mmap(NULL, size, rights, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (memory == MAP_FAILED) die(errno, "mmap of %zu bytes", size);
    return memory;
}

static void *new_page(void) { return map(PAGE, PROT_READ | PROT_WRITE, 0); }

static struct ibv_mr *reg(void *memory, size_t size, int access) {
    struct ibv_mr *made = ibv_reg_mr(pd, memory, size, access);
    if (!made) die(errno, "ibv_reg_mr of %zu bytes", size);
    return made;
}

static void open_pd(void) {
    static struct options opt = {.sample = "provoke", .gid_idx = GID_CHOOSE};
    const int any = socket(AF_INET, SOCK_DGRAM, 0);
    ctx = open_device(&opt, any, &port);
    close(any);
    pd = ibv_alloc_pd(ctx);
    if (!pd) die(errno, "ibv_alloc_pd");
}

static void open_cq(void) {
    open_pd();
    cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
    if (!cq) die(errno, "ibv_create_cq");
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

/* The two queue pairs, and a request: WRITE 8 bytes of the page to where they are. access is what
 * "other" allows; nobody_there: it isn't. */
static void connect_pair(int access, bool nobody_there) {
    open_cq();
    page = new_page();
    mr = reg(page, PAGE, ALL_RIGHTS | IBV_ACCESS_MW_BIND);
    qp = new_qp(4);
    other = new_qp(4);
    connect_to(qp, nobody_there ? 0x7fffff : other->qp_num, access);
    connect_to(other, qp->qp_num, access);
    sge = (struct ibv_sge){.addr = (uintptr_t)page, .length = 8, .lkey = mr->lkey};
    wr = (struct ibv_send_wr){.sg_list = &sge,
                              .num_sge = 1,
                              .opcode = IBV_WR_RDMA_WRITE,
                              .send_flags = IBV_SEND_SIGNALED};
    wr.wr.rdma.remote_addr = (uintptr_t)page;
    wr.wr.rdma.rkey = mr->rkey;
}

static void post(void) {
    struct ibv_send_wr *bad_wr;
    check(ibv_post_send(qp, &wr, &bad_wr), "ibv_post_send");
}

static void complete(void) {
    struct ibv_wc wc;
    post();
    wait_completion(cq, "the request", 20, &wc);
}

static void become_nobody(void) {
    if (setresuid(NOBODY, NOBODY, NOBODY) != 0) die(errno, "setresuid");
}

/* --- What goes wrong when memory is registered, or an object is made. */
static void reg_null(void) {
    open_pd();
    reg(NULL, PAGE, IBV_ACCESS_LOCAL_WRITE);
}
static void reg_unmapped(void) {
    open_pd(); /* which maps memory of its own */
    char *gone = new_page();
    munmap(gone, PAGE);
    reg(gone, PAGE, IBV_ACCESS_LOCAL_WRITE);
}
static void reg_read_only(void) {
    static const char text[PAGE] = "constant";
    open_pd();
    reg((void *)(uintptr_t)text, PAGE, IBV_ACCESS_LOCAL_WRITE);
}
static void reg_too_long(void) {
    char *four = map(4 * PAGE, PROT_READ | PROT_WRITE, 0);
    munmap(four + 2 * PAGE, 2 * PAGE);
    open_pd();
    reg(four, 3 * PAGE, IBV_ACCESS_LOCAL_WRITE);
}
static void reg_remote_write_alone(void) {
    open_pd();
    reg(new_page(), PAGE, IBV_ACCESS_REMOTE_WRITE);
}
static void reg_limit(void) {
    const struct rlimit least = {.rlim_cur = PAGE, .rlim_max = PAGE};
    open_pd();
    setrlimit(RLIMIT_MEMLOCK, &least);
    become_nobody(); /* and no CAP_IPC_LOCK */
    reg(map(16 * PAGE, PROT_READ | PROT_WRITE, 0), 16 * PAGE, 0);
}
static void reg_huge(void) {
    open_pd();
    char *huge = map(HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_HUGETLB);
    reg(huge + PAGE, PAGE, IBV_ACCESS_LOCAL_WRITE);
}
static void qp_too_large(void) {
    open_cq();
    new_qp(TOO_MANY);
}
static void cq_too_large(void) {
    open_pd();
    if (!ibv_create_cq(ctx, TOO_MANY, NULL, NULL, 0)) die(errno, "ibv_create_cq");
}
static struct ibv_srq *new_srq(uint32_t wrs) {
    struct ibv_srq_init_attr init = {.attr = {.max_wr = wrs, .max_sge = 1}};
    open_pd();
    struct ibv_srq *srq = ibv_create_srq(pd, &init);
    if (!srq) die(errno, "ibv_create_srq");
    return srq;
}
static void srq_too_large(void) { new_srq(TOO_MANY); }
static void pd_in_use(void) {
    open_pd();
    reg(new_page(), PAGE, 0);
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
static void rtr_kinds(void) {
    open_cq();
    qp = new_qp(1);
    port.gid_index = 0;
    connect_to(qp, qp->qp_num, 0);
}
static void destroy_unknown(void) {
    open_cq();
    cq->handle += 1000; /* as if it had gone */
    check(ibv_destroy_cq(cq), "ibv_destroy_cq");
}

/* --- What a post refuses. */
static void post_inline_too_long(void) {
    connect_pair(0, false);
    sge.length = PAGE;
    wr.send_flags = IBV_SEND_INLINE;
    post();
}
static void post_full(void) {
    connect_pair(0, true); /* or rxe may empty the queue while it is filled */
    for (;;) post();       /* and nobody polls */
}
static void post_recv(int sges) {
    struct ibv_sge two[2] = {{0}};
    struct ibv_recv_wr recv = {.sg_list = two, .num_sge = sges}, *bad_wr;
    check(ibv_post_recv(qp, &recv, &bad_wr), "ibv_post_recv");
}
static void post_recv_full(void) {
    connect_pair(0, false);
    for (;;) post_recv(0);
}
static void post_recv_sges(void) {
    connect_pair(0, false);
    post_recv(2);
}
static void post_srq_full(void) {
    struct ibv_recv_wr recv = {.num_sge = 0}, *bad_wr;
    struct ibv_srq *srq = new_srq(1);
    for (;;) check(ibv_post_srq_recv(srq, &recv, &bad_wr), "ibv_post_srq_recv");
}
static void post_by_child(void) {
    connect_pair(IBV_ACCESS_REMOTE_WRITE, false);
    const pid_t child = fork();
    if (child > 0) {
        int status;
        waitpid(child, &status, 0);
        _exit(WEXITSTATUS(status));
    }
    post();
}
static void post_by_other_user(void) {
    connect_pair(IBV_ACCESS_REMOTE_WRITE, false);
    become_nobody();
    post();
}

/* --- What a completion says. */
static void wc_loc_prot(void) {
    connect_pair(ALL_RIGHTS, false);
    sge.addr += PAGE - 4;
    complete();
}
static void wc_loc_qp_op(void) {
    connect_pair(ALL_RIGHTS, false);
    sge.lkey ^= 0xffff00;
    complete();
}
static void wc_flush(void) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    connect_pair(ALL_RIGHTS, false);
    check(ibv_modify_qp(qp, &attr, IBV_QP_STATE), "ibv_modify_qp to ERR");
    complete();
}
static void wc_bind(void) {
    connect_pair(ALL_RIGHTS, false);
    struct ibv_mw *window = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    if (!window) die(errno, "ibv_alloc_mw");
    char *target = new_page();
    wr = (struct ibv_send_wr){.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
    wr.bind_mw.mw = window;
    wr.bind_mw.rkey = ibv_inc_rkey(window->rkey);
    wr.bind_mw.bind_info.mr = reg(target, PAGE, 0); /* which doesn't allow it */
    wr.bind_mw.bind_info.addr = (uintptr_t)target;
    wr.bind_mw.bind_info.length = 8;
    complete();
}
static void wc_rem_inv(void) {
    connect_pair(0, false);
    complete();
}
static void wc_rem_access(void) {
    connect_pair(ALL_RIGHTS, false);
    wr.wr.rdma.rkey ^= 0xffff00;
    complete();
}
static void wc_rem_op(void) { /* the receive is too short */
    struct ibv_recv_wr recv = {.sg_list = &sge, .num_sge = 1}, *bad_wr;
    struct ibv_wc wc = {.status = IBV_WC_SUCCESS};
    connect_pair(ALL_RIGHTS, false);
    sge.length = 1;
    check(ibv_post_recv(other, &recv, &bad_wr), "ibv_post_recv");
    sge.length = 8;
    wr.opcode = IBV_WR_SEND;
    post();
    const double deadline = now() + 20; /* the receive's completion may come first */
    while ((ibv_poll_cq(cq, 1, &wc) == 0 || wc.qp_num != qp->qp_num) && now() < deadline) continue;
    if (wc.qp_num == qp->qp_num && wc.status) die_wc(&wc, "the SEND");
}
static void wc_retry(void) {
    connect_pair(ALL_RIGHTS, true);
    complete();
}
static void wc_rnr(void) {
    connect_pair(ALL_RIGHTS, false);
    wr.opcode = IBV_WR_SEND;
    complete();
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
    connect_pair(ALL_RIGHTS, false);
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
    page[0] = 'b';
    wr.wr.rdma.remote_addr += 8; /* the NIC copies bytes 0 to 7 to 8 to 15 of the same page */
    complete();
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
    page = new_page();
    memset(page, 'a', PAGE);
    reg(page, 8, 0); /* 8 bytes of the page */
    const pid_t child = fork();
    if (child == 0) _exit(((volatile char *)page)[PAGE - 1] == 'a' ? 0 : 1);
    const int status = status_of(child);
    if (status != 128 + SIGSEGV) die(0, "the child could read the page's last byte: %d", status);
    end_well();
}
static void fork_init_too_late(void) {
    open_pd();
    reg(new_page(), PAGE, 0);
    if (ibv_fork_init() != EINVAL) die(0, "ibv_fork_init after a registration did not fail");
    end_well();
}
/* A child that opens the device itself can use it. */
static void fork_then_open(void) {
    open_pd();
    const pid_t child = fork();
    if (child == 0) {
        connect_pair(ALL_RIGHTS, false);
        complete();
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
    CASE(destroy_unknown),
    CASE(post_inline_too_long),
    CASE(post_full),
    CASE(post_recv_full),
    CASE(post_recv_sges),
    CASE(post_srq_full),
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
    return EXIT_USAGE;
}
