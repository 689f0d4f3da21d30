/* SPDX-License-Identifier: BSD-2-Clause */
/* What 05, 06 and 07 are asked to move, and how: the client's options, the methods, the layouts. In
 * the rendezvous line, work= goes on after timeout with these fields:
 *   ,block_size=4096,block_num=64,stride=8192,method=sgl,depth=0,sizes=none
 * size is block_size * block_num; method is sgl, copy, each or auto. Without --bench, depth is 0
 * and sizes none; with it, they are --depth and --sizes, and iters is the number of rounds. */
#pragma once

#include "layout.h"
#include "options.h"

enum method {
    METHOD_SGL,    /* the NIC gathers or scatters: lists of many SGEs */
    METHOD_COPY,   /* the CPU packs or unpacks a contiguous staging buffer */
    METHOD_EACH,   /* a work request for each block */
    METHOD_AUTO,   /* sgl or copy, see method_for */
    METHOD_CONTIG, /* to compare: the same bytes, contiguous on both sides */
    METHOD_COUNT
};
extern const char *const method_names[METHOD_COUNT];

/* Returns method; but for METHOD_AUTO METHOD_SGL if a block fills at least one packet of mtu bytes,
 * else METHOD_COPY. (On Soft-RoCE only the SGEs after the first one in a packet cost extra.) */
enum method method_for(enum method method, const struct layout *l, unsigned mtu);

/* The layouts of the messages: one; or several to measure. The first size_points of these vary the
 * message size at one block size. The others vary the block size of messages of SWEEP_BYTES. */
#define MAX_POINTS 40
#define MAX_DEPTH  64u   /* messages in flight */
#define MAX_ROUNDS 1000u /* of a measurement */
#ifndef SWEEP_BYTES      /* of a message in the sweep over block sizes; 0: none, for the grader */
#define SWEEP_BYTES ((size_t)64 << 10)
#endif
struct plan {
    struct layout point[MAX_POINTS];
    size_t count, size_points;
};

/* What a client asks for, in addition to struct options. */
struct block_work {
    uint64_t block_size, block_num, stride; /* stride 0: not given */
    uint64_t bench, depth;
    const char *student, *method_name, *sizes, *csv; /* NULL: not given */
    enum method method;
    struct plan plan;
};

/* As parse_options, with the options of 05 to 07. The caller sets opt->sample and nothing else. On
 * the server, rendezvous_open fills *work. print_layout prints the LAYOUT line. */
void parse_block_options(struct options *opt, struct block_work *work, int argc, char **argv);
void print_layout(const struct options *opt, const struct block_work *work);

/* Fills plan for message sizes such as "4K,64K,1M" and a block size; the stride is twice the block
 * size. Returns NULL, or the reason why there is no such plan. */
const char *plan_measurement(struct plan *plan, const char *sizes, uint64_t block_size);
/* Messages in flight: depth, or fewer if their staging buffers would exceed MAX_SPAN. */
unsigned plan_depth(const struct layout *l, uint64_t depth);
