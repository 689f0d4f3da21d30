/* SPDX-License-Identifier: BSD-2-Clause */
/* libFuzzer's target: the line that a stranger may send over TCP. The input's first byte is the
 * number of the sample that reads it, '1' to '7'; the rest is the line. */
#include "../../common/rendezvous.c"
#include "memory.h"

#include <stdlib.h>

static void demand(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "broken: %s\n", what);
    abort();
}

/* Work that is accepted must be such that memory can be allocated for it. */
static void check_layouts(const struct options *opt, const struct block_work *work) {
    const struct plan *plan = &work->plan;
    demand(plan->count > 0 && plan->count <= MAX_POINTS, "points of a plan");
    demand(plan->size_points <= plan->count && work->depth <= MAX_DEPTH, "numbers of a plan");
    demand(work->bench || plan->count == 1, "one layout");
    demand(work->bench || opt->size == plan->point[0].bytes, "size");
    demand(work->method <= METHOD_AUTO, "the method");
    for (size_t i = 0; i < plan->count; i++) {
        const struct layout *l = &plan->point[i];
        demand(l->bytes > 0 && l->bytes <= l->span && l->span <= MAX_SPAN, "a layout");
        demand(l->bytes == l->block_size * l->block_num, "a layout's bytes");
        demand(l->bytes * plan_depth(l, work->depth) <= MAX_SPAN || plan_depth(l, 64) == 1,
               "staging buffers");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const samples[] = {"01_hello_write", "02_send_recv",    "03_read",
                                          "04_atomic",      "05_gather_write", "06_scatter_read",
                                          "07_gssr"};
    static char program[] = "", *argv[] = {program, NULL};
    if (size < 1 || size > LINE_SIZE || data[0] < '1' || data[0] > '7') return 0;

    char line[LINE_SIZE];
    memcpy(line, data + 1, size - 1);
    line[size - 1] = '\0';
    for (const char *p = line; *p; p++)
        if (*p < ' ' || *p > '~') return 0; /* read_line lets none of these through */

    struct options opt = {.sample = samples[data[0] - '1']};
    struct block_work work;
    struct endpoint ep;
    const char *text;
    optind = 0;
    if (data[0] >= '5') parse_block_options(&opt, &work, 1, argv);
    const char *wrong = parse_line(line, opt.sample, &ep, &text);
    if (!wrong) wrong = parse_work(&opt, text);
    if (wrong) { /* it goes into an error line */
        demand(strlen(wrong) > 0 && strlen(wrong) < 200, "length of a reason");
        for (const char *p = wrong; *p; p++) demand(*p >= ' ' && *p <= '~', "a reason in ASCII");
        return 0;
    }
    demand(text > line && text <= line + strlen(line), "work= lies in the line");
    demand(ep.lid <= 0xffff && ep.qpn <= 0xffffff && ep.psn <= 0xffffff, "ranges of numbers");
    demand(ep.mtu >= 256 && ep.mtu <= 4096 && __builtin_popcount(ep.mtu) == 1 && ep.max_sge >= 1 &&
               ep.rd_atomic <= 255,
           "ranges of limits");
    demand(opt.size >= 1 && opt.size <= MAX_SIZE && opt.iters >= 1 && opt.iters <= MAX_ITERS &&
               opt.timeout >= 1 && opt.timeout <= MAX_TIMEOUT,
           "the work");
    if (data[0] >= '5') check_layouts(&opt, &work);
    return 0;
}
