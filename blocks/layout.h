/* SPDX-License-Identifier: BSD-2-Clause */
/* Non-contiguous data: block_num blocks of block_size bytes whose starts lie stride bytes apart,
 * like a column of a matrix. The message is their bytes, block after block, without the gaps. Gaps
 * hold canaries: byte i of the span is byte i of the poison (pattern.h) of the seed ~seed.
 *   |<------- stride ------->|
 *   |block 0|      gap       |block 1|      gap       |block 2|
 *   |<---------------------- span ---------------------------->| */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_SPAN   ((size_t)64 << 20) /* bytes; a message is never longer than its span */
#define MAX_BLOCKS ((size_t)1 << 18)  /* each takes an SGE, and up to a work request */

struct layout {
    size_t block_size, block_num, stride; /* bytes, blocks, bytes */
    size_t bytes;                         /* of the message: block_size * block_num */
    size_t span; /* from the first block's first byte to the last block's last */
};

/* Fills *l. Returns NULL, or why there is no such layout: a zero, a stride below the block
 * size, more than MAX_BLOCKS, a span above MAX_SPAN or above 64 bits. Then *l is all zero. */
const char *layout_set(struct layout *l, uint64_t block_size, uint64_t block_num, uint64_t stride);

/* The layout and the seed of a student: the same on every machine, different for every ID, and
 * awkward on purpose. With the FNV-1a digest h of the ID's bytes, and r(k) = splitmix64(h, k):
 *   block_size = 17 + 2 * (r(0) mod 1000)   an odd number
 *   block_num  = 33 + r(1) mod 168, plus 1 until it is not a multiple of 30 or 32
 *   stride     = block_size + 1 + r(2) mod 999
 *   seed       = r(3) */
void layout_of_student(const char *id, struct layout *l, uint64_t *seed);

/* The CPU's copy: blocks to contiguous message, and back. */
void layout_pack(const struct layout *l, const void *blocks, void *message);
void layout_unpack(const struct layout *l, const void *message, void *blocks);

/* Fills the span: the gaps with canaries; the blocks with the pattern of seed, or, if poison is
 * true, with its poison. */
void layout_fill(const struct layout *l, void *blocks, uint64_t seed, bool poison);

/* True if the span is as layout_fill leaves it without poison. Otherwise says on stderr
 * which byte of which block or gap is wrong, and what is there. */
bool layout_ok(const struct layout *l, const void *blocks, uint64_t seed);

/* FNV-1a of the message. */
uint64_t layout_digest(const struct layout *l, const void *blocks);
