# SPDX-License-Identifier: BSD-2-Clause
"""What newcomers see first, each with the hint that speaks of it (all hints: unit/test_hints.c). Runs where the RDMA
device is."""
import errno
import os
import re

from pairs import PairTest, ports
from samples import run, start, wait_for_listener
from test_09 import Python

SAMPLE = "01_hello_write"


class Hints(PairTest):
    def hinted(self, side, words):
        hint = re.search(r"\n  hint: (.*)\n", side.err)
        self.assertTrue(hint and words in hint[1], f"{words}: {side}")

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

    def test_a_child_may_not_post_on_its_parents_queue_pair(self):
        python = Python()
        child = os.fork()
        if child == 0:
            try:
                python.send(python.qp.qp_num, b"x")
                os._exit(0)
            except BaseException as error:
                os._exit(getattr(error, "error_code", 1))
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), errno.EACCES)
