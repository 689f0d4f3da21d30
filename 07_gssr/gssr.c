/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 07_gssr - gather SEND, scatter RECV: the message lies in blocks on both sides. The client's
 * NIC gathers and the server's scatters (sgl), or the CPUs pack and unpack (copy), or each
 * block is a SEND of its own (each). A message has arrived when the server has it in its
 * blocks; it says so with an empty SEND, an acknowledgement.
 *
 *   gcc -I../{common,blocks} -o gssr gssr.c ../{common,blocks}/[a-z]*.c -libverbs
 *   ./gssr               in one terminal: the server
 *   ./gssr 127.0.0.1     in another: the client; the server's address
 *
 * The client prints (the server: similar lines):
 *   device rxe0, port 1, GID index 1 (::ffff:10.0.0.1), MTU 1024
 *   ...
 *   LAYOUT block_size=4096 block_num=64 stride=8192 bytes=262144 seed=1
 *   moved 64 blocks by method sgl: 2 work requests in all
 *   RESULT sample=07_gssr role=client status=PASS bytes=262144 digest=...
 *
 * Rendezvous: for the fields of work= see work.h. No side exposes memory. All iters messages are
 * the same: the pattern (pattern.h) of seed, in SENDs in block order. sgl: max_sge blocks in each
 * SEND (the smaller max_sge of both sides). each: one block. copy: one SEND. auto: sgl if a block
 * has at least path-MTU bytes, else copy. An acknowledgement is a SEND of no bytes; its immediate
 * data (network byte order) is the number of receives that the server has used since the start,
 * modulo 2^32. The server sends one when a message is in its blocks (with --bench: (depth + 1) / 2
 * messages, or the last), and before that 64 to 256 receives after the last one. The client has 16
 * receives for them, and at most 1024 SENDs unacknowledged. Barriers: "ready"; before each message
 * "prepared" (memory is filled or poisoned; the first 1024 receives are posted, later ones before
 * the acknowledgement that lets the client use them); after each message "moved", after the last
 * one "done" instead. With --bench: those of measure.h.
 */
#include "device.h"
#include "measure.h"
#include "memory.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"
#include "work.h"

#include <arpa/inet.h>
#include <poll.h>

enum {
    QUEUE_SIZE = 1024,      /* work requests in the send queue, and in the receive queue, at most */
    BATCH = QUEUE_SIZE / 4, /* work requests in one post, at most */
    ACK_RECEIVES = 16       /* receives for acknowledgements */
};

/* One side of the transfer: what the functions below and the measurements share. What must hold:
 *   client: acked <= done <= posted <= acked + QUEUE_SIZE, so each SEND finds a receive
 *   server: used <= expected <= used + queue
 *   at most ACK_RECEIVES acknowledgements are under way: each stands for QUEUE_SIZE / ACK_RECEIVES
 *   receives or more, but for those at the end of messages, which come twice in depth messages */
struct side {
    struct ibv_qp *qp;
    struct ibv_mr *blocks_mr, *contig_mr;
    struct memory memory;    /* contig: staging buffers, one message each */
    uint32_t queue;          /* work requests in a queue: QUEUE_SIZE, or what the device can hold */
    uint32_t batch;          /* work requests in one post: a quarter of that */
    uint32_t max_sge;        /* SGEs in a work request, of the side that takes fewer */
    uint64_t posted, done;   /* work requests in the send queue, since the start */
    uint64_t acked;          /* client: receives that the server says it has used */
    uint64_t expected, used; /* server: receives posted, and used */
    unsigned next_message;   /* server: number of the message of the next receive to post, */
    uint32_t next_wr;        /* and number of that receive in the message */
    struct ibv_sge *sge;
    uint64_t timeout; /* seconds */
};

/* Where a message is: in the blocks, or in a staging buffer, which counts as one block. A work
 * request has up to per_wr SGEs, the same on both sides: a SEND exactly fills its receive. */
struct wr_list {
    struct layout layout;
    const char *base;
    uint32_t lkey, per_wr;
    uint32_t count; /* work requests in all */
};

static struct wr_list wr_list_of(const struct side *s, const struct layout *l, enum method method,
                                 unsigned slot) {
    const bool blocks = method == METHOD_SGL || method == METHOD_EACH;
    const struct layout whole = {.block_size = l->bytes, .block_num = 1};
    struct wr_list list = {.layout = blocks ? *l : whole,
                           .base = blocks ? s->memory.blocks : s->memory.contig + slot * l->bytes,
                           .lkey = blocks ? s->blocks_mr->lkey : s->contig_mr->lkey,
                           .per_wr = method == METHOD_SGL ? s->max_sge : 1};
    list.count = (uint32_t)((list.layout.block_num + list.per_wr - 1) / list.per_wr);
    return list;
}

/* The list of work request number wr: an SGE for each of its blocks. Returns how many. */
static int build_list(const struct wr_list *list, uint32_t wr, struct ibv_sge *sge) {
    const size_t first = (size_t)wr * list->per_wr;
    uint32_t n = 0;
    for (; n < list->per_wr && first + n < list->layout.block_num; n++) {
        const char *block = list->base + (first + n) * list->layout.stride;
        sge[n] = (struct ibv_sge){(uintptr_t)block, (uint32_t)list->layout.block_size, list->lkey};
    }
    return (int)n;
}

/* Posts SENDs first to first + n - 1 of a message as one chain. Only the last one is signalled. Its
 * wr_id is the number of work requests that are done when it completes. */
static void post_sends(struct side *s, const struct wr_list *list, uint32_t first, uint32_t n) {
    struct ibv_send_wr wr[BATCH];
    struct ibv_send_wr *bad_wr;
    for (uint32_t i = 0; i < n; i++) {
        struct ibv_sge *sge = s->sge + i * s->max_sge;
        wr[i] = (struct ibv_send_wr){
            .wr_id = s->posted + n,
            .sg_list = sge,
            .num_sge = build_list(list, first + i, sge),
            .opcode = IBV_WR_SEND,
            .send_flags = i + 1 == n ? IBV_SEND_SIGNALED : 0,
            .next = i + 1 == n ? NULL : &wr[i + 1],
        };
    }
    s->posted += n;
    check(ibv_post_send(s->qp, wr, &bad_wr), "ibv_post_send");
}

/* Posts receives first to first + n - 1 of a message as one chain. Each has its own completion. */
static void post_receives(struct side *s, const struct wr_list *list, uint32_t first, uint32_t n) {
    struct ibv_recv_wr wr[BATCH];
    struct ibv_recv_wr *bad_wr;
    for (uint32_t i = 0; i < n; i++) {
        struct ibv_sge *sge = s->sge + i * s->max_sge;
        wr[i] = (struct ibv_recv_wr){
            .wr_id = s->expected + i,
            .sg_list = sge,
            .num_sge = build_list(list, first + i, sge),
            .next = i + 1 == n ? NULL : &wr[i + 1],
        };
    }
    s->expected += n;
    check(ibv_post_recv(s->qp, wr, &bad_wr), "ibv_post_recv");
}

/* Waits for the next completion of cq. In this sample both processes wait for each other. A process
 * that polls in a loop takes the CPU from the other. So it sleeps until the completion channel has
 * an event. (05 and 06 poll. So do not compare their figures with those of 07.) */
static void wait_for(struct side *s, struct ibv_cq *cq, const char *what, struct ibv_wc *wc) {
    const double deadline = now() + (double)s->timeout;
    double left = (double)s->timeout;
    struct pollfd channel = {.fd = cq->channel->fd, .events = POLLIN};
    struct ibv_cq *from;
    void *context;
    int n;
    while ((n = ibv_poll_cq(cq, 1, wc)) == 0) {
        /* Only a completion that comes after this call makes an event. One that has come just
         * before does not, so poll once more. */
        check(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
        n = ibv_poll_cq(cq, 1, wc);
        if (n != 0) break;
        /* Of the time before these polls: a process that was stopped meanwhile has polled since. */
        if (left <= 0) die(0, "no completion of %s in %ju s", what, s->timeout);
        left = deadline - now();
        if (poll(&channel, 1, left > 0 ? (int)(left * 1000) + 1 : 0) <= 0) continue;
        check(ibv_get_cq_event(cq->channel, &from, &context), "ibv_get_cq_event");
        ibv_ack_cq_events(from, 1); /* ibv_destroy_cq waits until all are acknowledged */
    }
    if (n < 0) die(0, "ibv_poll_cq");
    /* When a SEND fails, the receives are flushed. The SEND's completion has the reason. */
    struct ibv_wc other = {.status = IBV_WC_SUCCESS};
    while (wc->status == IBV_WC_WR_FLUSH_ERR && ibv_poll_cq(s->qp->send_cq, 1, &other) > 0)
        if (other.status != IBV_WC_SUCCESS) die_wc(&other, "the SEND");
    if (wc->status != IBV_WC_SUCCESS) die_wc(wc, what);
}

/* Waits until count of this side's work requests are done. */
static void wait_until_done(struct side *s, uint64_t count) {
    struct ibv_wc wc;
    while (s->done < count) {
        wait_for(s, s->qp->send_cq, "the SEND", &wc);
        s->done = wc.wr_id;
    }
}

/* A receive without memory, for an acknowledgement. */
static void post_ack_receive(struct side *s) {
    struct ibv_recv_wr wr = {.num_sge = 0};
    struct ibv_recv_wr *bad_wr;
    check(ibv_post_recv(s->qp, &wr, &bad_wr), "ibv_post_recv for an acknowledgement");
}

/* Client: waits until the server has used count receives. */
static void wait_until_acked(struct side *s, uint64_t count) {
    struct ibv_wc wc;
    while (s->acked < count) {
        wait_for(s, s->qp->recv_cq, "the acknowledgement", &wc);
        if (!(wc.wc_flags & IBV_WC_WITH_IMM))
            die(0, "the peer sent a message instead of an acknowledgement");
        s->acked += (uint32_t)(ntohl(wc.imm_data) - (uint32_t)s->acked);
        if (s->acked > s->posted) die(0, "the peer acknowledged more SENDs than were posted");
        post_ack_receive(s);
        wait_until_done(s, s->acked); /* acknowledged SENDs are done: this frees the send queue */
    }
}

/* Client: sends count messages, with at most depth of them unacknowledged. It posts no SEND before
 * the server has posted the receive for it. */
static void send_messages(void *arg, const struct layout *l, enum method method, unsigned count,
                          unsigned depth, double *latency) {
    struct side *s = arg;
    uint64_t last_of[MAX_DEPTH] = {0}; /* the last work request that uses a buffer */
    for (unsigned i = 0; i < count; i++) {
        const struct wr_list list = wr_list_of(s, l, method, i % depth);
        wait_until_acked(s, last_of[i % depth]);
        const double start = now();
        if (method == METHOD_COPY)
            layout_pack(l, s->memory.blocks, s->memory.contig + (i % depth) * l->bytes);
        for (uint32_t first = 0; first < list.count; first += s->batch) {
            const uint32_t n = min_u32(list.count - first, s->batch);
            if (s->posted + n > s->acked + QUEUE_SIZE)
                wait_until_acked(s, s->posted + n - QUEUE_SIZE);
            if (s->posted + n > s->done + s->queue) /* only where a queue is shorter */
                wait_until_done(s, s->posted + n - s->queue);
            post_sends(s, &list, first, n);
        }
        last_of[i % depth] = s->posted;
        if (latency) {
            wait_until_acked(s, s->posted);
            latency[i] = now() - start;
        }
    }
    wait_until_acked(s, s->posted);
}

/* Server: posts receives for the messages before number "limit", as many as the queue holds, in
 * batches. It continues where it stopped: at receive next_wr of message next_message. */
static void post_ahead(struct side *s, const struct layout *l, enum method method, unsigned limit,
                       unsigned depth) {
    while (s->next_message < limit && s->expected < s->used + s->queue) {
        const struct wr_list list = wr_list_of(s, l, method, s->next_message % depth);
        const uint32_t room = (uint32_t)(s->used + s->queue - s->expected);
        const uint32_t n = min_u32(list.count - s->next_wr, min_u32(s->batch, room));
        post_receives(s, &list, s->next_wr, n);
        s->next_wr += n;
        if (s->next_wr < list.count) continue;
        s->next_message++;
        s->next_wr = 0;
    }
}

/* Server: posts the receives that the client needs before it may send. */
static void prepost_messages(void *arg, const struct layout *l, enum method method, unsigned count,
                             unsigned depth) {
    struct side *s = arg;
    s->next_message = 0;
    s->next_wr = 0;
    post_ahead(s, l, method, min_u32(count, depth), depth);
}

/* Server: tells the client how many receives have been used. */
static void send_ack(struct side *s) {
    struct ibv_send_wr *bad_wr;
    if (s->posted - s->done >= (s->queue + 1) / 2) wait_until_done(s, s->done + 1);
    s->posted++;
    struct ibv_send_wr wr = {
        .wr_id = s->posted,
        .opcode = IBV_WR_SEND_WITH_IMM,
        .imm_data = htonl((uint32_t)s->used),
        .send_flags = IBV_SEND_SIGNALED,
    };
    check(ibv_post_send(s->qp, &wr, &bad_wr), "ibv_post_send of an acknowledgement");
}

/* Server: receives count messages into its blocks. It acknowledges after depth / 2 messages, so
 * that the client never waits for long, and after the last one. */
static void receive_messages(void *arg, const struct layout *l, enum method method, unsigned count,
                             unsigned depth, double *latency) {
    struct side *s = arg;
    struct ibv_wc wc;
    (void)latency; /* the client's to measure */
    const uint32_t per_message = wr_list_of(s, l, method, 0).count;
    /* So that never more than ACK_RECEIVES acknowledgements are on their way. */
    const uint32_t ack_after =
        s->batch > QUEUE_SIZE / ACK_RECEIVES ? s->batch : QUEUE_SIZE / ACK_RECEIVES;
    uint64_t last_ack = s->used; /* as the last acknowledgement said it */
    uint64_t bytes = 0;
    uint32_t received = 0; /* of this message's receives */
    unsigned i = 0;        /* this message */
    while (i < count) {
        wait_for(s, s->qp->recv_cq, "the receive", &wc);
        if (wc.wr_id != s->used) die(0, "the receive: wr_id %ju completed", wc.wr_id);
        s->used++;
        received++;
        bytes += wc.byte_len;
        const bool ended = received == per_message;
        if (ended) {
            if (method == METHOD_COPY)
                layout_unpack(l, s->memory.contig + (i % depth) * l->bytes, s->memory.blocks);
            i++;
            received = 0;
            if (bytes != i * l->bytes) /* a message shorter than its receive is no error */
                die(0, "the peer sent %ju bytes in %u messages of %zu", bytes, i, l->bytes);
        }
        const bool due = ended && (i == count || i % ((depth + 1) / 2) == 0);
        if (!due && (s->used - last_ack) % s->batch != 0) continue;
        post_ahead(s, l, method, min_u32(count, i + depth), depth);
        if (!due && s->used - last_ack < ack_after) continue;
        send_ack(s);
        last_ack = s->used;
    }
}

int main(int argc, char **argv) {
    /* 1. Options. A host argument makes this the client. */
    struct options opt = {.sample = "07_gssr"};
    struct block_work work;
    parse_block_options(&opt, &work, argc, argv);
    const bool client = opt.host != NULL;

    /* 2. Start the rendezvous. Device, PD, completion channel, a completion queue per direction. */
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
    struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
    if (!channel) die(errno, "ibv_create_comp_channel");
    const uint32_t most = min_u32((uint32_t)device.max_qp_wr, (uint32_t)device.max_cqe);
    const uint32_t queue = min_u32(QUEUE_SIZE, most);
    struct ibv_cq *send_cq = ibv_create_cq(ctx, (int)queue, NULL, channel, 0);
    if (!send_cq) die(errno, "ibv_create_cq");
    struct ibv_cq *recv_cq = ibv_create_cq(ctx, (int)queue, NULL, channel, 0);
    if (!recv_cq) die(errno, "ibv_create_cq");

    /* 3. Memory: blocks and staging buffers on both sides. Only the server's own NIC writes. */
    struct side side = {.memory = memory_alloc(&work, opt.seed, client, true, true)};
    struct memory *memory = &side.memory;
    const double start = now();
    const unsigned access = client ? 0 : IBV_ACCESS_LOCAL_WRITE;
    side.blocks_mr = ibv_reg_mr(pd, memory->blocks, memory->span, access);
    if (!side.blocks_mr) die(errno, "ibv_reg_mr of %zu bytes", memory->span);
    side.contig_mr = ibv_reg_mr(pd, memory->contig, memory->contig_size, access);
    if (!side.contig_mr) die(errno, "ibv_reg_mr of %zu bytes", memory->contig_size);
    const double reg_seconds = now() - start;

    /* 4. The queue pair: as many SGEs in a work request as the device allows. A device cannot
     * always reach its maximum (ibv_query_device(3), NOTES). If it fails, ask for half; the queues
     * are shortened only when one SGE is left. A client can't know that the server's are shorter
     * than QUEUE_SIZE: its SENDs then find no receive at times, and are repeated (RNR NAK). */
    side.queue = queue;
    side.max_sge = (uint32_t)device.max_sge;
    struct ibv_qp_init_attr init;
    do {
        init = (struct ibv_qp_init_attr){
            .qp_type = IBV_QPT_RC,
            .send_cq = send_cq,
            .recv_cq = recv_cq,
            .cap = {.max_send_wr = side.queue,
                    .max_send_sge = client ? side.max_sge : 1,
                    .max_recv_wr = client ? ACK_RECEIVES : side.queue,
                    .max_recv_sge = client ? 1 : side.max_sge},
        };
        errno = 0; /* a driver may return NULL and set nothing */
        side.qp = ibv_create_qp(pd, &init);
    } while (!side.qp && halve_caps(&side.max_sge, &side.queue));
    if (!side.qp) die(errno, "ibv_create_qp");
    side.batch = min_u32(BATCH, side.queue > 4 ? side.queue / 4 : 1);
    side.max_sge = min_u32(side.max_sge, client ? init.cap.max_send_sge : init.cap.max_recv_sge);

    /* 5. Exchange: no memory address, but how many SGEs a work request can have here. */
    const struct endpoint mine = {
        .lid = port.lid,
        .qpn = side.qp->qp_num,
        .psn = random_psn(),
        .gid = port.gid,
        .mtu = port.mtu,
        .max_sge = side.max_sge,
    };
    rendezvous_swap(&tcp, &mine, &peer);

    /* 6. RESET -> INIT -> RTR -> RTS. Then the receives for acknowledgements are posted. */
    qp_to_init(side.qp, &port, 0);
    qp_to_rtr(side.qp, &port, &peer, 0);
    qp_to_rts(side.qp, mine.psn, 0,
              work.bench ? measuring_ack_timeout(&device, &opt) : ACK_TIMEOUT);
    side.max_sge = min_u32(side.max_sge, peer.max_sge);
    side.timeout = opt.timeout;
    side.sge = calloc((size_t)BATCH * side.max_sge, sizeof(struct ibv_sge));
    if (!side.sge) die(errno, "calloc");
    for (int i = 0; client && i < ACK_RECEIVES; i++) post_ack_receive(&side);
    rendezvous_sync(&tcp, "ready");

    /* 7. The verbs, in post_sends and post_receives; 8. verify every byte and gap. */
    const struct layout *l = &work.plan.point[work.plan.count - 1];
    const enum method method = method_for(work.method, l, peer.mtu);
    void (*transfer)(void *, const struct layout *, enum method, unsigned, unsigned, double *) =
        client ? send_messages : receive_messages;
    bool pass = true;
    for (uint64_t i = 0; !work.bench && i < opt.iters; i++) {
        if (i > 0) {
            rendezvous_sync(&tcp, "moved");
            pass = memory_ok(memory, l) && pass;
        }
        memory_prepare(memory, l, method);
        if (!client) prepost_messages(&side, l, method, 1, 1);
        rendezvous_sync(&tcp, "prepared");
        (*transfer)(&side, l, method, 1, 1, NULL);
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
        .packs = true,
        .unpacks = true,
        .prepost = client ? NULL : prepost_messages,
        .transfer = transfer,
    };
    if (work.bench) pass = measure(&benchmark, &tcp, &work);
    wait_until_done(&side, side.posted); /* the server's last acknowledgements */
    rendezvous_sync(&tcp, "done");

    /* All receives are used: verify the memory, and compute the digest of the message. */
    const uint64_t digest = memory_digest(memory, l);
    pass = memory_ok(memory, l) && pass;
    pass = rendezvous_verdict(&tcp, pass);

    /* 9. Undo in reverse order. */
    check(ibv_destroy_qp(side.qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(side.contig_mr), "ibv_dereg_mr");
    check(ibv_dereg_mr(side.blocks_mr), "ibv_dereg_mr");
    check(ibv_destroy_cq(recv_cq), "ibv_destroy_cq");
    check(ibv_destroy_cq(send_cq), "ibv_destroy_cq");
    check(ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(ctx), "ibv_close_device");
    free(side.sge);
    memory_free(memory);
    return report_result(pass, l->bytes, digest);
}
