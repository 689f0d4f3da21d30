#include "report.h"

#include "hints.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const char *this_sample = "?", *this_role = "?";

void report_as(const char *sample, const char *role)
{
    this_sample = sample;
    this_role = role;
}

static void print_result(const char *status, uint64_t bytes, uint64_t digest)
{
    printf("RESULT sample=%s role=%s status=%s bytes=%" PRIu64 " digest=%016" PRIx64 "\n",
           this_sample, this_role, status, bytes, digest);
}

/* Everything a failed run says, in order: reason and hint to stderr, RESULT to stdout. */
static _Noreturn void finish(int exit_status, const char *message, const char *hint)
{
    fflush(stdout);
    fprintf(stderr, "%s %s: %s\n", this_sample, this_role, message);
    if (hint)
        fprintf(stderr, "  hint: %s\n", hint);
    print_result("FAIL", 0, 0);
    exit(exit_status);
}

static _Noreturn void fail(int exit_status, int errnum, const char *hint, const char *fmt,
                           va_list args)
{
    char what[1200], message[1400], limit[80] = "";
    struct rlimit lock;

    vsnprintf(what, sizeof(what), fmt, args);
    if (strncmp(what, "ibv_reg_mr", 10) == 0 && getrlimit(RLIMIT_MEMLOCK, &lock) == 0 &&
        lock.rlim_cur != RLIM_INFINITY)
        snprintf(limit, sizeof(limit), "; ulimit -l is %ju KiB",
                 (uintmax_t)lock.rlim_cur / 1024);
    if (errnum)
        snprintf(message, sizeof(message), "%s: %s (%d)%s", what, strerror(errnum),
                 errnum, limit);
    else
        snprintf(message, sizeof(message), "%s", what);
    finish(exit_status, message, hint ? hint : hint_for(what, errnum));
}

void die(int errnum, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fail(EXIT_FAILURE, errnum, NULL, fmt, args);
}

void die_usage(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fail(EXIT_USAGE, 0, "--help lists the options", fmt, args);
}

void die_no_device(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fail(EXIT_NO_DEVICE, 0, NULL, fmt, args);
}

void die_wc(const struct ibv_wc *wc, const char *what)
{
    char message[200];

    snprintf(message, sizeof(message), "completion of %s: %s (status %d)", what,
             ibv_wc_status_str(wc->status), (int)wc->status);
    finish(EXIT_FAILURE, message, hint_for(message, (int)wc->status));
}

void check(int ret, const char *call)
{
    if (ret)
        die(ret > 0 ? ret : errno, "%s", call);
}

int report_result(bool pass, uint64_t bytes, uint64_t digest)
{
    print_result(pass ? "PASS" : "FAIL", bytes, digest);
    /* A result that could not be written (disk full, reader gone) was not given. */
    return fflush(stdout) == 0 && !ferror(stdout) && pass ? EXIT_SUCCESS : EXIT_FAILURE;
}
