/* The table of hints: nothing that can fail is without one. */
#include "hints.h"
#include "unit.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <string.h>

enum { LAST_STATUS = IBV_WC_TM_RNDV_INCOMPLETE };

/* Statuses that need what no sample has: reliable datagrams, memory windows, tag
 * matching. One row tells so for all of them. */
static bool of_another_service(int status)
{
    switch (status) {
    case IBV_WC_LOC_EEC_OP_ERR:
    case IBV_WC_MW_BIND_ERR:
    case IBV_WC_LOC_RDD_VIOL_ERR:
    case IBV_WC_REM_INV_RD_REQ_ERR:
    case IBV_WC_INV_EECN_ERR:
    case IBV_WC_INV_EEC_STATE_ERR:
    case IBV_WC_TM_ERR:
    case IBV_WC_TM_RNDV_INCOMPLETE:
        return true;
    default:
        return false;
    }
}

static void every_status_has_its_hint(void **state)
{
    const char *general = hint_for("completion of it", LAST_STATUS + 1);
    const char *seen[LAST_STATUS + 1] = {NULL};

    (void)state;
    /* libibverbs itself knows no status beyond the last, or this test lacks one */
    assert_string_equal(ibv_wc_status_str((enum ibv_wc_status)(LAST_STATUS + 1)),
                        "unknown");
    assert_non_null(general);
    for (int i = IBV_WC_SUCCESS + 1; i <= LAST_STATUS; i++) {
        seen[i] = hint_for("completion of it", i);
        assert_non_null(seen[i]);
        if ((seen[i] == general) != of_another_service(i))
            fail_msg("status %d, %s: %s", i, ibv_wc_status_str((enum ibv_wc_status)i),
                     seen[i]);
        for (int k = 1; k < i; k++)
            if (seen[k] == seen[i] && seen[i] != general)
                fail_msg("statuses %d and %d have one hint", k, i);
    }
    print_message("%d completion statuses, each with a hint\n", LAST_STATUS);
}

static void every_call_has_a_hint_for_every_error(void **state)
{
    static const char *const calls[] = {
        "no RDMA device here: Function not implemented",
        "ibv_open_device",
        "ibv_query_device",
        "ibv_query_port",
        "ibv_query_gid_table",
        "GID index 1 of port 1 of rxe0",
        "ibv_alloc_pd",
        "ibv_create_comp_channel",
        "ibv_create_cq",
        "ibv_reg_mr of 1 bytes",
        "ibv_create_qp",
        "ibv_modify_qp to INIT",
        "ibv_modify_qp to RTR",
        "ibv_modify_qp to RTS",
        "ibv_post_send of the SEND",
        "ibv_post_recv",
        "ibv_poll_cq",
        "ibv_req_notify_cq",
        "ibv_get_cq_event",
        "ibv_destroy_qp",
        "ibv_dereg_mr",
        "ibv_destroy_cq",
        "ibv_destroy_comp_channel",
        "ibv_dealloc_pd",
        "ibv_close_device",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        for (int error = 0; error < 200; error++)
            if (!hint_for(calls[i], error))
                fail_msg("no hint: %s, errno %d", calls[i], error);
    assert_null(hint_for("calloc", ENOMEM));
}

/* What newcomers hit first has a hint of its own, by its error number. */
static void the_usual_errors_are_told_apart(void **state)
{
    static const struct {
        const char *call;
        int number;
        const char *says;
    } usual[] = {
        {"no RDMA device here", 0, "ibverbs-providers"},
        {"no RDMA device here", 0, "IBV_SHOW_WARNINGS=1"},
        {"ibv_open_device", EACCES, "/dev/infiniband/uverbs"},
        {"ibv_reg_mr of 1 bytes", ENOMEM, "ulimit -l"},
        {"ibv_create_qp", ENOMEM, "max_qp_wr"},
        {"ibv_create_qp", EINVAL, "ibv_devinfo -v"},
        {"ibv_modify_qp to RTR", EINVAL, "is_global = 1"},
        {"ibv_modify_qp to RTR", ENETUNREACH, "no route"},
        {"ibv_modify_qp to RTR", ETIMEDOUT, "link-local"},
        {"ibv_post_send", EINVAL, "aligned to 8"},
        {"ibv_dealloc_pd", EBUSY, "reverse order"},
        {"completion", IBV_WC_LOC_LEN_ERR, "receive buffer"},
        {"completion", IBV_WC_LOC_PROT_ERR, "lkey"},
        {"completion", IBV_WC_REM_INV_REQ_ERR, "max_dest_rd_atomic"},
        {"completion", IBV_WC_REM_ACCESS_ERR, "rkey"},
        {"completion", IBV_WC_RETRY_EXC_ERR, "4791"},
        {"completion", IBV_WC_RNR_RETRY_EXC_ERR, "no receive posted"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++) {
        const char *hint = hint_for(usual[i].call, usual[i].number);
        if (!hint || !strstr(hint, usual[i].says))
            fail_msg("%s, %d: %s", usual[i].call, usual[i].number, hint ? hint : "none");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_hint),
        cmocka_unit_test(every_call_has_a_hint_for_every_error),
        cmocka_unit_test(the_usual_errors_are_told_apart),
    };

    return cmocka_run_group_tests_name("hints", tests, NULL, NULL);
}
