/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "device.h"
#include "report.h"

#include <arpa/inet.h>
#include <sys/socket.h>

static const union ibv_gid ipv4_mapped = {.raw = {[10] = 0xff, 0xff}};

/* The socket's own address in the form of a GID. */
static union ibv_gid local_address(int sock) {
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof(addr);
    union ibv_gid gid = ipv4_mapped;
    if (getsockname(sock, (struct sockaddr *)&addr, &len) != 0) die(errno, "getsockname");
    if (addr.ss_family == AF_INET6)
        memcpy(gid.raw, &((struct sockaddr_in6 *)&addr)->sin6_addr, 16);
    else
        memcpy(gid.raw + 12, &((struct sockaddr_in *)&addr)->sin_addr, 4);
    return gid;
}

/* How well a GID serves: 3 it is the local address, 2 IPv4-mapped, 1 not link-local. */
static int rank_gid(const struct ibv_gid_entry *entry, const union ibv_gid *local) {
    const uint8_t *raw = entry->gid.raw;
    if (entry->gid_type != IBV_GID_TYPE_ROCE_V2) return 0;
    if (memcmp(raw, local->raw, 16) == 0) return 3;
    if (memcmp(raw, ipv4_mapped.raw, 12) == 0) return 2;
    return raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80 ? 0 : 1;
}

/* Fills *port for port num of ctx. Returns how well it serves: the rank of its best GID, or
 * at least 1 if it needs none (InfiniBand) or -g names one. */
static int rank_port(struct ibv_context *ctx, unsigned num, const struct options *opt,
                     const union ibv_gid *local, struct port *port) {
    static struct ibv_gid_entry gids[2000]; /* of all ports; the call takes 64 KiB */
    const char *name = ibv_get_device_name(ctx->device);
    struct ibv_port_attr attr;
    ssize_t count = -ibv_query_port(ctx, (uint8_t)num, &attr);
    if (count == 0 && attr.state != IBV_PORT_ACTIVE) return 0;
    if (count == 0) count = ibv_query_gid_table(ctx, gids, 2000, 0);
    if (!expect(count >= 0, "warning: %s passed over: %s", name, strerror((int)-count))) return 0;
    const bool ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
    int best = !ethernet || opt->gid_idx != GID_CHOOSE, newer = 0;
    *port = (struct port){.opt = opt, .device = name, .num = (uint8_t)num, .lid = attr.lid};
    port->mtu = 128u << attr.active_mtu;
    port->global = ethernet || (attr.flags & IBV_QPF_GRH_REQUIRED);
    for (ssize_t i = 0; i < count; i++) {
        const int rank = gids[i].port_num == num ? rank_gid(&gids[i], local) : 0;
        newer += gids[i].port_num == num && gids[i].gid_type != IBV_GID_TYPE_ROCE_V1;
        if (rank <= best) continue;
        best = rank;
        port->gid_index = (uint8_t)gids[i].gid_index;
    }
    expect(best || newer, "warning: %s, port %u, has RoCE v1 GIDs only", name, num);
    return best;
}

struct ibv_context *open_device(const struct options *opt, int sock, struct port *port) {
    const union ibv_gid local = local_address(sock);
    struct ibv_device **list = ibv_get_device_list(NULL), *device = NULL;
    struct ibv_gid_entry entry = {0};
    char text[INET6_ADDRSTRLEN];
    int best = 0;
    for (int i = 0; list && list[i] && best < 3; i++) {
        struct ibv_device_attr attr = {0};
        struct port candidate;
        const char *name = ibv_get_device_name(list[i]);
        if (opt->ib_dev && strcmp(opt->ib_dev, name) != 0) continue;
        if (list[i]->transport_type != IBV_TRANSPORT_IB) continue; /* RoCE counts as IB, too */
        struct ibv_context *ctx = ibv_open_device(list[i]);
        const int err = ctx ? ibv_query_device(ctx, &attr) : errno;
        expect(!err, "warning: %s passed over: %s", name, strerror(err));
        for (unsigned n = 1; n <= attr.phys_port_cnt; n++) {
            const bool wanted = !opt->ib_port || opt->ib_port == n;
            const int rank = wanted ? rank_port(ctx, n, opt, &local, &candidate) : 0;
            if (rank <= best) continue;
            best = rank;
            device = list[i];
            *port = candidate;
        }
        if (ctx) check(ibv_close_device(ctx), "ibv_close_device");
    }
    if (!device)
        die(0, "no ACTIVE port with a usable GID on %s", opt->ib_dev ? opt->ib_dev : "any device");
    struct ibv_context *ctx = ibv_open_device(device);
    if (!ctx) die(errno, "ibv_open_device");
    ibv_free_device_list(list); /* not before the device is open */
    if (opt->gid_idx != GID_CHOOSE) port->gid_index = (uint8_t)opt->gid_idx, port->global = true;
    if (port->global)
        check(ibv_query_gid_ex(ctx, port->num, port->gid_index, &entry, 0), "no such GID index");
    port->gid = entry.gid;
    if (opt->mtu > port->mtu) die(0, "path MTU %ju is above the port's, %u", opt->mtu, port->mtu);
    if (opt->mtu) port->mtu = (uint32_t)opt->mtu;
    inet_ntop(AF_INET6, &port->gid, text, sizeof(text));
    printf("device %s, port %u, ", port->device, port->num);
    if (port->global) printf("GID index %u (%s), ", port->gid_index, text);
    if (!port->global) printf("LID %u, ", port->lid);
    printf("MTU %u\n", port->mtu);
    if (best < 3)
        printf("(no port has this connection's address, %s: the first usable one is taken)\n",
               inet_ntop(AF_INET6, &local, text, sizeof(text)));
    return ctx;
}
