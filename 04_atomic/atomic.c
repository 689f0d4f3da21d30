/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 04_atomic - the client counts in the server's memory. On one 8-byte word it does N
 * fetch-and-adds, a compare-and-swap that succeeds and one that must fail. Each returns the
 * value that the word had before. The server's CPU takes no part.
 *
 *   gcc -I../common -o atomic atomic.c ../common/[a-z]*.c -libverbs
 *   ./atomic               in one terminal: the server
 *   ./atomic 127.0.0.1     in another: the client; the server's address
 *
 * The client prints (the server: similar lines):
 *   device rxe0, port 1, GID index 1 (::ffff:10.0.0.1), MTU 1024
 *   ...
 *   100 x fetch-and-add of 1: 1 -> 101
 *   1 x compare-and-swap, right value: 101 -> 18446744073709551514
 *   1 x compare-and-swap, wrong value: 18446744073709551514 -> 18446744073709551514
 *   ...
 *   RESULT sample=04_atomic role=client status=PASS bytes=8 digest=...
 *
 * Rendezvous: size is 8 (the server does not check it). The server exposes one word, whose first
 * value is seed; its rd_atomic is 1. The client does iters fetch-and-adds of 1, and then replaces
 * the sum (modulo 2^64) by its bitwise complement. That is the final value; the digest is of its 8
 * bytes, lowest first. Barriers: ready, done.
 */
#include "device.h"
#include "pattern.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"

int main(int argc, char **argv) {
    /* 1. Options. A host argument makes this the client. */
    struct options opt = {.sample = "04_atomic", .size = 8, .iters = 100, .seed = 1};
    const struct option_row rows[] = {
        {'n', "iters", "N", "number of fetch-and-adds", NUMBER(opt.iters, 1, MAX_ITERS)},
        {'S', "seed", "N", "the word's first value", NUMBER(opt.seed, 0, UINT64_MAX)},
        {0},
    };
    parse_options(&opt, rows, argc, argv);
    const bool client = opt.host != NULL;

    /* 2. Start the rendezvous. Device, protection domain, completion queue. Not every device has
     * atomics. With IBV_ATOMIC_HCA they are atomic only with respect to this device's own
     * operations; the CPU's accesses may come in between. */
    struct rendezvous tcp;
    struct endpoint peer;
    struct port port;
    struct ibv_device_attr attr;
    rendezvous_open(&tcp, &opt, &peer);
    struct ibv_context *ctx = open_device(&opt, tcp.fd, &port);
    check(ibv_query_device(ctx, &attr), "ibv_query_device");
    if (attr.atomic_cap == IBV_ATOMIC_NONE)
        stop(EXIT_NO_DEVICE, 0, "no atomic operations on %s: ATOMIC_NONE", port.device);
    errno = 0; /* a driver may return NULL and leave it: then no old error is told */
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    if (!pd) die(errno, "ibv_alloc_pd");
    struct ibv_cq *cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
    if (!cq) die(errno, "ibv_create_cq");

    /* 3. Memory: 8 bytes, aligned to 8, as atomics require. On the server the peer's atomics may
     * change the word; its READs and WRITEs may not. On the client the old values go there. */
    uint64_t *word = guarded_alloc(8);
    *word = opt.seed;
    struct ibv_mr *mr =
        ibv_reg_mr(pd, word, 8, IBV_ACCESS_LOCAL_WRITE | (client ? 0 : IBV_ACCESS_REMOTE_ATOMIC));
    if (!mr) die(errno, "ibv_reg_mr of 8 bytes");

    /* 4. The queue pair. */
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1},
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp) die(errno, "ibv_create_qp");

    /* 5. Exchange. The server says where the word is and which rkey gives access to it. */
    const struct endpoint mine = {
        .lid = port.lid,
        .qpn = qp->qp_num,
        .psn = random_psn(),
        .gid = port.gid,
        .mtu = port.mtu,
        .addr = client ? 0 : (uintptr_t)word,
        .rkey = client ? 0 : mr->rkey,
        .len = client ? 0 : 8,
        .max_sge = 1,
        .rd_atomic = client ? 0 : 1,
    };
    rendezvous_swap(&tcp, &mine, &peer);

    /* 6. RESET -> INIT -> RTR -> RTS. Atomics count as READs: the server answers one at a
     * time, the client has one outstanding (03_read explains the two numbers). */
    qp_to_init(qp, &port, client ? 0 : IBV_ACCESS_REMOTE_ATOMIC);
    qp_to_rtr(qp, &port, &peer, mine.rd_atomic /* max_dest_rd_atomic */);
    qp_to_rts(qp, mine.psn, peer.rd_atomic ? 1 : 0 /* max_rd_atomic */, ACK_TIMEOUT);
    rendezvous_sync(&tcp, "ready");

    /* 7. The verbs. The client computes which value the server's word must have before and after
     * each operation. */
    const uint64_t counted = opt.seed + opt.iters, swapped = ~counted;
    const struct {
        const char *name;
        enum ibv_wr_opcode opcode;
        uint64_t compare_add, swap; /* what to add; or what to compare with, and the new value */
        uint64_t times;
    } steps[] = {
        {"fetch-and-add of 1", IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, opt.iters},
        {"compare-and-swap, right value", IBV_WR_ATOMIC_CMP_AND_SWP, counted, swapped, 1},
        {"compare-and-swap, wrong value", IBV_WR_ATOMIC_CMP_AND_SWP, counted, 0, 1},
        {"fetch-and-add of 0, to look", IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0, 1},
    };
    bool pass = true;
    uint64_t value = opt.seed;
    for (size_t s = 0; client && s < sizeof(steps) / sizeof(steps[0]); s++) {
        const uint64_t before = value;
        for (uint64_t i = 0; i < steps[s].times; i++) {
            struct ibv_sge sge = {.addr = (uintptr_t)word, .length = 8, .lkey = mr->lkey};
            struct ibv_send_wr wr = {
                .wr_id = i,
                .sg_list = &sge, /* where the word's old value goes */
                .num_sge = 1,
                .opcode = steps[s].opcode,
                .send_flags = IBV_SEND_SIGNALED, /* without it, success makes no completion */
                .wr.atomic = {.remote_addr = peer.addr, /* a multiple of 8 */
                              .rkey = peer.rkey,
                              .compare_add = steps[s].compare_add,
                              .swap = steps[s].swap},
            };
            struct ibv_send_wr *bad_wr;
            struct ibv_wc wc;
            *word = ~value;
            check(ibv_post_send(qp, &wr, &bad_wr), "ibv_post_send of the atomic");
            wait_completion(cq, steps[s].name, opt.timeout, &wc);
            if (wc.wr_id != i) die(0, "another request's completion");

            /* 8. Verify that the operation returned the value that the word must have had. */
            pass = expect(*word == value, "%s, number %ju: found %ju, not %ju", steps[s].name, i,
                          *word, value) &&
                   pass;
            if (steps[s].opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
                value += steps[s].compare_add;
            else if (value == steps[s].compare_add)
                value = steps[s].swap;
        }
        printf("%ju x %s: %ju -> %ju\n", steps[s].times, steps[s].name, before, value);
    }
    rendezvous_sync(&tcp, "done");

    /* 8. Both sides hold the final value now: the server's word, the client's last result. */
    const uint64_t last = *word;
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(last >> (8 * i));
    pass = expect(last == swapped, "the word is %ju, not %ju", last, swapped) && pass;
    pass = guards_ok("word", word, 8) && pass;
    if (!client) printf("the word was %ju and is now %ju\n", opt.seed, last);
    pass = rendezvous_verdict(&tcp, pass);

    /* 9. Undo in reverse order. */
    check(ibv_destroy_qp(qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(mr), "ibv_dereg_mr");
    check(ibv_destroy_cq(cq), "ibv_destroy_cq");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(ctx), "ibv_close_device");
    guarded_free(word);
    return report_result(pass, 8, fnv1a(FNV_BASIS, bytes, 8));
}
