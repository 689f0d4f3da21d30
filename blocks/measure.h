/* SPDX-License-Identifier: BSD-2-Clause */
/* Measures the methods of 05 to 07 and a contiguous transfer of the same bytes. Both processes call
 * measure() with the same plan. Its barriers, between ready and done, for each point: (1) for each
 * method, in the order of enum method: "go", one message, "verify". (2) For each round, 0 (warm-up)
 * to iters, for each method, from number "round mod 5" on: "go", messages one by one, "go",
 * messages with depth in flight. (3) "measured". (4) The same as (1). */
#pragma once

#include "memory.h"
#include "qp.h"

/* What a sample brings to be measured. arg is passed to its functions. */
struct benchmark {
    void *arg;
    struct memory *memory;
    const struct port *port;
    unsigned mtu, max_sge; /* path MTU in bytes; SGEs in a work request of METHOD_SGL */
    double reg_seconds;    /* seconds that ibv_reg_mr took */
    bool packs, unpacks;   /* what the two CPUs do to a message in METHOD_COPY */
    /* Posts the receives that the peer's first messages need; NULL: none. */
    void (*prepost)(void *arg, const struct layout *l, enum method method, unsigned count,
                    unsigned depth);
    /* Moves count messages, at most depth in flight, and returns when the last one has
     * arrived; NULL: this side does nothing. If latency is not NULL, depth is 1, and the
     * seconds of each message are stored there. */
    void (*transfer)(void *arg, const struct layout *l, enum method method, unsigned count,
                     unsigned depth, double *latency);
};

/* The ACK timeout for a measurement (see qp_to_rts). rxe's timer continues to run when all is
 * acknowledged. It ends during a later message, and then packets are sent again. So for rxe (vendor
 * 0xffffff) the timeout is the longest one below --timeout. For others it is ACK_TIMEOUT. */
int measuring_ack_timeout(const struct ibv_device_attr *device, const struct options *opt);

/* Verifies and measures every method at every point. The client prints a BENCH line for each
 * and writes work->csv, for bench/model.py. Returns true if every message was right. */
bool measure(const struct benchmark *m, struct rendezvous *tcp, const struct block_work *work);
