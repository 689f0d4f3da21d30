/*
 * How a sample ends: one RESULT line on stdout, and on failure a reason and a
 * hint on stderr.
 *
 * Exit status: 0 passed, 1 failed, 2 wrong usage, 77 no usable RDMA device.
 */
#ifndef HV_REPORT_H
#define HV_REPORT_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EXIT_USAGE = 2, EXIT_NO_DEVICE = 77 };

/* Names the run in all later output. sample is the directory's name, such as
 * "03_read"; role is "server" or "client". Both strings must outlive the run. */
void report_as(const char *sample, const char *role);

/*
 * Each of these prints "sample role: MESSAGE" and a hint to stderr and the RESULT line
 * with status=FAIL to stdout, and exits. What verbs objects exist then, the kernel
 * destroys with the process.
 *
 * die: exit 1. errnum is what strerror(3) explains: errno for calls that return NULL,
 *   the returned value for ibv_modify_qp, ibv_post_send and their like, 0 for none.
 *   Where the message begins with the name of the call that failed, the hint is the one
 *   kept for that call and errnum in hints.c.
 * die_usage: exit 2, the hint is --help.
 * die_no_device: exit 77.
 * die_wc: exit 1, for a completion whose status is not IBV_WC_SUCCESS; what says which
 *   request it was.
 */
void die(int errnum, const char *fmt, ...)
    __attribute__((noreturn, format(printf, 2, 3)));
void die_usage(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
void die_no_device(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
void die_wc(const struct ibv_wc *wc, const char *what) __attribute__((noreturn));

/* Dies where a call that returns 0 for success (ibv_destroy_qp, ibv_modify_qp ...)
 * returned anything else: an error number, or -1 with errno set. */
void check(int ret, const char *call);

/* True if wrong, the index of the first wrong byte, is len: there is none. Else says on
 * stderr what is wrong from where on. */
bool all_right(const char *what, size_t wrong, size_t len);

/* Prints  WHAT "TEXT" in my memory  of a text that a peer wrote: at most 200 bytes of it,
 * and no control codes (C0, DEL, C1) to the terminal. */
void print_text(const char *what, const char *text, size_t len);

/* Prints the RESULT line; bytes and digest are of the message as its receiver holds it.
 * Returns the exit status: 0 if pass and the line could be written, else 1. */
int report_result(bool pass, uint64_t bytes, uint64_t digest);

#endif
