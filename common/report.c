/* SPDX-License-Identifier: BSD-2-Clause */
#include "report.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

static const char *this_sample = "?", *this_role = "?";

void report_as(const char *sample, const char *role) {
    this_sample = sample;
    this_role = role;
}

int report_result(bool pass, uint64_t bytes, uint64_t digest) {
    printf("RESULT sample=%s role=%s status=%s bytes=%ju digest=%016jx\n", this_sample, this_role,
           pass ? "PASS" : "FAIL", bytes, digest);
    return fflush(stdout) == 0 && !ferror(stdout) && pass ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* The message, what the number means, and a hint. */
static void explain(int exit_status, int number, const char *message) {
    char more[200] = "";
    char *end = more;
    struct rlimit lock;
    if (number > 0) end += snprintf(end, 100, ": %s (%d)", strerror(number), number);
    if (strncmp(message, "ibv_reg_mr", 10) == 0 && getrlimit(RLIMIT_MEMLOCK, &lock) == 0 &&
        lock.rlim_cur != RLIM_INFINITY) /* the usual reason why memory cannot be registered */
        snprintf(end, 100, "; ulimit -l is %ju KiB", (uintmax_t)lock.rlim_cur / 1024);
    const char *hint = exit_status == EXIT_USAGE ? "see --help" : hint_for(message, abs(number));
    expect(false, "%s%s%s%s", message, more, hint ? "\n  hint: " : "", hint ? hint : "");
}

void stop(int exit_status, int number, const char *fmt, ...) {
    static atomic_flag ending = ATOMIC_FLAG_INIT;
    char message[1200]; /* it may quote a peer's line of 1024 bytes */
    va_list args;
    while (atomic_flag_test_and_set(&ending)) pause(); /* another thread ends the process */
    va_start(args, fmt);
    vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    explain(exit_status, number, message);
    report_result(false, 0, 0);
    exit(exit_status);
}

void die_wc(const struct ibv_wc *wc, const char *what) {
    char vendor[40] = ""; /* a card's own code; rxe has none */
    if (wc->vendor_err) sprintf(vendor, ", vendor error 0x%x", wc->vendor_err);
    stop(EXIT_FAILURE, -(int)wc->status, "completion of %s: %s (status %d)%s", what,
         ibv_wc_status_str(wc->status), (int)wc->status, vendor);
}

/* The error number: most calls return it, some -1 with errno set, and some drivers -number. */
static int error_of(int ret) { return ret == -1 ? errno : abs(ret); }

void check(int ret, const char *call) {
    if (ret) die(error_of(ret), "%s", call);
}

bool worked(int ret, const char *call) {
    if (ret) explain(EXIT_FAILURE, error_of(ret), call);
    return ret == 0;
}

bool expect(bool holds, const char *fmt, ...) {
    va_list args;
    if (holds) return true;
    fflush(stdout); /* keeps the order where both are one terminal */
    fprintf(stderr, "%s %s: ", this_sample, this_role);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    return false;
}
