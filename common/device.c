/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "device.h"
#include "report.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <sys/socket.h>

/* How well a port serves: the best GID that it has, or ANY if it needs none (InfiniBand). */
enum rank { NONE, ANY, IPV4_MAPPED, OF_THE_CONNECTION };

/* What the search looks for, and what it finds. */
struct search {
    const struct options *opt;
    union ibv_gid address, ipoib; /* of the connection; ipoib: zero if it is not over IPoIB */
    bool loopback, quiet;
    enum rank best;
    struct ibv_device *device;
    struct port port;
    char others[200]; /* InfiniBand ports that serve as well as the best one, by name */
    const char *iwarp;
};

static const union ibv_gid ipv4_mapped = {.raw = {[10] = 0xff, 0xff}};

/* An IP address in the form of a GID. */
static union ibv_gid as_gid(const struct sockaddr *addr) {
    union ibv_gid gid = ipv4_mapped;
    if (addr->sa_family == AF_INET6)
        memcpy(gid.raw, &((const struct sockaddr_in6 *)addr)->sin6_addr, 16);
    else
        memcpy(gid.raw + 12, &((const struct sockaddr_in *)addr)->sin_addr, 4);
    return gid;
}

/* The hardware address of an IPoIB interface has 20 bytes; the last 16 are its port's GID (RFC
 * 4391, 9.1.1). Returns zero for other interfaces. */
static union ibv_gid gid_of_interface(const char *name) {
    char path[64], text[64] = "";
    union ibv_gid gid = {0};
    snprintf(path, sizeof(path), "/sys/class/net/%s/address", name);
    FILE *file = fopen(path, "r");
    if (!file) return gid;
    if (fgets(text, sizeof(text), file) && strlen(text) >= 20 * 3 - 1)
        for (int i = 0; i < 16; i++) gid.raw[i] = (uint8_t)strtoul(text + (4 + i) * 3, NULL, 16);
    fclose(file);
    return gid;
}

/* Stores the socket's own address, and the GID of the IPoIB interface that has it, if one has. */
static void local_address(int sock, struct search *s) {
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof(addr);
    struct ifaddrs *list = NULL;
    if (getsockname(sock, (struct sockaddr *)&addr, &len) != 0) die(errno, "getsockname");
    s->address = as_gid((struct sockaddr *)&addr);
    s->loopback = (memcmp(s->address.raw, ipv4_mapped.raw, 12) == 0 && s->address.raw[12] == 127) ||
                  memcmp(s->address.raw, &in6addr_loopback, 16) == 0;
    if (getifaddrs(&list) != 0) return;
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        if (!i->ifa_addr) continue;
        if (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6) continue;
        const union ibv_gid gid = as_gid(i->ifa_addr);
        if (memcmp(gid.raw, s->address.raw, 16) == 0) s->ipoib = gid_of_interface(i->ifa_name);
    }
    freeifaddrs(list);
}

static enum rank rank_gid(const struct ibv_gid_entry *entry, const struct search *s) {
    const uint8_t *raw = entry->gid.raw;
    if (entry->gid_index > UINT8_MAX) return NONE; /* sgid_index has 8 bits */
    if (entry->gid_type == IBV_GID_TYPE_IB)
        return has_gid(&s->ipoib) && memcmp(raw, s->ipoib.raw, 16) == 0 ? OF_THE_CONNECTION : NONE;
    if (entry->gid_type != IBV_GID_TYPE_ROCE_V2) return NONE;
    if (memcmp(raw, s->address.raw, 16) == 0) return OF_THE_CONNECTION;
    if (memcmp(raw, ipv4_mapped.raw, 12) == 0) return IPV4_MAPPED;
    return raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80 ? NONE : ANY; /* fe80::/10: link-local */
}

/* Fills *port for port num of ctx. Returns how well it serves: with -g, ANY at least. */
static enum rank rank_port(struct ibv_context *ctx, unsigned num, const struct search *s,
                           struct port *port) {
    static struct ibv_gid_entry gids[2000]; /* of all ports; the call takes 64 KiB */
    const char *name = ibv_get_device_name(ctx->device);
    struct ibv_port_attr attr;
    ssize_t count = -ibv_query_port(ctx, (uint8_t)num, &attr);
    if (count == 0 && attr.state != IBV_PORT_ACTIVE) return NONE;
    if (count == 0) count = ibv_query_gid_table(ctx, gids, 2000, 0);
    if (count < 0) {
        expect(s->quiet, "warning: %s passed over: %s", name, strerror((int)-count));
        return NONE;
    }
    const bool ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
    enum rank best = !ethernet || s->opt->gid_idx != GID_CHOOSE ? ANY : NONE;
    int v1 = 0, all = 0;
    *port = (struct port){.opt = s->opt, .device = name, .num = (uint8_t)num, .lid = attr.lid};
    port->mtu = 128u << attr.active_mtu;
    port->global = ethernet || (attr.flags & IBV_QPF_GRH_REQUIRED);
    for (ssize_t i = 0; i < count; i++) {
        if (gids[i].port_num != num) continue;
        const enum rank rank = rank_gid(&gids[i], s);
        all++;
        if (gids[i].gid_type == IBV_GID_TYPE_ROCE_V1) v1++;
        if (rank <= best) continue;
        best = rank;
        port->gid_index = (uint8_t)gids[i].gid_index;
    }
    if (best == NONE && all == 0)
        expect(s->quiet, "warning: %s, port %u, has no GID: is its interface up?", name, num);
    if (best == NONE && all > 0 && v1 == all)
        expect(s->quiet, "warning: %s, port %u, has RoCE v1 GIDs only", name, num);
    return best;
}

/* Looks at the ports of a device for a better one. */
static void search_device(struct ibv_device *device, struct search *s) {
    const char *name = ibv_get_device_name(device);
    struct ibv_device_attr attr = {0};
    struct ibv_context *ctx = ibv_open_device(device);
    const int err = ctx ? ibv_query_device(ctx, &attr) : errno;
    expect(!err || s->quiet, "warning: %s passed over: %s", name, strerror(err));
    for (unsigned num = 1; num <= attr.phys_port_cnt; num++) {
        struct port port;
        if (s->opt->ib_port && s->opt->ib_port != num) continue;
        const enum rank rank = rank_port(ctx, num, s, &port);
        const size_t used = strlen(s->others);
        if (rank == s->best && rank == ANY && !port.global)
            snprintf(s->others + used, sizeof(s->others) - used, ", %s port %u", name, num);
        if (rank <= s->best) continue;
        s->best = rank;
        s->device = device;
        s->port = port;
        s->others[0] = '\0';
    }
    if (ctx) check(ibv_close_device(ctx), "ibv_close_device");
}

static void search_devices(struct ibv_device **list, struct search *s) {
    for (int i = 0; list && list[i] && s->best < OF_THE_CONNECTION; i++) {
        const char *name = ibv_get_device_name(list[i]);
        if (s->opt->ib_dev && strcmp(s->opt->ib_dev, name) != 0) continue;
        if (list[i]->transport_type == IBV_TRANSPORT_IWARP) s->iwarp = name;
        if (list[i]->transport_type == IBV_TRANSPORT_IB) search_device(list[i], s); /* RoCE, too */
    }
}

/* Stores the port's GID, and what the command line says of the port. */
static void finish_port(struct ibv_context *ctx, const struct options *opt, struct port *port) {
    struct ibv_gid_entry entry = {0};
    if (opt->gid_idx != GID_CHOOSE) {
        port->gid_index = (uint8_t)opt->gid_idx;
        port->global = true;
    }
    if (port->global)
        check(ibv_query_gid_ex(ctx, port->num, port->gid_index, &entry, 0), "no such GID index");
    port->gid = entry.gid;
    if (opt->mtu > port->mtu) die(0, "path MTU %ju is above the port's, %u", opt->mtu, port->mtu);
    if (opt->mtu) port->mtu = (uint32_t)opt->mtu;
}

static void print_port(const struct port *port, const struct search *s) {
    char text[INET6_ADDRSTRLEN];
    inet_ntop(AF_INET6, &port->gid, text, sizeof(text));
    printf("device %s, port %u, ", port->device, port->num);
    if (port->global) printf("GID index %u (%s), ", port->gid_index, text);
    if (!port->global) printf("LID %u, ", port->lid);
    printf("MTU %u\n", port->mtu);
    if (s->best < OF_THE_CONNECTION)
        printf("(no port has this connection's address, %s: the first usable one is taken)\n",
               inet_ntop(AF_INET6, &s->address, text, sizeof(text)));
}

bool has_gid(const union ibv_gid *gid) {
    return gid->global.subnet_prefix || gid->global.interface_id;
}

bool gid_fits(const struct options *opt, int sock, const union ibv_gid *peer) {
    struct search s = {.opt = opt, .quiet = true};
    struct ibv_device **list = ibv_get_device_list(NULL);
    local_address(sock, &s);
    search_devices(list, &s);
    if (list) ibv_free_device_list(list);
    const bool global = s.port.global || opt->gid_idx != GID_CHOOSE;
    return !s.device || global == has_gid(peer);
}

struct ibv_context *open_device(const struct options *opt, int sock, struct port *port) {
    struct search s = {.opt = opt};
    struct ibv_device **list = ibv_get_device_list(NULL);
    local_address(sock, &s);
    search_devices(list, &s);
    if (!s.device && s.iwarp)
        die(0, "no ACTIVE port: %s is iWARP, which needs the connection manager: 11_rdma_cm",
            s.iwarp);
    if (!s.device)
        die(0, "no ACTIVE port with a usable GID on %s", opt->ib_dev ? opt->ib_dev : "any device");
    if (s.others[0] && !s.loopback &&
        opt->gid_idx == GID_CHOOSE) /* they may be different fabrics */
        die(0, "which port? No one has the connection's address: -d, -i of %s port %u%s",
            s.port.device, s.port.num, s.others);
    struct ibv_context *ctx = ibv_open_device(s.device);
    if (!ctx) die(errno, "ibv_open_device");
    ibv_free_device_list(list); /* not before the device is open */
    finish_port(ctx, opt, &s.port);
    print_port(&s.port, &s);
    *port = s.port;
    return ctx;
}
