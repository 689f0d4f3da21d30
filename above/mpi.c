// SPDX-License-Identifier: BSD-2-Clause
/*
 * mpi.c - two ranks: rank 0 here, rank 1 on the other host
 *   mpi put FILE    rank 0 sends the file, rank 1 keeps it as KEPT
 *   mpi get FILE    rank 1 sends KEPT, rank 0 writes it to the file
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#define KEPT "/run/kept"
#define CHUNK 65536

/* By messages of CHUNK bytes; an empty one is the end. MPI's own errors end the program. */
static int move(FILE *file, int sends, int peer)
{
	static char data[CHUNK];
	int size;
	do {
		if (sends) {
			size = (int)fread(data, 1, CHUNK, file);
			MPI_Send(data, size, MPI_CHAR, peer, 0, MPI_COMM_WORLD);
		} else {
			MPI_Status status;
			MPI_Recv(data, CHUNK, MPI_CHAR, peer, 0, MPI_COMM_WORLD, &status);
			MPI_Get_count(&status, MPI_CHAR, &size);
			fwrite(data, 1, (size_t)size, file);
		}
	} while (size > 0);
	return ferror(file) | fclose(file);
}

int main(int argc, char **argv)
{
	int rank;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (argc != 3)
		MPI_Abort(MPI_COMM_WORLD, 2);
	int sends = (strcmp(argv[1], "put") == 0) == (rank == 0);
	FILE *file = fopen(rank == 0 ? argv[2] : KEPT, sends ? "rb" : "wb");
	if (!file || move(file, sends, 1 - rank))
		MPI_Abort(MPI_COMM_WORLD, 1);
	MPI_Finalize();
	return 0;
}
