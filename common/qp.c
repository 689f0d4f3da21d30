#define _GNU_SOURCE
#include "qp.h"

#include "deadline.h"
#include "report.h"

#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>

void qp_to_init(struct ibv_qp *qp, const struct port *port, unsigned access)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .pkey_index = 0,
        .port_num = port->num,
        .qp_access_flags = access,
    };

    check(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                            IBV_QP_ACCESS_FLAGS),
          "ibv_modify_qp to INIT");
}

unsigned path_mtu(const struct port *port, const struct endpoint *peer)
{
    return port->mtu < peer->mtu ? port->mtu : peer->mtu;
}

void qp_to_rtr(struct ibv_qp *qp, const struct port *port, const struct endpoint *peer,
               uint8_t dest_rd_atomic)
{
    struct ibv_global_route grh = {
        .dgid = peer->gid,
        .sgid_index = port->gid_index,
        .hop_limit = 64,
    };
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = mtu_to_enum(path_mtu(port, peer)),
        .dest_qp_num = peer->qpn,
        .rq_psn = peer->psn,
        .max_dest_rd_atomic = dest_rd_atomic,
        .min_rnr_timer = 12,
        .ah_attr = {.port_num = port->num,
                    .dlid = peer->lid,
                    .is_global = port->global,
                    .grh = grh},
    };

    check(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                            IBV_QP_MIN_RNR_TIMER),
          "ibv_modify_qp to RTR");
}

void qp_to_rts(struct ibv_qp *qp, uint32_t psn, uint8_t rd_atomic, uint8_t ack_timeout)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTS,
        .sq_psn = psn,
        .timeout = ack_timeout,
        .retry_cnt = 6,
        .rnr_retry = 6,
        .max_rd_atomic = rd_atomic,
    };

    check(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                            IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
          "ibv_modify_qp to RTS");
}

/* Sleeps until the channel of cq has an event, at most ms milliseconds, and takes it. */
static void sleep_until_event(struct ibv_cq *cq, int ms)
{
    struct pollfd channel = {.fd = cq->channel->fd, .events = POLLIN};
    struct ibv_cq *from;
    void *context;

    if (poll(&channel, 1, ms) <= 0)
        return;
    check(ibv_get_cq_event(cq->channel, &from, &context), "ibv_get_cq_event");
    ibv_ack_cq_events(from, 1); /* or ibv_destroy_cq would wait for it */
}

void next_completion(struct ibv_cq *cq, const char *what, unsigned timeout,
                     struct ibv_wc *wc)
{
    double began = 0;
    bool armed = false;
    int n;

    while ((n = ibv_poll_cq(cq, 1, wc)) == 0) {
        if (began == 0) /* the clock is read only where there is a wait */
            began = now();
        double waited = now() - began;
        if (waited > timeout)
            die(0, "no completion of %s in %u s", what, timeout);
        if (!cq->channel && waited < 0.1) {
            /* An empty poll gives the CPU away: a software NIC needs it to get on. */
            sched_yield();
        } else if (!cq->channel) {
            poll(NULL, 0, 1); /* a packet is lost, or the peer: no hurry any more */
        } else if (!armed) {
            /* Only a completion after this call makes an event, so poll once more. */
            check(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
            armed = true;
        } else {
            sleep_until_event(cq, (int)((timeout - waited) * 1000) + 1);
            armed = false;
        }
    }
    if (n < 0)
        die(0, "ibv_poll_cq");
    if (wc->status == IBV_WC_WR_FLUSH_ERR && cq->cq_context) {
        struct ibv_wc other;
        while (ibv_poll_cq(cq->cq_context, 1, &other) > 0)
            if (other.status != IBV_WC_SUCCESS)
                die_wc(&other, "an earlier request");
    }
    if (wc->status != IBV_WC_SUCCESS) /* byte_len is undefined then */
        die_wc(wc, what);
}

void wait_completion(struct ibv_cq *cq, uint64_t wr_id, const char *what,
                     unsigned timeout, struct ibv_wc *wc)
{
    next_completion(cq, what, timeout, wc);
    if (wc->wr_id != wr_id)
        die(0, "wr_id %" PRIu64 " completed instead of %s, wr_id %" PRIu64, wc->wr_id,
            what, wr_id);
}
