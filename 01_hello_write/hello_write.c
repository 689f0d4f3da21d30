/*
 * 01_hello_write - the client writes a text into the server's memory with RDMA WRITE.
 * The server's CPU takes no part: it waits on TCP and then looks at its memory.
 *
 *   gcc -I../common -o hello_write hello_write.c ../common/[a-z]*.c -libverbs
 *   ./hello_write               in one terminal: the server
 *   ./hello_write 127.0.0.1     in another: the client; the server's address
 *
 * The client prints, and the server much the same (MTU and addresses vary):
 *   device rxe0, port 1, GID index 1 (::ffff:10.0.0.1), MTU 1024
 *   wrote "hello verbs" to the server's address 0x..., rkey 0x...
 *   RESULT sample=01_hello_write role=client status=PASS bytes=11 digest=a59563b74b836add
 */
#include "data.h"
#include "device.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    /* 1. Options. A host argument makes this the client; the server learns the text's
     * size from the client, never the text itself: that comes by RDMA. */
    struct options opt = {.message = "hello verbs", .size = 11, .iters = 1};
    parse_options(&opt, "01_hello_write", "M", argc, argv);
    const bool client = opt.host != NULL;

    /* 2. The device; a protection domain, which ties queue pairs and memory regions
     * together; a completion queue, where the NIC says which requests are done. */
    struct port port;
    struct ibv_context *ctx = open_device(&opt, &port);
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    if (!pd)
        die(errno, "ibv_alloc_pd");
    struct ibv_cq *cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
    if (!cq)
        die(errno, "ibv_create_cq");

    /* Meet the peer over TCP: the address of that connection tells which GID to use. */
    struct rendezvous rv;
    struct endpoint peer;
    rendezvous_open(&rv, &opt, "01_hello_write", &peer);
    choose_gid(&opt, ctx, rv.fd, &port);

    /* 3. Memory: the text between two guards, all poisoned so that what is written and
     * what is not can be told apart. Only the text's bytes are registered, and with the
     * least rights: the NIC reads the client's; the peer writes to the server's, a right
     * that can be had only together with LOCAL_WRITE. */
    char *text = guarded_alloc(opt.size);
    poison_fill(text, opt.size, 0);
    if (client)
        memcpy(text, opt.message, opt.size);
    const unsigned access = client ? 0 : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *mr = ibv_reg_mr(pd, text, opt.size, access);
    if (!mr)
        die(errno, "ibv_reg_mr of %zu bytes", opt.size);

    /* 4. The queue pair, born in RESET. Reliable connection (RC): one peer, every
     * packet acknowledged, lost ones sent again. */
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1},
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp)
        die(errno, "ibv_create_qp");

    /* 5. Swap what the peer cannot guess. The rkey opens that memory to the peer, so
     * the client, which exposes none, sends none. */
    struct endpoint mine = {
        .lid = port.attr.lid,
        .gid = port.gid,
        .mtu = port.mtu,
        .qpn = qp->qp_num,
        .psn = random_psn(),
        .addr = client ? 0 : (uintptr_t)text,
        .rkey = client ? 0 : mr->rkey,
        .len = client ? 0 : opt.size,
        .digest = client ? fnv1a(FNV_BASIS, text, opt.size) : peer.digest,
    };
    rendezvous_swap(&rv, &mine, &peer);

    /* 6a. RESET -> INIT: which port, and what the peer may do through this queue pair.
     * Both this and the memory region have to allow it. */
    struct ibv_qp_attr to_init = {
        .qp_state = IBV_QPS_INIT,
        .port_num = port.num,
        .pkey_index = 0, /* the partition: the default one */
        .qp_access_flags = client ? 0 : IBV_ACCESS_REMOTE_WRITE,
    };
    check(ibv_modify_qp(qp, &to_init,
                        IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX |
                            IBV_QP_ACCESS_FLAGS),
          "ibv_modify_qp to INIT");

    /* 6b. INIT -> RTR, ready to receive: who the peer is and the way there. On RoCE the
     * way is always the global route header (GRH); InfiniBand also knows LIDs. */
    struct ibv_global_route grh = {
        .dgid = peer.gid,
        .sgid_index = port.gid_index, /* where our own GID stands in the port's table */
        .hop_limit = 64,              /* routers between, at most */
    };
    struct ibv_qp_attr to_rtr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = mtu_to_enum(peer.mtu < port.mtu ? peer.mtu : port.mtu),
        .dest_qp_num = peer.qpn,
        .rq_psn = peer.psn,      /* the number of the first packet to expect */
        .max_dest_rd_atomic = 0, /* READs and atomics to answer at a time: none here */
        .min_rnr_timer = 12,     /* 0.64 ms: how long a sender waits for a receive */
        .ah_attr = {.port_num = port.num,
                    .dlid = peer.lid,
                    .is_global = port.global,
                    .grh = grh},
    };
    check(ibv_modify_qp(qp, &to_rtr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                            IBV_QP_MIN_RNR_TIMER),
          "ibv_modify_qp to RTR");

    /* 6c. RTR -> RTS, ready to send: how this side sends and how often it tries. */
    struct ibv_qp_attr to_rts = {
        .qp_state = IBV_QPS_RTS,
        .sq_psn = mine.psn,
        .timeout = 16,      /* wait 4.096 us * 2^16 = 0.27 s for an acknowledgement */
        .retry_cnt = 6,     /* then send again, this often (7 on rxe: for ever) */
        .rnr_retry = 6,     /* no receive posted: try again, this often (7: for ever) */
        .max_rd_atomic = 0, /* READs and atomics of ours under way: none here */
    };
    check(ibv_modify_qp(qp, &to_rts,
                        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                            IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
          "ibv_modify_qp to RTS");
    rendezvous_sync(&rv, "ready");

    /* 7. The verb: what to send from here (the SGE), where to put it there (the work
     * request), and a completion when the peer's NIC has acknowledged it. */
    if (client) {
        struct ibv_sge sge = {
            .addr = (uintptr_t)text,
            .length = (uint32_t)opt.size,
            .lkey = mr->lkey,
        };
        struct ibv_send_wr wr = {
            .wr_id = 1, /* ours to choose; the completion brings it back */
            .sg_list = &sge,
            .num_sge = 1,
            .opcode = IBV_WR_RDMA_WRITE,
            .send_flags = IBV_SEND_SIGNALED, /* or no completion would come */
            .wr.rdma = {.remote_addr = peer.addr, .rkey = peer.rkey},
        };
        struct ibv_send_wr *bad_wr;
        struct ibv_wc wc;
        check(ibv_post_send(qp, &wr, &bad_wr), "ibv_post_send of the RDMA WRITE");
        wait_completion(cq, wr.wr_id, "the RDMA WRITE", opt.timeout, &wc);
        printf("wrote \"%s\" to the server's address 0x%" PRIx64 ", rkey 0x%x\n",
               opt.message, peer.addr, peer.rkey);
    }
    /* For the server's CPU the WRITE has no end of its own: that the text is complete it
     * learns from the client, here over TCP. That does on all common hosts; what the
     * standard promises is by RDMA alone: WRITE_WITH_IMM, or a later SEND. */
    rendezvous_sync(&rv, "done");

    /* 8. Verify: the text, and the poison around it that nobody may touch. */
    const uint64_t digest = fnv1a(FNV_BASIS, text, opt.size);
    bool pass = digest == mine.digest && guards_intact(text, opt.size);
    if (!pass)
        fprintf(stderr,
                "not the text that the client sent, or more than it was written\n");
    if (!client)
        print_text("found", text, opt.size);
    pass = rendezvous_verdict(&rv, pass);

    /* 9. Undo in reverse order. */
    check(ibv_destroy_qp(qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(mr), "ibv_dereg_mr");
    check(ibv_destroy_cq(cq), "ibv_destroy_cq");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(ctx), "ibv_close_device");
    guarded_free(text);
    return report_result(pass, opt.size, digest);
}
