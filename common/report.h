/* SPDX-License-Identifier: BSD-2-Clause */
/* How a sample ends: RESULT on stdout; after a failure the reason and a hint on stderr. */
#pragma once

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_USAGE = 2, EXIT_NO_DEVICE = 77 }; /* besides EXIT_SUCCESS and EXIT_FAILURE */

void report_as(const char *sample, const char *role); /* "03_read"; "server" or "client" */

/* Prints "sample role: MESSAGE", a hint, and RESULT with status=FAIL, and exits; the kernel then
 * destroys the verbs objects. number is errno for a call that returns NULL (which should be 0
 * before: the manual pages do not promise that a failure sets it), the returned value for
 * ibv_modify_qp, ibv_post_send and the like, or 0. A thread that calls it while another one does
 * waits for the end. */
#define die(number, ...) stop(EXIT_FAILURE, number, __VA_ARGS__)
void stop(int exit_status, int number, const char *fmt, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
/* die_wc: exits for a completion whose status is not IBV_WC_SUCCESS; "what" names its request.
 * check: exits if ret, of a call that returns 0 for success, is an error number, the negative of
 * one, or -1 (errno). */
void die_wc(const struct ibv_wc *wc, const char *what) __attribute__((noreturn));
void check(int ret, const char *call);
/* check for a program that has to undo something: prints the same, but returns whether ret is 0. */
bool worked(int ret, const char *call);

/* If holds is false, prints "sample role: MESSAGE" to stderr. Returns the value of holds. */
bool expect(bool holds, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints RESULT; bytes and digest are of the message as its receiver holds it. Returns the exit
 * status: a failure also if stdout could not be written. */
int report_result(bool pass, uint64_t bytes, uint64_t digest);

/* The hint (hints.c) for a message that begins with what failed, and its errno, completion
 * status or 0; NULL if there is none. */
const char *hint_for(const char *message, int number);
