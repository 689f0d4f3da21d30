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

enum { PAGE = 4096, NOBODY = 65534, RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp, *other;
static struct ibv_mr *mr;
static struct port port;
static char *page;
static struct ibv_sge sge; /* of the next request */
static struct ibv_send_wr wr;

static void *map(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) die(errno, "mmap of %zu bytes", size);
    return memory;
}

static void *new_page(void) { return map(PAGE); }

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

static struct ibv_qp *new_qp(void) {
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1},
    };
    struct ibv_qp *made = ibv_create_qp(pd, &init);
    if (!made) die(errno, "ibv_create_qp");
    return made;
}

static void connect_to(struct ibv_qp *from, uint32_t qpn) {
    const struct endpoint to = {.lid = port.lid, .qpn = qpn, .gid = port.gid, .mtu = port.mtu};
    qp_to_init(from, &port, RIGHTS);
    qp_to_rtr(from, &port, &to, 1);
    qp_to_rts(from, 0, 1, 8); /* 1 ms, seven times */
}

/* The two queue pairs, and a request: WRITE 8 bytes of the page to where they are. */
static void connect_pair(void) {
    open_cq();
    page = new_page();
    mr = reg(page, PAGE, RIGHTS);
    qp = new_qp();
    other = new_qp();
    connect_to(qp, other->qp_num);
    connect_to(other, qp->qp_num);
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
static void reg_read_only(void) {
    static const char text[PAGE] = "constant";
    open_pd();
    reg((void *)(uintptr_t)text, PAGE, IBV_ACCESS_LOCAL_WRITE);
}
static void reg_limit(void) {
    const struct rlimit least = {.rlim_cur = PAGE, .rlim_max = PAGE};
    open_pd();
    setrlimit(RLIMIT_MEMLOCK, &least);
    become_nobody(); /* and no CAP_IPC_LOCK */
    reg(map(16 * PAGE), 16 * PAGE, 0);
}

static void post_by_child(void) {
    connect_pair();
    const pid_t child = fork();
    if (child > 0) {
        int status;
        waitpid(child, &status, 0);
        _exit(WEXITSTATUS(status));
    }
    post();
}
static void post_by_other_user(void) {
    connect_pair();
    become_nobody();
    post();
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
    connect_pair();
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
        connect_pair();
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
    CASE(reg_null),       CASE(reg_read_only),         CASE(reg_limit),
    CASE(post_by_child),  CASE(post_by_other_user),    CASE(fork_plain),
    CASE(fork_unneeded),  CASE(fork_init_costs_pages), CASE(fork_init_too_late),
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
