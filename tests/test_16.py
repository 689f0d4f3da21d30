# SPDX-License-Identifier: BSD-2-Clause
"""16_extended: each way with batches of many sizes; what is wrong is told, also what is wrong in the library.
Runs where the RDMA device is."""
import errno
import itertools

from pairs import PairTest, messages, preloaded
from samples import BUILD, end, run

NAME = "16_extended"
WAYS = ("post", "wr")
NEXT_POLL = "ibv_next_poll of this library takes one completion too many (rdma-core 34 to 54 on"
LIST = (
    r"message 0: 66 bytes came, not 100\. The sender's ibv_wr_set_sge_list counts its first SGE"
    r" twice: so does rdma-core before 64 on Soft-RoCE"
)


def costs(client):
    """The fields of its BENCH line."""
    (line,) = (line for line in client.out.splitlines() if line.startswith("BENCH "))
    return dict(field.split("=") for field in line.split()[1:])


class Batches(PairTest):
    def test_each_way_by_batch(self):
        for way, batch in itertools.product(WAYS, (1, 2, 7, 8, 63, 64)):
            _, client = self.passes(
                NAME,
                *("--api", way, "--batch", str(batch), "-n", "100", "-s", "100", "-S", "5"),
                data=messages(100, 100, 5),
            )
            found, batches = costs(client), -(-100 // batch)
            self.assertEqual((found["api"], found["batch"]), (way, str(batch)))
            calls = {"post": batches, "wr": 2 * batches + 2 * 100}[way]
            self.assertEqual(found["post_calls"], str(calls))
            # at most a poll for each completion; the new way reads the length of a receive
            most = {"post": 200, "wr": 200 * 3 + 100}[way]
            least = {"post": 2 * batches, "wr": 4 * batches + 100}[way]
            self.assertTrue(least <= int(found["poll_calls"]) <= most, client)
            self.assertLess(0, float(found["post_us"]))
            self.assertLess(float(found["post_us"]), float(found["message_us"]))

    def test_each_way_by_size(self):
        for way, size in itertools.product(WAYS, (1, 1024, 1025, 65536)):
            self.passes(
                NAME,
                *("--api", way, "-n", "20", "-s", str(size)),
                data=messages(20, size, 1),
            )

    def test_next_poll_is_tried_before_it_is_used(self):
        """Debian 12's is wrong, Debian 13's is not."""
        server, client = self.passes(NAME, "--batch", "64")
        for side in (server, client):
            if "debian13" in BUILD:
                self.assertNotIn(NEXT_POLL, side.out)
            else:
                self.assertIn(NEXT_POLL, side.out)
        polls = 128 * 2 + 64  # where each completion has a poll of its own
        self.assertEqual(int(costs(client)["poll_calls"]) == polls, "debian13" not in BUILD, client)

    def test_list(self):
        """By ibv_wr_set_sge_list both ends are right, or its fault is named."""
        self.passes(NAME, "--api", "post", "--list", "-s", "100", data=messages(64, 100, 1))
        server, client = self.start_pair(NAME, "--list", "-s", "100", "--timeout", "3")
        client, server = end(client), end(server)
        if server.status == 0:
            self.both_pass(NAME, server, client, messages(64, 100, 1))
        else:
            self.check_failed(server, NAME, "server", LIST, hint=False)
            self.check_failed(client, NAME, "client", "no completion of a receive in 3 s")


class Wrong(PairTest):
    """Not within Debian 13's files, where this machine's fail_verbs.so is not to be had."""

    def ends(self, *args, client_env=None, server_env=None):
        """Both sides of a pair that fails."""
        server, port = self.serve(NAME, "--timeout", 10, env=server_env)
        more = ("-p", port, "--timeout", 3, *args, "127.0.0.1")
        client = run(NAME, *more, env=client_env)
        return end(server), client

    def test_wrong_data_is_told(self):
        for way, (how, said) in itertools.product(
            WAYS,
            (
                ("3:b:5", "received message: byte 5 of 100 is 0x"),
                ("3:l:50", "message 2: 50 bytes came, not 100"),
            ),
        ):
            args = ("--api", way, "-s", "100", "--batch", "4")
            server, client = self.ends(*args, client_env=preloaded(HV_SEND=how))
            self.check_failed(server, NAME, "server", said, hint=False)
            self.check_failed(client, NAME, "client", "^16_extended client: ", hint=False)
            server, client = self.ends(*args, server_env=preloaded(HV_SEND=how))
            self.check_failed(client, NAME, "client", said, hint=False)
            self.check_failed(server, NAME, "server", "^16_extended server: ", hint=False)

    def test_completion_of_another_request(self):
        for way, number in (("post", 2), ("wr", 3)):  # the first of the new way is the trial's
            for role in ("client", "server"):
                env = preloaded(HV_FAIL=f"wr_id:{number}:64")
                server, client = self.ends("--api", way, "-n", "8", **{role + "_env": env})
                side = {"server": server, "client": client}[role]
                said = r"another request's completion: \d+, not \d+"
                self.check_failed(side, NAME, role, said, hint=False)

    def failing(self, way, fault, said, status=1, **more):
        """A client in which a call fails."""
        _, client = self.ends("--api", way, client_env=preloaded(HV_FAIL=fault, **more))
        self.check_failed(client, NAME, "client", said, status, hint=status == 1)

    def test_a_device_without_the_new_way(self):
        none = "{call}: no {what} on .*: --api post needs none: Operation not supported"
        for call, what in (
            ("ibv_create_cq_ex", "extended completion queues"),
            ("ibv_create_qp_ex", "ibv_wr_send"),
        ):
            fault = f"{call}:1:{errno.EOPNOTSUPP}"
            self.failing("wr", fault, none.format(call=call, what=what), 77)
            server, _ = self.ends(server_env=preloaded(HV_FAIL=fault))
            said = none.format(call=call, what=what)
            self.check_failed(server, NAME, "server", said, 77, hint=False)

    def test_next_poll_that_fails(self):
        """In the trial: then it is not used."""
        env = preloaded(HV_FAIL="ibv_next_poll:1:12")
        server, client = self.start_pair(NAME, env=env)
        client, server = end(client), end(server)
        self.both_pass(NAME, server, client, messages(64, 4096, 1))
        self.assertIn(NEXT_POLL, client.out)

    def test_timestamps(self):
        """Of a queue that has some: 100 ticks from one receive to the next."""
        server, client = self.start_pair(NAME, env=preloaded(HV_STAMPS="1"))
        client, server = end(client), end(server)
        self.both_pass(NAME, server, client, messages(64, 4096, 1))
        self.assertIn("no completion timestamps on ", server.out)
        self.assertNotIn("no completion timestamps", client.out)
        said = r"(?m)^first to last receive: 6300 ticks of the NIC's clock, of \d+ kHz$"
        self.assertRegex(client.out, said)
        self.failing("wr", "ibv_query_device_ex:1:5", "ibv_query_device_ex: ", HV_STAMPS="1")
