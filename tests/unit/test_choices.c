/* SPDX-License-Identifier: BSD-2-Clause */
/* The choices that need no device: GID, path MTU, numbers on the command line, the method. */
#include "../../common/device.c"
#include "blocks.h"
#include "qp.h"
#include "unit.h"

#define LINK_LOCAL                                                                                 \
    { 0xfe, 0x80, [15] = 1 }
#define MAPPED(d)                                                                                  \
    { [10] = 0xff, 0xff, 10, 0, 0, d }
#define GLOBAL                                                                                     \
    { 0x20, 0x01, [15] = 1 }

static void the_gid_of_the_connection_comes_first(void **state) {
    static const struct {
        uint8_t gid[16];
        uint32_t type;
        int rank;
    } wanted[] = {
        {LINK_LOCAL, IBV_GID_TYPE_ROCE_V2, 0},   {GLOBAL, IBV_GID_TYPE_ROCE_V2, 1},
        {MAPPED(1), IBV_GID_TYPE_ROCE_V2, 2},    {MAPPED(2), IBV_GID_TYPE_ROCE_V2, 3},
        {MAPPED(2), IBV_GID_TYPE_ROCE_V1, 0},    {{0xfe, 0xbf}, IBV_GID_TYPE_ROCE_V2, 0},
        {{0xfe, 0xc0}, IBV_GID_TYPE_ROCE_V2, 1},
    };
    const union ibv_gid local = {.raw = MAPPED(2)}, six = {.raw = GLOBAL};
    (void)state;
    for (size_t i = 0; i < COUNT(wanted); i++) {
        struct ibv_gid_entry entry = {.gid_type = wanted[i].type};
        memcpy(entry.gid.raw, wanted[i].gid, 16);
        assert_int_equal(rank_gid(&entry, &local), wanted[i].rank);
        if (i == 1) assert_int_equal(rank_gid(&entry, &six), 3);
    }
}

static void mtus_are_the_verbs_enums(void **state) {
    (void)state;
    assert_int_equal(mtu_enum(256), IBV_MTU_256);
    assert_int_equal(mtu_enum(1024), IBV_MTU_1024);
    assert_int_equal(mtu_enum(4096), IBV_MTU_4096);
}

static void numbers_are_read_strictly(void **state) {
    static const char *const bad[] = {"",
                                      "K",
                                      "-1",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "1.5",
                                      "0x1",
                                      "1KK",
                                      "1G",
                                      "1e3",
                                      "one",
                                      "2m",
                                      "1KM",
                                      "99999999999999999999",
                                      "18014398509481985K"};
    uint64_t n = 42;
    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++)
        if (parse_number(bad[i], 0, UINT64_MAX, &n)) fail_msg("accepted '%s'", bad[i]);
    assert_false(parse_number("0", 1, 10, &n));
    assert_false(parse_number("11", 1, 10, &n));
    assert_int_equal(n, 42);
    assert_true(parse_number("10", 1, 10, &n) && n == 10);
    assert_true(parse_number("4K", 1, 4096, &n) && n == 4096);
    assert_true(parse_number("2M", 1, UINT64_MAX, &n) && n == 2097152);
    assert_true(parse_number("18446744073709551615", 0, UINT64_MAX, &n) && n == UINT64_MAX);
}

static void auto_takes_lists_of_whole_packets_only(void **state) {
    struct layout l = {.block_size = 1024};
    (void)state;
    assert_int_equal(method_for(METHOD_AUTO, &l, 1024), METHOD_SGL);
    assert_int_equal(method_for(METHOD_AUTO, &l, 2048), METHOD_COPY);
    assert_int_equal(method_for(METHOD_EACH, &l, 2048), METHOD_EACH);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gid_of_the_connection_comes_first),
        cmocka_unit_test(mtus_are_the_verbs_enums),
        cmocka_unit_test(numbers_are_read_strictly),
        cmocka_unit_test(auto_takes_lists_of_whole_packets_only),
    };
    return cmocka_run_group_tests_name("choices", tests, NULL, NULL);
}
