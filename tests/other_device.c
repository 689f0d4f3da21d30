/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Preloaded into a sample, makes the device look like another one, as HV_DEVICE says:
 *   no-atomics    its atomic_cap is ATOMIC_NONE
 *   global-atomics  its atomic_cap is ATOMIC_GLOB
 *   roce-v1       all its GIDs are of RoCE v1
 *   iwarp:NAME    the device of this name is iWARP
 *   infiniband:NAME/INTERFACE,...   these devices have ports on InfiniBand, and these are the IPoIB
 *                 interfaces over them: sysfs shows their hardware address
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

/* The function that is behind this one. */
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static const char *wanted(void) { return getenv("HV_DEVICE") ? getenv("HV_DEVICE") : ""; }

static bool is(const char *word) { return strcmp(wanted(), word) == 0; }

/* Whether the list of infiniband: has this name before or behind the '/'. Stores the number there,
 * which is the last digit of the device's name and of its GUID. */
static bool listed(const char *name, bool behind, unsigned *number) {
    char device[20], interface[20];
    const char *at = wanted();
    int end;
    if (strncmp(at, "infiniband:", strlen("infiniband:")) != 0) return false;
    at += strlen("infiniband:");
    for (; sscanf(at, "%19[^/]/%19[^,]%n", device, interface, &end) == 2;
         at += at[end] ? end + 1 : end) {
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

FILE *fopen(const char *path, const char *mode) {
    char interface[20];
    unsigned number;
    if (sscanf(path, "/sys/class/net/%19[^/]/address", interface) != 1 ||
        !listed(interface, true, &number))
        return REAL(fopen)(path, mode);
    const union ibv_gid gid = port_gid(number);
    FILE *file = tmpfile();
    fprintf(file, "80:00:00:68");
    for (int i = 0; i < 16; i++) fprintf(file, ":%02x", gid.raw[i]);
    fprintf(file, "\n");
    rewind(file);
    return file;
}

struct ibv_device **ibv_get_device_list(int *count) {
    struct ibv_device **list = REAL(ibv_get_device_list)(count);
    char name[20];
    for (int i = 0; list && list[i] && sscanf(wanted(), "iwarp:%19s", name) == 1; i++)
        if (strcmp(name, ibv_get_device_name(list[i])) == 0)
            list[i]->transport_type = IBV_TRANSPORT_IWARP;
    return list;
}

static void disguise(struct ibv_device_attr *attr) {
    if (is("no-atomics")) attr->atomic_cap = IBV_ATOMIC_NONE;
    if (is("global-atomics")) attr->atomic_cap = IBV_ATOMIC_GLOB;
    sscanf(wanted(), "wrs:%d", &attr->max_qp_wr);
    sscanf(wanted(), "sges:%d:%d", &attr->max_sge, &attr->max_sge_rd);
    if (strstr(wanted(), ":r")) attr->max_qp_init_rd_atom = 4;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr) {
    const int ret = REAL(ibv_query_device)(context, attr);
    disguise(attr);
    return ret;
}

/* Whether it refuses a queue pair with these capabilities; then errno says why. */
static bool refuses(const struct ibv_qp_cap *cap) {
    unsigned sges, wrs;
    const bool too_many = sscanf(wanted(), "sges:%*u:%*u:%u", &sges) == 1 &&
                          (cap->max_send_sge > sges || cap->max_recv_sge > sges);
    const bool too_long = sscanf(wanted(), "wrs:%*u:%u", &wrs) == 1 &&
                          (cap->max_send_wr > wrs || cap->max_recv_wr > wrs);
    if ((too_many || too_long) && !strstr(wanted(), ":0"))
        errno = strstr(wanted(), ":m") ? ENOMEM : EINVAL;
    return too_many || too_long;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init) {
    return refuses(&init->cap) ? NULL : REAL(ibv_create_qp)(pd, init);
}

/* verbs.h calls these through a table in the context. */
static struct verbs_context real;

static int query_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                    struct ibv_device_attr_ex *attr, size_t size) {
    const int ret = real.query_device_ex(context, input, attr, size);
    disguise(&attr->orig_attr);
    return ret;
}

static int query_port(struct ibv_context *context, uint8_t num, struct ibv_port_attr *attr,
                      size_t size) {
    const int ret = real.query_port(context, num, attr, size);
    unsigned number;
    if (!listed(ibv_get_device_name(context->device), false, &number)) return ret;
    attr->link_layer = IBV_LINK_LAYER_INFINIBAND;
    attr->lid = (uint16_t)(100 + number);
    attr->flags = 0;
    return ret;
}

static struct ibv_qp *create_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *init) {
    return refuses(&init->cap) ? NULL : real.create_qp_ex(context, init);
}

struct ibv_context *ibv_open_device(struct ibv_device *device) {
    if (is("broken") && strcmp(ibv_get_device_name(device), "rxe0") == 0) {
        errno = EIO;
        return NULL;
    }
    struct ibv_context *context = REAL(ibv_open_device)(device);
    struct verbs_context *more = context ? verbs_get_ctx(context) : NULL;
    if (!more) return context;
    real = *more;
    more->query_device_ex = query_ex;
    more->query_port = query_port;
    more->create_qp_ex = create_ex;
    return context;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
                             uint32_t flags, size_t size) {
    const ssize_t count = REAL(_ibv_query_gid_table)(context, entries, max, flags, size);
    unsigned number;
    for (ssize_t i = 0; i < count && is("roce-v1"); i++) entries[i].gid_type = IBV_GID_TYPE_ROCE_V1;
    if (!listed(ibv_get_device_name(context->device), false, &number)) return count;
    entries[0] = (struct ibv_gid_entry){.gid = port_gid(number), .port_num = 1};
    return 1; /* its type, IBV_GID_TYPE_IB, is 0 */
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
    if (is("pkey") && (mask & IBV_QP_PKEY_INDEX)) printf("pkey_index %u\n", attr->pkey_index);
    return REAL(ibv_modify_qp)(qp, attr, mask);
}
