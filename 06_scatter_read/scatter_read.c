/*
 * 06_scatter_read - the server's message is one contiguous piece; the client fetches it
 * into blocks with gaps between, by RDMA READ. The client's NIC scatters what comes back
 * (sgl), or the CPU unpacks it (copy), or each block is a READ of its own (each).
 *
 *   gcc -I../common -o scatter_read scatter_read.c ../common/[a-z]*.c -libverbs
 *   ./scatter_read               in one terminal: the server
 *   ./scatter_read 127.0.0.1     in another: the client; the server's address
 *
 * The client prints, and the server much the same:
 *   device rxe0, port 1, GID index 1 (::ffff:10.0.0.1), MTU 1024
 *   LAYOUT block_size=4096 block_num=64 stride=8192 bytes=262144 seed=1
 *   moved 64 blocks by method sgl: 2 work requests in all
 *   RESULT sample=06_scatter_read role=client status=PASS bytes=262144 digest=...
 */
#include "bench.h"
#include "data.h"
#include "deadline.h"
#include "device.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { QUEUE_SIZE = 1024 }; /* work requests in the send queue */
enum { READS = 16 };        /* under way at a time, where both devices can do it */

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* One end of the transfer: what the functions below and the measurements share. */
struct side {
    struct ibv_qp *qp;
    struct ibv_mr *blocks_mr, *contig_mr; /* the server has no blocks */
    char *blocks;                         /* where the client wants the message */
    char *contig; /* client: staging buffers, a message each; server: the message */
    uint64_t remote_addr;
    uint32_t rkey;
    uint32_t max_sge;       /* SGEs in a work request */
    uint64_t posted, done;  /* work requests, since the start */
    struct ibv_sge *sge;    /* one for each block */
    struct ibv_send_wr *wr; /* one for each block, at most */
    uint64_t seed;
    unsigned mtu, timeout; /* path MTU, bytes; seconds */
    enum method method;    /* of the message to verify */
};

/*
 * The scatter/gather list: an SGE for each block of memory at base, cut into work
 * requests of at most per_wr SGEs, since a device takes no more at a time (for READs some
 * take fewer: max_sge_rd). A READ fetches one remote piece and scatters it over its list;
 * the next work request's piece lies right behind. Returns how many work requests.
 */
static uint32_t build_scatter_list(struct side *s, const struct layout *l,
                                   const char *base, uint32_t lkey, uint32_t per_wr)
{ /* LAB: fill s->sge and s->wr, each from its start */
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
        s->wr[n++] = (struct ibv_send_wr){
            .sg_list = &s->sge[i],
            .num_sge = 1,
            .opcode = IBV_WR_RDMA_READ,
            .wr.rdma = {.remote_addr = s->remote_addr + i * l->block_size,
                        .rkey = s->rkey},
        };
    }
    return n;
}

/* As in 05: waits until so many requests are done. The last of each post is signalled;
 * since a queue pair works in order, its completion stands for those before it too. */
static void wait_until_done(struct side *s, uint64_t count)
{
    struct ibv_wc wc;

    while (s->done < count) {
        next_completion(s->qp->send_cq, "the scatter READ", s->timeout, &wc);
        s->done = wc.wr_id;
    }
}

/* As in 05: posts wr[0] to wr[n - 1] as chains through next: in one call where the send
 * queue has room, or else in pieces as it empties. It never overflows. */
static void post_chain(struct side *s, uint32_t n)
{ /* LAB: the signalled one's wr_id is s->posted by then: see wait_until_done */
    struct ibv_send_wr *bad_wr;

    for (uint32_t first = 0; first < n;) {
        uint32_t room = QUEUE_SIZE - (uint32_t)(s->posted - s->done);
        uint32_t piece = n - first < QUEUE_SIZE / 2 ? n - first : QUEUE_SIZE / 2;
        if (room < piece) {
            wait_until_done(s, s->done + 1);
            continue;
        }
        for (uint32_t i = first; i + 1 < first + piece; i++)
            s->wr[i].next = &s->wr[i + 1];
        s->posted += piece;
        s->wr[first + piece - 1].next = NULL;
        s->wr[first + piece - 1].send_flags = IBV_SEND_SIGNALED;
        s->wr[first + piece - 1].wr_id = s->posted; /* how many are done by then */
        check(ibv_post_send(s->qp, &s->wr[first], &bad_wr), "ibv_post_send");
        first += piece;
    }
}

/* Builds and posts the READs of one message. One that is to stay contiguous is a list of
 * one block. */
static void post_message(struct side *s, const struct layout *l, enum method method,
                         const char *staging)
{ /* LAB: into staging for METHOD_COPY and METHOD_CONTIG, else into the blocks */
    const struct layout whole = {.block_size = l->bytes, .block_num = 1};
    uint32_t n;

    if (method == METHOD_COPY || method == METHOD_CONTIG)
        n = build_scatter_list(s, &whole, staging, s->contig_mr->lkey, 1);
    else
        n = build_scatter_list(s, l, s->blocks, s->blocks_mr->lkey,
                               method == METHOD_EACH ? 1 : s->max_sge);
    post_chain(s, n);
}

/* Moves count messages with up to depth in flight, each with its own staging buffer. A
 * message has arrived when its last READ has completed, and for METHOD_COPY when it is
 * unpacked (see bench.h). */
static void transfer(void *ctx, const struct layout *l, enum method method,
                     unsigned count, unsigned depth, double *latency)
{
    struct side *s = ctx;
    uint64_t last_of[MAX_DEPTH] = {0}; /* a buffer's last work request */
    double start = now();

    if (method == METHOD_AUTO)
        method = method_for(l, s->mtu);
    for (unsigned i = 0; i < count + depth; i++) {
        char *staging = s->contig + (i % depth) * l->bytes;
        if (i >= depth) { /* message i - depth, whose buffer this is, arrives first */
            wait_until_done(s, last_of[i % depth]);
            if (method == METHOD_COPY)
                layout_unpack(l, staging, s->blocks);
            if (latency)
                latency[i - depth] = now() - start;
        }
        start = now();
        if (i < count) {
            post_message(s, l, method, staging);
            last_of[i % depth] = s->posted;
        }
    }
}

/* Fresh data: the server's message, and poison where it has yet to come. */
static void prepare(void *ctx, const struct layout *l, enum method method)
{
    struct side *s = ctx;

    s->method = method;
    if (s->blocks)
        layout_poison(l, s->blocks, s->seed);
    (s->blocks ? poison_fill : pattern_fill)(s->contig, l->bytes, s->seed);
}

/* The client has the message and gaps as they were; the server's is unchanged. */
static bool verify(void *ctx, const struct layout *l)
{
    struct side *s = ctx;

    if (s->blocks && s->method != METHOD_CONTIG)
        return all_right("blocks and gaps", layout_check(l, s->blocks, s->seed), l->span);
    return all_right("message", pattern_check(s->contig, l->bytes, s->seed), l->bytes);
}

int main(int argc, char **argv)
{
    /* 1. Options: a host argument makes this the client. */
    struct options opt = {.layout = {.block_size = 4096, .block_num = 64}, .seed = 1};
    parse_options(&opt, "06_scatter_read", "BNTISxnkzDc", argc, argv);
    const bool client = opt.host != NULL;
    enum method method = METHOD_SGL;

    /* 2. Device, protection domain, completion queue. */
    struct port port;
    struct ibv_context *ctx = open_device(&opt, &port);
    struct ibv_device_attr device;
    check(ibv_query_device(ctx, &device), "ibv_query_device");
    const uint32_t max_sge = (uint32_t)(device.max_sge_rd > 0 /* 0: not told */
                                            ? smaller(device.max_sge, device.max_sge_rd)
                                            : device.max_sge);
    const int reads_answered = smaller(READS, device.max_qp_rd_atom);
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    if (!pd)
        die(errno, "ibv_alloc_pd");
    struct ibv_cq *cq = ibv_create_cq(ctx, QUEUE_SIZE, NULL, NULL, 0);
    if (!cq)
        die(errno, "ibv_create_cq");

    struct rendezvous rv;
    struct endpoint peer;
    rendezvous_open(&rv, &opt, "06_scatter_read", &peer);
    choose_gid(&opt, ctx, rv.fd, &port);
    layout_print(&opt.layout, opt.seed);

    /* 3. Memory. The client: its blocks and staging buffers, which its own NIC may write.
     * The server: a contiguous message that the peer may read. */
    struct bench_plan plan = {.count = 1, .point = {opt.layout}};
    method_by_name(opt.method, &method);
    if (opt.bench)
        bench_make_plan(&plan, opt.sizes, opt.layout.block_size);
    const struct bench_room room = bench_room(&plan, opt.bench ? opt.depth : 1);
    const size_t contig_size = client ? room.staging : room.bytes;
    char *blocks = client ? guarded_alloc(room.span) : NULL;
    char *contig = guarded_alloc(contig_size);
    double registering = now();
    struct ibv_mr *blocks_mr =
        client ? ibv_reg_mr(pd, blocks, room.span, IBV_ACCESS_LOCAL_WRITE) : NULL;
    if (client && !blocks_mr)
        die(errno, "ibv_reg_mr of %zu bytes", room.span);
    struct ibv_mr *contig_mr =
        ibv_reg_mr(pd, contig, contig_size,
                   client ? IBV_ACCESS_LOCAL_WRITE : IBV_ACCESS_REMOTE_READ);
    if (!contig_mr)
        die(errno, "ibv_reg_mr of %zu bytes", contig_size);
    registering = now() - registering;

    /* 4. The queue pair: as many SGEs a work request as the device takes. */
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = client ? QUEUE_SIZE : 1,
                .max_send_sge = client ? max_sge : 1,
                .max_recv_wr = 1,
                .max_recv_sge = 1},
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp)
        die(errno, "ibv_create_qp");

    /* 5. Swap: the server's buffer and its rkey. */
    struct endpoint mine = {
        .lid = port.attr.lid,
        .gid = port.gid,
        .mtu = port.mtu,
        .qpn = qp->qp_num,
        .psn = random_psn(),
        .addr = client ? 0 : (uintptr_t)contig,
        .rkey = client ? 0 : contig_mr->rkey,
        .len = client ? 0 : room.bytes,
        .max_sge = max_sge,
        .rd_atomic = (uint32_t)reads_answered,
    };
    rendezvous_swap(&rv, &mine, &peer);

    /* 6. RESET -> INIT -> RTR -> RTS, for as many READs at a time as both can do. */
    const int reads =
        smaller(smaller(READS, device.max_qp_init_rd_atom), (int)peer.rd_atomic);
    if (client && reads == 0)
        die(0, "%s does no READs", peer.rd_atomic ? port.device : "the peer's device");
    qp_to_init(qp, &port, client ? 0 : IBV_ACCESS_REMOTE_READ);
    qp_to_rtr(qp, &port, &peer, client ? 0 : (uint8_t)reads_answered);
    qp_to_rts(qp, mine.psn, client ? (uint8_t)reads : 0,
              opt.bench ? ACK_TIMEOUT_BENCH : ACK_TIMEOUT);
    rendezvous_sync(&rv, "ready");

    /* 7. The verb, in post_message; 8. verify every byte and gap, on both sides. */
    struct side side = {
        .qp = qp,
        .blocks_mr = blocks_mr,
        .contig_mr = contig_mr,
        .blocks = blocks,
        .contig = contig,
        .remote_addr = peer.addr,
        .rkey = peer.rkey,
        .max_sge = max_sge,
        .sge = client ? calloc(room.block_num, sizeof(struct ibv_sge)) : NULL,
        .wr = client ? calloc(room.block_num, sizeof(struct ibv_send_wr)) : NULL,
        .seed = opt.seed,
        .mtu = path_mtu(&port, &peer),
        .timeout = opt.timeout,
    };
    if (client && (!side.sge || !side.wr))
        die(errno, "calloc");
    const struct layout *l = &plan.point[plan.count - 1];
    bool pass = true;
    for (uint32_t i = 0; !opt.bench && i < opt.iters; i++) {
        prepare(&side, l, METHOD_SGL);
        rendezvous_sync(&rv, "prepared");
        if (client)
            transfer(&side, l, method, 1, 1, NULL);
        rendezvous_sync(&rv, "moved");
        pass = verify(&side, l) && pass;
    }
    if (client && !opt.bench)
        printf("moved %zu blocks by method %s: %" PRIu64 " work requests in all\n",
               l->block_num, opt.method, side.posted);
    if (opt.bench) {
        const struct bench_side with = {
            .name = "06_scatter_read",
            .ctx = &side,
            .port = &port,
            .registering = registering,
            .registered = room.span + contig_size,
            .mtu = side.mtu,
            .max_sge = side.max_sge,
            .prepare = prepare,
            .transfer = client ? transfer : NULL,
            .verify = verify,
            .unpacks = true,
        };
        pass = bench(&with, &rv, &opt, &plan);
    }
    rendezvous_sync(&rv, "done");
    const uint64_t digest = client && side.method != METHOD_CONTIG
                                ? layout_digest(l, blocks)
                                : fnv1a(FNV_BASIS, contig, l->bytes);
    if (client)
        pass = guards_intact(blocks, room.span) && pass;
    pass = guards_intact(contig, contig_size) && pass;
    pass = rendezvous_verdict(&rv, pass);

    /* 9. Undo in reverse order. */
    check(ibv_destroy_qp(qp), "ibv_destroy_qp");
    if (blocks_mr)
        check(ibv_dereg_mr(blocks_mr), "ibv_dereg_mr");
    check(ibv_dereg_mr(contig_mr), "ibv_dereg_mr");
    check(ibv_destroy_cq(cq), "ibv_destroy_cq");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(ctx), "ibv_close_device");
    free(side.sge);
    free(side.wr);
    if (client)
        guarded_free(blocks);
    guarded_free(contig);
    return report_result(pass, l->bytes, digest);
}
