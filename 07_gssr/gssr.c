/*
 * 07_gssr - gather SEND, scatter RECV: the message lies in blocks on both sides. The
 * client's NIC gathers and the server's scatters (sgl), or the CPUs pack and unpack
 * (copy), or each block is a SEND of its own (each). A message has ended when the server,
 * which says so with an empty SEND, has it in its blocks.
 *
 *   gcc -I../common -o gssr gssr.c ../common/[a-z]*.c -libverbs
 *   ./gssr               in one terminal: the server
 *   ./gssr 127.0.0.1     in another: the client; the server's address
 *
 * The client prints, and the server much the same:
 *   device rxe0, port 1, GID index 1 (::ffff:10.0.0.1), MTU 1024
 *   LAYOUT block_size=4096 block_num=64 stride=8192 bytes=262144 seed=1
 *   moved 64 blocks by method sgl: 2 work requests in all
 *   RESULT sample=07_gssr role=client status=PASS bytes=262144 digest=...
 */
#include "bench.h"
#include "data.h"
#include "deadline.h"
#include "device.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    QUEUE_SIZE = 1024,     /* work requests in the send queue, and in the receive queue */
    PART = QUEUE_SIZE / 4, /* work requests posted in one call, at most */
    ACKS = 16, /* receives for acknowledgements: one for each PART in flight, two for
                  depth */
};

/* One end of the transfer: what the functions below and the measurements share. */
struct side {
    bool client;
    struct ibv_qp *qp;
    struct ibv_mr *blocks_mr, *contig_mr;
    char *blocks, *contig;   /* the message in blocks; staging buffers, a message each */
    uint32_t max_sge;        /* SGEs in a work request, of the side that takes fewer */
    uint64_t posted, done;   /* work requests in the send queue, since the start */
    uint64_t acked;          /* of the client's: the server's receives that were used */
    uint64_t expected, used; /* the server's receives, posted and completed */
    unsigned next_message;   /* the server's next receive to post: of which message, */
    uint32_t next_wr;        /* and which of its work requests */
    struct ibv_sge *sge;
    uint64_t seed;
    unsigned mtu, timeout; /* path MTU, bytes; seconds */
    enum method method;    /* of the message to verify */
};

/* Which bytes of which memory a message is: the blocks, or a staging buffer that it is
 * contiguous in, as a list of one block. per_wr: SGEs in a work request, no more than
 * both devices take, since a SEND and the receive that it meets hold the same bytes. */
struct pieces {
    struct layout layout;
    const char *base;
    uint32_t lkey, per_wr;
    uint32_t wrs; /* work requests in all */
};

static struct pieces pieces_of(const struct side *s, const struct layout *l,
                               enum method method, unsigned slot)
{
    struct pieces p = {.layout = {.block_size = l->bytes, .block_num = 1},
                       .base = s->contig + slot * l->bytes,
                       .lkey = s->contig_mr->lkey,
                       .per_wr = 1};

    if (method != METHOD_COPY && method != METHOD_CONTIG)
        p = (struct pieces){.layout = *l,
                            .base = s->blocks,
                            .lkey = s->blocks_mr->lkey,
                            .per_wr = method == METHOD_EACH ? 1 : s->max_sge};
    p.wrs = (uint32_t)((p.layout.block_num + p.per_wr - 1) / p.per_wr);
    return p;
}

/* The scatter/gather list of work request number wr of a message: an SGE for each of its
 * blocks. Returns how many. */
static int build_list(const struct pieces *p, uint32_t wr, struct ibv_sge *sge)
{ /* LAB: fill sge from its start, at most per_wr of them */
    const size_t first = (size_t)wr * p->per_wr;
    uint32_t n = 0;

    for (; n < p->per_wr && first + n < p->layout.block_num; n++) {
        sge[n] = (struct ibv_sge){
            .addr = (uintptr_t)p->base + (first + n) * p->layout.stride,
            .length = (uint32_t)p->layout.block_size,
            .lkey = p->lkey,
        };
    }
    return (int)n;
}

/* Posts SENDs number first to first + n - 1 of a message as one chain; the last one's
 * completion says how many are done by then. */
static void post_sends(struct side *s, const struct pieces *p, uint32_t first, uint32_t n)
{ /* LAB: a row of s->max_sge SGEs in s->sge for each; count them in s->posted */
    struct ibv_send_wr wr[PART], *bad_wr;

    for (uint32_t i = 0; i < n; i++) {
        struct ibv_sge *sge = s->sge + i * s->max_sge;
        wr[i] = (struct ibv_send_wr){
            .wr_id = s->posted + n,
            .sg_list = sge,
            .num_sge = build_list(p, first + i, sge),
            .opcode = IBV_WR_SEND,
            .send_flags = i + 1 == n ? IBV_SEND_SIGNALED : 0,
            .next = i + 1 == n ? NULL : &wr[i + 1],
        };
    }
    s->posted += n;
    check(ibv_post_send(s->qp, wr, &bad_wr), "ibv_post_send");
}

/* The same for receives. Each of them completes by itself. */
static void post_receives(struct side *s, const struct pieces *p, uint32_t first,
                          uint32_t n)
{ /* LAB: wr_id counts on from s->expected, which says how many were posted */
    struct ibv_recv_wr wr[PART], *bad_wr;

    for (uint32_t i = 0; i < n; i++) {
        struct ibv_sge *sge = s->sge + i * s->max_sge;
        wr[i] = (struct ibv_recv_wr){
            .wr_id = s->expected + i,
            .sg_list = sge,
            .num_sge = build_list(p, first + i, sge),
            .next = i + 1 == n ? NULL : &wr[i + 1],
        };
    }
    s->expected += n;
    check(ibv_post_recv(s->qp, wr, &bad_wr), "ibv_post_recv");
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Waits until so many of this side's work requests are done. */
static void wait_until_done(struct side *s, uint64_t count)
{
    struct ibv_wc wc;

    while (s->done < count) {
        next_completion(s->qp->send_cq, "the SEND", s->timeout, &wc);
        s->done = wc.wr_id;
    }
}

/* A receive without memory, for the server's empty SEND. */
static void post_ack_receive(struct side *s)
{
    struct ibv_recv_wr wr = {.num_sge = 0}, *bad_wr;

    check(ibv_post_recv(s->qp, &wr, &bad_wr), "ibv_post_recv for an acknowledgement");
}

/* Client: waits until the server has used so many receives. Its acknowledgement carries
 * their number, modulo 2^32, as immediate data. */
static void wait_until_acked(struct side *s, uint64_t count)
{
    struct ibv_wc wc;

    while (s->acked < count) {
        next_completion(s->qp->recv_cq, "the acknowledgement", s->timeout, &wc);
        if (!(wc.wc_flags & IBV_WC_WITH_IMM))
            die(0, "the peer sent a message instead of an acknowledgement");
        s->acked += (uint32_t)(ntohl(wc.imm_data) - (uint32_t)s->acked);
        if (s->acked > s->posted)
            die(0, "the peer sent an acknowledgement of what it was never sent");
        post_ack_receive(s);
        wait_until_done(s, s->acked); /* what has arrived is done: free the send queue */
    }
}

/* Client: sends count messages, at most depth at a time that the server hasn't yet in its
 * blocks, and never a SEND for which the server's receive doesn't stand yet. */
static void send_messages(void *ctx, const struct layout *l, enum method method,
                          unsigned count, unsigned depth, double *latency)
{
    struct side *s = ctx;
    uint64_t last_of[MAX_DEPTH] = {0}; /* a staging buffer's last work request */

    if (method == METHOD_AUTO)
        method = method_for(l, s->mtu);
    for (unsigned i = 0; i < count; i++) {
        const struct pieces p = pieces_of(s, l, method, i % depth);
        wait_until_acked(s, last_of[i % depth]);
        double start = now();
        if (method == METHOD_COPY)
            layout_pack(l, s->blocks, s->contig + (i % depth) * l->bytes);
        for (uint32_t first = 0, n; first < p.wrs; first += n) {
            n = smaller(p.wrs - first, PART);
            if (s->posted + n > s->acked + QUEUE_SIZE)
                wait_until_acked(s, s->posted + n - QUEUE_SIZE);
            post_sends(s, &p, first, n);
        }
        last_of[i % depth] = s->posted;
        if (latency) {
            wait_until_acked(s, s->posted);
            latency[i] = now() - start;
        }
    }
    wait_until_acked(s, s->posted);
}

/* Server: posts receives as far ahead as the queue and the staging buffers reach: those
 * of messages below the number limit. */
static void post_ahead(struct side *s, const struct layout *l, enum method method,
                       unsigned limit, unsigned depth)
{ /* LAB: go on at s->next_wr of s->next_message, in parts of at most PART */
    while (s->next_message < limit) {
        const struct pieces p = pieces_of(s, l, method, s->next_message % depth);
        uint32_t n = smaller(p.wrs - s->next_wr, PART);
        if (s->expected + n > s->used + QUEUE_SIZE)
            return;
        post_receives(s, &p, s->next_wr, n);
        s->next_wr += n;
        if (s->next_wr == p.wrs) {
            s->next_message++;
            s->next_wr = 0;
        }
    }
}

/* Server: what has to stand before the client may send. */
static void expect_messages(void *ctx, const struct layout *l, enum method method,
                            unsigned count, unsigned depth)
{
    struct side *s = ctx;

    if (method == METHOD_AUTO)
        method = method_for(l, s->mtu);
    s->next_message = 0;
    s->next_wr = 0;
    post_ahead(s, l, method, smaller(count, depth), depth);
}

/* Server: tells the client how many receives have been used. */
static void send_ack(struct side *s)
{
    struct ibv_send_wr *bad_wr, wr = {
                                    .wr_id = ++s->posted,
                                    .opcode = IBV_WR_SEND_WITH_IMM,
                                    .imm_data = htonl((uint32_t)s->used),
                                    .send_flags = IBV_SEND_SIGNALED,
                                };

    if (s->posted - s->done > QUEUE_SIZE / 2)
        wait_until_done(s, s->done + 1);
    check(ibv_post_send(s->qp, &wr, &bad_wr), "ibv_post_send of an acknowledgement");
}

/* Server: takes count messages into its blocks. It acknowledges when half of what may be
 * in flight has come, so that the client never waits for long, and the last one. */
static void receive_messages(void *ctx, const struct layout *l, enum method method,
                             unsigned count, unsigned depth, double *latency)
{
    struct side *s = ctx;
    struct ibv_wc wc;

    (void)latency;
    if (method == METHOD_AUTO)
        method = method_for(l, s->mtu);
    const uint32_t total = pieces_of(s, l, method, 0).wrs;
    uint64_t told = s->used, bytes = 0;
    for (unsigned i = 0; i < count; i++) {
        for (uint32_t first = 0, n; first < total; first += n) {
            n = smaller(total - first, PART);
            for (uint32_t k = 0; k < n; k++) {
                wait_completion(s->qp->recv_cq, s->used++, "the receive", s->timeout,
                                &wc);
                bytes += wc.byte_len;
            }
            bool ended = first + n == total;
            if (ended && bytes != (i + 1) * l->bytes) /* shorter is no error to the NIC */
                die(0, "the peer sent %" PRIu64 " bytes in %u messages of %zu", bytes,
                    i + 1, l->bytes);
            if (ended && method == METHOD_COPY)
                layout_unpack(l, s->contig + (i % depth) * l->bytes, s->blocks);
            post_ahead(s, l, method, smaller(count, i + ended + depth), depth);
            if (s->used - told >= PART || (ended && (i + 1) % ((depth + 1) / 2) == 0) ||
                (ended && i + 1 == count)) {
                send_ack(s);
                told = s->used;
            }
        }
    }
}

/* Fresh data: the client's blocks, and poison where the message has yet to come. */
static void prepare(void *ctx, const struct layout *l, enum method method)
{
    struct side *s = ctx;

    s->method = method;
    if (s->client)
        layout_fill(l, s->blocks, s->seed);
    else
        layout_poison(l, s->blocks, s->seed);
    if (s->client && method == METHOD_CONTIG)
        pattern_fill(s->contig, l->bytes, s->seed);
    else
        poison_fill(s->contig, l->bytes, s->seed);
}

/* The message stands in both sides' blocks, and all gaps are as they were. */
static bool verify(void *ctx, const struct layout *l)
{
    struct side *s = ctx;

    if (s->method == METHOD_CONTIG)
        return all_right("message", pattern_check(s->contig, l->bytes, s->seed),
                         l->bytes);
    return all_right("blocks and gaps", layout_check(l, s->blocks, s->seed), l->span);
}

int main(int argc, char **argv)
{
    /* 1. Options: a host argument makes this the client. */
    struct options opt = {.layout = {.block_size = 4096, .block_num = 64}, .seed = 1};
    parse_options(&opt, "07_gssr", "BNTISxnkzDc", argc, argv);
    const bool client = opt.host != NULL;
    enum method method = METHOD_SGL;

    /* 2. Device, protection domain, a completion queue for each direction. Here both
     * sides wait for each other; so neither polls in a loop, which would take the CPU
     * from the other, but sleeps until the completion channel tells of a completion. */
    struct port port;
    struct ibv_context *ctx = open_device(&opt, &port);
    struct ibv_device_attr device;
    check(ibv_query_device(ctx, &device), "ibv_query_device");
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    if (!pd)
        die(errno, "ibv_alloc_pd");
    struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
    if (!channel)
        die(errno, "ibv_create_comp_channel");
    struct ibv_cq *send_cq = ibv_create_cq(ctx, QUEUE_SIZE, NULL, channel, 0);
    if (!send_cq)
        die(errno, "ibv_create_cq");
    /* When a SEND has failed, the receives are flushed: the reason stands in send_cq. */
    struct ibv_cq *recv_cq = ibv_create_cq(ctx, QUEUE_SIZE, send_cq, channel, 0);
    if (!recv_cq)
        die(errno, "ibv_create_cq");

    struct rendezvous rv;
    struct endpoint peer;
    rendezvous_open(&rv, &opt, "07_gssr", &peer);
    choose_gid(&opt, ctx, rv.fd, &port);
    layout_print(&opt.layout, opt.seed);

    /* 3. Memory: blocks and staging buffers on both sides. The server's NIC writes to its
     * own; nobody else's NIC gets any right. */
    struct bench_plan plan = {.count = 1, .point = {opt.layout}};
    method_by_name(opt.method, &method);
    if (opt.bench)
        bench_make_plan(&plan, opt.sizes, opt.layout.block_size);
    const struct bench_room room = bench_room(&plan, opt.bench ? opt.depth : 1);
    char *blocks = guarded_alloc(room.span), *contig = guarded_alloc(room.staging);
    const unsigned access = client ? 0 : IBV_ACCESS_LOCAL_WRITE;
    double registering = now();
    struct ibv_mr *blocks_mr = ibv_reg_mr(pd, blocks, room.span, access);
    if (!blocks_mr)
        die(errno, "ibv_reg_mr of %zu bytes", room.span);
    struct ibv_mr *contig_mr = ibv_reg_mr(pd, contig, room.staging, access);
    if (!contig_mr)
        die(errno, "ibv_reg_mr of %zu bytes", room.staging);
    registering = now() - registering;

    /* 4. The queue pair: as many SGEs a work request as the device takes. */
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = send_cq,
        .recv_cq = recv_cq,
        .cap = {.max_send_wr = QUEUE_SIZE,
                .max_send_sge = client ? (uint32_t)device.max_sge : 1,
                .max_recv_wr = client ? ACKS : QUEUE_SIZE,
                .max_recv_sge = client ? 1 : (uint32_t)device.max_sge},
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp)
        die(errno, "ibv_create_qp");

    /* 5. Swap: no memory's address, but how many SGEs a work request can have here. */
    struct endpoint mine = {
        .lid = port.attr.lid,
        .gid = port.gid,
        .mtu = port.mtu,
        .qpn = qp->qp_num,
        .psn = random_psn(),
        .max_sge = (uint32_t)device.max_sge,
    };
    rendezvous_swap(&rv, &mine, &peer);

    /* 6. RESET -> INIT -> RTR -> RTS. The receives for acknowledgements stand at once;
     * those for messages are posted before each transfer. */
    qp_to_init(qp, &port, 0);
    qp_to_rtr(qp, &port, &peer, 0);
    qp_to_rts(qp, mine.psn, 0, opt.bench ? ACK_TIMEOUT_BENCH : ACK_TIMEOUT);
    struct side side = {
        .client = client,
        .qp = qp,
        .blocks_mr = blocks_mr,
        .contig_mr = contig_mr,
        .blocks = blocks,
        .contig = contig,
        .max_sge = smaller(mine.max_sge, peer.max_sge),
        .sge = calloc((size_t)PART * mine.max_sge, sizeof(struct ibv_sge)),
        .seed = opt.seed,
        .mtu = path_mtu(&port, &peer),
        .timeout = opt.timeout,
    };
    if (!side.sge)
        die(errno, "calloc");
    for (int i = 0; client && i < ACKS; i++)
        post_ack_receive(&side);
    rendezvous_sync(&rv, "ready");

    /* 7. The verbs, in post_sends and post_receives; 8. verify every byte and gap. */
    const struct layout *l = &plan.point[plan.count - 1];
    bool pass = true;
    for (uint32_t i = 0; !opt.bench && i < opt.iters; i++) {
        prepare(&side, l, METHOD_SGL);
        if (!client)
            expect_messages(&side, l, method, 1, 1);
        rendezvous_sync(&rv, "prepared");
        (client ? send_messages : receive_messages)(&side, l, method, 1, 1, NULL);
        rendezvous_sync(&rv, "moved");
        pass = verify(&side, l) && pass;
    }
    if (client && !opt.bench)
        printf("moved %zu blocks by method %s: %" PRIu64 " work requests in all\n",
               l->block_num, opt.method, side.posted);
    if (opt.bench) {
        const struct bench_side with = {
            .name = "07_gssr",
            .ctx = &side,
            .port = &port,
            .registering = registering,
            .registered = room.span + room.staging,
            .mtu = side.mtu,
            .max_sge = side.max_sge,
            .prepare = prepare,
            .expect = client ? NULL : expect_messages,
            .transfer = client ? send_messages : receive_messages,
            .verify = verify,
            .packs = true,
            .unpacks = true,
        };
        pass = bench(&with, &rv, &opt, &plan);
    }
    wait_until_done(&side, side.posted); /* the server's last acknowledgements */
    rendezvous_sync(&rv, "done");
    const uint64_t digest = side.method == METHOD_CONTIG
                                ? fnv1a(FNV_BASIS, contig, l->bytes)
                                : layout_digest(l, blocks);
    pass =
        guards_intact(blocks, room.span) && guards_intact(contig, room.staging) && pass;
    pass = rendezvous_verdict(&rv, pass);

    /* 9. Undo in reverse order. */
    check(ibv_destroy_qp(qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(contig_mr), "ibv_dereg_mr");
    check(ibv_dereg_mr(blocks_mr), "ibv_dereg_mr");
    check(ibv_destroy_cq(recv_cq), "ibv_destroy_cq");
    check(ibv_destroy_cq(send_cq), "ibv_destroy_cq");
    check(ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(ctx), "ibv_close_device");
    free(side.sge);
    guarded_free(blocks);
    guarded_free(contig);
    return report_result(pass, l->bytes, digest);
}
