/* SPDX-License-Identifier: BSD-2-Clause */
#pragma once

#include "options.h"

#include <infiniband/verbs.h>

/* The port that a sample sends through. */
struct port {
    const struct options *opt; /* sl, traffic_class, pkey_idx */
    const char *device;        /* its device's name */
    uint8_t num;               /* from 1 */
    uint16_t lid;              /* InfiniBand address; 0 on Ethernet */
    uint32_t mtu;              /* largest path MTU to offer, bytes: the active one, or --mtu */
    bool global;               /* addressed by GID (always on RoCE), not by LID alone */
    uint8_t gid_index;         /* of gid in the port's GID table, if global */
    union ibv_gid gid;         /* zero if not global */
};

/* Opens a device and chooses a port: the ACTIVE one that belongs to the local address of sock, the
 * connection. On RoCE it has a RoCE v2 GID that is this address; on InfiniBand it is the port of
 * the IPoIB interface with this address. If there is none, the first usable port is taken, which a
 * line says (on RoCE one with a GID that is not link-local). Of several InfiniBand ports, and a
 * connection that is not local, it cannot know which: then it exits and asks. opt can name device,
 * port and GID. A device that does not answer is skipped with a warning. Exits if none is left.
 * Close with ibv_close_device. */
struct ibv_context *open_device(const struct options *opt, int sock, struct port *port);

/* Whether a peer with this GID (zero: it has a LID alone) fits the port that open_device() would
 * choose. Also true if there is no such port: open_device() then says why. */
bool gid_fits(const struct options *opt, int sock, const union ibv_gid *peer);
bool has_gid(const union ibv_gid *gid); /* is it another one than :: */
