/* What to look at when something fails: likely cause and next step. */
#ifndef HV_HINTS_H
#define HV_HINTS_H

/*
 * The hint for a failure, or NULL if none is kept. message begins with the name of the
 * call that failed and number is its errno; or it begins with "completion" and number is
 * the ibv_wc_status. number 0 stands for "no error number".
 */
const char *hint_for(const char *message, int number);

#endif
