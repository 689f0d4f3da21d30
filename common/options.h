/*
 * The command line. Letters follow libibverbs' own examples (ibv_rc_pingpong(1)).
 */
#ifndef HV_OPTIONS_H
#define HV_OPTIONS_H

#include "layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The most that a peer may ask for: the server checks a client's wish against these
 * before it allocates anything. */
#define MAX_SIZE                                                                         \
    ((size_t)64 << 20)       /* bytes in a message. (A port names a limit too,           \
                                max_msg_sz: 2 GiB on cards. rxe says 8 MiB and           \
                                takes more, so it isn't asked.) */
#define MAX_ITERS   1000000u /* times that the verb is repeated */
#define MAX_TIMEOUT 3600u    /* seconds */
#define MAX_DEPTH   64u      /* messages in flight */

/* How long a server that got no -t waits for its client, seconds. */
#define SERVER_PATIENCE 600u

struct options {
    const char *host;     /* where the server is; NULL: this is the server */
    const char *ib_dev;   /* RDMA device; NULL: choose */
    unsigned ib_port;     /* its port, from 1; 0: choose */
    int gid_idx;          /* index into the port's GID table; -1: choose */
    const char *tcp_port; /* of the rendezvous */
    unsigned mtu;         /* largest path MTU to use, bytes; 0: the port's */
    unsigned timeout;     /* seconds that each step may take */
    bool timeout_given;
    const char *bind; /* local address of the rendezvous; NULL: any */
    bool verbose;

    /* The workload: the client's to give. The server's copy is filled in by the
     * rendezvous with what the client asked for. */
    size_t size;         /* bytes in a message */
    uint32_t iters;      /* times that the verb is repeated */
    uint64_t seed;       /* of the test data */
    const char *message; /* text to send (01) */

    /* 05 to 07 */
    struct layout layout; /* the blocks; its bytes are size */
    const char *method;   /* sgl, copy, each or auto */
    bool bench;           /* measure instead of one transfer */
    const char *sizes;    /* bytes of the messages to measure, "4K,64K" */
    uint32_t depth;       /* messages in flight when bandwidth is measured */
    const char *csv;      /* file for the figures; NULL: none */
};

/*
 * Fills opt from the command line; what opt holds already for the workload are its
 * defaults. workload names the workload options that this sample knows, from "s"
 * (--size), "n" (--iters), "S" (--seed), "M" (--message), and for a layout "B", "N", "T",
 * "I", "x", "k", "z", "D", "c" (--block-size ... --csv, see --help).
 * Calls report_as(sample, role). Exits: 0 after --help, 2 on wrong usage.
 */
void parse_options(struct options *opt, const char *sample, const char *workload,
                   int argc, char **argv);

/* A number with an optional suffix K (1024) or M (1024*1024): digits only, no sign, no
 * overflow, min to max. Returns false and leaves *out alone otherwise. */
bool parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *out);

#endif
