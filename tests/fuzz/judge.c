/* SPDX-License-Identifier: BSD-2-Clause */
/* Says of each line of its stdin what a server of 03_read makes of it: good, or the reason why
 * it is refused. tests/test_lines.py compares that with the header's words. */
#include "../../common/rendezvous.c"

int main(void) {
    char line[LINE_SIZE + 2]; /* longer ones are read_line's matter */
    while (fgets(line, sizeof(line), stdin)) {
        struct options opt = {.sample = "03_read"};
        struct endpoint ep;
        const char *work;
        line[strcspn(line, "\n")] = '\0';
        const char *wrong = parse_line(line, "03_read", &ep, &work);
        if (!wrong) wrong = parse_work(&opt, work);
        puts(wrong ? wrong : "good");
    }
    return 0;
}
