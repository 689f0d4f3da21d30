/*
 * grade - grades the files that `make handin` wrote, a folder of them in a second.
 *
 *   grade [--rubric FILE] [--reference FILE] [--csv FILE] [--format FORMAT] FOLDER
 *   grade --student ID      prints the layout and the seed that belong to a student
 *
 * What a student's run must have printed is computed anew from the ID, by the samples'
 * own code in common/, so another student's file doesn't pass. Of the measurement only
 * what can't depend on the machine's speed is looked at.
 *
 * The files come from people who may not wish this program well. It opens regular files
 * alone, reads at most MAX_FILE bytes, executes nothing, and prints nothing of them but
 * printable ASCII. Exit status: 0, or 2 where it was called wrongly.
 */
#define _GNU_SOURCE
#include "../common/bench.h"
#include "../common/data.h"
#include "../common/layout.h"
#include "../common/options.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAX_FILE = 1 << 20, /* bytes of a hand-in; a good one has some 30,000 */
    MAX_LINES = 50000,
    MAX_ID = 32,
    REASONS = 3, /* kept of each part */
    WIDTH = 100, /* bytes of an offending line that are shown */
    PAIRS = 7
};

/* The parts of a hand-in. The first PAIRS are the samples', in their order. */
enum part { MEASURED = PAIRS, COMPLETE, FIGURES, CHOSEN, OWN, ANSWERS, PARTS };
static const char *const part_names[PARTS] = {
    "01_hello_write",  "02_send_recv", "03_read",  "04_atomic", "05_gather_write",
    "06_scatter_read", "07_gssr",      "measured", "complete",  "figures",
    "chosen",          "own",          "answers"};
enum { NEEDS_NOTHING = -1, NEEDS_LAB = -2 };

struct rubric {
    int part[PARTS]; /* in the order of the file */
    int count;
    unsigned points[PARTS];
    int needs[PARTS]; /* another part, or one of the above */
    char sizes[128];
};

/*
 * How far figures in virtual time may lie from what they should be. Measured on one
 * machine they repeat within 1 %; between kernels the software NIC's packets and list
 * elements cost differently, so that ratios move by some per cent. Who invents a speed-up
 * is further off than that. Real time, where others' work disturbs, gets wide bounds.
 */
static const double RATIO_SLACK = 1.25; /* a method to contig, against the reference */
static const double SIZES_SLACK = 1.6;  /* the same at message sizes between its points */
static const double SAME_SLACK = 1.25;  /* the same bytes in one piece, over the sweep */
static const double GROWTH_SLACK = 1.6; /* time in proportion to bytes, from 16 KiB on */
static const double FASTEST_LIST = 0.9; /* a list's time, to the contiguous message's */
static const double BUSY[2] = {0.6, 1.6}; /* bandwidth * latency / bytes: see overlap */

/* The block sizes swept, as ratios to contig by lab and method; 0: no reference. */
enum { SWEEP = 11 }; /* 64 B to 64 KiB */
struct reference {
    double ratio[3][METHOD_COUNT][SWEEP];
};

struct span {
    int first, end; /* lines, from 0; first is -1 where there is no such section */
    int line;       /* to name in a reason */
};

struct line {
    const char *text; /* ends with a 0 byte */
    size_t len;
};

struct handin {
    char file[256]; /* its name, printable */
    char id[MAX_ID + 1];
    int lab;           /* 5, 6 or 7 */
    char refused[400]; /* why nothing of it counts; "" */
    char remark[200];  /* costs nothing */
    struct line *lines;
    int count;
    struct span section[PARTS];
    int reasons[PARTS];
    char reason[PARTS][REASONS][400];
    uint64_t print[3]; /* what no two runs have in common: see fingerprint */
    unsigned score;
};

/* ---- saying what is wrong ---- */

/* Copies text as printable ASCII, anything else as '?', cut at room - 1. */
static void printable(char *out, size_t room, const char *text, size_t len)
{
    size_t n = len < room - 1 ? len : room - 1;

    for (size_t i = 0; i < n; i++)
        out[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    out[n] = '\0';
    if (len > n && n >= 3)
        memcpy(out + n - 3, "...", 3);
}

/* A part is wrong: keeps the reason, and the line (from 0; -1: none) that shows it. */
__attribute__((format(printf, 4, 5))) static void wrong(struct handin *h, enum part part,
                                                        int line, const char *fmt, ...)
{
    char words[200], shown[WIDTH];
    va_list args;

    if (h->reasons[part]++ >= REASONS)
        return;
    va_start(args, fmt);
    vsnprintf(words, sizeof(words), fmt, args);
    va_end(args);
    char *to = h->reason[part][h->reasons[part] - 1];
    if (line < 0 || line >= h->count) {
        snprintf(to, sizeof(h->reason[0][0]), "%s", words);
        return;
    }
    printable(shown, sizeof(shown), h->lines[line].text, h->lines[line].len);
    snprintf(to, sizeof(h->reason[0][0]), "%s\n     line %d: %s", words, line + 1, shown);
}

__attribute__((format(printf, 2, 3))) static void refuse(struct handin *h,
                                                         const char *fmt, ...)
{
    va_list args;

    if (h->refused[0])
        return; /* the first reason */
    va_start(args, fmt);
    vsnprintf(h->refused, sizeof(h->refused), fmt, args);
    va_end(args);
}

/* ---- reading ---- */

/* The value of  name=value  in a line, up to the next space. Returns false where the
 * field isn't there exactly once, or is too long. */
static bool field(const char *line, const char *name, char *out, size_t room)
{
    const size_t len = strlen(name);
    int found = 0;

    for (const char *p = strchr(line, ' '); p; p = strchr(p, ' ')) {
        p++;
        if (strncmp(p, name, len) != 0 || p[len] != '=')
            continue;
        size_t n = strcspn(p + len + 1, " ");
        if (++found > 1 || n == 0 || n >= room)
            return false;
        memcpy(out, p + len + 1, n);
        out[n] = '\0';
    }
    return found == 1;
}

static bool whole_number(const char *line, const char *name, uint64_t *out)
{
    char text[24], *end;

    if (!field(line, name, text, sizeof(text)) || !isdigit((unsigned char)text[0]))
        return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *end == '\0' && errno == 0;
}

/* A figure: digits with a point, above 0. */
static bool figure(const char *line, const char *name, double *out)
{
    char text[24];

    if (!field(line, name, text, sizeof(text)) ||
        text[strspn(text, "0123456789.")] != '\0')
        return false;
    *out = strtod(text, NULL);
    return isfinite(*out) && *out > 0;
}

static bool starts(const char *line, const char *with)
{
    return strncmp(line, with, strlen(with)) == 0;
}

static bool valid_id(const char *id)
{
    return strlen(id) >= 1 && strlen(id) <= MAX_ID && isalnum((unsigned char)id[0]) &&
           id[strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                         "0123456789_-")] == '\0';
}

/* Does a file's name hold the ID, not as a part of a longer one? Course servers put other
 * things around it. */
static bool named_after(const char *file, const char *id)
{
    const size_t len = strlen(id);

    for (const char *p = strstr(file, id); p; p = strstr(p + 1, id))
        if ((p == file || !isalnum((unsigned char)p[-1])) &&
            !isalnum((unsigned char)p[len]))
            return true;
    return false;
}

/* Cuts data, which has room for one byte more, into lines. */
static void cut_lines(struct handin *h, char *data, size_t len)
{
    size_t most = 1;

    data[len] = '\0';
    for (size_t i = 0; i < len && most < MAX_LINES; i++)
        most += data[i] == '\n';
    h->lines = calloc(most, sizeof(*h->lines));
    if (!h->lines)
        exit(EXIT_FAILURE);
    for (char *p = data; p < data + len;) {
        char *end = memchr(p, '\n', (size_t)(data + len - p));
        if (!end)
            end = data + len;
        if (h->count == MAX_LINES) {
            refuse(h, "more than %d lines", MAX_LINES);
            return;
        }
        *end = '\0';
        size_t n = (size_t)(end - p);
        if (n > 0 && p[n - 1] == '\r') /* went through Windows */
            p[--n] = '\0';
        h->lines[h->count++] = (struct line){p, n};
        p = end + 1;
    }
}

/* Where each section is:  === NAME,  its lines,  === NAME exit STATUS. The answers are
 * the last, and may hold anything. */
static void find_sections(struct handin *h)
{
    int open = -1;

    for (int p = 0; p < PARTS; p++)
        h->section[p] = (struct span){-1, -1, -1};
    for (int i = 1; i < h->count; i++) {
        const char *text = h->lines[i].text;
        char name[32] = "";
        unsigned status;
        int used = 0;
        if (!starts(text, "=== ") || starts(text, "=== end "))
            continue;
        if (open >= 0 && sscanf(text + 4, "%31s exit %u%n", name, &status, &used) == 2 &&
            text[4 + used] == '\0' && strcmp(name, part_names[open]) == 0) {
            h->section[open].end = i;
            if (status != 0)
                wrong(h, (enum part)open, i, "it failed");
            open = -1;
            continue;
        }
        if (open >= 0)
            wrong(h, (enum part)open, i, "it has no end before the next section");
        open = -1;
        for (int p = 0; p <= MEASURED; p++)
            if (strcmp(text + 4, part_names[p]) == 0)
                open = p;
        if (strcmp(text + 4, "answers") == 0) {
            h->section[ANSWERS] = (struct span){i + 1, h->count, i};
            break;
        }
        if (open < 0)
            wrong(h, COMPLETE, i, "no section is called so");
        else if (h->section[open].line >= 0)
            wrong(h, (enum part)open, i, "it is there twice");
        else
            h->section[open] = (struct span){i + 1, -1, i};
    }
    if (open >= 0)
        wrong(h, (enum part)open, h->section[open].line, "it is cut off: it has no end");
}

/* ---- a pair ---- */

/* What a right run says. */
struct right {
    bool has_layout;
    struct layout layout;
    uint64_t seed, bytes, digest;
};

/* Several parts have the same message: what was computed last is kept. */
static uint64_t pattern_digest(size_t len, uint64_t seed)
{
    static struct {
        size_t len;
        uint64_t seed, digest;
    } known[4];
    static unsigned oldest;

    for (int i = 0; i < 4; i++)
        if (known[i].len == len && known[i].seed == seed)
            return known[i].digest;
    char *message = malloc(len);
    if (!message)
        exit(EXIT_FAILURE);
    pattern_fill(message, len, seed);
    const uint64_t digest = fnv1a(FNV_BASIS, message, len);
    free(message);
    known[oldest].len = len;
    known[oldest].seed = seed;
    known[oldest].digest = digest;
    oldest = (oldest + 1) % 4;
    return digest;
}

/* Of a pair as handin.sh starts it: 01 writes the ID, 02 to 04 have the student's seed,
 * 05 to 07 the layout too. */
static struct right right_for(const char *id, int pair)
{
    struct right r = {.has_layout = pair >= 4, .bytes = 4096};

    layout_of_student(id, &r.layout, &r.seed);
    if (pair == 0) {
        r.bytes = strlen(id);
        r.digest = fnv1a(FNV_BASIS, id, r.bytes);
    } else if (pair == 3) {
        uint64_t word = ~(r.seed + 100); /* see 04_atomic */
        r.bytes = sizeof(word);
        r.digest = fnv1a(FNV_BASIS, &word, sizeof(word));
    } else {
        if (pair >= 4)
            r.bytes = r.layout.bytes;
        r.digest = pattern_digest(r.bytes, r.seed);
    }
    return r;
}

static void check_number(struct handin *h, enum part part, int i, const char *name,
                         uint64_t right)
{
    uint64_t found;

    if (!whole_number(h->lines[i].text, name, &found))
        wrong(h, part, i, "%s= is missing, double or no number", name);
    else if (found != right)
        wrong(h, part, i, "%s is not what student %s has", name, h->id);
}

static void check_result(struct handin *h, enum part part, int i, const char *sample,
                         const char *role, const struct right *r)
{
    const char *text = h->lines[i].text;
    char value[40], digest[17];

    if (!field(text, "sample", value, sizeof(value)) || strcmp(value, sample) != 0)
        wrong(h, part, i, "the %s's result is of another sample", role);
    else if (!field(text, "role", value, sizeof(value)) || strcmp(value, role) != 0)
        wrong(h, part, i, "the %s's result is of another role", role);
    else if (!field(text, "status", value, sizeof(value)) || strcmp(value, "PASS") != 0)
        wrong(h, part, i, "the %s didn't pass", role);
    else
        check_number(h, part, i, "bytes", r->bytes);
    snprintf(digest, sizeof(digest), "%016" PRIx64, r->digest);
    if (!field(text, "digest", value, sizeof(value)) || strcmp(value, digest) != 0)
        wrong(h, part, i, "the %s's digest is not that of student %s's message", role,
              h->id);
}

/* One side's transcript, lines first to end - 1. */
static void check_side(struct handin *h, enum part part, int first, int end,
                       const char *sample, const char *role, const struct right *r)
{
    char who[48];
    int results = 0, layouts = 0, last = -1;

    snprintf(who, sizeof(who), "%s %s: ", sample, role);
    for (int i = first; i < end; i++) {
        const char *text = h->lines[i].text;
        if (h->lines[i].len > 0)
            last = i;
        if (starts(text, who) || starts(text, "  hint: "))
            wrong(h, part, i, "the %s reports an error", role);
        if (starts(text, "LAYOUT ")) {
            layouts++;
            if (!r->has_layout)
                continue;
            check_number(h, part, i, "block_size", r->layout.block_size);
            check_number(h, part, i, "block_num", r->layout.block_num);
            check_number(h, part, i, "stride", r->layout.stride);
            check_number(h, part, i, "seed", r->seed);
        }
        if (starts(text, "RESULT ")) {
            results++;
            check_result(h, part, i, sample, role, r);
        }
    }
    if (results != 1)
        wrong(h, part, first - 1, "the %s has %d RESULT lines, not one", role, results);
    else if (!starts(h->lines[last].text, "RESULT "))
        wrong(h, part, last, "the %s says something after its RESULT", role);
    if (layouts != (r->has_layout ? 1 : 0))
        wrong(h, part, first - 1, "the %s has %d LAYOUT lines", role, layouts);
}

/* A section that pair.sh printed: both sides, each behind its  --- ROLE: COMMAND. */
static void check_pair(struct handin *h, enum part part, const char *sample,
                       const struct right *r)
{
    const struct span s = h->section[part];
    int server = -1, client = -1;

    if (s.line < 0) {
        wrong(h, part, -1, "it is missing");
        return;
    }
    if (s.end < 0)
        return; /* said already */
    for (int i = s.first; i < s.end; i++) {
        const char *text = h->lines[i].text;
        for (size_t k = 0; k < h->lines[i].len; k++)
            if ((text[k] < ' ' && text[k] != '\t') || text[k] > '~') {
                wrong(h, part, i, "a program prints no byte 0x%02x here",
                      (unsigned char)text[k]);
                break;
            }
        if (starts(text, "--- server: ") && server < 0)
            server = i + 1;
        else if (starts(text, "--- client: ") && client < 0)
            client = i + 1;
        else if (starts(text, "--- "))
            wrong(h, part, i, "a side too many");
    }
    if (server < 0 || client < server) {
        wrong(h, part, s.line, "the %s's side is missing",
              server < 0 ? "server" : "client");
        return;
    }
    check_side(h, part, server, client - 1, sample, "server", r);
    check_side(h, part, client, s.end, sample, "client", r);
}

/* ---- the measurement ---- */

struct figures {
    int line; /* -1: there is none */
    bool virtual;
    double p50, p99, bandwidth;
    uint64_t depth;
};

struct measured {
    struct bench_plan plan;
    struct figures at[MAX_POINTS][METHOD_COUNT];
};

static const char *const methods[METHOD_COUNT] = {"sgl", "copy", "each", "auto",
                                                  "contig"};

/* The point of the plan and the method that a BENCH line is of, or false. Two points may
 * have the same layout; then it's the first that has no line yet. */
static bool place(const struct measured *m, const char *text, size_t *point, int *method)
{
    char name[16];
    uint64_t size, num, stride, bytes;

    if (!field(text, "method", name, sizeof(name)) ||
        !whole_number(text, "block_size", &size) ||
        !whole_number(text, "block_num", &num) ||
        !whole_number(text, "stride", &stride) || !whole_number(text, "bytes", &bytes))
        return false;
    for (*method = 0; *method < METHOD_COUNT; (*method)++)
        if (strcmp(name, methods[*method]) == 0)
            break;
    if (*method == METHOD_COUNT)
        return false;
    for (*point = 0; *point < m->plan.count; (*point)++) {
        const struct layout *l = &m->plan.point[*point];
        if (l->block_size == size && l->block_num == num && l->stride == stride &&
            l->bytes == bytes && m->at[*point][*method].line < 0)
            return true;
    }
    return false;
}

static void read_bench(struct handin *h, struct measured *m)
{
    const struct span s = h->section[MEASURED];

    for (size_t p = 0; p < m->plan.count; p++)
        for (int k = 0; k < METHOD_COUNT; k++)
            m->at[p][k].line = -1;
    for (int i = s.first; i < s.end; i++) {
        const char *text = h->lines[i].text;
        struct figures f = {.line = i};
        char name[16] = "";
        size_t point;
        int method;
        if (!starts(text, "BENCH "))
            continue;
        if (!place(m, text, &point, &method)) {
            wrong(h, MEASURED, i, "nobody asked for this point");
            continue;
        }
        field(text, "clock", name, sizeof(name));
        f.virtual = strcmp(name, "virtual") == 0;
        if ((!f.virtual && strcmp(name, "real") != 0) ||
            !figure(text, "lat_p50_us", &f.p50) || !figure(text, "lat_p99_us", &f.p99) ||
            !figure(text, "bw_MBps", &f.bandwidth) ||
            !whole_number(text, "depth", &f.depth) || f.depth < 1 || f.depth > MAX_DEPTH)
            wrong(h, MEASURED, i, "a figure is missing, or isn't one");
        m->at[point][method] = f;
    }
    for (size_t p = 0; p < m->plan.count; p++)
        for (int k = 0; k < METHOD_COUNT; k++)
            if (m->at[p][k].line < 0)
                wrong(h, MEASURED, s.line,
                      "no BENCH line of %s, block size %zu, %zu bytes", methods[k],
                      m->plan.point[p].block_size, m->plan.point[p].bytes);
}

/* Of the reference at any block size: between its points on straight lines. */
static double ratio_at(const double *ratio, size_t block_size)
{
    size_t size = 64;
    int i = 0;

    while (i < SWEEP - 2 && block_size >= 2 * size)
        size *= 2, i++;
    if (block_size <= size)
        return ratio[i];
    return ratio[i] +
           (ratio[i + 1] - ratio[i]) * (double)(block_size - size) / (double)size;
}

/* Are the figures possible? None of this asks how fast the machine is. */
static void check_figures(struct handin *h, const struct measured *m,
                          const struct reference *reference)
{
    for (size_t p = 0; p < m->plan.count; p++) {
        const struct layout *l = &m->plan.point[p];
        const struct figures *contig = &m->at[p][METHOD_CONTIG];
        for (int k = 0; k < METHOD_COUNT; k++) {
            const struct figures *f = &m->at[p][k];
            /* A message a latency goes through with one in flight. With more they
             * overlap, by no more than as many as there are; in virtual time hardly,
             * since one CPU does it all. MB/s are bytes a microsecond. */
            const double overlap = f->bandwidth * f->p50 / (double)l->bytes;
            const double least = f->virtual ? BUSY[0] : 0.1;
            const double most = f->virtual ? BUSY[1] : 2 * (double)f->depth;
            const double ratio = f->p50 / contig->p50;
            if (f->virtual != contig->virtual)
                wrong(h, FIGURES, f->line, "another clock than the other methods'");
            if (f->p50 > f->p99)
                wrong(h, FIGURES, f->line, "the median is above the 99th percentile");
            if (overlap < least || overlap > most)
                wrong(h, FIGURES, f->line,
                      "latency and bandwidth don't agree: %.2f messages in flight",
                      overlap);
            if (ratio < (f->virtual ? FASTEST_LIST : 0.3))
                wrong(h, FIGURES, f->line,
                      "faster than the same bytes in one piece, %.2f of its time", ratio);
            const double should =
                ratio_at(reference->ratio[h->lab - 5][k], l->block_size);
            const bool swept = p >= m->plan.by_size;
            const double slack = swept ? RATIO_SLACK : SIZES_SLACK;
            /* Short messages and blocks below the sweep have no reference. */
            if (f->virtual && should > 0 &&
                (swept || (l->block_num >= 32 && l->block_size >= 64)) &&
                (ratio > should * slack || ratio < should / slack))
                wrong(h, FIGURES, f->line,
                      "%.2f times as long as in one piece; this should be about %.2f",
                      ratio, should);
        }
        /* Bytes take their time: the same everywhere in the sweep over block sizes. */
        const size_t other = p >= m->plan.by_size ? m->plan.by_size : p - 1;
        const double grow_slack = p >= m->plan.by_size ? SAME_SLACK : GROWTH_SLACK;
        if (p == 0 || !contig->virtual || l->bytes < 12000)
            continue;
        const double grown = contig->p50 / m->at[other][METHOD_CONTIG].p50;
        const double bytes = (double)l->bytes / (double)m->plan.point[other].bytes;
        if (grown > bytes * grow_slack || grown < bytes / grow_slack)
            wrong(h, FIGURES, contig->line,
                  "%.1f times the bytes of block size %zu took %.2f times as long", bytes,
                  m->plan.point[other].block_size, grown);
    }
}

/* ---- one hand-in ---- */

/* A number that stands for the addresses and keys in a section, or for the figures: two
 * runs don't have all of them in common. 0 where there is nothing to tell by. */
static uint64_t fingerprint(const struct handin *h, const struct span *s)
{
    uint64_t digest = FNV_BASIS;
    int found = 0;

    for (int i = s->first; s->line >= 0 && i < s->end; i++) {
        const char *text = h->lines[i].text;
        if (starts(text, "BENCH ")) {
            const char *figures = strstr(text, " lat_p50_us=");
            if (figures)
                digest = fnv1a(digest, figures, strlen(figures)), found++;
        }
        for (const char *p = strstr(text, "0x"); p; p = strstr(p + 2, "0x")) {
            if (starts(p, "0x5555555")) /* a machine that doesn't randomise addresses */
                return 0;
            digest = fnv1a(digest, p, strspn(p, "0123456789abcdefx")), found++;
        }
    }
    return found >= 2 ? digest : 0;
}

static void check_header(struct handin *h)
{
    const char *first = h->count > 0 ? h->lines[0].text : "";
    char lab[4] = "", version[8] = "";

    if (starts(first, "\xff\xfe") || starts(first, "\xfe\xff"))
        refuse(h, "it is in UTF-16; hand in the file as make handin wrote it");
    else if (starts(first, "\xef\xbb\xbf")) {
        first += 3; /* an editor's mark */
        snprintf(h->remark, sizeof(h->remark), "it has been through an editor");
    }
    if (!starts(first, "HANDIN ") || !field(first, "version", version, sizeof(version)) ||
        strcmp(version, "1") != 0)
        refuse(h, "its first line is not that of a hand-in");
    else if (!field(first, "student", h->id, sizeof(h->id)) || !valid_id(h->id)) {
        h->id[0] = '\0'; /* which is printed, too */
        refuse(h, "its first line names no student");
    } else if (!named_after(h->file, h->id))
        refuse(h, "it is student %s's, by its first line, and not by its name", h->id);
    else if (!field(first, "lab", lab, sizeof(lab)) || lab[0] != '0' || lab[1] < '5' ||
             lab[1] > '7' || lab[2] != '\0')
        refuse(h, "its first line doesn't say lab=05, 06 or 07");
    h->lab = lab[0] ? lab[1] - '0' : 5;
}

/* Reads and checks the len bytes of data, which it changes and which has room for one
 * more. h->file is set. */
static void check_handin(struct handin *h, char *data, size_t len,
                         const struct rubric *rubric, const struct reference *reference)
{
    static struct measured m;

    const bool zeros = memchr(data, '\0', len) != NULL;
    cut_lines(h, data, len);
    check_header(h);
    if (zeros)
        refuse(h, "it is no text: it holds zero bytes");
    if (h->refused[0])
        return;
    find_sections(h);
    for (int p = 0; p < PAIRS; p++) {
        const struct right r = right_for(h->id, p);
        check_pair(h, (enum part)p, part_names[p], &r);
    }

    struct right r = right_for(h->id, h->lab - 1);
    bench_make_plan(&m.plan, rubric->sizes, r.layout.block_size);
    r.bytes = m.plan.point[m.plan.count - 1].bytes;
    r.digest = pattern_digest(r.bytes, r.seed);
    check_pair(h, MEASURED, part_names[h->lab - 1], &r);
    if (h->section[MEASURED].end >= 0)
        read_bench(h, &m);
    if (h->reasons[MEASURED] == 0)
        check_figures(h, &m, reference);

    if (h->count < 2 || !starts(h->lines[1].text, "ENV "))
        wrong(h, COMPLETE, 1, "the second line doesn't describe the environment");
    if (strcmp(h->lines[h->count - 1].text, "=== end complete") != 0)
        wrong(h, COMPLETE, h->count - 1, "the last line isn't \"=== end complete\"");
    h->print[0] = fingerprint(h, &h->section[0]);
    h->print[1] = fingerprint(h, &h->section[2]);
    h->print[2] = fingerprint(h, &h->section[MEASURED]);
    if (h->section[ANSWERS].line < 0)
        wrong(h, ANSWERS, -1, "there are none");
}

static void load(struct handin *h, int folder, const char *name,
                 const struct rubric *rubric, const struct reference *reference)
{
    struct stat st;
    static char data[MAX_FILE + 2];
    size_t len = 0;
    ssize_t got = 1;

    printable(h->file, sizeof(h->file), name, strlen(name));
    /* O_NONBLOCK: opening a FIFO must not wait for its other end. A device isn't even
     * opened, since that can do things. */
    int fd = -1;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
        fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    else
        refuse(h, "it is no regular file");
    if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)))
        refuse(h, "it is no regular file");
    while (fd >= 0 && got > 0 && len < MAX_FILE + 1) {
        got = read(fd, data + len, MAX_FILE + 1 - len);
        if (got > 0)
            len += (size_t)got;
    }
    if (fd < 0 || got < 0)
        refuse(h, "it can't be read: %s", strerror(errno));
    if (len > MAX_FILE)
        refuse(h, "it is larger than %d KiB", MAX_FILE / 1024);
    if (fd >= 0)
        close(fd);
    if (!h->refused[0])
        check_handin(h, data, len, rubric, reference);
    free(h->lines); /* reasons are words by now */
    h->lines = NULL;
}

static bool part_right(const struct handin *h, const struct rubric *rubric, int part)
{
    for (int depth = 0; depth < PARTS && part >= 0; depth++) {
        if (h->refused[0] || h->reasons[part] > 0)
            return false;
        part = rubric->needs[part] == NEEDS_LAB ? h->lab - 1 : rubric->needs[part];
    }
    return true;
}

/* Transcripts that two students have in common. Where one's don't fit the ID, the other
 * is the owner; where both fit, somebody has edited, and who can't be seen here. */
static void compare(struct handin *all, size_t count)
{
    static const enum part of[3] = {0, 2, MEASURED};

    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count; j++) {
            struct handin *a = &all[i], *b = &all[j];
            if (i == j || a->refused[0] || b->refused[0])
                continue;
            if (strcmp(a->id, b->id) == 0) {
                snprintf(a->remark, sizeof(a->remark), "the same student's as %.100s",
                         b->file);
                continue;
            }
            for (int k = 0; k < 3; k++)
                if (a->print[k] != 0 && a->print[k] == b->print[k] &&
                    !(a->reasons[of[k]] == 0 && b->reasons[of[k]] > 0))
                    wrong(a, OWN, -1, "%s is from the same run as in %.100s",
                          part_names[of[k]], b->file);
        }
}

/* ---- the rubric and the reference ---- */

static _Noreturn void usage(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fputs("grade: ", stderr);
    vfprintf(stderr, fmt, args);
    fputs("\nusage: grade [--rubric FILE] [--reference FILE] [--csv FILE] "
          "[--format autolab|gradescope] FOLDER\n       grade --student ID\n",
          stderr);
    va_end(args);
    exit(2);
}

static int part_by_name(const char *name)
{
    for (int p = 0; p < PARTS; p++)
        if (strcmp(name, part_names[p]) == 0)
            return p;
    return -1;
}

static void read_rubric(struct rubric *rubric, const char *path)
{
    static const char *const programs[] = {"builds", "sgl",    "copy",
                                           "each",   "itself", "verifies"};
    FILE *file = fopen(path, "r");
    char text[200];

    if (!file)
        usage("cannot read %s: %s", path, strerror(errno));
    while (fgets(text, sizeof(text), file)) {
        char name[32], value[128], needs[32] = "";
        int fields = sscanf(text, "%31s %127s needs=%31s", name, value, needs);
        if (fields < 1 || name[0] == '#')
            continue;
        if (strcmp(name, "sizes") == 0 && fields == 2) {
            snprintf(rubric->sizes, sizeof(rubric->sizes), "%s", value);
            continue;
        }
        bool program = false; /* a part of grade-program's */
        for (size_t i = 0; i < sizeof(programs) / sizeof(*programs); i++)
            program = program || strcmp(name, programs[i]) == 0;
        if (program)
            continue;
        const int part = part_by_name(name);
        if (part < 0 || fields < 2 || strlen(value) > 4 ||
            value[strspn(value, "0123456789")] != '\0' || rubric->count == PARTS)
            usage("%s: no part and points: %s", path, text);
        for (int i = 0; i < rubric->count; i++)
            if (rubric->part[i] == part)
                usage("%s: %s is there twice", path, name);
        rubric->part[rubric->count++] = part;
        rubric->points[part] = (unsigned)atoi(value);
        rubric->needs[part] = fields < 3                  ? NEEDS_NOTHING
                              : strcmp(needs, "lab") == 0 ? NEEDS_LAB
                                                          : part_by_name(needs);
        if (fields == 3 && rubric->needs[part] == -1)
            usage("%s: no part is called %s", path, needs);
    }
    fclose(file);
    struct bench_plan plan;
    const char *reason = bench_make_plan(&plan, rubric->sizes, 4096);
    if (reason)
        usage("%s: sizes: %s", path, reason);
}

/* The BENCH lines of three right runs, each behind a line that names its sample. */
static void read_reference(struct reference *reference, const char *path)
{
    static double p50[3][METHOD_COUNT][SWEEP];
    FILE *file = fopen(path, "r");
    char text[400], method[16];
    int lab = -1;

    if (!file)
        usage("cannot read %s: %s", path, strerror(errno));
    while (fgets(text, sizeof(text), file)) {
        uint64_t block_size, bytes;
        double lat;
        text[strcspn(text, "\n")] = '\0';
        for (int p = 4; p < PAIRS; p++)
            if (strcmp(text, part_names[p]) == 0)
                lab = p - 4;
        if (lab < 0 || !starts(text, "BENCH ") ||
            !field(text, "method", method, sizeof(method)) ||
            !whole_number(text, "block_size", &block_size) ||
            !whole_number(text, "bytes", &bytes) || !figure(text, "lat_p50_us", &lat))
            continue;
        for (int i = 0; i < SWEEP; i++)
            for (int k = 0; k < METHOD_COUNT; k++)
                if (bytes == SWEEP_BYTES && block_size == (size_t)64 << i &&
                    strcmp(method, methods[k]) == 0)
                    p50[lab][k][i] = lat;
    }
    fclose(file);
    for (int l = 0; l < 3; l++)
        for (int k = 0; k < METHOD_COUNT; k++)
            for (int i = 0; i < SWEEP; i++) {
                if (p50[l][METHOD_CONTIG][i] <= 0 || p50[l][k][i] <= 0)
                    usage("%s: %s has no %s at block size %d", path, part_names[4 + l],
                          methods[k], 64 << i);
                reference->ratio[l][k][i] = p50[l][k][i] / p50[l][METHOD_CONTIG][i];
            }
}

/* ---- what the instructor sees ---- */

static unsigned points_of(const struct handin *h, const struct rubric *rubric, int part)
{
    return part_right(h, rubric, part) ? rubric->points[part] : 0;
}

/* Why a part got nothing, as lines with an indent of five. */
static void print_reasons(const struct handin *h, const struct rubric *rubric, int part)
{
    for (int i = 0; i < h->reasons[part] && i < REASONS; i++)
        printf("     %s\n", h->reason[part][i]);
    if (h->reasons[part] > REASONS)
        printf("     and %d more\n", h->reasons[part] - REASONS);
    if (h->reasons[part] == 0)
        printf("     it needs %s, which is not right\n",
               part_names[rubric->needs[part] == NEEDS_LAB ? h->lab - 1
                                                           : rubric->needs[part]]);
}

static void print_handin(struct handin *h, const struct rubric *rubric, unsigned total)
{
    printf("\n#### %s%s%s\n", h->file, h->id[0] ? ", student " : "", h->id);
    if (h->refused[0])
        printf("     %s\n", h->refused);
    for (int i = 0; i < rubric->count && !h->refused[0]; i++) {
        const int part = rubric->part[i];
        const unsigned points = points_of(h, rubric, part);
        const bool right = part_right(h, rubric, part);
        h->score += points;
        printf("== %s == %s (%u/%u)\n", part_names[part],
               right                       ? "OK"
               : rubric->points[part] == 0 ? "not right"
                                           : "FAIL",
               points, rubric->points[part]);
        if (!right)
            print_reasons(h, rubric, part);
    }
    if (h->remark[0])
        printf("     note: %s\n", h->remark);
    printf("Score: %u/%u\n", h->score, total);
}

/* A text in double quotes, for CSV (where one inside is doubled; and a spreadsheet must
 * not take it for a formula) or JSON. The text is printable ASCII but for '\n'. */
static void put_quoted(FILE *out, const char *text, bool json)
{
    fputs(!json && strchr("=+-@", text[0]) && text[0] ? "\"'" : "\"", out);
    for (; *text; text++) {
        if (*text == '"' || (json && *text == '\\'))
            fputc(json ? '\\' : '"', out);
        if (*text == '\n')
            fputs(json ? "\\n" : " ", out);
        else
            fputc(*text, out);
    }
    fputc('"', out);
}

static const char *first_reason(const struct handin *h, const struct rubric *rubric)
{
    if (h->refused[0])
        return h->refused;
    for (int i = 0; i < rubric->count; i++)
        if (rubric->points[rubric->part[i]] > 0 && h->reasons[rubric->part[i]] > 0)
            return h->reason[rubric->part[i]][0];
    return h->remark;
}

static void write_csv(const char *path, const struct handin *all, size_t count,
                      const struct rubric *rubric, unsigned total)
{
    FILE *out = fopen(path, "w");

    if (!out)
        usage("cannot write %s: %s", path, strerror(errno));
    fputs("file,student", out);
    for (int i = 0; i < rubric->count; i++)
        fprintf(out, ",%s", part_names[rubric->part[i]]);
    fprintf(out, ",score,of,first_reason\n");
    for (size_t n = 0; n < count; n++) {
        put_quoted(out, all[n].file, false);
        fprintf(out, ",%s", all[n].id);
        for (int i = 0; i < rubric->count; i++)
            fprintf(out, ",%u", points_of(&all[n], rubric, rubric->part[i]));
        fprintf(out, ",%u,%u,", all[n].score, total);
        put_quoted(out, first_reason(&all[n], rubric), false);
        fputc('\n', out);
    }
    if (fclose(out) != 0)
        usage("cannot write %s: %s", path, strerror(errno));
}

/* Autolab takes the last line of the output, Gradescope a file results.json. */
static void put_json(FILE *out, const struct handin *h, const struct rubric *rubric,
                     bool gradescope)
{
    fputs(gradescope ? "{\"tests\": [" : "{\"scores\": {", out);
    for (int i = 0; i < rubric->count; i++) {
        const int part = rubric->part[i];
        const char *why = h->refused[0]                 ? h->refused
                          : part_right(h, rubric, part) ? ""
                          : h->reasons[part] > 0        ? h->reason[part][0]
                                                        : "what it needs is not right";
        fprintf(out, "%s", i > 0 ? ", " : "");
        if (!gradescope) {
            fprintf(out, "\"%s\": %u", part_names[part], points_of(h, rubric, part));
            continue;
        }
        fprintf(out, "{\"name\": \"%s\", \"score\": %u, \"max_score\": %u, \"output\": ",
                part_names[part], points_of(h, rubric, part), rubric->points[part]);
        put_quoted(out, why, true);
        fputs("}", out);
    }
    fputs(gradescope ? "]}\n" : "}}\n", out);
}

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    const char *rubric_path = "grading/rubric.txt", *folder_path = NULL, *csv = NULL;
    const char *reference_path = "grading/reference.txt", *format = "";
    static struct rubric rubric;
    static struct reference reference;
    unsigned total = 0;

    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (argv[i][0] != '-' && !folder_path) {
            folder_path = argv[i];
            continue;
        }
        if (!value)
            usage("what is %s?", argv[i]);
        if (strcmp(argv[i], "--student") == 0 && valid_id(value)) {
            struct right r = right_for(value, 4);
            layout_print(&r.layout, r.seed);
            return EXIT_SUCCESS;
        }
        if (strcmp(argv[i], "--rubric") == 0)
            rubric_path = value;
        else if (strcmp(argv[i], "--reference") == 0)
            reference_path = value;
        else if (strcmp(argv[i], "--csv") == 0)
            csv = value;
        else if (strcmp(argv[i], "--format") == 0)
            format = value;
        else
            usage("what is %s %s?", argv[i], value);
        i++;
    }
    const bool autolab = strcmp(format, "autolab") == 0;
    const bool gradescope = strcmp(format, "gradescope") == 0;
    if (!folder_path || (format[0] && !autolab && !gradescope))
        usage("%s", folder_path ? "no such format" : "which folder?");
    read_rubric(&rubric, rubric_path);
    read_reference(&reference, reference_path);
    struct dirent **entries;
    const int found = scandir(folder_path, &entries, visible, alphasort);
    const int folder = open(folder_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (found < 0 || folder < 0)
        usage("cannot open the folder %s: %s", folder_path, strerror(errno));
    const size_t count = (size_t)found;
    if (count == 0 || (format[0] && count != 1))
        usage("%s holds %zu files, not %s", folder_path, count,
              format[0] ? "the one that is to be graded" : "any hand-in");

    struct handin *all = calloc(count, sizeof(*all));
    if (!all)
        return EXIT_FAILURE;
    for (size_t i = 0; i < count; i++)
        load(&all[i], folder, entries[i]->d_name, &rubric, &reference);
    compare(all, count);
    for (int i = 0; i < rubric.count; i++)
        total += rubric.points[rubric.part[i]];
    for (size_t i = 0; i < count; i++)
        print_handin(&all[i], &rubric, total);

    if (csv)
        write_csv(csv, all, count, &rubric, total);
    FILE *results = gradescope ? fopen("results/results.json", "w") : NULL;
    if (gradescope && !results)
        usage("cannot write results/results.json: %s", strerror(errno));
    if (results) {
        put_json(results, &all[0], &rubric, true);
        fclose(results);
    }
    if (!format[0])
        printf("\n%-40s %-20s %s\n", "file", "student", "score");
    for (size_t i = 0; i < count && !format[0]; i++)
        printf("%-40s %-20s %3u/%u  %.60s\n", all[i].file, all[i].id, all[i].score, total,
               all[i].refused);
    if (autolab)
        put_json(stdout, &all[0], &rubric, false);

    for (size_t i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    free(all);
    close(folder);
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
