# SPDX-License-Identifier: BSD-2-Clause
"""Mistakes that no step of Break it makes, each with the hint that speaks of it (all hints: unit/test_hints.c); and
what the handout says of fork. Runs where the RDMA device is."""

import os
import re
import subprocess

from pairs import PairTest, ports
from samples import end, run, start, wait_for_listener

PROVOKE = os.environ["HV_PROVOKE"]  # tests/provoke.c, built
SAMPLE = "01_hello_write"
# The case of provoke.c; the start of its message; words of its hint.
CASES = {
    "reg_null": ("ibv_reg_mr", "NULL"),
    "reg_read_only": ("ibv_reg_mr", "read-only"),
    "reg_limit": ("ibv_reg_mr", "ulimit -l"),
    "post_by_child": ("ibv_post_send: Permission denied (13)", "fork"),
    "post_by_other_user": ("ibv_post_send", "setuid"),
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

    def test_tcp(self):
        port = str(next(ports))
        server = start(SAMPLE, "-p", port, "--timeout", "20")
        wait_for_listener(port, server)
        self.hinted(run(SAMPLE, "-p", port), "another server uses this port")
        for args, words in (
            ((SAMPLE, "-p", "1"), "start the server first"),
            (("02_send_recv", "-p", port), "same sample"),
        ):
            self.hinted(run(*args, "127.0.0.1"), words)
        self.serves_the_next(SAMPLE, server, port, 1)


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
