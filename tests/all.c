// SPDX-License-Identifier: BSD-2-Clause
/*
 * all.c - all samples in one program, for valgrind: it translates the libraries once, and not for
 * each sample.
 *
 *   all PREFIX    reads lines of stdin: a program's name, and its arguments
 *
 * Runs the first here, so that the code is translated, and each other one in a child. What it
 * prints goes to PREFIX.LINE.out and .err; here a line tells its process and exit status.
 * -DSAMPLES="X(read)…" names them, and each is compiled with -Dmain=main_read.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int program(int argc, char *argv[]);
#define X(name) program main_##name;
SAMPLES
#undef X

static const struct {
    const char *name;
    program *main;
} samples[] = {
#define X(name) {#name, main_##name},
    SAMPLES
#undef X
};

static void print_to(const char *prefix, int line, const char *kind, int fd) {
    char path[200];
    snprintf(path, sizeof(path), "%s.%d.%s", prefix, line, kind);
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (file < 0 || dup2(file, fd) < 0 || close(file)) exit(99);
}

static int run(char *text, const char *prefix, int line) {
    char *argv[20];
    int argc = 0;
    for (char *word = strtok(text, " \n"); word && argc < 19; word = strtok(NULL, " \n"))
        argv[argc++] = word;
    argv[argc] = NULL;
    print_to(prefix, line, "out", STDOUT_FILENO);
    print_to(prefix, line, "err", STDERR_FILENO);
    optind = 0; // getopt(3): from the start
    for (size_t i = 0; argc && i < sizeof(samples) / sizeof(*samples); i++)
        if (!strcmp(samples[i].name, argv[0])) return samples[i].main(argc, argv);
    return 99;
}

int main(int argc, char *argv[]) {
    char text[1000];
    const int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
    for (int line = 0; argc == 2 && fgets(text, sizeof(text), stdin); line++) {
        int status = 0;
        const pid_t child = line ? fork() : 0;
        if (child == 0) {
            status = run(text, argv[1], line);
            fflush(stdout);
            if (line) return close(out), status;
        } else {
            waitpid(child, &status, 0);
            status = WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
        }
        dprintf(out, "%d %d\n", (int)(line ? child : getpid()), status);
    }
    return close(out);
}
