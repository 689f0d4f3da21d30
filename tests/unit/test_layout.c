/* SPDX-License-Identifier: BSD-2-Clause */
/* The layout engine against a plain byte-by-byte reference. */
#include "layout.h"
#include "pattern.h"
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 5000 };

/* The index in the message of the byte at offset at of the span, or -1 in a gap. */
static long place_in_message(const struct layout *l, size_t at) {
    size_t block = at / l->stride, within = at % l->stride;

    return within < l->block_size ? (long)(block * l->block_size + within) : -1;
}

/* A layout that the round's number determines: small, often at an edge. */
static struct layout random_layout(uint64_t round) {
    struct layout l;
    uint64_t block_size = 1 + splitmix64(round, 0) % 50;
    uint64_t gap = splitmix64(round, 1) % 3 ? splitmix64(round, 2) % 40 : 0;

    assert_null(layout_set(&l, block_size, 1 + splitmix64(round, 3) % 80, block_size + gap));
    return l;
}

static void every_random_layout_agrees_with_the_reference(void **state) {
    (void)state;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        const struct layout l = random_layout(round);
        unsigned char *blocks = malloc(l.span), *message = malloc(l.bytes);
        unsigned char *pattern = malloc(l.bytes), *again = malloc(l.span);

        pattern_fill(pattern, l.bytes, round);
        layout_fill(&l, blocks, round, false);
        layout_pack(&l, blocks, message);
        assert_memory_equal(message, pattern, l.bytes);
        assert_true(layout_digest(&l, blocks) == fnv1a(FNV_BASIS, pattern, l.bytes));
        assert_true(layout_ok(&l, blocks, round));

        layout_fill(&l, again, round, true);
        for (size_t at = 0; at < l.span; at++) {
            long place = place_in_message(&l, at);
            if (place >= 0) assert_int_equal(blocks[at], pattern[place]);
            /* in a block every bit is to change; in a gap none */
            assert_int_equal(blocks[at] ^ again[at], place >= 0 ? 0xff : 0);
        }
        layout_unpack(&l, message, again);
        assert_memory_equal(again, blocks, l.span);

        free(blocks);
        free(message);
        free(pattern);
        free(again);
    }
}

static void check_finds_each_wrong_byte_of_blocks_and_gaps(void **state) {
    struct layout l;
    unsigned char blocks[200];

    (void)state;
    assert_null(layout_set(&l, 7, 5, 11));
    assert_int_equal(l.bytes, 35);
    assert_int_equal(l.span, 51);
    for (size_t at = 0; at < l.span; at++) {
        layout_fill(&l, blocks, 9, false);
        blocks[at] ^= 0x10;
        assert_false(layout_ok(&l, blocks, 9));
    }
}

static void impossible_layouts_are_refused(void **state) {
    static const uint64_t bad[][3] = {
        {0, 1, 1},
        {1, 0, 1},
        {1, 1, 0},
        {8, 2, 7},
        {UINT64_MAX, 1, UINT64_MAX},
        {1, UINT64_MAX, 1},
        {1, 2, UINT64_MAX},
        {1, UINT64_MAX, UINT64_MAX},
        {4096, UINT64_MAX / 4096 + 2, 4096}, /* 64 bits wrap to a small span */
        {UINT64_MAX / 2 + 1, 2, UINT64_MAX / 2 + 1},
        {MAX_SPAN + 1, 1, MAX_SPAN + 1},
        {1, MAX_BLOCKS + 1, 1},
        {1, 2, MAX_SPAN},
    };
    struct layout l;

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        l.bytes = 42;
        assert_non_null(layout_set(&l, bad[i][0], bad[i][1], bad[i][2]));
        assert_int_equal(l.bytes, 0);
    }
    assert_null(layout_set(&l, MAX_SPAN, 1, UINT64_MAX));
    assert_null(layout_set(&l, 1, MAX_BLOCKS, 1));
    assert_null(layout_set(&l, MAX_SPAN / MAX_BLOCKS, MAX_BLOCKS, MAX_SPAN / MAX_BLOCKS));
    assert_null(layout_set(&l, 1, 2, MAX_SPAN - 1));
}

static void a_students_layout_is_awkward_and_always_the_same(void **state) {
    struct layout l, again;
    uint64_t seed, seed_again;
    char id[32];

    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        snprintf(id, sizeof(id), "2026-%d", i);
        layout_of_student(id, &l, &seed);
        assert_true(l.block_size % 2 == 1 && l.block_size >= 17 && l.block_size <= 2015);
        assert_true(l.block_num > 32 && l.block_num % 32 && l.block_num % 30);
        assert_true(l.stride > l.block_size && l.span <= MAX_SPAN);
        layout_of_student(id, &again, &seed_again);
        assert_memory_equal(&l, &again, sizeof(l));
        assert_true(seed == seed_again);
    }
    /* worked out from the description in layout.h by another program */
    layout_of_student("alice", &l, &seed);
    assert_int_equal(l.block_size, 1899);
    assert_int_equal(l.block_num, 193);
    assert_int_equal(l.stride, 2208);
    assert_true(seed == 8203138282823910385u);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_random_layout_agrees_with_the_reference),
        cmocka_unit_test(check_finds_each_wrong_byte_of_blocks_and_gaps),
        cmocka_unit_test(impossible_layouts_are_refused),
        cmocka_unit_test(a_students_layout_is_awkward_and_always_the_same),
    };

    return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
