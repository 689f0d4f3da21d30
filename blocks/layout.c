/* SPDX-License-Identifier: BSD-2-Clause */
#include "layout.h"
#include "pattern.h"
#include "report.h"

const char *layout_set(struct layout *l, uint64_t block_size, uint64_t block_num, uint64_t stride) {
    uint64_t span;
    *l = (struct layout){0};
    if (block_size == 0 || block_num == 0) return "block_size and block_num must not be 0";
    if (stride < block_size) return "stride is below block_size: the blocks would overlap";
    if (block_num > MAX_BLOCKS) return "more than 262144 blocks";
    if (__builtin_mul_overflow(block_num - 1, stride, &span) ||
        __builtin_add_overflow(span, block_size, &span) || span > MAX_SPAN)
        return "the span, (block_num - 1) * stride + block_size, is above 64 MiB";
    *l = (struct layout){block_size, block_num, stride, block_size * block_num, span};
    return NULL;
}

void layout_of_student(const char *id, struct layout *l, uint64_t *seed) {
    const uint64_t h = fnv1a(FNV_BASIS, id, strlen(id));
    const uint64_t block_size = 17 + 2 * (splitmix64(h, 0) % 1000);
    uint64_t block_num = 33 + splitmix64(h, 1) % 168;
    while (block_num % 30 == 0 || block_num % 32 == 0) block_num++;
    *seed = splitmix64(h, 3);
    layout_set(l, block_size, block_num, block_size + 1 + splitmix64(h, 2) % 999);
}

void layout_pack(const struct layout *l, const void *blocks, void *message) {
    for (size_t i = 0; i < l->block_num; i++)
        memcpy((char *)message + i * l->block_size, (const char *)blocks + i * l->stride,
               l->block_size);
}

void layout_unpack(const struct layout *l, const void *message, void *blocks) {
    for (size_t i = 0; i < l->block_num; i++)
        memcpy((char *)blocks + i * l->stride, (const char *)message + i * l->block_size,
               l->block_size);
}

void layout_fill(const struct layout *l, void *blocks, uint64_t seed, bool poison) {
    void *message = guarded_alloc(l->bytes);
    poison_fill(blocks, l->span, ~seed); /* the canaries */
    if (poison)
        poison_fill(message, l->bytes, seed);
    else
        pattern_fill(message, l->bytes, seed);
    layout_unpack(l, message, blocks);
    guarded_free(message);
}

/* What is at byte i of found, where byte i of right should be, if that can be told. */
static const char *what_is(const struct layout *l, const uint8_t *got, const uint8_t *want,
                           size_t i) {
    static char text[48];
    const size_t at = i % l->stride;
    const size_t left = l->block_size - at;
    const size_t n = left < 8 ? left : 8;
    if (at >= l->block_size) return ", which should be left alone";
    if (got[i] + want[i] == 0xff) return " (poison: it was never written)";
    for (size_t block = 0; n >= 4 && block < l->block_num; block++) {
        snprintf(text, sizeof(text), " (the data of block %zu)", block);
        if (memcmp(got + i, want + block * l->stride + at, n) == 0) return text;
    }
    return "";
}

bool layout_ok(const struct layout *l, const void *blocks, uint64_t seed) {
    const uint8_t *got = blocks;
    uint8_t *want = guarded_alloc(l->span);
    size_t i = 0;
    layout_fill(l, want, seed, false);
    while (i < l->span && got[i] == want[i]) i++;
    const bool same = i == l->span;
    const bool gap = i % l->stride >= l->block_size;
    if (!same)
        expect(false, "%s %zu, byte %zu: 0x%02x instead of 0x%02x%s",
               gap ? "gap after block" : "block", i / l->stride,
               i % l->stride - (gap ? l->block_size : 0), got[i], want[i],
               what_is(l, got, want, i));
    guarded_free(want);
    return same;
}

uint64_t layout_digest(const struct layout *l, const void *blocks) {
    uint64_t digest = FNV_BASIS;
    for (size_t i = 0; i < l->block_num; i++)
        digest = fnv1a(digest, (const char *)blocks + i * l->stride, l->block_size);
    return digest;
}
