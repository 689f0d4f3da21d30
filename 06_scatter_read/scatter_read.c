/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 06_scatter_read - the server's message is one contiguous piece. The client fetches it by
 * RDMA READ into blocks with gaps between them. The client's NIC scatters what comes back
 * (sgl), or the CPU unpacks it (copy), or each block is a READ of its own (each).
 *
 *   gcc -I../{common,blocks} -o scatter_read scatter_read.c ../{common,blocks}/[a-z]*.c -libverbs
 *   ./scatter_read               in one terminal: the server
 *   ./scatter_read 127.0.0.1     in another: the client; the server's address
 *
 * The client prints (the server: similar lines):
 *   device rxe0, port 1, GID index 1 (::ffff:10.0.0.1), MTU 1024
 *   ...
 *   LAYOUT block_size=4096 block_num=64 stride=8192 bytes=262144 seed=1
 *   moved 64 blocks by method sgl: 2 work requests in all
 *   RESULT sample=06_scatter_read role=client status=PASS bytes=262144 digest=...
 *
 * Rendezvous: for the fields of work= see work.h. The server exposes memory for the longest
 * message; its rd_atomic says how many READs it answers at a time. All iters messages are
 * the same: the pattern (pattern.h) of seed. Barriers: "ready"; before each message "prepared"
 * (memory is filled or poisoned); after each message "moved", after the last one "done"
 * instead. With --bench: those of measure.h.
 */
#include "device.h"
#include "measure.h"
#include "memory.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"
#include "work.h"

enum { QUEUE_SIZE = 1024 }; /* work requests in the send queue, at most */
enum { READS = 16 };        /* outstanding at a time, if both devices allow it */

/* One side of the transfer: what the functions below and the measurements share. */
struct side {
    struct ibv_qp *qp;
    struct ibv_mr *blocks_mr, *contig_mr; /* the server has no blocks */
    struct memory memory;                 /* contig: the client's staging buffers */
    uint64_t remote_addr;
    uint32_t rkey;
    uint32_t max_sge, queue; /* SGEs in a work request; work requests in the send queue */
    uint64_t posted, done;   /* work requests, since the start */
    struct ibv_sge *sge;     /* one for each block */
    struct ibv_send_wr *wr;  /* one for each block, at most */
    uint64_t timeout;        /* seconds */
};

/* The scatter/gather list: an SGE for each block of the memory at base, divided into work
 * requests of at most per_wr SGEs, since a device takes no more in one. A READ fetches one
 * remote piece and scatters it over its list. The next work request's piece lies right behind
 * it. Returns the number of work requests. */
static uint32_t build_scatter_list(struct side *s, const struct layout *l, const char *base,
                                   uint32_t lkey, uint32_t per_wr) {
    uint32_t n = 0;
    for (size_t i = 0; i < l->block_num; i++) {
        s->sge[i] = (struct ibv_sge){
            .addr = (uintptr_t)base + i * l->stride,
            .length = (uint32_t)l->block_size,
            .lkey = lkey,
        };
        if (i % per_wr != 0) {
            s->wr[n - 1].num_sge++;
            continue;
        }
        s->wr[n] = (struct ibv_send_wr){
            .sg_list = &s->sge[i],
            .num_sge = 1,
            .opcode = IBV_WR_RDMA_READ,
            .wr.rdma = {.remote_addr = s->remote_addr + i * l->block_size, .rkey = s->rkey},
        };
        n++;
    }
    return n;
}

/* Waits until count work requests are done. Only the last one of each post is signalled. A
 * queue pair completes its requests in order, so all requests before that one are done, too.
 * (A request that fails always has a completion.) */
static void wait_until_done(struct side *s, uint64_t count) {
    struct ibv_wc wc;
    while (s->done < count) {
        wait_completion(s->qp->send_cq, "the scatter READ", s->timeout, &wc);
        s->done = wc.wr_id;
    }
}

/* Posts wr[0] to wr[n - 1] as a chain through next: in calls of at most half a queue, each when
 * there is room, so that the NIC works on one half while the other is filled. */
static void post_chain(struct side *s, uint32_t n) {
    const uint32_t half = s->queue > 1 ? s->queue / 2 : 1;
    struct ibv_send_wr *bad_wr;
    for (uint32_t first = 0; first < n;) {
        const uint32_t room = s->queue - (uint32_t)(s->posted - s->done);
        const uint32_t piece = n - first < half ? n - first : half;
        if (room < piece) {
            wait_until_done(s, s->done + 1);
            continue;
        }
        for (uint32_t i = first; i + 1 < first + piece; i++) s->wr[i].next = &s->wr[i + 1];
        s->posted += piece;
        s->wr[first + piece - 1].next = NULL;
        s->wr[first + piece - 1].send_flags = IBV_SEND_SIGNALED;
        s->wr[first + piece - 1].wr_id = s->posted; /* the number done when it completes */
        check(ibv_post_send(s->qp, &s->wr[first], &bad_wr), "ibv_post_send");
        first += piece;
    }
}

/* Builds and posts the READs of one message: into the blocks; or into staging, which is
 * contiguous and so a list of one block. */
static void post_message(struct side *s, const struct layout *l, enum method method,
                         const char *staging) {
    const struct layout whole = {.block_size = l->bytes, .block_num = 1};
    uint32_t n;
    if (method == METHOD_COPY || method == METHOD_CONTIG)
        n = build_scatter_list(s, &whole, staging, s->contig_mr->lkey, 1);
    else
        n = build_scatter_list(s, l, s->memory.blocks, s->blocks_mr->lkey,
                               method == METHOD_EACH ? 1 : s->max_sge);
    post_chain(s, n);
}

/* Moves count messages with up to depth in flight, each with its own staging buffer. (See
 * measure.h.) A message has arrived when its last READ has completed, and for METHOD_COPY
 * when it is unpacked. */
static void transfer(void *arg, const struct layout *l, enum method method, unsigned count,
                     unsigned depth, double *latency) {
    struct side *s = arg;
    uint64_t last_of[MAX_DEPTH] = {0}; /* the last work request that uses a buffer */
    double start = now();
    for (unsigned i = 0; i < count + depth; i++) {
        char *staging = s->memory.contig + (i % depth) * l->bytes;
        if (i >= depth) { /* message i - depth must arrive before its buffer is used again */
            wait_until_done(s, last_of[i % depth]);
            if (method == METHOD_COPY) layout_unpack(l, staging, s->memory.blocks);
            if (latency) latency[i - depth] = now() - start;
        }
        start = now();
        if (i < count) {
            post_message(s, l, method, staging);
            last_of[i % depth] = s->posted;
        }
    }
}

int main(int argc, char **argv) {
    /* 1. Options. A host argument makes this the client. */
    struct options opt = {.sample = "06_scatter_read"};
    struct block_work work;
    parse_block_options(&opt, &work, argc, argv);
    const bool client = opt.host != NULL;

    /* 2. Start the rendezvous. Device, protection domain, completion queue. */
    struct rendezvous tcp;
    struct endpoint peer;
    struct port port;
    struct ibv_device_attr device;
    rendezvous_open(&tcp, &opt, &peer);
    struct ibv_context *ctx = open_device(&opt, tcp.fd, &port);
    check(ibv_query_device(ctx, &device), "ibv_query_device");
    print_layout(&opt, &work);
    errno = 0; /* a driver may return NULL and leave it: then no old error is told */
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    if (!pd) die(errno, "ibv_alloc_pd");
    struct ibv_cq *cq = ibv_create_cq(ctx, QUEUE_SIZE, NULL, NULL, 0);
    if (!cq) die(errno, "ibv_create_cq");

    /* 3. Memory. The client: blocks and staging buffers, which its own NIC writes. The
     * server: a contiguous message that the peer may read. */
    struct side side = {.memory = memory_alloc(&work, opt.seed, !client, client, client)};
    struct memory *memory = &side.memory;
    const double start = now();
    const unsigned access = client ? IBV_ACCESS_LOCAL_WRITE : IBV_ACCESS_REMOTE_READ;
    if (client) side.blocks_mr = ibv_reg_mr(pd, memory->blocks, memory->span, access);
    if (client && !side.blocks_mr) die(errno, "ibv_reg_mr of %zu bytes", memory->span);
    side.contig_mr = ibv_reg_mr(pd, memory->contig, memory->contig_size, access);
    if (!side.contig_mr) die(errno, "ibv_reg_mr of %zu bytes", memory->contig_size);
    const double reg_seconds = now() - start;

    /* 4. The queue pair: as many SGEs in a work request as the device allows; some devices allow
     * fewer for READs. A device cannot always reach its maximum (ibv_query_device(3), NOTES). If
     * it fails, ask for half. */
    side.queue = client ? min_u32(QUEUE_SIZE, (uint32_t)device.max_qp_wr) : 1;
    side.max_sge = client ? (uint32_t)device.max_sge : 1;
    if (device.max_sge_rd > 0) side.max_sge = min_u32(side.max_sge, (uint32_t)device.max_sge_rd);
    struct ibv_qp_init_attr init;
    do {
        init = (struct ibv_qp_init_attr){
            .qp_type = IBV_QPT_RC,
            .send_cq = cq,
            .recv_cq = cq,
            .cap = {.max_send_wr = side.queue,
                    .max_send_sge = side.max_sge,
                    .max_recv_wr = 1,
                    .max_recv_sge = 1},
        };
        errno = 0; /* a driver may return NULL and set nothing */
        side.qp = ibv_create_qp(pd, &init);
    } while (!side.qp && halve_caps(&side.max_sge, &side.queue));
    if (!side.qp) die(errno, "ibv_create_qp");
    side.queue = min_u32(side.queue, init.cap.max_send_wr);
    side.max_sge = min_u32(side.max_sge, init.cap.max_send_sge);

    /* 5. Exchange: the server's buffer, its rkey, and how many READs it answers at a time. */
    const struct endpoint mine = {
        .lid = port.lid,
        .qpn = side.qp->qp_num,
        .psn = random_psn(),
        .gid = port.gid,
        .mtu = port.mtu,
        .addr = client ? 0 : (uintptr_t)memory->contig,
        .rkey = client ? 0 : side.contig_mr->rkey,
        .len = client ? 0 : memory->contig_size,
        .max_sge = side.max_sge,
        .rd_atomic = client ? 0 : min_u32(READS, (uint32_t)device.max_qp_rd_atom),
    };
    rendezvous_swap(&tcp, &mine, &peer);

    /* 6. RESET -> INIT -> RTR -> RTS, with as many outstanding READs as both sides allow. */
    const uint32_t reads =
        min_u32(min_u32(READS, (uint32_t)device.max_qp_init_rd_atom), peer.rd_atomic);
    if (client && reads == 0) die(0, "one of the two devices does no READs");
    qp_to_init(side.qp, &port, client ? 0 : IBV_ACCESS_REMOTE_READ);
    qp_to_rtr(side.qp, &port, &peer, mine.rd_atomic);
    qp_to_rts(side.qp, mine.psn, client ? reads : 0,
              work.bench ? measuring_ack_timeout(&device, &opt) : ACK_TIMEOUT);
    rendezvous_sync(&tcp, "ready");

    /* 7. The verb, in post_message; 8. verify every byte and gap, on both sides. */
    side.remote_addr = peer.addr;
    side.rkey = peer.rkey;
    side.timeout = opt.timeout;
    side.sge = calloc(memory->block_num, sizeof(struct ibv_sge));
    side.wr = calloc(memory->block_num, sizeof(struct ibv_send_wr));
    if (!side.sge || !side.wr) die(errno, "calloc");
    const struct layout *l = &work.plan.point[work.plan.count - 1];
    const enum method method = method_for(work.method, l, peer.mtu);
    bool pass = true;
    for (uint64_t i = 0; !work.bench && i < opt.iters; i++) {
        if (i > 0) {
            rendezvous_sync(&tcp, "moved");
            pass = memory_ok(memory, l) && pass;
        }
        memory_prepare(memory, l, method);
        rendezvous_sync(&tcp, "prepared");
        if (client) transfer(&side, l, method, 1, 1, NULL);
    }
    if (client && !work.bench)
        printf("moved %zu blocks by method %s: %ju work requests in all\n", l->block_num,
               work.method_name, side.posted);
    const struct benchmark benchmark = {
        .reg_seconds = reg_seconds,
        .arg = &side,
        .memory = memory,
        .port = &port,
        .mtu = peer.mtu,
        .max_sge = side.max_sge,
        .unpacks = true,
        .transfer = client ? transfer : NULL,
    };
    if (work.bench) pass = measure(&benchmark, &tcp, &work);
    rendezvous_sync(&tcp, "done");

    /* All READs are done: verify the memory, and compute the digest of the message. */
    const uint64_t digest = memory_digest(memory, l);
    pass = memory_ok(memory, l) && pass;
    pass = rendezvous_verdict(&tcp, pass);

    /* 9. Undo in reverse order. */
    check(ibv_destroy_qp(side.qp), "ibv_destroy_qp");
    if (side.blocks_mr) check(ibv_dereg_mr(side.blocks_mr), "ibv_dereg_mr");
    check(ibv_dereg_mr(side.contig_mr), "ibv_dereg_mr");
    check(ibv_destroy_cq(cq), "ibv_destroy_cq");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(ctx), "ibv_close_device");
    free(side.sge);
    free(side.wr);
    memory_free(memory);
    return report_result(pass, l->bytes, digest);
}
