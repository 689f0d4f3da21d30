/* SPDX-License-Identifier: BSD-2-Clause */
/* FLUSH and ATOMIC WRITE with headers that lack them: infiniband/verbs.h has both since
 * rdma-core 45. Most of their names are enumerators there, which #ifdef does not see; but a macro
 * may have an enumerator's name and value. (The values are libibverbs' ABI: they stay.) With this
 * file a program compiles with older headers, too, and asks HAVE_FLUSH before it posts such a
 * request. */
#pragma once

#include <infiniband/verbs.h>
#include <stddef.h>

#define IBV_ACCESS_FLUSH_GLOBAL       (1 << 8)
#define IBV_ACCESS_FLUSH_PERSISTENT   (1 << 9)
#define IBV_QP_EX_WITH_FLUSH          (1 << 11)
#define IBV_QP_EX_WITH_ATOMIC_WRITE   (1 << 12)
#define IBV_FLUSH_GLOBAL              (1U << 0)
#define IBV_FLUSH_PERSISTENT          (1U << 1)
#define IBV_FLUSH_RANGE               0
#define IB_UVERBS_DEVICE_FLUSH_GLOBAL (1ULL << 38) /* in device_cap_flags_ex */
#define IB_UVERBS_DEVICE_ATOMIC_WRITE (1ULL << 40)

/* Whether this program was compiled with headers that have both. There struct ibv_qp_ex has two
 * more members behind wr_abort, of a pointer each. */
enum {
    HAVE_FLUSH = sizeof(struct ibv_qp_ex) >=
                 offsetof(struct ibv_qp_ex, wr_abort) + 3 * sizeof(void (*)(void))
};

/* Inline functions in newer headers: then these two lines only say so again. Else newer.c has them.
 */
void ibv_wr_atomic_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
                         const void *atomic_wr);
void ibv_wr_flush(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, size_t len,
                  uint8_t type, uint8_t level);
