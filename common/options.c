#define _GNU_SOURCE
#include "options.h"

#include "bench.h"
#include "rendezvous.h"
#include "report.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_SIZES "4K,16K,64K,256K,1M,4M"

static const struct {
    char letter;
    const char *name;
    const char *value; /* NULL: takes none */
    const char *help;
} option_table[] = {
    {'d', "ib-dev", "DEV", "RDMA device (default: the first with an ACTIVE port)"},
    {'i', "ib-port", "N", "port of the device (default: its first ACTIVE one)"},
    {'g', "gid-idx", "N", "index into the port's GID table (default: chosen)"},
    {'p', "port", "N", "TCP port to swap connection info over (default 18515)"},
    {'m', "mtu", "BYTES", "largest path MTU: 256, 512, 1024, 2048 or 4096"},
    {'t', "timeout", "SEC",
     "longest that a step may take (default 30); a long run is a step"},
    {'b', "bind", "ADDR", "local address to listen on, or to connect from"},
    {'v', "verbose", NULL, "show the lines that the two sides swap"},
    {'h', "help", NULL, "print this and exit"},
    {'s', "size", "BYTES", "client: bytes in a message (default 4096); 64K, 1M"},
    {'n', "iters", "N", "client: how many times to do it"},
    {'S', "seed", "N", "client: seed of the test data (default 1)"},
    {'M', "message", "TEXT", "client: the text to write (default \"hello verbs\")"},
    {'B', "block-size", "BYTES", "client: bytes in a block (default 4096)"},
    {'N', "block-num", "N", "client: number of blocks (default 64)"},
    {'T', "stride", "BYTES", "client: from block to block (default 2 * block size)"},
    {'I', "student", "ID", "client: the layout and the seed that belong to this ID"},
    {'x', "method", "NAME", "client: sgl (default), copy, each or auto"},
    {'k', "bench", NULL, "client: measure all methods; --iters is then rounds"},
    {'z', "sizes", "LIST",
     "client: bytes of the messages to measure (default " DEFAULT_SIZES ")"},
    {'D', "depth", "N", "client: messages in flight for bandwidth (default 16)"},
    {'c', "csv", "FILE", "client: write the figures to FILE too"},
};

#define OPTION_COUNT (sizeof(option_table) / sizeof(option_table[0]))
#define ALWAYS       "digpmtbvh"

static void print_help(const char *program, const char *workload, uint32_t iters)
{
    printf("usage: %s [options]          start the server, first\n"
           "       %s [options] HOST     start the client; HOST is the server's\n\n",
           program, program);
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if (!strchr(ALWAYS, option_table[i].letter) &&
            !strchr(workload, option_table[i].letter))
            continue;
        int used = printf("  -%c, --%s%s%s", option_table[i].letter, option_table[i].name,
                          option_table[i].value ? "=" : "",
                          option_table[i].value ? option_table[i].value : "");
        printf("%*s%s", used < 25 ? 25 - used : 1, "", option_table[i].help);
        if (option_table[i].letter == 'n')
            printf(" (default %u%s)", iters,
                   strchr(workload, 'k') ? "; with --bench 11 rounds" : "");
        putchar('\n');
    }
    printf(
        "\nexit status: 0 passed, 1 failed, 2 wrong usage, 77 no usable RDMA device\n");
}

bool parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    uint64_t value = 0, unit = 1;
    const char *p = text;

    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            return false;
    if (p == text)
        return false;
    if (*p == 'K' || *p == 'k')
        unit = 1024, p++;
    else if (*p == 'M' || *p == 'm')
        unit = 1024 * 1024, p++;
    if (*p != '\0' || __builtin_mul_overflow(value, unit, &value))
        return false;
    if (value < min || value > max)
        return false;
    *out = value;
    return true;
}

static uint64_t number_option(const char *name, const char *text, uint64_t min,
                              uint64_t max)
{
    uint64_t value = 0;

    if (!parse_number(text, min, max, &value))
        die_usage("--%s: '%s' is not a number from %llu to %llu", name, text,
                  (unsigned long long)min, (unsigned long long)max);
    return value;
}

/* Stores one option; letter is getopt's answer. */
static void set_option(struct options *opt, int letter, const char *arg)
{
    switch (letter) {
    case 'd':
        opt->ib_dev = arg;
        break;
    case 'i':
        opt->ib_port = (unsigned)number_option("ib-port", arg, 1, 255);
        break;
    case 'g':
        opt->gid_idx = (int)number_option("gid-idx", arg, 0, 65535);
        break;
    case 'p':
        number_option("port", arg, 1, 65535);
        opt->tcp_port = arg;
        break;
    case 'm':
        opt->mtu = (unsigned)number_option("mtu", arg, 256, 4096);
        if (opt->mtu & (opt->mtu - 1))
            die_usage("--mtu: %u is not one of 256, 512, 1024, 2048, 4096", opt->mtu);
        break;
    case 't':
        opt->timeout = (unsigned)number_option("timeout", arg, 1, MAX_TIMEOUT);
        opt->timeout_given = true;
        break;
    case 'b':
        opt->bind = arg;
        break;
    case 'v':
        opt->verbose = true;
        break;
    case 's':
        opt->size = number_option("size", arg, 1, MAX_SIZE);
        break;
    case 'n':
        opt->iters = (uint32_t)number_option("iters", arg, 1, MAX_ITERS);
        break;
    case 'S':
        opt->seed = number_option("seed", arg, 0, UINT64_MAX);
        break;
    case 'B':
        opt->layout.block_size = number_option("block-size", arg, 0, UINT64_MAX);
        break;
    case 'N':
        opt->layout.block_num = number_option("block-num", arg, 0, UINT64_MAX);
        break;
    case 'T':
        opt->layout.stride = number_option("stride", arg, 1, UINT64_MAX);
        break;
    case 'I':
        if (arg[0] == '\0')
            die_usage("--student: the ID is empty");
        layout_of_student(arg, &opt->layout, &opt->seed);
        break;
    case 'x':
        opt->method = arg;
        if (!method_by_name(arg, &(enum method){0}))
            die_usage("--method: '%s' is not sgl, copy, each or auto", arg);
        break;
    case 'k':
        opt->bench = true;
        break;
    case 'z':
        opt->sizes = arg;
        break;
    case 'D':
        opt->depth = (uint32_t)number_option("depth", arg, 1, MAX_DEPTH);
        break;
    case 'c':
        opt->csv = arg;
        break;
    case 'M':
        opt->message = arg;
        opt->size = strlen(arg);
        if (opt->size < 1 || opt->size > MAX_SIZE)
            die_usage("--message: give at least one character");
        break;
    }
}

/* What 05 to 07 derive from their options. */
static void settle_layout(struct options *opt)
{
    struct layout *l = &opt->layout;
    struct bench_plan plan;

    if (!opt->method)
        opt->method = "sgl";
    if (!opt->sizes)
        opt->sizes = DEFAULT_SIZES;
    if (opt->depth == 0)
        opt->depth = 16;
    if (l->stride == 0) /* not given: gaps as long as the blocks */
        l->stride = l->block_size > UINT64_MAX / 2 ? UINT64_MAX : 2 * l->block_size;
    const char *reason = layout_set(l, l->block_size, l->block_num, l->stride);
    if (reason)
        die_usage("%s", reason);
    opt->size = l->bytes;
    if (opt->iters == 0)
        opt->iters = opt->bench ? 11 : 1;
    if (opt->bench && opt->iters > MAX_ROUNDS)
        die_usage("--iters: more than %u rounds", MAX_ROUNDS);
    if (opt->bench && strlen(opt->sizes) >= sizeof(((struct endpoint *)0)->sizes))
        die_usage("--sizes: the list is too long");
    if (opt->bench && (reason = bench_make_plan(&plan, opt->sizes, l->block_size)))
        die_usage("--sizes: %s", reason);
}

void parse_options(struct options *opt, const char *sample, const char *workload,
                   int argc, char **argv)
{
    struct option longs[OPTION_COUNT + 1] = {0};
    char shorts[2 * OPTION_COUNT + 2] = ":", *end = shorts + 1;
    size_t count = 0;
    const char *workload_given = NULL, *bench_given = NULL;
    const uint32_t usual_iters = opt->iters ? opt->iters : 1;

    setvbuf(stdout, NULL, _IOLBF, 0); /* in step with stderr, in a pipe too */

    for (size_t i = 0; i < OPTION_COUNT; i++) {
        char letter = option_table[i].letter;
        if (!strchr(ALWAYS, letter) && !strchr(workload, letter))
            continue;
        longs[count++] = (struct option){
            .name = option_table[i].name,
            .has_arg = option_table[i].value ? required_argument : no_argument,
            .val = letter,
        };
        *end++ = letter;
        if (option_table[i].value)
            *end++ = ':';
    }

    opt->gid_idx = -1;
    opt->tcp_port = "18515";
    opt->timeout = 30;

    opterr = 0; /* our own words, and the RESULT line after them */
    /* Once only to see whether a HOST follows, so that errors name the right side. */
    while (getopt_long(argc, argv, shorts, longs, NULL) != -1)
        continue;
    report_as(sample, optind < argc ? "client" : "server");
    optind = 0; /* from the start again: getopt(3), notes on glibc */
    for (int c, index = -1; (c = getopt_long(argc, argv, shorts, longs, &index)) != -1;
         index = -1) {
        /* getopt takes any beginning of a name: --size would be --sizes where that is
         * the only one. Whole names alone are clear. */
        const char *word =
            argv[optind - 1] == optarg ? argv[optind - 2] : argv[optind - 1];
        if (index >= 0 && strcspn(word + 2, "=") != strlen(longs[index].name))
            die_usage("unknown option '%s'", word);
        if (c == 'h') {
            print_help(argv[0], workload, usual_iters);
            exit(fflush(stdout) == 0 && !ferror(stdout) ? EXIT_SUCCESS : EXIT_FAILURE);
        }
        if (c == ':')
            die_usage("option '%s' needs a value", argv[optind - 1]);
        if (c == '?' && optopt && strchr(shorts, optopt))
            die_usage("option '%s' takes no value", argv[optind - 1]);
        if (c == '?' && optopt)
            die_usage("unknown option '-%c'", optopt);
        if (c == '?')
            die_usage("unknown option '%s'", argv[optind - 1]);
        if (strchr(workload, c))
            workload_given = argv[optind - 1];
        if (strchr("zDc", c))
            bench_given = word;
        set_option(opt, c, optarg);
    }

    if (strchr(workload, 'B'))
        settle_layout(opt);
    if (optind < argc) {
        opt->host = argv[optind++];
    }
    if (optind < argc)
        die_usage("one HOST is enough: what is '%s'?", argv[optind]);
    if (opt->host && opt->host[0] == '\0')
        die_usage("HOST is empty");
    if (bench_given && !opt->bench)
        die_usage("'%s' says how to measure: it needs --bench", bench_given);
    if (!opt->host && workload_given)
        die_usage("the workload ('%s') is the client's to give: start the server without",
                  workload_given);
}
