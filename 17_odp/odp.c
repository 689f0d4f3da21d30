/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 17_odp - memory that is not pinned. The server registers more memory than it may lock, on demand
 * (ODP): a page comes when the NIC first needs it, and may go again. The client WRITEs and READs
 * blocks in it, each at the beginning of a page.
 *
 *   gcc -I../common -o odp odp.c ../common/[a-z]*.c -libverbs
 *   ./odp               in one terminal: the server
 *   ./odp 127.0.0.1     in another: the client; the server's address
 *
 * Soft-RoCE can do this since Linux 6.15; --memory prefetch also takes rdma-core 59. Elsewhere the
 * server says so and exits with 77; --memory pinned --limit 8M runs everywhere. The server prints,
 * after the lines of the device:
 *   on demand over RC here: SEND RECV WRITE READ ATOMIC SRQ_RECV FLUSH ATOMIC_WRITE
 *   pinned: Cannot allocate memory: of 4194304 bytes this process may lock 1048576
 *   registered: 0 of 1024 pages are in memory; page faults of this process: 0
 *   written twice by the client: 256 of 1024 pages are in memory; page faults of this process: 0
 *   ...
 *   RESULT sample=17_odp role=server status=PASS bytes=262144 digest=...
 *
 * Rendezvous: size is that of a block, iters their number; work= ends with memory (how the server
 * registers its memory), then (what it does to it between the client's second WRITEs and its
 * READs), region (its size) and limit (bytes that the server may lock). Block i is the pattern
 * (pattern.h) of seed + iters * V + i; V, the version, is 0, 1 and 3 as the client writes it, and 2
 * as the server does. Barriers: ready, written (twice), changed, done.
 */
#define _GNU_SOURCE
#include "device.h"
#include "pattern.h"
#include "qp.h"
#include "rendezvous.h"
#include "report.h"

#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ALIGN = 4096 }; /* of a block */
enum version { FIRST, SECOND, SERVERS, LAST };

static const char *const MEMORY[] = {"pinned", "odp", "prefetch", NULL};
static const char *const THEN[] = {"none", "fork", "dontneed", "pageout", NULL};

struct work {
    const char *memory, *then;
    uint64_t region, limit;
};

/* The server's memory. */
struct region {
    char *memory;
    size_t size, page;
    const struct options *opt;
    long faults; /* of this process, when they were last told */
};

static bool is(const char *text, const char *name) { return strcmp(text, name) == 0; }

/* The name in a list that is the same as the text; NULL: none. */
static const char *known(const char *const *names, const char *text) {
    while (*names && !is(*names, text)) names++;
    return *names;
}

static void format_work(const struct options *opt, char *out, size_t room) {
    const struct work *work = opt->work;
    snprintf(out, room, ",memory=%s,then=%s,region=%ju,limit=%ju", work->memory, work->then,
             work->region, work->limit);
}

/* Where block i begins: they are as far apart as there is room. */
static uint64_t place(const struct options *opt, uint64_t i) {
    const struct work *work = opt->work;
    return work->region / opt->iters / ALIGN * ALIGN * i;
}

static const char *misfit(const struct options *opt) {
    const struct work *work = opt->work;
    if (work->region < ALIGN || work->region > MAX_SIZE) return "region must be 4K to 64M";
    return opt->size <= place(opt, 1) ? NULL : "the blocks do not fit into the region";
}

static const char *parse_work(struct options *opt, const char *text) {
    struct work *work = opt->work;
    char memory[10] = "", then[10] = "", again[128];
    sscanf(text, ",memory=%9[a-z],then=%9[a-z],region=%ju,limit=%ju", memory, then, &work->region,
           &work->limit);
    work->memory = known(MEMORY, memory);
    work->then = known(THEN, then);
    if (!work->memory || !work->then) return "memory or then is unknown";
    format_work(opt, again, sizeof(again));
    if (!is(text, again)) return "memory, then, region or limit is malformed";
    return misfit(opt);
}

static uint64_t seed_of(const struct options *opt, enum version version, uint64_t i) {
    return opt->seed + opt->iters * version + i;
}

/* From now on this process may lock so many bytes. Root may exceed that limit (CAP_IPC_LOCK): it
 * waives this right. It does so before it opens the device: some calls refuse a process whose
 * rights have changed since (ibv_post_send on Soft-RoCE). */
static void lower_limit(uint64_t bytes) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct rights[_LINUX_CAPABILITY_U32S_3];
    check((int)syscall(SYS_capget, &header, rights), "capget");
    rights[0].effective &= ~(1U << CAP_IPC_LOCK);
    check((int)syscall(SYS_capset, &header, rights), "capset");
    struct rlimit limit;
    check(getrlimit(RLIMIT_MEMLOCK, &limit), "getrlimit");
    if (limit.rlim_cur > bytes) limit.rlim_cur = bytes;
    check(setrlimit(RLIMIT_MEMLOCK, &limit), "setrlimit");
}

/* A server that cannot do what the client asks for: says so to it, too. */
static void lack(struct rendezvous *tcp, const char *reason) {
    const struct work *work = tcp->opt->work;
    rendezvous_refuse(tcp, reason);
    stop(EXIT_NO_DEVICE, 0, "--memory %s does not work here", work->memory);
}

/* What the device can do with such memory: it says so for each kind of queue pair, and for each
 * operation. */
static void require_odp(struct rendezvous *tcp, struct ibv_context *ctx) {
    static const char *const names[] = {"SEND",   "RECV",     "WRITE", "READ",
                                        "ATOMIC", "SRQ_RECV", "FLUSH", "ATOMIC_WRITE"};
    const uint32_t both = (uint32_t)IBV_ODP_SUPPORT_WRITE | (uint32_t)IBV_ODP_SUPPORT_READ;
    struct ibv_device_attr_ex attr;
    check(ibv_query_device_ex(ctx, NULL, &attr), "ibv_query_device_ex");
    const uint32_t rc = attr.odp_caps.per_transport_caps.rc_odp_caps;
    if (!(attr.odp_caps.general_caps & (uint64_t)IBV_ODP_SUPPORT) || (rc & both) != both)
        lack(tcp, "no on-demand paging: Soft-RoCE has it since Linux 6.15");
    if (sysconf(_SC_PAGESIZE) != ALIGN) lack(tcp, "pages are not of 4096 bytes");
    printf("on demand over RC here:");
    for (unsigned bit = 0; bit < 8; bit++)
        if (rc >> bit & 1) printf(" %s", names[bit]);
    printf("\n");
}

/* A card answers a request that needs a page with RNR NAKs until the page is there. So, other than
 * qp_to_rts: tries without end (7); wait_completion has a limit. */
static void to_rts(struct ibv_qp *qp, uint32_t psn, uint32_t rd_atomic) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTS,
        .sq_psn = psn,
        .timeout = ACK_TIMEOUT,
        .retry_cnt = 6,
        .rnr_retry = 7,
        .max_rd_atomic = (uint8_t)rd_atomic,
    };
    check(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                            IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
          "ibv_modify_qp to RTS");
}

/* Fresh memory: no page of it is there. Huge pages would come 512 at a time. */
static void allocate(struct region *r) {
    r->page = (size_t)sysconf(_SC_PAGESIZE);
    r->memory = mmap(NULL, r->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r->memory == MAP_FAILED) die(errno, "mmap of %zu bytes", r->size);
    madvise(r->memory, r->size, MADV_NOHUGEPAGE); /* a kernel without them refuses: no matter */
}

/* 3. Registering on demand locks nothing, so it works where pinning does not: it notes the range,
 * and has the kernel say whenever a page in it goes. */
static struct ibv_mr *register_region(struct ibv_pd *pd, const struct region *r,
                                      const struct work *work) {
    unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    const bool pinned = is(work->memory, "pinned");
    struct ibv_mr *mr;
    errno = 0;
    if (!pinned && r->size > work->limit) {
        mr = ibv_reg_mr(pd, r->memory, r->size, access);
        printf("pinned: %s: of %zu bytes this process may lock %ju\n",
               mr ? "it works all the same" : strerror(errno), r->size, work->limit);
        if (mr) check(ibv_dereg_mr(mr), "ibv_dereg_mr of a trial");
    }
    if (!pinned) access |= IBV_ACCESS_ON_DEMAND;
    const double began = now();
    errno = 0;
    mr = ibv_reg_mr(pd, r->memory, r->size, access);
    if (!mr) die(errno, "ibv_reg_mr of %zu bytes", r->size);
    printf("BENCH memory=%s size=%zu register_us=%.0f\n", work->memory, r->size,
           1e6 * (now() - began));
    return mr;
}

/* The pages of the blocks, before the client needs them. With FLUSH the call returns when they are
 * there, and the NIC knows where; without it they come behind its back. */
static void prefetch(struct rendezvous *tcp, const struct region *r, const struct ibv_mr *mr) {
    const double began = now();
    for (uint64_t i = 0; i < r->opt->iters; i++) {
        struct ibv_sge sge = {
            .addr = (uintptr_t)r->memory + place(r->opt, i),
            .length = (uint32_t)r->opt->size,
            .lkey = mr->lkey,
        };
        const int ret = ibv_advise_mr(mr->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
                                      IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1);
        if (ret == EOPNOTSUPP)
            lack(tcp, "no ibv_advise_mr: Soft-RoCE's library has it since rdma-core 59");
        check(ret, "ibv_advise_mr");
    }
    printf("prefetched: %.1f us a block\n", 1e6 * (now() - began) / (double)r->opt->iters);
}

/* How many pages of the region this process has in memory (mincore(2)), and the faults that were
 * counted as its own. Those of a NIC are not. */
static void print_pages(struct region *r, const char *when) {
    const size_t pages = (r->size + r->page - 1) / r->page;
    unsigned char *there = malloc(pages);
    if (!there) die(errno, "malloc of %zu bytes", pages);
    memset(there, 0, pages);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    check(mincore(r->memory, r->size, there), "mincore");
    size_t count = 0;
    for (size_t i = 0; i < pages; i++) count += there[i] & 1;
    free(there);
    if (when)
        printf("%s: %zu of %zu pages are in memory; page faults of this process: %ld\n", when,
               count, pages, usage.ru_minflt - r->faults);
    getrusage(RUSAGE_SELF, &usage); /* what this function costs is not told */
    r->faults = usage.ru_minflt;
}

static void fill_blocks(const struct region *r, enum version version) {
    for (uint64_t i = 0; i < r->opt->iters; i++)
        pattern_fill(r->memory + place(r->opt, i), r->opt->size, seed_of(r->opt, version, i));
}

static bool blocks_ok(const struct region *r, enum version version) {
    bool pass = true;
    for (uint64_t i = 0; i < r->opt->iters && pass; i++)
        pass = pattern_ok("a block", r->memory + place(r->opt, i), r->opt->size,
                          seed_of(r->opt, version, i));
    return pass;
}

/* The child has what there was at the fork, also when its parent has written something else. */
static bool fork_and_fill(const struct region *r) {
    int filled[2];
    char none;
    check(pipe(filled), "pipe");
    fflush(stdout); /* or the child has it, too */
    const double began = now();
    const pid_t child = fork();
    if (child < 0) die(errno, "fork");
    if (child == 0) {
        close(filled[1]);
        const bool waited = read(filled[0], &none, 1) == 0; /* until the parent closes it */
        _exit(waited && blocks_ok(r, SECOND) ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    printf("fork: %.0f us\n", 1e6 * (now() - began));
    fill_blocks(r, SERVERS);
    close(filled[0]);
    close(filled[1]);
    int status = -1;
    if (waitpid(child, &status, 0) != child) die(errno, "waitpid");
    return expect(status == 0, "the child does not have the bytes of before");
}

/* Server: what --then asks for. Returns whether all went well. */
static bool change(const struct region *r, const char *then) {
    if (is(then, "fork")) return fork_and_fill(r);
    if (is(then, "dontneed")) { /* gives all pages back: the next access gets new ones, of zeros */
        check(madvise(r->memory, r->size, MADV_DONTNEED), "madvise MADV_DONTNEED");
        fill_blocks(r, SERVERS);
    }
    if (is(then, "pageout")) /* to swap space, if there is any, as if memory were short */
        check(madvise(r->memory, r->size, MADV_PAGEOUT), "madvise MADV_PAGEOUT");
    return true;
}

/* Whether the NIC goes on with pages that the process has no more. It does where they are pinned:
 * that is what pinning means. */
static bool nic_keeps_old_pages(const struct work *work) {
    return is(work->memory, "pinned") && is(work->then, "dontneed");
}

/* Which version the client must READ after --then, and which the server must have at the end. */
static enum version to_read(const struct work *work) {
    const bool filled = is(work->then, "fork") || is(work->then, "dontneed");
    return filled && !nic_keeps_old_pages(work) ? SERVERS : SECOND;
}

static enum version at_the_end(const struct work *work) {
    return nic_keeps_old_pages(work) ? SERVERS : LAST;
}

/* Server: 8. verify the blocks, and all that lies between them: zeros. */
static bool verify(const struct region *r, enum version version) {
    bool pass = blocks_ok(r, version);
    for (uint64_t i = 0; i < r->opt->iters && pass; i++) {
        const size_t end = i + 1 < r->opt->iters ? place(r->opt, i + 1) : r->size;
        for (size_t k = place(r->opt, i) + r->opt->size; k < end && pass; k++)
            pass = expect(r->memory[k] == 0, "byte %zu, between the blocks, is not 0", k);
    }
    return pass;
}

/* What the client needs for its requests. */
struct requester {
    struct ibv_qp *qp;
    struct ibv_cq *cq;
    struct ibv_mr *mr; /* of a block */
    char *block;
    const struct endpoint *peer;
    const struct options *opt;
};

/* Client: 7. the verbs. They are 01's and 03's: nothing in a request says how the peer's memory is
 * registered. */
static void access_block(const struct requester *c, enum ibv_wr_opcode opcode, uint64_t i) {
    struct ibv_sge sge = {(uintptr_t)c->block, (uint32_t)c->opt->size, c->mr->lkey};
    struct ibv_send_wr *bad_wr;
    struct ibv_send_wr wr = {
        .wr_id = i,
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = opcode,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = c->peer->addr + place(c->opt, i), .rkey = c->peer->rkey},
    };
    struct ibv_wc wc;
    check(ibv_post_send(c->qp, &wr, &bad_wr), "ibv_post_send");
    wait_completion(c->cq, "a block", c->opt->timeout, &wc);
    if (wc.wr_id != i) die(0, "another request's completion");
}

/* Writes all blocks. Returns the microseconds that one takes. */
static double write_blocks(const struct requester *c, enum version version) {
    double seconds = 0;
    for (uint64_t i = 0; i < c->opt->iters; i++) {
        pattern_fill(c->block, c->opt->size, seed_of(c->opt, version, i));
        const double began = now();
        access_block(c, IBV_WR_RDMA_WRITE, i);
        seconds += now() - began;
    }
    return 1e6 * seconds / (double)c->opt->iters;
}

static bool read_blocks(const struct requester *c, enum version version) {
    bool pass = true;
    for (uint64_t i = 0; i < c->opt->iters && pass; i++) {
        const uint64_t seed = seed_of(c->opt, version, i);
        poison_fill(c->block, c->opt->size, seed);
        access_block(c, IBV_WR_RDMA_READ, i);
        pass = pattern_ok("a block that was read", c->block, c->opt->size, seed);
    }
    return pass;
}

/* Client: the first WRITEs find pages that the NIC has never used. */
static bool use(const struct requester *c, struct rendezvous *tcp) {
    const struct work *work = c->opt->work;
    const double first = write_blocks(c, FIRST);
    const double second = write_blocks(c, SECOND);
    rendezvous_sync(tcp, "written");
    rendezvous_sync(tcp, "changed");
    const bool pass = read_blocks(c, to_read(work));
    write_blocks(c, LAST);
    printf("BENCH memory=%s blocks=%ju first_us=%.1f second_us=%.1f\n", work->memory, c->opt->iters,
           first, second);
    return pass;
}

/* Server: looks at its pages while the client uses them. */
static bool look(struct region *r, struct rendezvous *tcp, const struct work *work) {
    rendezvous_sync(tcp, "written");
    print_pages(r, "written twice by the client");
    bool pass = blocks_ok(r, SECOND);
    if (!pass && !is(work->memory, "pinned"))
        expect(false, "--size above the MTU? Soft-RoCE has put each packet at the beginning of its "
                      "page");
    pass = change(r, work->then) && pass;
    if (!is(work->then, "none")) print_pages(r, work->then);
    rendezvous_sync(tcp, "changed");
    return pass;
}

int main(int argc, char **argv) {
    /* 1. Options. A host argument makes this the client. */
    struct work work = {.memory = "odp", .then = "none", .region = 4 << 20, .limit = 1 << 20};
    struct options opt = {
        .sample = "17_odp",
        .size = 1024,
        .iters = 256,
        .seed = 1,
        .work = &work,
        .format_work = format_work,
        .parse_work = parse_work,
    };
    const struct option_row rows[] = {
        {'s', "size", "BYTES", "bytes in a block", NUMBER(opt.size, 1, MAX_SIZE)},
        {'n', "iters", "N", "number of blocks", NUMBER(opt.iters, 1, MAX_ITERS)},
        {'S', "seed", "N", "seed of the test data", NUMBER(opt.seed, 0, UINT64_MAX)},
        {0, "memory", "WAY", "the server's: pinned, odp or prefetch", .text = &work.memory},
        {0, "then", "WHAT", "happens to it: none, fork, dontneed, pageout", .text = &work.then},
        {0, "region", "BYTES", "its size", NUMBER(work.region, ALIGN, MAX_SIZE)},
        {0, "limit", "BYTES", "what the server may lock", NUMBER(work.limit, 0, UINT64_MAX)},
        {0},
    };
    parse_options(&opt, rows, argc, argv);
    const bool client = opt.host != NULL;
    if (!known(MEMORY, work.memory) || !known(THEN, work.then))
        stop(EXIT_USAGE, 0, "--memory: %s, %s, %s; --then: %s, %s, %s, %s", MEMORY[0], MEMORY[1],
             MEMORY[2], THEN[0], THEN[1], THEN[2], THEN[3]);
    if (misfit(&opt)) stop(EXIT_USAGE, 0, "--size, --iters, --region: %s", misfit(&opt));

    /* 2. Start the rendezvous. Device, protection domain, completion queue. */
    struct rendezvous tcp;
    struct endpoint peer;
    struct port port;
    rendezvous_open(&tcp, &opt, &peer);
    if (!client) lower_limit(work.limit);
    struct ibv_context *ctx = open_device(&opt, tcp.fd, &port);
    if (!client && !is(work.memory, "pinned")) require_odp(&tcp, ctx);
    errno = 0; /* a driver may return NULL and leave it: then no old error is told */
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    if (!pd) die(errno, "ibv_alloc_pd");
    struct ibv_cq *cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
    if (!cq) die(errno, "ibv_create_cq");

    /* 3. Memory. Server: the region. Client: a block, which its own NIC reads and writes. */
    struct region region = {.size = work.region, .opt = &opt};
    char *block = guarded_alloc(opt.size);
    struct ibv_mr *mr;
    if (client) {
        errno = 0;
        mr = ibv_reg_mr(pd, block, opt.size, IBV_ACCESS_LOCAL_WRITE);
        if (!mr) die(errno, "ibv_reg_mr of a block");
    } else {
        allocate(&region);
        print_pages(&region, NULL);
        mr = register_region(pd, &region, &work);
        if (is(work.memory, "prefetch")) prefetch(&tcp, &region, mr);
        print_pages(&region, "registered");
    }

    /* 4. The queue pair. */
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1},
    };
    errno = 0;
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp) die(errno, "ibv_create_qp");

    /* 5. Exchange. */
    const struct endpoint mine = {
        .lid = port.lid,
        .qpn = qp->qp_num,
        .psn = random_psn(),
        .gid = port.gid,
        .mtu = port.mtu,
        .addr = client ? 0 : (uintptr_t)region.memory,
        .rkey = client ? 0 : mr->rkey,
        .len = client ? 0 : region.size,
        .max_sge = 1,
        .rd_atomic = client ? 0 : 1,
    };
    rendezvous_swap(&tcp, &mine, &peer);

    /* 6. RESET -> INIT -> RTR -> RTS. */
    qp_to_init(qp, &port, client ? 0 : IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    qp_to_rtr(qp, &port, &peer, mine.rd_atomic);
    to_rts(qp, mine.psn, min_u32(peer.rd_atomic, 1));
    rendezvous_sync(&tcp, "ready");

    /* 7. The client WRITEs twice, READs and WRITEs; the server looks on, and changes its memory in
     * between. */
    const struct requester requester = {qp, cq, mr, block, &peer, &opt};
    bool pass = client ? use(&requester, &tcp) : look(&region, &tcp, &work);
    rendezvous_sync(&tcp, "done");

    /* 8. Verify every byte. The client has only the last block, and computes the digest of all. */
    if (!client) print_pages(&region, "read and written by the client");
    if (!client) pass = verify(&region, at_the_end(&work)) && pass;
    uint64_t digest = FNV_BASIS;
    for (uint64_t i = 0; i < opt.iters; i++) {
        const char *at = client ? block : region.memory + place(&opt, i);
        const enum version version = at_the_end(&work);
        if (client) pattern_fill(block, opt.size, seed_of(&opt, version, i));
        digest = fnv1a(digest, at, opt.size);
    }
    pass = guards_ok("the block", block, opt.size) && pass;
    pass = rendezvous_verdict(&tcp, pass);

    /* 9. Undo in reverse order. */
    check(ibv_destroy_qp(qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(mr), "ibv_dereg_mr");
    check(ibv_destroy_cq(cq), "ibv_destroy_cq");
    check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    check(ibv_close_device(ctx), "ibv_close_device");
    guarded_free(block);
    if (!client) check(munmap(region.memory, region.size), "munmap");
    return report_result(pass, opt.size * opt.iters, digest);
}
