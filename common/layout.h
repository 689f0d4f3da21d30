/*
 * Non-contiguous data: block_num blocks of block_size bytes whose starts lie stride bytes
 * apart, as a column of a matrix does. Their bytes, block after block without the gaps,
 * are the message.
 *
 *   |<------- stride ------->|
 *   |block 0|      gap       |block 1|      gap       |block 2|
 *   |<---------------------- span ---------------------------->|
 */
#ifndef HV_LAYOUT_H
#define HV_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest span, bytes; the message is never longer than its span. */
#define MAX_SPAN ((size_t)64 << 20)

/* The most blocks: each takes an SGE and up to a work request of memory to describe. */
#define MAX_BLOCKS ((size_t)1 << 18)

struct layout {
    size_t block_size; /* bytes */
    size_t block_num;
    size_t stride; /* bytes from the start of one block to the next one's */
    size_t bytes;  /* of the message: block_size * block_num */
    size_t span;   /* from the first block's first byte to the last one's last */
};

/* Fills *l. Returns NULL, or the reason why there can't be such a layout: a zero, a
 * stride below the block size, more than MAX_BLOCKS, a span above MAX_SPAN (or above 64
 * bits). */
const char *layout_set(struct layout *l, uint64_t block_size, uint64_t block_num,
                       uint64_t stride);

/*
 * The layout and the seed that belong to a student: the same on every machine, different
 * for every ID, and awkward on purpose. With h the FNV-1a digest of the ID's bytes and
 * r(k) the k-th output, from 0, of SplitMix64 started at h:
 *   block_size = 17 + 2 * (r(0) mod 1000)   odd
 *   block_num  = 33 + r(1) mod 168          more than rxe's max_sge; one more where it is
 *                                           a multiple of 30 or 32, two common max_sge
 *   stride     = block_size + 1 + r(2) mod 999
 *   seed       = r(3)
 */
void layout_of_student(const char *id, struct layout *l, uint64_t *seed);

/* The CPU's copy: blocks to contiguous message, and back. */
void layout_pack(const struct layout *l, const void *blocks, void *message);
void layout_unpack(const struct layout *l, const void *message, void *blocks);

/* Fills span bytes at blocks: the gaps with canaries; the blocks with the pattern of
 * seed (data.h), or with its poison where the message has yet to come. */
void layout_fill(const struct layout *l, void *blocks, uint64_t seed);
void layout_poison(const struct layout *l, void *blocks, uint64_t seed);

/* Offset of the first of the span's bytes that isn't as layout_fill leaves it, a block's
 * or a gap's; span if all are. */
size_t layout_check(const struct layout *l, const void *blocks, uint64_t seed);

/* Prints the LAYOUT line. */
void layout_print(const struct layout *l, uint64_t seed);

/* FNV-1a of the message. */
uint64_t layout_digest(const struct layout *l, const void *blocks);

#endif
