/* Deadlines: points on a clock that no setting of the date can move. */
#ifndef HV_DEADLINE_H
#define HV_DEADLINE_H

/* Seconds on CLOCK_MONOTONIC (clock_gettime(2)). A deadline is now() + seconds. */
double now(void);

#endif
