/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "device.h"
#include "report.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <sys/socket.h>

static const union ibv_gid ipv4_mapped = {.raw = {[10] = 0xff, 0xff}};

/* How well a GID or a port serves. MATCH: it belongs to the connection. */
enum rank { USELESS, USABLE, IPV4, MATCH };

/* What a device is chosen by, and the best port that has been found. */
struct search {
    const struct options *opt;
    union ibv_gid local; /* this side's address of the connection */
    uint64_t guid;       /* of the InfiniBand port with this address; 0: none */
    bool quiet;          /* no warnings: they come when the device is opened */
    struct ibv_device *device;
    struct port port;
    enum rank rank;
    bool infiniband;  /* one of the usable ports is on InfiniBand */
    unsigned usable;  /* how many there are */
    char names[1000]; /* and which */
};

/* An IP address in the form of a GID. */
static union ibv_gid as_gid(const struct sockaddr *addr) {
    union ibv_gid gid = ipv4_mapped;
    if (addr->sa_family == AF_INET6)
        memcpy(gid.raw, &((const struct sockaddr_in6 *)addr)->sin6_addr, 16);
    else
        memcpy(gid.raw + 12, &((const struct sockaddr_in *)addr)->sin_addr, 4);
    return gid;
}

static bool is_loopback(const union ibv_gid *address) {
    const union ibv_gid one = {.raw = {[15] = 1}};
    return memcmp(address, &one, 16) == 0 ||
           (memcmp(address, &ipv4_mapped, 12) == 0 && address->raw[12] == 127);
}

/* The GUID of the InfiniBand port under an IPoIB interface; 0 for other interfaces. The hardware
 * address of IPoIB has 20 bytes: flags and QPN (4), then the port's GID, which ends with the GUID
 * (RFC 4391, section 9.1.1). */
static uint64_t port_guid(const char *interface) {
    char path[100], text[100] = "";
    union ibv_gid gid = {.raw = {0}};
    const int name = (int)strcspn(interface, ":"); /* without the label of an address */
    snprintf(path, sizeof(path), "/sys/class/net/%.*s/address", name, interface);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    const bool is_ipoib = fgets(text, sizeof(text), file) && strlen(text) == 20 * strlen("00:");
    fclose(file);
    for (int i = 0; is_ipoib && i < 16; i++)
        if (sscanf(text + (4 + i) * 3, "%2hhx", &gid.raw[i]) != 1) return 0;
    return gid.global.interface_id;
}

/* The GUID of the InfiniBand port whose IPoIB interface has this address, or 0. */
static uint64_t guid_of_address(const union ibv_gid *address) {
    struct ifaddrs *list;
    uint64_t guid = 0;
    if (getifaddrs(&list) != 0) die(errno, "getifaddrs");
    for (const struct ifaddrs *a = list; a && guid == 0; a = a->ifa_next) {
        if (!a->ifa_addr) continue;
        if (a->ifa_addr->sa_family != AF_INET && a->ifa_addr->sa_family != AF_INET6) continue;
        const union ibv_gid gid = as_gid(a->ifa_addr);
        if (memcmp(&gid, address, 16) == 0) guid = port_guid(a->ifa_name);
    }
    freeifaddrs(list);
    return guid;
}

static enum rank rank_gid(const struct ibv_gid_entry *entry, const struct search *search) {
    const uint8_t *raw = entry->gid.raw;
    if (entry->gid_type == IBV_GID_TYPE_IB)
        return search->guid && entry->gid.global.interface_id == search->guid ? MATCH : USELESS;
    if (entry->gid_type != IBV_GID_TYPE_ROCE_V2) return USELESS;
    if (memcmp(raw, search->local.raw, 16) == 0) return MATCH;
    if (memcmp(raw, ipv4_mapped.raw, 12) == 0) return IPV4;
    const bool is_link_local = raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80;
    return is_link_local ? USELESS : USABLE;
}

/* Takes the best GID of a port from the device's table. Returns its rank, or that of the port,
 * if it needs none (InfiniBand) or -g names one. */
static enum rank choose_gid(struct port *port, bool ethernet, const struct search *search,
                            const struct ibv_gid_entry *gids, ssize_t count) {
    const bool needs_none = !ethernet || search->opt->gid_idx != GID_CHOOSE;
    enum rank best = needs_none ? USABLE : USELESS;
    const char *lack = "no GIDs";
    for (ssize_t i = 0; i < count; i++) {
        if (gids[i].port_num != port->num) continue;
        const enum rank rank = rank_gid(&gids[i], search);
        const bool fits = gids[i].gid_index <= UINT8_MAX; /* grh.sgid_index has 8 bits */
        expect(fits || rank < MATCH || search->quiet,
               "warning: %s: GID index %u is above 255, and cannot be used", port->device,
               gids[i].gid_index);
        if (gids[i].gid_type == IBV_GID_TYPE_ROCE_V2)
            lack = "no GIDs but link-local ones";
        else if (strcmp(lack, "no GIDs") == 0)
            lack = "RoCE v1 GIDs only";
        if (!fits || rank <= best) continue;
        best = rank;
        port->gid_index = (uint8_t)gids[i].gid_index;
    }
    expect(best > USELESS || search->quiet, "warning: %s, port %u, has %s", port->device, port->num,
           lack);
    return best;
}

/* Looks at port num of ctx, and keeps it in *search if it is better than those before. */
static void look_at_port(struct ibv_context *ctx, unsigned num, struct search *search) {
    static struct ibv_gid_entry gids[2000]; /* of all ports; the call takes 64 KiB */
    const char *name = ibv_get_device_name(ctx->device);
    struct ibv_port_attr attr;
    ssize_t count = -abs(ibv_query_port(ctx, (uint8_t)num, &attr));
    if (count == 0 && attr.state != IBV_PORT_ACTIVE) return;
    if (count == 0) count = ibv_query_gid_table(ctx, gids, 2000, 0);
    expect(count >= 0 || search->quiet, "warning: %s passed over: %s", name, strerror((int)-count));
    if (count < 0) return;

    const bool ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
    struct port port = {
        .opt = search->opt,
        .device = name,
        .num = (uint8_t)num,
        .lid = attr.lid,
        .mtu = 128u << attr.active_mtu,
        .global = ethernet || (attr.flags & IBV_QPF_GRH_REQUIRED),
    };
    const enum rank rank = choose_gid(&port, ethernet, search, gids, count);
    if (rank == USELESS) return;
    const size_t used = strlen(search->names);
    snprintf(search->names + used, sizeof(search->names) - used, "%s%s port %u", used ? ", " : "",
             name, num);
    search->usable++;
    search->infiniband = search->infiniband || !ethernet;
    if (rank <= search->rank) return;
    search->rank = rank;
    search->device = ctx->device;
    search->port = port;
}

static void look_at_device(struct ibv_device *device, struct search *search) {
    const struct options *opt = search->opt;
    struct ibv_device_attr attr = {0};
    errno = ENODEV; /* a driver may leave it */
    struct ibv_context *ctx = ibv_open_device(device);
    const int err = ctx ? abs(ibv_query_device(ctx, &attr)) : errno;
    expect(!err || search->quiet, "warning: %s passed over: %s", ibv_get_device_name(device),
           strerror(err));
    for (unsigned num = 1; num <= attr.phys_port_cnt; num++)
        if (!opt->ib_port || opt->ib_port == num) look_at_port(ctx, num, search);
    if (ctx) check(ibv_close_device(ctx), "ibv_close_device");
}

static void search_devices(struct ibv_device **list, struct search *search) {
    const char *wanted = search->opt->ib_dev;
    for (int i = 0; list && list[i] && search->rank < MATCH; i++) {
        const char *name = ibv_get_device_name(list[i]);
        if (wanted && strcmp(wanted, name) != 0) continue;
        if (list[i]->transport_type == IBV_TRANSPORT_IB) /* RoCE counts as IB, too */
            look_at_device(list[i], search);
        else if (list[i]->transport_type == IBV_TRANSPORT_IWARP)
            expect(search->quiet, "warning: %s passed over: for iWARP take 11_rdma_cm", name);
        else
            expect(search->quiet, "warning: %s passed over: it is neither InfiniBand nor RoCE",
                   name);
    }
}

/* What to look for: what belongs to the local address of a socket. */
static struct search search_for(const struct options *opt, int sock) {
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof(addr);
    if (getsockname(sock, (struct sockaddr *)&addr, &len) != 0) die(errno, "getsockname");
    struct search search = {.opt = opt, .local = as_gid((struct sockaddr *)&addr)};
    search.guid = guid_of_address(&search.local);
    return search;
}

bool has_gid(const union ibv_gid *gid) {
    return gid->global.subnet_prefix || gid->global.interface_id;
}

bool gid_fits(const struct options *opt, int sock, const union ibv_gid *peer) {
    struct search search = search_for(opt, sock);
    struct ibv_device **list = ibv_get_device_list(NULL);
    search.quiet = true;
    search_devices(list, &search);
    if (list) ibv_free_device_list(list);
    const bool global = search.port.global || opt->gid_idx != GID_CHOOSE;
    return !search.device || global == has_gid(peer);
}

struct ibv_context *open_device(const struct options *opt, int sock, struct port *port) {
    char text[INET6_ADDRSTRLEN];
    struct search search = search_for(opt, sock);
    struct ibv_device **list = ibv_get_device_list(NULL);
    search_devices(list, &search);
    if (!search.device)
        stop(EXIT_NO_DEVICE, 0, "no ACTIVE port with a usable GID on %s",
             opt->ib_dev ? opt->ib_dev : "any device");
    inet_ntop(AF_INET6, &search.local, text, sizeof(text));
    if (search.rank < MATCH && search.usable > 1 && search.infiniband &&
        !is_loopback(&search.local))
        die(0, "which port? None has this connection's address, %s, and these are ACTIVE: %s", text,
            search.names);
    errno = ENODEV; /* if the driver returns NULL and says nothing */
    struct ibv_context *ctx = ibv_open_device(search.device);
    if (!ctx) die(errno, "ibv_open_device");
    ibv_free_device_list(list); /* not before the device is open */

    *port = search.port;
    if (opt->gid_idx != GID_CHOOSE) {
        port->gid_index = (uint8_t)opt->gid_idx;
        port->global = true;
    }
    struct ibv_gid_entry entry = {0};
    if (port->global)
        check(ibv_query_gid_ex(ctx, port->num, port->gid_index, &entry, 0), "no such GID index");
    port->gid = entry.gid;
    if (opt->mtu > port->mtu) die(0, "path MTU %ju is above the port's, %u", opt->mtu, port->mtu);
    if (opt->mtu) port->mtu = (uint32_t)opt->mtu;

    char gid[INET6_ADDRSTRLEN];
    inet_ntop(AF_INET6, &port->gid, gid, sizeof(gid));
    printf("device %s, port %u, ", port->device, port->num);
    if (port->global) printf("GID index %u (%s), ", port->gid_index, gid);
    if (!port->global) printf("LID %u, ", port->lid);
    printf("MTU %u\n", port->mtu);
    if (search.rank < MATCH)
        printf("(no port has this connection's address, %s: the first usable one is taken)\n",
               text);
    return ctx;
}
