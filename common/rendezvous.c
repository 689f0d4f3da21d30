#define _GNU_SOURCE
#include "rendezvous.h"

#include "bench.h"
#include "deadline.h"
#include "report.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define VERSION        "hello-verbs/1"
#define CONNECT_TRIES  5.0  /* seconds that a client knocks where nobody listens */
#define MAX_VISITORS   16   /* connections that a server hears out at a time */
#define LINE_PATIENCE  10.0 /* seconds from its connection to a client's whole line */
#define FAREWELL_GRACE 1.0  /* seconds for a refused peer to read why */

/* ---- the endpoint as a line of text ---- */

enum field_kind { TEXT, GID, DEC, HEX };

static const struct {
    const char *name;
    enum field_kind kind;
    size_t offset, width; /* of the member of struct endpoint, bytes */
    uint64_t min, max;
} fields[] = {
#define FIELD(member, kind, min, max)                                                    \
    {                                                                                    \
#member, kind, offsetof(struct endpoint, member),                                \
            sizeof(((struct endpoint *)0)->member), min, max                             \
    }
    FIELD(sample, TEXT, 0, 0),
    FIELD(lid, HEX, 0, UINT16_MAX),
    FIELD(qpn, HEX, 0, 0xffffff),
    FIELD(psn, HEX, 0, 0xffffff),
    FIELD(gid, GID, 0, 0),
    FIELD(mtu, DEC, 256, 4096),
    FIELD(addr, HEX, 0, UINT64_MAX),
    FIELD(rkey, HEX, 0, UINT32_MAX),
    FIELD(len, DEC, 0, UINT64_MAX),
    FIELD(size, DEC, 1, MAX_SIZE),
    FIELD(iters, DEC, 1, MAX_ITERS),
    FIELD(seed, DEC, 0, UINT64_MAX),
    FIELD(timeout, DEC, 1, MAX_TIMEOUT),
    FIELD(digest, HEX, 0, UINT64_MAX),
    /* from here on: 05 to 07 alone */
    FIELD(block_size, DEC, 0, UINT64_MAX),
    FIELD(block_num, DEC, 0, UINT64_MAX),
    FIELD(stride, DEC, 0, UINT64_MAX),
    FIELD(method, TEXT, 0, 0),
    FIELD(max_sge, DEC, 1, 65535),
    FIELD(rd_atomic, DEC, 0, 255),
    FIELD(depth, DEC, 0, MAX_DEPTH),
    FIELD(sizes, TEXT, 0, 0),
#undef FIELD
};
#define FIELD_COUNT (sizeof(fields) / sizeof(fields[0]))

/* How many of the fields the lines of this sample have. */
static size_t field_count(const char *sample)
{
    size_t n = 0;

    while (n < FIELD_COUNT && (strcmp(sample, "05") > 0 ||
                               fields[n].offset != offsetof(struct endpoint, block_size)))
        n++;
    return n;
}

/* Copies a number out of, or into, a member that is 2, 4 or 8 bytes wide. */
static uint64_t load_member(const void *member, size_t width)
{
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;

    if (width == sizeof(u16))
        return memcpy(&u16, member, width), u16;
    if (width == sizeof(u32))
        return memcpy(&u32, member, width), u32;
    return memcpy(&u64, member, width), u64;
}

static void store_member(void *member, size_t width, uint64_t value)
{
    uint16_t u16 = (uint16_t)value;
    uint32_t u32 = (uint32_t)value;

    if (width == sizeof(u16))
        memcpy(member, &u16, width);
    else if (width == sizeof(u32))
        memcpy(member, &u32, width);
    else
        memcpy(member, &value, width);
}

size_t format_endpoint(const struct endpoint *ep, char out[LINE_SIZE])
{
    size_t n = (size_t)snprintf(out, LINE_SIZE, VERSION);

    for (size_t i = 0; i < field_count(ep->sample); i++) {
        const char *member = (const char *)ep + fields[i].offset;
        const uint8_t *raw = (const uint8_t *)member;
        size_t room = LINE_SIZE - n;

        n += (size_t)snprintf(out + n, room, " %s=", fields[i].name);
        room = LINE_SIZE - n;
        if (fields[i].kind == TEXT) {
            n += (size_t)snprintf(out + n, room, "%s", member);
        } else if (fields[i].kind == GID) {
            for (int g = 0; g < 8; g++)
                n += (size_t)snprintf(out + n, LINE_SIZE - n, "%s%02x%02x", g ? ":" : "",
                                      raw[2 * g], raw[2 * g + 1]);
        } else if (fields[i].kind == DEC) {
            n += (size_t)snprintf(out + n, room, "%" PRIu64,
                                  load_member(member, fields[i].width));
        } else { /* as many digits as the greatest value has */
            int digits = fields[i].max == 0xffffff ? 6 : (int)(2 * fields[i].width);
            n += (size_t)snprintf(out + n, room, "0x%0*" PRIx64, digits,
                                  load_member(member, fields[i].width));
        }
    }
    out[n++] = '\n';
    return n;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Digits only: what strtoull takes beside them (sign, blanks, overflow) is refused. */
static bool parse_value(const char *text, size_t len, uint64_t *out)
{
    uint64_t base = 10, value = 0;

    if (len > 2 && text[0] == '0' && text[1] == 'x')
        base = 16, text += 2, len -= 2;
    if (len == 0)
        return false;
    for (size_t i = 0; i < len; i++) {
        int digit = hex_digit(text[i]);
        if (digit < 0 || (uint64_t)digit >= base ||
            __builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, (uint64_t)digit, &value))
            return false;
    }
    *out = value;
    return true;
}

/* Eight groups of four hex digits with a colon between. */
static bool parse_gid(const char *text, size_t len, union ibv_gid *gid)
{
    if (len != 39)
        return false;
    for (size_t i = 0; i < 16; i++) {
        const char *pair = text + 5 * (i / 2) + 2 * (i % 2);
        int high = hex_digit(pair[0]), low = hex_digit(pair[1]);
        if (high < 0 || low < 0 || (i % 2 == 0 && i > 0 && pair[-1] != ':'))
            return false;
        gid->raw[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool parse_field(size_t i, const char *text, size_t len, struct endpoint *ep)
{
    char *member = (char *)ep + fields[i].offset;
    uint64_t value;

    if (fields[i].kind == TEXT) {
        if (len == 0 || len >= fields[i].width)
            return false;
        memcpy(member, text, len);
        member[len] = '\0';
        return true;
    }
    if (fields[i].kind == GID)
        return parse_gid(text, len, &ep->gid);
    if (!parse_value(text, len, &value) || value < fields[i].min || value > fields[i].max)
        return false;
    store_member(member, fields[i].width, value);
    return true;
}

/* What the layout's fields must be, one by one and together. */
static const char *check_layout(const struct endpoint *ep)
{
    struct layout l;
    struct bench_plan plan;
    enum method method;
    const char *reason = layout_set(&l, ep->block_size, ep->block_num, ep->stride);

    if (!reason && l.bytes != ep->size)
        reason = "field size is not block_size * block_num";
    if (!reason && !method_by_name(ep->method, &method))
        reason = "field method is not sgl, copy, each or auto";
    if (!reason && ep->depth > 0 && ep->iters > MAX_ROUNDS)
        reason = "field iters is above the limit of rounds";
    if (!reason && ep->depth > 0)
        reason = bench_make_plan(&plan, ep->sizes, ep->block_size);
    return reason;
}

const char *parse_endpoint(const char *line, size_t len, const char *sample,
                           struct endpoint *ep)
{
    static char reason[128];
    const size_t head = strlen(VERSION);
    bool seen[FIELD_COUNT] = {false};

    memset(ep, 0, sizeof(*ep));
    for (size_t i = 0; i < len; i++)
        if (line[i] < ' ' || line[i] > '~')
            return "the line is not plain ASCII text";
    if (len < head || memcmp(line, VERSION, head) != 0 ||
        (len > head && line[head] != ' '))
        return "the line does not begin with " VERSION;

    for (const char *p = line + head, *end = line + len; p < end;) {
        const char *word = p + 1; /* past the space */
        const char *stop = memchr(word, ' ', (size_t)(end - word));
        if (!stop)
            stop = end;
        const char *equals = memchr(word, '=', (size_t)(stop - word));
        if (!equals || equals == word)
            return "a field is not of the form name=value, with one space between fields";
        for (size_t i = 0; i < field_count(sample); i++) {
            size_t name_len = (size_t)(equals - word);
            if (strlen(fields[i].name) != name_len ||
                memcmp(word, fields[i].name, name_len) != 0)
                continue;
            const char *fault = NULL;
            if (seen[i])
                fault = "repeated";
            else if (!parse_field(i, equals + 1, (size_t)(stop - equals - 1), ep))
                fault = "malformed or out of range";
            if (fault) {
                snprintf(reason, sizeof(reason), "field %s is %s", fields[i].name, fault);
                return reason;
            }
            seen[i] = true;
        }
        p = stop;
    }

    if (seen[0] && strcmp(ep->sample, sample) != 0) {
        snprintf(reason, sizeof(reason), "this side runs %s, the other %s", sample,
                 ep->sample);
        return reason;
    }
    for (size_t i = 0; i < field_count(sample); i++) {
        if (!seen[i]) {
            snprintf(reason, sizeof(reason), "field %s is missing", fields[i].name);
            return reason;
        }
    }
    if (ep->mtu & (ep->mtu - 1))
        return "field mtu is malformed or out of range";
    return field_count(sample) == FIELD_COUNT ? check_layout(ep) : NULL;
}

/* ---- lines over the connection ---- */

static int remaining_ms(double deadline)
{
    double left = deadline - now();

    return left <= 0 ? 0 : (int)(left * 1000) + 1;
}

/* MSG_NOSIGNAL: a peer that is gone is an error to report, not a SIGPIPE. All our lines
 * together are smaller than a socket's buffer, so the send never has to wait for one that
 * reads. */
static void send_line(struct rendezvous *rv, const char *what, const char *line,
                      size_t len)
{
    if (rv->opt->verbose)
        printf("-> %.*s", (int)len, line);
    while (len > 0) {
        ssize_t n = send(rv->fd, line, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            die(0, "the peer is silent: it doesn't read what is sent to it");
        if (n < 0)
            die(errno, "the peer closed the connection before this side's '%s'", what);
        line += n;
        len -= (size_t)n;
    }
}

/* Takes the next line, without its '\n', into out as a string; returns its length. TCP
 * keeps no message boundaries: one recv may bring half a line, or two. */
static size_t receive_line(struct rendezvous *rv, const char *awaited,
                           char out[LINE_SIZE])
{
    double deadline = now() + rv->opt->timeout;
    char *end;

    while (!(end = memchr(rv->line, '\n', rv->have))) {
        if (rv->have == LINE_SIZE)
            die(0, "the peer sent a line of more than %d bytes", LINE_SIZE);
        struct pollfd p = {.fd = rv->fd, .events = POLLIN};
        int ready = poll(&p, 1, remaining_ms(deadline));
        if (ready == 0)
            die(0, "the peer is silent: no '%s' from it in %u s", awaited,
                rv->opt->timeout);
        ssize_t n = -1;
        if (ready > 0)
            n = recv(rv->fd, rv->line + rv->have, LINE_SIZE - rv->have, 0);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0)
            die(n < 0 ? errno : 0, "the peer closed the connection before its '%s'",
                awaited);
        rv->have += (size_t)n;
    }

    size_t len = (size_t)(end - rv->line);
    for (size_t i = 0; i < len; i++) /* no control codes of a stranger on our terminal */
        out[i] = rv->line[i] >= ' ' && rv->line[i] <= '~' ? rv->line[i] : '?';
    out[len] = '\0';
    rv->have -= len + 1;
    memmove(rv->line, end + 1, rv->have);
    if (rv->opt->verbose)
        printf("<- %s\n", out);
    return len;
}

/* ---- the client's connection ---- */

static struct addrinfo *resolve(const char *host, const char *port, int flags)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};
    struct addrinfo *list;
    int err = getaddrinfo(host, port, &hints, &list);

    if (err)
        die(0, "cannot resolve '%s': %s", host ? host : "any address",
            err == EAI_SYSTEM ? strerror(errno) : gai_strerror(err));
    return list;
}

/* One try at one address. Returns a connected socket, or -1 with errno. */
static int try_connect(const struct addrinfo *to, const struct addrinfo *from,
                       double deadline)
{
    int err = 0,
        fd = socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    socklen_t len = sizeof(err);

    if (fd < 0)
        return -1;
    if ((from && bind(fd, from->ai_addr, from->ai_addrlen) != 0) ||
        (connect(fd, to->ai_addr, to->ai_addrlen) != 0 && errno != EINPROGRESS))
        err = errno;
    if (!err) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        if (poll(&p, 1, remaining_ms(deadline)) <= 0)
            err = ETIMEDOUT;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0)
            err = errno;
    }
    if (err) {
        close(fd);
        errno = err;
        return -1;
    }
    return fd;
}

/* The two terminals are started by hand: a client that is a little early waits. */
static int connect_to_server(const struct options *opt)
{
    struct addrinfo *list = resolve(opt->host, opt->tcp_port, 0);
    struct addrinfo *from = opt->bind ? resolve(opt->bind, NULL, AI_PASSIVE) : NULL;
    double patience = opt->timeout < CONNECT_TRIES ? opt->timeout : CONNECT_TRIES;
    double deadline = now() + patience;
    int fd = -1, err = 0;
    bool refused; /* by one of the host's addresses: a server may come there yet */

    do {
        refused = false;
        for (struct addrinfo *to = list; to && fd < 0; to = to->ai_next) {
            fd = try_connect(to, from, deadline);
            if (fd < 0 && !refused)
                err = errno;
            refused = refused || (fd < 0 && err == ECONNREFUSED);
        }
        if (fd < 0 && refused)
            poll(NULL, 0, 200);
    } while (fd < 0 && refused && now() < deadline);
    if (fd < 0)
        die(err, "cannot connect to %s, TCP port %s", opt->host, opt->tcp_port);
    freeaddrinfo(list);
    if (from)
        freeaddrinfo(from);
    return fd;
}

/* ---- the server's side: hear out whoever comes, take the first right one ---- */

struct visitor {
    int fd; /* -1: this place is free */
    char line[LINE_SIZE];
    size_t have;
    double deadline;
    bool refused; /* told why; what else it sends is thrown away until it closes */
};

static int listen_socket(const struct options *opt)
{
    struct addrinfo *list = resolve(opt->bind, opt->tcp_port, AI_PASSIVE);
    int fd = -1, err = 0, on = 1, off = 0;

    /* An IPv6 socket that is bound to no address takes IPv4 connections too, so it is
     * tried first; a machine without IPv6 has the other. */
    for (int want6 = 1; want6 >= 0 && fd < 0; want6--) {
        for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
            if ((a->ai_family == AF_INET6) != want6)
                continue;
            fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
            if (fd < 0) {
                err = errno;
                continue;
            }
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
            if (want6)
                setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
            if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, 64) != 0) {
                err = errno;
                close(fd);
                fd = -1;
            }
        }
    }
    freeaddrinfo(list);
    if (fd < 0)
        die(err, "cannot listen on TCP port %s", opt->tcp_port);
    return fd;
}

static void dismiss(struct visitor *v)
{
    close(v->fd);
    v->fd = -1;
}

static void send_error(int fd, const char *reason)
{
    char line[LINE_SIZE];
    int len = snprintf(line, sizeof(line), VERSION " error=\"%s\"\n", reason);

    send(fd, line, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void refuse(struct visitor *v, const char *reason)
{
    fprintf(stderr, "refused a client: %s\n", reason);
    send_error(v->fd, reason);
    /* Closing at once with bytes unread would reset the connection and could take the
     * reason away before the peer has read it. */
    shutdown(v->fd, SHUT_WR);
    v->refused = true;
    v->deadline = now() + FAREWELL_GRACE;
}

static void welcome(int listener, struct visitor *visitors)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct visitor *place = visitors;

    if (fd < 0)
        return;
    for (int i = 0; i < MAX_VISITORS && place->fd >= 0; i++)
        if (visitors[i].fd < 0 || visitors[i].deadline < place->deadline)
            place =
                &visitors[i]; /* a free place, or whoever has kept us waiting longest */
    if (place->fd >= 0)
        dismiss(place);
    *place = (struct visitor){.fd = fd, .deadline = now() + LINE_PATIENCE};
}

/* Reads what a visitor has sent. Returns true when that is a client's valid line. */
static bool hear_out(struct visitor *v, const char *sample, bool verbose,
                     struct endpoint *peer)
{
    char rest[LINE_SIZE];
    char *into = v->refused ? rest : v->line + v->have;
    ssize_t n = recv(v->fd, into, v->refused ? sizeof(rest) : LINE_SIZE - v->have, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) {
        if (!v->refused)
            fprintf(stderr, "a client went away after %zu bytes of its line\n", v->have);
        dismiss(v);
        return false;
    }
    if (v->refused)
        return false;

    v->have += (size_t)n;
    char *end = memchr(v->line, '\n', v->have);
    const char *reason = NULL;
    if (!end && v->have == LINE_SIZE)
        reason = "the line is longer than 1024 bytes";
    else if (end && end + 1 != v->line + v->have)
        reason = "there is more after the first line";
    else if (end)
        reason = parse_endpoint(v->line, v->have - 1, sample, peer);
    if (reason)
        refuse(v, reason);
    else if (end && verbose)
        printf("<- %.*s", (int)v->have, v->line);
    return end && !reason;
}

/* Returns the connection of the first visitor whose line is right, in *peer. */
static int accept_client(const struct options *opt, const char *sample,
                         struct endpoint *peer)
{
    unsigned patience = opt->timeout_given ? opt->timeout : SERVER_PATIENCE;
    double deadline = now() + patience;
    int listener = listen_socket(opt), client = -1;
    struct visitor visitors[MAX_VISITORS];

    for (int i = 0; i < MAX_VISITORS; i++)
        visitors[i].fd = -1;
    printf("waiting for a client on TCP port %s\n", opt->tcp_port);

    while (client < 0) {
        struct pollfd polled[MAX_VISITORS + 1] = {{.fd = listener, .events = POLLIN}};
        double wake = deadline;

        if (now() >= deadline)
            die(0, "no client came in %u s", patience);
        for (int i = 0; i < MAX_VISITORS; i++) {
            struct visitor *v = &visitors[i];
            if (v->fd >= 0 && now() >= v->deadline) {
                if (v->refused)
                    dismiss(v);
                else
                    refuse(v, "no whole line came in time");
            }
            if (v->fd >= 0 && v->deadline < wake)
                wake = v->deadline;
            polled[i + 1] = (struct pollfd){.fd = v->fd, .events = POLLIN};
        }
        if (poll(polled, MAX_VISITORS + 1, remaining_ms(wake)) <= 0)
            continue;
        for (int i = 0; i < MAX_VISITORS && client < 0; i++)
            if (polled[i + 1].revents &&
                hear_out(&visitors[i], sample, opt->verbose, peer))
                client = visitors[i].fd;
        if (client < 0 && polled[0].revents)
            welcome(listener, visitors);
    }
    close(listener);
    for (int i = 0; i < MAX_VISITORS; i++)
        if (visitors[i].fd >= 0 && visitors[i].fd != client)
            close(visitors[i].fd);
    return client;
}

/* ---- what the samples call ---- */

void rendezvous_open(struct rendezvous *rv, struct options *opt, const char *sample,
                     struct endpoint *peer)
{
    *rv = (struct rendezvous){.sample = sample, .opt = opt};
    if (opt->host) {
        rv->fd = connect_to_server(opt);
        return;
    }
    rv->fd = accept_client(opt, sample, peer);
    opt->size = peer->size;
    opt->iters = peer->iters;
    opt->seed = peer->seed;
    if (field_count(sample) == FIELD_COUNT) {
        layout_set(&opt->layout, peer->block_size, peer->block_num, peer->stride);
        opt->method = peer->method;
        opt->sizes = peer->sizes;
        opt->depth = peer->depth;
        opt->bench = peer->depth > 0;
    }
    if (!opt->timeout_given)
        opt->timeout = peer->timeout < SERVER_PATIENCE ? peer->timeout : SERVER_PATIENCE;
}

/* Both sides are addressed by GID, or both by LID. */
static bool same_addressing(const struct endpoint *a, const struct endpoint *b)
{
    static const union ibv_gid none;

    return !memcmp(&a->gid, &none, sizeof(none)) == !memcmp(&b->gid, &none, sizeof(none));
}

/* Bytes of the longest message of the run: measurements have several. */
static uint64_t longest_message(const struct options *opt)
{
    struct bench_plan plan;

    if (!opt->bench)
        return opt->size;
    bench_make_plan(&plan, opt->sizes, opt->layout.block_size);
    return bench_room(&plan, 1).bytes;
}

void rendezvous_swap(struct rendezvous *rv, struct endpoint *mine, struct endpoint *peer)
{
    static const char refusal[] = VERSION " error=";
    char line[LINE_SIZE];

    snprintf(mine->sample, sizeof(mine->sample), "%s", rv->sample);
    mine->size = rv->opt->size;
    mine->iters = rv->opt->iters;
    mine->seed = rv->opt->seed;
    mine->timeout = rv->opt->timeout;
    if (field_count(rv->sample) == FIELD_COUNT) {
        mine->block_size = rv->opt->layout.block_size;
        mine->block_num = rv->opt->layout.block_num;
        mine->stride = rv->opt->layout.stride;
        mine->depth = rv->opt->bench ? rv->opt->depth : 0;
        snprintf(mine->method, sizeof(mine->method), "%s", rv->opt->method);
        snprintf(mine->sizes, sizeof(mine->sizes), "%s",
                 rv->opt->bench ? rv->opt->sizes : "none");
    }
    /* The server checks before it answers: who fails gets no rkey. */
    if (!rv->opt->host && !same_addressing(mine, peer)) {
        send_error(rv->fd, "only one side has a GID");
        die(0, "only one side has a GID: they can't reach each other");
    }
    send_line(rv, "endpoint", line, format_endpoint(mine, line));
    if (rv->opt->host) {
        size_t len = receive_line(rv, "endpoint", line);
        if (strncmp(line, refusal, strlen(refusal)) == 0)
            die(0, "the server refused: %s", line + strlen(refusal));
        const char *reason = parse_endpoint(line, len, rv->sample, peer);
        if (reason)
            die(0, "the peer sent a wrong endpoint: %s", reason);
        if (peer->size != mine->size || peer->iters != mine->iters ||
            peer->seed != mine->seed || peer->block_size != mine->block_size ||
            peer->block_num != mine->block_num || peer->stride != mine->stride ||
            peer->depth != mine->depth || strcmp(peer->method, mine->method) != 0 ||
            strcmp(peer->sizes, mine->sizes) != 0)
            die(0, "the peer sent another workload than this side's");
        if (!same_addressing(mine, peer))
            die(0, "only one side has a GID: they can't reach each other");
        if (peer->rkey && peer->len < longest_message(rv->opt))
            die(0,
                "the peer sent %" PRIu64
                " bytes of memory for messages of up to %" PRIu64,
                peer->len, longest_message(rv->opt));
    }
}

void rendezvous_sync(struct rendezvous *rv, const char *step)
{
    char mine[LINE_SIZE], theirs[LINE_SIZE], line[LINE_SIZE];
    int len = snprintf(line, sizeof(line), "sync %s\n", step);

    snprintf(mine, sizeof(mine), "sync %s", step);
    send_line(rv, mine, line, (size_t)len);
    receive_line(rv, mine, theirs);
    if (strcmp(mine, theirs) != 0)
        die(0, "the peer sent '%s' instead of '%s'", theirs, mine);
}

bool rendezvous_verdict(struct rendezvous *rv, bool pass)
{
    char line[LINE_SIZE];
    const char *mine = pass ? "verdict PASS\n" : "verdict FAIL\n";

    send_line(rv, "verdict", mine, strlen(mine));
    receive_line(rv, "verdict", line);
    bool peer_pass = strcmp(line, "verdict PASS") == 0;
    if (!peer_pass && strcmp(line, "verdict FAIL") != 0)
        die(0, "the peer sent '%s' instead of its verdict", line);
    if (!peer_pass)
        fprintf(stderr, "the peer's verdict is FAIL: its output says what it found\n");
    close(rv->fd);
    return pass && peer_pass;
}

uint32_t random_psn(void)
{
    uint32_t psn;

    if (getrandom(&psn, sizeof(psn), 0) != sizeof(psn))
        die(errno, "getrandom");
    return psn & 0xffffff;
}
