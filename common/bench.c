#define _GNU_SOURCE
#include "bench.h"

#include "data.h"
#include "deadline.h"
#include "device.h"
#include "options.h"
#include "rendezvous.h"
#include "report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const method_names[METHOD_COUNT] = {"sgl", "copy", "each", "auto",
                                                       "contig"};

bool method_by_name(const char *name, enum method *method)
{
    for (int m = METHOD_SGL; m <= METHOD_AUTO; m++) {
        if (strcmp(name, method_names[m]) == 0) {
            *method = (enum method)m;
            return true;
        }
    }
    return false;
}

enum method method_for(const struct layout *l, unsigned mtu)
{
    return l->block_size >= mtu ? METHOD_SGL : METHOD_COPY;
}

/* ---- what to measure ---- */

static const char *add_point(struct bench_plan *plan, size_t block_size, size_t bytes)
{
    struct layout *l = &plan->point[plan->count];
    size_t block_num = bytes / block_size ? bytes / block_size : 1;
    const char *reason = plan->count == MAX_POINTS ? "more than 40 points" : NULL;

    if (!reason)
        reason = layout_set(l, block_size, block_num, 2 * block_size);
    if (reason)
        return reason;
    plan->count++;
    return NULL;
}

const char *bench_make_plan(struct bench_plan *plan, const char *sizes, size_t block_size)
{
    const char *reason = NULL;
    char number[24];

    memset(plan, 0, sizeof(*plan));
    if (block_size > MAX_SPAN / 2)
        return "the blocks are too large to measure";
    for (const char *p = sizes; !reason;) {
        size_t len = strcspn(p, ",");
        uint64_t bytes;
        snprintf(number, sizeof(number), "%.*s", (int)(len < 23 ? len : 23), p);
        if (len > 22 || !parse_number(number, 1, MAX_SIZE, &bytes))
            return "a list of numbers from 1 to 64M is wanted, as 4K,64K,1M";
        reason = add_point(plan, block_size, bytes);
        if (p[len] == '\0')
            break;
        p += len + 1;
    }
    plan->by_size = plan->count;
    for (size_t b = 64; b <= SWEEP_BYTES && !reason; b *= 2)
        reason = add_point(plan, b, SWEEP_BYTES);
    return reason;
}

unsigned bench_depth(const struct layout *l, unsigned depth)
{
    size_t fit = MAX_SPAN / l->bytes;

    return depth < fit ? depth : fit > 0 ? (unsigned)fit : 1;
}

struct bench_room bench_room(const struct bench_plan *plan, unsigned depth)
{
    struct bench_room room = {0};

    for (size_t i = 0; i < plan->count; i++) {
        const struct layout *l = &plan->point[i];
        size_t staging = l->bytes * bench_depth(l, depth);
        room.bytes = l->bytes > room.bytes ? l->bytes : room.bytes;
        room.span = l->span > room.span ? l->span : room.span;
        room.staging = staging > room.staging ? staging : room.staging;
        room.block_num = l->block_num > room.block_num ? l->block_num : room.block_num;
    }
    return room;
}

enum { MOST_MESSAGES = 512 }; /* in a round */

/* Messages in a round: some MiB, so that a round is long beside the clock's step. */
static unsigned bandwidth_count(const struct layout *l)
{
    size_t n = ((size_t)2 << 20) / l->bytes;

    return n < 2 ? 2 : n > MOST_MESSAGES ? MOST_MESSAGES : (unsigned)n;
}

/* Fewer, one at a time; but not of the shortest: after a pause the kernel leaves some of
 * those to a thread of its own, which takes longer, and these must stay the minority. */
static unsigned latency_count(const struct layout *l)
{
    unsigned n = bandwidth_count(l);

    return n == MOST_MESSAGES ? n : n < 8 ? 2 : n / 4;
}

/* ---- one point ---- */

struct figures {
    double p50, p99;  /* of one message in flight, seconds */
    double bandwidth; /* median over the rounds, bytes a second */
    uint64_t repeats; /* packets sent again meanwhile: the figures are not the method's */
};

struct point_result {
    struct figures of[METHOD_COUNT];
    double copy; /* the CPU's copying of one message, seconds */
};

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The q-th part of n values, which it sorts: 0.5 the median, 0.99 the 99th percentile. */
static double quantile(double *values, size_t n, double q)
{
    qsort(values, n, sizeof(*values), ascending);
    if (q == 0.5 && n % 2 == 0)
        return (values[n / 2 - 1] + values[n / 2]) / 2;
    size_t place = (size_t)(q * (double)n);
    return values[place < n ? place : n - 1];
}

/* One transfer, started on both sides together. Returns its seconds. */
static double move(const struct bench_side *side, struct rendezvous *rv,
                   const struct layout *l, enum method m, unsigned count, unsigned depth,
                   double *latency)
{
    if (side->expect)
        side->expect(side->ctx, l, m, count, depth);
    rendezvous_sync(rv, "go");
    double start = now();
    if (side->transfer)
        side->transfer(side->ctx, l, m, count, depth, latency);
    return now() - start;
}

static bool verify_point(const struct bench_side *side, struct rendezvous *rv,
                         const struct layout *l)
{
    bool pass = true;

    for (int m = 0; m < METHOD_COUNT; m++) {
        side->prepare(side->ctx, l, (enum method)m);
        move(side, rv, l, (enum method)m, 1, 1, NULL);
        rendezvous_sync(rv, "verify");
        if (side->verify && !side->verify(side->ctx, l)) {
            fprintf(stderr, "method %s, block size %zu: the message is wrong\n",
                    method_names[m], l->block_size);
            pass = false;
        }
    }
    return pass;
}

/* What the CPU's part of METHOD_COPY costs by itself: seconds for a message. */
static double time_copies(const struct bench_side *side, const struct layout *l,
                          unsigned count)
{
    char *blocks = guarded_alloc(l->span), *message = guarded_alloc(l->bytes);

    layout_fill(l, blocks, 0);
    layout_pack(l, blocks, message); /* touches every page once */
    double start = now();
    for (unsigned i = 0; i < count; i++) {
        if (side->packs)
            layout_pack(l, blocks, message);
        if (side->unpacks)
            layout_unpack(l, message, blocks);
    }
    double seconds = (now() - start) / count;
    guarded_free(blocks);
    guarded_free(message);
    return seconds;
}

/* All methods, round by round in rotated order, so that drift hits them alike. Round 0
 * warms up and isn't counted. The client alone reads the counters, before and after what
 * it times; the server's reading would fall into the transfer, or not, by chance. */
static void measure_point(const struct bench_side *side, struct rendezvous *rv,
                          const struct layout *l, const struct options *opt,
                          struct point_result *result)
{
    const unsigned rounds = opt->iters, lats = latency_count(l);
    const unsigned count = bandwidth_count(l), depth = bench_depth(l, opt->depth);
    const size_t all = (size_t)rounds * lats;
    double *latency[METHOD_COUNT], *bandwidth[METHOD_COUNT], *copy;
    uint64_t repeats[METHOD_COUNT] = {0};

    for (int m = 0; m < METHOD_COUNT; m++) {
        latency[m] = calloc(all + lats, sizeof(double));
        bandwidth[m] = calloc(rounds + 1, sizeof(double));
        if (!latency[m] || !bandwidth[m])
            die(errno, "calloc");
    }
    copy = calloc(rounds + 1, sizeof(double));
    if (!copy)
        die(errno, "calloc");

    for (unsigned round = 0; round <= rounds; round++) {
        for (unsigned k = 0; k < METHOD_COUNT; k++) {
            enum method m = (enum method)((k + round) % METHOD_COUNT);
            if (opt->host)
                repeats[m] -= repeated_packets(side->port);
            move(side, rv, l, m, lats, 1, latency[m] + round * lats);
            double seconds = move(side, rv, l, m, count, depth, NULL);
            bandwidth[m][round] = (double)l->bytes * count / seconds;
            if (opt->host)
                repeats[m] += repeated_packets(side->port);
        }
        copy[round] = opt->host ? time_copies(side, l, count) : 0;
    }
    /* A side without a part in the last transfer must not take the CPU meanwhile. */
    rendezvous_sync(rv, "measured");
    for (int m = 0; m < METHOD_COUNT; m++) {
        result->of[m] = (struct figures){
            .p50 = quantile(latency[m] + lats, all, 0.5),
            .p99 = quantile(latency[m] + lats, all, 0.99),
            .bandwidth = quantile(bandwidth[m] + 1, rounds, 0.5),
            .repeats = repeats[m],
        };
        free(latency[m]);
        free(bandwidth[m]);
    }
    result->copy = quantile(copy + 1, rounds, 0.5);
    free(copy);
}

/* ---- what came out ---- */

static const char *clock_name(void)
{
    const char *name = getenv("TESTENV_CLOCK");

    return name ? name : "real";
}

static void print_bench_lines(const struct layout *l, const struct options *opt,
                              const struct point_result *r)
{
    for (int m = 0; m < METHOD_COUNT; m++)
        printf(
            "BENCH method=%s block_size=%zu block_num=%zu stride=%zu bytes=%zu iters=%u "
            "depth=%u clock=%s lat_p50_us=%.2f lat_p99_us=%.2f bw_MBps=%.3f "
            "repeats=%" PRIu64 "\n",
            method_names[m], l->block_size, l->block_num, l->stride, l->bytes,
            opt->iters * bandwidth_count(l), bench_depth(l, opt->depth), clock_name(),
            r->of[m].p50 * 1e6, r->of[m].p99 * 1e6, r->of[m].bandwidth * 1e-6,
            r->of[m].repeats);
}

/* What a scatter/gather list makes of a message on the wire. */
struct wire {
    double packets;
    double extra; /* list elements beyond the first in a packet, over all packets */
};

static struct wire on_the_wire(const struct layout *l, size_t mtu, size_t max_sge)
{
    struct wire w = {0, 0};

    for (size_t block = 0; block < l->block_num; block += max_sge) {
        size_t blocks = l->block_num - block < max_sge ? l->block_num - block : max_sge;
        size_t bytes = blocks * l->block_size; /* of this work request */
        for (size_t at = 0; at < bytes; at += mtu) {
            size_t last = (at + mtu < bytes ? at + mtu : bytes) - 1;
            w.packets++;
            w.extra += (double)(last / l->block_size - at / l->block_size);
        }
    }
    return w;
}

/* The contiguous message's time, if it went in as many packets as the list does. */
static double contiguous_part(const struct bench_side *side, const struct layout *l,
                              const struct point_result *r, struct wire w)
{
    double packets = (double)((l->bytes + side->mtu - 1) / side->mtu);

    return r->of[METHOD_CONTIG].p50 * w.packets / packets;
}

/*
 * The model, one message in flight: T_copy = T_pack + T_contig, and T_sgl = T_contig + c
 * for every list element that isn't the first in its packet. c is the least-squares fit
 * over the sweep of block sizes.
 */
static double fit_element_cost(const struct bench_side *side,
                               const struct bench_plan *plan,
                               const struct point_result *r)
{
    double sum = 0, squares = 0;

    for (size_t i = plan->by_size; i < plan->count; i++) {
        const struct layout *l = &plan->point[i];
        struct wire w = on_the_wire(l, side->mtu, side->max_sge);
        sum += w.extra * (r[i].of[METHOD_SGL].p50 - contiguous_part(side, l, &r[i], w));
        squares += w.extra * w.extra;
    }
    return squares > 0 ? sum / squares : 0;
}

static double measured_speedup(const struct point_result *r)
{
    return r->of[METHOD_COPY].p50 / r->of[METHOD_SGL].p50;
}

static double predicted_speedup(const struct bench_side *side, const struct layout *l,
                                const struct point_result *r, double element)
{
    struct wire w = on_the_wire(l, side->mtu, side->max_sge);

    return (r->of[METHOD_CONTIG].p50 + r->copy) /
           (contiguous_part(side, l, r, w) + w.extra * element);
}

/* The block size where speedup[] crosses 1 from below for the last time, between two
 * points whose block sizes are b and 2 b; 0 where it doesn't. */
static double crossover(const struct bench_plan *plan, const double *speedup)
{
    double found = 0;

    for (size_t i = plan->by_size + 1; i < plan->count; i++) {
        double before = speedup[i - 1], after = speedup[i];
        if (before < 1 && after >= 1)
            found = (double)plan->point[i - 1].block_size *
                    (1 + (1 - before) / (after - before));
    }
    return found;
}

static void print_table(const struct bench_plan *plan, const struct point_result *r,
                        const double *measured, const double *predicted)
{
    printf("\n%8s %7s %8s |%8s%8s%8s%8s%8s |%8s |%9s%10s\n", "block", "blocks", "bytes",
           "sgl", "copy", "each", "auto", "contig", "copying", "measured", "predicted");
    printf("%8s %7s %8s |%40s |%8s |%19s\n", "bytes", "", "",
           "MB/s with --depth messages in flight ", "MB/s", "copy/sgl, one in flight");
    for (size_t i = 0; i < plan->count; i++) {
        const struct layout *l = &plan->point[i];
        if (i == plan->by_size)
            printf("\n");
        printf("%8zu %7zu %8zu |", l->block_size, l->block_num, l->bytes);
        for (int m = 0; m < METHOD_COUNT; m++)
            printf("%8.2f", r[i].of[m].bandwidth * 1e-6);
        printf(" |%8.0f |%9.3f%10.3f\n", (double)l->bytes / r[i].copy * 1e-6, measured[i],
               predicted[i]);
    }
}

static void write_csv(FILE *file, const struct options *opt, const char *sample,
                      const struct bench_plan *plan, const struct point_result *r,
                      const double *measured, const double *predicted)
{
    fprintf(file, "sample,clock,sweep,method,block_size,block_num,stride,bytes,depth,"
                  "lat_p50_us,lat_p99_us,bw_MBps,copying_MBps,measured_speedup,"
                  "predicted_speedup,repeats\n");
    for (size_t i = 0; i < plan->count; i++) {
        const struct layout *l = &plan->point[i];
        for (int m = 0; m < METHOD_COUNT; m++)
            fprintf(file,
                    "%s,%s,%s,%s,%zu,%zu,%zu,%zu,%u,%.2f,%.2f,%.3f,%.1f,%.4f,%.4f,"
                    "%" PRIu64 "\n",
                    sample, clock_name(), i < plan->by_size ? "message" : "block",
                    method_names[m], l->block_size, l->block_num, l->stride, l->bytes,
                    bench_depth(l, opt->depth), r[i].of[m].p50 * 1e6,
                    r[i].of[m].p99 * 1e6, r[i].of[m].bandwidth * 1e-6,
                    (double)l->bytes / r[i].copy * 1e-6, measured[i], predicted[i],
                    r[i].of[m].repeats);
    }
    if (fclose(file) != 0)
        die(errno, "cannot write %s", opt->csv);
}

static void report(const struct bench_side *side, const struct options *opt,
                   const struct bench_plan *plan, const struct point_result *r, FILE *csv)
{
    const double element = fit_element_cost(side, plan, r);
    double measured[MAX_POINTS], predicted[MAX_POINTS];
    unsigned disturbed = 0;

    for (size_t i = 0; i < plan->count; i++) {
        for (int m = 0; m < METHOD_COUNT; m++)
            disturbed += r[i].of[m].repeats > 0;
        measured[i] = measured_speedup(&r[i]);
        predicted[i] = predicted_speedup(side, &plan->point[i], &r[i], element);
    }
    printf("\n%s, clock: %s time, path MTU %u, %u round%s, medians\n", side->name,
           clock_name(), side->mtu, opt->iters, opt->iters == 1 ? "" : "s");
    print_table(plan, r, measured, predicted);
    if (disturbed > 0)
        printf(
            "\nPackets were repeated while %u of these figures were taken: repeats= in "
            "the BENCH\nlines. A few are Soft-RoCE's own (see qp.h), many were lost.\n",
            disturbed);
    printf("\nREGISTER bytes=%zu us=%.1f\n", side->registered, side->registering * 1e6);
    printf("\nA list element that isn't the first in its packet costs %.3f us. The block "
           "size from\n"
           "which on zero-copy beats copying, measured and by the model, stands in MODEL "
           "(0:\n"
           "there is none in the sweep, see the last columns).\n",
           element * 1e6);
    printf("MODEL element_us=%.3f crossover_measured=%.0f crossover_predicted=%.0f\n",
           element * 1e6, crossover(plan, measured), crossover(plan, predicted));
    if (csv)
        write_csv(csv, opt, side->name, plan, r, measured, predicted);
}

bool bench(const struct bench_side *side, struct rendezvous *rv,
           const struct options *opt, const struct bench_plan *plan)
{
    struct point_result result[MAX_POINTS] = {0};
    const bool client = opt->host != NULL;
    /* opened first: minutes of measuring must not end at a name that can't be written */
    FILE *csv = client && opt->csv ? fopen(opt->csv, "w") : NULL;
    bool pass = true;

    if (client && opt->csv && !csv)
        die(errno, "cannot write %s", opt->csv);
    for (size_t i = 0; i < plan->count; i++) {
        if (client && isatty(STDERR_FILENO))
            fprintf(stderr, "\rmeasuring point %zu of %zu ", i + 1, plan->count);
        pass = verify_point(side, rv, &plan->point[i]) && pass;
        measure_point(side, rv, &plan->point[i], opt, &result[i]);
        pass = verify_point(side, rv, &plan->point[i]) && pass;
        if (client)
            print_bench_lines(&plan->point[i], opt, &result[i]);
    }
    if (client && isatty(STDERR_FILENO))
        fprintf(stderr, "\r%30s\r", "");
    if (client)
        report(side, opt, plan, result, csv);
    return pass;
}
