/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer for 11_rdma_cm, written from its head comment alone: no line of the suite is in it. It
 * takes librdmacm's other way, endpoints and calls that wait, and posts with plain verbs.
 *
 *   cm_peer server ADDRESS PORT P|F          serves one client; then says P or F
 *   cm_peer client ADDRESS PORT P|F TEXT     writes TEXT, reads it back; then says P or F
 *
 * Prints "peer P" or "peer F", what the other side said. Exit status 0 if the data is right.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "11_rdma_cm"
enum { PRIVATE = 16 + 3 * 8 };

static void must(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "cm_peer: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t fnv(const char *text, size_t size) {
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)text[i]) * UINT64_C(1099511628211);
    return hash;
}

static void put(unsigned char *out, uint64_t a, uint64_t b, uint64_t c) {
    const uint64_t numbers[3] = {htobe64(a), htobe64(b), htobe64(c)};
    memset(out, 0, PRIVATE);
    memcpy(out, NAME, strlen(NAME));
    memcpy(out + 16, numbers, sizeof(numbers));
}

static uint64_t get(const struct rdma_cm_id *id, int number) {
    const struct rdma_conn_param *conn = &id->event->param.conn;
    uint64_t value;
    must(conn->private_data_len >= PRIVATE, "private data");
    must(memcmp(conn->private_data, NAME "\0\0\0\0\0", 16) == 0, "the sample's name");
    memcpy(&value, (const char *)conn->private_data + 16 + 8 * number, 8);
    return be64toh(value);
}

static void done(struct ibv_cq *cq, const char *what) {
    struct ibv_wc wc;
    int n;
    while ((n = ibv_poll_cq(cq, 1, &wc)) == 0) continue;
    must(n == 1, "ibv_poll_cq");
    if (wc.status != IBV_WC_SUCCESS) fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
    must(wc.status == IBV_WC_SUCCESS, what);
}

static void post(struct rdma_cm_id *id, enum ibv_wr_opcode opcode, char *at, size_t size,
                 struct ibv_mr *mr, uint64_t addr, uint64_t rkey) {
    struct ibv_sge sge = {.addr = (uintptr_t)at, .length = (uint32_t)size, .lkey = mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode}, *bad;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = addr;
    wr.wr.rdma.rkey = (uint32_t)rkey;
    must(ibv_post_send(id->qp, &wr, &bad) == 0, "ibv_post_send");
    done(id->send_cq, "a request");
}

int main(int argc, char **argv) {
    must(argc >= 5, "arguments");
    const int client = strcmp(argv[1], "client") == 0;
    struct rdma_addrinfo hints = {.ai_flags =
                                      client ? RAI_NUMERICHOST : RAI_NUMERICHOST | RAI_PASSIVE,
                                  .ai_port_space = RDMA_PS_TCP};
    struct rdma_addrinfo *address;
    struct rdma_cm_id *id, *listener = NULL;
    must(rdma_getaddrinfo(argv[2], argv[3], &hints, &address) == 0, "rdma_getaddrinfo");
    must(rdma_create_ep(&id, address, NULL, NULL) == 0, "rdma_create_ep");
    size_t size = client ? strlen(argv[5]) : 0;
    uint64_t digest = client ? fnv(argv[5], size) : 0;
    if (!client) {
        listener = id;
        must(rdma_listen(listener, 1) == 0, "rdma_listen");
        must(rdma_get_request(listener, &id) == 0, "rdma_get_request");
        size = get(id, 0);
        digest = get(id, 1);
    }

    char *memory = calloc(2, size + 1); /* the text, then the client's copy, and two verdicts */
    must(memory != NULL, "calloc");
    char *back = memory + size, *verdicts = back + size;
    if (client) memcpy(memory, argv[5], size);
    struct ibv_mr *mr =
        ibv_reg_mr(id->pd, memory, 2 * size + 2,
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    must(mr != NULL, "ibv_reg_mr");
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {4, 1, 1, 1, 0}};
    must(rdma_create_qp(id, NULL, &init) == 0, "rdma_create_qp");
    struct ibv_sge sge = {.addr = (uintptr_t)verdicts, .length = 1, .lkey = mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    must(ibv_post_recv(id->qp, &wr, &bad) == 0, "ibv_post_recv");

    unsigned char private[PRIVATE];
    struct rdma_conn_param ours = {.private_data = private, .private_data_len = PRIVATE};
    ours.responder_resources = ours.initiator_depth = 1;
    ours.retry_count = ours.rnr_retry_count = 5;
    if (client)
        put(private, size, digest, 30);
    else
        put(private, (uintptr_t)memory, mr->rkey, 0);
    must((client ? rdma_connect(id, &ours) : rdma_accept(id, &ours)) == 0, "the connection");

    verdicts[1] = argv[4][0];
    if (client) {
        const uint64_t addr = get(id, 0), rkey = get(id, 1);
        post(id, IBV_WR_RDMA_WRITE, memory, size, mr, addr, rkey);
        post(id, IBV_WR_RDMA_READ, back, size, mr, addr, rkey);
        post(id, IBV_WR_SEND, verdicts + 1, 1, mr, 0, 0);
    }
    done(id->recv_cq, "the other side's verdict");
    if (!client) post(id, IBV_WR_SEND, verdicts + 1, 1, mr, 0, 0);
    const int right = fnv(client ? back : memory, size) == digest;
    printf("peer %c\n", verdicts[0]);
    rdma_disconnect(id);
    rdma_destroy_ep(id);
    if (listener) rdma_destroy_ep(listener);
    return right ? 0 : 1;
}
