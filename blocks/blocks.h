/* SPDX-License-Identifier: BSD-2-Clause */
/* What 05, 06 and 07 share: the client's options and work, a side's memory and the check of its
 * content. In the rendezvous line, work= goes on after timeout with these fields:
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

/* A side's memory, between guards. A message is in blocks, or at the start of contig. */
struct memory {
    bool sends;               /* the messages come from this side */
    char *blocks, *contig;    /* blocks may be NULL; contig: staging buffers, or the message */
    size_t span, contig_size; /* bytes in blocks; bytes in contig */
    size_t block_num;         /* blocks in the longest list */
    uint64_t seed;
    enum method method; /* of the message that was prepared */
};

/* Allocates memory for all layouts of work. has_blocks: allocate blocks, too. staging: contig holds
 * as many messages as can be in flight; otherwise one. */
struct memory memory_alloc(const struct block_work *work, uint64_t seed, bool sends,
                           bool has_blocks, bool staging);
void memory_free(struct memory *m);

/* Before a message: fills in the sender's data, and poisons the memory where it must arrive. */
void memory_prepare(struct memory *m, const struct layout *l, enum method method);

/* After a message: true if message, gaps and guards are right; otherwise says on stderr what is
 * wrong. memory_digest returns the FNV-1a of the message. */
bool memory_ok(const struct memory *m, const struct layout *l);
uint64_t memory_digest(const struct memory *m, const struct layout *l);

/* After ibv_create_qp has refused: halves the SGEs in a work request, and, when one is left, the
 * work requests in a queue. Returns false if there is nothing left to halve, or if errno says that
 * this was not the reason (0: the driver says nothing). */
bool halve_caps(uint32_t *max_sge, uint32_t *queue);

static inline uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }
