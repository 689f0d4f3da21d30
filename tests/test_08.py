# SPDX-License-Identifier: BSD-2-Clause
"""08_write_imm: its options, how often the server wakes, and peers that lie in its own steps."""
import re

from pairs import MASK, PairTest, messages, preloaded
from samples import end

SAMPLE = "08_write_imm"


class Options(PairTest):
    def test_sizes_bursts_and_seeds(self):
        for transport in ("rc", "uc"):
            for size, iters, seed in ((1, 1, 0), (1025, 3, 12345), (9999, 1, MASK)):
                args = ["-s", size, "-n", iters, "-S", seed, "--transport", transport]
                data = messages(4 * iters, size, seed)
                for side in self.passes(SAMPLE, *args, data=data):
                    arrived = f"\n{4 * iters} messages sent, {4 * iters} arrived, 0 missed\n"
                    self.assertIn(arrived, side.out)

    def test_only_the_last_of_a_burst_wakes(self):
        server, client = self.passes(SAMPLE, "-n", 50, "-s", 100)
        woken = int(re.search(r"\nwoken (\d+) times\n", server.out)[1])
        self.assertTrue(1 <= woken <= 50, woken)
        self.assertNotIn("woken", client.out)

    def test_device_without_uc_exits_77(self):
        env = preloaded(HV_FAIL="ibv_create_qp:1:95:on")
        args = ["--transport", "uc"]
        server, client = self.start_pair(SAMPLE, *args, server_args=["--timeout", 3], env=env)
        reason = "no UC queue pairs on rxe0"
        self.check_failed(end(client), SAMPLE, "client", reason, status=77, hint=False)
        end(server)


class Liars(PairTest):
    """A peer that keeps to the protocol but for one thing."""

    def test_requests_that_are_others(self):
        nobody_sent = "an immediate that nobody sent: {}, {} bytes".format
        # Linux 6.12 makes no event for some errors: the server sees them by its clock.
        failed = r"completion of the receive: .*\(status \d+\)|no completion of message 0 in 4 s"
        for how, args, reason in (
            ("2:i:7", [], nobody_sent(7, 4096)),  # of the next burst
            ("2:i:4", ["--transport", "uc"], nobody_sent(4, 4096)),
            ("2:i:0", [], nobody_sent(0, 4096)),  # again
            ("5:i:0", [], nobody_sent(0, 4096)),  # of the burst before
            ("3:l:4095", [], nobody_sent(2, 4095)),
            ("4:o:0", [], "no completion of message 0 in 4 s"),  # a WRITE without
            ("1:o:2", [], failed),  # a SEND: no room for it
            ("1:o:3", ["-s", 1], f"the peer sent another message|{failed}"),  # and with one
        ):
            env = preloaded(HV_SEND=how)
            server, client = self.start_pair(SAMPLE, "--timeout", 4, *args, env=env)
            client, server = end(client), end(server)
            self.assertEqual(client.status, 1, client)
            self.check_failed(server, SAMPLE, "server", reason, hint=False)
