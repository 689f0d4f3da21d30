/* SPDX-License-Identifier: BSD-2-Clause */
/* The command line. Option letters mean what they mean in ibv_rc_pingpong(1). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_SIZE    ((uint64_t)64 << 20) /* bytes in a message that a client may ask for */
#define MAX_ITERS   1000000u             /* repetitions */
#define MAX_TIMEOUT 3600u                /* seconds */
#define GID_CHOOSE  UINT64_MAX           /* gid_idx without -g */

struct option_row {
    char letter;                     /* 0: none */
    const char *name, *value, *help; /* value NULL: it takes none, and stores 1 */
    const char **text;               /* where to store a text (never empty), or NULL */
    uint64_t *number, min, max;      /* where to store a number, and its range */
    bool server;                     /* a sample's option for servers only, not for clients only */
};
#define NUMBER(to, lo, hi) .number = &(to), .min = (lo), .max = (hi)

struct options {
    const char *sample; /* set by the sample: "03_read" */
    /* The work: what the client asks for. The server learns it in the rendezvous. */
    uint64_t size, iters, seed; /* bytes in a message; repetitions; seed of the test data */
    uint64_t timeout;           /* seconds for a step; 0: not given, on the server */
    void *work;                 /* further fields of work=; text of both functions: ",name=..." */
    void (*format_work)(const struct options *opt, char *out, size_t room);
    const char *(*parse_work)(struct options *opt, const char *text); /* NULL, or what is wrong */
    const char *host, *ib_dev, *bind; /* NULL: not given; a server has no host */
    uint64_t ib_port, gid_idx, mtu;   /* 0, GID_CHOOSE, 0: not given; mtu in bytes */
    uint64_t sl, traffic_class;       /* of the address vector, ibv_modify_qp(3) */
    uint64_t pkey_idx;                /* index of the queue pair's partition key */
    uint64_t tcp_port, verbose;
    int listener; /* -1: rendezvous_open keeps the listening socket here for the next client */
};

/* Parses the command line into opt and the variables that rows point to; these hold the defaults.
 * rows: the sample's options, the servers' last; an empty row ends them. May exit (0 or 2). */
void parse_options(struct options *opt, const struct option_row *rows, int argc, char **argv);

/* Digits with an optional suffix K (1024) or M (1024 K), from min to max; else returns false. */
bool parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *out);
