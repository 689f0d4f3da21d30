/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 09_ud - datagrams. The client SENDs each message as one packet; the server SENDs it back to whom
 * the completion names. There is no connection: one queue pair of the server serves all clients.
 * Nobody is told of a datagram that got lost, so the client sends it again until an answer comes.
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
 * i, from 0 to iters - 1, is the pattern (data.h) of seed + i, size bytes, with the immediate i.
 * The digest covers each message once, in order; the server's is the XOR of its clients'. No side
 * exposes memory. Barriers: ready (receives are posted, all clients have come), done.
 */
#include "data.h"
#include "device.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"

#include <arpa/inet.h>
#include <poll.h>
#include <unistd.h>

enum { MAX_CLIENTS = 16, MAX_MTU = 4096, RECEIVES = 64, GRH = sizeof(struct ibv_grh) /* 40 */ };
enum { QKEY = 12345 };  /* any number below 0x80000000 (those above are privileged: IBTA 3.5.3) */
#define SEND_AGAIN 0.25 /* seconds without an answer */

struct peer { /* a client of the server, or the client's server */
    struct rendezvous rv;
    struct endpoint at;
    struct ibv_ah *ah;
    uint64_t size, iters, seed, digest, next; /* next: the message that has not yet come */
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

static void post_receive(struct ibv_qp *qp, struct ibv_mr *mr, uint64_t slot, size_t room) {
    char *at = (char *)mr->addr + slot * room;
    struct ibv_sge sge = {.addr = (uintptr_t)at, .length = (uint32_t)room, .lkey = mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad_wr;
    poison_fill(at, room, 0);
    check(ibv_post_recv(qp, &wr, &bad_wr), "ibv_post_recv");
}

int main(int argc, char **argv) {
    /* 1. Options. A host argument makes this the client. */
    uint64_t clients = 1;
    struct options opt = {.sample = "09_ud", .size = 256, .iters = 10, .seed = 1, .listener = -1};
    opt.work = &clients, opt.format_work = format_work, opt.parse_work = parse_work;
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
    struct peer peers[MAX_CLIENTS] = {0}, *p = peers;
    struct port port;
    rendezvous_open(&p->rv, &opt, &p->at);
    struct ibv_context *ctx = open_device(&opt, p->rv.fd, &port);
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    if (!pd) die(errno, "ibv_alloc_pd");
    struct ibv_cq *cq = ibv_create_cq(ctx, 2 * RECEIVES, NULL, NULL, 0);
    if (!cq) die(errno, "ibv_create_cq");

    /* 3. Memory: the receives' slots, and one to send from. A slot begins with 40 bytes for the
     * sender's GRH: the NIC writes it there, or nothing (ibv_post_recv(3)). Then the payload. A
     * datagram is one packet, so a slot of 40 + MTU bytes can hold any, a stranger's too. */
    const size_t room = GRH + port.mtu, total = (RECEIVES + 1) * room;
    char *memory = guarded_alloc(total);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, total, IBV_ACCESS_LOCAL_WRITE);
    if (!mr) die(errno, "ibv_reg_mr of %zu bytes", total);

    /* 4. The queue pair: unreliable datagram (UD). */
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_UD, .send_cq = cq, .recv_cq = cq};
    init.cap.max_send_wr = init.cap.max_recv_wr = RECEIVES;
    init.cap.max_send_sge = init.cap.max_recv_sge = 1;
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp) die(errno, "ibv_create_qp");

    /* 5. Exchange, on the server with one client after the other. */
    struct endpoint mine = {.lid = port.lid, .qpn = qp->qp_num, .gid = port.gid, .max_sge = 1};
    mine.psn = random_psn(), mine.mtu = port.mtu;
    for (;; p++, rendezvous_open(&p->rv, &opt, &p->at)) {
        if (opt.size > port.mtu) die(0, "path MTU %u is below %ju bytes", port.mtu, opt.size);
        rendezvous_swap(&p->rv, &mine, &p->at);
        p->size = opt.size, p->iters = opt.iters, p->seed = opt.seed, p->digest = FNV_BASIS;
        if (client || p + 1 == peers + clients) break;
    }
    if (!client) close(opt.listener);
    struct peer *const end = p + 1, *open = peers; /* open: the first who has not said "done" */

    /* 6. RESET -> INIT -> RTR -> RTS. No peer here: each SEND says to whom it goes, by an address
     * handle (AH), a QPN and a Q_Key. A NIC drops a datagram with another Q_Key than its QP's. */
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = port.num, .qkey = QKEY};
    attr.pkey_index = (uint16_t)opt.pkey_idx;
    check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
          "ibv_modify_qp to INIT");
    attr.qp_state = IBV_QPS_RTR;
    check(ibv_modify_qp(qp, &attr, IBV_QP_STATE), "ibv_modify_qp to RTR");
    attr.qp_state = IBV_QPS_RTS, attr.sq_psn = mine.psn;
    check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), "ibv_modify_qp to RTS");
    struct ibv_ah_attr way = {.port_num = port.num, .sl = (uint8_t)opt.sl, .grh.hop_limit = 64};
    way.dlid = (uint16_t)peers->at.lid, way.grh.traffic_class = (uint8_t)opt.traffic_class;
    way.is_global = port.global, way.grh.dgid = peers->at.gid, way.grh.sgid_index = port.gid_index;
    if (client && !(peers->ah = ibv_create_ah(pd, &way))) die(errno, "ibv_create_ah");
    for (uint64_t i = 0; i < RECEIVES; i++) post_receive(qp, mr, i, room);
    for (p = peers; p < end; p++) rendezvous_sync(&p->rv, "ready");

    /* 7. The verbs. A datagram that finds no receive is dropped: UD has no RNR NAK. */
    struct ibv_sge sge = {.lkey = mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad_wr;
    wr.opcode = IBV_WR_SEND_WITH_IMM, wr.wr.ud.remote_qkey = QKEY;
    wr.send_flags = IBV_SEND_SIGNALED; /* completed means sent; nobody knows if it arrives */
    uint64_t sent = 0, going = 0, came = 0, again = 0, strange = 0, bytes = 0, digest = 0;
    double heard = now(), send_at = 0, limit = (double)opt.timeout;
    bool pass = true, send;
    while (client ? open->next < opt.iters || (sent > came && now() < send_at) : open < end) {
        struct ibv_wc wc = {.wr_id = RECEIVES}; /* the client sends from the last slot */
        const int n = ibv_poll_cq(cq, 1, &wc);
        if (n < 0) die(0, "ibv_poll_cq");
        if (n > 0 && wc.status != IBV_WC_SUCCESS) die_wc(&wc, "a datagram");
        char *slot = memory + wc.wr_id * room, *payload = slot + GRH;
        uint64_t number = ntohl(wc.imm_data);
        p = peers, going -= n > 0 && wc.opcode == IBV_WC_SEND;
        if ((send = client && n == 0 && going == 0 && open->next < opt.iters && now() > send_at)) {
            number = p->next, send_at = now() + SEND_AGAIN;
            pattern_fill(payload, opt.size, opt.seed + number);
        } else if (n == 0) {
            struct pollfd tcp = {.fd = client ? -1 : open->rv.fd, .events = POLLIN};
            if (poll(&tcp, 1, 1) > 0) rendezvous_sync(&open++->rv, "done"); /* or sleep 1 ms */
            if (now() - heard > limit) die(0, "no completion of a datagram in %ju s", opt.timeout);
        } else if (wc.opcode == IBV_WC_RECV) {
            /* 8. From whom? QPNs of two hosts can be the same. Then verify every byte. */
            check(ibv_init_ah_from_wc(ctx, port.num, &wc, (void *)slot, &way),
                  "ibv_init_ah_from_wc");
            while (p < end && (p->at.qpn != wc.src_qp || memcmp(&p->at.gid, &way.grh.dgid, 16) ||
                               (p->at.lid != way.dlid && !way.is_global)))
                p++;
            if (p == end || !(wc.wc_flags & IBV_WC_WITH_IMM) || number > p->next) {
                strange++;
            } else {
                heard = now(), came++, again += number < p->next, send = !client;
                pass = expect(wc.byte_len == GRH + p->size, "%u bytes came", wc.byte_len) &&
                       pattern_right("datagram", payload, p->size, p->seed + number) && pass;
                if (number == p->next) p->digest = fnv1a(p->digest, payload, p->size);
                if (number == p->next) send_at = ++p->next < p->iters ? 0 : now() + SEND_AGAIN;
                if (!p->ah && !(p->ah = ibv_create_ah(pd, &way))) die(errno, "ibv_create_ah");
            }
        }
        if (send) {
            sge.addr = (uintptr_t)payload, sge.length = (uint32_t)p->size;
            wr.wr_id = wc.wr_id, wr.imm_data = htonl((uint32_t)number);
            wr.wr.ud.ah = p->ah, wr.wr.ud.remote_qpn = p->at.qpn;
            check(ibv_post_send(qp, &wr, &bad_wr), "ibv_post_send of the datagram");
            sent++, going++;
        } else if (n > 0 && wc.wr_id < RECEIVES) {
            post_receive(qp, mr, wc.wr_id, room);
        }
    }
    if (client) rendezvous_sync(&peers->rv, "done");
    pass = guards_right("memory", memory, total) && pass;
    printf("DATAGRAMS sent=%ju came=%ju again=%ju strange=%ju\n", sent, came, again, strange);
    for (p = peers; p < end; p++) {
        pass = rendezvous_verdict(&p->rv, pass && p->next == p->iters);
        bytes += p->next * p->size, digest ^= p->digest;
    }

    /* 9. Undo in reverse order. */
    for (p = peers; p < end; p++)
        if (p->ah) check(ibv_destroy_ah(p->ah), "ibv_destroy_ah");
    check(ibv_destroy_qp(qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(mr), "ibv_dereg_mr");
    check(ibv_destroy_cq(cq), "ibv_destroy_cq");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(ctx), "ibv_close_device");
    guarded_free(memory);
    return report_result(pass, bytes, digest);
}
