/*
 * 02_send_recv - the client SENDs a message into a receive that the server has posted,
 * and the server SENDs it back. Both CPUs take part, and nobody's memory is exposed.
 *
 *   gcc -I../common -o send_recv send_recv.c ../common/[a-z]*.c -libverbs
 *   ./send_recv               in one terminal: the server
 *   ./send_recv 127.0.0.1     in another: the client; the server's address
 *
 * The client prints, and the server much the same:
 *   device rxe0, port 1, GID index 1 (::ffff:10.0.0.1), MTU 1024
 *   sent 1 message of 4096 bytes and got it back
 *   RESULT sample=02_send_recv role=client status=PASS bytes=4096 digest=...
 */
#include "data.h"
#include "device.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    /* 1. Options: a host argument makes this the client. */
    struct options opt = {.size = 4096, .iters = 1, .seed = 1};
    parse_options(&opt, "02_send_recv", "snS", argc, argv);
    const bool client = opt.host != NULL;

    /* 2. Device, protection domain, and a completion queue for each direction, since
     * a SEND's completion and a receive's may come in either order. */
    struct port port;
    struct ibv_context *ctx = open_device(&opt, &port);
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    if (!pd)
        die(errno, "ibv_alloc_pd");
    struct ibv_cq *send_cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
    if (!send_cq)
        die(errno, "ibv_create_cq");
    struct ibv_cq *recv_cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
    if (!recv_cq)
        die(errno, "ibv_create_cq");

    struct rendezvous rv;
    struct endpoint peer;
    rendezvous_open(&rv, &opt, "02_send_recv", &peer);
    choose_gid(&opt, ctx, rv.fd, &port);

    /* 3. Memory: a buffer to send from and behind it one to receive into. LOCAL_WRITE
     * lets our own NIC place what arrives; the peer gets no right at all. */
    char *out = guarded_alloc(2 * opt.size), *in = out + opt.size;
    poison_fill(out, opt.size, opt.seed);
    poison_fill(in, opt.size, opt.seed);
    struct ibv_mr *mr = ibv_reg_mr(pd, out, 2 * opt.size, IBV_ACCESS_LOCAL_WRITE);
    if (!mr)
        die(errno, "ibv_reg_mr of %zu bytes", 2 * opt.size);

    /* 4. The queue pair: now the receive queue is used too. */
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = send_cq,
        .recv_cq = recv_cq,
        .cap = {.max_send_wr = 1, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1},
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp)
        die(errno, "ibv_create_qp");

    /* 5. Swap: addresses of the two queue pairs; no memory address, no rkey. */
    struct endpoint mine = {
        .lid = port.attr.lid,
        .gid = port.gid,
        .mtu = port.mtu,
        .qpn = qp->qp_num,
        .psn = random_psn(),
    };
    rendezvous_swap(&rv, &mine, &peer);

    /* 6. RESET -> INIT -> RTR -> RTS. */
    qp_to_init(qp, &port, 0);
    qp_to_rtr(qp, &port, &peer, 0);
    qp_to_rts(qp, mine.psn, 0, ACK_TIMEOUT);

    /* 7. The verbs. A receive says where the next message may land. The message has to
     * fit: a longer one is an error on both sides, and both QPs are lost (local length
     * error and remote invalid request error; rxe names others). */
    struct ibv_sge in_sge = {
        .addr = (uintptr_t)in,
        .length = (uint32_t)opt.size,
        .lkey = mr->lkey,
    };
    struct ibv_recv_wr recv_wr = {.wr_id = 0, .sg_list = &in_sge, .num_sge = 1};
    struct ibv_recv_wr *bad_recv_wr;

    /* A SEND says what to send, and nothing of where to: the receiver has decided that.
     */
    struct ibv_sge out_sge = {
        .addr = (uintptr_t)out,
        .length = (uint32_t)opt.size,
        .lkey = mr->lkey,
    };
    struct ibv_send_wr send_wr = {
        .sg_list = &out_sge,
        .num_sge = 1,
        .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED, /* or no completion would come */
    };
    struct ibv_send_wr *bad_send_wr;
    struct ibv_wc wc;

    /* The receive is posted before this side says ready. A SEND that finds none is turned
     * away with an RNR NAK; the sender tries again, 6 times (rnr_retry, in qp_to_rts),
     * and gives up with a completion that says so. With 7 it would try for ever. */
    check(ibv_post_recv(qp, &recv_wr, &bad_recv_wr), "ibv_post_recv");
    rendezvous_sync(&rv, "ready");

    bool pass = true;
    uint64_t digest = FNV_BASIS;
    for (uint32_t i = 0; i < opt.iters; i++) {
        send_wr.wr_id = i;
        if (client) {
            pattern_fill(out, opt.size, opt.seed + i);
            check(ibv_post_send(qp, &send_wr, &bad_send_wr), "ibv_post_send of the SEND");
            wait_completion(send_cq, i, "the SEND", opt.timeout, &wc);
        }

        /* 8. Verify what arrived: its length (shorter than the receive is no error to
         * the NIC) and every byte. */
        wait_completion(recv_cq, i, "the receive", opt.timeout, &wc);
        size_t wrong = pattern_check(in, opt.size, opt.seed + i);
        if (wc.byte_len != opt.size || wrong < opt.size) {
            fprintf(stderr, "message %u: %u bytes of %zu came, the first %zu are right\n",
                    i, wc.byte_len, opt.size, wrong);
            pass = false;
        }
        digest = fnv1a(digest, in, opt.size);
        if (!client)
            memcpy(out, in, opt.size);

        /* The next receive stands before the other side can send again: the client's
         * before its next SEND, the server's before the answer that sets it off. */
        if (i + 1 < opt.iters) {
            poison_fill(in, opt.size, opt.seed + i + 1);
            recv_wr.wr_id = i + 1;
            check(ibv_post_recv(qp, &recv_wr, &bad_recv_wr), "ibv_post_recv");
        }
        if (!client) {
            check(ibv_post_send(qp, &send_wr, &bad_send_wr), "ibv_post_send of the SEND");
            wait_completion(send_cq, i, "the SEND", opt.timeout, &wc);
        }
    }
    rendezvous_sync(&rv, "done");
    /* Both buffers hold the last message now, and nothing around them has changed. */
    pass = pattern_check(out, opt.size, opt.seed + opt.iters - 1) == opt.size &&
           guards_intact(out, 2 * opt.size) && pass;
    printf("%s %u message%s of %zu bytes and %s\n", client ? "sent" : "received",
           opt.iters, opt.iters == 1 ? "" : "s", opt.size,
           client ? "got it back" : "sent it back");
    pass = rendezvous_verdict(&rv, pass);

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
