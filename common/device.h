/*
 * Which device, port and address to use, so that no option is needed on Soft-RoCE, RoCE
 * and InfiniBand.
 */
#ifndef HV_DEVICE_H
#define HV_DEVICE_H

#include "options.h"

#include <infiniband/verbs.h>

/* The port that a sample sends through. */
struct port {
    const char *device;        /* its device's name */
    uint8_t num;               /* from 1 */
    struct ibv_port_attr attr; /* state, LID, active MTU: ibv_query_port(3) */
    bool global;               /* addressed by GID (always on RoCE), else by LID alone */
    uint8_t gid_index;         /* into the port's GID table, where global */
    union ibv_gid gid;         /* the address at gid_index, zero where not global */
    unsigned mtu;              /* largest path MTU to offer, bytes */
};

/*
 * Opens the first device that has an ACTIVE port, or the one that opt names, and fills
 * port but for the GID. Others than InfiniBand and RoCE are passed over: iWARP connects
 * by rdma_cm alone. Exits 77 where there is no device of these kinds at all; dies where
 * the one named isn't there or no port is ACTIVE. Close the result with ibv_close_device.
 */
struct ibv_context *open_device(const struct options *opt, struct port *port);

/*
 * Chooses the port's GID: opt->gid_idx where given. Else on Ethernet, of the RoCE v2
 * GIDs: the one that is the local address of the TCP connection sock, or else the first
 * IPv4-mapped one, or else the first that isn't link-local. (Index 0 is a link-local
 * IPv6 address on most machines, from which no IPv4 one is reached.) On InfiniBand none:
 * the LID serves. Prints what was chosen. Dies if there is none.
 */
void choose_gid(const struct options *opt, struct ibv_context *ctx, int sock,
                struct port *port);

/* Path MTU in bytes to its enum, 256 to 4096, and back (ibv_query_port(3)). */
enum ibv_mtu mtu_to_enum(unsigned bytes);
unsigned mtu_to_bytes(enum ibv_mtu mtu);

/* For choose_gid and its tests: the index into table of the best entry, -1 if none;
 * local is the TCP connection's own address as a GID. */
int best_gid(const struct ibv_gid_entry *table, int count, uint32_t port_num,
             const union ibv_gid *local);

/* How often something had to be repeated at this port since the device came up: the sum
 * of the kernel's counters that tell so (rdma-statistic(8)), some of which count packets
 * and some attempts; 0 where it has none. */
uint64_t repeated_packets(const struct port *port);

#endif
