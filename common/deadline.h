/* Deadlines: points on the clock that no setting of the date can move. */
#ifndef HV_DEADLINE_H
#define HV_DEADLINE_H

#include <time.h>

/* Seconds on CLOCK_MONOTONIC (clock_gettime(2)). A deadline is now() + seconds. */
static inline double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
