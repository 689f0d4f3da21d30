/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client that takes more than it was given. It meets a sample's server as the sample's own
 * client does, does what that one does, and then tries one access more:
 *
 *   rights SAMPLE VERB AT LENGTH KEY PORT
 *     VERB    write, read, add or swap (the two atomics); or spoil: what the server allows,
 *             with wrong data, as late as that is possible
 *     AT      +N or -N: bytes from the address that the server lent; or an address
 *     LENGTH  bytes
 *     KEY     lent; mine: of a region of this process; dead: of one that is no more; or a
 *             number
 *
 * Prints the address and rkey that were lent and how the access ended. Exit status 0: it was
 * refused, and the server found its memory right; or it spoilt the memory, and the server said
 * so.
 */
#define _DEFAULT_SOURCE
#include "device.h"
#include "memory.h"
#include "pattern.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"

#include <endian.h>
#include <sched.h>

enum { SEED = 1, ROOM = 8192 };

static enum ibv_wr_opcode opcode_of(const char *verb, int number) {
    return !strcmp(verb, "write") || (!strcmp(verb, "spoil") && number != 4) ? IBV_WR_RDMA_WRITE
           : !strcmp(verb, "read")                                           ? IBV_WR_RDMA_READ
           : !strcmp(verb, "add") || !strcmp(verb, "spoil") ? IBV_WR_ATOMIC_FETCH_AND_ADD
                                                            : IBV_WR_ATOMIC_CMP_AND_SWP;
}

/* One access with this side's memory mr, and how it ended. */
static enum ibv_wc_status access_peer(struct ibv_qp *qp, const struct ibv_mr *mr,
                                      enum ibv_wr_opcode opcode, uint64_t addr, uint32_t rkey,
                                      uint32_t length) {
    struct ibv_sge sge = {.addr = (uintptr_t)mr->addr, .length = length, .lkey = mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {.remote_addr = addr, .rkey = rkey}};
    struct ibv_send_wr *bad_wr;
    struct ibv_wc wc;
    int n;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
        wr.wr.atomic.remote_addr = addr;
        wr.wr.atomic.rkey = rkey;
        wr.wr.atomic.compare_add = SEED; /* what 04's word is at first */
        wr.wr.atomic.swap = ~(uint64_t)(SEED + 1);
    }
    check(ibv_post_send(qp, &wr, &bad_wr), "ibv_post_send");
    while ((n = ibv_poll_cq(qp->send_cq, 1, &wc)) == 0) sched_yield();
    if (n < 0) die(0, "ibv_poll_cq");
    return wc.status;
}

static void format_fields(const struct options *opt, char *out, size_t room) {
    if (strcmp(opt->sample, "08_write_imm") == 0)
        snprintf(out, room, ",transport=rc");
    else if (strcmp(opt->sample, "12_ordering") == 0)
        snprintf(out, room, ",inline=64");
    else if (strcmp(opt->sample, "13_memory_window") == 0)
        snprintf(out, room, ",withdraw=3");
    else
        snprintf(out, room,
                 ",block_size=4096,block_num=1,stride=4096,method=sgl,depth=0,sizes=none");
}

int main(int argc, char **argv) {
    if (argc != 7) stop(EXIT_USAGE, 0, "SAMPLE VERB AT LENGTH KEY PORT");
    const char *sample = argv[1], *verb = argv[2], *at = argv[3], *key = argv[5];
    const uint32_t length = (uint32_t)strtoul(argv[4], NULL, 0);
    const int number = atoi(sample);
    const bool atomic = number == 4, blocks = number >= 5 && number <= 7,
               spoil = strcmp(verb, "spoil") == 0;
    const bool lends = number != 2 && number != 7;
    char *buf = guarded_alloc(ROOM), *other = guarded_alloc(ROOM);
    pattern_fill(buf, ROOM, SEED); /* the message, for the servers that are written to */
    struct options opt = {.sample = sample,
                          .host = "127.0.0.1",
                          .tcp_port = strtoull(argv[6], NULL, 0),
                          .gid_idx = GID_CHOOSE,
                          .timeout = 10,
                          .size = atomic        ? 8
                                  : number == 8 ? 1024
                                                : 4096, /* 08: of 4 */
                          .iters = 1,
                          .seed = number == 1 ? fnv1a(FNV_BASIS, buf, 4096) : SEED,
                          .format_work = number >= 5 ? format_fields : NULL};
    report_as("rights", "client");

    struct rendezvous tcp;
    struct endpoint peer;
    struct port port;
    rendezvous_open(&tcp, &opt, &peer);
    struct ibv_context *ctx = open_device(&opt, tcp.fd, &port);
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    struct ibv_cq *cq = pd ? ibv_create_cq(ctx, 1, NULL, NULL, 0) : NULL;
    const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                    IBV_ACCESS_REMOTE_ATOMIC;
    struct ibv_mr *mr = cq ? ibv_reg_mr(pd, buf, ROOM, all) : NULL;
    struct ibv_mr *dead = mr ? ibv_reg_mr(pd, other, ROOM, all) : NULL;
    if (!dead) die(errno, "device, PD, CQ or memory region");
    const uint32_t dead_key = dead->rkey;
    check(ibv_dereg_mr(dead), "ibv_dereg_mr");
    struct ibv_mr *own = ibv_reg_mr(pd, other, ROOM, IBV_ACCESS_LOCAL_WRITE);
    if (!own) die(errno, "ibv_reg_mr");
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1},
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp) die(errno, "ibv_create_qp");
    const struct endpoint mine = {.lid = port.lid,
                                  .qpn = qp->qp_num,
                                  .psn = random_psn(),
                                  .gid = port.gid,
                                  .mtu = port.mtu,
                                  .max_sge = 1};
    rendezvous_swap(&tcp, &mine, &peer);
    printf("lent 0x%jx 0x%x\n", peer.addr, peer.rkey);
    qp_to_init(qp, &port, 0);
    qp_to_rtr(qp, &port, &peer, 0);
    qp_to_rts(qp, mine.psn, 1, ACK_TIMEOUT);
    struct ibv_sge loan = {.addr = (uintptr_t)other, .length = 16, .lkey = own->lkey};
    struct ibv_recv_wr recv_wr = {.sg_list = &loan, .num_sge = 1}, *refused;
    struct ibv_wc wc;
    if (number == 13) check(ibv_post_recv(qp, &recv_wr, &refused), "ibv_post_recv");
    rendezvous_sync(&tcp, "ready");
    if (number == 13) { /* it lends by a SEND, and only now */
        wait_completion(cq, "the loan", opt.timeout, &wc);
        peer.rkey = (uint32_t)be64toh(((uint64_t *)(void *)other)[0]);
        peer.addr = be64toh(((uint64_t *)(void *)other)[1]);
        printf("lent 0x%jx 0x%x\n", peer.addr, peer.rkey);
    }
    if (lends && blocks) rendezvous_sync(&tcp, "prepared");

    /* What the sample's client does, or its like: this has to work, or that the other fails
     * would mean nothing. */
    if (lends) {
        enum ibv_wc_status status =
            access_peer(qp, mr,
                        atomic                                       ? IBV_WR_ATOMIC_CMP_AND_SWP
                        : number == 3 || number == 6 || number == 12 ? IBV_WR_RDMA_READ
                                                                     : IBV_WR_RDMA_WRITE,
                        peer.addr, peer.rkey, (uint32_t)opt.size);
        if (status != IBV_WC_SUCCESS)
            die(0, "what is allowed was refused: %s (%d)", ibv_wc_status_str(status), (int)status);
    }

    poison_fill(buf, ROOM, SEED); /* were it written there, it would be seen */
    const uint64_t base = lends ? peer.addr : (uintptr_t)buf;
    const uint64_t addr = at[0] == '+'   ? base + strtoull(at + 1, NULL, 0)
                          : at[0] == '-' ? base - strtoull(at + 1, NULL, 0)
                                         : strtoull(at, NULL, 0);
    const uint32_t rkey = !strcmp(key, "lent")   ? peer.rkey
                          : !strcmp(key, "mine") ? mr->rkey
                          : !strcmp(key, "dead") ? dead_key
                                                 : (uint32_t)strtoul(key, NULL, 0);
    const enum ibv_wc_status status =
        access_peer(qp, mr, opcode_of(verb, number), addr, rkey, length);
    printf("ended %s (%d)\n", ibv_wc_status_str(status), (int)status);
    bool pass = spoil ? status == IBV_WC_SUCCESS
                      : status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR;

    /* The server's own check says whether anything has changed. (02, 07 to 14 can't go on:
     * their receives went down with the queue pair.) */
    if (lends && number < 8) {
        rendezvous_sync(&tcp, "done");
        const bool both = rendezvous_verdict(&tcp, true);
        pass = pass && both == !spoil;
    }
    check(ibv_destroy_qp(qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(own), "ibv_dereg_mr");
    check(ibv_dereg_mr(mr), "ibv_dereg_mr");
    check(ibv_destroy_cq(cq), "ibv_destroy_cq");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(ctx), "ibv_close_device");
    guarded_free(buf);
    guarded_free(other);
    return pass ? EXIT_SUCCESS : EXIT_FAILURE;
}
