/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Preloaded into a sample, makes the device look like another one, as HV_DEVICE says:
 *   no-atomics    its atomic_cap is ATOMIC_NONE
 *   roce-v1       all its GIDs are of RoCE v1
 *   slow          a protection domain takes it 3 s
 *   no-gids       its GID table is empty
 *   gids-up:N     each GID has an index that is N higher
 *   iwarp:NAME    the device of this name is iWARP
 *   infiniband:NAME/INTERFACE,...   these devices have ports on InfiniBand, and these are the IPoIB
 *                 interfaces over them: sysfs shows their hardware address
 *   no-ipv6       the kernel has no IPv6
 *   pkey          it says which pkey_index a queue pair gets
 *   broken        the first device, rxe0, can't be opened
 *   sges:A:B:C    it names max_sge A and max_sge_rd B, and refuses a queue pair with more
 *                 than C SGEs in a work request, with ENOMEM if there is an ":m" behind,
 *                 else EINVAL; with an ":r" its max_qp_init_rd_atom is 4
 *   wrs:A:B       it names max_qp_wr A, and refuses a queue pair with more than B work requests
 *                 in a queue; with a ":0" behind errno stays as it is
 * No such devices can be had as Soft-RoCE.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *wanted(void) { return getenv("HV_DEVICE") ? getenv("HV_DEVICE") : ""; }

/* max_sge, max_sge_rd, and what a queue pair can have; false: as the device has them. */
static int sges(int *max_sge, int *max_sge_rd, unsigned *most) {
    return sscanf(wanted(), "sges:%d:%d:%u", max_sge, max_sge_rd, most) == 3;
}

static bool begins(const char *word) { return strncmp(wanted(), word, strlen(word)) == 0; }

/* Whether the list of infiniband: has this name before or behind the '/'. Stores the number there,
 * which is the last digit of the device's name and of its GUID. */
static bool listed(const char *name, bool behind, unsigned *number) {
    char device[20], interface[20];
    int end;
    if (!begins("infiniband:")) return false;
    for (const char *at = wanted() + strlen("infiniband:"); *at; at += end + (at[end] == ',')) {
        if (sscanf(at, "%19[^/]/%19[^,]%n", device, interface, &end) != 2) abort();
        *number = (unsigned)(device[strlen(device) - 1] - '0');
        if (strcmp(behind ? interface : device, name) == 0) return true;
    }
    return false;
}

static union ibv_gid port_gid(unsigned number) {
    const union ibv_gid gid = {
        .raw = {0xfe, 0x80, [8] = 0x24, 0x8a, 0x07, 3, 0, 0x11, 0x22, (uint8_t)number}};
    return gid;
}

static FILE *(*real_fopen)(const char *, const char *);

FILE *fopen(const char *path, const char *mode) {
    char interface[20], text[100] = "80:00:00:68:";
    unsigned number;
    *(void **)&real_fopen = dlsym(RTLD_NEXT, "fopen");
    if (sscanf(path, "/sys/class/net/%19[^/]/address", interface) != 1 ||
        !listed(interface, true, &number))
        return real_fopen(path, mode);
    const union ibv_gid gid = port_gid(number);
    for (int i = 0; i < 16; i++)
        sprintf(text + strlen(text), "%02x%c", gid.raw[i], i < 15 ? ':' : '\n');
    FILE *file = tmpfile();
    fputs(text, file);
    rewind(file);
    return file;
}

int socket(int domain, int type, int protocol) {
    int (*real)(int, int, int);
    *(void **)&real = dlsym(RTLD_NEXT, "socket");
    if (strcmp(wanted(), "no-ipv6") != 0 || domain != AF_INET6) return real(domain, type, protocol);
    errno = EAFNOSUPPORT;
    return -1;
}

struct ibv_device **ibv_get_device_list(int *count) {
    struct ibv_device **(*real)(int *);
    *(void **)&real = dlvsym(RTLD_NEXT, "ibv_get_device_list", "IBVERBS_1.1");
    struct ibv_device **list = real(count);
    for (int i = 0; list && list[i] && begins("iwarp:"); i++)
        if (strcmp(wanted() + strlen("iwarp:"), ibv_get_device_name(list[i])) == 0)
            list[i]->transport_type = IBV_TRANSPORT_IWARP;
    return list;
}

static int (*real_query_port)(struct ibv_context *, uint8_t, struct ibv_port_attr *, size_t);

static int query_port(struct ibv_context *context, uint8_t num, struct ibv_port_attr *attr,
                      size_t size) {
    const int ret = real_query_port(context, num, attr, size);
    unsigned number;
    if (!listed(ibv_get_device_name(context->device), false, &number)) return ret;
    attr->link_layer = IBV_LINK_LAYER_INFINIBAND;
    attr->lid = (uint16_t)(100 + number);
    attr->flags = 0;
    return ret;
}

static void disguise(struct ibv_device_attr *attr) {
    int max_sge, max_sge_rd;
    unsigned most;
    if (strcmp(wanted(), "no-atomics") == 0) attr->atomic_cap = IBV_ATOMIC_NONE;
    sscanf(wanted(), "wrs:%d", &attr->max_qp_wr);
    if (sges(&max_sge, &max_sge_rd, &most)) {
        attr->max_sge = max_sge;
        attr->max_sge_rd = max_sge_rd;
        if (strstr(wanted(), ":r")) attr->max_qp_init_rd_atom = 4;
    }
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr) {
    int (*real)(struct ibv_context *, struct ibv_device_attr *);
    *(void **)&real = dlvsym(RTLD_NEXT, "ibv_query_device", "IBVERBS_1.1");
    const int ret = real(context, attr);
    disguise(attr);
    return ret;
}

/* verbs.h calls this one through a table in the context. */
static int (*real_query_ex)(struct ibv_context *, const struct ibv_query_device_ex_input *,
                            struct ibv_device_attr_ex *, size_t);

static int query_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                    struct ibv_device_attr_ex *attr, size_t size) {
    const int ret = real_query_ex(context, input, attr, size);
    disguise(&attr->orig_attr);
    return ret;
}

/* Whether it refuses a queue pair with these capabilities; then errno says why. */
static bool refuses(const struct ibv_qp_cap *cap) {
    int max_sge, max_sge_rd;
    unsigned most;
    const bool too_many = sges(&max_sge, &max_sge_rd, &most) &&
                          (cap->max_send_sge > most || cap->max_recv_sge > most);
    unsigned named, wrs;
    const bool too_long = sscanf(wanted(), "wrs:%u:%u", &named, &wrs) == 2 &&
                          (cap->max_send_wr > wrs || cap->max_recv_wr > wrs);
    if ((too_many || too_long) && !strstr(wanted(), ":0"))
        errno = strstr(wanted(), ":m") ? ENOMEM : EINVAL;
    return too_many || too_long;
}

static struct ibv_qp *(*real_create_ex)(struct ibv_context *, struct ibv_qp_init_attr_ex *);

static struct ibv_qp *create_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *init) {
    return refuses(&init->cap) ? NULL : real_create_ex(context, init);
}

struct ibv_context *ibv_open_device(struct ibv_device *device) {
    struct ibv_context *(*real)(struct ibv_device *);
    if (strcmp(wanted(), "broken") == 0 && strcmp(ibv_get_device_name(device), "rxe0") == 0) {
        errno = EIO;
        return NULL;
    }
    *(void **)&real = dlsym(RTLD_NEXT, "ibv_open_device");
    struct ibv_context *context = real(device);
    struct verbs_context *more = context ? verbs_get_ctx(context) : NULL;
    if (more && more->query_device_ex)
        real_query_ex = more->query_device_ex, more->query_device_ex = query_ex;
    if (more && more->query_port) {
        real_query_port = more->query_port;
        more->query_port = query_port;
    }
    if (more && more->create_qp_ex)
        real_create_ex = more->create_qp_ex, more->create_qp_ex = create_ex;
    return context;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
    struct ibv_pd *(*real)(struct ibv_context *);
    if (strcmp(wanted(), "slow") == 0) sleep(3);
    *(void **)&real = dlvsym(RTLD_NEXT, "ibv_alloc_pd", "IBVERBS_1.1");
    return real(context);
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
                             uint32_t flags, size_t size) {
    ssize_t (*real)(struct ibv_context *, struct ibv_gid_entry *, size_t, uint32_t, size_t);
    *(void **)&real = dlsym(RTLD_NEXT, "_ibv_query_gid_table");
    const ssize_t count = real(context, entries, max, flags, size);
    unsigned number;
    if (strcmp(wanted(), "no-gids") == 0) return 0;
    for (ssize_t i = 0; i < count; i++) {
        if (strcmp(wanted(), "roce-v1") == 0) entries[i].gid_type = IBV_GID_TYPE_ROCE_V1;
        if (begins("gids-up:")) entries[i].gid_index += (uint32_t)atoi(wanted() + 8);
    }
    if (!listed(ibv_get_device_name(context->device), false, &number)) return count;
    entries[0] = (struct ibv_gid_entry){.gid = port_gid(number), .port_num = 1};
    return 1; /* its type, IBV_GID_TYPE_IB, is 0 */
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
    int (*real)(struct ibv_qp *, struct ibv_qp_attr *, int);
    *(void **)&real = dlvsym(RTLD_NEXT, "ibv_modify_qp", "IBVERBS_1.1");
    if (strcmp(wanted(), "pkey") == 0 && (mask & IBV_QP_PKEY_INDEX))
        printf("pkey_index %u\n", attr->pkey_index);
    return real(qp, attr, mask);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init) {
    struct ibv_qp *(*real)(struct ibv_pd *, struct ibv_qp_init_attr *);
    if (refuses(&init->cap)) return NULL;
    *(void **)&real = dlvsym(RTLD_NEXT, "ibv_create_qp", "IBVERBS_1.1");
    return real(pd, init);
}
