# SPDX-License-Identifier: BSD-2-Clause
"""Pairs on a real RDMA device, and what their messages must be; shared by the tests."""
import ctypes
import itertools
import os

from samples import ROOT, SampleTest, end, ran, start, wait_for_listener

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
    """The test data."""
    out = ctypes.create_string_buffer(size)
    EXPECTED.pattern(out, ctypes.c_size_t(size), ctypes.c_uint64(seed & MASK))
    return out.raw


def messages(count, size, seed):
    """Messages one after another, each of its own seed."""
    return b"".join(pattern(size, seed + i & MASK) for i in range(count))


def word_after(iters, seed):
    return (~(seed + iters) & MASK).to_bytes(8, "little")


def rdma_resources():
    """What the kernel holds of RDMA objects."""
    return ran(["rdma", "resource", "show"], check=True).stdout


class PairTest(SampleTest):
    passed = 0  # pairs

    def start_pair(self, sample, *client_args, server_args=(), env=None):
        """env: the client's."""
        port = str(next(ports))
        server = start(sample, "-p", port, *server_args)
        wait_for_listener(port, server)
        return server, start(sample, "-p", port, *client_args, "127.0.0.1", env=env)

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
        server, client = self.passes(
            sample,
            "--method",
            method,
            "--block-size",
            str(block_size),
            "--block-num",
            str(block_num),
            "--stride",
            str(stride),
            *more,
        )
        size = block_size * block_num
        line = (
            f"LAYOUT block_size={block_size} block_num={block_num} stride={stride} "
            f"bytes={size} seed="
        )
        self.assertIn(line, server.out)
        self.assertIn(line, client.out)
        self.assertEqual(client.result["bytes"], str(size))
        return client
