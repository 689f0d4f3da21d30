/* SPDX-License-Identifier: BSD-2-Clause */
#include "pattern.h"
#include "report.h"

enum { GUARD = 64 };

uint64_t splitmix64(uint64_t seed, uint64_t n) {
    uint64_t z = seed + (n + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Writes the pattern (invert 0) or the poison (0xff) if write, else compares. Returns the index of
 * the first difference, or len. Shifts, not memcpy: hosts of both byte orders must agree. */
static size_t walk(uint8_t *buf, size_t len, uint64_t seed, uint8_t invert, bool write) {
    uint64_t word = 0;
    for (size_t i = 0; i < len; i++) {
        word = i % 8 ? word >> 8 : splitmix64(seed, i / 8);
        if (write) buf[i] = (uint8_t)word ^ invert;
        if (buf[i] != ((uint8_t)word ^ invert)) return i;
    }
    return len;
}

void pattern_fill(void *buf, size_t len, uint64_t seed) { walk(buf, len, seed, 0x00, true); }
void poison_fill(void *buf, size_t len, uint64_t seed) { walk(buf, len, seed, 0xff, true); }

size_t pattern_mismatch(const void *buf, size_t len, uint64_t seed) {
    return walk((uint8_t *)buf, len, seed, 0x00, false);
}

bool pattern_ok(const char *what, const void *buf, size_t len, uint64_t seed) {
    const size_t i = pattern_mismatch(buf, len, seed);
    if (i == len) return true;
    const uint8_t got = ((const uint8_t *)buf)[i];
    const uint8_t want = (uint8_t)(splitmix64(seed, i / 8) >> (8 * (i % 8)));
    return expect(false, "%s: byte %zu of %zu is 0x%02x%s, not 0x%02x", what, i, len, got,
                  got + want == 0xff ? " (poison: never written)" : "", want);
}

void *guarded_alloc(size_t size) {
    char *room = malloc(GUARD + size + GUARD);
    if (!room) die(errno, "malloc of %zu bytes", size);
    pattern_fill(room, GUARD, 0);
    pattern_fill(room + GUARD + size, GUARD, 0);
    return room + GUARD;
}

bool guards_ok(const char *what, const void *memory, size_t size) {
    const char *start = memory;
    return expect(pattern_mismatch(start - GUARD, GUARD, 0) == GUARD &&
                      pattern_mismatch(start + size, GUARD, 0) == GUARD,
                  "%s: bytes beyond its ends were written", what);
}

void guarded_free(void *memory) { free((char *)memory - GUARD); }

uint64_t fnv1a(uint64_t digest, const void *buf, size_t len) {
    const uint8_t *byte = buf;
    for (size_t i = 0; i < len; i++) digest = (digest ^ byte[i]) * 0x100000001b3u;
    return digest;
}
