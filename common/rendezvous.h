/*
 * The rendezvous: over a TCP connection the two processes swap what neither can guess
 * of the other, and later tell each other how far they have got.
 *
 * Everything is text, so that nc and tcpdump can show it. A line is ASCII, at most 1024
 * bytes with its '\n'. The client sends its endpoint; the server checks it, and only
 * then answers with its own:
 *
 *   hello-verbs/1 sample=03_read lid=0x0000 qpn=0x000011 psn=0x3a5f10
 *   gid=0000:0000:0000:0000:0000:ffff:0a00:0001 mtu=1024 addr=0x00005581e0a2b000
 *   rkey=0x000002a1 len=4096 size=4096 iters=1 seed=1 timeout=30 digest=0x0
 *
 * (in one line). Fields come in any order, one space between; unknown ones are ignored,
 * missing, repeated and malformed ones refused. Numbers with 0x are hex, others decimal.
 * Samples 05 to 07 have these fields too:
 *
 *   block_size=4096 block_num=64 stride=8192 method=sgl max_sge=32 rd_atomic=0
 *   depth=0 sizes=none
 *
 * A server that refuses answers  hello-verbs/1 error="reason"  and goes on listening.
 *
 * After that each step is a barrier: both send "sync STEP" and wait for the same line.
 * Last, both send "verdict PASS" or "verdict FAIL".
 */
#ifndef HV_RENDEZVOUS_H
#define HV_RENDEZVOUS_H

#include "options.h"

#include <infiniband/verbs.h>

#define LINE_SIZE 1024 /* longest line, with its '\n' */

/* What one side tells the other of its end of the connection. */
struct endpoint {
    char sample[32];
    uint16_t lid; /* InfiniBand address of the port; 0 on Ethernet */
    uint32_t qpn; /* queue pair number, 24 bits */
    uint32_t psn; /* packet sequence number that this side's sending starts at, 24 bits */
    union ibv_gid gid; /* address of the port; zero where LIDs are used */
    uint32_t mtu;      /* largest path MTU that this side's port can take, bytes */

    /* the memory that the peer may reach, all zero where there is none */
    uint64_t addr;
    uint32_t rkey;
    uint64_t len;

    /* the workload: the client's wish, which the server repeats */
    uint64_t size;    /* bytes in a message */
    uint32_t iters;   /* times that the verb is repeated */
    uint64_t seed;    /* of the test data */
    uint32_t timeout; /* seconds that each step may take */
    uint64_t digest;  /* 01: of the text, so that the server can verify it; else 0 */

    /* 05 to 07: where the message's bytes lie, and how they are to be moved */
    uint64_t block_size, block_num, stride;
    char method[8];     /* sgl, copy, each or auto */
    uint32_t rd_atomic; /* READs that this side answers at a time */
    uint32_t max_sge;   /* SGEs that a work request of this side can have */
    uint32_t depth;     /* messages in flight when bandwidth is measured; 0: no --bench */
    char sizes[128];    /* bytes of the messages to measure; none: no --bench */
};

/* A connection to the peer. */
struct rendezvous {
    int fd;
    const char *sample;
    const struct options *opt;
    char line[LINE_SIZE]; /* bytes received and not yet used */
    size_t have;
};

/*
 * Meets the peer. The client connects to opt->host, trying for 5 s while nobody listens
 * there. The server listens until a client's line passes the check: same version, same
 * sample, every field in its range. Others get an error line and are closed; so, without
 * a line, is the one that has kept silent longest when too many come. The server
 * then holds that client's line in *peer and its workload in *opt.
 * Dies if that can't be had in time (server: 600 s, or -t where given).
 * opt and sample must outlive rv.
 */
void rendezvous_open(struct rendezvous *rv, struct options *opt, const char *sample,
                     struct endpoint *peer);

/* The swap: adds sample and workload to *mine and sends it; on the client receives and
 * checks *peer. Dies if the server refuses, or what it sends is no valid line of the same
 * sample and workload. */
void rendezvous_swap(struct rendezvous *rv, struct endpoint *mine, struct endpoint *peer);

/* A barrier: returns when both sides have called it with the same step. Dies when the
 * peer closes the connection, sends anything else or nothing in time. */
void rendezvous_sync(struct rendezvous *rv, const char *step);

/* Swaps the verdicts and closes the connection. Returns true if both sides passed. */
bool rendezvous_verdict(struct rendezvous *rv, bool pass);

/* A first packet sequence number: 24 random bits, so that packets of an older connection
 * of the same QPN don't fit (IBTA 9.7.1). Dies if the kernel has none. */
uint32_t random_psn(void);

/* For the tests. Writes the line with its '\n' into out and returns its length. */
size_t format_endpoint(const struct endpoint *ep, char out[LINE_SIZE]);

/* Reads a line without its '\n', len bytes at line. Returns NULL and fills *ep, or the
 * reason why the line is refused (valid until the next call). */
const char *parse_endpoint(const char *line, size_t len, const char *sample,
                           struct endpoint *ep);

#endif
