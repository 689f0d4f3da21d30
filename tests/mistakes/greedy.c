// SPDX-License-Identifier: BSD-2-Clause
/* Fills memory and its process table, for ever: the others' turn comes all the same. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) {
    for (;;) {
        char *more = malloc(1 << 20);
        if (more) memset(more, 1, 1 << 20);
        fork();
    }
}
