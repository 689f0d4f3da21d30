/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 15_flush - a log in the server's memory. The client appends a record with three requests: WRITE
 * of the record, FLUSH (it is visible), ATOMIC WRITE of the log's tail. The server reads along: it
 * polls the tail, and each record in front of the tail is complete.
 *
 *   gcc -I../common -o flush flush.c ../common/[a-z]*.c -libverbs
 *   ./flush               in one terminal: the server
 *   ./flush 127.0.0.1     in another: the client; the server's address
 *
 * It takes rdma-core 45 and, for Soft-RoCE, Linux 6.2. Elsewhere it says so and exits with 77.
 * The client prints, after the lines of the device (the server: similar lines):
 *   appended 100 records of 4096 bytes, with 3 requests each
 *   RESULT sample=15_flush role=client status=PASS bytes=409600 digest=...
 *
 * Rendezvous: record i, from 0 to iters - 1, is the pattern (pattern.h) of seed + i, size bytes;
 * the log is at most 64M. The server exposes 8 bytes of tail, and behind them the log. The tail is
 * the number of bytes in the log, in network byte order. rd_atomic is 2. Barriers: ready, done.
 */
#define _DEFAULT_SOURCE
#include "device.h"
#include "newer.h"
#include "pattern.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"

#include <endian.h>
#include <sched.h>

enum { TAIL = sizeof(uint64_t) }; /* bytes in front of the log */

static const char *check_log_size(struct options *opt, const char *text) {
    if (*text) return "work= has a field too many";
    return opt->size * opt->iters <= MAX_SIZE ? NULL : "the log is larger than 64M";
}

/* Exits unless the device has both operations. Each is a right of its own, and not even all new
 * devices have them. */
static void require_flush(struct ibv_context *ctx, const char *device) {
    const uint64_t both = IB_UVERBS_DEVICE_FLUSH_GLOBAL | IB_UVERBS_DEVICE_ATOMIC_WRITE;
    struct ibv_device_attr_ex attr;
    check(ibv_query_device_ex(ctx, NULL, &attr), "ibv_query_device_ex");
    if ((attr.device_cap_flags_ex & both) != both)
        stop(EXIT_NO_DEVICE, 0,
             "no FLUSH or no ATOMIC WRITE on %s: Soft-RoCE has them since Linux 6.2", device);
}

/* What the client needs to append. */
struct writer {
    struct ibv_qp_ex *qpx;
    struct ibv_mr *mr; /* of the record */
    char *record;
    uint32_t size;
    const struct endpoint *peer;
    bool flush, atomic; /* the options */
};

/* Client: 7. the verbs. Between ibv_wr_start and ibv_wr_complete each call adds a request, which
 * takes qpx->wr_id and qpx->wr_flags as they are then; ibv_wr_complete posts them all. Nobody waits
 * in between: the ATOMIC WRITE is not executed before the FLUSH is, and the FLUSH not before the
 * bytes of the WRITE are where every reader sees them. */
static void append(const struct writer *w, uint64_t number) {
    const uint64_t end = (number + 1) * w->size;
    const uint64_t at = w->peer->addr + TAIL + end - w->size;
    const uint64_t tail = htobe64(end);
    struct ibv_qp_ex *qpx = w->qpx;
    ibv_wr_start(qpx);
    qpx->wr_id = number;
    qpx->wr_flags = 0;
    ibv_wr_rdma_write(qpx, w->peer->rkey, at);
    ibv_wr_set_sge(qpx, w->mr->lkey, (uintptr_t)w->record, w->size);
    if (w->flush) ibv_wr_flush(qpx, w->peer->rkey, at, w->size, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
    qpx->wr_flags = IBV_SEND_SIGNALED; /* the last: it completes after those before it */
    if (w->atomic) {
        ibv_wr_atomic_write(qpx, w->peer->rkey, w->peer->addr, &tail); /* copies the 8 bytes */
    } else {
        qpx->wr_flags |= IBV_SEND_INLINE; /* so does this */
        ibv_wr_rdma_write(qpx, w->peer->rkey, w->peer->addr);
        ibv_wr_set_inline_data(qpx, (void *)(uintptr_t)&tail, TAIL);
    }
    check(ibv_wr_complete(qpx), "ibv_wr_complete of a record");
}

/* Appends all records. */
static void write_log(const struct writer *w, struct ibv_cq *cq, const struct options *opt) {
    for (uint64_t i = 0; i < opt->iters; i++) {
        struct ibv_wc wc;
        pattern_fill(w->record, w->size, opt->seed + i);
        append(w, i);
        wait_completion(cq, "the requests of a record", opt->timeout, &wc);
        if (wc.wr_id != i) die(0, "another request's completion");
    }
}

/* Server: reads along until the log is complete. The tail is loaded in one piece (8 bytes,
 * aligned), and before what lies in front of it (acquire: enough where the NIC is a CPU; for a card
 * there are barriers for its DMA). Returns whether no record was torn. */
static bool read_log(const char *memory, const struct options *opt) {
    const uint64_t all = opt->size * opt->iters;
    uint64_t seen = 0, moves = 0, torn = 0;
    double last = now();
    while (seen < all) {
        const uint64_t tail =
            be64toh(__atomic_load_n((const uint64_t *)(const void *)memory, __ATOMIC_ACQUIRE));
        if (tail == seen) {
            if (now() - last > (double)opt->timeout)
                die(0, "the tail is at byte %ju of %ju for %ju s", seen, all, opt->timeout);
            sched_yield(); /* a software NIC needs the CPU */
            continue;
        }
        if (tail < seen || tail > all || tail % opt->size != 0)
            die(0, "a torn tail: %ju after %ju", tail, seen);
        for (; seen < tail; seen += opt->size) {
            const uint64_t number = seen / opt->size;
            const size_t wrong =
                pattern_mismatch(memory + TAIL + seen, opt->size, opt->seed + number);
            if (wrong == opt->size) continue;
            if (torn++ == 0)
                expect(false, "record %ju is torn: the tail is behind it, but not its byte %zu",
                       number, wrong);
        }
        moves++;
        last = now();
    }
    printf("read %ju records while they came: the tail moved %ju times, %ju records were torn\n",
           opt->iters, moves, torn);
    return torn == 0;
}

int main(int argc, char **argv) {
    /* 1. Options. A host argument makes this the client. */
    uint64_t no_flush = 0, plain_tail = 0;
    struct options opt = {.sample = "15_flush", .size = 4096, .iters = 100, .seed = 1};
    const struct option_row rows[] = {
        {'s', "size", "BYTES", "bytes in a record", NUMBER(opt.size, 1, MAX_SIZE)},
        {'n', "iters", "N", "number of records", NUMBER(opt.iters, 1, MAX_ITERS)},
        {'S', "seed", "N", "seed of the test data", NUMBER(opt.seed, 0, UINT64_MAX)},
        {0, "no-flush", NULL, "leave out the FLUSH", NUMBER(no_flush, 1, 1)},
        {0, "plain-tail", NULL, "WRITE the tail, not ATOMIC WRITE", NUMBER(plain_tail, 1, 1)},
        {0},
    };
    opt.parse_work = check_log_size;
    parse_options(&opt, rows, argc, argv);
    const bool client = opt.host != NULL;
    if (!HAVE_FLUSH)
        stop(EXIT_NO_DEVICE, 0,
             "compiled with headers older than rdma-core 45, which have no "
             "ibv_wr_flush: Debian 13 or Ubuntu 24.04 have newer ones");

    /* 2. Start the rendezvous. Device, protection domain, completion queue. */
    struct rendezvous tcp;
    struct endpoint peer;
    struct port port;
    rendezvous_open(&tcp, &opt, &peer);
    struct ibv_context *ctx = open_device(&opt, tcp.fd, &port);
    require_flush(ctx, port.device);
    errno = 0; /* a driver may return NULL and leave it: then no old error is told */
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    if (!pd) die(errno, "ibv_alloc_pd");
    struct ibv_cq *cq = ibv_create_cq(ctx, 3, NULL, NULL, 0);
    if (!cq) die(errno, "ibv_create_cq");

    /* 3. Memory. Server: the tail, and behind it the log. The peer may write it (that is the right
     * for an ATOMIC WRITE, too) and flush it for visibility. FLUSH_PERSISTENT would be the right to
     * make it durable. Client: a record, which its own NIC reads. */
    const size_t bytes = client ? opt.size : TAIL + opt.size * opt.iters;
    enum { RIGHTS = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_FLUSH_GLOBAL };
    char *memory = guarded_alloc(bytes);
    poison_fill(memory, bytes, opt.seed);
    if (!client) memset(memory, 0, TAIL); /* the log is empty */
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, bytes, client ? 0 : IBV_ACCESS_LOCAL_WRITE | RIGHTS);
    if (!mr) die(errno, "ibv_reg_mr of %zu bytes", bytes);

    /* 4. The queue pair. ibv_post_send knows neither FLUSH nor ATOMIC WRITE: only the newer calls
     * ibv_wr_... do, and a queue pair for these is told which of them it will get. */
    struct ibv_qp_init_attr_ex init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 3, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1},
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = pd,
        .send_ops_flags =
            IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_ATOMIC_WRITE,
    };
    init.cap.max_inline_data = TAIL; /* for --plain-tail */
    errno = 0;
    struct ibv_qp *qp = ibv_create_qp_ex(ctx, &init);
    if (!qp && errno == EOPNOTSUPP)
        stop(EXIT_NO_DEVICE, errno,
             "ibv_create_qp_ex: this libibverbs (before rdma-core 45) or its "
             "driver has no FLUSH");
    if (!qp) die(errno, "ibv_create_qp_ex");

    /* 5. Exchange. FLUSH and ATOMIC WRITE count as READs do: the server answers both of a record at
     * a time. */
    const struct endpoint mine = {
        .lid = port.lid,
        .qpn = qp->qp_num,
        .psn = random_psn(),
        .gid = port.gid,
        .mtu = port.mtu,
        .addr = client ? 0 : (uintptr_t)memory,
        .rkey = client ? 0 : mr->rkey,
        .len = client ? 0 : bytes,
        .max_sge = 1,
        .rd_atomic = client ? 0 : 2,
    };
    rendezvous_swap(&tcp, &mine, &peer);
    if (client && peer.rd_atomic == 0) die(0, "the server answers no FLUSH: its rd_atomic is 0");

    /* 6. RESET -> INIT -> RTR -> RTS. The queue pair, too, must allow the FLUSH. */
    qp_to_init(qp, &port, client ? 0 : RIGHTS);
    qp_to_rtr(qp, &port, &peer, mine.rd_atomic);
    qp_to_rts(qp, mine.psn, min_u32(peer.rd_atomic, 2), ACK_TIMEOUT);
    rendezvous_sync(&tcp, "ready");

    /* 7. and 8. The client appends. The server verifies each record as soon as it may. */
    bool pass = true;
    if (client) {
        struct ibv_qp_ex *qpx = ibv_qp_to_qp_ex(qp);
        if (!qpx) die(0, "ibv_qp_to_qp_ex");
        const struct writer writer = {
            .qpx = qpx,
            .mr = mr,
            .record = memory,
            .size = (uint32_t)opt.size,
            .peer = &peer,
            .flush = no_flush == 0,
            .atomic = plain_tail == 0,
        };
        write_log(&writer, cq, &opt);
        printf("appended %ju records of %ju bytes, with %d requests each\n", opt.iters, opt.size,
               no_flush ? 2 : 3);
    } else {
        pass = read_log(memory, &opt);
    }
    rendezvous_sync(&tcp, "done");

    /* 8. Verify every byte once more, at the end, on both sides. */
    uint64_t digest = FNV_BASIS;
    for (uint64_t i = 0; i < opt.iters; i++) {
        char *record = client ? memory : memory + TAIL + i * opt.size;
        if (client) pattern_fill(record, opt.size, opt.seed + i);
        pass = pass && pattern_ok("a record", record, opt.size, opt.seed + i);
        digest = fnv1a(digest, record, opt.size);
    }
    pass = guards_ok("memory", memory, bytes) && pass;
    pass = rendezvous_verdict(&tcp, pass);

    /* 9. Undo in reverse order. */
    check(ibv_destroy_qp(qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(mr), "ibv_dereg_mr");
    check(ibv_destroy_cq(cq), "ibv_destroy_cq");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(ctx), "ibv_close_device");
    guarded_free(memory);
    return report_result(pass, opt.size * opt.iters, digest);
}
