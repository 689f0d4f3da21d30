/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "rendezvous.h"
#include "device.h"
#include "report.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define VERSION "hello-verbs/2"
#define REFUSAL VERSION " error="
#define ONE_GID "only one side has a GID: InfiniBand and RoCE? -g on one side only?"
#define WORK    "size=%ju,iters=%ju,seed=%ju,timeout=%ju"
enum { CONNECT_PATIENCE = 5, LINE_PATIENCE = 2, SERVER_PATIENCE = 600 }; /* seconds */

double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail for this clock */
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

uint32_t random_psn(void) {
    uint32_t psn;
    if (getrandom(&psn, sizeof(psn), 0) != sizeof(psn)) die(errno, "getrandom");
    return psn & 0xffffff;
}

#define S "%*1[ ]" /* exactly one space: a plain one would match any number */
/* Reads a line. Returns NULL, and in *work what follows work=; or why the line is refused. */
static const char *parse_line(const char *line, const char *sample, struct endpoint *ep,
                              const char **work) {
    static char reason[100];
    char theirs[32] = "", gid[46] = "";
    int end = 0;
    if (strncmp(line, VERSION " ", strlen(VERSION " ")) != 0)
        return "the line does not begin with " VERSION;
    sscanf(line,
           VERSION S "sample=%31[^ ]" S "lid=0x%4x" S "qpn=0x%6x" S "psn=0x%6x" S "gid=%45[^ ]" S
                     "mtu=%4u" S "addr=0x%16jx" S "rkey=0x%8x" S "len=%19ju" S "max_sge=%5u" S
                     "rd_atomic=%3u" S "work=%n",
           theirs, &ep->lid, &ep->qpn, &ep->psn, gid, &ep->mtu, &ep->addr, &ep->rkey, &ep->len,
           &ep->max_sge, &ep->rd_atomic, &end);
    if (theirs[0] && strcmp(theirs, sample) != 0) {
        snprintf(reason, sizeof(reason), "this side runs %s, the other %s", sample, theirs);
        return reason;
    }
    *work = line + end;
    /* sscanf also takes a sign, blanks or a second 0x before a number. */
    if (end == 0 || strpbrk(line + strlen(VERSION), "+-") || strstr(line, "= ") ||
        strstr(line, "x ") || strcasestr(line, "x0x") || inet_pton(AF_INET6, gid, &ep->gid) != 1 ||
        ep->max_sge < 1 || ep->mtu < 256 || ep->mtu > 4096 || (ep->mtu & (ep->mtu - 1)) ||
        ep->rd_atomic > 255)
        return "a field is missing, malformed, out of range or out of order";
    return NULL;
}

/* Stores what a client asks for. Returns NULL, or why it is refused. */
static const char *parse_work(struct options *opt, const char *work) {
    char again[128]; /* sscanf takes signs and blanks, but does not print them */
    uint64_t timeout = 0;
    int end = 0;
    sscanf(work, WORK "%n", &opt->size, &opt->iters, &opt->seed, &timeout, &end);
    sprintf(again, WORK, opt->size, opt->iters, opt->seed, timeout);
    if (end == 0 || strncmp(work, again, strlen(again)) != 0 || opt->size < 1 ||
        opt->size > MAX_SIZE || opt->iters < 1 || opt->iters > MAX_ITERS || timeout < 1 ||
        timeout > MAX_TIMEOUT)
        return "work= is malformed, or asks for more than the limits";
    const char *wrong = work[end] ? "work= has a field too many" : NULL;
    if (opt->parse_work) wrong = opt->parse_work(opt, work + end);
    if (!wrong && opt->timeout == 0) opt->timeout = timeout;
    return wrong;
}

static bool readable(int fd, double deadline) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    double left;
    do { /* at least once: what came while this process was stopped is there */
        left = deadline - now();
        if (poll(&p, 1, left > 0 ? (int)(left * 1000) + 1 : 0) > 0) return true;
    } while (left > 0);
    return false;
}

/* Takes the next line without its '\n', byte by byte: what follows is not its business.
 * Returns NULL, or what went wrong. */
static const char *read_line(int fd, double deadline, char line[LINE_SIZE]) {
    for (int i = 0; i < LINE_SIZE; i++) {
        if (!readable(fd, deadline)) return "the peer is silent";
        if (recv(fd, line + i, 1, 0) != 1) return "the peer closed the connection";
        const bool end = line[i] == '\n';
        if (end) line[i] = '\0';
        if (end) return NULL;
        if (line[i] < ' ' || line[i] > '~')
            return "the peer sent bytes that are not printable ASCII";
    }
    return "the peer sent a line of more than 1024 bytes";
}

/* Returns false if the peer has closed the connection. */
static bool send_line(struct rendezvous *tcp, const char *line) {
    if (tcp->opt->verbose) printf("-> %s\n", line);
    return dprintf(tcp->fd, "%s\n", line) > 0; /* so little always fits into the socket's buffer */
}

static void must_send_line(struct rendezvous *tcp, const char *line) {
    if (!send_line(tcp, line))
        die(errno, "the peer closed the connection before this side's '%.20s'", line);
}

static const char *receive_line(struct rendezvous *tcp, const char *expected) {
    const char *wrong = read_line(tcp->fd, now() + (double)tcp->opt->timeout, tcp->line);
    if (wrong) die(0, "%s: no '%s' from it", wrong, expected);
    if (tcp->opt->verbose) printf("<- %s\n", tcp->line);
    return tcp->line;
}

/* A socket for the first address that works: connected to HOST, or listening. Returns -1 and sets
 * errno if none does. An IPv6 socket takes IPv4 addresses, too, as ::ffff:a.b.c.d. */
static int open_socket(const struct options *opt, int type) {
    const int ipv6 = socket(AF_INET6, SOCK_STREAM, 0);
    const int on = 1, off = 0;
    const struct addrinfo hints = {.ai_family = ipv6 < 0 ? AF_INET : AF_INET6,
                                   .ai_socktype = type,
                                   .ai_flags = AI_V4MAPPED | AI_ALL | AI_PASSIVE};
    const struct timeval limit = {.tv_sec = (time_t)opt->timeout};
    const char *host = opt->host ? opt->host : opt->bind;
    struct addrinfo *list;
    char port[24];
    int fd = -1, err = 0;
    close(ipv6);
    sprintf(port, "%ju", opt->tcp_port);
    const int unresolved = getaddrinfo(host, port, &hints, &list);
    if (unresolved) die(0, "cannot resolve '%s': %s", host, gai_strerror(unresolved));
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        const int s = socket(a->ai_family, type | SOCK_CLOEXEC, 0);
        if (s < 0) {
            err = errno;
            continue;
        }
        setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)); /* connect's, too */
        setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
        const bool works = opt->host
                               ? connect(s, a->ai_addr, a->ai_addrlen) == 0
                               : bind(s, a->ai_addr, a->ai_addrlen) == 0 && listen(s, 64) == 0;
        if (works) {
            fd = s;
        } else {
            err = errno == EINPROGRESS ? ETIMEDOUT : errno;
            close(s);
        }
    }
    freeaddrinfo(list);
    errno = err;
    return fd;
}

/* The two programs are started by hand: a client that is a little early tries again. No route: the
 * link went down since rendezvous_open() found one; it may come up again (14_recover). */
static int open_patiently(const struct options *opt) {
    if (opt->listener > 0) return opt->listener;
    const double deadline = now() + CONNECT_PATIENCE;
    int fd;
    while ((fd = open_socket(opt, SOCK_STREAM)) < 0 &&
           (errno == ECONNREFUSED || errno == ENETUNREACH) && now() < deadline)
        poll(NULL, 0, 200);
    if (fd < 0 && opt->host)
        die(errno, "cannot connect to %s, TCP port %ju", opt->host, opt->tcp_port);
    if (fd < 0) die(errno, "cannot listen on TCP port %ju", opt->tcp_port);
    return fd;
}

/* Says why, and takes what else comes: closing with bytes unread would reset the connection,
 * and the client might not see the reason. */
static void refuse(int fd, const char *reason, double deadline) {
    char line[LINE_SIZE];
    expect(false, "refused a client: %s", reason);
    dprintf(fd, REFUSAL "%s\n", reason);
    shutdown(fd, SHUT_WR);
    while (now() < deadline && readable(fd, deadline) && recv(fd, line, sizeof(line), 0) > 0)
        continue;
    close(fd);
}

void rendezvous_refuse(struct rendezvous *tcp, const char *reason) {
    tcp->opt->timeout = tcp->timeout;
    refuse(tcp->fd, reason, now() + 1);
}

void rendezvous_open(struct rendezvous *tcp, struct options *opt, struct endpoint *peer) {
    const unsigned patience = opt->timeout ? (unsigned)opt->timeout : SERVER_PATIENCE;
    const double deadline = now() + patience;
    const char *wrong = opt->host ? NULL : "";
    struct ibv_device **list = ibv_get_device_list(NULL), **device = list;
    while (device && *device && opt->ib_dev &&
           strcmp(ibv_get_device_name(*device), opt->ib_dev) != 0)
        device++;
    const char *which = opt->ib_dev ? opt->ib_dev : "here";
    if (!device || !*device) stop(EXIT_NO_DEVICE, list ? 0 : errno, "no RDMA device %s", which);
    ibv_free_device_list(list);
    signal(SIGPIPE, SIG_IGN); /* a peer that has gone is an error to report */
    /* Connecting a UDP socket sends nothing, but finds this side's address on the way to HOST. */
    const int fd = opt->host ? open_socket(opt, SOCK_DGRAM) : open_patiently(opt);
    if (fd < 0) die(errno, "cannot reach %s", opt->host);
    *tcp = (struct rendezvous){.fd = fd, .opt = opt, .timeout = opt->timeout};
    if (!opt->host) printf("waiting for a client on TCP port %ju\n", opt->tcp_port);
    while (wrong) {
        if (now() > deadline || !readable(fd, deadline)) die(0, "no client came in %u s", patience);
        tcp->fd = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (tcp->fd < 0) continue;
        const double until = now() + LINE_PATIENCE;
        wrong = read_line(tcp->fd, until, tcp->line);
        if (!wrong) wrong = parse_line(tcp->line, opt->sample, peer, &tcp->work);
        if (!wrong && !gid_fits(opt, tcp->fd, &peer->gid)) wrong = ONE_GID;
        if (!wrong) wrong = parse_work(opt, tcp->work);
        if (wrong) refuse(tcp->fd, wrong, until);
    }
    if (opt->host) return;
    if (opt->verbose) printf("<- %s\n", tcp->line);
    if (opt->listener) opt->listener = fd; /* for the next client */
    if (!opt->listener) close(fd);
}

/* Has the peer closed the connection? Sending does not tell: the first piece is always taken. */
static bool is_closed(int fd) {
    char next;
    return recv(fd, &next, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

bool rendezvous_swap(struct rendezvous *tcp, const struct endpoint *mine, struct endpoint *peer) {
    const struct options *opt = tcp->opt;
    char gid[INET6_ADDRSTRLEN], work[LINE_SIZE], line[2 * LINE_SIZE];
    const char *wrong = NULL;
    const int n = sprintf(work, WORK, opt->size, opt->iters, opt->seed, opt->timeout);
    if (opt->format_work) opt->format_work(opt, work + n, sizeof(work) - (size_t)n);
    inet_ntop(AF_INET6, &mine->gid, gid, sizeof(gid));
    snprintf(line, sizeof(line),
             VERSION " sample=%s lid=0x%04x qpn=0x%06x psn=0x%06x gid=%s mtu=%u addr=0x%jx"
                     " rkey=0x%x len=%ju max_sge=%u rd_atomic=%u work=%s",
             opt->sample, mine->lid, mine->qpn, mine->psn, gid, mine->mtu, mine->addr, mine->rkey,
             mine->len, mine->max_sge, mine->rd_atomic, opt->host ? work : tcp->work);
    if (opt->host) {
        close(tcp->fd); /* the UDP socket: only now is there a line to send */
        tcp->fd = open_patiently(opt);
        must_send_line(tcp, line);
        if (strncmp(receive_line(tcp, "line"), REFUSAL, strlen(REFUSAL)) == 0)
            die(0, "the server refused: %s", tcp->line + strlen(REFUSAL));
        wrong = parse_line(tcp->line, opt->sample, peer, &tcp->work);
        if (!wrong && strcmp(tcp->work, work) != 0) wrong = "work= is not this side's";
    }
    if (!wrong && has_gid(&mine->gid) != has_gid(&peer->gid)) wrong = ONE_GID;
    if (wrong && opt->listener) { /* there are other clients */
        rendezvous_refuse(tcp, wrong);
        return false;
    }
    if (wrong) die(0, "the peer sent a wrong line: %s", wrong);
    if (mine->mtu < peer->mtu) peer->mtu = mine->mtu;
    if (opt->host || (!is_closed(tcp->fd) && send_line(tcp, line))) return true;
    if (opt->listener) { /* the next client may take its place */
        tcp->opt->timeout = tcp->timeout;
        close(tcp->fd);
    }
    return false;
}

void rendezvous_sync(struct rendezvous *tcp, const char *step) {
    char mine[64];
    snprintf(mine, sizeof(mine), "sync %s", step);
    must_send_line(tcp, mine);
    if (strncmp(receive_line(tcp, mine), mine, strcspn(mine, "=") + 1) != 0)
        die(0, "the peer sent '%s' instead of '%s'", tcp->line, mine);
}

bool rendezvous_try_sync(struct rendezvous *tcp, const char *step) {
    char mine[64];
    snprintf(mine, sizeof(mine), "sync %s", step);
    if (!send_line(tcp, mine)) return false;
    if (read_line(tcp->fd, now() + (double)tcp->opt->timeout, tcp->line)) return false;
    if (tcp->opt->verbose) printf("<- %s\n", tcp->line);
    return strncmp(tcp->line, mine, strcspn(mine, "=") + 1) == 0;
}

bool rendezvous_verdict(struct rendezvous *tcp, bool pass) {
    must_send_line(tcp, pass ? "verdict PASS" : "verdict FAIL");
    const bool theirs = strcmp(receive_line(tcp, "verdict"), "verdict PASS") == 0;
    close(tcp->fd);
    return expect(theirs, "the peer sent '%s': see its output", tcp->line) && pass;
}
