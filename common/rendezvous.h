/* SPDX-License-Identifier: BSD-2-Clause */
/* The rendezvous. On one TCP connection the two processes exchange what they cannot know about each
 * other, and wait for each other, in lines of printable ASCII: at most 1024 bytes with their '\n'.
 * 1. The client sends its line (shown here as three). The server checks it, and then sends its own.
 *      hello-verbs/2 sample=03_read lid=0x0000 qpn=0x000011 psn=0x3a5f10 gid=::ffff:10.0.0.1
 *      mtu=1024 addr=0x5581e0a2b000 rkey=0x2a1 len=4096 max_sge=32 rd_atomic=16
 *      work=size=4096,iters=1,seed=1,timeout=30
 *    All fields are there, in this order, with one space between. After 0x come hexadecimal digits,
 *    at most 4 (lid), 6 (qpn, psn), 8 (rkey) or 16 (addr); other numbers are decimal, without sign
 *    or leading zero. gid is as inet_ntop(3) prints it; :: if both sides use LIDs. mtu and len are
 *    bytes. addr, rkey and len say which memory the peer may access (the NIC checks it); 0: none.
 *    max_sge: SGEs that a work request of this side can have, at least 1. rd_atomic: READs and
 *    atomics that this side answers at a time. work, to the end of the line: what the client asks
 *    for within the limits of options.h (all but seed are at least 1), which the server repeats;
 *    each sample's head comment lists it. A server that refuses sends  hello-verbs/2 error=REASON
 *    and reads the next client's line (within 2 s).
 * 2. Barriers: each side sends  sync STEP  when it gets there, and waits for the same line from
 *    the other. All samples have  sync ready  (this side is in RTS, its receives are posted, its
 *    memory is prepared) and  sync done  (its verbs have completed). After a = they may differ.
 * 3. Last, each side sends  verdict PASS  or  verdict FAIL. */
#pragma once

#include "options.h"

#include <infiniband/verbs.h>

/* What one side's line contains. */
struct endpoint {
    uint32_t lid, qpn, psn, mtu, rkey, max_sge, rd_atomic;
    uint64_t addr, len;
    union ibv_gid gid;
};

enum { LINE_SIZE = 1024 };
struct rendezvous {
    int fd; /* the TCP connection; on a client, before it connects, a UDP socket to the server */
    struct options *opt;
    char line[LINE_SIZE + 1]; /* the last line received */
    const char *work;         /* what follows work= in that line */
    uint64_t timeout;         /* opt->timeout before that line; rendezvous_refuse() restores it */
};

/* Exits with 77, before it waits, if there is no RDMA device (or none of the name in --ib-dev). A
 * server waits (600 s, or --timeout; for further clients the first one's) for a client whose line
 * it accepts. It stores that line in *peer and its work= in *opt. A client finds its local address
 * on the route to opt->host (to the first address, if there are several). open_device() needs this
 * address. */
void rendezvous_open(struct rendezvous *tcp, struct options *opt, struct endpoint *peer);

/* For a server that has other clients: sends the reason to this one and closes the connection. So
 * it must come before rendezvous_swap(). The next client may take its place. */
void rendezvous_refuse(struct rendezvous *tcp, const char *reason);

/* Sends *mine. A client first connects (it tries for 5 s while nobody listens there). Afterwards it
 * receives *peer, and exits if the server refuses, or sends a wrong line. Then peer->mtu is the
 * smaller of both sides' MTUs. Returns false, on a server, if the client has gone; a server with
 * one client learns that at the first barrier, too. */
bool rendezvous_swap(struct rendezvous *tcp, const struct endpoint *mine, struct endpoint *peer);

/* A barrier. Exits if the peer closes, sends another line, or sends nothing for opt->timeout s. */
void rendezvous_sync(struct rendezvous *tcp, const char *step);
/* The same for a program that goes on with another connection: returns false where that exits. */
bool rendezvous_try_sync(struct rendezvous *tcp, const char *step);
/* Exchanges the verdicts and closes the connection. Returns true if both sides passed. */
bool rendezvous_verdict(struct rendezvous *tcp, bool pass);

/* 24 random bits, so that a QP rejects packets of an old connection of its QPN. */
uint32_t random_psn(void);
double now(void); /* seconds, CLOCK_MONOTONIC */
