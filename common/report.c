#include "report.h"

#include "hints.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define MESSAGE_SIZE 1400 /* a peer's line of 1024 bytes and what we say of it */

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

/* "MESSAGE: strerror (errnum)". Where memory can't be registered, the limit on locked
 * memory is the usual cause, so what it is stands there too. */
static void describe(char *out, size_t room, int errnum, const char *fmt, va_list args)
{
    struct rlimit lock;
    size_t n = (size_t)vsnprintf(out, room, fmt, args);

    if (errnum && n < room)
        n += (size_t)snprintf(out + n, room - n, ": %s (%d)", strerror(errnum), errnum);
    if (strncmp(out, "ibv_reg_mr", 10) == 0 && n < room &&
        getrlimit(RLIMIT_MEMLOCK, &lock) == 0 && lock.rlim_cur != RLIM_INFINITY)
        snprintf(out + n, room - n, "; ulimit -l is %ju KiB",
                 (uintmax_t)lock.rlim_cur / 1024);
}

void die(int errnum, const char *fmt, ...)
{
    char message[MESSAGE_SIZE];
    va_list args;

    va_start(args, fmt);
    describe(message, sizeof(message), errnum, fmt, args);
    va_end(args);
    finish(EXIT_FAILURE, message, hint_for(message, errnum));
}

void die_usage(const char *fmt, ...)
{
    char message[MESSAGE_SIZE];
    va_list args;

    va_start(args, fmt);
    describe(message, sizeof(message), 0, fmt, args);
    va_end(args);
    finish(EXIT_USAGE, message, "--help lists the options");
}

void die_no_device(const char *fmt, ...)
{
    char message[MESSAGE_SIZE];
    va_list args;

    va_start(args, fmt);
    describe(message, sizeof(message), 0, fmt, args);
    va_end(args);
    finish(EXIT_NO_DEVICE, message, hint_for(message, 0));
}

void die_wc(const struct ibv_wc *wc, const char *what)
{
    char message[MESSAGE_SIZE];

    int used = snprintf(message, sizeof(message), "completion of %s: %s (status %d)",
                        what, ibv_wc_status_str(wc->status), (int)wc->status);
    if (wc->vendor_err && used > 0 && (size_t)used < sizeof(message)) /* rxe has none */
        snprintf(message + used, sizeof(message) - (size_t)used, ", vendor error 0x%x",
                 wc->vendor_err);
    finish(EXIT_FAILURE, message, hint_for(message, (int)wc->status));
}

void check(int ret, const char *call)
{
    if (ret)
        die(ret > 0 ? ret : errno, "%s", call);
}

bool all_right(const char *what, size_t wrong, size_t len)
{
    if (wrong < len)
        fprintf(stderr, "%s %s: %s: wrong at byte %zu of %zu\n", this_sample, this_role,
                what, wrong, len);
    return wrong == len;
}

void print_text(const char *what, const char *text, size_t len)
{
    enum { SHOWN = 200 };

    printf("%s \"", what);
    for (size_t i = 0; i < len && i < SHOWN; i++) {
        unsigned char c = (unsigned char)text[i];
        unsigned char before = i > 0 ? (unsigned char)text[i - 1] : 0;
        /* 0x80 to 0x9f are control codes by themselves and after 0xc2, but else the rest
         * of a character in UTF-8 */
        bool c1 = c >= 0x80 && c < 0xa0 && (before < 0x80 || before == 0xc2);
        putchar(c < ' ' || c == 0x7f || c1 ? '?' : c);
    }
    printf("\"%s in my memory\n", len > SHOWN ? "..." : "");
}

int report_result(bool pass, uint64_t bytes, uint64_t digest)
{
    print_result(pass ? "PASS" : "FAIL", bytes, digest);
    /* A result that could not be written (disk full, reader gone) was not given. */
    return fflush(stdout) == 0 && !ferror(stdout) && pass ? EXIT_SUCCESS : EXIT_FAILURE;
}
