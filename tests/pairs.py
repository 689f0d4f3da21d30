# SPDX-License-Identifier: BSD-2-Clause
"""Pairs on a real RDMA device, and what their messages must be; shared by the tests."""
import itertools
import os

from samples import SampleTest, end, start, wait_for_listener

MASK = 2**64 - 1
ports = itertools.count(20000 + os.getpid() % 40000)  # a TCP port for each pair: no test waits for another's
# In the VM this is root on a machine of its own, and may take the device away.
IN_VM = os.path.exists("/sys/class/net/dummy0") and os.geteuid() == 0


def fnv1a(data, digest=0xCBF29CE484222325):
    for byte in data:
        digest = (digest ^ byte) * 0x100000001B3 & MASK
    return digest


def pattern(size, seed):
    """The test data, from its description in data.h, not from its code."""
    out = bytearray()
    for n in range(1, size // 8 + 2):
        z = (seed + n * 0x9E3779B97F4A7C15) & MASK
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
        out += (z ^ (z >> 31)).to_bytes(8, "little")
    return bytes(out[:size])


def messages(count, size, seed):
    """Messages one after another, each of its own seed."""
    return b"".join(pattern(size, seed + i & MASK) for i in range(count))


def word_after(iters, seed):
    return (~(seed + iters) & MASK).to_bytes(8, "little")


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
            sample, "--method", method, "--block-size", str(block_size), "--block-num",
            str(block_num), "--stride", str(stride), *more)
        size = block_size * block_num
        line = (f"LAYOUT block_size={block_size} block_num={block_num} stride={stride} "
                f"bytes={size} seed=")
        self.assertIn(line, server.out)
        self.assertIn(line, client.out)
        self.assertEqual(client.result["bytes"], str(size))
        return client
