/*
 * libFuzzer's target: what a stranger may send over TCP. The input's first byte says what
 * the rest is: '1' to '7' the line of that sample, 'z' a block size and a list of sizes,
 * as "z4096 4K,64K".
 */
#define _GNU_SOURCE
#include "bench.h"
#include "layout.h"
#include "rendezvous.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const samples[] = {
    "01_hello_write",  "02_send_recv",    "03_read", "04_atomic",
    "05_gather_write", "06_scatter_read", "07_gssr"};

static void demand(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "broken: %s\n", what);
        abort();
    }
}

/* A plan that is accepted must be one that memory can be had for. */
static void check_plan(const struct bench_plan *plan, unsigned depth)
{
    const struct bench_room room = bench_room(plan, depth);

    demand(plan->count > 0 && plan->count <= MAX_POINTS, "points of a plan");
    demand(plan->by_size <= plan->count, "points by size");
    for (size_t i = 0; i < plan->count; i++) {
        const struct layout *l = &plan->point[i];
        demand(l->bytes > 0 && l->bytes <= l->span && l->span <= MAX_SPAN, "a layout");
        demand(l->bytes == l->block_size * l->block_num, "a layout's bytes");
    }
    demand(room.span <= MAX_SPAN && room.staging <= MAX_SPAN, "memory for a plan");
}

static void check_line(const char *sample, const char *line, size_t len)
{
    struct endpoint ep, again;
    char out[LINE_SIZE];
    const char *reason = parse_endpoint(line, len, sample, &ep);

    if (reason) { /* it goes into an error line */
        demand(strlen(reason) > 0 && strlen(reason) < 200, "length of a reason");
        for (const char *p = reason; *p; p++)
            demand(*p >= ' ' && *p <= '~', "a reason in ASCII");
        return;
    }
    demand(strcmp(ep.sample, sample) == 0, "the sample");
    demand(ep.size > 0 && ep.size <= MAX_SIZE && ep.iters > 0, "the workload");
    if (ep.block_num > 0) {
        struct bench_plan plan = {.count = 1};
        const char *wrong = ep.depth > 0 ? bench_make_plan(&plan, ep.sizes, ep.block_size)
                                         : layout_set(&plan.point[0], ep.block_size,
                                                      ep.block_num, ep.stride);
        demand(!wrong, "an accepted layout");
        check_plan(&plan, ep.depth > 0 ? ep.depth : 1);
    }
    /* What was understood says the same when written and read again. */
    size_t n = format_endpoint(&ep, out);
    demand(n <= LINE_SIZE && out[n - 1] == '\n', "the line written");
    demand(!parse_endpoint(out, n - 1, sample, &again), "the line read again");
    demand(memcmp(&ep, &again, sizeof(ep)) == 0, "the same line");
}

static void check_sizes(const char *text)
{
    struct bench_plan plan;
    char *end;
    uint64_t block_size = strtoull(text, &end, 10);

    if (block_size > 0 && *end == ' ' && !bench_make_plan(&plan, end + 1, block_size))
        check_plan(&plan, MAX_DEPTH);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data + 1;

    if (size > 0 && data[0] >= '1' && data[0] <= '7')
        check_line(samples[data[0] - '1'], text, size - 1);
    if (size > 0 && data[0] == 'z') {
        char *copy = strndup(text, size - 1);
        demand(copy != NULL, "memory");
        check_sizes(copy);
        free(copy);
    }
    return 0;
}
