/* Preloaded into 04_atomic: its device then says that it has no atomic operations, as
 * some do. No such device can be had as Soft-RoCE. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    int (*real)(struct ibv_context *, struct ibv_device_attr *);
    *(void **)&real = dlvsym(RTLD_NEXT, "ibv_query_device", "IBVERBS_1.1");
    int ret = real(context, attr);

    attr->atomic_cap = IBV_ATOMIC_NONE;
    return ret;
}
