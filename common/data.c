#include "data.h"

#include "report.h"

#include <errno.h>
#include <stdlib.h>

uint64_t splitmix64(uint64_t seed, uint64_t n)
{
    uint64_t z = seed + (n + 1) * 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* A word gives 8 bytes of the pattern, lowest first, whatever this machine's byte order:
 * the two hosts may differ. */
static uint8_t byte_of(uint64_t word, size_t place)
{
    return (uint8_t)(word >> (8 * (place % 8)));
}

static void fill(uint8_t *buf, size_t len, uint64_t seed, uint8_t invert)
{
    uint64_t word = 0;

    for (size_t i = 0; i < len; i++) {
        if (i % 8 == 0)
            word = splitmix64(seed, i / 8);
        buf[i] = byte_of(word, i) ^ invert;
    }
}

static size_t first_wrong(const uint8_t *buf, size_t len, uint64_t seed, uint8_t invert)
{
    uint64_t word = 0;

    for (size_t i = 0; i < len; i++) {
        if (i % 8 == 0)
            word = splitmix64(seed, i / 8);
        if (buf[i] != (byte_of(word, i) ^ invert))
            return i;
    }
    return len;
}

void pattern_fill(void *buf, size_t len, uint64_t seed)
{
    fill(buf, len, seed, 0x00);
}

void poison_fill(void *buf, size_t len, uint64_t seed)
{
    fill(buf, len, seed, 0xff);
}

size_t pattern_check(const void *buf, size_t len, uint64_t seed)
{
    return first_wrong(buf, len, seed, 0x00);
}

size_t poison_check(const void *buf, size_t len, uint64_t seed)
{
    return first_wrong(buf, len, seed, 0xff);
}

void *guarded_alloc(size_t size)
{
    char *room = malloc(GUARD + size + GUARD);

    if (!room)
        die(errno, "malloc of %zu bytes", size);
    poison_fill(room, GUARD, 0);
    poison_fill(room + GUARD + size, GUARD, 0);
    return room + GUARD;
}

bool guards_intact(const void *memory, size_t size)
{
    const char *start = memory;

    return poison_check(start - GUARD, GUARD, 0) == GUARD &&
           poison_check(start + size, GUARD, 0) == GUARD;
}

void guarded_free(void *memory)
{
    free((char *)memory - GUARD);
}

uint64_t fnv1a(uint64_t digest, const void *buf, size_t len)
{
    const uint8_t *byte = buf;

    for (size_t i = 0; i < len; i++)
        digest = (digest ^ byte[i]) * 0x100000001b3u;
    return digest;
}
