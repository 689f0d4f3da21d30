/* SPDX-License-Identifier: BSD-2-Clause */
/* Measuring the methods of 05 to 07 in turn, and a contiguous transfer of the same bytes. Both
 * processes call measure() with the same plan. Between ready and done it has these barriers, for
 * each point: for each method in the order of enum method, go, one message, verify; then for rounds
 * 0 (warm-up) to iters, for each method (from method "round mod 5" on), go, messages one by one,
 * go, messages with depth in flight; then measured; then go and verify again for each method. */
#pragma once

#include "blocks.h"
#include "qp.h"

/* What a sample brings to be measured. ctx is passed to its functions. */
struct measured {
    void *ctx;
    struct memory *memory;
    const struct port *port;
    unsigned mtu, max_sge; /* path MTU in bytes; SGEs in a work request of METHOD_SGL */
    double registering;    /* seconds that ibv_reg_mr took */
    bool packs, unpacks;   /* what the two CPUs do to a message in METHOD_COPY */
    /* Posts what must be there before the peer starts; NULL: nothing. */
    void (*expect)(void *ctx, const struct layout *l, enum method method, unsigned count,
                   unsigned depth);
    /* Moves count messages, at most depth at a time, and returns when the last one has
     * arrived; NULL: this side has no part in it. If latency is not NULL, depth is 1 and
     * each message's seconds go there. */
    void (*transfer)(void *ctx, const struct layout *l, enum method method, unsigned count,
                     unsigned depth, double *latency);
};

/* The ACK timeout for a measurement (see qp_to_rts). rxe does not stop its timer when all is
 * acknowledged: what one message has started runs out in a later one, and packets are sent
 * again. So for rxe (vendor 0xffffff) it is the longest below --timeout, else the usual. */
int measuring_ack_timeout(const struct ibv_device_attr *device, const struct options *opt);

/* Verifies and measures every method at every point. The client prints a BENCH line for each
 * and writes work->csv, for bench/model.py. Returns true if every message was right. */
bool measure(const struct measured *m, struct rendezvous *rv, const struct block_work *work);
