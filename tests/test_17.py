# SPDX-License-Identifier: BSD-2-Clause
"""17_odp: pinned memory everywhere; on demand where the kernel can, else the reason, with status 77."""
import os
import re

from pairs import PairTest, messages
from samples import BUILD, end

NAME = "17_odp"
ODP = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) >= (6, 15)
ADVICE = BUILD.endswith("sid")  # its library has ibv_advise_mr
NO_ODP = "no on-demand paging: Soft-RoCE has it since Linux 6.15"
NO_ADVICE = "no ibv_advise_mr: Soft-RoCE's library has it since rdma-core 59"
PINNED = ("--memory", "pinned", "--limit", "8M")
THEN = ("none", "fork", "dontneed", "pageout")
SERVERS, LAST = 2, 3  # versions


class Memory(PairTest):
    def ends(self, *args, version=None):
        """version: of the blocks in the end, if both sides have to pass."""
        server, client = self.start_pair(NAME, *args)
        client, server = end(client), end(server)
        if version:
            self.both_pass(NAME, server, client, messages(256, 1024, 1 + 256 * version))
        return server, client

    def pages(self, server, when, there, faults):
        line = rf"(?m)^{when}: (\d+) of 1024 pages .* page faults of this process: (\d+)$"
        found = re.search(line, server.out)
        self.assertEqual(int(found[1]), there, server)
        self.assertIn(int(found[2]), range(faults, faults + 30), server)

    def gain(self, client):
        first, second = re.search(r"first_us=(\S+) second_us=(\S+)", client.out).groups()
        return float(first) / float(second)

    def refused(self, memory, reason):
        server, client = self.ends("--memory", memory)
        self.check_failed(server, NAME, "server", f"client: {reason}\n.*here$", 77, hint=False)
        self.check_failed(client, NAME, "client", f"refused: {reason}\n  hint: its device, kernel")

    def test_pinned(self):
        for then in THEN:
            kept = then == "dontneed"
            version = SERVERS if kept else LAST
            server, _ = self.ends(*PINNED, "--then", then, version=version)
            self.pages(server, "registered", 1024, 1024)
            self.pages(server, "written twice by the client", 1024, 0)
            self.pages(server, "read and written by the client", 256 if kept else 1024, 0)

    def test_limit_for_root(self):
        server, _ = self.ends("--memory", "pinned")
        reason = "ibv_reg_mr of 4194304 bytes: Cannot allocate memory .*; ulimit -l is 1024 KiB"
        self.check_failed(server, NAME, "server", reason)

    def test_on_demand(self):
        if not ODP:
            self.refused("odp", NO_ODP)
        for then in THEN if ODP else ():
            server, client = self.ends("--then", then, version=LAST)
            self.assertIn("\npinned: Cannot allocate memory: of 4194304 bytes", server.out)
            self.assertRegex(server.out, r"here:.* SEND .*WRITE READ ATOMIC ")
            self.assertGreater(self.gain(client), 1.2)
            self.pages(server, "registered", 0, 0)
            self.pages(server, "written twice by the client", 256, 0)
            if then in ("fork", "dontneed"):
                self.pages(server, then, 256, 256)

    def test_prefetch(self):
        if ODP and ADVICE:
            server, client = self.ends("--memory", "prefetch", version=LAST)
            self.pages(server, "registered", 256, 256)
            self.assertLess(self.gain(client), 1.1)
        else:
            self.refused("prefetch", NO_ADVICE if ODP else NO_ODP)

    def test_packets_within_a_page(self):
        self.both_pass(NAME, *self.ends(*PINNED, "--size", "4096"))
        if not ODP:
            return
        server, client = self.ends("--size", "4096")
        if server.status == 0:
            self.both_pass(NAME, server, client)
        else:
            said = r"byte 0 of 4096 is .*\n.*put each packet at the beginning of its page"
            self.check_failed(server, NAME, "server", said, hint=False)
