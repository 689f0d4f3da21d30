/* SPDX-License-Identifier: BSD-2-Clause */
#include "work.h"
#include "report.h"

#define DEFAULT_SIZES "4K,16K,64K,256K,1M,4M"
const char *const method_names[METHOD_COUNT] = {"sgl", "copy", "each", "auto", "contig"};

enum method method_for(enum method method, const struct layout *l, unsigned mtu) {
    if (method != METHOD_AUTO) return method;
    return l->block_size >= mtu ? METHOD_SGL : METHOD_COPY;
}

static const char *add_point(struct plan *plan, uint64_t block_size, uint64_t bytes) {
    const uint64_t block_num = bytes / block_size ? bytes / block_size : 1;
    if (plan->count == MAX_POINTS) return "more than 40 points";
    struct layout *next = &plan->point[plan->count];
    plan->count++;
    return layout_set(next, block_size, block_num, 2 * block_size);
}

const char *plan_measurement(struct plan *plan, const char *sizes, uint64_t block_size) {
    const char *wrong = NULL;
    *plan = (struct plan){.count = 0};
    if (block_size == 0 || block_size > MAX_SPAN / 2)
        return "blocks of 1 byte to 32 MiB can be measured";
    for (const char *p = sizes; p && !wrong; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        char number[24];
        uint64_t bytes;
        snprintf(number, sizeof(number), "%.*s", (int)strcspn(p, ","), p);
        if (!parse_number(number, 1, MAX_SIZE, &bytes))
            return "sizes: give numbers from 1 to 64M, as 4K,64K,1M";
        wrong = add_point(plan, block_size, bytes);
    }
    plan->size_points = plan->count;
    for (size_t b = 64; b <= SWEEP_BYTES && !wrong; b *= 2) wrong = add_point(plan, b, SWEEP_BYTES);
    return wrong;
}

unsigned plan_depth(const struct layout *l, uint64_t depth) {
    const size_t fit = MAX_SPAN / l->bytes;
    return depth < fit ? (unsigned)depth : fit > 0 ? (unsigned)fit : 1;
}

/* Checks the fields of *w together and derives the others. */
static const char *settle(struct options *opt, struct block_work *w) {
    const char *wrong = w->bench ? plan_measurement(&w->plan, w->sizes, w->block_size) : NULL;
    struct layout l;
    if (!wrong) wrong = layout_set(&l, w->block_size, w->block_num, w->stride);
    if (wrong) return wrong;
    if (!w->bench) w->plan = (struct plan){.point = {l}, .count = 1};
    if (w->bench && opt->iters > MAX_ROUNDS) return "iters: at most 1000 rounds";
    opt->size = l.bytes;
    for (w->method = METHOD_SGL; w->method <= METHOD_AUTO; w->method++)
        if (strcmp(w->method_name, method_names[w->method]) == 0) return NULL;
    return "method: sgl, copy, each or auto";
}

static void format_work(const struct options *opt, char *out, size_t room) {
    const struct block_work *w = opt->work;
    snprintf(out, room, ",block_size=%ju,block_num=%ju,stride=%ju,method=%s,depth=%ju,sizes=%s",
             w->block_size, w->block_num, w->stride, w->method_name, w->bench ? w->depth : 0,
             w->bench ? w->sizes : "none");
}

static const char *parse_work(struct options *opt, const char *text) {
    static char method[8], sizes[128];
    struct block_work *w = opt->work;
    const uint64_t bytes = opt->size;
    char again[400]; /* sscanf takes signs and blanks, but does not print them */
    sscanf(text, ",block_size=%ju,block_num=%ju,stride=%ju,method=%7[a-z],depth=%ju,sizes=%127[^ ]",
           &w->block_size, &w->block_num, &w->stride, method, &w->depth, sizes);
    w->method_name = method;
    w->sizes = sizes;
    w->bench = w->depth > 0;
    format_work(opt, again, sizeof(again));
    if (strcmp(text, again) != 0 || w->depth > MAX_DEPTH) return "work= is malformed after timeout";
    const char *wrong = settle(opt, w);
    return wrong || opt->size == bytes ? wrong : "size is not block_size * block_num";
}

void parse_block_options(struct options *opt, struct block_work *w, int argc, char **argv) {
    const struct option_row rows[] = {
        {'B', "block-size", "BYTES", "bytes in a block", NUMBER(w->block_size, 1, MAX_SPAN)},
        {0, "block-num", "N", "number of blocks", NUMBER(w->block_num, 1, MAX_BLOCKS)},
        {'T', "stride", "BYTES", "between block starts (2 blocks)", NUMBER(w->stride, 1, MAX_SPAN)},
        {'S', "seed", "N", "seed of the test data", NUMBER(opt->seed, 0, UINT64_MAX)},
        {'I', "student", "ID", "layout and seed that belong to this ID", .text = &w->student},
        {'x', "method", "NAME", "sgl (default), copy, each or auto", .text = &w->method_name},
        {'n', "iters", "N", "messages (1); --bench: rounds (11)", NUMBER(opt->iters, 1, MAX_ITERS)},
        {'k', "bench", NULL, "measure all methods", NUMBER(w->bench, 1, 1)},
        {'D', "depth", "N", "messages in flight for bandwidth (16)",
         NUMBER(w->depth, 1, MAX_DEPTH)},
        {'z', "sizes", "LIST", "of messages (" DEFAULT_SIZES ")", .text = &w->sizes},
        {0, "csv", "FILE", "write the figures to FILE, too", .text = &w->csv},
        {0},
    };
    *w = (struct block_work){.block_size = 4096, .block_num = 64};
    opt->seed = 1;
    opt->work = w;
    opt->format_work = format_work;
    opt->parse_work = parse_work;
    parse_options(opt, rows, argc, argv);
    if (!opt->host) return;
    if (!w->bench && (w->sizes || w->csv || w->depth))
        stop(EXIT_USAGE, 0, "--sizes, --depth and --csv need --bench");
    if (w->bench && w->method_name)
        stop(EXIT_USAGE, 0, "--bench measures all methods: leave --method out");
    if (w->student && (w->block_size != 4096 || w->block_num != 64 || w->stride || opt->seed != 1))
        stop(EXIT_USAGE, 0, "--student gives the layout and the seed: leave these options out");
    if (w->depth == 0) w->depth = 16;
    if (!w->method_name) w->method_name = "sgl";
    if (w->student) {
        struct layout l;
        layout_of_student(w->student, &l, &opt->seed);
        w->block_size = l.block_size;
        w->block_num = l.block_num;
        w->stride = l.stride;
    }
    if (w->stride == 0) w->stride = 2 * w->block_size;
    if (!w->sizes) w->sizes = DEFAULT_SIZES;
    if (opt->iters == 0) opt->iters = w->bench ? 11 : 1;
    const char *wrong = strlen(w->sizes) > 127 ? "--sizes: the list is too long" : settle(opt, w);
    if (wrong) stop(EXIT_USAGE, 0, "%s", wrong);
}

void print_layout(const struct options *opt, const struct block_work *w) {
    printf("LAYOUT block_size=%ju block_num=%ju stride=%ju bytes=%ju seed=%ju\n", w->block_size,
           w->block_num, w->stride, opt->size, opt->seed);
}
