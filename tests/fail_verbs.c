/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Preloaded into a sample, it makes a verbs call fail that would not fail by itself:
 *
 *   HV_FAIL=ibv_reg_mr:2:12        the second ibv_reg_mr fails with errno 12
 *   HV_FAIL=ibv_create_qp:1:12:on  the first and all that follow
 *   HV_FAIL=completion:1:10        the first completion carries ibv_wc_status 10
 *   HV_FAIL=wr_id:1:7              the first completion has another wr_id (7 is XORed to it)
 *   HV_SEND=N:b:AT                 request N, from 1, takes along a wrong byte, the AT-th
 *   HV_SEND=N:o:OPCODE             it is another request; N:i:IMMEDIATE, N:l:LENGTH likewise
 *   HV_STALE=N:AT                  of what request N fetches, 16 bytes from AT on are missing
 *   HV_STRANGER=N                  datagram N that comes is of another host, whose queue pair has
 *                                  the same number
 *   HV_SLOW=MS                     it loses the CPU for so long behind each of its first posts of
 *                                  a request, before those of a receive, and six times as long
 *                                  before it asks for an event for the first time
 *   HV_TURNS=1                     its threads lose the CPU at random, before they post or try to
 *                                  lock, and when they have unlocked
 *   HV_FAIL=byte_len:1:1           the first length of a message that is read from an extended
 *                                  completion queue is another (1 is XORed to it)
 *   HV_OPS=FLAGS                   no harm, but HV_DONE is made if a queue pair is created
 *                                  without these send_ops_flags
 *   HV_DONE=FILE                   is made as soon as harm has been done
 *   HV_TRACE=FILE                  a line for each call: its name and where it came from
 *   HV_STAMPS=1                    extended completion queues have timestamps: 100, 200, ...
 *
 * The samples are those that students run, not built anew for this.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where calls come from: a return address, less the address its program is loaded at. */
static void trace(const char *name, const void *site) {
    static FILE *file;
    const char *path = getenv("HV_TRACE");
    Dl_info from;

    if (path && !file) file = fopen(path, "w");
    if (file && dladdr(site, &from))
        fprintf(file, "%s %zx\n", name,
                (size_t)((const char *)site - (const char *)from.dli_fbase));
}

/* Tells who has asked for harm that it has been done. */
static void done(void) {
    const char *path = getenv("HV_DONE");
    FILE *file = path ? fopen(path, "w") : NULL;

    if (file) fclose(file);
}

static void lose_cpu(unsigned times_as_long) {
    enum { MOST = 12 }; /* times: it is to be slow, not to run out of time */
    static unsigned times;
    const char *slow = getenv("HV_SLOW");

    if (slow && times++ < MOST) usleep(times_as_long * (useconds_t)atoi(slow) * 1000);
}

static void give_way(void) {
    static unsigned seed;

    if (getenv("HV_TURNS") && rand_r(&seed) % 3 == 0) usleep(1000);
}

/* True, with errno set, for the call that HV_FAIL names. */
static bool fails(const char *name, const void *site) {
    static unsigned calls; /* of that name: no other is counted */
    const char *wanted = getenv("HV_FAIL");
    unsigned which;
    int error;

    trace(name, site);
    if (!wanted || strncmp(wanted, name, strlen(name)) != 0 ||
        sscanf(wanted + strlen(name), ":%u:%d", &which, &error) != 2)
        return false;
    calls++;
    if (calls != which && (calls < which || !strstr(wanted, ":on"))) return false;
    done();
    if (error >= 0) errno = error; /* -1: what fails leaves it alone */
    return true;
}

#define SITE __builtin_return_address(0)
/* The function that is behind this one. */
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WRAP(type, name, failed, parameters, ...)                                                  \
    type name parameters { return fails(#name, SITE) ? failed : REAL(name)(__VA_ARGS__); }

WRAP(struct ibv_device **, ibv_get_device_list, NULL, (int *count), count)
WRAP(int, ibv_query_device, errno, (struct ibv_context * context, struct ibv_device_attr *attr),
     context, attr)
WRAP(int, _ibv_query_gid_ex, errno,
     (struct ibv_context * context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
      uint32_t flags, size_t size),
     context, port, index, entry, flags, size)
WRAP(ssize_t, _ibv_query_gid_table, -errno,
     (struct ibv_context * context, struct ibv_gid_entry *table, size_t room, uint32_t flags,
      size_t size),
     context, table, room, flags, size)
WRAP(struct ibv_pd *, ibv_alloc_pd, NULL, (struct ibv_context * context), context)
WRAP(struct ibv_cq *, ibv_create_cq, NULL,
     (struct ibv_context * context, int size, void *own, struct ibv_comp_channel *channel,
      int vector),
     context, size, own, channel, vector)
WRAP(struct ibv_comp_channel *, ibv_create_comp_channel, NULL, (struct ibv_context * context),
     context)
WRAP(int, ibv_get_cq_event, -1, (struct ibv_comp_channel * channel, struct ibv_cq **cq, void **own),
     channel, cq, own)
WRAP(int, ibv_destroy_comp_channel, errno, (struct ibv_comp_channel * channel), channel)
WRAP(int, ibv_modify_qp, errno, (struct ibv_qp * qp, struct ibv_qp_attr *attr, int mask), qp, attr,
     mask)
WRAP(int, ibv_destroy_qp, errno, (struct ibv_qp * qp), qp)
WRAP(int, ibv_init_ah_from_wc, -1,
     (struct ibv_context * context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
      struct ibv_ah_attr *attr),
     context, port, wc, grh, attr)
WRAP(struct ibv_ah *, ibv_create_ah, NULL, (struct ibv_pd * pd, struct ibv_ah_attr *attr), pd, attr)
WRAP(int, ibv_destroy_ah, errno, (struct ibv_ah * ah), ah)
WRAP(struct ibv_srq *, ibv_create_srq, NULL, (struct ibv_pd * pd, struct ibv_srq_init_attr *init),
     pd, init)
WRAP(int, ibv_modify_srq, errno, (struct ibv_srq * srq, struct ibv_srq_attr *attr, int mask), srq,
     attr, mask)
WRAP(int, ibv_destroy_srq, errno, (struct ibv_srq * srq), srq)
WRAP(int, ibv_get_async_event, -1, (struct ibv_context * context, struct ibv_async_event *event),
     context, event)
WRAP(int, ibv_dereg_mr, errno, (struct ibv_mr * mr), mr)
WRAP(int, ibv_destroy_cq, errno, (struct ibv_cq * cq), cq)
WRAP(int, ibv_dealloc_pd, errno, (struct ibv_pd * pd), pd)
WRAP(int, ibv_close_device, errno, (struct ibv_context * context), context)

int pthread_mutex_trylock(pthread_mutex_t *mutex) {
    give_way();
    return REAL(pthread_mutex_trylock)(mutex);
}

int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    const int ret = REAL(pthread_mutex_unlock)(mutex);
    give_way();
    return ret;
}

/* What verbs.h makes of ibv_reg_mr is one of two functions, of which one may call the
 * other: then only the first counts. */
#undef ibv_reg_mr
static bool in_reg_mr;

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access) {
    if (!in_reg_mr && fails("ibv_reg_mr", SITE)) return NULL;
    return REAL(ibv_reg_mr)(pd, addr, length, access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                unsigned access) {
    if (fails("ibv_reg_mr", SITE)) return NULL;
    in_reg_mr = true;
    struct ibv_mr *mr = REAL(ibv_reg_mr_iova2)(pd, addr, length, iova, access);
    in_reg_mr = false;
    return mr;
}

/* If it is set, each request makes a completion. */
static bool all_signalled;

static void look_at_operations(uint64_t flags) {
    const char *wanted = getenv("HV_OPS");
    if (wanted && strtoull(wanted, NULL, 0) & ~flags) done();
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init) {
    all_signalled = init->sq_sig_all;
    look_at_operations(0);
    return fails("ibv_create_qp", SITE) ? NULL : REAL(ibv_create_qp)(pd, init);
}

/* These are no functions of the library: verbs.h calls the provider through a table in
 * the context, so that is where they are caught. */
static struct verbs_context real;

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
                      size_t size) {
    return fails("ibv_query_port", SITE) ? -errno : real.query_port(context, port, attr, size);
}

/* Where byte number at of a request's memory is, and, if room is not NULL, how many follow there.
 */
static char *byte_of(const struct ibv_send_wr *wr, size_t at, size_t *room) {
    for (int i = 0; i < wr->num_sge; at -= wr->sg_list[i++].length)
        if (at < wr->sg_list[i].length) {
            if (room) *room = wr->sg_list[i].length - at;
            return (char *)(uintptr_t)wr->sg_list[i].addr + at;
        }
    return NULL;
}

/* Makes request number N another one. shortened: its SGE, which may be used again; whole: its
 * length. */
static struct ibv_sge *shortened;
static uint32_t whole;

static void disguise(struct ibv_send_wr *wr) {
    static unsigned posted;
    const char *how = getenv("HV_SEND");
    unsigned which, value;
    char field;

    if (!how || sscanf(how, "%u:%c:%u", &which, &field, &value) != 3) return;
    for (; wr; wr = wr->next) {
        if (++posted != which) continue;
        char *byte = byte_of(wr, value, NULL);
        if (field == 'o') wr->opcode = (enum ibv_wr_opcode)value;
        if (field == 'i') wr->imm_data = htonl(value);
        if (field == 'l') {
            shortened = wr->sg_list, whole = shortened->length;
            shortened->length = value;
        }
        if (field == 'b' && byte) *byte ^= 1;
        done();
    }
}

/* What stood where request number N is to write. It goes back there with the completion of that
 * request, or of the next one that has one: as if the NIC had not written there. */
static struct {
    char *at, old[16];
    size_t length;
    unsigned completions;
} stale;

static void remember(const struct ibv_send_wr *wr) {
    static unsigned posted, signalled;
    const char *how = getenv("HV_STALE");
    unsigned which, at;

    if (!how || sscanf(how, "%u:%u", &which, &at) != 2) return;
    for (; wr; wr = wr->next) {
        if (++posted == which && (stale.at = byte_of(wr, at, &stale.length))) {
            if (stale.length > sizeof(stale.old)) stale.length = sizeof(stale.old);
            memcpy(stale.old, stale.at, stale.length);
            stale.completions = signalled + 1;
        }
        signalled += all_signalled || wr->send_flags & IBV_SEND_SIGNALED;
    }
}

static void put_back(const struct ibv_wc *wc) {
    static unsigned completions;

    if (wc->opcode & IBV_WC_RECV || ++completions != stale.completions) return;
    memcpy(stale.at, stale.old, stale.length);
    done();
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    give_way();
    disguise(wr);
    remember(wr);
    const int ret = fails("ibv_post_send", SITE) ? errno : real.context.ops.post_send(qp, wr, bad);
    if (shortened) shortened->length = whole;
    shortened = NULL;
    lose_cpu(1);
    return ret;
}

/* Receives are used up in the order in which they were posted: so this is where datagram number N
 * comes. */
static char *strangers;

static void expect_stranger(const struct ibv_recv_wr *wr) {
    static int posted;
    const char *which = getenv("HV_STRANGER");

    for (; which && wr; wr = wr->next)
        if (++posted == atoi(which)) strangers = (char *)(uintptr_t)wr->sg_list[0].addr;
}

/* The last 20 of a GRH's 40 bytes are an IPv4 header. With the halves of its source address
 * exchanged, its checksum stays right. */
static void estrange(const struct ibv_wc *wc) {
    static int came;
    char *source = strangers + 20 + 12, half[2];

    if (!strangers || !(wc->opcode & IBV_WC_RECV) || ++came != atoi(getenv("HV_STRANGER"))) return;
    memcpy(half, source, 2);
    memcpy(source, source + 2, 2);
    memcpy(source + 2, half, 2);
    done();
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    expect_stranger(wr);
    lose_cpu(1);
    return fails("ibv_post_recv", SITE) ? -errno : real.context.ops.post_recv(qp, wr, bad);
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    return fails("ibv_post_srq_recv", SITE) ? errno : real.context.ops.post_srq_recv(srq, wr, bad);
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only) {
    static bool asked; /* later it is to sleep, and to be woken */
    if (!asked) lose_cpu(6);
    asked = true;
    return fails("ibv_req_notify_cq", SITE) ? errno
                                            : real.context.ops.req_notify_cq(cq, solicited_only);
}

static int poll_cq(struct ibv_cq *cq, int room, struct ibv_wc *wc) {
    int n = fails("ibv_poll_cq", SITE) ? -1 : real.context.ops.poll_cq(cq, room, wc);

    if (n > 0 && fails("completion", SITE)) wc->status = (enum ibv_wc_status)errno;
    /* If nothing is to fail, calls are only listed, and this is none. */
    if (n > 0 && getenv("HV_FAIL") && fails("wr_id", SITE)) wc->wr_id ^= (uint64_t)errno;
    for (int i = 0; i < n; i++) put_back(&wc[i]), estrange(&wc[i]);
    return n;
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type) {
    return fails("ibv_alloc_mw", SITE) ? NULL : real.context.ops.alloc_mw(pd, type);
}

static int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind) {
    return fails("ibv_bind_mw", SITE) ? errno : real.context.ops.bind_mw(qp, mw, bind);
}

static int dealloc_mw(struct ibv_mw *mw) {
    return fails("ibv_dealloc_mw", SITE) ? errno : real.context.ops.dealloc_mw(mw);
}

/* The newer calls are inline functions, too: through the queue pair, the completion queue, and for
 * those that create these, through the context. */
static struct ibv_qp_ex real_qp;
static struct ibv_cq_ex real_cq;
static uint32_t (*real_byte_len)(struct ibv_cq_ex *); /* not each queue has it */

static int query_device_ex(struct ibv_context *context,
                           const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t size) {
    return fails("ibv_query_device_ex", SITE) ? errno
                                              : real.query_device_ex(context, input, attr, size);
}

static void wr_set_sge(struct ibv_qp_ex *qpx, uint32_t lkey, uint64_t addr, uint32_t length) {
    struct ibv_sge sge = {addr, length, lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1};
    disguise(&wr); /* a byte, or the length */
    shortened = NULL;
    real_qp.wr_set_sge(qpx, lkey, addr, sge.length);
}

static int wr_complete(struct ibv_qp_ex *qpx) {
    if (!fails("ibv_wr_complete", SITE)) return real_qp.wr_complete(qpx);
    qpx->wr_abort(qpx);
    return errno;
}

static struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *init) {
    if (fails("ibv_create_qp_ex", SITE)) return NULL;
    look_at_operations(init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS ? init->send_ops_flags
                                                                         : 0);
    struct ibv_qp *qp = real.create_qp_ex(context, init);
    struct ibv_qp_ex *qpx = qp ? ibv_qp_to_qp_ex(qp) : NULL;
    if (!qpx) return qp;
    real_qp = *qpx;
    qpx->wr_complete = wr_complete;
    qpx->wr_set_sge = wr_set_sge;
    return qp;
}

static int polled(struct ibv_cq_ex *cqx, int ret, const void *site) {
    if (ret == 0 && fails("completion", site)) cqx->status = (enum ibv_wc_status)errno;
    if (ret == 0 && getenv("HV_FAIL") && fails("wr_id", site)) cqx->wr_id ^= (uint64_t)errno;
    return ret;
}

static int start_poll(struct ibv_cq_ex *cqx, struct ibv_poll_cq_attr *attr) {
    return fails("ibv_start_poll", SITE) ? errno : polled(cqx, real_cq.start_poll(cqx, attr), SITE);
}

static int next_poll(struct ibv_cq_ex *cqx) {
    return fails("ibv_next_poll", SITE) ? errno : polled(cqx, real_cq.next_poll(cqx), SITE);
}

static uint32_t read_byte_len(struct ibv_cq_ex *cqx) {
    const uint32_t length = real_byte_len(cqx);
    return getenv("HV_FAIL") && fails("byte_len", SITE) ? length ^ (uint32_t)errno : length;
}

static uint64_t read_stamp(struct ibv_cq_ex *cqx) {
    static uint64_t stamp;
    (void)cqx;
    return stamp += 100;
}

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *context,
                                      struct ibv_cq_init_attr_ex *init) {
    const uint64_t stamps = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    const bool ours = getenv("HV_STAMPS") && init->wc_flags & stamps;
    struct ibv_cq_init_attr_ex less = *init;
    if (ours) less.wc_flags &= ~stamps;
    if (fails("ibv_create_cq_ex", SITE)) return NULL;
    struct ibv_cq_ex *cqx = real.create_cq_ex(context, &less);
    if (!cqx) return NULL;
    real_cq = *cqx;
    cqx->start_poll = start_poll;
    cqx->next_poll = next_poll;
    if (cqx->read_byte_len) {
        real_byte_len = cqx->read_byte_len;
        cqx->read_byte_len = read_byte_len;
    }
    if (ours) cqx->read_completion_ts = read_stamp;
    return cqx;
}

struct ibv_context *ibv_open_device(struct ibv_device *device) {
    if (fails("ibv_open_device", SITE)) return NULL;
    struct ibv_context *context = REAL(ibv_open_device)(device);
    if (!context) return NULL;
    struct verbs_context *extended = verbs_get_ctx(context);
    real = *extended;
    context->ops.post_send = post_send;
    context->ops.post_recv = post_recv;
    context->ops.post_srq_recv = post_srq_recv;
    context->ops.poll_cq = poll_cq;
    context->ops.req_notify_cq = req_notify_cq;
    context->ops.alloc_mw = alloc_mw;
    context->ops.bind_mw = bind_mw;
    context->ops.dealloc_mw = dealloc_mw;
    extended->query_port = query_port;
    extended->create_qp_ex = create_qp_ex;
    extended->create_cq_ex = create_cq_ex;
    extended->query_device_ex = query_device_ex;
    return context;
}
