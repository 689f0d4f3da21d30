// SPDX-License-Identifier: BSD-2-Clause
/*
 * vector.c - the assignment's data by MPI: rank 0 sends blocks of BLOCK bytes that lie twice as far
 * apart, 64 KiB in a message, as one MPI_Type_vector; rank 1 receives them as the same, and
 * verifies every byte. DEPTH messages are under way at a time. Prints MB/s.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 65536, DEPTH = 16, ROUNDS = 5 };
static unsigned char memory[DEPTH][2 * BYTES];

static unsigned char right(int slot, int i, int block) {
    return i % (2 * block) < block ? (unsigned char)(1 + (i * 31 + slot) % 255) : 0;
}

static void fill(int block) {
    for (int slot = 0; slot < DEPTH; slot++)
        for (int i = 0; i < 2 * BYTES; i++) memory[slot][i] = right(slot, i, block);
}

static void verify(int block) {
    for (int slot = 0; slot < DEPTH; slot++)
        for (int i = 0; i < 2 * BYTES; i++)
            if (memory[slot][i] != right(slot, i, block)) MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv) {
    MPI_Request requests[DEPTH];
    MPI_Datatype blocks;
    double begin = 0;
    int rank;
    MPI_Init(&argc, &argv); // errors end the program
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const int block = argc == 2 ? atoi(argv[1]) : 0;
    if (block < 1 || BYTES % block) MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Type_vector(BYTES / block, block, 2 * block, MPI_BYTE, &blocks);
    MPI_Type_commit(&blocks);
    if (rank == 0) fill(block); /* the other one's are zeros */
    for (int round = 0; round <= ROUNDS; round++) {
        if (round == 1) // the first one connects
            begin = MPI_Wtime();
        for (int slot = 0; slot < DEPTH; slot++)
            if (rank == 0)
                MPI_Isend(memory[slot], 1, blocks, 1, slot, MPI_COMM_WORLD, &requests[slot]);
            else
                MPI_Irecv(memory[slot], 1, blocks, 0, slot, MPI_COMM_WORLD, &requests[slot]);
        MPI_Waitall(DEPTH, requests, MPI_STATUSES_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    const double seconds = MPI_Wtime() - begin;
    if (rank == 0)
        printf("%.2f\n", (double)BYTES * DEPTH * ROUNDS / seconds / 1e6);
    else
        verify(block);
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Finalize();
}
