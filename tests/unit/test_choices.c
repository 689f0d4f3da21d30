/* SPDX-License-Identifier: BSD-2-Clause */
/* The choices that need no device: GID, numbers on the command line. */
#include "../../common/device.c"
#include "unit.h"

#define LINK_LOCAL                                                                                 \
    { 0xfe, 0x80, [15] = 1 }
#define MAPPED(d)                                                                                  \
    { [10] = 0xff, 0xff, 10, 0, 0, d }
#define GLOBAL                                                                                     \
    { 0x20, 0x01, [15] = 1 }

#define PORT_GID(n)                                                                                \
    { 0xfe, 0x80, [8] = 0x24, [15] = n }

static void the_gid_of_the_connection_comes_first(void **state) {
    static const struct {
        uint8_t gid[16];
        uint32_t type;
        enum rank rank;
    } wanted[] = {
        {LINK_LOCAL, IBV_GID_TYPE_ROCE_V2, USELESS},  {GLOBAL, IBV_GID_TYPE_ROCE_V2, USABLE},
        {MAPPED(1), IBV_GID_TYPE_ROCE_V2, IPV4},      {MAPPED(2), IBV_GID_TYPE_ROCE_V2, MATCH},
        {MAPPED(2), IBV_GID_TYPE_ROCE_V1, USELESS},   {{0xfe, 0xbf}, IBV_GID_TYPE_ROCE_V2, USELESS},
        {{0xfe, 0xc0}, IBV_GID_TYPE_ROCE_V2, USABLE}, {PORT_GID(7), IBV_GID_TYPE_IB, MATCH},
        {PORT_GID(8), IBV_GID_TYPE_IB, USELESS},      {PORT_GID(7), IBV_GID_TYPE_ROCE_V2, USELESS},
        {MAPPED(2), IBV_GID_TYPE_IB, USELESS},
    };
    const union ibv_gid seven = {.raw = PORT_GID(7)};
    const struct search four = {.local = {.raw = MAPPED(2)}, .guid = seven.global.interface_id};
    const struct search six = {.local = {.raw = GLOBAL}};
    (void)state;
    for (size_t i = 0; i < COUNT(wanted); i++) {
        struct ibv_gid_entry entry = {.gid_type = wanted[i].type};
        memcpy(entry.gid.raw, wanted[i].gid, 16);
        assert_int_equal(rank_gid(&entry, &four), wanted[i].rank);
        if (i == 1) assert_int_equal(rank_gid(&entry, &six), MATCH);
        if (i == 7) assert_int_equal(rank_gid(&entry, &six), USELESS); /* no IPoIB interface */
    }
}

static void an_index_above_255_is_never_taken(void **state) {
    const struct options opt = {.gid_idx = GID_CHOOSE};
    const struct search search = {.opt = &opt, .local = {.raw = MAPPED(2)}};
    struct port port = {.device = "x", .num = 1};
    struct ibv_gid_entry gids[] = {
        {{.raw = MAPPED(2)}, .gid_index = 256, .port_num = 1, .gid_type = IBV_GID_TYPE_ROCE_V2},
        {{.raw = MAPPED(2)}, .gid_index = 9, .port_num = 2, .gid_type = IBV_GID_TYPE_ROCE_V2},
        {{.raw = GLOBAL}, .gid_index = 255, .port_num = 1, .gid_type = IBV_GID_TYPE_ROCE_V2},
    };
    (void)state;
    assert_int_equal(choose_gid(&port, true, &search, gids, 2), USELESS);
    assert_int_equal(choose_gid(&port, true, &search, gids, 3), USABLE);
    assert_int_equal(port.gid_index, 255);
    gids[0].gid_index = 3;
    assert_int_equal(choose_gid(&port, true, &search, gids, 3), MATCH);
    assert_int_equal(port.gid_index, 3);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gid_of_the_connection_comes_first),
        cmocka_unit_test(an_index_above_255_is_never_taken),
        cmocka_unit_test(numbers_are_read_strictly),
    };
    return cmocka_run_group_tests_name("choices", tests, NULL, NULL);
}
