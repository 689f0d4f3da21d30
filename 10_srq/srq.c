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
 * the pattern (pattern.h) of seed + i. The digest covers a client's messages in order; the server's
 * is the XOR of its clients'. Barriers: ready (all clients have come), done.
 */
#define _GNU_SOURCE
#include "device.h"
#include "pattern.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_CLIENTS = 64, RECEIVES = 128, BURST = 8, SIZE = 1024 /* bytes in a message */ };
enum { SENDS = 16 }; /* credits of a client whose acknowledgements may be lost in a row */
/* What a client says on TCP, by and by. */
#define ALL_SAID "sync ready\nsync done\nverdict PASS\n"

/* What the server knows of a client. */
struct client {
    struct rendezvous tcp;
    struct endpoint remote;
    struct ibv_qp *qp;
    uint64_t iters, seed, came, digest;
    int credits; /* messages that it may send now */
    bool correct, gone;
    char said[sizeof(ALL_SAID) + 1]; /* on TCP; a byte too many has room, too */
};

/* The server's receives. Each has a slot of SIZE bytes in memory, and the slot's number as wr_id.
 */
struct receives {
    struct ibv_srq *srq; /* NULL with --own: then the slots 8 k to 8 k + 7 belong to client k */
    char *memory;
    struct ibv_sge sge[BURST * MAX_CLIENTS];
    struct ibv_recv_wr wr[BURST * MAX_CLIENTS], *used; /* used: a chain of those to post again */
    int64_t in_chain, unassigned; /* unassigned: posted receives that no client may use yet */
    uint64_t refills;
};

struct server {
    struct options *opt;
    struct ibv_context *ctx;
    struct ibv_cq *send_cq, *recv_cq;
    struct receives receives;
    struct client clients[MAX_CLIENTS];
    size_t count, remaining, next_turn; /* clients; those that have not gone; who is asked first */
    double last_heard;                  /* when the last message came */
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

/* A QP. With an SRQ it has no receive queue, and max_recv_wr is ignored. */
static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_cq *send_cq, struct ibv_cq *recv_cq,
                                struct ibv_srq *srq) {
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = send_cq,
        .recv_cq = recv_cq,
        .srq = srq,
        .cap = {.max_send_wr = SENDS, .max_send_sge = 1, .max_recv_wr = BURST, .max_recv_sge = 1},
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp) die(errno, "ibv_create_qp");
    return qp;
}

/* ---- the client ---- */

/* SENDs all messages, BURST of them for each permission. Returns their digest. */
static uint64_t send_messages(struct options *opt, struct ibv_qp *qp, struct ibv_mr *mr) {
    struct ibv_recv_wr credit = {.num_sge = 0}, *bad_recv_wr; /* empty: it needs no memory */
    struct ibv_sge sge = {.addr = (uintptr_t)mr->addr, .length = SIZE, .lkey = mr->lkey};
    struct ibv_send_wr wr = {
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED,
    };
    struct ibv_send_wr *bad_wr;
    struct ibv_wc wc;
    uint64_t digest = FNV_BASIS;
    for (uint64_t i = 0; i < opt->iters; i++) {
        if (i % BURST == 0) {
            wait_completion(qp->recv_cq, "the permission", opt->timeout, &wc);
            check(ibv_post_recv(qp, &credit, &bad_recv_wr), "ibv_post_recv");
        }
        wr.wr_id = i;
        pattern_fill(mr->addr, SIZE, opt->seed + i);
        check(ibv_post_send(qp, &wr, &bad_wr), "ibv_post_send of the SEND");
        wait_completion(qp->send_cq, "the SEND", opt->timeout, &wc);
        if (wc.wr_id != i) die(0, "another SEND's completion");
        digest = fnv1a(digest, mr->addr, SIZE);
    }
    return digest;
}

static int run_client(struct options *opt) {
    /* 2. Start the rendezvous. Device, protection domain, completion queues. */
    struct rendezvous tcp;
    struct endpoint peer;
    struct port port;
    rendezvous_open(&tcp, opt, &peer);
    struct ibv_context *ctx = open_device(opt, tcp.fd, &port);
    errno = 0; /* a driver may return NULL and leave it: then no old error is told */
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    if (!pd) die(errno, "ibv_alloc_pd");
    struct ibv_cq *send_cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
    if (!send_cq) die(errno, "ibv_create_cq");
    struct ibv_cq *recv_cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
    if (!recv_cq) die(errno, "ibv_create_cq");

    /* 3. Memory: one message. Nobody but this side's NIC reads it, so it needs no right. */
    char *message = guarded_alloc(SIZE);
    struct ibv_mr *mr = ibv_reg_mr(pd, message, SIZE, 0);
    if (!mr) die(errno, "ibv_reg_mr of %d bytes", SIZE);

    /* 4. The queue pair. 5. Exchange. 6. RESET -> INIT -> RTR -> RTS. */
    struct ibv_qp *qp = create_qp(pd, send_cq, recv_cq, NULL);
    const struct endpoint mine = {
        .lid = port.lid,
        .qpn = qp->qp_num,
        .psn = random_psn(),
        .gid = port.gid,
        .mtu = port.mtu,
        .max_sge = 1,
    };
    rendezvous_swap(&tcp, &mine, &peer);
    qp_to_init(qp, &port, 0);
    qp_to_rtr(qp, &port, &peer, 0);
    qp_to_rts(qp, mine.psn, 0, ACK_TIMEOUT);

    /* 7. The verbs. The first permission needs a receive before this side says ready. */
    struct ibv_recv_wr first = {.num_sge = 0}, *bad_recv_wr;
    check(ibv_post_recv(qp, &first, &bad_recv_wr), "ibv_post_recv");
    rendezvous_sync(&tcp, "ready");
    const uint64_t digest = send_messages(opt, qp, mr);
    rendezvous_sync(&tcp, "done");

    /* 8. Verify that sending has changed nothing. The server verifies what came. */
    bool pass = pattern_ok("sent message", message, SIZE, opt->seed + opt->iters - 1);
    pass = guards_ok("message", message, SIZE) && pass;
    pass = rendezvous_verdict(&tcp, pass);
    printf("MEMORY srq=%d own=%d refills=0\n", SIZE * RECEIVES, SIZE * BURST);

    /* 9. Undo in reverse order. */
    check(ibv_destroy_qp(qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(mr), "ibv_dereg_mr");
    check(ibv_destroy_cq(recv_cq), "ibv_destroy_cq");
    check(ibv_destroy_cq(send_cq), "ibv_destroy_cq");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(ctx), "ibv_close_device");
    guarded_free(message);
    return report_result(pass, SIZE * opt->iters, digest);
}

/* ---- the server ---- */

/* Connects the client whose line c->rv holds. The order is another one than in the other samples:
 * RTR needs a way to the client's GID, and fails if there is none. Then the client is refused,
 * before it has got this side's line, and another one may come instead. */
static bool accept_client(struct server *s, struct client *c, struct ibv_pd *pd,
                          const struct port *port) {
    c->qp = create_qp(pd, s->send_cq, s->recv_cq, s->receives.srq);
    qp_to_init(c->qp, port, 0);
    if (port->mtu < c->remote.mtu) c->remote.mtu = port->mtu; /* in the other samples: the swap */
    const int err = qp_try_rtr(c->qp, port, &c->remote, 0);
    if (err) {
        char reason[100];
        snprintf(reason, sizeof(reason), "ibv_modify_qp to RTR with your GID: %s", strerror(err));
        check(ibv_destroy_qp(c->qp), "ibv_destroy_qp");
        rendezvous_refuse(&c->tcp, reason);
        return false;
    }
    const struct endpoint mine = {
        .lid = port->lid,
        .qpn = c->qp->qp_num,
        .psn = random_psn(),
        .gid = port->gid,
        .mtu = port->mtu,
        .max_sge = 1,
    };
    qp_to_rts(c->qp, mine.psn, 0, ACK_TIMEOUT);
    if (!rendezvous_swap(&c->tcp, &mine, &c->remote)) { /* it has gone already */
        check(ibv_destroy_qp(c->qp), "ibv_destroy_qp");
        return false;
    }
    c->iters = s->opt->iters;
    c->seed = s->opt->seed;
    c->digest = FNV_BASIS;
    c->correct = true;
    return true;
}

/* Accepts clients until as many have come as the first one has asked for. */
static void accept_clients(struct server *s, struct ibv_pd *pd, const struct port *port) {
    uint64_t *wanted = s->opt->work;
    while (true) {
        struct client *c = &s->clients[s->count];
        if (accept_client(s, c, pd, port)) s->count++;
        if (s->count == 0) *wanted = 0; /* the next one is the first */
        if (s->count > 0 && s->count == *wanted) break;
        c = &s->clients[s->count];
        rendezvous_open(&c->tcp, s->opt, &c->remote);
    }
    close(s->opt->listener);
}

/* A receive for each slot: to the SRQ, or to the QP that the slot belongs to. */
static void post_receives(struct server *s, struct ibv_mr *mr, size_t slots) {
    struct receives *r = &s->receives;
    struct ibv_recv_wr *bad_wr;
    for (size_t i = 0; i < slots; i++) {
        r->sge[i] = (struct ibv_sge){
            .addr = (uintptr_t)r->memory + i * SIZE,
            .length = SIZE,
            .lkey = mr->lkey,
        };
        r->wr[i] = (struct ibv_recv_wr){.wr_id = i, .sg_list = &r->sge[i], .num_sge = 1};
        poison_fill(r->memory + i * SIZE, SIZE, 0);
        if (r->srq)
            check(ibv_post_srq_recv(r->srq, &r->wr[i], &bad_wr), "ibv_post_srq_recv");
        else
            check(ibv_post_recv(s->clients[i / BURST].qp, &r->wr[i], &bad_wr), "ibv_post_recv");
    }
    r->unassigned = (int64_t)slots;
}

/* Asks for an event when less than half of the SRQ's receives are left. It comes once. */
static void arm_limit(struct ibv_srq *srq) {
    struct ibv_srq_attr half = {.srq_limit = RECEIVES / 2};
    check(ibv_modify_srq(srq, &half, IBV_SRQ_LIMIT), "ibv_modify_srq");
}

/* Posts the used receives again, all in one call. */
static void refill(struct receives *r) {
    struct ibv_recv_wr *bad_wr;
    check(ibv_post_srq_recv(r->srq, r->used, &bad_wr), "ibv_post_srq_recv");
    arm_limit(r->srq);
    r->unassigned += r->in_chain;
    r->used = NULL;
    r->in_chain = 0;
    r->refills++;
}

/* A receive that has completed is posted again: to its QP at once, to the SRQ by refill(). */
static void repost(struct receives *r, struct ibv_recv_wr *wr, struct ibv_qp *qp) {
    struct ibv_recv_wr *bad_wr;
    if (r->srq) {
        wr->next = r->used;
        r->used = wr;
        r->in_chain++;
    } else {
        check(ibv_post_recv(qp, wr, &bad_wr), "ibv_post_recv");
        r->unassigned++;
    }
}

/* A client has gone, as it should after its verdict, or too early. */
static void drop(struct server *s, struct client *c) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR}; /* nothing more arrives */
    c->correct = c->correct && c->came == c->iters && strcmp(c->said, ALL_SAID) == 0;
    check(ibv_modify_qp(c->qp, &attr, IBV_QP_STATE), "ibv_modify_qp to ERR");
    close(c->tcp.fd);
    c->gone = true;
    s->remaining--;
    s->receives.unassigned += c->credits;
}

/* 8. A receive has completed. Whose message is it? Verify every byte, and free the slot. A failed
 * receive was that of a client that has gone. */
static void on_message(struct server *s, const struct ibv_wc *wc) {
    struct receives *r = &s->receives;
    char *at = r->memory + wc->wr_id * SIZE;
    const bool arrived = wc->status == IBV_WC_SUCCESS;
    struct client *c = s->clients;
    while (c < s->clients + s->count && c->qp->qp_num != wc->qp_num) c++;
    if (c == s->clients + s->count) {
        expect(false, "a completion of QPN 0x%06x, which is no client's", wc->qp_num);
        return;
    }
    if (arrived && !c->gone && c->credits == 0) {
        expect(false, "QPN 0x%06x sends without a credit", c->remote.qpn);
        drop(s, c);
    }
    if (arrived) {
        const bool whole = expect(wc->byte_len == SIZE, "%u bytes came", wc->byte_len);
        c->correct = whole && pattern_ok("message", at, SIZE, c->seed + c->came) && c->correct;
        c->digest = fnv1a(c->digest, at, SIZE);
        c->came++;
        s->last_heard = now();
        if (c->came == c->iters && !c->gone) /* or its socket is closed */
            dprintf(c->tcp.fd, "sync done\nverdict %s\n", c->correct ? "PASS" : "FAIL");
    }
    poison_fill(at, SIZE, 0);
    c->credits--;
    if (c->gone) r->unassigned--; /* what it was allowed had been taken back */
    if (r->srq || arrived)        /* else its QP is in the state ERR */
        repost(r, &r->wr[wc->wr_id], c->qp);
}

/* Takes all completions. Those of permissions need nothing more: if one has failed, its client has
 * gone, which TCP tells, too. */
static void take_completions(struct server *s) {
    struct ibv_wc wc;
    int n;
    while ((n = ibv_poll_cq(s->send_cq, 1, &wc)) > 0) continue;
    if (n < 0) die(0, "ibv_poll_cq");
    while ((n = ibv_poll_cq(s->recv_cq, 1, &wc)) > 0) on_message(s, &wc);
    if (n < 0) die(0, "ibv_poll_cq");
}

/* A client that is ready, has used up what it was allowed, and has more to send, may send BURST
 * messages more, while there are receives for them. Another one is the first each time. */
static void grant_credits(struct server *s) {
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad_wr;
    for (size_t k = 0; k < s->count; k++) {
        struct client *c = &s->clients[(s->next_turn + k) % s->count];
        const bool ready = strchr(c->said, '\n') != NULL;
        if (c->gone || !ready || c->credits > 0 || c->came >= c->iters) continue;
        if (s->receives.unassigned < BURST) {
            s->next_turn = (s->next_turn + k) % s->count;
            return;
        }
        check(ibv_post_send(c->qp, &wr, &bad_wr), "ibv_post_send of the permission");
        c->credits = BURST;
        s->receives.unassigned -= BURST;
    }
}

/* A client has said something on TCP, or has closed the connection. */
static void on_tcp(struct server *s, struct client *c) {
    const size_t had = strlen(c->said);
    const ssize_t n = recv(c->tcp.fd, c->said + had, sizeof(c->said) - 1 - had, MSG_DONTWAIT);
    const bool as_expected = n > 0 && strlen(c->said) == had + (size_t)n &&
                             strncmp(c->said, ALL_SAID, strlen(c->said)) == 0;
    if (!as_expected) drop(s, c);
}

/* The device says something: that the SRQ runs low, or what needs no answer here. */
static void on_async_event(struct server *s) {
    struct ibv_async_event event;
    check(ibv_get_async_event(s->ctx, &event), "ibv_get_async_event");
    ibv_ack_async_event(&event);
    if (event.event_type != IBV_EVENT_SRQ_LIMIT_REACHED) return;
    take_completions(s); /* whose receives are needed now */
    if (s->receives.used)
        refill(&s->receives);
    else
        arm_limit(s->receives.srq);
}

/* A completion queue says that there may be something. The event is asked for again in serve(). */
static void on_cq_event(struct ibv_comp_channel *channel) {
    struct ibv_cq *cq;
    void *context;
    check(ibv_get_cq_event(channel, &cq, &context), "ibv_get_cq_event");
    ibv_ack_cq_events(cq, 1);
}

/* 7. Until all clients have gone: ask for an event, take what is there already, and only then sleep
 * until something happens: a completion, an event of the device, or a client's word on TCP. */
static void serve(struct server *s, struct ibv_comp_channel *channel) {
    struct pollfd fds[2 + MAX_CLIENTS];
    s->last_heard = now();
    s->remaining = s->count;
    while (s->remaining > 0) {
        check(ibv_req_notify_cq(s->recv_cq, 0), "ibv_req_notify_cq");
        take_completions(s);
        if (s->receives.used && s->receives.unassigned < BURST) refill(&s->receives);
        grant_credits(s);
        fds[0] = (struct pollfd){.fd = channel->fd, .events = POLLIN};
        fds[1] = (struct pollfd){.fd = s->ctx->async_fd, .events = POLLIN};
        for (size_t k = 0; k < s->count; k++) {
            const struct client *c = &s->clients[k];
            fds[2 + k] = (struct pollfd){.fd = c->gone ? -1 : c->tcp.fd, .events = POLLIN};
        }
        const double patience = s->last_heard + (double)s->opt->timeout - now();
        const bool sleeps = patience > 0 && s->remaining > 0;
        poll(fds, 2 + s->count, sleeps ? (int)(patience * 1000) + 1 : 0);
        if (fds[0].revents) on_cq_event(channel);
        if (fds[1].revents) on_async_event(s);
        for (size_t k = 0; k < s->count; k++) {
            struct client *c = &s->clients[k];
            if (!c->gone && patience <= 0) drop(s, c); /* all are silent */
            if (!c->gone && fds[2 + k].revents) on_tcp(s, c);
        }
    }
}

static int run_server(struct options *opt, bool own) {
    /* 2. The first client's line. Device, protection domain, completion queues, SRQ. */
    static struct server s; /* too large for a stack */
    struct receives *r = &s.receives;
    struct port port;
    s.opt = opt;
    rendezvous_open(&s.clients[0].tcp, opt, &s.clients[0].remote);
    s.ctx = open_device(opt, s.clients[0].tcp.fd, &port);
    errno = 0; /* a driver may return NULL and leave it: then no old error is told */
    struct ibv_pd *pd = ibv_alloc_pd(s.ctx);
    if (!pd) die(errno, "ibv_alloc_pd");
    struct ibv_comp_channel *channel = ibv_create_comp_channel(s.ctx);
    if (!channel) die(errno, "ibv_create_comp_channel");
    s.send_cq = ibv_create_cq(s.ctx, SENDS * MAX_CLIENTS, NULL, NULL, 0);
    if (!s.send_cq) die(errno, "ibv_create_cq");
    s.recv_cq = ibv_create_cq(s.ctx, BURST * MAX_CLIENTS, NULL, channel, 0);
    if (!s.recv_cq) die(errno, "ibv_create_cq");
    struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = RECEIVES, .max_sge = 1}};
    errno = 0;
    r->srq = own ? NULL : ibv_create_srq(pd, &srq_init);
    if (!own && !r->srq)
        stop(errno == EOPNOTSUPP ? EXIT_NO_DEVICE : EXIT_FAILURE, errno, "ibv_create_srq");

    /* 4 to 6, before 3: --own needs memory for as many clients as come. A QP for each, in RTS. */
    accept_clients(&s, pd, &port);

    /* 3. Memory: a slot for each receive. The NIC writes it. */
    const size_t slots = own ? BURST * s.count : RECEIVES;
    r->memory = guarded_alloc(slots * SIZE);
    struct ibv_mr *mr = ibv_reg_mr(pd, r->memory, slots * SIZE, IBV_ACCESS_LOCAL_WRITE);
    if (!mr) die(errno, "ibv_reg_mr of %zu bytes", slots * SIZE);

    /* 7. The verbs, and 8. verify. */
    post_receives(&s, mr, slots);
    if (r->srq) arm_limit(r->srq);
    for (size_t k = 0; k < s.count; k++) dprintf(s.clients[k].tcp.fd, "sync ready\n");
    serve(&s, channel);
    bool pass = guards_ok("memory", r->memory, slots * SIZE);
    uint64_t bytes = 0, digest = 0;
    for (struct client *c = s.clients; c < s.clients + s.count; c++) {
        pass = expect(c->correct, "QPN 0x%06x failed after %ju messages", c->remote.qpn, c->came) &&
               pass;
        bytes += c->came * SIZE;
        digest ^= c->digest;
    }
    printf("MEMORY srq=%d own=%zu refills=%ju\n", SIZE * RECEIVES, SIZE * BURST * s.count,
           r->refills);

    /* 9. Undo in reverse order. */
    for (size_t k = 0; k < s.count; k++) check(ibv_destroy_qp(s.clients[k].qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(mr), "ibv_dereg_mr");
    if (r->srq) check(ibv_destroy_srq(r->srq), "ibv_destroy_srq");
    check(ibv_destroy_cq(s.recv_cq), "ibv_destroy_cq");
    check(ibv_destroy_cq(s.send_cq), "ibv_destroy_cq");
    check(ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(s.ctx), "ibv_close_device");
    guarded_free(r->memory);
    return report_result(pass, bytes, digest);
}

int main(int argc, char **argv) {
    /* 1. Options. A host argument makes this the client. */
    uint64_t clients = 1, own = 0;
    struct options opt = {.sample = "10_srq", .size = SIZE, .iters = 80, .seed = 1, .listener = -1};
    opt.work = &clients;
    opt.format_work = format_work;
    opt.parse_work = parse_work;
    const struct option_row rows[] = {
        {'n', "iters", "N", "number of messages", NUMBER(opt.iters, 1, MAX_ITERS)},
        {'S', "seed", "N", "seed of the test data", NUMBER(opt.seed, 0, UINT64_MAX)},
        {0, "clients", "N", "clients of this server", NUMBER(clients, 1, MAX_CLIENTS)},
        {0, "own", NULL, "no SRQ: a receive queue for each QP", NUMBER(own, 1, 1), .server = true},
        {0},
    };
    parse_options(&opt, rows, argc, argv);
    if (!opt.host) clients = 0; /* the first client will say it */
    return opt.host ? run_client(&opt) : run_server(&opt, own);
}
