/* SPDX-License-Identifier: BSD-2-Clause */
/* Test data. The pattern of a seed: byte i is byte i mod 8, counted from the lowest, of r(i / 8).
 * r(n) is the SplitMix64 generator, modulo 2^64:
 *   z = seed + (n + 1) * 0x9e3779b97f4a7c15;  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
 *   z = (z ^ z >> 27) * 0x94d049bb133111eb;   r = z ^ z >> 31
 * Poison is the pattern with all bits inverted. It marks memory that is not yet written. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint64_t splitmix64(uint64_t seed, uint64_t n); /* r(n) */
void pattern_fill(void *buf, size_t len, uint64_t seed);
void poison_fill(void *buf, size_t len, uint64_t seed);
/* Index of the first byte that differs from the pattern, or len if none does. pattern_ok returns
 * true if none does; otherwise prints to stderr which byte is wrong. "what" names the memory. */
size_t pattern_mismatch(const void *buf, size_t len, uint64_t seed);
bool pattern_ok(const char *what, const void *buf, size_t len, uint64_t seed);

/* Memory, aligned to 16, between guards of 64 bytes. guarded_alloc exits if there is no memory.
 * guards_ok returns false, and prints to stderr, if a guard has changed. */
void *guarded_alloc(size_t size);
bool guards_ok(const char *what, const void *memory, size_t size);
void guarded_free(void *memory);

/* 64-bit FNV-1a (IETF draft-eastlake-fnv); digest: FNV_BASIS, or that of the piece before. */
#define FNV_BASIS 0xcbf29ce484222325u
uint64_t fnv1a(uint64_t digest, const void *buf, size_t len);
