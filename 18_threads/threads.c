/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 18_threads - the client's threads WRITE messages, each into its own part of the server's memory:
 *   --share none   each thread has a queue pair (QP) and a completion queue (CQ) of its own
 *   --share qp     all threads use one QP and one CQ, under a lock of the program
 *
 *   gcc -I../common -o threads threads.c ../common/[a-z]*.c -libverbs -pthread
 *   ./threads               in one terminal: the server
 *   ./threads 127.0.0.1     in another: the client; the server's address
 *
 * The client prints, after the lines of the device (the server: similar lines):
 *   4 threads wrote 64 messages of 4096 bytes each, by 1 queue pair
 *   BENCH share=qp threads=4 size=4096 iters=64 others=... waits=... message_us=...
 *   RESULT sample=18_threads role=client status=PASS bytes=1048576 digest=...
 *
 * BENCH: completions that another thread has taken than the one whose request it was (others),
 * times that a thread found the lock held (waits), and microseconds for a message, all threads
 * together.
 *
 * Rendezvous: work= ends with threads (1 to 16) and share (none or qp). Thread t writes the
 * messages t * iters to t * iters + iters - 1. Message m is the pattern (pattern.h) of seed + m,
 * size bytes, at m * size. The digest covers all of them in this order. The line has the first
 * QPN; for each further QP, of either side, there is a barrier qpn=0x000012; the PSN is that of
 * the line. Barriers: qpn=..., ready, done.
 */
#define _GNU_SOURCE
#include "device.h"
#include "pattern.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>

enum { MAX_THREADS = 16 };

struct work {
    uint64_t threads;
    const char *share;
};

/* A QP and its CQ, and what the program itself knows about them. Of one thread, or of all: then
 * the lock guards what stands below it. No two lie in one line of a CPU's cache. */
struct lane {
    _Alignas(64) struct ibv_qp *qp;
    struct ibv_cq *cq;
    bool shared;
    pthread_mutex_t lock;
    uint64_t posted, taken;          /* requests; completions */
    uint64_t under_way[MAX_THREADS]; /* wr_ids of requests without a completion, as posted */
    uint64_t others, waits;
};

struct thread {
    _Alignas(64) pthread_t handle;
    struct run *run;
    struct lane *lane;
    uint64_t first; /* its first message */
    uint64_t done;  /* its messages that have completed. Guarded by the lane's lock */
};

/* What all threads read; none of them writes it. */
struct run {
    struct options *opt;
    char *memory;
    struct ibv_mr *mr;
    struct endpoint peer;
    struct lane lanes[MAX_THREADS];
    struct thread threads[MAX_THREADS];
};

static void format_work(const struct options *opt, char *out, size_t room) {
    const struct work *work = opt->work;
    snprintf(out, room, ",threads=%ju,share=%s", work->threads, work->share);
}

static const char *misfit(const struct options *opt) {
    const struct work *work = opt->work;
    return work->threads * opt->iters * opt->size > MAX_SIZE ? "the messages exceed 64M" : NULL;
}

static const char *parse_work(struct options *opt, const char *text) {
    struct work *work = opt->work;
    char again[64];
    const char *share = strstr(text, ",share=");
    work->threads = strncmp(text, ",threads=", 9) == 0 ? strtoul(text + 9, NULL, 10) : 0;
    work->share = share && strcmp(share, ",share=none") == 0 ? "none" : "qp";
    format_work(opt, again, sizeof(again));
    if (strcmp(text, again) != 0) return "threads or share is malformed";
    if (work->threads < 1 || work->threads > MAX_THREADS) return "threads must be 1 to 16";
    return misfit(opt);
}

/* Enters what only one thread at a time may do with a lane. (These mutexes are plain ones: to lock
 * or unlock one cannot fail.) */
static void enter(struct lane *lane) {
    if (!lane->shared || pthread_mutex_trylock(&lane->lock) == 0) return;
    pthread_mutex_lock(&lane->lock);
    lane->waits++;
}

static void leave(struct lane *lane) {
    if (lane->shared) pthread_mutex_unlock(&lane->lock);
}

/* 7. Posts a WRITE of message m. ibv_post_send needs no lock of ours. But what it does and what
 * the program notes about it have to be in the same order: so both are within one. */
static void post_write(struct thread *t, uint64_t m) {
    const struct run *run = t->run;
    struct lane *lane = t->lane;
    const uint64_t size = run->opt->size, at = m * size;
    struct ibv_sge sge = {
        .addr = (uintptr_t)run->memory + at,
        .length = (uint32_t)size,
        .lkey = run->mr->lkey,
    };
    struct ibv_send_wr wr = {
        .wr_id = m, /* by which whoever takes the completion knows whose it is */
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = run->peer.addr + at, .rkey = run->peer.rkey},
    };
    struct ibv_send_wr *bad_wr;
    pattern_fill(run->memory + at, size, run->opt->seed + m); /* no other thread's memory */

    enter(lane);
    lane->under_way[lane->posted % MAX_THREADS] = m;
    lane->posted++;
    check(ibv_post_send(lane->qp, &wr, &bad_wr), "ibv_post_send of a WRITE");
    leave(lane);
}

/* A completion has come: the first of those that are missing, because a send queue is worked off in
 * order. It is the owner's, whichever thread has taken it. */
static void on_completion(struct thread *taker, const struct ibv_wc *wc) {
    struct lane *lane = taker->lane;
    const uint64_t expected = lane->under_way[lane->taken % MAX_THREADS];
    lane->taken++;
    if (wc->status != IBV_WC_SUCCESS) die_wc(wc, "a WRITE");
    if (wc->wr_id != expected)
        die(0, "another request's completion: %ju, not %ju", wc->wr_id, expected);
    struct thread *owner = &taker->run->threads[wc->wr_id / taker->run->opt->iters];
    owner->done++;
    if (owner != taker) lane->others++;
}

/* Takes the completions that are there, and returns how many of this thread's messages are done.
 * Each completion is taken by one thread alone, also without this lock; but what follows from it
 * has to be known before another thread looks. */
static uint64_t take(struct thread *t) {
    struct ibv_wc wc[MAX_THREADS];
    enter(t->lane);
    const int n = ibv_poll_cq(t->lane->cq, MAX_THREADS, wc);
    if (n < 0) die(0, "ibv_poll_cq");
    for (int k = 0; k < n; k++) on_completion(t, &wc[k]);
    const uint64_t done = t->done;
    leave(t->lane);
    return done;
}

/* Before each poll: gives the CPU to the other threads, and to a NIC of software. */
static void wait_a_little(uint64_t timeout, double *since) {
    if (*since == 0) *since = now();
    const double waited = now() - *since;
    if (waited > (double)timeout) die(0, "no completion of a WRITE in %ju s", timeout);
    if (waited < 0.1) sched_yield();
    if (waited >= 0.1) poll(NULL, 0, 1);
}

/* What a thread does: message after message, one at a time. */
static void *write_messages(void *arg) {
    struct thread *t = arg;
    for (uint64_t i = 0; i < t->run->opt->iters; i++) {
        double since = 0;
        post_write(t, t->first + i);
        do wait_a_little(t->run->opt->timeout, &since);
        while (take(t) <= i);
    }
    return NULL;
}

/* Runs the client's threads. Returns the seconds until the last one has ended. */
static double run_threads(struct run *run, uint64_t count) {
    const double began = now();
    for (uint64_t k = 0; k < count; k++) {
        struct thread *t = &run->threads[k];
        check(pthread_create(&t->handle, NULL, write_messages, t), "pthread_create");
    }
    for (uint64_t k = 0; k < count; k++)
        check(pthread_join(run->threads[k].handle, NULL), "pthread_join");
    return now() - began;
}

/* What it took, in the machine-read form. */
static void print_costs(const struct run *run, double seconds) {
    const struct work *work = run->opt->work;
    const struct lane *lane = run->lanes; /* the shared one; others are nobody else's */
    printf("BENCH share=%s threads=%ju size=%ju iters=%ju others=%ju waits=%ju message_us=%.3f\n",
           work->share, work->threads, run->opt->size, run->opt->iters, lane->others, lane->waits,
           seconds * 1e6 / (double)(work->threads * run->opt->iters));
}

/* 4. A queue pair with its completion queue. Both have room for a request of each thread. */
static void create_lane(struct lane *lane, struct ibv_context *ctx, struct ibv_pd *pd,
                        uint32_t users) {
    *lane = (struct lane){.shared = users > 1, .lock = PTHREAD_MUTEX_INITIALIZER};
    errno = 0; /* a driver may return NULL and leave it: then no old error is told */
    lane->cq = ibv_create_cq(ctx, (int)users, NULL, NULL, 0);
    if (!lane->cq) die(errno, "ibv_create_cq");
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = lane->cq,
        .recv_cq = lane->cq,
        .cap = {.max_send_wr = users, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1},
    };
    errno = 0;
    lane->qp = ibv_create_qp(pd, &init);
    if (!lane->qp) die(errno, "ibv_create_qp");
}

/* 5. Exchanges the QPN of a further queue pair. */
static void swap_qpn(struct rendezvous *tcp, const struct lane *lane, struct endpoint *peer) {
    char step[32], *end;
    sprintf(step, "qpn=0x%06x", lane->qp->qp_num);
    rendezvous_sync(tcp, step);
    const char *number = tcp->line + strlen("sync qpn=");
    peer->qpn = (uint32_t)strtoul(number, &end, 16);
    if (end == number || *end || peer->qpn > 0xffffff) die(0, "the peer sent '%s'", tcp->line);
}

/* 8. Verify every byte of every message, up to the first one that is wrong. */
static bool verify_messages(const struct run *run, uint64_t count) {
    const uint64_t size = run->opt->size, iters = run->opt->iters;
    bool pass = true;
    for (uint64_t m = 0; m < count && pass; m++) {
        char what[64];
        snprintf(what, sizeof(what), "message %ju of thread %ju", m % iters, m / iters);
        pass = pattern_ok(what, run->memory + m * size, size, run->opt->seed + m);
    }
    return pass;
}

int main(int argc, char **argv) {
    /* 1. Options. A host argument makes this the client. */
    struct work work = {.threads = 4, .share = "qp"};
    struct options opt = {
        .sample = "18_threads",
        .size = 4096,
        .iters = 64,
        .seed = 1,
        .work = &work,
        .format_work = format_work,
        .parse_work = parse_work,
    };
    const struct option_row rows[] = {
        {'s', "size", "BYTES", "bytes in a message", NUMBER(opt.size, 1, MAX_SIZE)},
        {'n', "iters", "N", "messages of each thread", NUMBER(opt.iters, 1, MAX_ITERS)},
        {'S', "seed", "N", "seed of the test data", NUMBER(opt.seed, 0, UINT64_MAX)},
        {0, "threads", "N", "threads of the client", NUMBER(work.threads, 1, MAX_THREADS)},
        {0, "share", "WHAT", "none (a QP for each thread) or qp", .text = &work.share},
        {0},
    };
    parse_options(&opt, rows, argc, argv);
    const bool client = opt.host != NULL;
    if (strcmp(work.share, "none") != 0 && strcmp(work.share, "qp") != 0)
        stop(EXIT_USAGE, 0, "--share: none or qp");
    if (misfit(&opt)) stop(EXIT_USAGE, 0, "--threads, --iters, --size: %s", misfit(&opt));

    /* 2. Start the rendezvous. Device and protection domain: one for all threads. */
    struct run run = {.opt = &opt};
    struct rendezvous tcp;
    struct port port;
    rendezvous_open(&tcp, &opt, &run.peer);
    struct ibv_context *ctx = open_device(&opt, tcp.fd, &port);
    errno = 0;
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    if (!pd) die(errno, "ibv_alloc_pd");
    const bool share = strcmp(work.share, "qp") == 0;
    const uint64_t lanes = share ? 1 : work.threads, count = work.threads * opt.iters;

    /* 3. Memory, on both sides with a place for each message. One region serves all threads. */
    const uint64_t bytes = count * opt.size;
    const unsigned access = client ? 0 : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    run.memory = guarded_alloc(bytes);
    poison_fill(run.memory, bytes, opt.seed);
    errno = 0;
    run.mr = ibv_reg_mr(pd, run.memory, bytes, access);
    if (!run.mr) die(errno, "ibv_reg_mr of %ju bytes", bytes);

    /* 4. The lanes, and which one each thread uses. The server needs no threads: it only lends. */
    for (uint64_t k = 0; k < lanes; k++)
        create_lane(&run.lanes[k], ctx, pd, share ? (uint32_t)work.threads : 1);
    for (uint64_t k = 0; k < work.threads; k++)
        run.threads[k] = (struct thread){
            .run = &run,
            .lane = &run.lanes[share ? 0 : k],
            .first = k * opt.iters,
        };

    /* 5. Exchange. */
    const struct endpoint mine = {
        .lid = port.lid,
        .qpn = run.lanes[0].qp->qp_num,
        .psn = random_psn(),
        .gid = port.gid,
        .mtu = port.mtu,
        .addr = client ? 0 : (uintptr_t)run.memory,
        .rkey = client ? 0 : run.mr->rkey,
        .len = client ? 0 : bytes,
        .max_sge = 1,
    };
    rendezvous_swap(&tcp, &mine, &run.peer);

    /* 6. RESET -> INIT -> RTR -> RTS, for each queue pair. */
    for (uint64_t k = 0; k < lanes; k++) {
        struct ibv_qp *qp = run.lanes[k].qp;
        if (k > 0) swap_qpn(&tcp, &run.lanes[k], &run.peer);
        qp_to_init(qp, &port, client ? 0 : IBV_ACCESS_REMOTE_WRITE);
        qp_to_rtr(qp, &port, &run.peer, 0);
        qp_to_rts(qp, mine.psn, 0, ACK_TIMEOUT);
    }
    rendezvous_sync(&tcp, "ready");

    /* 7. The verbs. */
    double seconds = 0;
    if (client) seconds = run_threads(&run, work.threads);
    rendezvous_sync(&tcp, "done");
    printf("%ju thread%s wrote %ju messages of %ju bytes each, by %ju queue pair%s\n", work.threads,
           work.threads == 1 ? "" : "s", opt.iters, opt.size, lanes, lanes == 1 ? "" : "s");
    if (client) print_costs(&run, seconds);

    /* 8. Verify every byte, on both sides. */
    const uint64_t digest = fnv1a(FNV_BASIS, run.memory, bytes);
    bool pass = verify_messages(&run, count);
    pass = guards_ok("memory", run.memory, bytes) && pass;
    pass = rendezvous_verdict(&tcp, pass);

    /* 9. Undo in reverse order. */
    for (uint64_t k = lanes; k-- > 0;) check(ibv_destroy_qp(run.lanes[k].qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(run.mr), "ibv_dereg_mr");
    for (uint64_t k = lanes; k-- > 0;) check(ibv_destroy_cq(run.lanes[k].cq), "ibv_destroy_cq");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(ctx), "ibv_close_device");
    guarded_free(run.memory);
    return report_result(pass, bytes, digest);
}
