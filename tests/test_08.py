# SPDX-License-Identifier: BSD-2-Clause
"""08_write_imm: its options, how often the server wakes, and peers that lie in its own steps."""
import os
import re
import socket
import threading

from pairs import MASK, PairTest, messages, ports
from samples import end, run, start, wait_for_listener

SAMPLE = "08_write_imm"
FAIL_VERBS = os.environ["HV_FAIL_VERBS"]  # tests/fail_verbs.c, built
LINE = (
    b"hello-verbs/2 sample=08_write_imm lid=0x0000 qpn=0x000011 psn=0x3a5f10 gid=::ffff:10.0.0.1 "
    b"mtu=1024 addr=0x0 rkey=0x0 len=0 max_sge=1 rd_atomic=0 work=size=4096,iters=1,seed=1,"
    b"timeout=3"
)


def preloaded(**more):
    return {**os.environ, "LD_PRELOAD": FAIL_VERBS, **more}


class Options(PairTest):
    def test_sizes_bursts_and_seeds(self):
        for transport in ("rc", "uc"):
            for size, iters, seed in ((1, 1, 0), (1024, 2, 1), (1025, 3, 12345), (9999, 1, MASK)):
                with self.subTest(transport=transport, size=size):
                    server, client = self.passes(
                        SAMPLE,
                        "-s",
                        str(size),
                        "-n",
                        str(iters),
                        "-S",
                        str(seed),
                        "--transport",
                        transport,
                        data=messages(4 * iters, size, seed),
                    )
                    for side in (server, client):
                        self.assertIn(
                            f"\n{4 * iters} messages sent, {4 * iters} arrived, " "0 missed\n",
                            side.out,
                        )

    def test_only_the_last_of_a_burst_wakes(self):
        server, client = self.passes(SAMPLE, "-n", "50", "-s", "100")
        woken = int(re.search(r"\nwoken (\d+) times\n", server.out)[1])
        self.assertTrue(1 <= woken <= 50, woken)
        self.assertNotIn("woken", client.out)
        print(f"# 200 messages in 50 bursts: woken {woken} times", flush=True)

    def test_largest(self):
        _, client = self.passes(SAMPLE, "-s", "4M", "-n", "1")
        self.assertEqual(client.result["bytes"], str(16 << 20))


class Usage(PairTest):
    def test_wrong_values(self):
        for args, reason in (
            (["--transport", "ud"], "transport is rc or uc"),
            (["--transport", ""], "its value is empty"),
            (["-s", "16777217"], "not a number from 1 to 16777216"),
        ):
            with self.subTest(args=args):
                self.check_failed(run(SAMPLE, *args, "h"), SAMPLE, "client", reason, status=2)

    def test_server_refuses_what_cannot_be(self):
        port = next(ports)
        server = start(SAMPLE, "-p", str(port), "--timeout", "60")
        wait_for_listener(port, server)
        for line, reason in (
            (LINE, b"transport is neither rc nor uc"),
            (LINE + b",transport=ud", b"transport is neither rc nor uc"),
            (LINE + b",transport=rc,burst=4", b"transport is neither rc nor uc"),
            (LINE + b",transport=uc ", b"transport is neither rc nor uc"),
            (LINE.replace(b"size=4096", b"size=16777217") + b",transport=rc", b"above 16 MiB"),
        ):
            with self.subTest(line=line[-30:]), socket.create_connection(
                ("127.0.0.1", port), timeout=60
            ) as stranger:
                stranger.sendall(line + b"\n")
                self.assertIn(reason, stranger.makefile("rb").read())
        client = run(SAMPLE, "-p", str(port), "127.0.0.1")
        server = end(server)
        server.err = ""
        self.both_pass(SAMPLE, server, client)

    def test_device_without_uc_exits_77(self):
        server, client = self.start_pair(
            SAMPLE,
            "--transport",
            "uc",
            server_args=["--timeout", "3"],
            env=preloaded(HV_FAIL="ibv_create_qp:1:95:on"),
        )
        self.check_failed(
            end(client), SAMPLE, "client", "no UC queue pairs on rxe0", status=77, hint=False
        )
        end(server)


class Liars(PairTest):
    """A peer that keeps to the protocol but for one thing."""

    def client_sends(self, how, *args):
        """The server's end, when the client posts one request that is another."""
        server, client = self.start_pair(
            SAMPLE, "--timeout", "4", *args, env=preloaded(HV_SEND=how)
        )
        client, server = end(client), end(server)
        self.assertEqual(client.status, 1, client)
        return server

    def test_requests_that_are_others(self):
        for how, reason in (
            ("2:i:7", "an immediate that nobody sent: 7, 4096 bytes"),
            ("2:i:0", "an immediate that nobody sent: 0, 4096 bytes"),
            ("5:i:0", "an immediate that nobody sent: 0, 4096 bytes"),
            ("1:i:4294967295", "an immediate that nobody sent: 4294967295, 4096 bytes"),
            ("3:l:4095", "an immediate that nobody sent: 2, 4095 bytes"),
            ("1:o:0", "an immediate that nobody sent: 1, 4096 bytes"),  # a WRITE without
            ("4:o:0", "no completion of message 0 in 4 s"),
            (
                "1:o:2",  # a SEND: no room for it
                r"completion of the receive: .*\(status \d+\)|no completion of message 0 in 4 s",
            ),
        ):
            with self.subTest(how=how):
                self.check_failed(self.client_sends(how), SAMPLE, "server", reason, hint=False)

    def test_a_send_with_an_immediate(self):
        server = self.client_sends("1:o:3", "-s", "1")
        # Linux 6.12 makes no event for this error: the server sees it by its clock.
        self.check_failed(
            server,
            SAMPLE,
            "server",
            "the peer sent another message"
            r"|completion of the receive: .*\(status \d+\)"
            "|no completion of message 0 in 4 s",
            hint=False,
        )

    def test_uc_takes_no_number_of_another_burst(self):
        server = self.client_sends("2:i:4", "--transport", "uc")
        self.check_failed(
            server, SAMPLE, "server", "an immediate that nobody sent: 4, 4096 bytes", hint=False
        )

    def server_says(self, old, new, *args):
        """The client's end, when one of the server's lines is another."""
        port = str(next(ports))
        server = start(SAMPLE, "-p", port)
        wait_for_listener(port, server)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = start(
                SAMPLE, "--timeout", "4", "-p", str(listener.getsockname()[1]), *args, "127.0.0.1"
            )
            ours = listener.accept()[0]
        theirs = socket.create_connection(("127.0.0.1", int(port)))

        def pump(source, to, change):
            try:
                for line in source.makefile("rb"):
                    to.sendall(line.replace(old, new) if change else line)
                to.shutdown(socket.SHUT_WR)
            except OSError:  # it has gone
                pass

        threads = [
            threading.Thread(target=pump, args=args)
            for args in ((theirs, ours, True), (ours, theirs, False))
        ]
        for thread in threads:
            thread.start()
        client, server = end(client), end(server)
        for thread in threads:
            thread.join()
        ours.close()
        theirs.close()
        self.assertEqual(server.status, 1, server)
        return client

    def test_arrivals_that_cannot_be(self):
        for new, reason in (
            (b"arrived=16", "the peer sent 'sync arrived=16'"),
            (b"arrived=x", "the peer sent 'sync arrived=x'"),
            (b"arrived=", "the peer sent 'sync arrived='"),
            (b"arrive=15", "the peer sent 'sync arrive=15' instead of"),
            (b"arrived=7", "messages are missing"),
        ):
            with self.subTest(new=new):
                self.check_failed(
                    self.server_says(b"arrived=15", new), SAMPLE, "client", reason, hint=False
                )
