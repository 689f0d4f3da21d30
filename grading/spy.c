/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * spy.so - loaded into a student's program (LD_PRELOAD) to see how it moves its message:
 * which pieces of memory stand in its work requests, and, where it receives, whether
 * every byte and every gap is right in the end. It stands between libibverbs and the
 * device's driver, and changes nothing.
 *
 *   SPY="SENDS METHOD BLOCK_SIZE BLOCK_NUM STRIDE SEED FILE"
 *
 * SENDS: 1 where this side's send requests are to be watched, 2 the same where they bring
 * data (READ), 0 its receives. What isn't as it should be goes to FILE, a line each.
 */
#define _GNU_SOURCE
#include "layout.h"

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REGIONS = 64 };

static struct {
    bool on, ended;
    int sends;
    char method[8];
    struct layout layout;
    uint64_t seed;
    FILE *out;
    char *base;     /* of block 0; NULL: not known (yet) */
    char *before;   /* the span as it was when the first request was posted */
    uint64_t bytes; /* in the requests up to now */
    uint32_t requests, elements, longest;
    uint32_t max_sge;
    bool told; /* of an element in the wrong place: once */
    struct {
        char *addr;
        size_t length;
    } region[REGIONS];
    int regions;
} spy;

static int (*real_post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
static int (*real_post_recv)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);

__attribute__((format(printf, 1, 2))) static void say(const char *fmt, ...) {
    va_list args;

    va_start(args, fmt);
    vfprintf(spy.out, fmt, args);
    va_end(args);
    fputc('\n', spy.out);
    fflush(spy.out);
}

__attribute__((constructor)) static void begin(void) {
    uint64_t size, num, stride;
    char path[200];
    const char *spec = getenv("SPY");

    if (!spec || sscanf(spec, "%d %7s %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %199s",
                        &spy.sends, spy.method, &size, &num, &stride, &spy.seed, path) != 7)
        return;
    spy.out = fopen(path, "w");
    spy.on = spy.out && !layout_set(&spy.layout, size, num, stride);
}

/* The blocks are where the first list says, or, with a staging buffer in it, the
 * registered region that could hold them and isn't that buffer. */
static void find_base(char *first, bool staging) {
    if (spy.base || spy.before) return;
    if (!staging) spy.base = first;
    for (int i = 0; staging && i < spy.regions; i++)
        if (spy.region[i].length == spy.layout.span &&
            (first < spy.region[i].addr || first >= spy.region[i].addr + spy.region[i].length))
            spy.base = spy.region[i].addr;
    spy.before = malloc(spy.layout.span);
    if (spy.base && spy.before) memcpy(spy.before, spy.base, spy.layout.span);
}

/* A request's list: its elements have to be the message's next blocks. Only blocks
 * without gaps may share an element. */
static void look(const struct ibv_sge *sge, int count) {
    const struct layout *l = &spy.layout;
    const bool staging = strcmp(spy.method, "copy") == 0;

    if (!spy.on || spy.ended || count < 1) return;
    spy.requests++;
    for (int i = 0; i < count; i++) {
        /* An iWARP or RoCE device makes no difference between addresses and pointers. */
        char *addr = (char *)(uintptr_t)sge[i].addr;
        find_base(addr, staging);
        const size_t block = spy.bytes / l->block_size;
        const bool whole = l->stride == l->block_size ? sge[i].length % l->block_size == 0
                                                      : sge[i].length == l->block_size;
        if (!staging && !spy.told &&
            (!whole || addr != spy.base + block * l->stride || block >= l->block_num)) {
            say("list element %" PRIu32 " is no block: %" PRIu32 " bytes at %+td from "
                "block 0; block %zu is %zu bytes at %+zd",
                spy.elements, sge[i].length, addr - spy.base, block, l->block_size,
                block * l->stride);
            spy.told = true;
        }
        spy.bytes += sge[i].length;
        spy.elements++;
    }
    if ((uint32_t)count > spy.longest) spy.longest = (uint32_t)count;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    for (struct ibv_send_wr *w = wr; w && spy.sends; w = w->next) look(w->sg_list, w->num_sge);
    return real_post_send(qp, wr, bad);
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    for (struct ibv_recv_wr *w = wr; w && !spy.sends; w = w->next) look(w->sg_list, w->num_sge);
    return real_post_recv(qp, wr, bad);
}

/* What came of it: called while the memory is still there. */
static void finish(void) {
    const struct layout *l = &spy.layout;

    if (!spy.on || spy.ended) return;
    spy.ended = true;
    if (spy.requests == 0)
        say("no work request of its was seen: ibv_post_send and ibv_post_recv are "
            "watched");
    else if (spy.bytes != l->bytes)
        say("its lists hold %" PRIu64 " bytes, the message has %zu", spy.bytes, l->bytes);
    if (strcmp(spy.method, "sgl") == 0) {
        const size_t half = spy.max_sge > 1 ? spy.max_sge / 2 : 1;
        if (spy.requests > (l->block_num + half - 1) / half)
            say("sgl: %" PRIu32 " work requests for %zu blocks, though a list may have %" PRIu32
                " elements",
                spy.requests, l->block_num, spy.max_sge);
    } else if (strcmp(spy.method, "each") == 0) {
        if (spy.requests != l->block_num || spy.longest != 1)
            say("each: %" PRIu32 " work requests with up to %" PRIu32 " elements, for %zu "
                "blocks",
                spy.requests, spy.longest, l->block_num);
    } else if (spy.requests != 1 || spy.elements != 1) {
        say("copy: %" PRIu32 " work requests with %" PRIu32 " elements, not one of one",
            spy.requests, spy.elements);
    }
    if (spy.sends == 1 || !spy.base || !spy.before) return;
    /* It has received: the blocks as the peer filled its own, the gaps as they were. */
    char *right = spy.before;
    char *message = malloc(l->span);
    if (!message) return;
    layout_fill(l, message, spy.seed, false);
    for (size_t i = 0; i < l->block_num; i++)
        memcpy(right + i * l->stride, message + i * l->stride, l->block_size);
    size_t i = 0;
    while (i < l->span && right[i] == spy.base[i]) i++;
    if (i < l->span)
        say("byte %zu of its memory, in %s %zu, is wrong", i,
            i % l->stride < l->block_size ? "block" : "the gap behind block", i / l->stride);
    free(message);
}

__attribute__((destructor)) static void end(void) {
    if (spy.on && !spy.ended) say("it ended without destroying its queue pair");
}

/* ---- the calls of libibverbs that it stands in front of ---- */

static void *next_of(const char *name, const char *version) {
    void *found = dlvsym(RTLD_NEXT, name, version);

    if (!found) abort();
    return found;
}

static void watch(struct ibv_context *ctx) {
    struct ibv_device_attr attr;

    if (ctx->ops.post_send == post_send) return;
    if (ibv_query_device(ctx, &attr) == 0) spy.max_sge = (uint32_t)attr.max_sge;
    real_post_send = ctx->ops.post_send;
    real_post_recv = ctx->ops.post_recv;
    ctx->ops.post_send = post_send;
    ctx->ops.post_recv = post_recv;
}

#define SEEN __attribute__((visibility("default")))

SEEN struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx) {
    struct ibv_pd *(*real)(struct ibv_context *);

    *(void **)&real = next_of("ibv_alloc_pd", "IBVERBS_1.1");
    watch(ctx);
    return real(ctx);
}

static void registered(void *addr, size_t length) {
    if (spy.regions == REGIONS) return;
    spy.region[spy.regions].addr = addr;
    spy.region[spy.regions++].length = length;
}

#undef ibv_reg_mr
SEEN struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access) {
    struct ibv_mr *(*real)(struct ibv_pd *, void *, size_t, int);

    *(void **)&real = next_of("ibv_reg_mr", "IBVERBS_1.1");
    registered(addr, length);
    return real(pd, addr, length, access);
}

SEEN struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                     unsigned int access) {
    struct ibv_mr *(*real)(struct ibv_pd *, void *, size_t, uint64_t, unsigned int);

    *(void **)&real = next_of("ibv_reg_mr_iova2", "IBVERBS_1.8");
    registered(addr, length);
    return real(pd, addr, length, iova, access);
}

SEEN int ibv_dereg_mr(struct ibv_mr *mr) {
    int (*real)(struct ibv_mr *);

    *(void **)&real = next_of("ibv_dereg_mr", "IBVERBS_1.1");
    finish();
    return real(mr);
}

SEEN int ibv_destroy_qp(struct ibv_qp *qp) {
    int (*real)(struct ibv_qp *);

    *(void **)&real = next_of("ibv_destroy_qp", "IBVERBS_1.1");
    finish();
    return real(qp);
}
