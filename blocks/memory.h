/* SPDX-License-Identifier: BSD-2-Clause */
/* The memory of a side of 05 to 07, and the check of its content. */
#pragma once

#include "work.h"

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
