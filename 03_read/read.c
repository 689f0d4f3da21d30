/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 03_read - the client fetches the server's data with RDMA READ. The server's memory may be
 * read by the peer, and nothing else. The server's CPU takes no part.
 *
 *   gcc -I../common -o read read.c ../common/[a-z]*.c -libverbs
 *   ./read               in one terminal: the server
 *   ./read 127.0.0.1     in another: the client; the server's address
 *
 * The client prints (the server: similar lines):
 *   device rxe0, port 1, GID index 1 (::ffff:10.0.0.1), MTU 1024
 *   ...
 *   read 4096 bytes from the server's address 0x..., rkey 0x...
 *   RESULT sample=03_read role=client status=PASS bytes=4096 digest=...
 *
 * Rendezvous: the server exposes size bytes with the pattern (pattern.h) of seed; its rd_atomic
 * is 1. The client reads them iters times. Barriers: ready, done.
 */
#include "device.h"
#include "pattern.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"

int main(int argc, char **argv) {
    /* 1. Options. A host argument makes this the client. */
    struct options opt = {.sample = "03_read", .size = 4096, .iters = 1, .seed = 1};
    const struct option_row rows[] = {
        {'s', "size", "BYTES", "bytes in a message", NUMBER(opt.size, 1, MAX_SIZE)},
        {'n', "iters", "N", "number of READs", NUMBER(opt.iters, 1, MAX_ITERS)},
        {'S', "seed", "N", "seed of the test data", NUMBER(opt.seed, 0, UINT64_MAX)},
        {0},
    };
    parse_options(&opt, rows, argc, argv);
    const bool client = opt.host != NULL;

    /* 2. Start the rendezvous. Device, protection domain, completion queue. */
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

    /* 3. Memory. The peer may read the server's buffer; no NIC may write it, not even the
     * server's own. The client's buffer needs LOCAL_WRITE: its own NIC writes the data there. */
    char *buf = guarded_alloc(opt.size);
    if (client)
        poison_fill(buf, opt.size, opt.seed);
    else
        pattern_fill(buf, opt.size, opt.seed);
    struct ibv_mr *mr =
        ibv_reg_mr(pd, buf, opt.size, client ? IBV_ACCESS_LOCAL_WRITE : IBV_ACCESS_REMOTE_READ);
    if (!mr) die(errno, "ibv_reg_mr of %ju bytes", opt.size);

    /* 4. The queue pair. */
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1},
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp) die(errno, "ibv_create_qp");

    /* 5. Exchange. The server says where its data is and which rkey gives access to it, and how
     * many READs it answers at a time. */
    const struct endpoint mine = {
        .lid = port.lid,
        .qpn = qp->qp_num,
        .psn = random_psn(),
        .gid = port.gid,
        .mtu = port.mtu,
        .addr = client ? 0 : (uintptr_t)buf,
        .rkey = client ? 0 : mr->rkey,
        .len = client ? 0 : opt.size,
        .max_sge = 1,
        .rd_atomic = client ? 0 : 1,
    };
    rendezvous_swap(&tcp, &mine, &peer);

    /* 6. RESET -> INIT -> RTR -> RTS. Both sides keep state for each READ, and a device has room
     * for a limited number of them (ibv_devinfo -v):
     *   max_dest_rd_atomic, set at RTR: how many READs and atomics of the peer this side
     *     answers at a time (at most max_qp_rd_atom).
     *   max_rd_atomic, set at RTS: how many of its own this side can have outstanding (at most
     *     max_qp_init_rd_atom); the others wait in the send queue. It must not exceed the peer's
     *     max_dest_rd_atomic. So each side tells the other that number. (If it does exceed it,
     *     the standard says remote invalid request error. rxe says it only if that number is 0.) */
    qp_to_init(qp, &port, client ? 0 : IBV_ACCESS_REMOTE_READ);
    qp_to_rtr(qp, &port, &peer, mine.rd_atomic /* max_dest_rd_atomic */);
    qp_to_rts(qp, mine.psn, peer.rd_atomic ? 1 : 0 /* max_rd_atomic */, ACK_TIMEOUT);
    rendezvous_sync(&tcp, "ready");

    /* 7. The verb. The SGE says where to write the data. The work request says where to read it.
     * When the READ has completed, all the data is here. */
    bool pass = true;
    for (uint64_t i = 0; client && i < opt.iters; i++) {
        struct ibv_sge sge = {
            .addr = (uintptr_t)buf,
            .length = (uint32_t)opt.size,
            .lkey = mr->lkey,
        };
        struct ibv_send_wr wr = {
            .wr_id = i,
            .sg_list = &sge,
            .num_sge = 1,
            .opcode = IBV_WR_RDMA_READ,
            .send_flags = IBV_SEND_SIGNALED, /* without it, success makes no completion */
            .wr.rdma = {.remote_addr = peer.addr, .rkey = peer.rkey},
        };
        struct ibv_send_wr *bad_wr;
        struct ibv_wc wc;
        poison_fill(buf, opt.size, opt.seed);
        check(ibv_post_send(qp, &wr, &bad_wr), "ibv_post_send of the RDMA READ");
        wait_completion(cq, "the RDMA READ", opt.timeout, &wc);
        if (wc.wr_id != i) die(0, "another request's completion");
        pass = pattern_ok("data read", buf, opt.size, opt.seed) && pass;
    }
    rendezvous_sync(&tcp, "done");
    if (client)
        printf("read %ju bytes from the server's address 0x%jx, rkey 0x%x\n", opt.size, peer.addr,
               peer.rkey);
    else
        printf("exposed %ju bytes at address %p, rkey 0x%x\n", opt.size, (void *)buf, mr->rkey);

    /* 8. Verify every byte, on both sides: the server's must not have changed. */
    const uint64_t digest = fnv1a(FNV_BASIS, buf, opt.size);
    pass = pattern_ok("memory", buf, opt.size, opt.seed) && pass;
    pass = guards_ok("memory", buf, opt.size) && pass;
    pass = rendezvous_verdict(&tcp, pass);

    /* 9. Undo in reverse order. */
    check(ibv_destroy_qp(qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(mr), "ibv_dereg_mr");
    check(ibv_destroy_cq(cq), "ibv_destroy_cq");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(ctx), "ibv_close_device");
    guarded_free(buf);
    return report_result(pass, opt.size, digest);
}
