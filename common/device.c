#define _GNU_SOURCE
#include "device.h"

#include "report.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum ibv_mtu mtu_to_enum(unsigned bytes)
{
    return bytes >= 4096   ? IBV_MTU_4096
           : bytes >= 2048 ? IBV_MTU_2048
           : bytes >= 1024 ? IBV_MTU_1024
           : bytes >= 512  ? IBV_MTU_512
                           : IBV_MTU_256;
}

unsigned mtu_to_bytes(enum ibv_mtu mtu)
{
    return 128u << mtu; /* IBV_MTU_256 is 1 */
}

/* The first ACTIVE port of ctx, or opt->ib_port. Returns false if it isn't ACTIVE. */
static bool find_port(const struct options *opt, struct ibv_context *ctx,
                      struct port *port)
{
    const char *name = ibv_get_device_name(ctx->device);
    struct ibv_device_attr attr;

    check(ibv_query_device(ctx, &attr), "ibv_query_device");
    if (opt->ib_port > attr.phys_port_cnt && !opt->ib_dev)
        return false; /* another device may have it */
    if (opt->ib_port > attr.phys_port_cnt)
        die(0, "port %u: %s has ports 1 to %u", opt->ib_port, name, attr.phys_port_cnt);
    unsigned first = opt->ib_port ? opt->ib_port : 1;
    unsigned last = opt->ib_port ? opt->ib_port : attr.phys_port_cnt;
    for (unsigned n = first; n <= last; n++) {
        port->num = (uint8_t)n;
        check(ibv_query_port(ctx, port->num, &port->attr), "ibv_query_port");
        if (port->attr.state == IBV_PORT_ACTIVE)
            return true;
    }
    return false;
}

struct ibv_context *open_device(const struct options *opt, struct port *port)
{
    int count = 0, refused = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    struct ibv_context *found = NULL;
    bool named = false, usable = false;

    if (!list || count == 0)
        die_no_device("no RDMA device here%s%s", list ? "" : ": ",
                      list ? "" : strerror(errno));

    for (int i = 0; i < count && !found; i++) {
        bool wanted = opt->ib_dev && !strcmp(opt->ib_dev, ibv_get_device_name(list[i]));
        named = named || wanted;
        if (opt->ib_dev && !wanted)
            continue;
        if (list[i]->transport_type != IBV_TRANSPORT_IB) /* RoCE counts as IB, too */
            continue;
        usable = true;
        struct ibv_context *ctx = ibv_open_device(list[i]);
        if (!ctx)
            refused = errno;
        else if (find_port(opt, ctx, port))
            found = ctx;
        else
            check(ibv_close_device(ctx), "ibv_close_device");
    }
    if (opt->ib_dev && !named)
        die(0, "no RDMA device named '%s'; the first here is %s", opt->ib_dev,
            ibv_get_device_name(list[0]));
    if (!usable)
        die_no_device("no InfiniBand or RoCE device%s%s", opt->ib_dev ? ": " : " here",
                      opt->ib_dev ? opt->ib_dev : "");
    if (!found && refused)
        die(refused, "ibv_open_device");
    if (!found)
        die(0, "no ACTIVE port on %s", opt->ib_dev ? opt->ib_dev : "any RDMA device");

    ibv_free_device_list(list); /* after ibv_open_device, which reads it */

    port->device = ibv_get_device_name(found->device);
    port->mtu = mtu_to_bytes(port->attr.active_mtu);
    if (opt->mtu > port->mtu)
        die(0, "path MTU %u is above the port's active MTU, %u", opt->mtu, port->mtu);
    if (opt->mtu)
        port->mtu = opt->mtu;
    return found;
}

static bool is_ipv4_mapped(const union ibv_gid *gid)
{
    static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

    return memcmp(gid->raw, prefix, sizeof(prefix)) == 0;
}

static bool is_link_local(const union ibv_gid *gid)
{
    return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

int best_gid(const struct ibv_gid_entry *table, int count, uint32_t port_num,
             const union ibv_gid *local)
{
    int best = -1, best_rank = 0;

    for (int i = 0; i < count; i++) {
        if (table[i].port_num != port_num || table[i].gid_type != IBV_GID_TYPE_ROCE_V2 ||
            table[i].gid_index > UINT8_MAX) /* the address vector has 8 bits for it */
            continue;
        int rank = memcmp(&table[i].gid, local, sizeof(*local)) == 0 ? 3
                   : is_ipv4_mapped(&table[i].gid)                   ? 2
                   : is_link_local(&table[i].gid)                    ? 0
                                                                     : 1;
        if (rank > best_rank) {
            best = i;
            best_rank = rank;
        }
    }
    return best;
}

/* The socket's own address in the form that a GID has: IPv6, or IPv4-mapped IPv6. */
static union ibv_gid local_address(int sock)
{
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof(addr);
    union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};

    if (getsockname(sock, (struct sockaddr *)&addr, &len) != 0)
        die(errno, "getsockname");
    if (addr.ss_family == AF_INET6)
        memcpy(gid.raw, &((struct sockaddr_in6 *)&addr)->sin6_addr, 16);
    else
        memcpy(gid.raw + 12, &((struct sockaddr_in *)&addr)->sin_addr, 4);
    return gid;
}

void choose_gid(const struct options *opt, struct ibv_context *ctx, int sock,
                struct port *port)
{
    const char *name = ibv_get_device_name(ctx->device);
    char text[INET6_ADDRSTRLEN];
    struct ibv_gid_entry entry;

    port->global = false;
    port->gid_index = 0;
    memset(&port->gid, 0, sizeof(port->gid));
    int index = opt->gid_idx;
    if (index < 0 && (port->attr.flags & IBV_QPF_GRH_REQUIRED) &&
        port->attr.link_layer == IBV_LINK_LAYER_INFINIBAND)
        index = 0; /* some InfiniBand ports demand a GRH; their first GID always stands */
    if (index < 0 && port->attr.link_layer != IBV_LINK_LAYER_ETHERNET) {
        printf("device %s, port %u, LID 0x%04x, MTU %u\n", name, port->num,
               port->attr.lid, port->mtu);
        return;
    }

    if (index >= 0) {
        if (index >= port->attr.gid_tbl_len || index > UINT8_MAX)
            die(0, "GID index %d: port %u of %s has a table of %d", index, port->num,
                name, port->attr.gid_tbl_len);
        int err = ibv_query_gid_ex(ctx, port->num, (uint32_t)index, &entry, 0);
        if (err)
            die(err, "GID index %d of port %u of %s", index, port->num, name);
    } else {
        union ibv_gid local = local_address(sock);
        struct ibv_device_attr attr; /* the table is of all ports, not of one */
        check(ibv_query_device(ctx, &attr), "ibv_query_device");
        size_t room = (size_t)port->attr.gid_tbl_len * attr.phys_port_cnt;
        struct ibv_gid_entry *table = calloc(room, sizeof(*table));
        if (!table)
            die(errno, "calloc");
        ssize_t count = ibv_query_gid_table(ctx, table, room, 0);
        if (count < 0)
            die((int)-count, "ibv_query_gid_table");
        int best = best_gid(table, (int)count, port->num, &local);
        if (best < 0)
            die(0, "no RoCE v2 GID but link-local ones on port %u of %s", port->num,
                name);
        entry = table[best];
        free(table);
    }
    port->global = true;
    port->gid_index = (uint8_t)entry.gid_index;
    port->gid = entry.gid;
    printf("device %s, port %u, GID index %d (%s), MTU %u\n", name, port->num,
           port->gid_index, inet_ntop(AF_INET6, &port->gid, text, sizeof(text)),
           port->mtu);
}

uint64_t repeated_packets(const struct port *port)
{
    /* the requester's repeats on rxe, on mlx5; the responder's view; given up */
    static const char *const counters[] = {"completer_retry_err", "local_ack_timeout_err",
                                           "packet_seq_err", "duplicate_request",
                                           "retry_exceeded_err"};
    uint64_t sum = 0;

    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
        char path[256];
        uint64_t value;
        snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%u/hw_counters/%s",
                 port->device, port->num, counters[i]);
        FILE *file = fopen(path, "r");
        if (!file)
            continue; /* other drivers have other counters */
        if (fscanf(file, "%" SCNu64, &value) == 1)
            sum += value;
        fclose(file);
    }
    return sum;
}
