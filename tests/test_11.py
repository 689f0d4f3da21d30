#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""11_rdma_cm, which has no TCP rendezvous: pairs, wrong options, refused, dying and missing
peers. Runs where the RDMA device is."""
import signal
import subprocess
import time
import unittest

from pairs import IN_VM, PairTest, ports
from samples import LIMIT, end, main, run, start

NAME, HOST = "11_rdma_cm", "10.0.0.1"


def rdma_resources():
    return subprocess.run(["rdma", "resource", "show"], capture_output=True, text=True,
                          check=True).stdout


class CmTest(PairTest):
    def serve(self, *args):
        """A server that listens, and its port."""
        port = str(next(ports))
        server = start(NAME, "-p", port, *args)
        deadline = time.monotonic() + LIMIT
        while server.poll() is None and time.monotonic() < deadline:
            ids = subprocess.run(["rdma", "resource", "show", "cm_id"], capture_output=True,
                                 text=True, check=True).stdout
            if any("LISTEN" in line and f":{port} " in line + " " for line in ids.splitlines()):
                break
            time.sleep(0.02)
        return server, port

    def pair(self, *args, server_args=(), data=b"hello verbs"):
        server, port = self.serve(*server_args)
        client = run(NAME, "-p", port, *args, HOST)
        server = end(server)
        self.both_pass(NAME, server, client, data)
        return server, client


@unittest.skipUnless(IN_VM, "needs the VM's address")
class Good(CmTest):
    def test_defaults(self):
        server, client = self.pair()
        self.assertRegex(client.out, 'wrote "hello verbs" to the server\'s address 0x[0-9a-f]+, '
                         'rkey 0x[0-9a-f]+, and read it back\n')
        for side in (server, client):
            self.assertRegex(side.out, r"device rxe0, port 1, QPN 0x[0-9a-f]{6}\n")

    def test_messages(self):
        for text in ("x", "你好,verbs", "long " * 5000):
            with self.subTest(text=text[:20]):
                self.pair("-M", text, data=text.encode())

    def test_verbose_shows_the_events_in_order(self):
        server, client = self.pair("-v", server_args=["--verbose"])
        events = [[line[3:] for line in side.out.splitlines() if line.startswith("<- ")]
                  for side in (server, client)]
        self.assertEqual(events, [
            ["RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_ESTABLISHED",
             "RDMA_CM_EVENT_DISCONNECTED"],
            ["RDMA_CM_EVENT_ADDR_RESOLVED", "RDMA_CM_EVENT_ROUTE_RESOLVED",
             "RDMA_CM_EVENT_ESTABLISHED", "RDMA_CM_EVENT_DISCONNECTED"]])

    def test_bind_and_the_port_again_at_once(self):
        port = str(next(ports))
        for _ in range(3):
            server, port = self.serve("-b", HOST)
            self.both_pass(NAME, *reversed((run(NAME, "-p", port, HOST), end(server))),
                           b"hello verbs")


@unittest.skipUnless(IN_VM, "needs the VM's address")
class Bad(CmTest):
    def test_options_that_rdma_cm_decides(self):
        for option in (["-d", "rxe0"], ["-i", "1"], ["-g", "1"], ["-m", "1024"]):
            for host, role in (((), "server"), ((HOST,), "client")):
                self.check_failed(run(NAME, *option, *host), NAME, role,
                                  "rdma_cm chooses these by the address", status=2)
        self.check_failed(run(NAME, "-Z"), NAME, "server", "-Z: no such option", status=2)
        self.check_failed(run(NAME, "-M", "x"), NAME, "server", "only for the client", status=2)

    def test_address_without_an_rdma_device(self):
        self.check_failed(run(NAME, "127.0.0.1"), NAME, "client",
                          r"rdma_resolve_route: give an RDMA interface's address, not 127.0.0.1: "
                          r"No such device \(19\)", hint=False)

    def test_no_server(self):
        self.check_failed(run(NAME, "-p", str(next(ports)), HOST), NAME, "client",
                          "cannot connect: no server")

    def test_no_client(self):
        server, _ = self.serve("--timeout", "2")
        self.check_failed(end(server), NAME, "server",
                          "the peer is silent: no RDMA_CM_EVENT_CONNECT_REQUEST in 2 s")

    def test_strangers_are_rejected_and_then_the_right_client_is_served(self):
        """rping says other private data."""
        server, port = self.serve()
        for _ in range(3):
            stranger = subprocess.run(["rping", "-c", "-a", HOST, "-p", port, "-C", "1"],
                                      capture_output=True, text=True, timeout=LIMIT, check=False)
            self.assertIn("REJECTED", stranger.stdout + stranger.stderr)
        client = run(NAME, "-p", port, HOST)
        server = end(server)
        self.assertEqual(server.err.count("refused a client: this side runs 11_rdma_cm\n"), 3)
        server.err = ""
        self.both_pass(NAME, server, client, b"hello verbs")

    def test_a_client_too_many_is_rejected(self):
        """While one is served, nobody listens any more."""
        server, port = self.serve("--timeout", "20")
        first = start(NAME, "-p", port, "--timeout", "20", "-M", "x" * 100000, HOST)
        second = start(NAME, "-p", port, "--timeout", "20", HOST)
        sides = [end(first), end(second)]
        server = end(server)
        passed = [side for side in sides if side.status == 0]
        self.assertEqual((len(passed), server.status), (1, 0), (server, *map(str, sides)))
        self.assertIn("cannot connect: no server", (sides[0].err + sides[1].err))

    def test_a_peer_that_dies_or_hangs(self):
        for sent in (signal.SIGKILL, signal.SIGSTOP):
            with self.subTest(sent=sent):
                before = rdma_resources()
                server, port = self.serve("--timeout", "4")
                server.send_signal(sent)
                time.sleep(0.2)
                client = run(NAME, "-p", port, "--timeout", "4", HOST)
                self.check_failed(client, NAME, "client", "no server" if sent == signal.SIGKILL
                                  else "the peer is silent: no RDMA_CM_EVENT_ESTABLISHED in 4 s")
                server.kill()
                end(server)
                self.assertEqual(rdma_resources(), before)

    def test_no_device_exits_77(self):
        subprocess.run(["rdma", "link", "delete", "rxe0"], check=True)
        try:
            for host, role in (((), "server"), ((HOST,), "client")):
                self.check_failed(run(NAME, *host), NAME, role, "no RDMA device here", status=77)
        finally:
            subprocess.run(["rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "dummy0"],
                           check=True)


if __name__ == "__main__":
    main()
