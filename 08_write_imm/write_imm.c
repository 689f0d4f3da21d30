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
 * i, from 0, is the pattern (pattern.h) of seed + i, size bytes. Its place in the server's memory
 * is number i modulo 4; its immediate data is i in network byte order. The digest covers the
 * messages that arrived, in order. Barriers: ready before each burst (memory and receives are
 * prepared); on UC, sent; arrived=N (bit k of N: the burst's message k arrived; from the client:
 * was sent); done.
 */
#include "device.h"
#include "pattern.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"

#include <arpa/inet.h>
#include <poll.h>

/* A burst's messages have a bit each: bit k is that of message first + k. */
enum {
    BURST = 4,
    ALL = (1 << BURST) - 1,
    LATE_MS = 100 /* on UC: so long the server waits for messages that are still on their way */
};

/* One side of the transfer: what the functions below share. */
struct side {
    struct ibv_qp *qp; /* with one completion queue for both directions */
    struct ibv_comp_channel *channel;
    char *buf;              /* room for a burst */
    uint32_t size;          /* bytes in a message */
    uint32_t lkey;          /* client: of buf */
    uint32_t rkey;          /* client: of the server's memory, */
    uint64_t remote_addr;   /* and where that begins */
    uint64_t seed, timeout; /* of the first message; seconds */
    bool uc;                /* an unreliable connection */
    uint64_t posted, used;  /* server: receives posted and used, since the start */
    uint64_t wakes;         /* server: how often an event has woken it */
    uint64_t arrived;       /* messages in time, since the start, */
    uint64_t missed, late;  /* and not in time; server: those of them that came later */
};

static char *slot(const struct side *s, uint64_t number) {
    return s->buf + number % BURST * s->size;
}

static void format_work(const struct options *opt, char *out, size_t room) {
    snprintf(out, room, ",transport=%s", *(const bool *)opt->work ? "uc" : "rc");
}

static const char *parse_work(struct options *opt, const char *text) {
    bool *uc = opt->work;
    *uc = strcmp(text, ",transport=uc") == 0;
    if (!*uc && strcmp(text, ",transport=rc") != 0) return "transport is neither rc nor uc";
    return opt->size <= MAX_SIZE / BURST ? NULL : "size is above 16 MiB";
}

/* Client: 7. the verb. A WRITE with immediate data uses up a receive, as a SEND does, and makes a
 * completion at the receiver. The WRITE still says where its data goes. */
static void send_burst(const struct side *s, uint64_t first) {
    for (uint64_t i = first; i < first + BURST; i++) {
        const bool last = i + 1 == first + BURST;
        struct ibv_sge sge = {
            .addr = (uintptr_t)slot(s, i),
            .length = s->size,
            .lkey = s->lkey,
        };
        struct ibv_send_wr wr = {
            .wr_id = i,
            .sg_list = &sge,
            .num_sge = 1,
            .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
            .imm_data = htonl((uint32_t)i), /* its 4 bytes go out as they are */
            .send_flags = IBV_SEND_SIGNALED | (last ? IBV_SEND_SOLICITED : 0),
            .wr.rdma = {.remote_addr = s->remote_addr + i % BURST * s->size, .rkey = s->rkey},
        };
        struct ibv_send_wr *bad_wr;
        struct ibv_wc wc;
        check(ibv_post_send(s->qp, &wr, &bad_wr), "ibv_post_send of the WRITE");
        wait_completion(s->qp->send_cq, "the WRITE", s->timeout, &wc); /* on UC: it has been sent */
        if (wc.wr_id != i) die(0, "another request's completion");
    }
}

/* Server: posts receives until a burst has one for each message. They need no memory. */
static void post_receives(struct side *s) {
    while (s->posted < s->used + BURST) {
        struct ibv_recv_wr wr = {.wr_id = s->posted, .num_sge = 0};
        struct ibv_recv_wr *bad_wr;
        check(ibv_post_recv(s->qp, &wr, &bad_wr), "ibv_post_recv");
        s->posted++;
    }
}

/* Server: sleeps until the completion channel has an event. */
static void sleep_until_event(struct side *s, uint64_t first) {
    struct pollfd channel = {.fd = s->channel->fd, .events = POLLIN};
    struct ibv_cq *cq;
    void *context;
    if (poll(&channel, 1, (int)s->timeout * 1000) < 1)
        die(0, "no completion of message %ju in %ju s", first, s->timeout);
    check(ibv_get_cq_event(s->channel, &cq, &context), "ibv_get_cq_event");
    ibv_ack_cq_events(cq, 1); /* ibv_destroy_cq waits until all are acknowledged */
    s->wakes++;
}

/* Server: the next message's completion. Returns false if there is none: on UC the messages that
 * have not come by now are lost. On RC it sleeps until one comes. */
static bool next_message(struct side *s, uint64_t first, struct ibv_wc *wc) {
    int n;
    while ((n = ibv_poll_cq(s->qp->recv_cq, 1, wc)) == 0) {
        if (s->uc) return false;
        /* Only a completion that comes after this call makes an event (here: if it is solicited,
         * or an error; ibv_req_notify_cq(3)). For those that came just before it, poll once more.
         */
        check(ibv_req_notify_cq(s->qp->recv_cq, 1 /* solicited_only */), "ibv_req_notify_cq");
        n = ibv_poll_cq(s->qp->recv_cq, 1, wc);
        if (n != 0) break;
        sleep_until_event(s, first);
    }
    if (n < 0) die(0, "ibv_poll_cq");
    if (wc->status != IBV_WC_SUCCESS) die_wc(wc, "the receive");
    if (wc->wr_id != s->used) die(0, "another receive's completion");
    s->used++;
    if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM) die(0, "the peer sent another message");
    return true;
}

/* Server: is it a message of an earlier burst? On UC, one of those that were counted as missed. */
static bool too_late(struct side *s, uint64_t first, const struct ibv_wc *wc) {
    const uint64_t number = ntohl(wc->imm_data);
    if (number >= first || s->late == s->missed) return false;
    printf("message %ju came too late\n", number);
    s->late++;
    return true;
}

static void die_of_immediate(const struct ibv_wc *wc) {
    die(0, "an immediate that nobody sent: %u, %u bytes", ntohl(wc->imm_data), wc->byte_len);
}

/* Server: before a burst, its memory and its receives. A message that came too late for the burst
 * before has used up a receive. */
static void prepare_burst(struct side *s, uint64_t first) {
    struct ibv_wc wc;
    while (s->uc && next_message(s, first, &wc))
        if (!too_late(s, first, &wc)) die_of_immediate(&wc);
    for (uint64_t i = first; i < first + BURST; i++) poison_fill(slot(s, i), s->size, s->seed + i);
    post_receives(s);
}

/* Server: waits for the messages of a burst. Returns the bits of those that have come. */
static uint64_t receive_burst(struct side *s, uint64_t first) {
    uint64_t came = 0;
    uint64_t overwritten = 0; /* slots in which an earlier burst's message is the last one */
    struct ibv_wc wc;
    while (came != ALL && next_message(s, first, &wc)) {
        const uint64_t number = ntohl(wc.imm_data);
        const uint64_t bit = 1u << number % BURST;
        if (too_late(s, first, &wc)) {
            came &= ~bit;
            overwritten |= bit;
            continue;
        }
        if (number < first || number >= first + BURST || wc.byte_len != s->size)
            die_of_immediate(&wc);
        if (!s->uc && came + 1 != bit) die_of_immediate(&wc); /* RC keeps the order */
        came |= bit;
        overwritten &= ~bit;
    }
    for (uint64_t i = first; i < first + BURST; i++)
        if (overwritten >> i % BURST & 1) poison_fill(slot(s, i), s->size, s->seed + i);
    return came;
}

/* Both sides: 8. verify every byte. Of a missed message, some packets may be here. Behind them is
 * poison, which is the pattern if it is inverted. */
static bool verify_burst(struct side *s, uint64_t first, uint64_t came, bool client,
                         uint64_t *digest) {
    bool pass = true;
    for (uint64_t i = first; i < first + BURST; i++) {
        char *message = slot(s, i);
        const bool here = came >> i % BURST & 1;
        size_t n = s->size;
        if (!here && !client) n = pattern_mismatch(message, s->size, s->seed + i);
        for (; n < s->size; n++) message[n] = (char)~message[n];
        pass = pattern_ok("message", message, s->size, s->seed + i) && pass;
        if (here) {
            s->arrived++;
            *digest = fnv1a(*digest, message, s->size);
        } else {
            s->missed++;
            printf("message %ju missed\n", i);
        }
    }
    return pass;
}

/* On UC, the last message may be lost: nothing wakes the server. TCP says that all have been sent;
 * some may still come. */
static void wait_for_late_ones(const struct side *s, struct rendezvous *tcp) {
    if (!s->uc) return;
    rendezvous_sync(tcp, "sent");
    poll(NULL, 0, LATE_MS);
}

/* One burst of the client. Returns whether its memory is as it was. */
static bool client_burst(struct side *s, struct rendezvous *tcp, uint64_t first, uint64_t *digest) {
    uint64_t came;
    for (uint64_t i = first; i < first + BURST; i++) pattern_fill(slot(s, i), s->size, s->seed + i);
    rendezvous_sync(tcp, "ready");
    send_burst(s, first);
    wait_for_late_ones(s, tcp);
    rendezvous_sync(tcp, "arrived=15"); /* the client has sent ALL; the server says what came */
    if (!parse_number(strchr(tcp->line, '=') + 1, 0, ALL, &came))
        die(0, "the peer sent '%s'", tcp->line);
    return verify_burst(s, first, came, true, digest);
}

/* One burst of the server. Returns whether all that came is right. It verifies before it says what
 * came. (On UC, a message of an earlier burst that comes just during this is taken for a wrong one:
 * who uses memory again without acknowledgements can't rule that out.) */
static bool server_burst(struct side *s, struct rendezvous *tcp, uint64_t first, uint64_t *digest) {
    char step[32];
    prepare_burst(s, first);
    rendezvous_sync(tcp, "ready");
    wait_for_late_ones(s, tcp);
    const uint64_t came = receive_burst(s, first);
    const bool pass = verify_burst(s, first, came, false, digest);
    snprintf(step, sizeof(step), "arrived=%ju", came);
    rendezvous_sync(tcp, step);
    return pass;
}

int main(int argc, char **argv) {
    /* 1. Options. A host argument makes this the client. */
    const char *transport = "rc";
    bool uc = false;
    struct options opt = {.sample = "08_write_imm", .size = 4096, .iters = 2, .seed = 1};
    opt.work = &uc;
    opt.format_work = format_work;
    opt.parse_work = parse_work;
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
    struct rendezvous tcp;
    struct endpoint peer;
    struct port port;
    rendezvous_open(&tcp, &opt, &peer);
    struct ibv_context *ctx = open_device(&opt, tcp.fd, &port);
    errno = 0; /* a driver may return NULL and leave it: then no old error is told */
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    if (!pd) die(errno, "ibv_alloc_pd");
    struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
    if (!channel) die(errno, "ibv_create_comp_channel");
    struct ibv_cq *cq = ibv_create_cq(ctx, BURST, NULL, channel, 0);
    if (!cq) die(errno, "ibv_create_cq");

    /* 3. Memory for the messages of a burst, with the rights of 01. */
    struct side side = {.channel = channel, .size = (uint32_t)opt.size, .uc = uc};
    side.seed = opt.seed;
    side.timeout = opt.timeout;
    const uint32_t room = side.size * BURST;
    side.buf = guarded_alloc(room);
    const unsigned access = client ? 0 : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *mr = ibv_reg_mr(pd, side.buf, room, access);
    if (!mr) die(errno, "ibv_reg_mr of %u bytes", room);
    side.lkey = mr->lkey;

    /* 4. The queue pair. UC is an unreliable connection: no packet is acknowledged or repeated. A
     * device may have none. */
    struct ibv_qp_init_attr init = {
        .qp_type = uc ? IBV_QPT_UC : IBV_QPT_RC,
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_send_sge = 1, .max_recv_wr = BURST, .max_recv_sge = 1},
    };
    errno = 0; /* a driver may return NULL and set nothing */
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp && uc && errno != ENOMEM)
        stop(EXIT_NO_DEVICE, errno, "no UC queue pairs on %s", port.device);
    if (!qp) die(errno, "ibv_create_qp");
    side.qp = qp;

    /* 5. Exchange, as in 01. */
    const struct endpoint mine = {
        .lid = port.lid,
        .qpn = qp->qp_num,
        .psn = random_psn(),
        .gid = port.gid,
        .mtu = port.mtu,
        .addr = client ? 0 : (uintptr_t)side.buf,
        .rkey = client ? 0 : mr->rkey,
        .len = client ? 0 : room,
        .max_sge = 1,
    };
    rendezvous_swap(&tcp, &mine, &peer);
    side.remote_addr = peer.addr;
    side.rkey = peer.rkey;

    /* 6. RESET -> INIT -> RTR -> RTS. For UC, what is only for acknowledgements is left out. */
    qp_to_init(qp, &port, client ? 0 : IBV_ACCESS_REMOTE_WRITE);
    qp_to_rtr(qp, &port, &peer, 0);
    qp_to_rts(qp, mine.psn, 0, ACK_TIMEOUT);

    /* 7. The verb, in send_burst and receive_burst; 8. verify_burst. */
    uint64_t digest = FNV_BASIS;
    bool pass = true;
    for (uint64_t first = 0; first < opt.iters * BURST; first += BURST) {
        if (client)
            pass = client_burst(&side, &tcp, first, &digest) && pass;
        else
            pass = server_burst(&side, &tcp, first, &digest) && pass;
    }
    rendezvous_sync(&tcp, "done");
    if (!client) printf("woken %ju times\n", side.wakes);
    printf("%ju messages sent, %ju arrived, %ju missed\n", side.arrived + side.missed, side.arrived,
           side.missed);
    pass = expect(side.missed == 0 || (uc && side.arrived), "messages are missing") && pass;
    pass = guards_ok("memory", side.buf, room) && pass;
    pass = rendezvous_verdict(&tcp, pass);

    /* 9. Undo in reverse order. */
    check(ibv_destroy_qp(qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(mr), "ibv_dereg_mr");
    check(ibv_destroy_cq(cq), "ibv_destroy_cq");
    check(ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(ctx), "ibv_close_device");
    guarded_free(side.buf);
    return report_result(pass, side.arrived * side.size, digest);
}
