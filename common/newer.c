/* SPDX-License-Identifier: BSD-2-Clause */
/* For programs compiled with older headers: functions that they must not call (newer.h). Includes
 * neither verbs.h nor newer.h: in newer headers these names are inline functions. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"

struct ibv_qp_ex;
void ibv_wr_atomic_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
                         const void *atomic_wr);
void ibv_wr_flush(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, size_t len,
                  uint8_t type, uint8_t level);

void ibv_wr_atomic_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
                         const void *atomic_wr) {
    abort();
}

void ibv_wr_flush(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, size_t len,
                  uint8_t type, uint8_t level) {
    abort();
}
