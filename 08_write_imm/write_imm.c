/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 08_write_imm - the client WRITEs messages with immediate data: it tells the server that a
 * message is there, and which one. The server sleeps until its NIC wakes it.
 *
 *   gcc -I../common -o write_imm write_imm.c ../common/[a-z]*.c -libverbs
 *   ./write_imm               in one terminal: the server
 *   ./write_imm 127.0.0.1     in another: the client; the server's address
 *
 * The server prints, after the lines of the device (the client: similar lines):
 *   woken 2 times
 *   8 messages sent, 8 arrived, 0 missed
 *   RESULT sample=08_write_imm role=server status=PASS bytes=32768 digest=...
 *
 * Rendezvous: work= ends with transport (rc or uc). There are iters bursts of 4 messages. Message
 * i, from 0, is the pattern (data.h) of seed + i, size bytes. Its place in the server's memory is
 * number i modulo 4; its immediate data is i in network byte order. The digest covers the messages
 * that arrived, in order. Barriers: ready before each burst (memory and receives are prepared); on
 * UC, sent; arrived=N (bit k of N: the burst's message k arrived; from the client: was sent); done.
 */
#include "data.h"
#include "device.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"

#include <arpa/inet.h>
#include <poll.h>

enum { BURST = 4, ALL = (1 << BURST) - 1, LATE = 100 /* ms */ };

static void format_work(const struct options *opt, char *out, size_t room) {
    snprintf(out, room, ",transport=%s", *(const bool *)opt->work ? "uc" : "rc");
}

static const char *parse_work(struct options *opt, const char *text) {
    bool *uc = opt->work;
    *uc = strcmp(text, ",transport=uc") == 0;
    if (!*uc && strcmp(text, ",transport=rc") != 0) return "transport is neither rc nor uc";
    return opt->size <= MAX_SIZE / BURST ? NULL : "size is above 16 MiB";
}

int main(int argc, char **argv) {
    /* 1. Options. A host argument makes this the client. */
    const char *transport = "rc";
    bool uc = false;
    struct options opt = {.sample = "08_write_imm", .size = 4096, .iters = 2, .seed = 1};
    opt.work = &uc, opt.format_work = format_work, opt.parse_work = parse_work;
    const struct option_row rows[] = {
        {'s', "size", "BYTES", "bytes in a message", NUMBER(opt.size, 1, MAX_SIZE / BURST)},
        {'n', "iters", "N", "bursts of 4 messages", NUMBER(opt.iters, 1, MAX_ITERS)},
        {'S', "seed", "N", "seed of the test data", NUMBER(opt.seed, 0, UINT64_MAX)},
        {0, "transport", "NAME", "rc (default) or uc", .text = &transport},
        {0},
    };
    parse_options(&opt, rows, argc, argv);
    const bool client = opt.host != NULL;
    uc = strcmp(transport, "uc") == 0;
    if (!uc && strcmp(transport, "rc") != 0) stop(EXIT_USAGE, 0, "transport is rc or uc");

    /* 2. Start the rendezvous. Device, protection domain. The completion channel is a file
     * descriptor that becomes readable when the completion queue has an event. */
    struct rendezvous rv;
    struct endpoint peer;
    struct port port;
    rendezvous_open(&rv, &opt, &peer);
    struct ibv_context *ctx = open_device(&opt, rv.fd, &port);
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    if (!pd) die(errno, "ibv_alloc_pd");
    struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
    if (!channel) die(errno, "ibv_create_comp_channel");
    struct ibv_cq *cq = ibv_create_cq(ctx, BURST, NULL, channel, 0);
    if (!cq) die(errno, "ibv_create_cq");

    /* 3. Memory for the messages of a burst, with the rights of 01. */
    const uint32_t size = (uint32_t)opt.size, room = size * BURST;
    char *buf = guarded_alloc(room);
    const unsigned access = client ? 0 : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *mr = ibv_reg_mr(pd, buf, room, access);
    if (!mr) die(errno, "ibv_reg_mr of %u bytes", room);

    /* 4. The queue pair. UC is an unreliable connection: no packet is acknowledged or repeated. */
    struct ibv_qp_init_attr init = {
        .qp_type = uc ? IBV_QPT_UC : IBV_QPT_RC,
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_send_sge = 1, .max_recv_wr = BURST},
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp && uc && errno == EOPNOTSUPP)
        stop(EXIT_NO_DEVICE, errno, "no UC queue pairs on %s", port.device);
    if (!qp) die(errno, "ibv_create_qp");

    /* 5. Exchange, as in 01. */
    struct endpoint mine = {.lid = port.lid, .gid = port.gid, .mtu = port.mtu, .max_sge = 1};
    mine.qpn = qp->qp_num, mine.psn = random_psn();
    if (!client) mine.addr = (uintptr_t)buf, mine.rkey = mr->rkey, mine.len = room;
    rendezvous_swap(&rv, &mine, &peer);

    /* 6. RESET -> INIT -> RTR -> RTS. For UC, what is only for acknowledgements is left out. */
    qp_to_init(qp, &port, client ? 0 : IBV_ACCESS_REMOTE_WRITE);
    qp_to_rtr(qp, &port, &peer, 0);
    qp_to_rts(qp, mine.psn, 0, ACK_TIMEOUT);

    uint64_t posted = 0, used = 0, wakes = 0, arrived = 0, missed = 0, digest = FNV_BASIS;
    bool pass = true;
    for (uint64_t first = 0; first < opt.iters * BURST; first += BURST) {
        for (unsigned k = 0; k < BURST; k++)
            (client ? pattern_fill : poison_fill)(buf + k * size, size, opt.seed + first + k);
        /* 7. The verbs. A WRITE with immediate data uses up a receive, as a SEND does, and makes
         * a completion at the receiver. The WRITE still says where its data goes. */
        struct ibv_wc wc;
        for (; !client && posted < used + BURST; posted++) {
            struct ibv_recv_wr recv_wr = {.wr_id = posted, .num_sge = 0}, *bad_recv_wr;
            check(ibv_post_recv(qp, &recv_wr, &bad_recv_wr), "ibv_post_recv");
        }
        rendezvous_sync(&rv, "ready");
        for (unsigned k = 0; client && k < BURST; k++) {
            char *slot = buf + k * size;
            struct ibv_sge sge = {.addr = (uintptr_t)slot, .length = size, .lkey = mr->lkey};
            struct ibv_send_wr wr = {
                .wr_id = first + k,
                .sg_list = &sge,
                .num_sge = 1,
                .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                .imm_data = htonl((uint32_t)(first + k)), /* its 4 bytes go out as they are */
                .send_flags = IBV_SEND_SIGNALED | (k + 1 == BURST ? IBV_SEND_SOLICITED : 0),
                .wr.rdma = {.remote_addr = peer.addr + k * size, .rkey = peer.rkey},
            };
            struct ibv_send_wr *bad_wr;
            check(ibv_post_send(qp, &wr, &bad_wr), "ibv_post_send of the WRITE");
            wait_completion(cq, "the WRITE", opt.timeout, &wc); /* on UC: it has been sent */
            if (wc.wr_id != first + k) die(0, "another request's completion");
        }
        /* On UC, the last one may be lost. TCP says that all are sent; LATE: some still come. */
        if (uc) rendezvous_sync(&rv, "sent"), poll(NULL, 0, LATE);
        struct pollfd event = {.fd = channel->fd, .events = POLLIN};
        uint64_t came = client ? ALL : 0;
        while (came != ALL) {
            int n = ibv_poll_cq(cq, 1, &wc);
            if (n == 0 && uc) break; /* the others are lost */
            /* Sleep until there is an event. Only a completion that comes after this call makes
             * one (here: if it is solicited, or an error; ibv_req_notify_cq(3)). For those that
             * came just before it, poll once more. */
            if (n == 0) check(ibv_req_notify_cq(cq, 1 /* solicited_only */), "ibv_req_notify_cq");
            if (n == 0) n = ibv_poll_cq(cq, 1, &wc);
            if (n < 0) die(0, "ibv_poll_cq");
            if (n == 0) {
                void *context;
                if (poll(&event, 1, (int)opt.timeout * 1000) < 1)
                    die(0, "no completion of message %ju in %ju s", first, opt.timeout);
                check(ibv_get_cq_event(channel, &cq, &context), "ibv_get_cq_event");
                ibv_ack_cq_events(cq, 1); /* ibv_destroy_cq waits until all are acknowledged */
                wakes++;
                continue;
            }
            if (wc.status != IBV_WC_SUCCESS) die_wc(&wc, "the receive");
            if (wc.wr_id != used++) die(0, "another receive's completion");
            if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM) die(0, "the peer sent another message");
            const uint64_t number = ntohl(wc.imm_data), k = number - first;
            if (k >= BURST || wc.byte_len != size || (!uc && came + 1 != 1u << k))
                die(0, "an immediate that nobody sent: %ju, %u bytes", number, wc.byte_len);
            came |= 1u << k;
        }
        /* 8. Verify every byte. Of a missed message, some packets may be here. Behind them is
         * poison, which is the pattern if it is inverted. */
        char step[32];
        sprintf(step, "arrived=%ju", came);
        rendezvous_sync(&rv, step);
        if (client && !parse_number(strchr(rv.line, '=') + 1, 0, ALL, &came))
            die(0, "the peer sent '%s'", rv.line);
        for (unsigned k = 0; k < BURST; k++) {
            const uint64_t seed = opt.seed + first + k;
            char *slot = buf + k * size;
            const bool here = came >> k & 1;
            size_t n = here || client ? size : pattern_check(slot, size, seed);
            for (; n < size; n++) slot[n] = (char)~slot[n];
            pass = pattern_right("message", slot, size, seed) && pass;
            if (here) arrived++, digest = fnv1a(digest, slot, size);
            if (!here) missed++, printf("message %ju missed\n", first + k);
        }
    }
    rendezvous_sync(&rv, "done");
    if (!client) printf("woken %ju times\n", wakes);
    printf("%ju messages sent, %ju arrived, %ju missed\n", arrived + missed, arrived, missed);
    pass = expect(missed == 0 || (uc && arrived), "messages are missing") && pass;
    pass = expect(wakes <= opt.iters, "woken by a message that is not solicited") && pass;
    pass = guards_right("memory", buf, room) && pass;
    pass = rendezvous_verdict(&rv, pass);

    /* 9. Undo in reverse order. */
    check(ibv_destroy_qp(qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(mr), "ibv_dereg_mr");
    check(ibv_destroy_cq(cq), "ibv_destroy_cq");
    check(ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(ctx), "ibv_close_device");
    guarded_free(buf);
    return report_result(pass, arrived * size, digest);
}
