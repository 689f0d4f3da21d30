/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory.h"
#include "pattern.h"

struct memory memory_alloc(const struct block_work *work, uint64_t seed, bool sends,
                           bool has_blocks, bool staging) {
    struct memory m = {.sends = sends, .seed = seed};
    for (size_t i = 0; i < work->plan.count; i++) {
        const struct layout *l = &work->plan.point[i];
        const size_t contig = l->bytes * (staging && work->bench ? plan_depth(l, work->depth) : 1);
        if (l->span > m.span) m.span = l->span;
        if (contig > m.contig_size) m.contig_size = contig;
        if (l->block_num > m.block_num) m.block_num = l->block_num;
    }
    if (has_blocks) m.blocks = guarded_alloc(m.span);
    m.contig = guarded_alloc(m.contig_size);
    return m;
}

void memory_free(struct memory *m) {
    if (m->blocks) guarded_free(m->blocks);
    guarded_free(m->contig);
}

/* Is the message verified in the blocks? Else in contig. */
static bool in_blocks(const struct memory *m) { return m->blocks && m->method != METHOD_CONTIG; }

void memory_prepare(struct memory *m, const struct layout *l, enum method method) {
    m->method = method;
    if (m->blocks) layout_fill(l, m->blocks, m->seed, !m->sends);
    if (m->sends && !in_blocks(m))
        pattern_fill(m->contig, l->bytes, m->seed);
    else
        poison_fill(m->contig, l->bytes, m->seed);
}

bool memory_ok(const struct memory *m, const struct layout *l) {
    const bool right = in_blocks(m) ? layout_ok(l, m->blocks, m->seed)
                                    : pattern_ok("message", m->contig, l->bytes, m->seed);
    const bool guards = !m->blocks || guards_ok("blocks", m->blocks, m->span);
    return guards_ok("contiguous buffer", m->contig, m->contig_size) && guards && right;
}

uint64_t memory_digest(const struct memory *m, const struct layout *l) {
    return in_blocks(m) ? layout_digest(l, m->blocks) : fnv1a(FNV_BASIS, m->contig, l->bytes);
}
