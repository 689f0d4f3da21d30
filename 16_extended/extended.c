/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 16_extended - 02's SENDs in batches, posted and taken in two ways, side by side:
 *   --api post   struct ibv_send_wr and ibv_post_send, ibv_poll_cq and struct ibv_wc, as in 02
 *   --api wr     ibv_wr_start ... ibv_wr_complete, ibv_start_poll ... ibv_end_poll: no structures
 *
 *   gcc -I../common -o extended extended.c ../common/[a-z]*.c -libverbs
 *   ./extended               in one terminal: the server
 *   ./extended 127.0.0.1     in another: the client; the server's address
 *
 * Where the device has no extended queues it says so and exits with 77. It tries ibv_next_poll
 * before it relies on it, because some libraries have a wrong one. The client prints, after the
 * lines of the device (the server: similar lines):
 *   sent 64 messages of 4096 bytes in batches of 8 and got each back
 *   BENCH api=wr batch=8 size=4096 iters=64 post_calls=144 poll_calls=... post_us=...
 *   RESULT sample=16_extended role=client status=PASS bytes=262144 digest=...
 *
 * BENCH: calls that posted, and calls for polls that found something; microseconds a message in the
 * former (post_us), and until the message was back (message_us).
 *
 * Rendezvous: work= ends with api (post or wr, for both sides), batch (1 to 64) and list (1: each
 * message is two SGEs). Message i, from 0 to iters - 1, is the pattern (pattern.h) of seed + i,
 * size bytes. No side exposes memory. Barriers: ready (each side has posted the receives of a
 * batch; it posts those of the next one before its next SENDs), done.
 */
#define _GNU_SOURCE
#include "device.h"
#include "pattern.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"

#include <poll.h>
#include <sched.h>

enum { MAX_BATCH = 64 };

struct work {
    const char *api;
    uint64_t batch, list;
};

/* One side of a run. */
struct side {
    struct ibv_qp *qp;
    struct ibv_qp_ex *qpx; /* the same queue pair, for the new way; NULL: the old way */
    struct ibv_cq *send_cq, *recv_cq;
    struct ibv_cq_ex *send_cqx, *recv_cqx; /* the same queues, for the new way */
    bool next_poll;                        /* ibv_next_poll can be used */
    bool stamps;                           /* receives have timestamps */
    char *out, *in;                        /* a batch of messages each */
    uint32_t lkey, size;
    uint32_t head; /* bytes in the first of a message's two SGEs; 0: it has one */
    uint64_t seed, timeout;
    uint64_t first_stamp, last_stamp; /* in ticks of the NIC's clock */
    uint64_t post_calls, poll_calls;
    double post_seconds, seconds;
};

static void format_work(const struct options *opt, char *out, size_t room) {
    const struct work *work = opt->work;
    snprintf(out, room, ",api=%s,batch=%ju,list=%ju", work->api, work->batch, work->list);
}

static const char *misfit(const struct options *opt) {
    const struct work *work = opt->work;
    if (work->list && opt->size < 3) return "a list takes messages of 3 bytes at least";
    return opt->size * work->batch <= MAX_SIZE ? NULL : "a batch is larger than 64M";
}

static const char *parse_work(struct options *opt, const char *text) {
    struct work *work = opt->work;
    char again[64];
    work->api = strncmp(text, ",api=post,", 10) == 0 ? "post" : "wr";
    const char *batch = strstr(text, ",batch=");
    const char *list = strstr(text, ",list=");
    work->batch = batch ? strtoul(batch + 7, NULL, 10) : 0;
    work->list = list ? strtoul(list + 6, NULL, 10) : 0;
    format_work(opt, again, sizeof(again));
    if (strcmp(text, again) != 0) return "api, batch or list is malformed";
    if (work->batch < 1 || work->batch > MAX_BATCH || work->list > 1)
        return "batch must be 1 to 64, list 0 or 1";
    return misfit(opt);
}

/* The SGEs of message k of a batch: one, or two of different lengths. Returns how many. */
static int fill_sges(const struct side *s, uint32_t k, struct ibv_sge sge[2]) {
    const uintptr_t message = (uintptr_t)s->out + (size_t)k * s->size;
    sge[0] = (struct ibv_sge){message, s->size, s->lkey};
    if (s->head == 0) return 1;
    sge[0].length = s->head;
    sge[1] = (struct ibv_sge){message + s->head, s->size - s->head, s->lkey};
    return 2;
}

/* 7. The old way to post: a structure for each request, chained by next, and one call for all. The
 * provider reads each structure and translates it into the NIC's format. */
static void post_old(struct side *s, uint64_t first, uint32_t count) {
    struct ibv_sge sge[MAX_BATCH][2];
    struct ibv_send_wr wr[MAX_BATCH], *bad_wr;
    for (uint32_t k = 0; k < count; k++) {
        wr[k] = (struct ibv_send_wr){
            .wr_id = first + k,
            .next = k + 1 < count ? &wr[k + 1] : NULL,
            .sg_list = sge[k],
            .num_sge = fill_sges(s, k, sge[k]),
            .opcode = IBV_WR_SEND,
            .send_flags = IBV_SEND_SIGNALED,
        };
    }
    check(ibv_post_send(s->qp, wr, &bad_wr), "ibv_post_send of a batch");
    s->post_calls++;
}

/* The new way: a call for the operation, and one for its data. Each writes at once in the NIC's
 * format, into the queue. wr_id and wr_flags are taken as they are when the operation is called.
 * None of these calls can fail: ibv_wr_complete tells, and then nothing of the batch is posted. */
static void post_new(struct side *s, uint64_t first, uint32_t count) {
    struct ibv_qp_ex *qpx = s->qpx;
    struct ibv_sge sge[2];
    ibv_wr_start(qpx); /* locks the send queue */
    qpx->wr_flags = IBV_SEND_SIGNALED;
    for (uint32_t k = 0; k < count; k++) {
        qpx->wr_id = first + k;
        ibv_wr_send(qpx);
        if (fill_sges(s, k, sge) == 1)
            ibv_wr_set_sge(qpx, sge[0].lkey, sge[0].addr, sge[0].length);
        else
            ibv_wr_set_sge_list(qpx, 2, sge);
    }
    check(ibv_wr_complete(qpx), "ibv_wr_complete of a batch"); /* rings the doorbell; unlocks */
    s->post_calls += 2 + 2 * count;
}

/* Between two polls that find nothing: gives the CPU away (see wait_completion in qp.h). */
static void wait_a_little(const struct side *s, const char *what, double *since) {
    if (*since == 0) *since = now();
    const double waited = now() - *since;
    if (waited > (double)s->timeout) die(0, "no completion of %s in %ju s", what, s->timeout);
    if (waited < 0.1) sched_yield();
    if (waited >= 0.1) poll(NULL, 0, 1);
}

/* What either way has found in a completion: is it the next one, and is the message whole (a
 * shorter one is no error to the NIC)? */
static void verify_completion(const struct side *s, uint64_t expected, uint64_t wr_id,
                              const uint32_t *byte_len) {
    if (wr_id != expected) die(0, "another request's completion: %ju, not %ju", wr_id, expected);
    if (!byte_len || *byte_len == s->size) return;
    if (s->qpx && s->head > 0 && *byte_len == 2 * s->head)
        die(0,
            "message %ju: %u bytes came, not %u. The sender's ibv_wr_set_sge_list counts its first "
            "SGE twice: so does rdma-core before 64 on Soft-RoCE (fixed also in 63.1, 62.1, 56.4, "
            "52.6, 44.12)",
            expected, *byte_len, s->size);
    die(0, "message %ju: %u bytes came, not %u", expected, *byte_len, s->size);
}

/* The old way to take completions: ibv_poll_cq copies each into a struct ibv_wc, all its fields. */
static void take_old(struct side *s, bool receives, uint64_t first, uint32_t count) {
    const char *what = receives ? "a receive" : "a SEND";
    struct ibv_wc wc[MAX_BATCH];
    double since = 0;
    for (uint32_t taken = 0; taken < count;) {
        const int room = (int)(count - taken);
        const int n = ibv_poll_cq(receives ? s->recv_cq : s->send_cq, room, wc);
        if (n < 0) die(0, "ibv_poll_cq");
        if (n == 0) wait_a_little(s, what, &since);
        if (n > 0) s->poll_calls++;
        if (n > 0) since = 0; /* the next wait is another one */
        for (int k = 0; k < n; k++) {
            if (wc[k].status != IBV_WC_SUCCESS) die_wc(&wc[k], what);
            verify_completion(s, first + taken, wc[k].wr_id, receives ? &wc[k].byte_len : NULL);
            taken++;
        }
    }
}

/* Exits unless the completion at which the iterator stands has this status. */
static void require_status(struct ibv_cq_ex *cqx, enum ibv_wc_status wanted, const char *what) {
    if (cqx->status == wanted) return;
    const struct ibv_wc wc = {.status = cqx->status, .vendor_err = ibv_wc_read_vendor_err(cqx)};
    die_wc(&wc, what);
}

/* The new way: the iterator stands at a completion in the queue itself. wr_id and status are there
 * to read; for each other field there is a call, if ibv_create_cq_ex was told of it. */
static void take_new(struct side *s, bool receives, uint64_t first, uint32_t count) {
    const char *what = receives ? "a receive" : "a SEND";
    struct ibv_cq_ex *cqx = receives ? s->recv_cqx : s->send_cqx;
    double since = 0;
    for (uint32_t taken = 0; taken < count;) {
        struct ibv_poll_cq_attr none = {0};
        int ret = ibv_start_poll(cqx, &none);
        if (ret == ENOENT) { /* nothing is there: then no ibv_end_poll */
            wait_a_little(s, what, &since);
            continue;
        }
        check(ret, "ibv_start_poll");
        since = 0;
        s->poll_calls += 2; /* that one and ibv_end_poll */
        while (ret == 0) {
            require_status(cqx, IBV_WC_SUCCESS, what);
            const uint32_t byte_len = receives ? ibv_wc_read_byte_len(cqx) : 0;
            verify_completion(s, first + taken, cqx->wr_id, receives ? &byte_len : NULL);
            taken++;
            if (receives && s->stamps) s->last_stamp = ibv_wc_read_completion_ts(cqx);
            if (s->first_stamp == 0) s->first_stamp = s->last_stamp;
            if (receives) s->poll_calls += s->stamps ? 2 : 1;
            if (s->next_poll) s->poll_calls++;
            ret = s->next_poll ? ibv_next_poll(cqx) : ENOENT;
        }
        ibv_end_poll(cqx); /* also after ENOENT: gives the queue's entries back */
        if (ret != ENOENT) die(ret, "ibv_next_poll");
    }
}

/* Receives are posted in the same way by both: nothing newer has come for them. */
static void post_receives(const struct side *s, uint64_t first, uint32_t count) {
    struct ibv_sge sge[MAX_BATCH];
    struct ibv_recv_wr wr[MAX_BATCH], *bad_wr;
    for (uint32_t k = 0; k < count; k++) {
        char *message = s->in + (size_t)k * s->size;
        poison_fill(message, s->size, s->seed + first + k);
        sge[k] = (struct ibv_sge){(uintptr_t)message, s->size, s->lkey};
        wr[k] = (struct ibv_recv_wr){
            .wr_id = first + k,
            .next = k + 1 < count ? &wr[k + 1] : NULL,
            .sg_list = &sge[k],
            .num_sge = 1,
        };
    }
    check(ibv_post_recv(s->qp, wr, &bad_wr), "ibv_post_recv of a batch");
}

static void post(struct side *s, uint64_t first, uint32_t count) {
    const double began = now();
    if (s->qpx) post_new(s, first, count);
    if (!s->qpx) post_old(s, first, count);
    s->post_seconds += now() - began;
}

static void take(struct side *s, bool receives, uint64_t first, uint32_t count) {
    if (s->qpx) take_new(s, receives, first, count);
    if (!s->qpx) take_old(s, receives, first, count);
}

/* A batch of the client: sends it, and gets it back. */
static void send_batch(struct side *s, uint64_t first, uint32_t count) {
    for (uint32_t k = 0; k < count; k++)
        pattern_fill(s->out + (size_t)k * s->size, s->size, s->seed + first + k);
    const double began = now();
    post(s, first, count);
    take(s, false, first, count);
    take(s, true, first, count);
    s->seconds += now() - began;
}

/* 8. Verify every byte of the batch that has come. */
static bool verify_batch(const struct side *s, uint64_t first, uint32_t count, uint64_t *digest) {
    bool pass = true;
    for (uint32_t k = 0; k < count; k++) {
        const char *message = s->in + (size_t)k * s->size;
        pass = pattern_ok("received message", message, s->size, s->seed + first + k) && pass;
        *digest = fnv1a(*digest, message, s->size);
    }
    return pass;
}

/* Whether ibv_next_poll and ibv_end_poll do what ibv_create_cq_ex(3) says: behind the last
 * completion comes ENOENT, and then the queue is empty. A trial without a peer, on queues of its
 * own: a queue pair that goes from INIT to ERR flushes the receive that it has. */
static bool next_poll_works(struct ibv_context *ctx, struct ibv_pd *pd, const struct port *port,
                            const struct side *s) {
    struct ibv_cq_init_attr_ex want = {.cqe = 3};
    errno = 0;
    struct ibv_cq_ex *cqx = ibv_create_cq_ex(ctx, &want);
    if (!cqx) die(errno, "ibv_create_cq_ex for a trial");
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = ibv_cq_ex_to_cq(cqx),
        .recv_cq = ibv_cq_ex_to_cq(cqx),
        .cap = {.max_send_wr = 1, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1},
    };
    errno = 0;
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp) die(errno, "ibv_create_qp for a trial");
    qp_to_init(qp, port, 0);
    struct ibv_recv_wr wr = {.wr_id = 1}, *bad_wr; /* no SGE: a message without data */
    check(ibv_post_recv(qp, &wr, &bad_wr), "ibv_post_recv for a trial");
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    check(ibv_modify_qp(qp, &attr, IBV_QP_STATE), "ibv_modify_qp to ERR");

    struct ibv_poll_cq_attr none = {0};
    double since = 0;
    int ret;
    while ((ret = ibv_start_poll(cqx, &none)) == ENOENT) wait_a_little(s, "a trial", &since);
    check(ret, "ibv_start_poll for a trial");
    require_status(cqx, IBV_WC_WR_FLUSH_ERR, "a trial");
    verify_completion(s, 1, cqx->wr_id, NULL);
    const int next = ibv_next_poll(cqx);
    ibv_end_poll(cqx);
    ret = ibv_start_poll(cqx, &none);
    if (ret == 0) ibv_end_poll(cqx);
    if (ret != ENOENT) check(ret, "ibv_start_poll after a trial");
    check(ibv_destroy_qp(qp), "ibv_destroy_qp for a trial");
    check(ibv_destroy_cq(ibv_cq_ex_to_cq(cqx)), "ibv_destroy_cq for a trial");
    return next == ENOENT && ret == ENOENT;
}

/* The new way to create a completion queue names the fields that will be read. Returns NULL if the
 * device has no such queue. */
static struct ibv_cq_ex *create_cq_new(struct ibv_context *ctx, int entries, uint64_t fields) {
    struct ibv_cq_init_attr_ex want = {.cqe = (uint32_t)entries, .wc_flags = fields};
    errno = 0;
    struct ibv_cq_ex *cqx = ibv_create_cq_ex(ctx, &want);
    if (!cqx && errno != EOPNOTSUPP) die(errno, "ibv_create_cq_ex");
    return cqx;
}

/* Both queues. A timestamp is the time, by the NIC's own clock, at which a completion was made:
 * struct ibv_wc has no place for it. Not all devices have such a clock. */
static void create_cqs_new(struct side *s, struct ibv_context *ctx, int entries,
                           const char *device) {
    const uint64_t length = IBV_WC_EX_WITH_BYTE_LEN;
    s->send_cqx = create_cq_new(ctx, entries, 0);
    if (!s->send_cqx)
        stop(EXIT_NO_DEVICE, EOPNOTSUPP,
             "ibv_create_cq_ex: no extended completion queues on %s: --api post needs none",
             device);
    s->recv_cqx = create_cq_new(ctx, entries, length | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
    s->stamps = s->recv_cqx != NULL;
    if (!s->stamps) {
        printf("no completion timestamps on %s\n", device);
        s->recv_cqx = create_cq_new(ctx, entries, length);
        if (!s->recv_cqx) die(EOPNOTSUPP, "ibv_create_cq_ex without timestamps");
    }
    s->send_cq = ibv_cq_ex_to_cq(s->send_cqx);
    s->recv_cq = ibv_cq_ex_to_cq(s->recv_cqx);
}

static void create_cqs_old(struct side *s, struct ibv_context *ctx, int entries) {
    errno = 0; /* a driver may return NULL and leave it: then no old error is told */
    s->send_cq = ibv_create_cq(ctx, entries, NULL, NULL, 0);
    if (!s->send_cq) die(errno, "ibv_create_cq");
    s->recv_cq = ibv_create_cq(ctx, entries, NULL, NULL, 0);
    if (!s->recv_cq) die(errno, "ibv_create_cq");
}

/* The new way to create a queue pair names the operations that will be posted: it gets functions
 * for these, and for no others. */
static void create_qp_new(struct side *s, struct ibv_context *ctx, struct ibv_pd *pd,
                          const struct ibv_qp_cap *cap, const char *device) {
    struct ibv_qp_init_attr_ex init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = s->send_cq,
        .recv_cq = s->recv_cq,
        .cap = *cap,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = pd,
        .send_ops_flags = IBV_QP_EX_WITH_SEND,
    };
    errno = 0;
    s->qp = ibv_create_qp_ex(ctx, &init);
    if (!s->qp && errno == EOPNOTSUPP)
        stop(EXIT_NO_DEVICE, errno, "ibv_create_qp_ex: no ibv_wr_send on %s: --api post needs none",
             device);
    if (!s->qp) die(errno, "ibv_create_qp_ex");
    s->qpx = ibv_qp_to_qp_ex(s->qp);
    if (!s->qpx) die(0, "ibv_qp_to_qp_ex");
}

static void create_qp_old(struct side *s, struct ibv_pd *pd, const struct ibv_qp_cap *cap) {
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = s->send_cq,
        .recv_cq = s->recv_cq,
        .cap = *cap,
    };
    errno = 0;
    s->qp = ibv_create_qp(pd, &init);
    if (!s->qp) die(errno, "ibv_create_qp");
}

/* What it took, in the machine-read form. */
static void print_costs(const struct side *s, struct ibv_context *ctx, const struct options *opt) {
    const struct work *work = opt->work;
    const double us = 1e6 / (double)opt->iters;
    if (s->stamps) {
        struct ibv_device_attr_ex attr;
        check(ibv_query_device_ex(ctx, NULL, &attr), "ibv_query_device_ex");
        printf("first to last receive: %ju ticks of the NIC's clock, of %ju kHz\n",
               s->last_stamp - s->first_stamp, attr.hca_core_clock);
    }
    printf("BENCH api=%s batch=%ju size=%ju iters=%ju post_calls=%ju poll_calls=%ju post_us=%.3f "
           "message_us=%.3f\n",
           work->api, work->batch, opt->size, opt->iters, s->post_calls, s->poll_calls,
           s->post_seconds * us, s->seconds * us);
}

int main(int argc, char **argv) {
    /* 1. Options. A host argument makes this the client. */
    struct work work = {.api = "wr", .batch = 8};
    struct options opt = {
        .sample = "16_extended",
        .size = 4096,
        .iters = 64,
        .seed = 1,
        .work = &work,
        .format_work = format_work,
        .parse_work = parse_work,
    };
    const struct option_row rows[] = {
        {'s', "size", "BYTES", "bytes in a message", NUMBER(opt.size, 1, MAX_SIZE)},
        {'n', "iters", "N", "number of messages", NUMBER(opt.iters, 1, MAX_ITERS)},
        {'S', "seed", "N", "seed of the test data", NUMBER(opt.seed, 0, UINT64_MAX)},
        {0, "api", "WAY", "post (the old way) or wr (the new way)", .text = &work.api},
        {0, "batch", "N", "messages that are posted at a time", NUMBER(work.batch, 1, MAX_BATCH)},
        {0, "list", NULL, "each message is a list of two SGEs", NUMBER(work.list, 1, 1)},
        {0},
    };
    parse_options(&opt, rows, argc, argv);
    const bool client = opt.host != NULL;
    if (strcmp(work.api, "post") != 0 && strcmp(work.api, "wr") != 0)
        stop(EXIT_USAGE, 0, "--api: post or wr");
    if (misfit(&opt)) stop(EXIT_USAGE, 0, "--size, --batch, --list: %s", misfit(&opt));

    /* 2. Start the rendezvous. Device, protection domain, and a completion queue for each
     * direction. */
    struct rendezvous tcp;
    struct endpoint peer;
    struct port port;
    rendezvous_open(&tcp, &opt, &peer);
    struct ibv_context *ctx = open_device(&opt, tcp.fd, &port);
    errno = 0;
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    if (!pd) die(errno, "ibv_alloc_pd");
    const bool new_way = strcmp(work.api, "wr") == 0;
    const uint32_t batch = (uint32_t)work.batch;
    struct side s = {.size = (uint32_t)opt.size, .seed = opt.seed, .timeout = opt.timeout};
    if (work.list) s.head = s.size / 3;
    if (new_way) {
        create_cqs_new(&s, ctx, (int)batch, port.device);
        s.next_poll = next_poll_works(ctx, pd, &port, &s);
        if (!s.next_poll)
            printf("ibv_next_poll of this library takes one completion too many (rdma-core 34 to "
                   "54 on Soft-RoCE): each completion gets an ibv_start_poll of its own\n");
    } else {
        create_cqs_old(&s, ctx, (int)batch);
    }

    /* 3. Memory: buffers to send a batch from, followed by buffers to receive one into. LOCAL_WRITE
     * lets this side's NIC write what arrives; the peer gets no right. */
    const size_t bytes = opt.size * batch;
    s.out = guarded_alloc(2 * bytes);
    s.in = s.out + bytes;
    poison_fill(s.out, bytes, opt.seed);
    errno = 0;
    struct ibv_mr *mr = ibv_reg_mr(pd, s.out, 2 * bytes, IBV_ACCESS_LOCAL_WRITE);
    if (!mr) die(errno, "ibv_reg_mr of %zu bytes", 2 * bytes);
    s.lkey = mr->lkey;

    /* 4. The queue pair has room for a batch in each direction. */
    const struct ibv_qp_cap cap = {
        .max_send_wr = batch,
        .max_send_sge = work.list ? 2 : 1,
        .max_recv_wr = batch,
        .max_recv_sge = 1,
    };
    if (new_way)
        create_qp_new(&s, ctx, pd, &cap, port.device);
    else
        create_qp_old(&s, pd, &cap);

    /* 5. Exchange the addresses of the queue pairs; no memory address, no rkey. */
    const struct endpoint mine = {
        .lid = port.lid,
        .qpn = s.qp->qp_num,
        .psn = random_psn(),
        .gid = port.gid,
        .mtu = port.mtu,
        .max_sge = cap.max_send_sge,
    };
    rendezvous_swap(&tcp, &mine, &peer);

    /* 6. RESET -> INIT -> RTR -> RTS. */
    qp_to_init(s.qp, &port, 0);
    qp_to_rtr(s.qp, &port, &peer, 0);
    qp_to_rts(s.qp, mine.psn, 0, ACK_TIMEOUT);
    post_receives(&s, 0, (uint32_t)(opt.iters < batch ? opt.iters : batch));
    rendezvous_sync(&tcp, "ready");

    /* 7. and 8. The verbs, batch after batch. Verify each. The receives of the next batch are
     * posted before the other side can send it: the client's before its SENDs, the server's before
     * the answer that lets the client send. */
    bool pass = true;
    uint64_t digest = FNV_BASIS;
    for (uint64_t i = 0; i < opt.iters; i += batch) {
        const uint64_t left = opt.iters - i, more = left - (left < batch ? left : batch);
        const uint32_t count = (uint32_t)(left - more);
        const uint32_t next = (uint32_t)(more < batch ? more : batch);
        if (client) send_batch(&s, i, count);
        if (!client) take(&s, true, i, count);
        pass = verify_batch(&s, i, count, &digest) && pass;
        if (!client) memcpy(s.out, s.in, count * opt.size);
        if (next > 0) post_receives(&s, i + batch, next);
        if (!client) post(&s, i, count);
        if (!client) take(&s, false, i, count);
    }
    rendezvous_sync(&tcp, "done");
    printf("%s %ju messages of %ju bytes in batches of %u and %s\n", client ? "sent" : "received",
           opt.iters, opt.size, batch, client ? "got each back" : "sent each back");
    if (client) print_costs(&s, ctx, &opt);

    /* 8. Nothing around the buffers has changed. */
    pass = guards_ok("buffers", s.out, 2 * bytes) && pass;
    pass = rendezvous_verdict(&tcp, pass);

    /* 9. Undo in reverse order. */
    check(ibv_destroy_qp(s.qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(mr), "ibv_dereg_mr");
    check(ibv_destroy_cq(s.recv_cq), "ibv_destroy_cq");
    check(ibv_destroy_cq(s.send_cq), "ibv_destroy_cq");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(ctx), "ibv_close_device");
    guarded_free(s.out);
    return report_result(pass, opt.size * opt.iters, digest);
}
