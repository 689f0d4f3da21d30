/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 02_send_recv - the client SENDs a message, for which the server has posted a receive, and
 * the server SENDs it back. Both CPUs take part; no memory is exposed to the peer.
 *
 *   gcc -I../common -o send_recv send_recv.c ../common/[a-z]*.c -libverbs
 *   ./send_recv               in one terminal: the server
 *   ./send_recv 127.0.0.1     in another: the client; the server's address
 *
 * The client prints (the server: similar lines):
 *   device rxe0, port 1, GID index 1 (::ffff:10.0.0.1), MTU 1024
 *   ...
 *   sent 1 message of 4096 bytes and got each back
 *   RESULT sample=02_send_recv role=client status=PASS bytes=4096 digest=...
 *
 * Rendezvous: message i, from 0 to iters - 1, is the pattern (pattern.h) of seed + i, size
 * bytes. The digest covers all messages in order. No side exposes memory. Barriers: ready
 * (each side has posted its first receive; it posts the next one before its next SEND), done.
 */
#include "device.h"
#include "pattern.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"

int main(int argc, char **argv) {
    /* 1. Options. A host argument makes this the client. */
    struct options opt = {.sample = "02_send_recv", .size = 4096, .iters = 1, .seed = 1};
    const struct option_row rows[] = {
        {'s', "size", "BYTES", "bytes in a message", NUMBER(opt.size, 1, MAX_SIZE)},
        {'n', "iters", "N", "number of messages", NUMBER(opt.iters, 1, MAX_ITERS)},
        {'S', "seed", "N", "seed of the test data", NUMBER(opt.seed, 0, UINT64_MAX)},
        {0},
    };
    parse_options(&opt, rows, argc, argv);
    const bool client = opt.host != NULL;

    /* 2. Start the rendezvous. Device, protection domain, and a completion queue for each
     * direction, because the completions of a SEND and of a receive can come in either order. */
    struct rendezvous tcp;
    struct endpoint peer;
    struct port port;
    rendezvous_open(&tcp, &opt, &peer);
    struct ibv_context *ctx = open_device(&opt, tcp.fd, &port);
    errno = 0; /* a driver may return NULL and leave it: then no old error is told */
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    if (!pd) die(errno, "ibv_alloc_pd");
    struct ibv_cq *send_cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
    if (!send_cq) die(errno, "ibv_create_cq");
    struct ibv_cq *recv_cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
    if (!recv_cq) die(errno, "ibv_create_cq");

    /* 3. Memory: a buffer to send from, followed by a buffer to receive into. LOCAL_WRITE lets
     * this side's NIC write what arrives; the peer gets no right. */
    char *out = guarded_alloc(2 * opt.size), *in = out + opt.size;
    poison_fill(out, opt.size, opt.seed);
    poison_fill(in, opt.size, opt.seed);
    struct ibv_mr *mr = ibv_reg_mr(pd, out, 2 * opt.size, IBV_ACCESS_LOCAL_WRITE);
    if (!mr) die(errno, "ibv_reg_mr of %ju bytes", 2 * opt.size);

    /* 4. The queue pair. Now its receive queue is used, too. */
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = send_cq,
        .recv_cq = recv_cq,
        .cap = {.max_send_wr = 1, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1},
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp) die(errno, "ibv_create_qp");

    /* 5. Exchange the addresses of the queue pairs; no memory address, no rkey. */
    const struct endpoint mine = {
        .lid = port.lid,
        .qpn = qp->qp_num,
        .psn = random_psn(),
        .gid = port.gid,
        .mtu = port.mtu,
        .max_sge = 1,
    };
    rendezvous_swap(&tcp, &mine, &peer);

    /* 6. RESET -> INIT -> RTR -> RTS. */
    qp_to_init(qp, &port, 0);
    qp_to_rtr(qp, &port, &peer, 0);
    qp_to_rts(qp, mine.psn, 0, ACK_TIMEOUT);

    /* 7. The verbs. A receive says where the next message may be written. The message must
     * fit. A longer one is an error on both sides, and both QPs go to ERR: local length error
     * at the receiver and remote invalid request error at the sender (rxe: other statuses). */
    struct ibv_sge in_sge = {
        .addr = (uintptr_t)in,
        .length = (uint32_t)opt.size,
        .lkey = mr->lkey,
    };
    struct ibv_recv_wr recv_wr = {.wr_id = 0, .sg_list = &in_sge, .num_sge = 1};
    struct ibv_recv_wr *bad_recv_wr;

    /* A SEND says what to send. It does not say where to: the receiver has decided that. */
    struct ibv_sge out_sge = {
        .addr = (uintptr_t)out,
        .length = (uint32_t)opt.size,
        .lkey = mr->lkey,
    };
    struct ibv_send_wr send_wr = {
        .sg_list = &out_sge,
        .num_sge = 1,
        .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED, /* without it, success makes no completion */
    };
    struct ibv_send_wr *bad_send_wr;
    struct ibv_wc wc;

    /* Post the receive before this side says ready. A SEND that finds no receive is answered
     * with an RNR NAK. The sender tries again, 6 times (rnr_retry, in qp_to_rts), and then
     * gets a completion with an error. With 7 it would try without end. */
    check(ibv_post_recv(qp, &recv_wr, &bad_recv_wr), "ibv_post_recv");
    rendezvous_sync(&tcp, "ready");

    bool pass = true;
    uint64_t digest = FNV_BASIS;
    for (uint64_t i = 0; i < opt.iters; i++) {
        send_wr.wr_id = i;
        if (client) {
            pattern_fill(out, opt.size, opt.seed + i);
            check(ibv_post_send(qp, &send_wr, &bad_send_wr), "ibv_post_send of the SEND");
            wait_completion(send_cq, "the SEND", opt.timeout, &wc);
            if (wc.wr_id != i) die(0, "another SEND's completion");
        }

        /* 8. Verify the length (a message shorter than the receive is no error to the NIC)
         * and every byte. */
        wait_completion(recv_cq, "the receive", opt.timeout, &wc);
        if (wc.wr_id != i) die(0, "another receive's completion");
        pass = expect(wc.byte_len == opt.size, "message %ju: %u bytes came", i, wc.byte_len) &&
               pattern_ok("received message", in, opt.size, opt.seed + i) && pass;
        digest = fnv1a(digest, in, opt.size);
        if (!client) memcpy(out, in, opt.size);

        /* Post the next receive before the other side can send again: the client before its
         * next SEND, the server before the answer that lets the client send. */
        if (i + 1 < opt.iters) {
            poison_fill(in, opt.size, opt.seed + i + 1);
            recv_wr.wr_id = i + 1;
            check(ibv_post_recv(qp, &recv_wr, &bad_recv_wr), "ibv_post_recv");
        }
        if (!client) {
            check(ibv_post_send(qp, &send_wr, &bad_send_wr), "ibv_post_send of the SEND");
            wait_completion(send_cq, "the SEND", opt.timeout, &wc);
            if (wc.wr_id != i) die(0, "another SEND's completion");
        }
    }
    rendezvous_sync(&tcp, "done");
    printf("%s %ju message%s of %ju bytes and %s\n", client ? "sent" : "received", opt.iters,
           opt.iters == 1 ? "" : "s", opt.size, client ? "got each back" : "sent each back");

    /* 8. Both buffers hold the last message now, and nothing around them has changed. */
    pass = pattern_ok("sent message", out, opt.size, opt.seed + opt.iters - 1) && pass;
    pass = pattern_ok("received message", in, opt.size, opt.seed + opt.iters - 1) && pass;
    pass = guards_ok("buffers", out, 2 * opt.size) && pass;
    pass = rendezvous_verdict(&tcp, pass);

    /* 9. Undo in reverse order. */
    check(ibv_destroy_qp(qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(mr), "ibv_dereg_mr");
    check(ibv_destroy_cq(recv_cq), "ibv_destroy_cq");
    check(ibv_destroy_cq(send_cq), "ibv_destroy_cq");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(ctx), "ibv_close_device");
    guarded_free(out);
    return report_result(pass, opt.size * opt.iters, digest);
}
