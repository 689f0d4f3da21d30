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
 * Rendezvous: message i, from 0 to iters - 1, is the pattern (data.h) of seed + i, size bytes; the
 * digest covers all messages. After timeout comes withdraw=1, 2 or 3 (the option). No line has an
 * rkey: the server SENDs rkey and address of each loan (64 bits each, highest byte first), and the
 * client answers with an empty SEND. Barriers: ready, withdrawn (the last loan has ended), done.
 */
#define _DEFAULT_SOURCE
#include "data.h"
#include "device.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"
#include <endian.h>
#include <sched.h>

enum { BIND = 1, LOCAL, REMOTE, HEAD = 16 }; /* how a loan ends; bytes of rkey and address */

static void format_way(const struct options *opt, char *out, size_t room) {
    snprintf(out, room, ",withdraw=%ju", *(uint64_t *)opt->work);
}

static const char *parse_way(struct options *opt, const char *text) {
    uint64_t *way = opt->work;
    const bool one = sscanf(text, ",withdraw=%1ju", way) == 1 && strlen(text) == 11;
    return one && *way >= BIND && *way <= REMOTE ? NULL : "withdraw= is malformed";
}

/* Binds a window, or ends that if info->length is 0. For type 1 the library changes mw->rkey; for
 * type 2 the program chooses its lowest 8 bits (ibv_bind_mw(3), ibv_post_send(3)). */
static void set_window(struct ibv_qp *qp, struct ibv_mw *mw, const struct ibv_mw_bind_info *info,
                       uint64_t timeout) {
    struct ibv_mw_bind type_1 = {.send_flags = IBV_SEND_SIGNALED, .bind_info = *info};
    struct ibv_send_wr type_2 = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED}, *bad;
    struct ibv_wc wc;
    type_2.bind_mw.mw = mw;
    type_2.bind_mw.rkey = info->length ? ibv_inc_rkey(mw->rkey) : mw->rkey;
    type_2.bind_mw.bind_info = *info;
    if (!info->length) type_2.opcode = IBV_WR_LOCAL_INV, type_2.invalidate_rkey = mw->rkey;
    if (mw->type == IBV_MW_TYPE_1)
        check(ibv_bind_mw(qp, mw, &type_1), "ibv_bind_mw");
    else
        check(ibv_post_send(qp, &type_2, &bad), "ibv_post_send for the window");
    wait_completion(qp->send_cq, info->length ? "the bind" : "the withdrawal", timeout, &wc);
    if (mw->type == IBV_MW_TYPE_2) mw->rkey = type_2.bind_mw.rkey;
}

int main(int argc, char **argv) {
    /* 1. Options. A host argument makes this the client. */
    uint64_t way = REMOTE;
    struct options opt = {.sample = "13_memory_window", .size = 4096, .iters = 4, .seed = 1};
    const struct option_row rows[] = {
        {'s', "size", "BYTES", "bytes in a message", NUMBER(opt.size, 1, MAX_SIZE)},
        {'n', "iters", "N", "number of loans", NUMBER(opt.iters, 1, MAX_ITERS)},
        {'S', "seed", "N", "seed of the test data", NUMBER(opt.seed, 0, UINT64_MAX)},
        {'w', "withdraw", "N", "1 bind, 2 LOCAL_INV, 3 SEND_WITH_INV", NUMBER(way, BIND, REMOTE)},
        {0},
    };
    opt.work = &way, opt.format_work = format_way, opt.parse_work = parse_way;
    parse_options(&opt, rows, argc, argv);
    const bool client = opt.host != NULL;

    /* 2. Start the rendezvous. Device, protection domain, a completion queue for each direction. */
    struct rendezvous rv;
    struct endpoint peer;
    struct port port;
    rendezvous_open(&rv, &opt, &peer);
    struct ibv_context *ctx = open_device(&opt, rv.fd, &port);
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    if (!pd) die(errno, "ibv_alloc_pd");
    struct ibv_cq *send_cq = ibv_create_cq(ctx, 2, NULL, NULL, 0);
    struct ibv_cq *recv_cq = send_cq ? ibv_create_cq(ctx, 1, NULL, NULL, 0) : NULL;
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
    const enum ibv_mw_type type = way == BIND ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2;
    struct ibv_mw *mw = client ? NULL : ibv_alloc_mw(pd, type);
    if (!client && !mw)
        stop(errno == ENOMEM ? 1 : EXIT_NO_DEVICE, errno, "ibv_alloc_mw, type %d", (int)type);

    /* 5. Exchange. Nothing is lent yet: no address, no rkey. */
    struct endpoint mine = {.lid = port.lid, .gid = port.gid, .mtu = port.mtu, .max_sge = 1};
    mine.qpn = qp->qp_num, mine.psn = random_psn();
    rendezvous_swap(&rv, &mine, &peer);

    /* 6. RESET -> INIT -> RTR -> RTS. The queue pair must allow what the window allows. */
    qp_to_init(qp, &port, client ? 0 : IBV_ACCESS_REMOTE_WRITE);
    qp_to_rtr(qp, &port, &peer, 0);
    qp_to_rts(qp, mine.psn, 0, ACK_TIMEOUT);

    /* 7. The verbs. The client's SEND is executed after its WRITE. SEND_WITH_INV also invalidates
     * the window (type 2 only), before the server gets its completion. */
    struct ibv_sge head = {.addr = (uintptr_t)loan, .length = HEAD, .lkey = mr->lkey};
    struct ibv_sge sge = {.addr = (uintptr_t)part, .length = size, .lkey = mr->lkey};
    struct ibv_recv_wr recv_wr = {.sg_list = &head, .num_sge = client}, *bad_recv_wr;
    struct ibv_send_wr send = {.sg_list = &head, .num_sge = !client}, *bad_wr;
    struct ibv_send_wr write = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
    struct ibv_mw_bind_info info = {.mr = mr, .addr = (uintptr_t)part};
    struct ibv_wc wc;
    send.opcode = client && way == REMOTE ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND;
    send.send_flags = IBV_SEND_SIGNALED;
    info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
    bool pass = true;
    uint64_t digest = FNV_BASIS;
    check(ibv_post_recv(qp, &recv_wr, &bad_recv_wr), "ibv_post_recv");
    rendezvous_sync(&rv, "ready");
    for (uint64_t i = 0; i < opt.iters; i++) {
        if (!client) {
            poison_fill(part, size, opt.seed + i);
            info.length = size;
            set_window(qp, mw, &info, opt.timeout);
            loan[0] = htobe64(mw->rkey), loan[1] = htobe64(info.addr);
            check(ibv_post_send(qp, &send, &bad_wr), "ibv_post_send of the SEND");
            wait_completion(send_cq, "the SEND", opt.timeout, &wc);
        }
        wait_completion(recv_cq, "the receive", opt.timeout, &wc);
        if (i + 1 < opt.iters) check(ibv_post_recv(qp, &recv_wr, &bad_recv_wr), "ibv_post_recv");
        if (client) {
            pattern_fill(part, size, opt.seed + i);
            write.wr.rdma.rkey = send.invalidate_rkey = (uint32_t)be64toh(loan[0]);
            write.wr.rdma.remote_addr = be64toh(loan[1]);
            write.next = &send;
            check(ibv_post_send(qp, &write, &bad_wr), "ibv_post_send of WRITE and SEND");
            wait_completion(send_cq, "the WRITE or the SEND", opt.timeout, &wc);
        } else if (way == REMOTE) { /* rxe sets IBV_WC_IP_CSUM_OK instead of IBV_WC_WITH_INV */
            if (!(wc.wc_flags & (IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK)) ||
                wc.invalidated_rkey != mw->rkey)
                die(0, "the peer has not invalidated rkey 0x%x", mw->rkey);
        } else {
            info.length = 0;
            set_window(qp, mw, &info, opt.timeout);
        }
        pass = pattern_right("message", part, size, opt.seed + i) && pass;
        digest = fnv1a(digest, part, size);
    }
    rendezvous_sync(&rv, "withdrawn");

    /* The client has kept the rkey. It must be refused; both QPs are in state ERR then. */
    if (client) {
        pattern_fill(part, size, ~opt.seed);
        write.next = NULL, write.send_flags = IBV_SEND_SIGNALED;
        check(ibv_post_send(qp, &write, &bad_wr), "ibv_post_send of the last WRITE");
        const double deadline = now() + (double)opt.timeout;
        int n;
        while ((n = ibv_poll_cq(send_cq, 1, &wc)) == 0 && now() < deadline) sched_yield();
        if (n != 1) die(0, n ? "ibv_poll_cq" : "no completion of the last WRITE");
        if (wc.status && wc.status != IBV_WC_REM_ACCESS_ERR) die_wc(&wc, "the last WRITE");
        printf("one more WRITE with the last rkey: %s\n", ibv_wc_status_str(wc.status));
        pass = expect(wc.status == IBV_WC_REM_ACCESS_ERR, "it was not refused") && pass;
    }
    rendezvous_sync(&rv, "done");
    printf("moved %ju x %u bytes, each in a loan of its own\n", opt.iters, size);

    /* 8. Verify: what came when nothing was lent is not there, nor anything beside the part. */
    if (!client) pass = pattern_right("lent", part, size, opt.seed + opt.iters - 1) && pass;
    pass = expect(client || loan[1] == htobe64(info.addr), "bytes beside it have changed") && pass;
    pass = guards_right("memory", loan, HEAD + size) && pass;
    pass = rendezvous_verdict(&rv, pass);

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
