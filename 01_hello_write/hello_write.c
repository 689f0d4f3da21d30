/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 01_hello_write - the client writes a text into the server's memory with RDMA WRITE. The
 * server's CPU takes no part: it waits for a line on TCP and then looks at its memory.
 *
 *   gcc -I../common -o hello_write hello_write.c ../common/[a-z]*.c -libverbs
 *   ./hello_write               in one terminal: the server
 *   ./hello_write 127.0.0.1     in another: the client; the server's address
 *
 * The client prints (the server: similar lines; MTU and addresses vary):
 *   device rxe0, port 1, GID index 1 (::ffff:10.0.0.1), MTU 1024
 *   (no port has this connection's address, ::ffff:127.0.0.1: the first usable one is taken)
 *   wrote "hello verbs" to the server's address 0x..., rkey 0x...
 *   RESULT sample=01_hello_write role=client status=PASS bytes=11 digest=a59563b74b836add
 *
 * Rendezvous: size is the length of the text in bytes, without a NUL; iters is 1; seed is
 * the text's FNV-1a digest, with which the server verifies the text. The server exposes
 * size bytes. Barriers: ready, done.
 */
#include "device.h"
#include "pattern.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"

int main(int argc, char **argv) {
    /* 1. Options. A host argument makes this the client. */
    const char *message = "hello verbs";
    const struct option_row rows[] = {
        {'M', "message", "TEXT", "text to write (default: \"hello verbs\")", .text = &message},
        {0},
    };
    struct options opt = {.sample = "01_hello_write", .iters = 1};
    parse_options(&opt, rows, argc, argv);
    const bool client = opt.host != NULL;
    opt.size = strlen(message);
    opt.seed = fnv1a(FNV_BASIS, message, opt.size);

    /* 2. Start the rendezvous on TCP. The local address of this connection tells which device,
     * port and GID to use. A queue pair can use a memory region only if both are in the same
     * protection domain. In the completion queue the NIC reports which requests are done. */
    struct rendezvous tcp;
    struct endpoint peer;
    struct port port;
    rendezvous_open(&tcp, &opt, &peer);
    struct ibv_context *ctx = open_device(&opt, tcp.fd, &port);
    errno = 0; /* a driver may return NULL and leave it: then no old error is told */
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    if (!pd) die(errno, "ibv_alloc_pd");
    struct ibv_cq *cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
    if (!cq) die(errno, "ibv_create_cq");

    /* 3. Memory: the text between two guards. All of it is poisoned first, to see later which bytes
     * were written. Only the text is registered, with the least rights. The client's NIC only reads
     * it. On the server the peer writes it: REMOTE_WRITE, which needs LOCAL_WRITE as well. */
    char *text = guarded_alloc(opt.size);
    poison_fill(text, opt.size, 0);
    if (client) memcpy(text, message, opt.size);
    const unsigned access = client ? 0 : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *mr = ibv_reg_mr(pd, text, opt.size, access);
    if (!mr) die(errno, "ibv_reg_mr of %ju bytes", opt.size);

    /* 4. The queue pair, in state RESET. Reliable connection (RC): it has one peer, every
     * packet is acknowledged, and lost packets are sent again. */
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1},
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp) die(errno, "ibv_create_qp");

    /* 5. Exchange what the peer cannot guess. The rkey gives the peer access to the memory at
     * addr. The client exposes no memory, so it sends no rkey. */
    const struct endpoint mine = {
        .lid = port.lid,
        .qpn = qp->qp_num,
        .psn = random_psn(),
        .gid = port.gid,
        .mtu = port.mtu,
        .addr = client ? 0 : (uintptr_t)text,
        .rkey = client ? 0 : mr->rkey,
        .len = client ? 0 : opt.size,
        .max_sge = 1,
        .rd_atomic = 0,
    };
    rendezvous_swap(&tcp, &mine, &peer);

    /* 6a. RESET -> INIT: which port, and what the peer may do through this queue pair. The
     * queue pair and the memory region must both allow it. */
    struct ibv_qp_attr to_init = {
        .qp_state = IBV_QPS_INIT,
        .port_num = port.num,
        .pkey_index = (uint16_t)opt.pkey_idx, /* 0: usually the default partition */
        .qp_access_flags = client ? 0 : IBV_ACCESS_REMOTE_WRITE,
    };
    check(ibv_modify_qp(qp, &to_init,
                        IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS),
          "ibv_modify_qp to INIT");

    /* 6b. INIT -> RTR, ready to receive: who the peer is, and the way to it. On RoCE that is
     * always a global route header (GRH); on InfiniBand the LID is enough in one subnet. */
    const struct ibv_global_route grh = {
        .dgid = peer.gid,
        .sgid_index = port.gid_index, /* of our own GID in the port's table */
        .hop_limit = 64,              /* on RoCE the kernel uses the IP route's value instead */
        .traffic_class = (uint8_t)opt.traffic_class,
    };
    struct ibv_qp_attr to_rtr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = mtu_enum(peer.mtu), /* the smaller one of the two sides' */
        .dest_qp_num = peer.qpn,
        .rq_psn = peer.psn,      /* the number of the first packet to expect */
        .max_dest_rd_atomic = 0, /* READs and atomics to answer at a time: none here */
        .min_rnr_timer = 12,     /* 0.64 ms: how long a sender waits for a receive */
        .ah_attr = {.port_num = port.num,
                    .dlid = (uint16_t)peer.lid,
                    .sl = (uint8_t)opt.sl,
                    .is_global = port.global,
                    .grh = grh},
    };
    check(ibv_modify_qp(qp, &to_rtr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
          "ibv_modify_qp to RTR");

    /* 6c. RTR -> RTS, ready to send: how this side sends, and how often it tries. */
    struct ibv_qp_attr to_rts = {
        .qp_state = IBV_QPS_RTS,
        .sq_psn = mine.psn,
        .timeout = 16,      /* wait 4.096 us * 2^16 = 0.27 s for an acknowledgement; this is
                               nominal: cards may wait longer, or adapt */
        .retry_cnt = 6,     /* then send again, at most 6 times (7 on rxe: no limit) */
        .rnr_retry = 6,     /* the same after an RNR NAK: no receive was posted (7: no limit) */
        .max_rd_atomic = 0, /* own READs and atomics that can be outstanding: none here */
    };
    check(ibv_modify_qp(qp, &to_rts,
                        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                            IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
          "ibv_modify_qp to RTS");
    rendezvous_sync(&tcp, "ready");

    /* 7. The verb. The SGE says what to send. The work request says where to write it. The
     * completion comes when the peer's NIC has acknowledged the WRITE. */
    if (client) {
        struct ibv_sge sge = {
            .addr = (uintptr_t)text,
            .length = (uint32_t)opt.size,
            .lkey = mr->lkey,
        };
        struct ibv_send_wr wr = {
            .wr_id = 1, /* any number; the completion has the same one */
            .sg_list = &sge,
            .num_sge = 1,
            .opcode = IBV_WR_RDMA_WRITE,
            .send_flags = IBV_SEND_SIGNALED, /* without it, success makes no completion */
            .wr.rdma = {.remote_addr = peer.addr, .rkey = peer.rkey},
        };
        struct ibv_send_wr *bad_wr;
        struct ibv_wc wc;
        check(ibv_post_send(qp, &wr, &bad_wr), "ibv_post_send of the RDMA WRITE");
        wait_completion(cq, "the RDMA WRITE", opt.timeout, &wc);
        if (wc.wr_id != wr.wr_id) die(0, "another request's completion");
        printf("wrote \"%s\" to the server's address 0x%jx, rkey 0x%x\n", message, peer.addr,
               peer.rkey);
    }
    /* The server gets no completion for a WRITE. In this sample the client says on TCP that the
     * text is complete. This works on common hosts. The standard guarantees the data only after a
     * completion at the server: of a WRITE with immediate data, or of a later SEND on this QP. */
    rendezvous_sync(&tcp, "done");

    /* 8. Verify the text, and the guards around it that nobody may change. */
    const uint64_t digest = fnv1a(FNV_BASIS, text, opt.size);
    bool pass = expect(digest == opt.seed, "memory does not hold the text that was sent");
    pass = guards_ok("memory", text, opt.size) && pass;
    if (!client) {
        for (size_t i = 0; i < opt.size; i++) { /* print no control codes to the terminal */
            const unsigned char c = (unsigned char)text[i];
            const bool c1 = c >= 0x80 && c < 0xa0 && (i == 0 || text[i - 1] == '\xc2');
            if (c < ' ' || c == 0x7f || c1) text[i] = '?';
        }
        printf("memory holds \"%.*s\"\n", opt.size < 200 ? (int)opt.size : 200, text);
    }
    pass = rendezvous_verdict(&tcp, pass);

    /* 9. Undo in reverse order. */
    check(ibv_destroy_qp(qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(mr), "ibv_dereg_mr");
    check(ibv_destroy_cq(cq), "ibv_destroy_cq");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(ctx), "ibv_close_device");
    guarded_free(text);
    return report_result(pass, opt.size, digest);
}
