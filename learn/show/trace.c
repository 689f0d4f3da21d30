/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Preloaded into a program, it writes a line for each call that matters to the file SHOW_CALLS:
 *
 *   NANOSECONDS NAME field=value...     (CLOCK_MONOTONIC)
 *
 * ibv_post_send, ibv_post_recv and ibv_poll_cq are inline functions that call through the context's
 * table, so they are replaced there. timeline.py reads the lines.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#undef ibv_reg_mr

enum { LINE = 1100 };
static struct ibv_context_ops real;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name)                                                                                 \
    static __typeof__(name) *next;                                                                 \
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, #name)

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...) {
    static FILE *file;
    const char *path = getenv("SHOW_CALLS");
    va_list values;

    pthread_mutex_lock(&lock);
    if (path && !file && (file = fopen(path, "ae"))) setvbuf(file, NULL, _IOLBF, 1 << 16);
    if (file) {
        fprintf(file, "%" PRId64 " ", now());
        va_start(values, format);
        vfprintf(file, format, values);
        va_end(values);
        putc('\n', file);
    }
    pthread_mutex_unlock(&lock);
}

static const char *elements(const struct ibv_sge *sge, int count) {
    static __thread char text[64 * 48];
    size_t at = 1;

    strcpy(text, "[");
    for (int i = 0; i < count && at + 48 < sizeof(text); i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s[%" PRIu64 ",%u,%u]", i ? "," : "",
                               sge[i].addr, sge[i].length, sge[i].lkey);
    strcpy(text + at, "]");
    return text;
}

static int returned(const char *call, int error) {
    if (error) note("failed call=%s errno=%d", call, error);
    return error;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    for (struct ibv_send_wr *w = wr; w; w = w->next) {
        const bool atomic =
            w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
        note("post_send qpn=0x%x wr_id=%" PRIu64 " opcode=%d flags=%u remote=0x%" PRIx64
             " rkey=0x%x sges=%s",
             qp->qp_num, w->wr_id, (int)w->opcode, w->send_flags,
             atomic ? w->wr.atomic.remote_addr : w->wr.rdma.remote_addr,
             atomic ? w->wr.atomic.rkey : w->wr.rdma.rkey,
             w->opcode == IBV_WR_BIND_MW ? "[]" : elements(w->sg_list, w->num_sge));
    }
    return returned("ibv_post_send", real.post_send(qp, wr, bad));
}

static void note_receives(uint32_t qpn, const struct ibv_recv_wr *wr) { /* QPN 0: of an SRQ */
    for (; wr; wr = wr->next)
        note("post_recv qpn=0x%x wr_id=%" PRIu64 " sges=%s", qpn, wr->wr_id,
             elements(wr->sg_list, wr->num_sge));
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    note_receives(qp->qp_num, wr);
    return returned("ibv_post_recv", real.post_recv(qp, wr, bad));
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    note_receives(0, wr);
    return returned("ibv_post_srq_recv", real.post_srq_recv(srq, wr, bad));
}

static int poll_cq(struct ibv_cq *cq, int room, struct ibv_wc *wc) {
    static __thread int64_t since; /* of the polls that found nothing */
    static __thread unsigned long empty;
    const int64_t start = now();
    const int count = real.poll_cq(cq, room, wc);

    if (count == 0 && empty++ == 0) since = start;
    for (int i = 0; i < count; i++) {
        note("poll qpn=0x%x wr_id=%" PRIu64
             " status=%d opcode=%d bytes=%u empty=%lu waited=%" PRId64,
             wc[i].qp_num, wc[i].wr_id, (int)wc[i].status, (int)wc[i].opcode,
             wc[i].status ? 0 : wc[i].byte_len, empty, empty ? start - since : 0);
        empty = 0;
    }
    return count;
}

struct ibv_context *ibv_open_device(struct ibv_device *device) {
    REAL(ibv_open_device);
    struct ibv_context *ctx = next(device);

    if (!ctx) return ctx;
    real = ctx->ops;
    ctx->ops.post_send = post_send;
    ctx->ops.post_recv = post_recv;
    ctx->ops.post_srq_recv = post_srq_recv;
    ctx->ops.poll_cq = poll_cq;
    return ctx;
}

/* What verbs.h makes of ibv_reg_mr is one of two functions, and the one may call the other. */
static const struct ibv_mr *last;
static struct ibv_mr *registered(struct ibv_mr *mr, unsigned access) {
    if (mr && mr != last)
        note("reg_mr addr=%p len=%zu access=%u lkey=0x%x rkey=0x%x", mr->addr, mr->length, access,
             mr->lkey, mr->rkey);
    last = mr;
    return mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access) {
    REAL(ibv_reg_mr);
    return registered(next(pd, addr, length, access), (unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                unsigned access) {
    REAL(ibv_reg_mr_iova2);
    return registered(next(pd, addr, length, iova, access), access);
}

int ibv_dereg_mr(struct ibv_mr *mr) {
    REAL(ibv_dereg_mr);
    note("dereg_mr lkey=0x%x", mr->lkey);
    last = NULL; /* the next one may lie at the same address */
    return next(mr);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init) {
    REAL(ibv_create_qp);
    struct ibv_qp *qp = next(pd, init);
    if (qp) note("create_qp qpn=0x%x type=%d", qp->qp_num, (int)init->qp_type);
    return qp;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
    REAL(ibv_modify_qp);
    const int error = next(qp, attr, mask);
    if (mask & IBV_QP_STATE)
        note("modify_qp qpn=0x%x state=%d errno=%d", qp->qp_num, (int)attr->qp_state, error);
    return error;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **own) {
    REAL(ibv_get_cq_event);
    const int64_t since = now();
    const int error = next(channel, cq, own);
    note("cq_event waited=%" PRId64, now() - since);
    return error;
}

/* The rendezvous' lines go out by dprintf, and come in byte by byte. Where compilers fortify
 * (Ubuntu's does), these are other functions. */
static int line_out(int fd, const char *format, va_list values) {
    char line[LINE];
    va_list again;

    va_copy(again, values);
    vsnprintf(line, sizeof(line), format, again);
    va_end(again);
    line[strcspn(line, "\n")] = '\0';
    note("tcp_out %s", line);
    return vdprintf(fd, format, values);
}

#define LINE_OUT                                                                                   \
    va_list values;                                                                                \
    va_start(values, format);                                                                      \
    const int length = line_out(fd, format, values);                                               \
    va_end(values);                                                                                \
    return length

int dprintf(int fd, const char *restrict format, ...) { LINE_OUT; }

int __dprintf_chk(int fd, int flag, const char *restrict format, ...);
int __dprintf_chk(int fd, int flag, const char *restrict format, ...) {
    (void)flag;
    LINE_OUT;
}

ssize_t recv(int fd, void *buffer, size_t length, int flags) {
    static __thread char line[LINE];
    static __thread size_t at;
    REAL(recv);
    const ssize_t got = next(fd, buffer, length, flags);

    for (ssize_t i = 0; i < got; i++) {
        const char c = ((const char *)buffer)[i];
        if (c != '\n' && at + 1 < sizeof(line)) {
            line[at++] = c;
            continue;
        }
        line[at] = '\0';
        note("tcp_in %s", line);
        at = 0;
    }
    return got;
}

ssize_t __recv_chk(int fd, void *buffer, size_t length, size_t room, int flags);
ssize_t __recv_chk(int fd, void *buffer, size_t length, size_t room, int flags) {
    (void)room;
    return recv(fd, buffer, length, flags);
}
