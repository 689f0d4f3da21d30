/*
 * The queue pair's way from RESET to RTS, as 01_hello_write writes it out, and the wait
 * for a completion.
 */
#ifndef HV_QP_H
#define HV_QP_H

#include "device.h"
#include "rendezvous.h"

#include <infiniband/verbs.h>

/* 0.27 s. For measurements 137 s: rxe doesn't stop this clock when all is acknowledged,
 * so what one message has started runs out in a later one, and packets are repeated. */
enum { ACK_TIMEOUT = 16, ACK_TIMEOUT_BENCH = 25 };

/* Bytes of data in a packet between the two: the smaller of both sides' MTUs. */
unsigned path_mtu(const struct port *port, const struct endpoint *peer);

/*
 * The transitions: which attributes each needs stands in ibv_modify_qp(3) and in the
 * IBTA specification, 10.3.1. They die where ibv_modify_qp fails.
 *
 * access: what the peer may do through this QP: IBV_ACCESS_REMOTE_... or 0. A memory
 *   region must allow the same: the narrower of the two counts.
 * dest_rd_atomic: how many READs and atomics of the peer this side answers at a time.
 * rd_atomic: how many of its own may be under way; at most the peer's dest_rd_atomic.
 * ack_timeout: how long to wait for an acknowledgement before sending again, 4.096 us *
 *   2^ack_timeout. After 6 more tries the request fails.
 */
void qp_to_init(struct ibv_qp *qp, const struct port *port, unsigned access);
void qp_to_rtr(struct ibv_qp *qp, const struct port *port, const struct endpoint *peer,
               uint8_t dest_rd_atomic);
void qp_to_rts(struct ibv_qp *qp, uint32_t psn, uint8_t rd_atomic, uint8_t ack_timeout);

/*
 * Polls cq until its next completion comes, and fills *wc (ibv_poll_cq(3)). Dies when the
 * status is not IBV_WC_SUCCESS, and when none came in timeout seconds; what names the
 * request in these messages. Between polls it gives the CPU away, and sleeps when the
 * wait gets long; a cq that was made with a completion channel it arms, and sleeps until
 * the channel has an event (ibv_get_cq_event(3)).
 *
 * A flushed request doesn't say why: an earlier one has failed. Where that one's
 * completion goes to another queue than cq, cq's cq_context (ibv_create_cq(3)) leads to
 * it, so that the reason is told.
 */
void next_completion(struct ibv_cq *cq, const char *what, unsigned timeout,
                     struct ibv_wc *wc);

/* The same, and dies when the completion belongs to another request than wr_id. */
void wait_completion(struct ibv_cq *cq, uint64_t wr_id, const char *what,
                     unsigned timeout, struct ibv_wc *wc);

#endif
