# SPDX-License-Identifier: BSD-2-Clause
"""The hints, each provoked by the mistake it speaks of; and what the handout says of fork. Runs
where the RDMA device is."""

import os
import re
import socket
import subprocess

from pairs import PairTest, ports
from samples import SAMPLES, end, run, start, wait_for_listener

PROVOKE = os.environ["HV_PROVOKE"]  # tests/provoke.c, built
FAIL_VERBS = os.environ["HV_FAIL_VERBS"]  # tests/fail_verbs.c
SAMPLE = "01_hello_write"
# The case of provoke.c; the start of its message; words of its hint.
CASES = {
    "reg_null": ("ibv_reg_mr", "NULL"),
    "reg_unmapped": ("ibv_reg_mr", "freed"),
    "reg_read_only": ("ibv_reg_mr", "read-only"),
    "reg_too_long": ("ibv_reg_mr", "too long"),
    "reg_remote_write_alone": ("ibv_reg_mr", "need LOCAL_WRITE"),
    "reg_limit": ("ibv_reg_mr", "ulimit -l"),
    "qp_too_large": ("ibv_create_qp", "max_qp_wr"),
    "cq_too_large": ("ibv_create_cq", "max_cqe"),
    "srq_too_large": ("ibv_create_srq", "max_srq_wr"),
    "pd_in_use": ("ibv_dealloc_pd", "reverse order"),
    "ah_kinds": ("ibv_create_ah", "leave -g out"),
    "rtr_kinds": ("ibv_modify_qp to RTR", "GIDs both IPv4"),
    "post_inline_too_long": ("ibv_post_send", "max_inline_data"),
    "post_full": ("ibv_post_send", "queue full"),
    "post_recv_full": ("ibv_post_recv", "max_recv_wr"),
    "post_recv_sges": ("ibv_post_recv", "max_recv_sge"),
    "post_srq_full": ("ibv_post_srq_recv", "queue full"),
    "post_by_child": ("ibv_post_send: Permission denied (13)", "fork"),
    "post_by_other_user": ("ibv_post_send", "setuid"),
    "destroy_unknown": ("ibv_destroy_cq", "manual page"),
    "wc_loc_prot": ("completion", "outside its region"),
    "wc_loc_qp_op": ("completion", "wrong lkey"),
    "wc_flush": ("completion", "earlier completion"),
    "wc_bind": ("completion", "memory window"),
    "wc_rem_inv": ("completion", "peer's QP"),
    "wc_rem_access": ("completion", "peer's memory region"),
    "wc_rem_op": ("completion", "its output"),
    "wc_retry": ("completion", "no ACK"),
    "wc_rnr": ("completion", "posted no receive"),
}


def provoke(case, **env):
    return end(
        subprocess.Popen(
            [PROVOKE, case],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **env},
        )
    )


class Hints(PairTest):
    def hinted(self, side, words):
        hint = re.search(r"\n  hint: (.*)\n", side.err)
        self.assertTrue(hint and words in hint[1], f"{words}: {side}")

    def test_verbs(self):
        for case, (begins, words) in CASES.items():
            with self.subTest(case=case):
                side = provoke(case)
                self.assertEqual(side.status, 1, side)
                self.assertIn(f"provoke case: {begins}", side.err)
                self.hinted(side, words)
        self.hinted(run("12_ordering", "--inline", "4096", "127.0.0.1"), "less inline data")

    def test_huge_pages(self):
        with open("/proc/sys/vm/nr_hugepages", "w", encoding="ascii") as file:
            file.write("4\n")
        self.hinted(provoke("reg_huge", RDMAV_FORK_SAFE="1"), "RDMAV_HUGEPAGES_SAFE=1")
        for env in ({}, {"RDMAV_FORK_SAFE": "1", "RDMAV_HUGEPAGES_SAFE": "1"}):
            self.assertIn("reg_huge went well", provoke("reg_huge", **env).err)

    def test_tcp(self):
        port = str(next(ports))
        server = start(SAMPLE, "-p", port, "--timeout", "20")
        wait_for_listener(port, server)
        self.hinted(run(SAMPLE, "-p", port), "another server uses this port")
        for args, words in (
            ((SAMPLE, "-p", port, "-g", "99"), "lists the GIDs"),
            ((SAMPLE, "-p", port, "--mtu", "4096"), "mtu 4200"),
            ((SAMPLE, "-p", "1"), "start the server first"),
            (("02_send_recv", "-p", port), "same sample"),
        ):
            self.hinted(run(*args, "127.0.0.1"), words)
        env = {**os.environ, "LD_PRELOAD": FAIL_VERBS, "HV_FAIL": "ibv_post_send:1:12"}
        self.hinted(run(SAMPLE, "-p", port, "127.0.0.1", env=env), "queue full")
        self.hinted(end(server), "see the peer's output")
        self.hinted(run(SAMPLE, "-p", port, "--timeout", "1"), "start the client")


class OldErrors(PairTest):
    """Of a driver that returns NULL and leaves errno alone, no other call's error is told."""

    CALLS = ("ibv_alloc_pd", "ibv_create_cq", "ibv_reg_mr", "ibv_create_qp")

    def test_no_old_error_is_told(self):
        port = str(next(ports))
        with socket.create_server(("127.0.0.1", int(port)), backlog=100):
            for sample in SAMPLES:
                for call in self.CALLS:
                    env = {**os.environ, "LD_PRELOAD": FAIL_VERBS, "HV_FAIL": f"{call}:1:-1:on"}
                    old = ["--api", "post"] if sample == "16_extended" else []
                    side = run(sample, "-p", port, "--timeout", "5", *old, "127.0.0.1", env=env)
                    with self.subTest(sample=sample, call=call):
                        self.assertEqual(side.status, 1, side)
                        self.assertRegex(side.err, rf"client: {call}[^:(]*(;.*)?\n  hint")


class Fork(PairTest):
    """The handout's sentences on fork; that a child may not post on its parent's queue pair is a hint, too."""

    def test_what_holds(self):
        """Parent and NIC keep the registered pages. The library says that this kernel copies. ibv_fork_init costs the
        child whole pages, and comes before the first registration. A child that opens the device may use it.
        """
        for case, env in (
            ("fork_plain", {}),
            ("fork_unneeded", {}),
            ("fork_init_costs_pages", {}),
            ("fork_init_costs_pages", {"RDMAV_FORK_SAFE": "1"}),
            ("fork_init_too_late", {}),
            ("fork_then_open", {}),
        ):
            with self.subTest(case=case, env=env):
                side = provoke(case, **env)
                self.assertEqual((side.status, side.err), (0, ""), side)
                self.assertIn("\nholds\n", "\n" + side.out)
