/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 13_memory_window - the server lends memory, and takes it back. It registers the memory once,
 * without any right for the peer. For each loan it binds a memory window (MW) to a part, and SENDs
 * the window's rkey to the client. The client WRITEs. Then the window is withdrawn.
 *
 *   gcc -I../common -o memory_window memory_window.c ../common/[a-z]*.c -libverbs
 *   ./memory_window               in one terminal: the server
 *   ./memory_window 127.0.0.1     in another: the client; the server's address
 *
 * The client prints (the server: similar lines):
 *   one more WRITE with the last rkey: remote access error
 *   moved 4 x 4096 bytes, each in a loan of its own
 *   RESULT sample=13_memory_window role=client status=PASS bytes=16384 digest=...
 *
 * Rendezvous: message i, from 0 to iters - 1, is the pattern (pattern.h) of seed + i, size bytes;
 * the digest covers all messages. After timeout comes withdraw=1, 2 or 3 (the option). No line has
 * an rkey: the server SENDs rkey and address of each loan (64 bits each, highest byte first), and
 * the client answers with an empty SEND. Barriers: ready, withdrawn (the last loan has ended),
 * done.
 */
#define _DEFAULT_SOURCE
#include "device.h"
#include "pattern.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"
#include <endian.h>
#include <sched.h>

enum { BY_BIND = 1, BY_LOCAL_INV, BY_REMOTE_INV }; /* how a loan ends: the values of --withdraw */
enum { HEAD = 16 };                                /* bytes of a loan's rkey and address */

/* One side of the loans. */
struct side {
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    struct ibv_mw *mw; /* server: the window; else NULL */
    uint64_t *loan;    /* rkey and address, as they go to the client */
    char *part;        /* behind them: what is lent */
    uint32_t size;     /* bytes in part */
    uint64_t withdraw; /* one of the enum */
    uint64_t timeout;  /* seconds */
};

static void format_work(const struct options *opt, char *out, size_t room) {
    snprintf(out, room, ",withdraw=%ju", *(uint64_t *)opt->work);
}

static const char *parse_work(struct options *opt, const char *text) {
    uint64_t *withdraw = opt->work;
    const bool parsed = sscanf(text, ",withdraw=%1ju", withdraw) == 1 && strlen(text) == 11;
    return parsed && *withdraw >= BY_BIND && *withdraw <= BY_REMOTE_INV ? NULL
                                                                        : "withdraw= is malformed";
}

/* Server: binds the window to length bytes of part, or ends that if length is 0. For type 1 the
 * library changes mw->rkey; for type 2 the program chooses its lowest 8 bits (ibv_bind_mw(3),
 * ibv_post_send(3)). */
static void set_window(const struct side *s, uint32_t length) {
    struct ibv_mw *mw = s->mw;
    struct ibv_mw_bind_info info = {
        .mr = s->mr,
        .addr = (uintptr_t)s->part,
        .length = length,
        .mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
    };
    if (mw->type == IBV_MW_TYPE_1) {
        struct ibv_mw_bind bind = {.send_flags = IBV_SEND_SIGNALED, .bind_info = info};
        check(ibv_bind_mw(s->qp, mw, &bind), "ibv_bind_mw");
    } else {
        struct ibv_send_wr wr = {.send_flags = IBV_SEND_SIGNALED};
        struct ibv_send_wr *bad_wr;
        if (length > 0) {
            wr.opcode = IBV_WR_BIND_MW;
            wr.bind_mw.mw = mw;
            wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
            wr.bind_mw.bind_info = info;
        } else {
            wr.opcode = IBV_WR_LOCAL_INV;
            wr.invalidate_rkey = mw->rkey;
        }
        check(ibv_post_send(s->qp, &wr, &bad_wr), "ibv_post_send for the window");
        if (length > 0) mw->rkey = wr.bind_mw.rkey;
    }
    struct ibv_wc wc;
    wait_completion(s->qp->send_cq, length ? "the bind" : "the withdrawal", s->timeout, &wc);
}

/* The server's receives are for empty SENDs, the client's for the rkey and address of a loan. */
static void post_receive(const struct side *s) {
    struct ibv_sge head = {.addr = (uintptr_t)s->loan, .length = HEAD, .lkey = s->mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &head, .num_sge = s->mw ? 0 : 1};
    struct ibv_recv_wr *bad_wr;
    check(ibv_post_recv(s->qp, &wr, &bad_wr), "ibv_post_recv");
}

/* Server: binds the window to part, and SENDs the client its rkey and address. */
static void lend(const struct side *s) {
    struct ibv_sge head = {.addr = (uintptr_t)s->loan, .length = HEAD, .lkey = s->mr->lkey};
    struct ibv_send_wr wr = {
        .sg_list = &head,
        .num_sge = 1,
        .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED,
    };
    struct ibv_send_wr *bad_wr;
    struct ibv_wc wc;
    set_window(s, s->size);
    s->loan[0] = htobe64(s->mw->rkey);
    s->loan[1] = htobe64((uintptr_t)s->part);
    check(ibv_post_send(s->qp, &wr, &bad_wr), "ibv_post_send of the SEND");
    wait_completion(s->qp->send_cq, "the SEND", s->timeout, &wc);
}

/* Server: waits until the client has done with the loan, and withdraws it. With BY_REMOTE_INV, the
 * client's NIC and this one have done that. */
static void take_back(const struct side *s, bool last) {
    struct ibv_wc wc;
    wait_completion(s->qp->recv_cq, "the receive", s->timeout, &wc);
    if (!last) post_receive(s);
    if (s->withdraw != BY_REMOTE_INV) {
        set_window(s, 0);
        return;
    }
    /* rxe sets IBV_WC_IP_CSUM_OK instead of IBV_WC_WITH_INV. */
    if (!(wc.wc_flags & (IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK)) ||
        wc.invalidated_rkey != s->mw->rkey)
        die(0, "the peer has not invalidated rkey 0x%x", s->mw->rkey);
}

/* Client: a WRITE of part to where the last loan says. */
static struct ibv_send_wr build_write(const struct side *s, struct ibv_sge *sge) {
    *sge = (struct ibv_sge){.addr = (uintptr_t)s->part, .length = s->size, .lkey = s->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
    wr.wr.rdma.rkey = (uint32_t)be64toh(s->loan[0]);
    wr.wr.rdma.remote_addr = be64toh(s->loan[1]);
    return wr;
}

/* Client: waits for a loan, WRITEs, and tells the server by an empty SEND, which is executed after
 * the WRITE. SEND_WITH_INV also invalidates the window (type 2 only), before the server gets its
 * completion. */
static void use_loan(const struct side *s, uint64_t seed, bool last) {
    struct ibv_sge sge;
    struct ibv_send_wr *bad_wr;
    struct ibv_wc wc;
    wait_completion(s->qp->recv_cq, "the receive", s->timeout, &wc);
    pattern_fill(s->part, s->size, seed);
    struct ibv_send_wr write = build_write(s, &sge);
    if (!last) post_receive(s); /* from here on the next loan may overwrite this one */
    struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    if (s->withdraw == BY_REMOTE_INV) {
        send.opcode = IBV_WR_SEND_WITH_INV;
        send.invalidate_rkey = write.wr.rdma.rkey;
    }
    write.next = &send;
    check(ibv_post_send(s->qp, &write, &bad_wr), "ibv_post_send of WRITE and SEND");
    wait_completion(s->qp->send_cq, "the WRITE or the SEND", s->timeout, &wc);
}

/* Client: one more WRITE with the rkey that it has kept. It must be refused; both QPs are in state
 * ERR then. Returns whether it was. */
static bool write_after_the_loan(const struct side *s, uint64_t seed) {
    struct ibv_sge sge;
    struct ibv_send_wr *bad_wr;
    struct ibv_wc wc;
    const double deadline = now() + (double)s->timeout;
    int n;
    pattern_fill(s->part, s->size, seed);
    struct ibv_send_wr write = build_write(s, &sge);
    write.send_flags = IBV_SEND_SIGNALED;
    check(ibv_post_send(s->qp, &write, &bad_wr), "ibv_post_send of the last WRITE");
    while ((n = ibv_poll_cq(s->qp->send_cq, 1, &wc)) == 0 && now() < deadline) sched_yield();
    if (n != 1) die(0, n ? "ibv_poll_cq" : "no completion of the last WRITE");
    if (wc.status && wc.status != IBV_WC_REM_ACCESS_ERR) die_wc(&wc, "the last WRITE");
    printf("one more WRITE with the last rkey: %s\n", ibv_wc_status_str(wc.status));
    return expect(wc.status == IBV_WC_REM_ACCESS_ERR, "it was not refused");
}

int main(int argc, char **argv) {
    /* 1. Options. A host argument makes this the client. */
    uint64_t withdraw = BY_REMOTE_INV;
    struct options opt = {.sample = "13_memory_window", .size = 4096, .iters = 4, .seed = 1};
    const struct option_row rows[] = {
        {'s', "size", "BYTES", "bytes in a message", NUMBER(opt.size, 1, MAX_SIZE)},
        {'n', "iters", "N", "number of loans", NUMBER(opt.iters, 1, MAX_ITERS)},
        {'S', "seed", "N", "seed of the test data", NUMBER(opt.seed, 0, UINT64_MAX)},
        {'w', "withdraw", "N", "1 bind, 2 LOCAL_INV, 3 SEND_WITH_INV",
         NUMBER(withdraw, BY_BIND, BY_REMOTE_INV)},
        {0},
    };
    opt.work = &withdraw;
    opt.format_work = format_work;
    opt.parse_work = parse_work;
    parse_options(&opt, rows, argc, argv);
    const bool client = opt.host != NULL;

    /* 2. Start the rendezvous. Device, protection domain, a completion queue for each direction. */
    struct rendezvous tcp;
    struct endpoint peer;
    struct port port;
    rendezvous_open(&tcp, &opt, &peer);
    struct ibv_context *ctx = open_device(&opt, tcp.fd, &port);
    errno = 0; /* a driver may return NULL and leave it: then no old error is told */
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    if (!pd) die(errno, "ibv_alloc_pd");
    struct ibv_cq *send_cq = ibv_create_cq(ctx, 2, NULL, NULL, 0);
    if (!send_cq) die(errno, "ibv_create_cq");
    struct ibv_cq *recv_cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
    if (!recv_cq) die(errno, "ibv_create_cq");

    /* 3. Memory: the loan's rkey and address, then the part that is lent. The region gives the peer
     * no right. MW_BIND allows windows on it; one with REMOTE_WRITE needs LOCAL_WRITE, too. */
    const uint32_t size = (uint32_t)opt.size;
    uint64_t *loan = guarded_alloc(HEAD + size);
    char *part = (char *)loan + HEAD;
    struct ibv_mr *mr = ibv_reg_mr(pd, loan, HEAD + size,
                                   IBV_ACCESS_LOCAL_WRITE | (client ? 0 : IBV_ACCESS_MW_BIND));
    if (!mr) die(errno, "ibv_reg_mr of %u bytes", HEAD + size);

    /* 4. The queue pair, then the window: bound, type 2 belongs to the QP and must go before it. */
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = send_cq,
        .recv_cq = recv_cq,
        .cap = {.max_send_wr = 2, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1},
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp) die(errno, "ibv_create_qp");
    const enum ibv_mw_type type = withdraw == BY_BIND ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2;
    errno = 0; /* a driver may return NULL and set nothing */
    struct ibv_mw *mw = client ? NULL : ibv_alloc_mw(pd, type);
    if (!client && !mw)
        stop(errno == ENOMEM ? 1 : EXIT_NO_DEVICE, errno, "ibv_alloc_mw, type %d", (int)type);

    /* 5. Exchange. Nothing is lent yet: no address, no rkey. */
    const struct endpoint mine = {
        .lid = port.lid,
        .qpn = qp->qp_num,
        .psn = random_psn(),
        .gid = port.gid,
        .mtu = port.mtu,
        .max_sge = 1,
    };
    rendezvous_swap(&tcp, &mine, &peer);

    /* 6. RESET -> INIT -> RTR -> RTS. The queue pair must allow what the window allows. */
    qp_to_init(qp, &port, client ? 0 : IBV_ACCESS_REMOTE_WRITE);
    qp_to_rtr(qp, &port, &peer, 0);
    qp_to_rts(qp, mine.psn, 0, ACK_TIMEOUT);

    /* 7. The verbs, in lend, use_loan and take_back. Each message is verified on both sides. */
    const struct side side = {
        .qp = qp,
        .mr = mr,
        .mw = mw,
        .loan = loan,
        .part = part,
        .size = size,
        .withdraw = withdraw,
        .timeout = opt.timeout,
    };
    bool pass = true;
    uint64_t digest = FNV_BASIS;
    uint64_t first_rkey = UINT64_MAX; /* server: of the first loan, until another loan has it */
    post_receive(&side);
    rendezvous_sync(&tcp, "ready");
    for (uint64_t i = 0; i < opt.iters; i++) {
        const bool last = i + 1 == opt.iters;
        if (client) {
            use_loan(&side, opt.seed + i, last);
        } else {
            poison_fill(part, size, opt.seed + i);
            lend(&side);
            if (i == 0) first_rkey = mw->rkey;
            if (i > 0 && mw->rkey == first_rkey) {
                printf("loan %ju has the first one's rkey, 0x%x\n", i + 1, mw->rkey);
                first_rkey = UINT64_MAX;
            }
            take_back(&side, last);
        }
        pass = pattern_ok("message", part, size, opt.seed + i) && pass;
        digest = fnv1a(digest, part, size);
    }
    rendezvous_sync(&tcp, "withdrawn");
    if (client) pass = write_after_the_loan(&side, ~opt.seed) && pass;
    rendezvous_sync(&tcp, "done");
    printf("moved %ju x %u bytes, each in a loan of its own\n", opt.iters, size);

    /* 8. Verify: what came when nothing was lent is not there, nor anything beside the part. */
    if (!client) pass = pattern_ok("lent", part, size, opt.seed + opt.iters - 1) && pass;
    pass = expect(client || loan[1] == htobe64((uintptr_t)part), "bytes beside it have changed") &&
           pass;
    pass = guards_ok("memory", loan, HEAD + size) && pass;
    pass = rendezvous_verdict(&tcp, pass);

    /* 9. Undo in reverse order. */
    if (mw) check(ibv_dealloc_mw(mw), "ibv_dealloc_mw");
    check(ibv_destroy_qp(qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(mr), "ibv_dereg_mr");
    check(ibv_destroy_cq(recv_cq), "ibv_destroy_cq");
    check(ibv_destroy_cq(send_cq), "ibv_destroy_cq");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(ctx), "ibv_close_device");
    guarded_free(loan);
    return report_result(pass, opt.size * opt.iters, digest);
}
