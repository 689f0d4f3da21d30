/* SPDX-License-Identifier: BSD-2-Clause */
#include "pattern.h"
#include "unit.h"

static void digest_has_the_published_values(void **state) {
    (void)state;
    /* from the test vectors in the FNV draft */
    assert_true(fnv1a(FNV_BASIS, "", 0) == 0xcbf29ce484222325u);
    assert_true(fnv1a(FNV_BASIS, "a", 1) == 0xaf63dc4c8601ec8cu);
    assert_true(fnv1a(FNV_BASIS, "foobar", 6) == 0x85944171f73967e8u);
    assert_true(fnv1a(fnv1a(FNV_BASIS, "foo", 3), "bar", 3) == 0x85944171f73967e8u);
}

static void check_finds_each_wrong_byte(void **state) {
    unsigned char buf[100];
    (void)state;
    for (size_t i = 0; i < sizeof(buf); i++) {
        for (int bit = 0; bit < 8; bit++) {
            pattern_fill(buf, sizeof(buf), 7);
            buf[i] ^= (unsigned char)(1 << bit);
            assert_int_equal(pattern_mismatch(buf, sizeof(buf), 7), i);
            assert_false(pattern_ok("a wrong one", buf, sizeof(buf), 7));
        }
    }
    pattern_fill(buf, sizeof(buf), 7);
    assert_int_equal(pattern_mismatch(buf, sizeof(buf), 7), sizeof(buf));
    assert_true(pattern_ok("a right one", buf, sizeof(buf), 7));
    assert_true(pattern_mismatch(buf, sizeof(buf), 8) < 2);
}

static void poison_differs_from_the_pattern_in_every_bit(void **state) {
    unsigned char pattern[100], poison[100];
    (void)state;
    pattern_fill(pattern, sizeof(pattern), 3);
    poison_fill(poison, sizeof(poison), 3);
    for (size_t i = 0; i < sizeof(pattern); i++) assert_int_equal(pattern[i] ^ poison[i], 0xff);
}

static void a_shifted_message_does_not_pass(void **state) {
    unsigned char buf[4096 + 64];
    (void)state;
    pattern_fill(buf, sizeof(buf), 1);
    for (size_t shift = 1; shift <= 64; shift++)
        assert_true(pattern_mismatch(buf + shift, 4096, 1) < 4);
}

static void guards_are_on_both_sides(void **state) {
    enum { SIZE = 5, GUARD = 64 };
    unsigned char *memory = guarded_alloc(SIZE);
    (void)state;
    assert_int_equal((uintptr_t)memory % 16, 0);
    for (int i = -GUARD; i < SIZE + GUARD; i++) {
        assert_true(guards_ok("memory", memory, SIZE));
        memory[i] ^= 1;
        /* a change of the memory itself is not the guards' matter */
        assert_int_equal(guards_ok("memory", memory, SIZE), i >= 0 && i < SIZE);
        memory[i] ^= 1;
    }
    guarded_free(memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digest_has_the_published_values),
        cmocka_unit_test(check_finds_each_wrong_byte),
        cmocka_unit_test(poison_differs_from_the_pattern_in_every_bit),
        cmocka_unit_test(a_shifted_message_does_not_pass),
        cmocka_unit_test(guards_are_on_both_sides),
    };
    return cmocka_run_group_tests_name("data", tests, NULL, NULL);
}
