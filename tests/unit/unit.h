/* SPDX-License-Identifier: BSD-2-Clause */
/* What every unit test includes; cmocka wants the others before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
