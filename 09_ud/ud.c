/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 09_ud - datagrams. The client SENDs each message as one packet; the server SENDs it back to whom
 * the completion names. There is no connection: one queue pair of the server serves all clients.
 * Nobody is told of a datagram that got lost, so the client sends it again until an answer comes.
 * A client that dies ends the server (10_srq shows one that goes on).
 *
 *   gcc -I../common -o ud ud.c ../common/[a-z]*.c -libverbs
 *   ./ud               in one terminal: the server
 *   ./ud 127.0.0.1     in another: the client; the server's address
 *
 * The client ends with these lines (the server: similar ones):
 *   DATAGRAMS sent=10 came=10 again=0 strange=0
 *   RESULT sample=09_ud role=client status=PASS bytes=2560 digest=...
 *
 * Rendezvous: work= has one more field, clients: for how many the server waits (1 to 16). Message
 * i, from 0 to iters - 1, is the pattern (pattern.h) of seed + i, size bytes, with the immediate i.
 * The digest covers each message once, in order; the server's is the XOR of its clients'. No side
 * exposes memory. Barriers: ready (receives are posted, all clients have come), done.
 */
#include "device.h"
#include "pattern.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"

#include <arpa/inet.h>
#include <poll.h>
#include <unistd.h>

enum { MAX_CLIENTS = 16, MAX_MTU = 4096, RECEIVES = 64, GRH = sizeof(struct ibv_grh) /* 40 */ };
enum { SLOT = GRH + MAX_MTU }; /* bytes: room for any datagram, a stranger's, too */
enum { QKEY = 12345 };  /* any number below 0x80000000 (those above are privileged: IBTA 3.5.3) */
#define SEND_AGAIN 0.25 /* seconds without an answer */

/* The other side: a client of the server, or the client's server. */
struct peer {
    struct rendezvous tcp;
    struct endpoint remote;
    struct ibv_ah *ah;
    bool looked_up, finished;                 /* ah: once; the client has said done */
    uint64_t size, iters, seed, digest, next; /* next: the message that has not yet come */
};

/* What this side has. Slot RECEIVES of the memory is for sending; the others are for receives. */
struct side {
    struct options *opt;
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct ibv_qp *qp;
    struct port port;
    struct peer peers[MAX_CLIENTS];
    size_t count;
    uint64_t sent, came, again, strange; /* datagrams */
    uint64_t in_flight;                  /* SENDs that have not completed */
    double last_heard;                   /* when the last one came */
};

static void format_work(const struct options *opt, char *out, size_t room) {
    snprintf(out, room, ",clients=%ju", *(uint64_t *)opt->work);
}

static const char *parse_work(struct options *opt, const char *text) {
    uint64_t *clients = opt->work, theirs = 0;
    if (strncmp(text, ",clients=", 9) != 0 || !parse_number(text + 9, 1, MAX_CLIENTS, &theirs) ||
        opt->size > MAX_MTU || (*clients && *clients != theirs))
        return "work= is malformed, above the limits, or has not the first client's clients=";
    *clients = theirs;
    return NULL;
}

static char *slot_of(const struct side *s, uint64_t number) {
    return (char *)s->mr->addr + number * SLOT;
}

static void post_receive(const struct side *s, uint64_t number) {
    struct ibv_sge sge = {
        .addr = (uintptr_t)slot_of(s, number),
        .length = SLOT,
        .lkey = s->mr->lkey,
    };
    struct ibv_recv_wr wr = {.wr_id = number, .sg_list = &sge, .num_sge = 1}, *bad_wr;
    poison_fill(slot_of(s, number), SLOT, 0);
    check(ibv_post_recv(s->qp, &wr, &bad_wr), "ibv_post_recv");
}

/* 6. RESET -> INIT -> RTR -> RTS. No peer here: each SEND says to whom it goes, by an address
 * handle (AH), a QPN and a Q_Key. A NIC drops a datagram with another Q_Key than its QP's. */
static void ud_to_rts(const struct side *s, uint32_t psn) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .pkey_index = (uint16_t)s->opt->pkey_idx,
        .port_num = s->port.num,
        .qkey = QKEY,
    };
    check(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
          "ibv_modify_qp to INIT");
    attr.qp_state = IBV_QPS_RTR;
    check(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE), "ibv_modify_qp to RTR");
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = psn;
    check(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), "ibv_modify_qp to RTS");
}

/* An address handle for a peer, from its line on TCP. Returns NULL if there is no way to it. */
static struct ibv_ah *create_ah(const struct side *s, const struct endpoint *to) {
    struct ibv_ah_attr attr = {
        .port_num = s->port.num,
        .dlid = (uint16_t)to->lid,
        .sl = (uint8_t)s->opt->sl,
        .is_global = s->port.global,
        .grh.dgid = to->gid,
        .grh.sgid_index = s->port.gid_index,
        .grh.hop_limit = 64,
        .grh.traffic_class = (uint8_t)s->opt->traffic_class,
    };
    errno = EHOSTUNREACH; /* if a driver returns NULL and says nothing, this is the reason */
    return ibv_create_ah(s->pd, &attr);
}

/* 7. SENDs the payload of a slot, which is message number, to p. The completion means that it has
 * been sent; nobody knows if it arrives. One that finds no receive is dropped: UD has no RNR NAK.
 */
static void send_datagram(struct side *s, const struct peer *p, uint64_t slot, uint64_t number) {
    struct ibv_sge sge = {
        .addr = (uintptr_t)slot_of(s, slot) + GRH,
        .length = (uint32_t)p->size,
        .lkey = s->mr->lkey,
    };
    struct ibv_send_wr wr = {
        .wr_id = slot,
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = IBV_WR_SEND_WITH_IMM,
        .send_flags = IBV_SEND_SIGNALED,
        .imm_data = htonl((uint32_t)number),
        .wr.ud = {.ah = p->ah, .remote_qpn = p->remote.qpn, .remote_qkey = QKEY},
    };
    struct ibv_send_wr *bad_wr;
    check(ibv_post_send(s->qp, &wr, &bad_wr), "ibv_post_send of the datagram");
    s->sent++;
    s->in_flight++;
}

/* Is this datagram from p? QPNs of two hosts can be the same, so the address counts, too. The NIC
 * has written it into the slot's first 40 bytes: a GRH (or IPv6 header), or an IPv4 header in the
 * last 20 of them (IBTA specification, A17.4.5). */
static bool is_from(const struct peer *p, const struct ibv_wc *wc, const char *slot) {
    static const uint8_t ipv4_mapped[12] = {[10] = 0xff, [11] = 0xff};
    const struct ibv_grh *grh = (const void *)slot;
    if (p->remote.qpn != wc->src_qp) return false;
    if (!(wc->wc_flags & IBV_WC_GRH)) return p->remote.lid == wc->slid;
    if (memcmp(p->remote.gid.raw, grh->sgid.raw, 16) == 0) return true;
    return memcmp(p->remote.gid.raw, ipv4_mapped, 12) == 0 &&
           memcmp(p->remote.gid.raw + 12, slot + 32, 4) == 0;
}

/* The peer that a datagram came from; NULL for a stranger, or if there is no way back. The way back
 * is in the completion and the slot. The library looks the GID up for it, by system calls: so this
 * is done once for each peer, and not for each datagram. */
static struct peer *sender_of(struct side *s, struct ibv_wc *wc) {
    char *slot = slot_of(s, wc->wr_id);
    struct ibv_ah_attr attr = {0};
    struct peer *p = s->peers;
    while (p < s->peers + s->count && !is_from(p, wc, slot)) p++;
    if (p == s->peers + s->count) return NULL;
    if (p->ah) return p;
    if (p->looked_up) return NULL; /* in vain */
    p->looked_up = true;
    if (ibv_init_ah_from_wc(s->ctx, s->port.num, wc, (struct ibv_grh *)slot, &attr)) return NULL;
    p->ah = ibv_create_ah(s->pd, &attr);
    return p->ah ? p : NULL;
}

/* 8. A datagram has come. Verify every byte. Returns its sender, or NULL if it is not one that is
 * expected: a stranger's, one without an immediate, or a number that is not due. */
static struct peer *take_datagram(struct side *s, struct ibv_wc *wc, bool *pass) {
    const char *payload = slot_of(s, wc->wr_id) + GRH;
    const uint64_t number = ntohl(wc->imm_data);
    struct peer *p = sender_of(s, wc);
    if (!p || !(wc->wc_flags & IBV_WC_WITH_IMM) || number > p->next) {
        s->strange++;
        return NULL;
    }
    s->last_heard = now();
    s->came++;
    const bool whole = expect(wc->byte_len == GRH + p->size, "%u bytes came", wc->byte_len);
    *pass = whole && pattern_ok("datagram", payload, p->size, p->seed + number) && *pass;
    if (number < p->next) {
        s->again++;
    } else {
        p->digest = fnv1a(p->digest, payload, p->size);
        p->next++;
    }
    return p;
}

/* The next completion, if there is one. A failed one ends the program. */
static bool poll_completion(struct side *s, struct ibv_wc *wc) {
    const int n = ibv_poll_cq(s->cq, 1, wc);
    if (n < 0) die(0, "ibv_poll_cq");
    if (n > 0 && wc->status != IBV_WC_SUCCESS) die_wc(wc, "a datagram");
    if (n > 0 && wc->opcode == IBV_WC_SEND) s->in_flight--;
    return n > 0;
}

static void check_patience(const struct side *s) {
    if (now() - s->last_heard > (double)s->opt->timeout)
        die(0, "no completion of a datagram in %ju s", s->opt->timeout);
}

/* "done", then the verdict: also on what the NIC may have written beyond the slots. */
static bool finish(const struct side *s, struct peer *p, bool pass) {
    rendezvous_sync(&p->tcp, "done");
    p->finished = true;
    pass = guards_ok("memory", s->mr->addr, s->mr->length) && pass;
    return rendezvous_verdict(&p->tcp, pass && p->next == p->iters);
}

/* The client SENDs message after message, each until its answer has come. At the end it waits for
 * the answers of what it has sent again. */
static bool run_client(struct side *s) {
    struct peer *server = s->peers;
    struct ibv_wc wc = {0}; /* not every driver fills all of it */
    double send_at = 0;     /* when to send again */
    bool pass = true;
    while (server->next < server->iters || (s->sent > s->came && now() < send_at)) {
        if (poll_completion(s, &wc)) {
            if (wc.opcode == IBV_WC_SEND) continue;
            const uint64_t before = server->next;
            take_datagram(s, &wc, &pass);
            if (server->next > before) /* the next one at once; after the last one, wait */
                send_at = server->next < server->iters ? 0 : now() + SEND_AGAIN;
            post_receive(s, wc.wr_id);
        } else if (s->in_flight == 0 && server->next < server->iters && now() > send_at) {
            pattern_fill(slot_of(s, RECEIVES) + GRH, server->size, server->seed + server->next);
            send_datagram(s, server, RECEIVES, server->next);
            send_at = now() + SEND_AGAIN;
        } else {
            poll(NULL, 0, 1);
            check_patience(s);
        }
    }
    return finish(s, server, pass);
}

/* The server SENDs each datagram back to its sender, from the slot in which it is, until all
 * clients have said done. It looks at one client's TCP connection after the other. */
static bool run_server(struct side *s) {
    size_t unfinished = s->count, turn = 0;
    struct ibv_wc wc = {0};
    bool pass = true;
    while (unfinished > 0) {
        if (poll_completion(s, &wc)) {
            struct peer *p = wc.opcode == IBV_WC_RECV ? take_datagram(s, &wc, &pass) : NULL;
            if (p)
                send_datagram(s, p, wc.wr_id, ntohl(wc.imm_data));
            else
                post_receive(s, wc.wr_id);
        } else {
            struct peer *p = &s->peers[turn % s->count];
            struct pollfd line = {.fd = p->finished ? -1 : p->tcp.fd, .events = POLLIN};
            if (poll(&line, 1, 1) > 0) { /* or sleep 1 ms */
                pass = finish(s, p, pass);
                unfinished--;
            }
            turn++;
            check_patience(s);
        }
    }
    return pass;
}

/* Why this side cannot serve a client. NULL: it can. */
static const char *wrong_with(const struct side *s, const struct endpoint *client) {
    static char reason[100];
    if (s->opt->size > s->port.mtu) {
        snprintf(reason, sizeof(reason), "path MTU %u is below %ju bytes", s->port.mtu,
                 s->opt->size);
        return reason;
    }
    struct ibv_ah *ah = create_ah(s, client); /* is there a way to it? */
    if (!ah) {
        snprintf(reason, sizeof(reason), "ibv_create_ah with your GID: %s", strerror(errno));
        return reason;
    }
    check(ibv_destroy_ah(ah), "ibv_destroy_ah");
    return NULL;
}

/* Exchanges the addresses with p. Returns false if p is a client that is refused, or has gone. */
static bool exchange(const struct side *s, struct peer *p, const struct endpoint *mine) {
    const struct options *opt = s->opt;
    const char *wrong = opt->host ? NULL : wrong_with(s, &p->remote);
    if (wrong) {
        rendezvous_refuse(&p->tcp, wrong);
        return false;
    }
    if (!rendezvous_swap(&p->tcp, mine, &p->remote)) return false;
    p->size = opt->size;
    p->iters = opt->iters;
    p->seed = opt->seed;
    p->digest = FNV_BASIS;
    return true;
}

/* 5. The server does it with one client after the other, until as many have come as the first one
 * has asked for. Who is refused is not counted. The first one's line is there already. */
static void meet(struct side *s, const struct endpoint *mine) {
    struct options *opt = s->opt;
    uint64_t *wanted = opt->work;
    while (true) {
        if (exchange(s, &s->peers[s->count], mine)) s->count++;
        if (opt->host) return;
        if (s->count == 0) *wanted = 0; /* the next one is the first */
        if (s->count > 0 && s->count == *wanted) break;
        rendezvous_open(&s->peers[s->count].tcp, opt, &s->peers[s->count].remote);
    }
    close(opt->listener);
}

int main(int argc, char **argv) {
    /* 1. Options. A host argument makes this the client. */
    uint64_t clients = 1;
    struct options opt = {.sample = "09_ud", .size = 256, .iters = 10, .seed = 1, .listener = -1};
    opt.work = &clients;
    opt.format_work = format_work;
    opt.parse_work = parse_work;
    const struct option_row rows[] = {
        {'s', "size", "BYTES", "bytes in a message", NUMBER(opt.size, 1, MAX_MTU)},
        {'n', "iters", "N", "number of messages", NUMBER(opt.iters, 1, MAX_ITERS)},
        {'S', "seed", "N", "seed of the test data", NUMBER(opt.seed, 0, UINT64_MAX)},
        {0, "clients", "N", "clients of this server", NUMBER(clients, 1, MAX_CLIENTS)},
        {0},
    };
    parse_options(&opt, rows, argc, argv);
    const bool client = opt.host != NULL;
    if (!client) clients = 0; /* the first client will say it */

    /* 2. Start the rendezvous. Device, protection domain, completion queue. */
    struct side s = {.opt = &opt};
    rendezvous_open(&s.peers[0].tcp, &opt, &s.peers[0].remote);
    s.ctx = open_device(&opt, s.peers[0].tcp.fd, &s.port);
    if (client && opt.size > s.port.mtu) /* a datagram is one packet */
        die(0, "path MTU %u is below %ju bytes", s.port.mtu, opt.size);
    errno = 0; /* a driver may return NULL and leave it: then no old error is told */
    s.pd = ibv_alloc_pd(s.ctx);
    if (!s.pd) die(errno, "ibv_alloc_pd");
    s.cq = ibv_create_cq(s.ctx, 2 * RECEIVES, NULL, NULL, 0);
    if (!s.cq) die(errno, "ibv_create_cq");

    /* 3. Memory: the receives' slots, and one to send from. A slot begins with 40 bytes for the
     * sender's GRH: the NIC writes it there, or nothing (ibv_post_recv(3)). Then the payload. */
    const size_t total = (RECEIVES + 1) * SLOT;
    char *memory = guarded_alloc(total);
    s.mr = ibv_reg_mr(s.pd, memory, total, IBV_ACCESS_LOCAL_WRITE);
    if (!s.mr) die(errno, "ibv_reg_mr of %zu bytes", total);

    /* 4. The queue pair: unreliable datagram (UD). */
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_UD,
        .send_cq = s.cq,
        .recv_cq = s.cq,
        .cap = {.max_send_wr = RECEIVES,
                .max_send_sge = 1,
                .max_recv_wr = RECEIVES,
                .max_recv_sge = 1},
    };
    s.qp = ibv_create_qp(s.pd, &init);
    if (!s.qp) die(errno, "ibv_create_qp");

    /* 5. Exchange the addresses. 6. RESET -> INIT -> RTR -> RTS. The client needs an address handle
     * for its server; the server makes one when a client's first datagram comes. */
    const struct endpoint mine = {
        .lid = s.port.lid,
        .qpn = s.qp->qp_num,
        .psn = random_psn(),
        .gid = s.port.gid,
        .mtu = s.port.mtu,
        .max_sge = 1,
    };
    meet(&s, &mine);
    ud_to_rts(&s, mine.psn);
    if (client) {
        s.peers[0].ah = create_ah(&s, &s.peers[0].remote);
        if (!s.peers[0].ah) die(errno, "ibv_create_ah");
    }

    /* 7. The verbs, and 8. verify. */
    for (uint64_t i = 0; i < RECEIVES; i++) post_receive(&s, i);
    for (size_t k = 0; k < s.count; k++) rendezvous_sync(&s.peers[k].tcp, "ready");
    s.last_heard = now();
    const bool pass = client ? run_client(&s) : run_server(&s);
    printf("DATAGRAMS sent=%ju came=%ju again=%ju strange=%ju\n", s.sent, s.came, s.again,
           s.strange);
    uint64_t bytes = 0, digest = 0;
    for (struct peer *p = s.peers; p < s.peers + s.count; p++) {
        bytes += p->next * p->size;
        digest ^= p->digest;
    }

    /* 9. Undo in reverse order. */
    for (size_t k = 0; k < s.count; k++)
        if (s.peers[k].ah) check(ibv_destroy_ah(s.peers[k].ah), "ibv_destroy_ah");
    check(ibv_destroy_qp(s.qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(s.mr), "ibv_dereg_mr");
    check(ibv_destroy_cq(s.cq), "ibv_destroy_cq");
    check(ibv_dealloc_pd(s.pd), "ibv_dealloc_pd");
    check(ibv_close_device(s.ctx), "ibv_close_device");
    guarded_free(memory);
    return report_result(pass, bytes, digest);
}
