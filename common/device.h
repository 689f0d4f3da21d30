/* SPDX-License-Identifier: BSD-2-Clause */
#pragma once

#include "options.h"

#include <infiniband/verbs.h>

/* The port that a sample sends through. */
struct port {
    const struct options *opt; /* sl, traffic_class, pkey_idx */
    const char *device;        /* its device's name */
    uint8_t num;               /* from 1 */
    uint16_t lid;              /* InfiniBand address; without a meaning on Ethernet */
    uint32_t mtu;              /* largest path MTU to offer, bytes: the active one, or --mtu */
    bool global;               /* addressed by GID (always on RoCE), not by LID alone */
    uint8_t gid_index;         /* of gid in the port's GID table, if global */
    union ibv_gid gid;         /* zero if not global */
};

/* Opens a device and chooses a port for sock, the connection: an ACTIVE one that has its local
 * address. On RoCE the address is among the port's RoCE v2 GIDs. On InfiniBand it is the address of
 * an IPoIB interface, whose hardware address holds the port's GUID.
 * If no port has the address (TCP goes over another network, or over 127.0.0.1):
 * - It takes the first usable port, and says so. On RoCE that is one with a GID that is not
 *   link-local; IPv4 addresses come first.
 * - It exits and lists the ports if there are several, one of them on InfiniBand, and the peer may
 *   be another machine: the ports may be on different fabrics.
 * opt can name device, port and GID. A device that does not answer is skipped with a warning, as
 * is one that only rdma_cm can connect (iWARP), and a GID with an index above 255, which an address
 * vector cannot hold. Exits if no port is left. Close with ibv_close_device. */
struct ibv_context *open_device(const struct options *opt, int sock, struct port *port);

/* Whether a peer with this GID (zero: it has a LID alone) fits the port that open_device() would
 * choose. Also true if there is no such port: open_device() then says why. */
bool gid_fits(const struct options *opt, int sock, const union ibv_gid *peer);
bool has_gid(const union ibv_gid *gid); /* is it another one than :: */
