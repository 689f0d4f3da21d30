/*
 * Measuring the methods of 05 to 07 against each other and against a contiguous transfer
 * of the same bytes. Both processes call bench() with the same plan; the sample's own
 * code moves the messages.
 */
#ifndef HV_BENCH_H
#define HV_BENCH_H

#include "layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct options;
struct port;
struct rendezvous;

enum method {
    METHOD_SGL,    /* the NIC gathers or scatters: a list of many SGEs */
    METHOD_COPY,   /* the CPU packs or unpacks a contiguous staging buffer */
    METHOD_EACH,   /* a work request for each block */
    METHOD_AUTO,   /* sgl or copy, by the layout */
    METHOD_CONTIG, /* the yardstick: the same bytes, contiguous already */
    METHOD_COUNT
};

/* "sgl", "copy", "each" or "auto" to its number; false for any other name. */
bool method_by_name(const char *name, enum method *method);

/*
 * What METHOD_AUTO takes for a layout: sgl where a block fills at least a packet of mtu
 * bytes, copy where it is smaller. A list element is charged for where it adds to a
 * packet; a packet of one block costs what a packet of a contiguous message does, and the
 * copy is saved. The measurements put the crossover there, too.
 */
enum method method_for(const struct layout *l, unsigned mtu);

/* Points to measure: message sizes at one block size, then block sizes at one message
 * size. */
#define MAX_ROUNDS  1000u
#define MAX_POINTS  40
#define SWEEP_BYTES ((size_t)64 << 10) /* of a message in the sweep over block sizes */

struct bench_plan {
    struct layout point[MAX_POINTS];
    size_t count, by_size; /* points in all; the first by_size sweep over message sizes */
};

/* Makes the plan of a list of message sizes such as "4K,64K,1M". Each becomes as many
 * whole blocks as fit, at least one; the stride is twice the block size. Returns NULL, or
 * why there can't be such a plan. */
const char *bench_make_plan(struct bench_plan *plan, const char *sizes,
                            size_t block_size);

/* Messages that may be in flight: depth, or fewer where their staging buffers together
 * would be above MAX_SPAN. */
unsigned bench_depth(const struct layout *l, unsigned depth);

/* What a sample brings to be measured; ctx is its own. NULL: this side has no part in it.
 */
struct bench_side {
    void *ctx;
    const char *name; /* of the sample */
    const struct port *port;
    double registering; /* seconds that ibv_reg_mr took, once, outside all figures, */
    size_t registered;  /* for so many bytes */
    unsigned mtu;       /* path MTU, bytes */
    unsigned max_sge;   /* SGEs in a work request of METHOD_SGL */
    /* Lays out memory for one verified message. */
    void (*prepare)(void *ctx, const struct layout *l, enum method method);
    /* Called before the peer may start: posts what has to stand by then. */
    void (*expect)(void *ctx, const struct layout *l, enum method method, unsigned count,
                   unsigned depth);
    /* Moves count messages, at most depth in flight at a time, and returns when the last
     * has arrived. Where latency isn't NULL, depth is 1 and each message's seconds go
     * there. */
    void (*transfer)(void *ctx, const struct layout *l, enum method method,
                     unsigned count, unsigned depth, double *latency);
    /* Is the last message right, every byte and every gap? */
    bool (*verify)(void *ctx, const struct layout *l);
    bool packs, unpacks; /* what the two CPUs do to a message in METHOD_COPY */
};

/* Room for every message of a plan, with so many in flight. */
struct bench_room {
    size_t bytes, span; /* of the longest message */
    size_t staging;     /* for as many messages as may be in flight */
    size_t block_num;
};
struct bench_room bench_room(const struct bench_plan *plan, unsigned depth);

/*
 * Verifies and then measures every method at every point. The client prints a BENCH line
 * for each, a table, and what the model makes of it, and writes opt->csv.
 * Returns true if every message was right. Dies as the rendezvous and the sample do.
 */
bool bench(const struct bench_side *side, struct rendezvous *rv,
           const struct options *opt, const struct bench_plan *plan);

#endif
