# SPDX-License-Identifier: BSD-2-Clause
"""Pairs on a real RDMA device, and what their messages must be; shared by the tests."""
import contextlib
import ctypes
import itertools
import os
import socket
import threading

from samples import ROOT, SampleTest, end, ran, run, start, wait_for_listener

MASK = 2**64 - 1
ports = itertools.count(
    20000 + os.getpid() % 40000
)  # a TCP port for each pair: no test waits for another's
# In the VM this is root on a machine of its own, and may take the device away.
IN_VM = os.path.exists("/sys/class/net/dummy0") and os.geteuid() == 0


EXPECTED = ctypes.CDLL(os.path.join(ROOT, "build", "expected.so"))  # tests/expected.c
EXPECTED.fnv1a.restype = ctypes.c_uint64


def fnv1a(data, digest=0xCBF29CE484222325):
    return EXPECTED.fnv1a(ctypes.c_uint64(digest), bytes(data), ctypes.c_size_t(len(data)))


def pattern(size, seed):
    out = ctypes.create_string_buffer(size)
    EXPECTED.pattern(out, ctypes.c_size_t(size), ctypes.c_uint64(seed & MASK))
    return out.raw


def messages(count, size, seed):
    """Messages one after another, each of its own seed."""
    return b"".join(pattern(size, seed + i & MASK) for i in range(count))


def word_after(iters, seed):
    return (~(seed + iters) & MASK).to_bytes(8, "little")


FAIL_VERBS = os.environ.get("HV_FAIL_VERBS", "")  # tests/fail_verbs.c, built
OTHER_DEVICE = os.environ.get("HV_OTHER_DEVICE", "")  # tests/other_device.c, built


def preloaded(library=FAIL_VERBS, **more):
    return {
        **os.environ,
        "LD_PRELOAD": library,
        "ASAN_OPTIONS": "verify_asan_link_order=0",
        **more,
    }


def rdma_resources():
    """What the kernel holds of RDMA objects."""
    return ran(["rdma", "resource", "show"], check=True).stdout


class Relay:
    """A proxy between a client, which it starts, and the server at a port: within "with", it passes on
    what change(role, line) makes of each line."""

    def __init__(self, sample, port, change, *client_args):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            own_port = listener.getsockname()[1]
            self.client = start(sample, "-p", own_port, *client_args, "127.0.0.1")
            client = listener.accept()[0]
        server = socket.create_connection(("127.0.0.1", int(port)))
        self.links = ("client", client, server, change), ("server", server, client, change)

    def __enter__(self):
        for link in self.links:
            threading.Thread(target=self.pump, args=link, daemon=True).start()
        return self

    def __exit__(self, *_):
        for _, tcp, _, _ in self.links:
            tcp.close()

    def pump(self, role, source, to, change):
        with contextlib.suppress(OSError):  # one of them has gone
            for line in source.makefile("rb"):
                to.sendall(change(role, line))
        with contextlib.suppress(OSError):
            to.shutdown(socket.SHUT_WR)


class PairTest(SampleTest):
    passed = 0  # pairs

    def serve(self, sample, *args, **more):
        """A server that listens, and its port."""
        port = str(next(ports))
        server = start(sample, "-p", port, *args, **more)
        wait_for_listener(port, server)
        return server, port

    def start_pair(self, sample, *client_args, server_args=(), env=None):
        """env: the client's."""
        server, port = self.serve(sample, *server_args)
        return server, start(sample, "-p", port, *client_args, "127.0.0.1", env=env)

    def meet(self, port):
        """A stranger's connection to a server."""
        return socket.create_connection(("127.0.0.1", int(port)), timeout=100)

    def refuses(self, sample, lines, client_args=()):
        """A server tells each of these strangers (line, reason) why, and nothing else; and then
        serves the client that is right."""
        server, port = self.serve(sample, "--timeout", 60)
        for line, reason in lines:
            with self.meet(port) as stranger:
                stranger.sendall(line)
                answer = stranger.makefile("rb").read()
                self.assertRegex(answer, rb"^hello-verbs/2 error=[ -~]+\n$")
                self.assertIn(reason, answer)
                self.assertNotIn(b"rkey", answer)
        self.serves_the_next(sample, server, port, len(lines), *client_args)

    def serves_the_next(self, sample, server, port, refused, *client_args):
        """After so many that it has refused."""
        client = run(sample, "-p", port, *client_args, "127.0.0.1")
        server = end(server)
        self.assertEqual(server.err.count("refused a client: "), refused, server)
        server.err = ""
        self.both_pass(sample, server, client)

    def passes(self, sample, *client_args, server_args=(), data=None):
        """Runs a pair that has to pass; data is what the receiver has to hold."""
        server, client = self.start_pair(sample, *client_args, server_args=server_args)
        client, server = end(client), end(server)
        self.both_pass(sample, server, client, data)
        return server, client

    def both_pass(self, sample, server, client, data=None):
        both = f"server: {server}\nclient: {client}"
        for role, side in (("server", server), ("client", client)):
            self.assertEqual((side.status, side.err), (0, ""), both)
            self.check_result(side, sample, role, "PASS")
        for field in ("bytes", "digest"):
            self.assertEqual(server.result[field], client.result[field], both)
        if data is not None:
            self.assertEqual(client.result["bytes"], str(len(data)), both)
            self.assertEqual(client.result["digest"], f"{fnv1a(data):016x}", both)
        PairTest.passed += 1

    def moved(self, sample, method, layout, *more):
        block_size, block_num, stride = layout
        args = ["--block-size", block_size, "--block-num", block_num, "--stride", stride]
        server, client = self.passes(sample, "--method", method, *args, *more)
        size = block_size * block_num
        line = (
            f"LAYOUT block_size={block_size} block_num={block_num} stride={stride} "
            f"bytes={size} seed="
        )
        self.assertIn(line, server.out)
        self.assertIn(line, client.out)
        self.assertEqual(client.result["bytes"], str(size))
        return client
