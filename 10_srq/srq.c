/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 10_srq - many clients SEND to one server. It has a queue pair (QP) for each of them, but one
 * queue of receives for all: a shared receive queue (SRQ). A client that dies harms no other.
 *
 *   gcc -I../common -o srq srq.c ../common/[a-z]*.c -libverbs
 *   ./srq               in one terminal: the server (--own: no SRQ, each QP has its own queue)
 *   ./srq 127.0.0.1     in another: the client; the server's address
 *
 * The server ends with these lines (the client: similar ones):
 *   MEMORY srq=131072 own=8192 refills=1
 *   RESULT sample=10_srq role=server status=PASS bytes=81920 digest=...
 *
 * Rendezvous: size is 1024. One more field in work=, clients: for so many the server waits (1 to
 * 64). Each time the server SENDs a client an empty message, that client may SEND 8. Message i is
 * the pattern (data.h) of seed + i. The digest covers a client's messages in order; the server's
 * is the XOR of its clients'. Barriers: ready (all clients have come), done.
 */
#define _GNU_SOURCE
#include "data.h"
#include "device.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"

#include <poll.h>
#include <unistd.h>

enum { MAX_CLIENTS = 64, RECEIVES = 128, BURST = 8, SIZE = 1024 /* bytes in a message */ };
struct client {
    struct rendezvous rv;
    struct endpoint at;
    struct ibv_qp *qp;
    uint64_t iters, seed, came, digest;
    int may, right, gone; /* may: messages that it may send now */
};

static void format_work(const struct options *opt, char *out, size_t room) {
    snprintf(out, room, ",clients=%ju", *(uint64_t *)opt->work);
}

static const char *parse_work(struct options *opt, const char *text) {
    uint64_t *clients = opt->work, theirs = 0;
    if (strncmp(text, ",clients=", 9) != 0 || !parse_number(text + 9, 1, MAX_CLIENTS, &theirs) ||
        opt->size != SIZE || (*clients && *clients != theirs))
        return "work= is malformed, above the limits, or has not the first client's clients=";
    *clients = theirs;
    return NULL;
}

int main(int argc, char **argv) {
    /* 1. Options. A host argument makes this the client. */
    uint64_t clients = 1, own = 0;
    struct options opt = {.sample = "10_srq", .size = SIZE, .iters = 80, .seed = 1, .listener = -1};
    opt.work = &clients, opt.format_work = format_work, opt.parse_work = parse_work;
    const struct option_row rows[] = {
        {'n', "iters", "N", "number of messages", NUMBER(opt.iters, 1, MAX_ITERS)},
        {'S', "seed", "N", "seed of the test data", NUMBER(opt.seed, 0, UINT64_MAX)},
        {0, "clients", "N", "clients of this server", NUMBER(clients, 1, MAX_CLIENTS)},
        {0, "own", NULL, "no SRQ: a receive queue for each QP", NUMBER(own, 1, 1), .server = true},
        {0},
    };
    parse_options(&opt, rows, argc, argv);
    const bool client = opt.host != NULL, shared = !client && !own;
    if (!client) clients = 0; /* the first client will say it */

    /* 2. Start the rendezvous. Device, protection domain, completion queues, SRQ. */
    struct client all[MAX_CLIENTS] = {0}, *c = all;
    struct port port;
    rendezvous_open(&c->rv, &opt, &c->at);
    struct ibv_context *ctx = open_device(&opt, c->rv.fd, &port);
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    if (!pd) die(errno, "ibv_alloc_pd");
    const size_t count = client ? 1 : clients, slots = shared ? RECEIVES : own ? BURST * count : 1;
    struct ibv_cq *send_cq = ibv_create_cq(ctx, 2 * MAX_CLIENTS, NULL, NULL, 0);
    struct ibv_cq *recv_cq = ibv_create_cq(ctx, (int)slots, NULL, NULL, 0);
    if (!send_cq || !recv_cq) die(errno, "ibv_create_cq");
    struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = RECEIVES, .max_sge = 1}};
    struct ibv_srq *srq = shared ? ibv_create_srq(pd, &srq_init) : NULL;
    if (shared && !srq) stop(errno == EOPNOTSUPP ? EXIT_NO_DEVICE : 1, errno, "ibv_create_srq");

    /* 3. Memory: a slot for each receive, or for the client's message. */
    char *memory = guarded_alloc(slots * SIZE);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, slots * SIZE, client ? 0 : IBV_ACCESS_LOCAL_WRITE);
    if (!mr) die(errno, "ibv_reg_mr of %zu bytes", slots * SIZE);

    /* 4. A QP for each client. With an SRQ it has no receive queue, and max_recv_wr is ignored. */
    for (; c < all + count; c++) {
        if (c > all) rendezvous_open(&c->rv, &opt, &c->at);
        struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .srq = srq};
        init.send_cq = send_cq, init.recv_cq = recv_cq, init.cap.max_recv_wr = BURST;
        init.cap.max_send_wr = 2, init.cap.max_send_sge = init.cap.max_recv_sge = 1;
        if (!(c->qp = ibv_create_qp(pd, &init))) die(errno, "ibv_create_qp");
        /* 5. Exchange the addresses of the QPs. 6. RESET -> INIT -> RTR -> RTS. */
        struct endpoint mine = {.lid = port.lid, .qpn = c->qp->qp_num, .gid = port.gid};
        mine.psn = random_psn(), mine.mtu = port.mtu, mine.max_sge = 1;
        rendezvous_swap(&c->rv, &mine, &c->at);
        qp_to_init(c->qp, &port, 0);
        qp_to_rtr(c->qp, &port, &c->at, 0);
        qp_to_rts(c->qp, mine.psn, 0, ACK_TIMEOUT);
        c->iters = opt.iters, c->seed = opt.seed, c->digest = FNV_BASIS, c->right = true;
    }
    if (!client) close(opt.listener);

    /* 7. The verbs. A receive for each slot. The client's receives are for empty messages. */
    struct ibv_sge sge[BURST * MAX_CLIENTS];
    struct ibv_recv_wr rx[BURST * MAX_CLIENTS], *chain = NULL, *bad; /* chain: of the free ones */
    for (uint64_t i = 0; i < slots; i++) {
        sge[i] = (struct ibv_sge){.length = SIZE, .lkey = mr->lkey};
        sge[i].addr = (uintptr_t)memory + i * SIZE;
        rx[i] = (struct ibv_recv_wr){.wr_id = i, .sg_list = &sge[i], .num_sge = !client};
        poison_fill(memory + i * SIZE, SIZE, 0);
        if (srq) check(ibv_post_srq_recv(srq, &rx[i], &bad), "ibv_post_srq_recv");
        if (!srq) check(ibv_post_recv(all[i / BURST].qp, &rx[i], &bad), "ibv_post_recv");
    }
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad_wr;
    struct ibv_wc wc, sent_wc; /* sent_wc: of a permission; if it failed, its client has gone */
    if (client) rendezvous_sync(&all->rv, "ready");
    for (c = all; client && c->came < opt.iters; c->came++) {
        if (c->came % BURST == 0) wait_completion(recv_cq, "the permission", opt.timeout, &wc);
        if (c->came % BURST == 0) check(ibv_post_recv(c->qp, rx, &bad), "ibv_post_recv");
        wr.wr_id = c->came, wr.sg_list = sge, wr.num_sge = 1;
        pattern_fill(memory, SIZE, opt.seed + c->came);
        check(ibv_post_send(c->qp, &wr, &bad_wr), "ibv_post_send of the SEND");
        wait_completion(send_cq, "the SEND", opt.timeout, &wc);
        if (wc.wr_id != c->came) die(0, "another SEND's completion");
        c->right = pattern_right("sent message", memory, SIZE, opt.seed + c->came) && c->right;
        c->digest = fnv1a(c->digest, memory, SIZE);
    }
    if (client) rendezvous_sync(&all->rv, "done");

    /* The server. An event says once that less than half of the SRQ's receives are left. */
    struct ibv_srq_attr half = {.srq_limit = RECEIVES / 2};
    uint64_t refills = 0, bytes = 0, digest = 0;
    int64_t room = (int64_t)slots, frees = 0; /* receives not promised to a client; free slots */
    if (srq) check(ibv_modify_srq(srq, &half, IBV_SRQ_LIMIT), "ibv_modify_srq");
    for (c = all; !client && c < all + count; c++) dprintf(c->rv.fd, "sync ready\n");
    for (double heard = now(); !client && clients > 0;) {
        const int n = ibv_poll_cq(recv_cq, 1, &wc), sent = ibv_poll_cq(send_cq, 1, &sent_wc);
        if (n < 0 || sent < 0) die(0, "ibv_poll_cq");
        if (n > 0) { /* 8. Whose message is it? Verify. (A failed receive was a lost client's.) */
            char *at = memory + wc.wr_id * SIZE;
            for (c = all; c->qp->qp_num != wc.qp_num; c++) continue;
            if (wc.status == IBV_WC_SUCCESS) {
                c->right = expect(wc.byte_len == SIZE, "%u bytes came", wc.byte_len) &&
                           pattern_right("message", at, SIZE, c->seed + c->came) && c->right;
                c->digest = fnv1a(c->digest, at, SIZE), c->came++, heard = now();
                if (c->came == c->iters)
                    dprintf(c->rv.fd, "sync done\nverdict %s\n", c->right ? "PASS" : "FAIL");
            }
            poison_fill(at, SIZE, 0), c->may--, room -= c->gone;
            if (srq) rx[wc.wr_id].next = chain, chain = &rx[wc.wr_id], frees++;
            if (own && wc.status == IBV_WC_SUCCESS) /* if not, its QP is in the state ERR */
                check(ibv_post_recv(c->qp, &rx[wc.wr_id], &bad), "ibv_post_recv"), room++;
            continue;
        }
        struct pollfd device = {.fd = ctx->async_fd, .events = POLLIN};
        struct ibv_async_event event = {.event_type = IBV_EVENT_COMM_EST}; /* any other */
        if (poll(&device, 1, 1) > 0) check(ibv_get_async_event(ctx, &event), "ibv_get_async_event");
        if (device.revents) ibv_ack_async_event(&event);
        if (chain && (event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED || room < BURST)) {
            check(ibv_post_srq_recv(srq, chain, &bad), "ibv_post_srq_recv"), chain = NULL;
            check(ibv_modify_srq(srq, &half, IBV_SRQ_LIMIT), "ibv_modify_srq"), refills++;
            room += frees, frees = 0;
        }
        for (size_t k = 0; k < count; k++) { /* may it send? has it gone? are all silent? */
            c = &all[(k + refills * RECEIVES / BURST) % count]; /* each is the first one in turn */
            struct pollfd tcp = {.fd = c->gone ? -1 : c->rv.fd, .events = POLLIN | POLLRDHUP};
            const bool said_ready = poll(&tcp, 1, 0) > 0, closed = tcp.revents & POLLRDHUP;
            const bool permit = said_ready && !c->may && c->came < c->iters && room >= BURST;
            if (permit) check(ibv_post_send(c->qp, &wr, &bad_wr), "ibv_post_send");
            if (permit) c->may = BURST, room -= BURST;
            if (c->gone || (!closed && now() - heard < (double)opt.timeout)) continue;
            char said[64] = "";
            c->right = c->right && c->came == c->iters && closed && read(c->rv.fd, said, 63) > 0 &&
                       strcmp(said, "sync ready\nsync done\nverdict PASS\n") == 0;
            struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
            check(ibv_modify_qp(c->qp, &attr, IBV_QP_STATE), "ibv_modify_qp to ERR");
            c->gone = true, clients--, room += c->may, close(c->rv.fd);
        }
    }
    bool pass = guards_right("memory", memory, slots * SIZE);
    for (c = all; c < all + count; c++) {
        if (client) c->right = rendezvous_verdict(&c->rv, pass && c->right);
        pass = expect(c->right, "QPN 0x%06x failed after %ju messages", c->at.qpn, c->came) && pass;
        bytes += c->came * SIZE, digest ^= c->digest;
    }
    printf("MEMORY srq=%d own=%zu refills=%ju\n", SIZE * RECEIVES, SIZE * BURST * count, refills);

    /* 9. Undo in reverse order. */
    for (c = all; c < all + count; c++) check(ibv_destroy_qp(c->qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(mr), "ibv_dereg_mr");
    if (srq) check(ibv_destroy_srq(srq), "ibv_destroy_srq");
    check(ibv_destroy_cq(recv_cq), "ibv_destroy_cq");
    check(ibv_destroy_cq(send_cq), "ibv_destroy_cq");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(ctx), "ibv_close_device");
    guarded_free(memory);
    return report_result(pass, bytes, digest);
}
