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

static int send_file(const char *name, int to)
{
	static char data[CHUNK];
	FILE *file = fopen(name, "rb");
	if (!file)
		return 1;
	int size;
	do {
		size = (int)fread(data, 1, CHUNK, file);
		MPI_Send(data, size, MPI_CHAR, to, 0, MPI_COMM_WORLD); // errors end the program
	} while (size > 0); // an empty message is the end
	return fclose(file) != 0;
}

static int receive_file(const char *name, int from)
{
	static char data[CHUNK];
	FILE *file = fopen(name, "wb");
	if (!file)
		return 1;
	for (;;) {
		MPI_Status status;
		int size;
		MPI_Recv(data, CHUNK, MPI_CHAR, from, 0, MPI_COMM_WORLD, &status);
		MPI_Get_count(&status, MPI_CHAR, &size);
		if (size == 0)
			break;
		if (fwrite(data, 1, (size_t)size, file) != (size_t)size)
			return 1;
	}
	return fclose(file) != 0;
}

int main(int argc, char **argv)
{
	int rank;
	int failed;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (argc != 3)
		MPI_Abort(MPI_COMM_WORLD, 2);
	int sends = (strcmp(argv[1], "put") == 0) == (rank == 0);
	if (sends)
		failed = send_file(rank == 0 ? argv[2] : KEPT, 1 - rank);
	else
		failed = receive_file(rank == 0 ? argv[2] : KEPT, 1 - rank);
	if (failed)
		MPI_Abort(MPI_COMM_WORLD, 1);
	MPI_Finalize();
	return 0;
}
