/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of hints: every verbs call and every completion status has one. */
#include "report.h"
#include "unit.h"

enum { LAST_STATUS = IBV_WC_TM_RNDV_INCOMPLETE };

/* Statuses that need what no sample has: reliable datagrams, tag matching, an RD request. And
 * those of which nothing can be said but what they are called. */
static bool without_a_row(int status) {
    switch (status) {
    case IBV_WC_LOC_EEC_OP_ERR:
    case IBV_WC_LOC_RDD_VIOL_ERR:
    case IBV_WC_REM_INV_RD_REQ_ERR:
    case IBV_WC_REM_ABORT_ERR:
    case IBV_WC_INV_EECN_ERR:
    case IBV_WC_INV_EEC_STATE_ERR:
    case IBV_WC_FATAL_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
    case IBV_WC_GENERAL_ERR:
    case IBV_WC_TM_ERR:
    case IBV_WC_TM_RNDV_INCOMPLETE:
        return true;
    default:
        return false;
    }
}

static void every_status_has_its_hint(void **state) {
    const char *general = hint_for("completion of it", LAST_STATUS + 1);
    const char *seen[LAST_STATUS + 1] = {NULL};
    (void)state;
    /* libibverbs itself knows no status beyond the last, or this test lacks one */
    assert_string_equal(ibv_wc_status_str((enum ibv_wc_status)(LAST_STATUS + 1)), "unknown");
    assert_non_null(general);
    for (int i = IBV_WC_SUCCESS + 1; i <= LAST_STATUS; i++) {
        seen[i] = hint_for("completion of it", i);
        assert_non_null(seen[i]);
        if ((seen[i] == general) != without_a_row(i))
            fail_msg("status %d, %s: %s", i, ibv_wc_status_str((enum ibv_wc_status)i), seen[i]);
        for (int k = 1; k < i; k++)
            if (seen[k] == seen[i] && seen[i] != general)
                fail_msg("statuses %d and %d have one hint", k, i);
    }
}

static void every_call_has_a_hint_for_every_error(void **state) {
    static const char *const calls[] = {
        "no RDMA device here",   "ibv_open_device",       "ibv_query_device",
        "no such GID index",     "ibv_alloc_pd",          "ibv_create_comp_channel",
        "ibv_create_cq",         "ibv_reg_mr of 1 bytes", "ibv_create_qp",
        "ibv_modify_qp to INIT", "ibv_modify_qp to RTR",  "ibv_modify_qp to RTS",
        "ibv_post_send",         "ibv_post_recv",         "ibv_poll_cq",
        "ibv_req_notify_cq",     "ibv_get_cq_event",      "ibv_destroy_qp",
        "ibv_dereg_mr",          "ibv_destroy_cq",        "ibv_destroy_comp_channel",
        "ibv_dealloc_pd",        "ibv_close_device"};
    (void)state;
    for (size_t i = 0; i < COUNT(calls); i++)
        for (int error = 0; error < 200; error++)
            if (!hint_for(calls[i], error)) fail_msg("no hint: %s, errno %d", calls[i], error);
    assert_null(hint_for("calloc", ENOMEM));
}

/* What newcomers hit first has a hint of its own, by its error number. */
static void the_usual_errors_are_told_apart(void **state) {
    static const struct {
        const char *call;
        int number;
        const char *says;
    } usual[] = {
        {"no RDMA device here", 0, "make shell"},
        {"no ACTIVE port with a usable GID on any device", 0, "ip addr"},
        {"ibv_open_device", EACCES, "/dev/infiniband"},
        {"ibv_reg_mr of 1 bytes", ENOMEM, "ulimit -l"},
        {"ibv_reg_mr of 1 bytes", EINVAL, "LOCAL_WRITE"},
        {"ibv_reg_mr of 1 bytes", EFAULT, "read-only"},
        {"ibv_create_qp", ENOMEM, "max_qp_wr"},
        {"ibv_modify_qp to RTR", EINVAL, "is_global = 1"},
        {"ibv_post_send", EINVAL, "max_inline_data"},
        {"ibv_post_send", EACCES, "fork"},
        {"ibv_post_recv", ENOMEM, "max_recv_wr"},
        {"ibv_post_send", ENOMEM, "queue full"},
        {"ibv_dealloc_pd", EBUSY, "reverse order"},
        {"cannot listen on TCP port 18515", EADDRINUSE, "-p"},
        {"cannot connect to 10.0.0.1, TCP port 18515", ECONNREFUSED, "server first"},
        {"cannot reach fe80::1", EINVAL, "%IF"},
        {"cannot listen on TCP port 18515", EADDRNOTAVAIL, "--bind"},
        {"rdma_bind_addr for 10.0.0.1, port 18515", EADDRINUSE, "another server uses this port"},
        {"which port? None has this connection's address, ", 0, "-d and -i"},
        {"the server refused: this side runs 01", 0, "same sample"},
        {"completion of it", IBV_WC_LOC_PROT_ERR, "lkey"},
        {"completion of it", IBV_WC_REM_ACCESS_ERR, "rkey"},
        {"completion of it", IBV_WC_RETRY_EXC_ERR, "4791"},
        {"completion of it", IBV_WC_RNR_RETRY_EXC_ERR, "posted no receive"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(usual); i++) {
        const char *hint = hint_for(usual[i].call, usual[i].number);
        if (!hint || !strstr(hint, usual[i].says))
            fail_msg("%s, %d: %s", usual[i].call, usual[i].number, hint ? hint : "none");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_hint),
        cmocka_unit_test(every_call_has_a_hint_for_every_error),
        cmocka_unit_test(the_usual_errors_are_told_apart),
    };
    return cmocka_run_group_tests_name("hints", tests, NULL, NULL);
}
