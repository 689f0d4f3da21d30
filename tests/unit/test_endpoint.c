/* The rendezvous line, as text and back. */
#include "rendezvous.h"
#include "unit.h"

#include <stdio.h>
#include <string.h>

static const char good[] =
    "hello-verbs/1 sample=03_read lid=0x0012 qpn=0x000011 psn=0x3a5f10 "
    "gid=0000:0000:0000:0000:0000:ffff:0a00:0001 mtu=1024 addr=0x00005581e0a2b000 "
    "rkey=0x000002a1 len=4096 size=8192 iters=3 seed=18446744073709551615 timeout=30 "
    "digest=0x00000000000000ff";

static const char *parse(const char *line)
{
    struct endpoint ep;

    return parse_endpoint(line, strlen(line), "03_read", &ep);
}

/* The good line with one part replaced. */
static const char *with(const char *from, const char *to)
{
    static char line[2 * LINE_SIZE];
    const char *at = strstr(good, from);

    assert_non_null(at);
    snprintf(line, sizeof(line), "%.*s%s%s", (int)(at - good), good, to,
             at + strlen(from));
    return line;
}

static void a_good_line_is_read_whole(void **state)
{
    struct endpoint ep;

    (void)state;
    assert_null(parse_endpoint(good, strlen(good), "03_read", &ep));
    assert_string_equal(ep.sample, "03_read");
    assert_int_equal(ep.lid, 0x12);
    assert_int_equal(ep.qpn, 0x11);
    assert_int_equal(ep.psn, 0x3a5f10);
    assert_int_equal(ep.gid.raw[11], 0xff);
    assert_int_equal(ep.gid.raw[12], 10);
    assert_int_equal(ep.gid.raw[15], 1);
    assert_int_equal(ep.mtu, 1024);
    assert_true(ep.addr == 0x5581e0a2b000u);
    assert_int_equal(ep.rkey, 0x2a1);
    assert_int_equal(ep.len, 4096);
    assert_int_equal(ep.size, 8192);
    assert_int_equal(ep.iters, 3);
    assert_true(ep.seed == UINT64_MAX);
    assert_int_equal(ep.timeout, 30);
    assert_int_equal(ep.digest, 255);
}

static void what_is_written_is_read_again(void **state)
{
    struct endpoint ep, again;
    char line[LINE_SIZE];

    (void)state;
    assert_null(parse_endpoint(good, strlen(good), "03_read", &ep));
    size_t len = format_endpoint(&ep, line);
    assert_int_equal(len, strlen(good) + 1);
    assert_memory_equal(line, good, len - 1);
    assert_int_equal(line[len - 1], '\n');
    assert_null(parse_endpoint(line, len - 1, "03_read", &again));
    assert_memory_equal(&ep, &again, sizeof(ep));
}

static void the_longest_line_fits(void **state)
{
    struct endpoint ep;
    char line[LINE_SIZE];

    (void)state;
    memset(&ep, 0xff, sizeof(ep));
    snprintf(ep.sample, sizeof(ep.sample), "07%0*d", (int)sizeof(ep.sample) - 3, 0);
    snprintf(ep.method, sizeof(ep.method), "%0*d", (int)sizeof(ep.method) - 1, 0);
    snprintf(ep.sizes, sizeof(ep.sizes), "%0*d", (int)sizeof(ep.sizes) - 1, 0);
    size_t len = format_endpoint(&ep, line);
    assert_true(len > 500 && len < LINE_SIZE);
    assert_int_equal(line[len - 1], '\n');
}

static void samples_with_a_layout_have_its_fields_too(void **state)
{
    static const char layout[] = " block_size=64 block_num=128 stride=100 method=auto "
                                 "max_sge=30 rd_atomic=16 depth=4 sizes=4K,64K";
    char line[LINE_SIZE], again[LINE_SIZE];
    struct endpoint ep;

    (void)state;
    snprintf(line, sizeof(line), "%s%s", with("03_read", "06_scatter_read"), layout);
    assert_null(parse_endpoint(line, strlen(line), "06_scatter_read", &ep));
    assert_int_equal(ep.block_size, 64);
    assert_int_equal(ep.stride, 100);
    assert_string_equal(ep.method, "auto");
    assert_string_equal(ep.sizes, "4K,64K");
    size_t len = format_endpoint(&ep, again);
    assert_int_equal(len, strlen(line) + 1);
    assert_memory_equal(again, line, len - 1);
    /* the others neither want them nor send them */
    assert_null(parse(with("digest", "block_size=0 stride=0 digest")));
    assert_non_null(
        parse_endpoint(line, strlen(line) - strlen(layout), "06_scatter_read", &ep));
}

static void order_and_unknown_fields_do_not_matter(void **state)
{
    (void)state;
    assert_null(parse(with(" lid=0x0012", "")) ? NULL : "lid was not missed");
    assert_null(parse(with("sample=03_read lid=0x0012", "lid=0x0012 sample=03_read")));
    assert_null(parse(with(" mtu", " colour=blue mtu")));
    assert_null(parse(with("0x000002a1", "673")));
}

static void each_field_is_needed_once(void **state)
{
    static const char *const names[] = {"sample", "lid",  "qpn",     "psn",   "gid",
                                        "mtu",    "addr", "rkey",    "len",   "size",
                                        "iters",  "seed", "timeout", "digest"};
    char from[64], to[128];

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(from, sizeof(from), " %s=", names[i]);
        snprintf(to, sizeof(to), " x%s=", names[i]);
        assert_string_equal(strstr(parse(with(from, to)), "missing"), "missing");
        const char *value = strstr(good, from) + 1;
        snprintf(to, sizeof(to), " %.*s%s", (int)strcspn(value, " "), value, from);
        assert_string_equal(strstr(parse(with(from, to)), "repeated"), "repeated");
        snprintf(to, sizeof(to), " %s= x", names[i]);
        assert_non_null(parse(with(from, to)));
    }
}

static void malformed_lines_are_refused(void **state)
{
    static const char *const changes[][2] = {
        {"hello-verbs/1", "hello-verbs/2"},
        {"hello-verbs/1", "hello-verbs/10"},
        {"hello-verbs/1", "GET / HTTP/1.1"},
        {"hello-verbs/1", ""},
        {"hello-verbs/1 ", "hello-verbs/1  "},
        {" lid", "\tlid"},
        {" mtu=1024", " mtu=1024 "},
        {" mtu=1024", " mtu"},
        {" mtu=1024", " =1024"},
        {"mtu=1024", "mtu=1000"},
        {"mtu=1024", "mtu=128"},
        {"mtu=1024", "mtu=8192"},
        {"lid=0x0012", "lid=0x10000"},
        {"qpn=0x000011", "qpn=0x1000000"},
        {"psn=0x3a5f10", "psn=0x"},
        {"psn=0x3a5f10", "psn=0xg"},
        {"psn=0x3a5f10", "psn=-1"},
        {"psn=0x3a5f10", "psn=+1"},
        {"len=4096", "len=18446744073709551616"},
        {"addr=0x00005581e0a2b000", "addr=0x10000000000000000"},
        {"rkey=0x000002a1", "rkey=0x100000000"},
        {"len=4096", "len=4k"},
        {"len=4096", "len=0X10"},
        {"size=8192", "size=0"},
        {"size=8192", "size=67108865"},
        {"iters=3", "iters=0"},
        {"iters=3", "iters=1000001"},
        {"timeout=30", "timeout=0"},
        {"timeout=30", "timeout=3601"},
        {"gid=0000:", "gid=000:"},
        {"gid=0000:0000", "gid=0000-0000"},
        {":0001 ", ":00010 "},
        {":0001 ", ":000g "},
        {"sample=03_read", "sample=04_atomic"},
        {"sample=03_read", "sample="},
        {"sample=03_read", "sample=0123456789012345678901234567890123456789"},
        {"sample=03_read", "sample=\x1b[31m"},
        {"sample=03_read", "sample=\xc3\xa9"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        const char *line = with(changes[i][0], changes[i][1]);
        if (!parse(line))
            fail_msg("accepted: %s", line);
    }
    assert_non_null(parse(""));
    assert_non_null(parse("hello-verbs/1"));
    assert_non_null(parse("hello-verbs/1 error=\"no\""));
}

static void a_line_may_hold_a_nul_and_is_refused(void **state)
{
    char line[sizeof(good)];
    struct endpoint ep;

    (void)state;
    for (size_t i = 0; i < sizeof(good) - 1; i++) {
        memcpy(line, good, sizeof(good));
        line[i] = '\0';
        assert_non_null(parse_endpoint(line, sizeof(good) - 1, "03_read", &ep));
    }
}

static void every_cut_line_is_refused(void **state)
{
    struct endpoint ep;

    (void)state;
    /* up to "digest=", the last field: any of its digits make a number */
    for (size_t len = 0; len <= strlen(good) - 18; len++)
        assert_non_null(parse_endpoint(good, len, "03_read", &ep));
}

static void another_sample_is_named_in_the_reason(void **state)
{
    (void)state;
    assert_string_equal(parse(with("03_read", "02_send_recv")),
                        "this side runs 03_read, the other 02_send_recv");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_line_is_read_whole),
        cmocka_unit_test(what_is_written_is_read_again),
        cmocka_unit_test(the_longest_line_fits),
        cmocka_unit_test(samples_with_a_layout_have_its_fields_too),
        cmocka_unit_test(order_and_unknown_fields_do_not_matter),
        cmocka_unit_test(each_field_is_needed_once),
        cmocka_unit_test(malformed_lines_are_refused),
        cmocka_unit_test(a_line_may_hold_a_nul_and_is_refused),
        cmocka_unit_test(every_cut_line_is_refused),
        cmocka_unit_test(another_sample_is_named_in_the_reason),
    };

    return cmocka_run_group_tests_name("endpoint", tests, NULL, NULL);
}
