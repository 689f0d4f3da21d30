/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "qp.h"
#include "report.h"

#include <poll.h>
#include <sched.h>

int qp_try_init(struct ibv_qp *qp, const struct port *port, int access) {
    const int mask = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .pkey_index = (uint16_t)port->opt->pkey_idx,
        .port_num = port->num,
        .qp_access_flags = (unsigned)access,
    };
    return ibv_modify_qp(qp, &attr, mask);
}

void qp_to_init(struct ibv_qp *qp, const struct port *port, int access) {
    check(qp_try_init(qp, port, access), "ibv_modify_qp to INIT");
}

enum ibv_mtu mtu_enum(uint32_t bytes) { return (enum ibv_mtu)(__builtin_ctz(bytes) - 7); }

int qp_try_rtr(struct ibv_qp *qp, const struct port *port, const struct endpoint *peer,
               uint32_t dest_rd_atomic) {
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (qp->qp_type != IBV_QPT_UC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = mtu_enum(peer->mtu),
        .dest_qp_num = peer->qpn,
        .rq_psn = peer->psn,
        .max_dest_rd_atomic = (uint8_t)dest_rd_atomic,
        .min_rnr_timer = 12,
        .ah_attr.port_num = port->num,
        .ah_attr.dlid = (uint16_t)peer->lid,
        .ah_attr.sl = (uint8_t)port->opt->sl,
        .ah_attr.is_global = port->global,
        .ah_attr.grh.dgid = peer->gid,
        .ah_attr.grh.sgid_index = port->gid_index,
        .ah_attr.grh.hop_limit = 64,
        .ah_attr.grh.traffic_class = (uint8_t)port->opt->traffic_class,
    };
    return ibv_modify_qp(qp, &attr, mask);
}

void qp_to_rtr(struct ibv_qp *qp, const struct port *port, const struct endpoint *peer,
               uint32_t dest_rd_atomic) {
    check(qp_try_rtr(qp, port, peer, dest_rd_atomic), "ibv_modify_qp to RTR");
}

int qp_try_rts(struct ibv_qp *qp, uint32_t psn, uint32_t rd_atomic, int ack_timeout) {
    const int rc = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    const int mask = IBV_QP_STATE | IBV_QP_SQ_PSN | (qp->qp_type == IBV_QPT_UC ? 0 : rc);
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTS,
        .sq_psn = psn,
        .timeout = (uint8_t)ack_timeout,
        .retry_cnt = 6,
        .rnr_retry = 6,
        .max_rd_atomic = (uint8_t)rd_atomic,
    };
    return ibv_modify_qp(qp, &attr, mask);
}

void qp_to_rts(struct ibv_qp *qp, uint32_t psn, uint32_t rd_atomic, int ack_timeout) {
    check(qp_try_rts(qp, psn, rd_atomic, ack_timeout), "ibv_modify_qp to RTS");
}

void wait_completion(struct ibv_cq *cq, const char *what, uint64_t timeout, struct ibv_wc *wc) {
    double began = 0, waited = 0; /* the clock is read only if there is a wait */
    int n;
    while ((n = ibv_poll_cq(cq, 1, wc)) == 0) {
        /* Of the time before this poll: a process that was stopped meanwhile has polled since. */
        if (waited > (double)timeout) die(0, "no completion of %s in %ju s", what, timeout);
        if (began == 0) began = now();
        waited = now() - began;
        /* An empty poll gives the CPU away: a software NIC needs it. After 0.1 s there is no hurry
         * any more: a packet is lost, or the peer. */
        if (waited < 0.1) sched_yield();
        if (waited >= 0.1) poll(NULL, 0, 1);
    }
    if (n < 0) die(0, "ibv_poll_cq");
    if (wc->status != IBV_WC_SUCCESS) die_wc(wc, what);
}

bool halve_caps(uint32_t *max_sge, uint32_t *queue) {
    if (errno != EINVAL && errno != ENOMEM && errno != 0) return false;
    uint32_t *most = *max_sge > 1 ? max_sge : queue;
    if (*most == 1) return false;
    *most /= 2;
    return true;
}
