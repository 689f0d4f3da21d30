/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 11_rdma_cm - the client writes a text into the server's memory, as in 01, and READs it back. The
 * connection is made the usual way: by the connection manager (librdmacm) instead of our own TCP
 * connection. It chooses the device, and changes the queue pairs' states.
 *
 *   gcc -I../common -o rdma_cm rdma_cm.c ../common/[a-z]*.c -lrdmacm -libverbs
 *   ./rdma_cm              in one terminal: the server
 *   ./rdma_cm 10.0.0.1     in another: the client; the server's address, on an RDMA interface
 *
 * The client prints (the server: similar lines):
 *   device rxe0, port 1, QPN 0x...
 *   wrote "hello verbs" to the server's address 0x..., rkey 0x..., and read it back
 *   RESULT sample=11_rdma_cm role=client status=PASS bytes=11 digest=a59563b74b836add
 *
 * Rendezvous: the connection manager's messages carry private data: the sample's name, then three
 * numbers of 64 bits, highest byte first. The client's: length and FNV-1a digest of the text, and
 * timeout in seconds. The server's: address and rkey of its memory, 0. Instead of "done" and the
 * verdict each side SENDs one byte, P or F: the client after WRITE and READ, then the server.
 */
#define _DEFAULT_SOURCE
#include "pattern.h"
#include "qp.h"
#include "report.h"

#include <endian.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_verbs.h>
#include <strings.h>
#include <unistd.h>

struct hello { /* at most 56 bytes fit into a request (rdma_connect(3)) */
    char sample[16];
    uint64_t number[3];
};

/* Waits for the next event on the channel. */
static struct rdma_cm_event *next_event(struct rdma_event_channel *channel, const char *wanted,
                                        const struct options *opt) {
    struct pollfd p = {.fd = channel->fd, .events = POLLIN};
    const int seconds = opt->timeout ? (int)opt->timeout : 600;
    struct rdma_cm_event *event;
    if (poll(&p, 1, seconds * 1000) != 1)
        die(0, "the peer is silent: no %s in %d s", wanted, seconds);
    check(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
    if (opt->verbose) printf("<- %s\n", rdma_event_str(event->event));
    return event;
}

/* Waits for the next event, which must be the wanted one. Stores the private data, if there is
 * enough, in *theirs. Returns the event's id (rdma_get_cm_event(3)). */
static struct rdma_cm_id *await(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted,
                                const struct options *opt, struct hello *theirs) {
    const char *name = rdma_event_str(wanted);
    struct rdma_cm_event *event = next_event(channel, name, opt);
    const struct rdma_conn_param *conn = &event->param.conn;
    const char *text = conn->private_data_len ? conn->private_data : "";
    struct rdma_cm_id *id = event->id;
    if (event->event == RDMA_CM_EVENT_REJECTED && text[0])
        die(0, "the server refused: %.*s", conn->private_data_len, text);
    if (event->event == RDMA_CM_EVENT_REJECTED) /* without a word: by the kernel there */
        die(0, "cannot connect: no server");
    if (event->event != wanted)
        die(abs(event->status), "the peer: %s, not %s", rdma_event_str(event->event), name);
    if (theirs && conn->private_data && conn->private_data_len >= sizeof(*theirs))
        memcpy(theirs, conn->private_data, sizeof(*theirs));
    check(rdma_ack_cm_event(event), "rdma_ack_cm_event");
    return id;
}

/* The addresses of HOST, or to listen on. An id that is bound to :: takes IPv4, too, as a socket
 * does (on iWARP not with every driver). 0.0.0.0 is for kernels without IPv6. */
static struct addrinfo *addresses_for(const struct options *opt) {
    const char *name = opt->host ? opt->host : opt->bind;
    struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM}, *list;
    char service[24];
    if (!name) {
        const int ipv6 = socket(AF_INET6, SOCK_DGRAM, 0);
        hints.ai_family = ipv6 < 0 ? AF_INET : AF_INET6;
        close(ipv6);
    }
    if (name && strncasecmp(name, "::ffff:", 7) == 0)
        hints.ai_family = AF_INET;          /* rdma_cm does not take IPv4 in this form */
    sprintf(service, "%ju", opt->tcp_port); /* of rdma_cm's ports, not TCP's */
    const int unresolved = getaddrinfo(name, service, &hints, &list);
    if (unresolved) die(0, "cannot resolve '%s': %s", name, gai_strerror(unresolved));
    return list;
}

static const char *address_text(const struct addrinfo *address) {
    static char text[NI_MAXHOST];
    if (getnameinfo(address->ai_addr, address->ai_addrlen, text, sizeof(text), NULL, 0,
                    NI_NUMERICHOST) != 0)
        strcpy(text, "?");
    return text;
}

static bool is_loopback(const struct addrinfo *address) {
    if (address->ai_family == AF_INET) {
        const struct sockaddr_in *ipv4 = (const struct sockaddr_in *)address->ai_addr;
        return ntohl(ipv4->sin_addr.s_addr) >> 24 == 127;
    }
    const struct in6_addr *ipv6 = &((const struct sockaddr_in6 *)address->ai_addr)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(ipv6) || (IN6_IS_ADDR_V4MAPPED(ipv6) && ipv6->s6_addr[12] == 127);
}

/* Waits for the event that tells how id's last call has ended. Returns false and sets errno if it
 * is another one than wanted. */
static bool await_resolved(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted,
                           const struct options *opt) {
    struct rdma_cm_event *event = next_event(channel, rdma_event_str(wanted), opt);
    int err = 0;
    if (event->event != wanted) err = event->status ? abs(event->status) : EPROTO;
    check(rdma_ack_cm_event(event), "rdma_ack_cm_event");
    errno = err;
    return err == 0;
}

/* The client's part of step 2. Finds the device for the server's address, and the route to it.
 * Returns NULL, or which call failed; then errno says why. */
static const char *resolve(struct rdma_cm_id *id, struct sockaddr *address,
                           const struct options *opt) {
    if (rdma_resolve_addr(id, NULL, address, 2000 /* ms */) != 0 ||
        !await_resolved(id->channel, RDMA_CM_EVENT_ADDR_RESOLVED, opt))
        return "rdma_resolve_addr";
    if (rdma_resolve_route(id, 2000 /* ms */) != 0 ||
        !await_resolved(id->channel, RDMA_CM_EVENT_ROUTE_RESOLVED, opt))
        return "rdma_resolve_route";
    return NULL;
}

/* Returns an id with a route to the first of HOST's addresses that has one. */
static struct rdma_cm_id *find_server(struct rdma_event_channel *channel,
                                      const struct options *opt) {
    struct addrinfo *list = addresses_for(opt);
    struct rdma_cm_id *id = NULL;
    uint8_t tos = (uint8_t)opt->traffic_class;
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        check(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
        if (tos)
            check(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)),
                  "rdma_set_option of the traffic class");
        const char *failed = resolve(id, a->ai_addr, opt);
        if (!failed) break;
        if (!a->ai_next) die(errno, "%s for %s", failed, address_text(a));
        check(rdma_destroy_id(id), "rdma_destroy_id");
    }
    freeaddrinfo(list);
    return id;
}

/* The server's part of step 2. Binds the id to an address, and listens there. Returns NULL, or
 * which call failed; then errno says why. */
static const char *listen_at(struct rdma_cm_id *listener, struct sockaddr *address) {
    int off = 0; /* whatever the system's default is: :: takes IPv4 as well */
    if (address->sa_family == AF_INET6 &&
        rdma_set_option(listener, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &off, sizeof(off)) != 0)
        return "rdma_set_option";
    if (rdma_bind_addr(listener, address) != 0) return "rdma_bind_addr";
    if (rdma_listen(listener, 8) != 0) return "rdma_listen";
    return NULL;
}

/* Returns an id that listens, at the first of the addresses where it can. */
static struct rdma_cm_id *start_listening(struct rdma_event_channel *channel,
                                          const struct options *opt) {
    struct addrinfo *list = addresses_for(opt);
    struct rdma_cm_id *listener = NULL;
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        /* To rdma_cm a loopback address is like ::, and rdma_listen would serve other hosts. */
        if (is_loopback(a))
            stop(EXIT_USAGE, 0, "--bind: for %s rdma_cm would listen on all interfaces: give one's",
                 address_text(a));
        check(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
        const char *failed = listen_at(listener, a->ai_addr);
        if (!failed) break;
        if (!a->ai_next) die(errno, "%s for %s, port %ju", failed, address_text(a), opt->tcp_port);
        check(rdma_destroy_id(listener), "rdma_destroy_id");
    }
    freeaddrinfo(list);
    return listener;
}

/* Why a client is refused, or NULL. */
static const char *wrong_with(const struct hello *theirs, const char *sample) {
    const uint64_t size = be64toh(theirs->number[0]);
    const uint64_t timeout = be64toh(theirs->number[2]);
    if (strncmp(theirs->sample, sample, 16) != 0) return "this side runs 11_rdma_cm";
    return size - 1 < MAX_SIZE && timeout - 1 < MAX_TIMEOUT ? NULL : "a number is out of range";
}

/* Waits for the first client that is not refused. Returns its id; *peer is what it says. */
static struct rdma_cm_id *wait_for_client(struct rdma_event_channel *channel,
                                          const struct options *opt, struct hello *peer) {
    struct rdma_cm_id *listener = start_listening(channel, opt);
    struct rdma_cm_id *id;
    printf("waiting for a client on rdma_cm port %ju\n", opt->tcp_port);
    for (;;) {
        *peer = (struct hello){.sample = ""};
        id = await(channel, RDMA_CM_EVENT_CONNECT_REQUEST, opt, peer);
        const char *wrong = wrong_with(peer, opt->sample);
        if (!wrong) break;
        expect(false, "refused a client: %s", wrong);
        rdma_reject(id, wrong, (uint8_t)strlen(wrong)); /* fails if the client has gone: no harm */
        check(rdma_destroy_id(id), "rdma_destroy_id");
    }
    check(rdma_destroy_id(listener), "rdma_destroy_id"); /* other clients are rejected */
    return id;
}

int main(int argc, char **argv) {
    /* 1. Options. A host argument makes this the client. */
    const char *message = "hello verbs";
    const struct option_row rows[] = {
        {'M', "message", "TEXT", "text to write (default: \"hello verbs\")", .text = &message},
        {0},
    };
    struct options opt = {.sample = "11_rdma_cm"};
    parse_options(&opt, rows, argc, argv);
    const bool client = opt.host != NULL;
    if (opt.ib_dev || opt.ib_port || opt.gid_idx != GID_CHOOSE || opt.mtu || opt.sl || opt.pkey_idx)
        stop(EXIT_USAGE, 0, "-d, -i, -g, -m, -l, --pkey-idx: rdma_cm chooses these by the address");
    if (opt.traffic_class && !client)
        stop(EXIT_USAGE, 0, "--traffic-class: only for the client: rdma_cm tells the server");

    /* 2. Meet the peer. An id is like a socket; events on a channel say what becomes of it. The
     * client's gets its device, port and GID by the address and the route (in 01: open_device). The
     * server gets a new id for each request, with the device that it came in by. */
    struct hello mine = {.sample = "11_rdma_cm"};
    struct hello peer = {.sample = ""};
    struct rdma_event_channel *channel = rdma_create_event_channel();
    if (!channel) stop(EXIT_NO_DEVICE, errno, "no RDMA device here");
    struct rdma_cm_id *id;
    if (client) {
        id = find_server(channel, &opt);
        mine.number[0] = htobe64(strlen(message));
        mine.number[1] = htobe64(fnv1a(FNV_BASIS, message, strlen(message)));
        mine.number[2] = htobe64(opt.timeout);
    } else {
        id = wait_for_client(channel, &opt, &peer);
        if (!opt.timeout) opt.timeout = be64toh(peer.number[2]);
    }

    /* 3. Memory: the text; room to read it back into; the two verdicts. The id has a protection
     * domain. On iWARP the room for a READ needs REMOTE_WRITE, too (not tried: no such device). */
    const size_t size = be64toh(client ? mine.number[0] : peer.number[0]);
    const uint64_t digest = be64toh(client ? mine.number[1] : peer.number[1]);
    char *text = guarded_alloc(2 * size + 2), *back = text + size, *verdict = back + size;
    poison_fill(text, 2 * size + 2, 0);
    if (client) memcpy(text, message, size);
    const unsigned server_access =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    struct ibv_mr *mr = ibv_reg_mr(id->pd, text, size, client ? 0 : server_access);
    if (!mr) die(errno, "ibv_reg_mr of %zu bytes", size);
    unsigned access = IBV_ACCESS_LOCAL_WRITE;
    if (id->verbs->device->transport_type == IBV_TRANSPORT_IWARP) access |= IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *own_mr = ibv_reg_mr(id->pd, back, size + 2, access);
    if (!own_mr) die(errno, "ibv_reg_mr of %zu bytes", size + 2);

    /* 4. The queue pair: rdma_create_qp also creates two completion queues, and changes the state
     * to INIT. The kernel chooses the access flags, and is generous: the region must not be. */
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC};
    init.cap = (struct ibv_qp_cap){
        .max_send_wr = 2, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1};
    check(rdma_create_qp(id, NULL, &init), "rdma_create_qp");
    printf("device %s, port %u, QPN 0x%06x\n", ibv_get_device_name(id->verbs->device), id->port_num,
           id->qp->qp_num);

    /* 5, 6. Exchange QPNs, PSNs, path MTU and private data; INIT -> RTR -> RTS. The server answers
     * one READ at a time (in 03: max_dest_rd_atomic). A receive is posted before, as ever. */
    if (!client) {
        mine.number[0] = htobe64((uintptr_t)text);
        mine.number[1] = htobe64(mr->rkey);
    }
    struct rdma_conn_param param = {
        .private_data = &mine,
        .private_data_len = sizeof(mine),
        .responder_resources = client ? 0 : 1,
        .initiator_depth = client ? 1 : 0,
        .retry_count = 6,
        .rnr_retry_count = 6,
    };
    check(rdma_post_recv(id, NULL, verdict + 1, 1, own_mr), "rdma_post_recv");
    if (client)
        check(rdma_connect(id, &param), "rdma_connect");
    else
        check(rdma_accept(id, &param), "rdma_accept");
    await(channel, RDMA_CM_EVENT_ESTABLISHED, &opt, client ? &peer : NULL);
    if (strncmp(peer.sample, opt.sample, 16) != 0) die(0, "the peer runs another program");

    /* 7. The verbs. rdma_post_write fills an SGE and a work request as in 01, and posts it. */
    struct ibv_wc wc;
    bool pass = true;
    if (client) {
        const uint64_t addr = be64toh(peer.number[0]);
        const uint32_t rkey = (uint32_t)be64toh(peer.number[1]);
        check(rdma_post_write(id, NULL, text, size, mr, 0, addr, rkey), "rdma_post_write");
        check(rdma_post_read(id, NULL, back, size, own_mr, IBV_SEND_SIGNALED, addr, rkey),
              "rdma_post_read");
        wait_completion(id->send_cq, "the WRITE or the READ", opt.timeout, &wc);
        pass = expect(memcmp(text, back, size) == 0, "what was read is not what was written");
        printf("wrote \"%s\" to the server's address 0x%jx, rkey 0x%x, and read it back\n", message,
               addr, rkey);
    } else {
        wait_completion(id->recv_cq, "the receive of the verdict", opt.timeout, &wc);
    }

    /* 8. Verify. The server has the client's SEND: so it has what the client wrote before. */
    pass = expect(fnv1a(FNV_BASIS, text, size) == digest, "memory does not hold the text") && pass;
    pass = guards_ok("memory", text, 2 * size + 2) && pass;
    verdict[0] = pass ? 'P' : 'F';
    check(rdma_post_send(id, NULL, verdict, 1, own_mr, IBV_SEND_SIGNALED), "rdma_post_send");
    /* The client has the server's SEND: so its own has arrived. */
    wait_completion(client ? id->recv_cq : id->send_cq, "the verdict", opt.timeout, &wc);
    pass = expect(verdict[1] == 'P', "the peer's verdict is FAIL: see its output") && pass;

    /* 9. Undo. The last to send, the server, disconnects: once its SEND has been acknowledged. A QP
     * in ERR acknowledges no more. Both sides are told. rdma_destroy_qp takes the CQs, too. */
    if (!client) check(rdma_disconnect(id), "rdma_disconnect");
    await(channel, RDMA_CM_EVENT_DISCONNECTED, &opt, NULL);
    rdma_destroy_qp(id);
    check(ibv_dereg_mr(own_mr), "ibv_dereg_mr");
    check(ibv_dereg_mr(mr), "ibv_dereg_mr");
    check(rdma_destroy_id(id), "rdma_destroy_id");
    rdma_destroy_event_channel(channel);
    guarded_free(text);
    return report_result(pass, size, digest);
}
