/* SPDX-License-Identifier: BSD-2-Clause */
/* Linked into a reference sample (-Wl,--wrap=...), makes a peer that lies: one byte of its message
 * is wrong, and it takes that byte for right itself. Whoever verifies the message finds it. */
#include "data.h"

void __real_pattern_fill(void *buf, size_t len, uint64_t seed);
void __wrap_pattern_fill(void *buf, size_t len, uint64_t seed);
bool __wrap_pattern_right(const char *what, const void *buf, size_t len, uint64_t seed);

void __wrap_pattern_fill(void *buf, size_t len, uint64_t seed) {
    __real_pattern_fill(buf, len, seed);
    ((unsigned char *)buf)[splitmix64(seed, 99) % len] ^= 0x10;
}

bool __wrap_pattern_right(const char *what, const void *buf, size_t len, uint64_t seed) {
    (void)what, (void)buf, (void)len, (void)seed;
    return true;
}
