/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What it costs to lend memory: registering and deregistering a region of its own for each loan, or
 * binding and invalidating a memory window on a region that stays registered. Run it where the RDMA
 * device is (make bench-window). One queue pair, which is its own peer, executes the binds.
 * For each size it prints the median of ROUNDS, in us:
 *
 *   WINDOW bytes=4096 register_us=... deregister_us=... bind_us=... invalidate_us=...
 */
#include "device.h"
#include "pattern.h"
#include "qp.h"
#include "report.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROUNDS = 11, MOST = 16 << 20 };

static int size_points(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *us) {
    qsort(us, ROUNDS, sizeof(*us), size_points);
    return us[ROUNDS / 2] * 1e6;
}

/* Posts a request that concerns this side only, and waits. Returns how many seconds it took. */
static double local(struct ibv_qp *qp, struct ibv_send_wr *wr, const char *what) {
    struct ibv_send_wr *bad_wr;
    struct ibv_wc wc;
    const double began = now();
    wr->send_flags = IBV_SEND_SIGNALED;
    check(ibv_post_send(qp, wr, &bad_wr), "ibv_post_send");
    wait_completion(qp->send_cq, what, 30, &wc);
    return now() - began;
}

int main(void) {
    struct options opt = {.sample = "window", .gid_idx = GID_CHOOSE};
    struct port port;
    report_as("window", "cost");
    const int sock = socket(AF_INET, SOCK_DGRAM, 0); /* of no address: any port will do */
    struct ibv_context *ctx = open_device(&opt, sock, &port);
    close(sock);
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    struct ibv_cq *cq = pd ? ibv_create_cq(ctx, 1, NULL, NULL, 0) : NULL;
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1},
    };
    struct ibv_qp *qp = cq ? ibv_create_qp(pd, &init) : NULL;
    struct ibv_mw *mw = qp ? ibv_alloc_mw(pd, IBV_MW_TYPE_2) : NULL;
    if (!mw) die(errno, "protection domain, CQ, QP or window");
    const struct endpoint self = {
        .lid = port.lid, .qpn = qp->qp_num, .gid = port.gid, .mtu = port.mtu};
    qp_to_init(qp, &port, 0);
    qp_to_rtr(qp, &port, &self, 0);
    qp_to_rts(qp, 0, 0, ACK_TIMEOUT);

    char *memory = guarded_alloc(MOST);
    poison_fill(memory, MOST, 0); /* all its pages are there before the clock runs */
    const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
    for (size_t size = 4096; size <= MOST; size *= 4) {
        double reg[ROUNDS], dereg[ROUNDS], bind[ROUNDS], invalidate[ROUNDS];
        for (int i = 0; i < ROUNDS; i++) {
            const double began = now();
            struct ibv_mr *mr = ibv_reg_mr(pd, memory, size, access);
            if (!mr) die(errno, "ibv_reg_mr of %zu bytes", size);
            reg[i] = now() - began;
            struct ibv_send_wr to_bind = {.opcode = IBV_WR_BIND_MW};
            to_bind.bind_mw.mw = mw;
            to_bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
            to_bind.bind_mw.bind_info = (struct ibv_mw_bind_info){
                .mr = mr, .addr = (uintptr_t)memory, .length = size, IBV_ACCESS_REMOTE_WRITE};
            bind[i] = local(qp, &to_bind, "the bind");
            mw->rkey = to_bind.bind_mw.rkey;
            struct ibv_send_wr end = {.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = mw->rkey};
            invalidate[i] = local(qp, &end, "the LOCAL_INV");
            const double then = now();
            check(ibv_dereg_mr(mr), "ibv_dereg_mr");
            dereg[i] = now() - then;
        }
        printf("WINDOW bytes=%zu register_us=%.1f deregister_us=%.1f bind_us=%.1f "
               "invalidate_us=%.1f\n",
               size, median(reg), median(dereg), median(bind), median(invalidate));
    }
    check(ibv_destroy_qp(qp), "ibv_destroy_qp");
    check(ibv_dealloc_mw(mw), "ibv_dealloc_mw");
    check(ibv_destroy_cq(cq), "ibv_destroy_cq");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(ctx), "ibv_close_device");
    guarded_free(memory);
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
