/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 12_ordering - three requests in one post, and three promises about their order: the client READs
 * the server's data, SENDs it back (fence: not before it is there), and SENDs a note whose buffer
 * it overwrites at once (inline). One completion tells that all three are done (selective
 * signalling).
 *
 *   gcc -I../common -o ordering ordering.c ../common/[a-z]*.c -libverbs
 *   ./ordering               in one terminal: the server
 *   ./ordering 127.0.0.1     in another: the client; the server's address
 *
 * The client prints, after the lines of the device (the server: similar lines):
 *   inline data: asked for 64 bytes, may send ...
 *   3 work requests, 1 completion
 *   RESULT sample=12_ordering role=client status=PASS bytes=4160 digest=...
 *
 * Rendezvous: work= ends with inline, the bytes of a note. In round i, from 0 to iters - 1, the
 * server exposes size bytes with the pattern (pattern.h) of seed + i; its rd_atomic is 1. The note
 * is the pattern of the complement of seed + i. The digest covers what came back, then the note, of
 * each round. Barriers: ready before each round (memory and two receives are prepared); done.
 */
#include "device.h"
#include "pattern.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"

enum { MAX_INLINE = 4096, REQUESTS = 3 };

/* One side of a round. */
struct side {
    struct ibv_qp *qp;
    char *data, *note; /* client: what it READs, and what it sends; server: what it exposes */
    char *inbox;       /* server: its receives, for data and note; client: the note */
    uint32_t size;     /* bytes in data */
    uint32_t length;   /* bytes in a note */
    uint32_t data_lkey, inbox_lkey;
    uint64_t peer_addr;  /* client: the server's data, */
    uint32_t peer_rkey;  /* and its rkey */
    bool fence, sig_all; /* client: the options */
    uint64_t timeout;
    uint64_t completions; /* since the start */
};

static void format_work(const struct options *opt, char *out, size_t room) {
    snprintf(out, room, ",inline=%ju", *(const uint64_t *)opt->work);
}

static const char *parse_work(struct options *opt, const char *text) {
    const char *number = strncmp(text, ",inline=", 8) == 0 ? text + 8 : "";
    char again[64]; /* parse_number takes leading zeros and suffixes */
    const bool parsed = parse_number(number, 1, MAX_INLINE, opt->work);
    format_work(opt, again, sizeof(again));
    return parsed && strcmp(text, again) == 0 ? NULL : "inline is malformed, or above 4096";
}

/* Client: 7. the verbs. READ request and SENDs leave in this order, but the READ's data comes
 * later. The fence keeps the SEND back until all READs before it have completed. */
static void post_chain(const struct side *s) {
    struct ibv_sge fetched = {(uintptr_t)s->data, s->size, s->data_lkey};
    struct ibv_sge noted = {(uintptr_t)s->note, s->length, s->inbox_lkey};
    struct ibv_send_wr wr[REQUESTS] = {
        {.wr_id = 0,
         .next = &wr[1],
         .sg_list = &fetched,
         .num_sge = 1,
         .opcode = IBV_WR_RDMA_READ,
         .wr.rdma = {.remote_addr = s->peer_addr, .rkey = s->peer_rkey}},
        {.wr_id = 1,
         .next = &wr[2],
         .sg_list = &fetched,
         .num_sge = 1,
         .opcode = IBV_WR_SEND,
         .send_flags = s->fence ? IBV_SEND_FENCE : 0},
        /* Inline: ibv_post_send copies the note, so its buffer is free again (and the lkey is not
         * used). Signalled: it completes after all requests before it. */
        {.wr_id = 2,
         .sg_list = &noted,
         .num_sge = 1,
         .opcode = IBV_WR_SEND,
         .send_flags = IBV_SEND_INLINE | (s->sig_all ? 0 : IBV_SEND_SIGNALED)},
    };
    struct ibv_send_wr *bad_wr;
    check(ibv_post_send(s->qp, wr, &bad_wr), "ibv_post_send of the chain");
}

/* Server: 7. receive 0 is for the data, receive 1 for the note. The SENDs of a connection arrive in
 * the order in which they were posted, and take the receives in that order. */
static void post_receives(const struct side *s) {
    struct ibv_sge data = {(uintptr_t)s->inbox, s->size, s->inbox_lkey};
    struct ibv_sge note = {(uintptr_t)s->note, s->length, s->inbox_lkey};
    struct ibv_recv_wr wr[2] = {
        {.wr_id = 0, .next = &wr[1], .sg_list = &data, .num_sge = 1},
        {.wr_id = 1, .sg_list = &note, .num_sge = 1},
    };
    struct ibv_recv_wr *bad_wr;
    check(ibv_post_recv(s->qp, wr, &bad_wr), "ibv_post_recv");
}

/* Waits for the next completion (one queue serves both directions), which must be that of wr_id.
 * Returns the bytes that came. */
static uint32_t next_completion(struct side *s, const char *what, uint64_t wr_id) {
    struct ibv_wc wc;
    wait_completion(s->qp->send_cq, what, s->timeout, &wc);
    if (wc.wr_id != wr_id) die(0, "another request's completion");
    s->completions++;
    return wc.byte_len;
}

/* One round of the client. Returns whether it read what it should. */
static bool client_round(struct side *s, struct rendezvous *tcp, uint64_t seed, uint64_t *digest) {
    poison_fill(s->data, s->size, seed);
    pattern_fill(s->note, s->length, ~seed);
    rendezvous_sync(tcp, "ready");
    post_chain(s);
    poison_fill(s->note, s->length, ~seed); /* it has been copied */
    for (uint64_t k = s->sig_all ? 0 : REQUESTS - 1; k < REQUESTS; k++)
        next_completion(s, "the chain", k);

    /* 8. Verify every byte. */
    const bool pass = pattern_ok("data read", s->data, s->size, seed);
    pattern_fill(s->note, s->length, ~seed);
    *digest = fnv1a(fnv1a(*digest, s->data, s->size), s->note, s->length);
    return pass;
}

/* One round of the server. Returns whether all that came is right. */
static bool server_round(struct side *s, struct rendezvous *tcp, uint64_t seed, uint64_t *digest) {
    const uint32_t lengths[] = {s->size, s->length};
    pattern_fill(s->data, s->size, seed);
    poison_fill(s->inbox, s->size, seed);
    poison_fill(s->note, s->length, ~seed);
    post_receives(s);
    rendezvous_sync(tcp, "ready");
    for (uint64_t k = 0; k < 2; k++) {
        const uint32_t came = next_completion(s, "the receive", k);
        if (came != lengths[k]) die(0, "message %ju has %u bytes", k, came);
    }

    /* 8. Verify every byte. */
    bool pass = pattern_ok("exposed data", s->data, s->size, seed);
    pass = pattern_ok("data sent back", s->inbox, s->size, seed) && pass;
    pass = pattern_ok("note", s->note, s->length, ~seed) && pass;
    *digest = fnv1a(fnv1a(*digest, s->inbox, s->size), s->note, s->length);
    return pass;
}

int main(int argc, char **argv) {
    /* 1. Options. A host argument makes this the client. */
    uint64_t note_size = 64, no_fence = 0, sig_all = 0;
    struct options opt = {.sample = "12_ordering", .size = 4096, .iters = 1, .seed = 1};
    opt.work = &note_size;
    opt.format_work = format_work;
    opt.parse_work = parse_work;
    const struct option_row rows[] = {
        {'s', "size", "BYTES", "bytes to fetch and send back", NUMBER(opt.size, 1, MAX_SIZE)},
        {'n', "iters", "N", "number of rounds", NUMBER(opt.iters, 1, MAX_ITERS)},
        {'S', "seed", "N", "seed of the test data", NUMBER(opt.seed, 0, UINT64_MAX)},
        {0, "inline", "BYTES", "bytes of inline data", NUMBER(note_size, 1, MAX_INLINE)},
        {0, "no-fence", NULL, "SEND back without a fence", NUMBER(no_fence, 1, 1)},
        {0, "sig-all", NULL, "signal every request (sq_sig_all)", NUMBER(sig_all, 1, 1)},
        {0},
    };
    parse_options(&opt, rows, argc, argv);
    const bool client = opt.host != NULL;

    /* 2. Start the rendezvous. Device, protection domain, completion queue. */
    struct rendezvous tcp;
    struct endpoint peer;
    struct port port;
    rendezvous_open(&tcp, &opt, &peer);
    struct ibv_context *ctx = open_device(&opt, tcp.fd, &port);
    errno = 0; /* a driver may return NULL and leave it: then no old error is told */
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    if (!pd) die(errno, "ibv_alloc_pd");
    struct ibv_cq *cq = ibv_create_cq(ctx, REQUESTS, NULL, NULL, 0);
    if (!cq) die(errno, "ibv_create_cq");

    /* 3. Memory. data: the server exposes it, the client fetches it there (rights as in 03).
     * inbox: the server's receives, for data and for the note; the client's note. */
    const uint32_t size = (uint32_t)opt.size;
    const uint32_t length = (uint32_t)note_size;
    const uint32_t room = client ? length : size + length;
    char *data = guarded_alloc(size);
    char *inbox = guarded_alloc(room);
    struct ibv_mr *data_mr =
        ibv_reg_mr(pd, data, size, client ? IBV_ACCESS_LOCAL_WRITE : IBV_ACCESS_REMOTE_READ);
    if (!data_mr) die(errno, "ibv_reg_mr of %u bytes", size);
    struct ibv_mr *inbox_mr = ibv_reg_mr(pd, inbox, room, client ? 0 : IBV_ACCESS_LOCAL_WRITE);
    if (!inbox_mr) die(errno, "ibv_reg_mr of %u bytes", room);

    /* 4. The queue pair. Inline data lies in the send queue itself, so room for it is asked for
     * here. The call sets init.cap to what there is: as much or more (ibv_create_qp(3)), but some
     * drivers give less. */
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = REQUESTS, .max_send_sge = 1, .max_recv_wr = 2, .max_recv_sge = 1},
        .sq_sig_all = sig_all > 0, /* 0: only what has IBV_SEND_SIGNALED */
    };
    if (client) init.cap.max_inline_data = length;
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp) die(errno, "ibv_create_qp with %u bytes of inline data", init.cap.max_inline_data);
    if (client)
        printf("inline data: asked for %u bytes, may send %u\n", length, init.cap.max_inline_data);
    if (client && init.cap.max_inline_data < length)
        die(0, "ibv_create_qp with %u bytes of inline data: the device gives fewer", length);

    /* 5. Exchange, as in 03. */
    const struct endpoint mine = {
        .lid = port.lid,
        .qpn = qp->qp_num,
        .psn = random_psn(),
        .gid = port.gid,
        .mtu = port.mtu,
        .addr = client ? 0 : (uintptr_t)data,
        .rkey = client ? 0 : data_mr->rkey,
        .len = client ? 0 : size,
        .max_sge = 1,
        .rd_atomic = client ? 0 : 1,
    };
    rendezvous_swap(&tcp, &mine, &peer);

    /* 6. RESET -> INIT -> RTR -> RTS. */
    qp_to_init(qp, &port, client ? 0 : IBV_ACCESS_REMOTE_READ);
    qp_to_rtr(qp, &port, &peer, mine.rd_atomic);
    qp_to_rts(qp, mine.psn, peer.rd_atomic ? 1 : 0, ACK_TIMEOUT);

    /* 7. and 8. Rounds. */
    struct side side = {
        .qp = qp,
        .data = data,
        .inbox = inbox,
        .note = inbox + room - length,
        .size = size,
        .length = length,
        .data_lkey = data_mr->lkey,
        .inbox_lkey = inbox_mr->lkey,
        .peer_addr = peer.addr,
        .peer_rkey = peer.rkey,
        .fence = no_fence == 0,
        .sig_all = sig_all > 0,
        .timeout = opt.timeout,
    };
    uint64_t digest = FNV_BASIS;
    bool pass = true;
    for (uint64_t i = 0; i < opt.iters; i++) {
        if (client)
            pass = client_round(&side, &tcp, opt.seed + i, &digest) && pass;
        else
            pass = server_round(&side, &tcp, opt.seed + i, &digest) && pass;
    }
    rendezvous_sync(&tcp, "done");
    struct ibv_wc wc;
    const int extra = ibv_poll_cq(cq, 1, &wc);
    if (extra < 0) die(0, "ibv_poll_cq");
    pass = expect(extra == 0, "a completion that nobody asked for") && pass;
    printf("%ju work requests, %ju completion%s\n", opt.iters * (client ? REQUESTS : 2),
           side.completions, side.completions == 1 ? "" : "s");
    pass = guards_ok("data", data, size) && guards_ok("mail", inbox, room) && pass;
    pass = rendezvous_verdict(&tcp, pass);

    /* 9. Undo in reverse order. */
    check(ibv_destroy_qp(qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(inbox_mr), "ibv_dereg_mr");
    check(ibv_dereg_mr(data_mr), "ibv_dereg_mr");
    check(ibv_destroy_cq(cq), "ibv_destroy_cq");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(ctx), "ibv_close_device");
    guarded_free(inbox);
    guarded_free(data);
    return report_result(pass, opt.iters * (opt.size + length), digest);
}
