/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "options.h"
#include "report.h"

#include <getopt.h>
#define MAX_ROWS 32

bool parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *out) {
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    const uint64_t unit = *end == 'K' ? 1024 : *end == 'M' ? 1024 * 1024 : 1;
    if (text[0] < '0' || text[0] > '9' || errno || end[unit > 1] ||
        __builtin_mul_overflow(value, unit, &value) || value < min || value > max)
        return false; /* strtoull alone would take signs and blanks */
    *out = value;
    return true;
}

/* Stores a value. Returns NULL, or what is wrong with it. */
static const char *store(const struct option_row *row, const char *value) {
    static char wrong[100];
    if (row->text) return (*row->text = value)[0] ? NULL : "its value is empty";
    if (parse_number(value, row->min, row->max, row->number)) return NULL;
    snprintf(wrong, sizeof(wrong), "not a number from %ju to %ju", row->min, row->max);
    return wrong;
}

static void print_help(const char *program, const struct option_row **rows) {
    printf("%s [options]: start the server (before the client)\n", program);
    printf("%s [options] HOST: start the client; HOST is the server\n\n", program);
    for (const struct option_row *row; (row = *rows); rows++) {
        int used = row->letter ? printf("  -%c, ", row->letter) : printf("      ");
        used += printf("--%s", row->name) + (row->value ? printf("=%s", row->value) : 0);
        printf("%*s%s", used < 28 ? 28 - used : 1, "", row->help);
        if (row->value && row->number && *row->number >= row->min && *row->number <= row->max)
            printf(" (default %ju)", *row->number);
        puts(row->letter == 'h' ? "\n\nonly for the client:" : ""); /* -h is the last common one */
        if (rows[1] && rows[1]->server > row->server) puts("\nonly for the server:");
    }
    printf("\nexit status: 0 passed, 1 failed, 2 wrong usage, 77 no RDMA device\n");
    exit(fflush(stdout) == 0 && !ferror(stdout) ? EXIT_SUCCESS : EXIT_FAILURE);
}

/* All options of a sample, in the form of getopt_long(3), too. */
struct table {
    const struct option_row *rows[MAX_ROWS + 1];
    struct option longs[MAX_ROWS + 1];
    char shorts[2 * MAX_ROWS + 2];
    int count;
};

static void add_rows(struct table *table, const struct option_row *row) {
    for (; row->name; row++) {
        const int n = table->count;
        char *end = table->shorts + strlen(table->shorts);
        table->rows[n] = row;
        table->longs[n] = (struct option){row->name, row->value != NULL, NULL, 256 + n};
        if (row->letter) sprintf(end, row->value ? "%c:" : "%c", row->letter);
        table->count++;
    }
}

/* The row of what getopt_long(3) has found; NULL if it is no option, or has a value too few or
 * many. */
static const struct option_row *row_of(const struct table *table, int option) {
    for (int i = 0; i < table->count; i++)
        if (option == 256 + i || option == table->rows[i]->letter) return table->rows[i];
    return NULL;
}

/* What is wrong with the options as a whole, and in *word which one. NULL: nothing. only: the last
 * option for clients alone, and for servers alone. */
static const char *wrong_together(const struct options *opt, const char *only[2],
                                  const char **word) {
    *word = only[opt->host != NULL];
    if (*word && opt->host) return "for servers only";
    if (*word) return "only for the client: start the server without it";
    *word = "bind";
    if (opt->host && opt->bind) return "for servers only";
    *word = "mtu";
    return opt->mtu & (opt->mtu - 1) ? "256, 512, 1024, 2048 or 4096" : NULL;
}

void parse_options(struct options *opt, const struct option_row *own, int argc, char **argv) {
    uint64_t help = 0;
    const struct option_row common[] = {
        {'d', "ib-dev", "DEV", "RDMA device", .text = &opt->ib_dev},
        {'i', "ib-port", "N", "port of the device", NUMBER(opt->ib_port, 1, 255)},
        {'g', "gid-idx", "N", "index into the port's GID table", NUMBER(opt->gid_idx, 0, 255)},
        {'m', "mtu", "BYTES", "largest path MTU, 256 to 4096", NUMBER(opt->mtu, 256, 4096)},
        {'l', "sl", "N", "service level", NUMBER(opt->sl, 0, 15)},
        {0, "traffic-class", "N", "traffic class", NUMBER(opt->traffic_class, 0, 255)},
        {0, "pkey-idx", "N", "index into the port's P_Key table", NUMBER(opt->pkey_idx, 0, 65535)},
        {'p', "port", "N", "TCP port", NUMBER(opt->tcp_port, 1, 65535)},
        {'b', "bind", "ADDR", "server: address to listen on", .text = &opt->bind},
        {0, "timeout", "SEC", "limit for each step (30)", NUMBER(opt->timeout, 1, MAX_TIMEOUT)},
        {'v', "verbose", NULL, "show the lines sent over TCP", NUMBER(opt->verbose, 1, 1)},
        {'h', "help", NULL, "print this and exit", NUMBER(help, 1, 1)},
        {0},
    };
    struct table table = {.shorts = ":"};
    const char *wrong = NULL, *word = "", *only[2] = {NULL}; /* for clients; for servers */
    int option;
    add_rows(&table, common);
    const int shared = table.count - 1; /* -h, the last one, is for neither side alone */
    add_rows(&table, own);
    setvbuf(stdout, NULL, _IOLBF, 0); /* in step with stderr, in a pipe too */
    opt->gid_idx = GID_CHOOSE;
    opt->tcp_port = 18515;
    opterr = 0; /* our own messages, and the RESULT line after them */
    while ((option = getopt_long(argc, argv, table.shorts, table.longs, NULL)) != -1) {
        if (wrong) continue; /* the first mistake is told; but HOST is looked for behind it */
        const struct option_row *row = row_of(&table, option);
        word = argv[optind - 1];
        wrong = row ? store(row, optarg ? optarg : "1")
                    : "no such option, or its value is missing or one too many";
        for (int i = shared + 1; row && i < table.count; i++)
            if (row == table.rows[i]) only[row->server] = row->name;
        if (help) print_help(argv[0], table.rows);
    }
    opt->host = argv[optind];
    if (!wrong && opt->host && (argv[optind + 1] || !opt->host[0])) {
        wrong = "one HOST is needed";
        word = argv[argc - 1];
    }
    if (!wrong) wrong = wrong_together(opt, only, &word);
    report_as(opt->sample, opt->host ? "client" : "server");
    if (wrong) stop(EXIT_USAGE, 0, "%s: %s", word, wrong);
    if (opt->host && opt->timeout == 0) opt->timeout = 30;
}
