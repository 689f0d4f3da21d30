/* SPDX-License-Identifier: BSD-2-Clause */
#pragma once

#include "options.h"

#include <infiniband/verbs.h>

/* The port that a sample sends through. */
struct port {
    const struct options *opt; /* sl, traffic_class */
    const char *device;        /* its device's name */
    uint8_t num;               /* from 1 */
    uint16_t lid;              /* InfiniBand address; 0 on Ethernet */
    uint32_t mtu;              /* largest path MTU to offer, bytes: the active one, or --mtu */
    bool global;               /* addressed by GID (always on RoCE), not by LID alone */
    uint8_t gid_index;         /* of gid in the port's GID table, if global */
    union ibv_gid gid;         /* zero if not global */
};

/* Opens a device and chooses a port: the ACTIVE one with a RoCE v2 GID that is the local address
 * of sock, the connection. If there is none, it takes the first usable port and says so (on RoCE a
 * port with a GID that is not link-local). opt can name device, port and GID. A device that does
 * not answer is skipped with a warning. Exits if none is left. Close with ibv_close_device. */
struct ibv_context *open_device(const struct options *opt, int sock, struct port *port);
