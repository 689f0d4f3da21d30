// SPDX-License-Identifier: BSD-2-Clause
/*
 * vector mpi|ucx|libfabric BLOCK - the assignment's data by a library. Rank 0 sends blocks that lie
 * twice as far apart, 64 KiB in a message, 16 at a time; rank 1 verifies every byte. Prints MB/s.
 */
#include <err.h>
#include <mpi.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

enum { BYTES = 65536, DEPTH = 16, ROUNDS = 20 };
static unsigned char memory[DEPTH][2 * BYTES];
static int rank, block, count; /* bytes of a block, blocks of a message */

/* Who waits calls this, MPI too. It sleeps: the NIC needs the VM's one CPU. */
int sched_yield(void) { return usleep(50); }

/* Ends the program, and so mpirun, if a call does not return 0. */
#define OK(call) ((call) == 0 ? (void)0 : errx(1, "%s", #call))

/* MPI: a message is one MPI_Type_vector. Errors end it. */
static void mpi_move(void) {
    MPI_Request requests[DEPTH];
    MPI_Datatype blocks;
    MPI_Type_vector(count, block, 2 * block, MPI_BYTE, &blocks);
    MPI_Type_commit(&blocks);
    for (int slot = 0; slot < DEPTH; slot++)
        if (rank == 0)
            MPI_Isend(memory[slot], 1, blocks, 1, slot, MPI_COMM_WORLD, &requests[slot]);
        else
            MPI_Irecv(memory[slot], 1, blocks, 0, slot, MPI_COMM_WORLD, &requests[slot]);
    MPI_Waitall(DEPTH, requests, MPI_STATUSES_IGNORE);
    MPI_Type_free(&blocks);
}

/* UCX: a message is one list of blocks. */
static ucp_worker_h worker;
static ucp_ep_h receiver;

static void ucx_connect(void) {
    const ucp_params_t tags = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    static char name[4096];
    const ucp_ep_params_t to = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                .address = (ucp_address_t *)name};
    ucp_context_h context;
    ucp_address_t *mine;
    size_t length;
    OK(ucp_init(&tags, NULL, &context));
    OK(ucp_worker_create(context, &(ucp_worker_params_t){0}, &worker));
    OK(ucp_worker_get_address(worker, &mine, &length));
    memcpy(name, mine, length);
    MPI_Bcast(name, sizeof name, MPI_BYTE, 1, MPI_COMM_WORLD);
    if (rank == 0) OK(ucp_ep_create(worker, &to, &receiver));
}

static void ucx_move(void) {
    const ucp_request_param_t list = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE,
                                      .datatype = ucp_dt_make_iov()};
    static ucp_dt_iov_t lists[DEPTH][BYTES];
    void *requests[DEPTH];
    if (worker == NULL) ucx_connect();
    for (int slot = 0; slot < DEPTH; slot++) {
        for (int i = 0; i < count; i++)
            lists[slot][i] = (ucp_dt_iov_t){memory[slot] + 2 * i * block, block};
        if (rank == 0)
            requests[slot] = ucp_tag_send_nbx(receiver, lists[slot], count, slot, &list);
        else
            requests[slot] = ucp_tag_recv_nbx(worker, lists[slot], count, slot, -1, &list);
    }
    for (int slot = 0; slot < DEPTH; slot++) {
        if (requests[slot] == NULL) continue; // done at once
        OK(UCS_PTR_IS_ERR(requests[slot]));
        while (ucp_request_check_status(requests[slot]) == UCS_INPROGRESS)
            if (ucp_worker_progress(worker) == 0) sched_yield();
        OK(ucp_request_check_status(requests[slot]));
        ucp_request_free(requests[slot]);
    }
}

/* libfabric: it takes short lists, so a message goes in pieces. */
static struct fid_ep *endpoint;
static struct fid_cq *queue;
static fi_addr_t peer;
static size_t most, under_way; /* blocks of a piece; pieces */

static void libfabric_connect(void) {
    struct fi_info *hints = fi_allocinfo();
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *peers;
    char name[256];
    size_t length = sizeof name;
    hints->caps = FI_MSG;
    hints->addr_format = FI_SOCKADDR_IN;
    hints->ep_attr->type = FI_EP_RDM;
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    hints->fabric_attr->prov_name = strdup("verbs;ofi_rxm");
    OK(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info));
    OK(fi_fabric(info->fabric_attr, &fabric, NULL));
    OK(fi_domain(fabric, info, &domain, NULL));
    OK(fi_endpoint(domain, info, &endpoint, NULL));
    OK(fi_cq_open(domain, &(struct fi_cq_attr){.format = FI_CQ_FORMAT_CONTEXT}, &queue, NULL));
    OK(fi_av_open(domain, &(struct fi_av_attr){0}, &peers, NULL));
    OK(fi_ep_bind(endpoint, &queue->fid, FI_SEND | FI_RECV));
    OK(fi_ep_bind(endpoint, &peers->fid, 0));
    OK(fi_enable(endpoint));
    OK(fi_getname(&endpoint->fid, name, &length));
    MPI_Bcast(name, sizeof name, MPI_BYTE, 1, MPI_COMM_WORLD);
    OK(fi_av_insert(peers, name, 1, &peer, 0, NULL) - 1);
    most = info->tx_attr->iov_limit; // 4
}

static void progress(void) {
    struct fi_cq_entry entry;
    const ssize_t got = fi_cq_read(queue, &entry, 1);
    OK(got != 1 && got != -FI_EAGAIN);
    if (got == 1)
        under_way--;
    else
        sched_yield();
}

static void libfabric_move(void) {
    static struct iovec list[BYTES];
    if (endpoint == NULL) libfabric_connect();
    for (int slot = 0; slot < DEPTH; slot++)
        for (int i = 0; i < count;) {
            struct fi_msg piece = {.msg_iov = list, .addr = peer};
            for (; i < count && piece.iov_count < most; i++)
                list[piece.iov_count++] = (struct iovec){memory[slot] + 2 * i * block, block};
            ssize_t status;
            while ((status = rank == 0 ? fi_sendmsg(endpoint, &piece, 0)
                                       : fi_recvmsg(endpoint, &piece, 0)) == -FI_EAGAIN)
                progress(); // it connects, or the queue is full
            OK(status);
            under_way++;
        }
    while (under_way > 0) progress();
}

/* Fills memory, or compares: blocks of data, zeros between them. */
static void data(int compare) {
    for (int slot = 0; slot < DEPTH; slot++)
        for (int i = 0; i < 2 * BYTES; i++) {
            const int right = i % (2 * block) < block ? 1 + (i * 31 + slot) % 255 : 0;
            if (compare)
                OK(memory[slot][i] - right);
            else
                memory[slot][i] = (unsigned char)right;
        }
}

int main(int argc, char **argv) {
    void (*move)(void) = mpi_move;
    double begin = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    block = argc == 3 ? atoi(argv[2]) : 0;
    OK(block < 1 || BYTES % block != 0);
    if (strcmp(argv[1], "ucx") == 0) move = ucx_move;
    if (strcmp(argv[1], "libfabric") == 0) move = libfabric_move;
    count = BYTES / block;
    if (rank == 0) data(0); // the other one's are zeros
    for (int round = 0; round <= ROUNDS; round++) {
        if (round == 1) // the first one connects
            begin = MPI_Wtime();
        move();
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (rank == 0) printf("%.2f\n", (double)BYTES * DEPTH * ROUNDS / (MPI_Wtime() - begin) / 1e6);
    data(1);
    return MPI_Finalize();
}
