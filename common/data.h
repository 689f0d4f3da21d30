/*
 * Test data: what a message holds, what untouched memory holds, and a digest
 * that both sides can print and compare.
 *
 * A byte's value depends on its place and on the seed, so a message that is
 * shifted, cut, repeated or left over from another run does not pass.
 * Poison is the pattern with every bit inverted: where a message must land,
 * each bit of each byte has to change.
 */
#ifndef HV_DATA_H
#define HV_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The n-th output, from 0, of the SplitMix64 generator that starts at seed: every bit of
 * seed and n changes about half of the result's bits. */
uint64_t splitmix64(uint64_t seed, uint64_t n);

/* Fill len bytes at buf with the pattern, or the poison, of seed. */
void pattern_fill(void *buf, size_t len, uint64_t seed);
void poison_fill(void *buf, size_t len, uint64_t seed);

/* Index of the first byte that differs from the pattern (poison), or len. */
size_t pattern_check(const void *buf, size_t len, uint64_t seed);
size_t poison_check(const void *buf, size_t len, uint64_t seed);

/*
 * Memory between guards: size bytes aligned to 16, with GUARD bytes of poison right
 * before and after, which nobody may touch. guarded_alloc dies where there is no memory.
 */
#define GUARD 64
void *guarded_alloc(size_t size);
bool guards_intact(const void *memory, size_t size);
void guarded_free(void *memory);

/* 64-bit FNV-1a (IETF draft-eastlake-fnv). Start with FNV_BASIS; to digest a
 * message in pieces, pass the result of the piece before. */
#define FNV_BASIS 0xcbf29ce484222325u
uint64_t fnv1a(uint64_t digest, const void *buf, size_t len);

#endif
