/* SPDX-License-Identifier: BSD-2-Clause */
#pragma once

#include "device.h"
#include "rendezvous.h"

enum { ACK_TIMEOUT = 16 }; /* nominally 4.096 us * 2^16 = 0.27 s: see 01_hello_write */

/* The state transitions, as in 01_hello_write (ibv_modify_qp(3); IBTA specification, 10.3.1). They
 * exit if ibv_modify_qp fails. access: the IBV_ACCESS_REMOTE_... of the peer through this QP; the
 * memory region must allow it, too. dest_rd_atomic: READs and atomics of the peer to answer at a
 * time. rd_atomic: own READs and atomics that can be outstanding, at most what the peer answers.
 * ack_timeout: after 4.096 us * 2^ack_timeout without an acknowledgement a request is sent again,
 * at most 6 times. A UC queue pair has none of these but access. */
void qp_to_init(struct ibv_qp *qp, const struct port *port, int access);
void qp_to_rtr(struct ibv_qp *qp, const struct port *port, const struct endpoint *peer,
               uint32_t dest_rd_atomic);
void qp_to_rts(struct ibv_qp *qp, uint32_t psn, uint32_t rd_atomic, int ack_timeout);
/* The same for a program that goes on after a failure: they return what ibv_modify_qp returns. On
 * the way to RTR an error is the peer's fault, most often: its GID cannot be reached from here. */
int qp_try_init(struct ibv_qp *qp, const struct port *port, int access);
int qp_try_rtr(struct ibv_qp *qp, const struct port *port, const struct endpoint *peer,
               uint32_t dest_rd_atomic);
int qp_try_rts(struct ibv_qp *qp, uint32_t psn, uint32_t rd_atomic, int ack_timeout);

enum ibv_mtu mtu_enum(uint32_t bytes); /* 256, 512, 1024, 2048 or 4096 */

/* Waits for the next completion of cq (ibv_poll_cq(3)). Exits if its status is an error, or if none
 * comes in timeout seconds; "what" names the request in the message. The caller checks wr_id. */
void wait_completion(struct ibv_cq *cq, const char *what, uint64_t timeout, struct ibv_wc *wc);

/* After ibv_create_qp has refused: halves the SGEs in a work request, and, when one is left, the
 * work requests in a queue. Returns false if there is nothing left to halve, or if errno says that
 * this was not the reason (0: the driver says nothing). */
bool halve_caps(uint32_t *max_sge, uint32_t *queue);

static inline uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }
