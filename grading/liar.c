/*
 * Linked into a reference sample (-Wl,--wrap=...), makes a peer that lies: one byte of
 * its message isn't what it should be, which it takes for right itself. Whoever verifies
 * what it sends sees that.
 */
#include "../common/data.h"

void __real_pattern_fill(void *buf, size_t len, uint64_t seed);
void __wrap_pattern_fill(void *buf, size_t len, uint64_t seed);
size_t __wrap_pattern_check(const void *buf, size_t len, uint64_t seed);

void __wrap_pattern_fill(void *buf, size_t len, uint64_t seed)
{
    __real_pattern_fill(buf, len, seed);
    ((unsigned char *)buf)[splitmix64(seed, 99) % len] ^= 0x10;
}

size_t __wrap_pattern_check(const void *buf, size_t len, uint64_t seed)
{
    (void)buf;
    (void)seed;
    return len;
}
