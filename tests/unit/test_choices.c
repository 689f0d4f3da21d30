/* The choices that need no device: GID, path MTU, numbers on the command line, hints. */
#include "device.h"
#include "options.h"
#include "unit.h"

#include <errno.h>

#define LINK_LOCAL                                                                       \
    {                                                                                    \
        .raw = { 0xfe, 0x80, [15] = 1 }                                                  \
    }
#define MAPPED(d)                                                                        \
    {                                                                                    \
        .raw = { [10] = 0xff, 0xff, 10, 0, 0, d }                                        \
    }
#define GLOBAL                                                                           \
    {                                                                                    \
        .raw = { 0x20, 0x01, [15] = 1 }                                                  \
    }

static void the_gid_of_the_connection_comes_first(void **state)
{
    const union ibv_gid here = MAPPED(2), elsewhere = MAPPED(9), six = GLOBAL;
    const struct ibv_gid_entry table[] = {
        {.gid = LINK_LOCAL,
         .gid_index = 0,
         .port_num = 1,
         .gid_type = IBV_GID_TYPE_ROCE_V2},
        {.gid = GLOBAL, .gid_index = 1, .port_num = 1, .gid_type = IBV_GID_TYPE_ROCE_V2},
        {.gid = MAPPED(1),
         .gid_index = 2,
         .port_num = 1,
         .gid_type = IBV_GID_TYPE_ROCE_V2},
        {.gid = MAPPED(2),
         .gid_index = 3,
         .port_num = 1,
         .gid_type = IBV_GID_TYPE_ROCE_V1},
        {.gid = MAPPED(2),
         .gid_index = 4,
         .port_num = 1,
         .gid_type = IBV_GID_TYPE_ROCE_V2},
        {.gid = MAPPED(9),
         .gid_index = 5,
         .port_num = 2,
         .gid_type = IBV_GID_TYPE_ROCE_V2},
        {.gid = MAPPED(9),
         .gid_index = 256,
         .port_num = 1,
         .gid_type = IBV_GID_TYPE_ROCE_V2},
    };

    (void)state;
    assert_int_equal(best_gid(table, 7, 1, &here), 4);
    assert_int_equal(best_gid(table, 7, 1, &six), 1);
    assert_int_equal(best_gid(table, 7, 1, &elsewhere), 2); /* first IPv4-mapped */
    assert_int_equal(best_gid(table, 2, 1, &here), 1);      /* none: not link-local */
    assert_int_equal(best_gid(table, 1, 1, &here), -1);
    assert_int_equal(best_gid(table, 7, 3, &here), -1);
    assert_int_equal(best_gid(table, 0, 1, &here), -1);
}

static void mtus_go_to_enums_and_back(void **state)
{
    (void)state;
    for (unsigned bytes = 256; bytes <= 4096; bytes *= 2)
        assert_int_equal(mtu_to_bytes(mtu_to_enum(bytes)), bytes);
    assert_int_equal(mtu_to_enum(1024), IBV_MTU_1024);
}

static void numbers_are_read_strictly(void **state)
{
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
                                      "99999999999999999999",
                                      "18014398509481985K"};
    uint64_t n = 42;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (parse_number(bad[i], 0, UINT64_MAX, &n))
            fail_msg("accepted '%s'", bad[i]);
    assert_false(parse_number("0", 1, 10, &n));
    assert_false(parse_number("11", 1, 10, &n));
    assert_int_equal(n, 42);
    assert_true(parse_number("10", 1, 10, &n) && n == 10);
    assert_true(parse_number("4K", 1, 4096, &n) && n == 4096);
    assert_true(parse_number("2m", 1, UINT64_MAX, &n) && n == 2097152);
    assert_true(parse_number("18446744073709551615", 0, UINT64_MAX, &n) &&
                n == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gid_of_the_connection_comes_first),
        cmocka_unit_test(mtus_go_to_enums_and_back),
        cmocka_unit_test(numbers_are_read_strictly),
    };

    return cmocka_run_group_tests_name("choices", tests, NULL, NULL);
}
