/* SPDX-License-Identifier: BSD-2-Clause */
/* The rendezvous line and its work. tests/fuzz tries many more lines. */
#include "../../common/rendezvous.c"
#include "memory.h"
#include "unit.h"

#define WORK_OF_03 "size=8192,iters=3,seed=18446744073709551615,timeout=30"
static const char good[] = "hello-verbs/2 sample=03_read lid=0x0012 qpn=0x000011 psn=0x3a5f10 "
                           "gid=::ffff:10.0.0.1 mtu=1024 addr=0x5581e0a2b000 rkey=0x2a1 len=4096 "
                           "max_sge=32 rd_atomic=16 work=" WORK_OF_03;

static const char *parse(const char *line) {
    struct options opt = {.sample = "03_read"};
    struct endpoint ep;
    const char *work, *wrong = parse_line(line, "03_read", &ep, &work);
    return wrong ? wrong : parse_work(&opt, work);
}

/* The good line with one part replaced. */
static const char *with(const char *from, const char *to) {
    static char line[2 * LINE_SIZE];
    const char *at = strstr(good, from);
    assert_non_null(at);
    snprintf(line, sizeof(line), "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
    return line;
}

static void a_good_line_is_read_whole(void **state) {
    struct options opt = {.sample = "03_read"};
    struct endpoint ep;
    const char *work;
    (void)state;
    assert_null(parse_line(good, "03_read", &ep, &work));
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
    assert_int_equal(ep.max_sge, 32);
    assert_int_equal(ep.rd_atomic, 16);
    assert_string_equal(work, WORK_OF_03);
    assert_null(parse_work(&opt, work));
    assert_int_equal(opt.size, 8192);
    assert_int_equal(opt.iters, 3);
    assert_true(opt.seed == UINT64_MAX);
    assert_int_equal(opt.timeout, 30);
}

static void a_servers_own_timeout_stays(void **state) {
    struct options opt = {.sample = "03_read", .timeout = 7};
    (void)state;
    assert_null(parse_work(&opt, WORK_OF_03));
    assert_int_equal(opt.timeout, 7);
}

static void malformed_lines_are_refused(void **state) {
    static const char *const changes[][2] = {
        {"hello-verbs/2", "hello-verbs/1"},
        {"hello-verbs/2", "hello-verbs/20"},
        {"hello-verbs/2", "GET / HTTP/1.1"},
        {"hello-verbs/2", ""},
        {"hello-verbs/2 ", "hello-verbs/2  "},
        {" lid", "\tlid"},
        {" lid=0x0012", ""},
        {" mtu=1024", " mtu=1024 "},
        {" mtu=1024", " mtu"},
        {" mtu=1024", " colour=blue mtu=1024"},
        {" mtu=1024", " mtu=1024 mtu=1024"},
        {"mtu=1024", "mtu=1000"},
        {"mtu=1024", "mtu=128"},
        {"mtu=1024", "mtu=8192"},
        {"lid=0x0012", "lid=0x10000"},
        {"lid=0x0012", "lid=18"},
        {"qpn=0x000011", "qpn=0x1000000"},
        {"psn=0x3a5f10", "psn=0x"},
        {"psn=0x3a5f10", "psn=0xg"},
        {"psn=0x3a5f10", "psn=0x-1"},
        {"psn=0x3a5f10", "psn=0x0x1"},
        {"psn=0x3a5f10", "psn=0x 1"},
        {"addr=0x5581e0a2b000", "addr=0x10000000000000000"},
        {"rkey=0x2a1", "rkey=0x100000000"},
        {"len=4096", "len=+1"},
        {"len=4096", "len=4k"},
        {"max_sge=32", "max_sge=0"},
        {"rd_atomic=16", "rd_atomic=256"},
        {"size=8192", "size=0"},
        {"size=8192", "size=67108865"},
        {"size=8192", "size= 8192"},
        {"size=8192", "size=08192"},
        {"iters=3", "iters=0"},
        {"iters=3", "iters=1000001"},
        {"timeout=30", "timeout=0"},
        {"timeout=30", "timeout=3601"},
        {"timeout=30", "timeout=30 "},
        {"timeout=30", "timeout=30,more=1"},
        {"gid=::ffff:10.0.0.1", "gid="},
        {"gid=::ffff:10.0.0.1", "gid=10.0.0.1"},
        {"gid=::ffff:10.0.0.1", "gid=::ffff:10.0.0.256"},
        {"sample=03_read", "sample=04_atomic"},
        {"sample=03_read", "sample="},
        {"sample=03_read", "sample=0123456789012345678901234567890123456789"},
    };
    (void)state;
    assert_null(parse(good));
    for (size_t i = 0; i < COUNT(changes); i++) {
        const char *line = with(changes[i][0], changes[i][1]);
        if (!parse(line)) fail_msg("accepted: %s", line);
    }
    assert_non_null(parse(""));
    assert_non_null(parse("hello-verbs/2"));
    assert_non_null(parse("hello-verbs/2 error=no"));
}

static void work_with_a_layout_is_checked_as_a_whole(void **state) {
    static const struct {
        const char *size, *more;
        bool good;
    } works[] = {
        {"8192", ",block_size=64,block_num=128,stride=100,method=auto,depth=0,sizes=none", true},
        {"8192", ",block_size=64,block_num=128,stride=100,method=sgl,depth=4,sizes=4K,64K", true},
        {"8191", ",block_size=64,block_num=128,stride=100,method=sgl,depth=0,sizes=none", false},
        {"8192", ",block_size=64,block_num=128,stride=63,method=sgl,depth=0,sizes=none", false},
        {"8192", ",block_size=64,block_num=128,stride=100,method=best,depth=0,sizes=none", false},
        {"8192", ",block_size=64,block_num=128,stride=100,method=sgl,depth=0,sizes=4K", false},
        {"8192", ",block_size=64,block_num=128,stride=100,method=sgl,depth=65,sizes=4K", false},
        {"8192", ",block_size=64,block_num=128,stride=100,method=sgl,depth=1,sizes=4Q", false},
        {"8192", ",block_size=64,block_num=128,stride=100,method=sgl,depth=1,sizes=none", false},
        {"8192", ",block_size=64,block_num=128,stride=1000000,method=sgl,depth=0,sizes=none",
         false},
        {"8192", "", false},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(works); i++) {
        char text[LINE_SIZE], name[] = "05_gather_write", *argv[] = {name, NULL};
        struct options opt = {.sample = name};
        struct block_work work;
        optind = 1;
        parse_block_options(&opt, &work, 1, argv); /* as a server */
        snprintf(text, sizeof(text), "size=%s,iters=1,seed=1,timeout=30%s", works[i].size,
                 works[i].more);
        if (!parse_work(&opt, text) != works[i].good) fail_msg("wrongly judged: %s", text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_line_is_read_whole),
        cmocka_unit_test(a_servers_own_timeout_stays),
        cmocka_unit_test(malformed_lines_are_refused),
        cmocka_unit_test(work_with_a_layout_is_checked_as_a_whole),
    };
    return cmocka_run_group_tests_name("rendezvous", tests, NULL, NULL);
}
