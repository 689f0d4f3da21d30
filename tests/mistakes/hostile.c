// SPDX-License-Identifier: BSD-2-Clause
/* Looks around instead: what it finds out, it says in its only line. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    const char *const secret[] = {"ROOT/05_gather_write/gather_write.c", "/run/grade/reference",
                                  "/root/.profile", "/run/cmd"};
    int seen = 0, written = open("ROOT/results/by-a-student", O_CREAT | O_WRONLY, 0666) >= 0;
    for (unsigned i = 0; i < sizeof(secret) / sizeof(*secret); i++)
        seen += open(secret[i], O_RDONLY) >= 0;
    if (fork() == 0)
        for (;;) pause();
    fprintf(stderr, "\033[2Jseen %d written %d as %d\n", seen, written, (int)getuid());
    return 0;
}
