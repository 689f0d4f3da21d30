/*
 * 03_read - the client fetches the server's data with RDMA READ. The server lends its
 * memory with the right to be read and nothing more; its CPU does nothing.
 *
 *   gcc -I../common -o read read.c ../common/[a-z]*.c -libverbs
 *   ./read               in one terminal: the server
 *   ./read 127.0.0.1     in another: the client; the server's address
 *
 * The client prints, and the server much the same:
 *   device rxe0, port 1, GID index 1 (::ffff:10.0.0.1), MTU 1024
 *   read 4096 bytes from the server's address 0x..., rkey 0x...
 *   RESULT sample=03_read role=client status=PASS bytes=4096 digest=...
 */
#include "data.h"
#include "device.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    /* 1. Options: a host argument makes this the client. */
    struct options opt = {.size = 4096, .iters = 1, .seed = 1};
    parse_options(&opt, "03_read", "snS", argc, argv);
    const bool client = opt.host != NULL;

    /* 2. Device, protection domain, completion queue. */
    struct port port;
    struct ibv_context *ctx = open_device(&opt, &port);
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    if (!pd)
        die(errno, "ibv_alloc_pd");
    struct ibv_cq *cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
    if (!cq)
        die(errno, "ibv_create_cq");

    struct rendezvous rv;
    struct endpoint peer;
    rendezvous_open(&rv, &opt, "03_read", &peer);
    choose_gid(&opt, ctx, rv.fd, &port);

    /* 3. Memory. The server's may be read by the peer and written by no NIC, not even
     * its own. The client's is where its own NIC puts what comes back: LOCAL_WRITE. */
    char *buf = guarded_alloc(opt.size);
    if (client)
        poison_fill(buf, opt.size, opt.seed);
    else
        pattern_fill(buf, opt.size, opt.seed);
    struct ibv_mr *mr = ibv_reg_mr(
        pd, buf, opt.size, client ? IBV_ACCESS_LOCAL_WRITE : IBV_ACCESS_REMOTE_READ);
    if (!mr)
        die(errno, "ibv_reg_mr of %zu bytes", opt.size);

    /* 4. The queue pair. */
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1},
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp)
        die(errno, "ibv_create_qp");

    /* 5. Swap: the server tells where its data lies and the rkey that opens it. */
    struct endpoint mine = {
        .lid = port.attr.lid,
        .gid = port.gid,
        .mtu = port.mtu,
        .qpn = qp->qp_num,
        .psn = random_psn(),
        .addr = client ? 0 : (uintptr_t)buf,
        .rkey = client ? 0 : mr->rkey,
        .len = client ? 0 : opt.size,
    };
    rendezvous_swap(&rv, &mine, &peer);

    /* 6. RESET -> INIT -> RTR -> RTS. A READ keeps state at both ends until its data has
     * come back, and a device has room for so many (ibv_devinfo -v):
     *   max_dest_rd_atomic, set at RTR: how many READs and atomics of the peer this side
     *     answers at a time (at most max_qp_rd_atom). The server answers one.
     *   max_rd_atomic, set at RTS: how many of its own this side has under way at a time
     *     (at most max_qp_init_rd_atom); further ones wait in the send queue. The client
     *     has one. It must not be more than the other side's max_dest_rd_atomic: cards
     *     end the request above that in remote invalid request error, rxe answers it. */
    qp_to_init(qp, &port, client ? 0 : IBV_ACCESS_REMOTE_READ);
    qp_to_rtr(qp, &port, &peer, client ? 0 : 1 /* max_dest_rd_atomic */);
    qp_to_rts(qp, mine.psn, client ? 1 : 0 /* max_rd_atomic */, ACK_TIMEOUT);
    rendezvous_sync(&rv, "ready");

    /* 7. The verb: the SGE is where the data goes, the work request where it comes from.
     * Its completion means that all of it is here. */
    bool pass = true;
    for (uint32_t i = 0; client && i < opt.iters; i++) {
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
            .send_flags = IBV_SEND_SIGNALED, /* or no completion would come */
            .wr.rdma = {.remote_addr = peer.addr, .rkey = peer.rkey},
        };
        struct ibv_send_wr *bad_wr;
        struct ibv_wc wc;
        poison_fill(buf, opt.size, opt.seed);
        check(ibv_post_send(qp, &wr, &bad_wr), "ibv_post_send of the RDMA READ");
        wait_completion(cq, i, "the RDMA READ", opt.timeout, &wc);

        /* 8. Verify every byte that came. */
        size_t wrong = pattern_check(buf, opt.size, opt.seed);
        pass = all_right("what the READ brought", wrong, opt.size) && pass;
    }
    rendezvous_sync(&rv, "done");
    if (client)
        printf("read %zu bytes from the server's address 0x%" PRIx64 ", rkey 0x%x\n",
               opt.size, peer.addr, peer.rkey);
    else
        printf("lent %zu bytes at address %p, rkey 0x%x\n", opt.size, (void *)buf,
               mr->rkey);

    /* 8. Verify on both sides what must not have changed. */
    pass = pass && pattern_check(buf, opt.size, opt.seed) == opt.size &&
           guards_intact(buf, opt.size);
    const uint64_t digest = fnv1a(FNV_BASIS, buf, opt.size);
    pass = rendezvous_verdict(&rv, pass);

    /* 9. Undo in reverse order. */
    check(ibv_destroy_qp(qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(mr), "ibv_dereg_mr");
    check(ibv_destroy_cq(cq), "ibv_destroy_cq");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(ctx), "ibv_close_device");
    guarded_free(buf);
    return report_result(pass, opt.size, digest);
}
