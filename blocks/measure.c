/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "measure.h"
#include "pattern.h"
#include "report.h"

#include <poll.h>
#include <unistd.h>

int measuring_ack_timeout(const struct ibv_device_attr *device, const struct options *opt) {
    int code = ACK_TIMEOUT;
    if (device->vendor_id != 0xffffff) return code;
    while (code < 25 && 4.096e-6 * (double)(2u << code) < (double)opt->timeout) code++;
    return code;
}

#ifndef ROUND_BYTES /* in a round for bandwidth: long beside the clock's step; less to grade */
#define ROUND_BYTES ((size_t)2 << 20)
#endif

/* Messages in such a round. */
static unsigned bandwidth_count(const struct layout *l) {
    const size_t n = ROUND_BYTES / l->bytes;
    return n < 2 ? 2 : n > 512 ? 512 : (unsigned)n;
}

/* For latency fewer, but not of the shortest messages: the kernel leaves the first ones after a
 * pause to a thread of its own, which takes longer, and these must stay the minority. */
static unsigned latency_count(const struct layout *l) {
    const unsigned n = bandwidth_count(l);
    return n == 512 ? n : n < 8 ? 2 : n / 4;
}

/* How often the port sent something again, or got it again, since its device came up: the sum of
 * these hardware counters (rdma-statistic(8)). rxe has the first three, mlx5 the second and the
 * last three. */
static uint64_t retransmissions(const struct port *port) {
    static const char *const counters[] = {"completer_retry_err", "duplicate_request",
                                           "retry_exceeded_err",  "local_ack_timeout_err",
                                           "packet_seq_err",      "implied_nak_seq_err"};
    uint64_t sum = 0;
    poll(NULL, 0, 20); /* what the kernel shows may be 10 ms old */
    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
        char path[256];
        uint64_t value = 0;
        snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%u/hw_counters/%s",
                 port->device, port->num, counters[i]);
        FILE *file = fopen(path, "r");
        if (file && fscanf(file, "%ju", &value) == 1) sum += value;
        if (file) fclose(file);
    }
    return sum;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The q-th part of n values, which it sorts: 0.5 the median, 0.99 the 99th percentile. */
static double quantile(double *values, size_t n, double q) {
    qsort(values, n, sizeof(*values), ascending);
    if (q == 0.5 && n % 2 == 0) return (values[n / 2 - 1] + values[n / 2]) / 2;
    const size_t place = (size_t)(q * (double)n);
    return values[place < n ? place : n - 1];
}

/* One transfer, started on both sides together. Returns its seconds. */
static double timed_transfer(const struct benchmark *m, struct rendezvous *tcp,
                             const struct layout *l, enum method method, unsigned count,
                             unsigned depth, double *latency) {
    method = method_for(method, l, m->mtu);
    if (m->prepost) m->prepost(m->arg, l, method, count, depth);
    rendezvous_sync(tcp, "go");
    const double start = now();
    if (m->transfer) m->transfer(m->arg, l, method, count, depth, latency);
    return now() - start;
}

static bool verify_point(const struct benchmark *m, struct rendezvous *tcp,
                         const struct layout *l) {
    bool pass = true;
    for (enum method method = 0; method < METHOD_COUNT; method++) {
        memory_prepare(m->memory, l, method);
        timed_transfer(m, tcp, l, method, 1, 1, NULL);
        rendezvous_sync(tcp, "verify");
        if (!memory_ok(m->memory, l))
            pass = expect(false, "by %s, block size %zu", method_names[method], l->block_size);
    }
    return pass;
}

/* What the CPU's part of METHOD_COPY costs by itself: seconds for a message. */
static double time_copies(const struct benchmark *m, const struct layout *l, unsigned count) {
    char *blocks = guarded_alloc(l->span);
    char *message = guarded_alloc(l->bytes);
    layout_fill(l, blocks, 0, false);
    layout_pack(l, blocks, message); /* touches every page once */
    const double start = now();
    for (unsigned i = 0; i < count; i++) {
        if (m->packs) layout_pack(l, blocks, message);
        if (m->unpacks) layout_unpack(l, message, blocks);
    }
    const double seconds = (now() - start) / count;
    guarded_free(blocks);
    guarded_free(message);
    return seconds;
}

static double *allocate(size_t n) {
    double *values = calloc(n, sizeof(*values));
    if (!values) die(errno, "calloc");
    return values;
}

/* All methods, round by round in rotated order, so that drift hits them alike. Round 0 warms up. */
static void measure_point(const struct benchmark *m, struct rendezvous *tcp,
                          const struct block_work *work, size_t point, FILE *csv) {
    static const char *const formats[] = {
        "BENCH method=%s block_size=%zu block_num=%zu stride=%zu bytes=%zu iters=%u depth=%u "
        "clock=%s lat_p50_us=%.2f lat_p99_us=%.2f bw_MBps=%.3f copy_us=%.2f repeats=%ju\n",
        "%s,%zu,%zu,%zu,%zu,%u,%u,%s,%.2f,%.2f,%.3f,%.2f,%ju,%s,%s,%u,%u\n"};
    const struct layout *l = &work->plan.point[point];
    const char *clock = getenv("TESTENV_CLOCK") ? getenv("TESTENV_CLOCK") : "real";
    const unsigned rounds = (unsigned)tcp->opt->iters;
    const unsigned lats = latency_count(l);
    const unsigned count = bandwidth_count(l);
    const unsigned depth = plan_depth(l, work->depth);
    const size_t n = rounds + 1; /* round 0 included; of the arrays, a method's part */
    double *latency = allocate(METHOD_COUNT * n * lats);
    double *bandwidth = allocate(METHOD_COUNT * n);
    double *copy = allocate(n);
    const uint64_t before = tcp->opt->host ? retransmissions(m->port) : 0;
    FILE *outs[] = {stdout, csv};
    for (unsigned round = 0; round <= rounds; round++) {
        for (unsigned i = 0; i < METHOD_COUNT; i++) {
            const enum method k = (i + round) % METHOD_COUNT;
            timed_transfer(m, tcp, l, k, lats, 1, latency + (k * n + round) * lats);
            const double seconds = timed_transfer(m, tcp, l, k, count, depth, NULL);
            bandwidth[k * n + round] = (double)l->bytes * count / seconds;
        }
        if (tcp->opt->host) copy[round] = time_copies(m, l, count);
    }
    /* A side without a part in the last transfer must not take the CPU meanwhile. */
    rendezvous_sync(tcp, "measured");
    const uint64_t repeats = tcp->opt->host ? retransmissions(m->port) - before : 0;
    for (size_t k = 0; k < METHOD_COUNT; k++) {
        double *lat = latency + (k * n + 1) * lats;
        const double p50 = quantile(lat, rounds * (size_t)lats, 0.5) * 1e6;
        const double p99 = quantile(lat, rounds * (size_t)lats, 0.99) * 1e6;
        const double mbps = quantile(bandwidth + k * n + 1, rounds, 0.5) * 1e-6;
        for (int out = 0; out < 2 && tcp->opt->host; out++)
            if (outs[out])
                fprintf(outs[out], formats[out], method_names[k], l->block_size, l->block_num,
                        l->stride, l->bytes, rounds * count, depth, clock, p50, p99, mbps,
                        quantile(copy + 1, rounds, 0.5) * 1e6, repeats, tcp->opt->sample,
                        point < work->plan.size_points ? "message" : "block", m->mtu, m->max_sge);
    }
    free(latency);
    free(bandwidth);
    free(copy);
}

bool measure(const struct benchmark *m, struct rendezvous *tcp, const struct block_work *work) {
    const bool client = tcp->opt->host != NULL;
    /* Opened first: minutes of measuring must not end at a name that can't be written. */
    FILE *csv = client && work->csv ? fopen(work->csv, "w") : NULL;
    bool pass = true;
    if (client && work->csv && !csv) die(errno, "cannot write %s", work->csv);
    const size_t registered = m->memory->span + m->memory->contig_size;
    if (client) printf("REGISTER bytes=%zu us=%.1f\n", registered, m->reg_seconds * 1e6);
    if (csv)
        fputs("method,block_size,block_num,stride,bytes,iters,depth,clock,lat_p50_us,lat_p99_us,"
              "bw_MBps,copy_us,repeats,sample,sweep,mtu,max_sge\n",
              csv);
    for (size_t i = 0; i < work->plan.count; i++) {
        if (client && isatty(STDERR_FILENO))
            fprintf(stderr, "\rmeasuring point %zu of %zu\r", i + 1, work->plan.count);
        pass = verify_point(m, tcp, &work->plan.point[i]) && pass;
        measure_point(m, tcp, work, i, csv);
        pass = verify_point(m, tcp, &work->plan.point[i]) && pass;
    }
    const bool lost = csv && ferror(csv); /* earlier: fclose would not tell */
    if (csv && (fclose(csv) != 0 || lost)) die(lost ? 0 : errno, "cannot write %s", work->csv);
    return pass;
}
