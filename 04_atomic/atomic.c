/*
 * 04_atomic - the client counts in the server's memory. On one 8-byte word it does N
 * fetch-and-adds, a compare-and-swap that succeeds and one that must fail; each returns
 * the value that the word had before. The server's CPU does nothing.
 *
 *   gcc -I../common -o atomic atomic.c ../common/[a-z]*.c -libverbs
 *   ./atomic               in one terminal: the server
 *   ./atomic 127.0.0.1     in another: the client; the server's address
 *
 * The client prints, and the server much the same:
 *   device rxe0, port 1, GID index 1 (::ffff:10.0.0.1), MTU 1024
 *   100 x fetch-and-add of 1: 1 -> 101
 *   1 x compare-and-swap, right value: 101 -> 18446744073709551514
 *   1 x compare-and-swap, wrong value: 18446744073709551514 -> 18446744073709551514
 *   ...
 *   RESULT sample=04_atomic role=client status=PASS bytes=8 digest=...
 */
#include "data.h"
#include "device.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    /* 1. Options: a host argument makes this the client. --seed is the word's first
     * value. */
    struct options opt = {.size = 8, .iters = 100, .seed = 1};
    parse_options(&opt, "04_atomic", "nS", argc, argv);
    const bool client = opt.host != NULL;

    /* 2. Device, protection domain, completion queue. Not every device has atomics, and
     * one that has may be atomic towards its own operations only, not the CPU's. */
    struct port port;
    struct ibv_context *ctx = open_device(&opt, &port);
    struct ibv_device_attr attr;
    check(ibv_query_device(ctx, &attr), "ibv_query_device");
    if (attr.atomic_cap == IBV_ATOMIC_NONE)
        die_no_device("no atomic operations on %s: its atomic_cap is ATOMIC_NONE",
                      ibv_get_device_name(ctx->device));
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    if (!pd)
        die(errno, "ibv_alloc_pd");
    struct ibv_cq *cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
    if (!cq)
        die(errno, "ibv_create_cq");

    struct rendezvous rv;
    struct endpoint peer;
    rendezvous_open(&rv, &opt, "04_atomic", &peer);
    choose_gid(&opt, ctx, rv.fd, &port);

    /* 3. Memory: 8 bytes, aligned to 8 as an atomic must be. On the server the word,
     * which the peer may change by atomics but not read or write; on the client the
     * place for old values. */
    uint64_t *word = guarded_alloc(8);
    *word = opt.seed;
    struct ibv_mr *mr = ibv_reg_mr(
        pd, word, 8, IBV_ACCESS_LOCAL_WRITE | (client ? 0 : IBV_ACCESS_REMOTE_ATOMIC));
    if (!mr)
        die(errno, "ibv_reg_mr of 8 bytes");

    /* 4. The queue pair. */
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1},
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp)
        die(errno, "ibv_create_qp");

    /* 5. Swap: the server tells where the word lies and the rkey that opens it. */
    struct endpoint mine = {
        .lid = port.attr.lid,
        .gid = port.gid,
        .mtu = port.mtu,
        .qpn = qp->qp_num,
        .psn = random_psn(),
        .addr = client ? 0 : (uintptr_t)word,
        .rkey = client ? 0 : mr->rkey,
        .len = client ? 0 : 8,
    };
    rendezvous_swap(&rv, &mine, &peer);

    /* 6. RESET -> INIT -> RTR -> RTS. Atomics count as READs do: the server answers one
     * at a time, the client has one under way (03_read explains the two numbers). */
    qp_to_init(qp, &port, client ? 0 : IBV_ACCESS_REMOTE_ATOMIC);
    qp_to_rtr(qp, &port, &peer, client ? 0 : 1 /* max_dest_rd_atomic */);
    qp_to_rts(qp, mine.psn, client ? 1 : 0 /* max_rd_atomic */, ACK_TIMEOUT);
    rendezvous_sync(&rv, "ready");

    /* 7. The verbs. Beside the server's word the client keeps a model of it: what each
     * operation should find there and leave behind. */
    const uint64_t counted = opt.seed + opt.iters, swapped = ~counted;
    const struct {
        const char *name;
        enum ibv_wr_opcode opcode;
        uint64_t compare_add, swap; /* add compare_add; or if equal to it become swap */
        uint32_t times;
    } steps[] = {
        {"fetch-and-add of 1", IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, opt.iters},
        {"compare-and-swap, right value", IBV_WR_ATOMIC_CMP_AND_SWP, counted, swapped, 1},
        {"compare-and-swap, wrong value", IBV_WR_ATOMIC_CMP_AND_SWP, counted, 0, 1},
        {"fetch-and-add of 0, to look", IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0, 1},
    };
    bool pass = true;
    uint64_t model = opt.seed;
    for (size_t s = 0; client && s < sizeof(steps) / sizeof(steps[0]); s++) {
        const uint64_t before = model;
        for (uint32_t i = 0; i < steps[s].times; i++) {
            struct ibv_sge sge = {.addr = (uintptr_t)word, .length = 8, .lkey = mr->lkey};
            struct ibv_send_wr wr = {
                .wr_id = i,
                .sg_list = &sge, /* where the word's old value goes */
                .num_sge = 1,
                .opcode = steps[s].opcode,
                .send_flags = IBV_SEND_SIGNALED,        /* or no completion would come */
                .wr.atomic = {.remote_addr = peer.addr, /* a multiple of 8 */
                              .rkey = peer.rkey,
                              .compare_add = steps[s].compare_add,
                              .swap = steps[s].swap},
            };
            struct ibv_send_wr *bad_wr;
            struct ibv_wc wc;
            *word = ~model;
            check(ibv_post_send(qp, &wr, &bad_wr), "ibv_post_send of the atomic");
            wait_completion(cq, i, steps[s].name, opt.timeout, &wc);

            /* 8. Verify: the old value is the one that the sequence demands. */
            if (*word != model) {
                fprintf(stderr, "%s number %u found %" PRIu64 ", not %" PRIu64 "\n",
                        steps[s].name, i, *word, model);
                pass = false;
            }
            if (steps[s].opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
                model += steps[s].compare_add;
            else if (model == steps[s].compare_add)
                model = steps[s].swap;
        }
        printf("%u x %s: %" PRIu64 " -> %" PRIu64 "\n", steps[s].times, steps[s].name,
               before, model);
    }
    rendezvous_sync(&rv, "done");
    /* Both hold the final value now: the server's word, and what the last look found. */
    pass = *word == swapped && guards_intact(word, 8) && pass;
    if (!client)
        printf("the word was %" PRIu64 " and is now %" PRIu64 "\n", opt.seed, *word);
    const uint64_t digest = fnv1a(FNV_BASIS, word, 8);
    pass = rendezvous_verdict(&rv, pass);

    /* 9. Undo in reverse order. */
    check(ibv_destroy_qp(qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(mr), "ibv_dereg_mr");
    check(ibv_destroy_cq(cq), "ibv_destroy_cq");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(ctx), "ibv_close_device");
    guarded_free(word);
    return report_result(pass, 8, digest);
}
