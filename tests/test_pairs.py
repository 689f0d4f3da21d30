#!/usr/bin/env python3
"""Every sample as a pair of processes on a real RDMA device."""
import itertools
import os
import random
import re
import resource
import socket
import subprocess
import tempfile
import time
import unittest

from samples import SAMPLES, Ended, SampleTest, end, main, path, run, start, wait_for_listener

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


def word_after(iters, seed):
    return (~(seed + iters) & MASK).to_bytes(8, "little")


class PairTest(SampleTest):
    passed = 0  # pairs

    def start_pair(self, sample, *client_args, server_args=()):
        port = str(next(ports))
        server = start(sample, "-p", port, *server_args)
        wait_for_listener(port, server)
        return server, start(sample, "-p", port, *client_args, "127.0.0.1")

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


def tearDownModule():
    if PairTest.passed:
        print(f"ok - __main__: {PairTest.passed} pairs passed on Linux {os.uname().release}",
              flush=True)


class Defaults(PairTest):
    def test_01_hello_write(self):
        server, client = self.passes("01_hello_write", data=b"hello verbs")
        self.assertIn('found "hello verbs" in my memory', server.out)
        self.assertIn('wrote "hello verbs"', client.out)

    def test_02_send_recv(self):
        self.passes("02_send_recv", data=pattern(4096, 1))

    def test_03_read(self):
        self.passes("03_read", data=pattern(4096, 1))

    def test_04_atomic(self):
        server, client = self.passes("04_atomic", data=word_after(100, 1))
        self.assertIn("100 x fetch-and-add of 1: 1 -> 101", client.out)
        self.assertIn("the word was 1 and is now 18446744073709551514", server.out)


class Options(PairTest):
    def test_message(self):
        for text in ("x", "你好,verbs", "a\x1b[31mb", "a\u009b31mb", "long " * 2000):
            with self.subTest(text=text[:20]):
                server, _ = self.passes("01_hello_write", "-M", text, data=text.encode())
                self.assertNotRegex(server.out, "[\x1b\x7f-\x9f]")
                self.assertLess(len(server.out), 1000)
        self.passes("01_hello_write", "--message=two words", data=b"two words")

    def test_sizes(self):
        for sample, size in itertools.product(("02_send_recv", "03_read"),
                                              (1, 7, 1023, 1024, 1025, 9999)):
            with self.subTest(sample=sample, size=size):
                self.passes(sample, "-s", str(size), data=pattern(size, 1))

    def test_suffixes_and_large_messages(self):
        for sample in ("02_send_recv", "03_read"):
            _, client = self.passes(sample, "--size=64K")
            self.assertEqual(client.result["bytes"], "65536")
            _, client = self.passes(sample, "-s", "4M")
            self.assertEqual(client.result["bytes"], "4194304")

    def test_iters(self):
        data = b"".join(pattern(100, 1 + i) for i in range(50))
        self.passes("02_send_recv", "-n", "50", "-s", "100", data=data)
        self.passes("03_read", "--iters=50", "-s", "100", data=pattern(100, 1))
        self.passes("04_atomic", "-n", "1", data=word_after(1, 1))

    def test_seed(self):
        for seed in (0, 12345, MASK):
            with self.subTest(seed=seed):
                self.passes("02_send_recv", "--seed", str(seed), data=pattern(4096, seed))
                self.passes("03_read", "-S", str(seed), data=pattern(4096, seed))
                self.passes("04_atomic", "--seed", str(seed), data=word_after(100, seed))

    def test_mtu(self):
        for mtu in ("256", "512", "1024"):
            with self.subTest(mtu=mtu):
                self.passes("03_read", "-m", mtu)
        # the smaller of the two sides' holds
        self.passes("02_send_recv", "--mtu=256", server_args=["-m", "512"])

    def test_device_port_and_gid_by_name(self):
        device = sorted(os.listdir("/sys/class/infiniband"))[0]
        for sample in SAMPLES:
            with self.subTest(sample=sample):
                server, client = self.passes(sample, "-d", device, "-i", "1",
                                             server_args=["--ib-dev", device, "--ib-port=1"])
                index = server.out.split("GID index ")[1].split()[0]
                self.passes(sample, "-g", index, server_args=["--gid-idx=" + index])

    def test_bind(self):
        self.passes("03_read", "-b", "127.0.0.1", server_args=["-b", "127.0.0.1"])
        self.passes("03_read", server_args=["--bind=127.0.0.1"])

    def test_ipv6_rendezvous(self):
        port = str(next(ports))
        server = start("03_read", "-p", port)
        wait_for_listener(port, server)
        client = run("03_read", "-p", port, "::1")
        self.both_pass("03_read", end(server), client)

    def test_verbose_shows_the_lines(self):
        for sample in SAMPLES:
            server, client = self.passes(sample, "-v", server_args=["--verbose"])
            for side in (server, client):
                for line in ("-> hello-verbs/1 sample=" + sample,
                             "<- hello-verbs/1 sample=" + sample,
                             "-> sync ready", "<- sync ready", "-> sync done", "<- sync done"):
                    self.assertIn("\n" + line, "\n" + side.out)

    def test_client_may_come_first(self):
        port = str(next(ports))
        client = start("01_hello_write", "-p", port, "127.0.0.1")
        time.sleep(2)
        server = run("01_hello_write", "-p", port)
        self.both_pass("01_hello_write", server, end(client))

    def test_port_is_free_again_at_once(self):
        port = str(next(ports))
        for _ in range(3):
            server = start("01_hello_write", "-p", port)
            wait_for_listener(port, server)
            client = run("01_hello_write", "-p", port, "127.0.0.1")
            self.both_pass("01_hello_write", end(server), client)


class Rights(PairTest):
    def test_only_the_lender_sends_an_rkey(self):
        for sample in SAMPLES:
            _, client = self.passes(sample, "-v")
            sent = [line for line in client.out.splitlines() if line.startswith("-> hello")][0]
            got = [line for line in client.out.splitlines() if line.startswith("<- hello")][0]
            self.assertIn(" addr=0x0000000000000000 rkey=0x00000000 len=0 ", sent)
            lends = "rkey=0x00000000" not in got
            self.assertEqual(lends, sample not in ("02_send_recv", "07_gssr"), got)


LAYOUTS = {  # what is special about it: block_size, block_num, stride
    "one block": (4096, 1, 4096),
    "one byte": (1, 1, 1),
    "exactly max_sge blocks": (100, 32, 133),
    "one more than max_sge": (100, 33, 133),
    "no gaps": (512, 70, 512),
    "gaps of one byte": (1023, 65, 1024),
    "1-byte blocks": (1, 1000, 3),
    "thousands of blocks": (24, 5000, 40),
    "more work requests than the queue has": (3, 40000, 5),
    "few large blocks": (300001, 3, 400000),
}


class Layouts(PairTest):
    def every_method(self, sample):
        for (name, layout), method in itertools.product(LAYOUTS.items(),
                                                        ("sgl", "copy", "each", "auto")):
            if method == "auto" and layout[1] > 70:
                continue  # it is one of the first two: not again where they take long
            with self.subTest(layout=name, method=method):
                client = self.moved(sample, method, layout)
                wrs = int(re.search(r": (\d+) work requests in all", client.out)[1])
                if method == "sgl":
                    self.assertEqual(wrs, -(-layout[1] // 32), client)
                elif method == "each":
                    self.assertEqual(wrs, layout[1], client)
                elif method == "copy":
                    self.assertEqual(wrs, 1, client)
                if layout[0] * layout[1] < 20000:
                    self.assertEqual(client.result["digest"],
                                     f"{fnv1a(pattern(layout[0] * layout[1], 1)):016x}")

    def test_05_every_method_by_every_layout(self):
        self.every_method("05_gather_write")

    def test_06_every_method_by_every_layout(self):
        self.every_method("06_scatter_read")

    def test_07_every_method_by_every_layout(self):
        self.every_method("07_gssr")

    def test_students_layout_and_many_messages(self):
        for sample in SAMPLES[4:]:
            _, client = self.passes(sample, "--student", "alice", "-n", "5")
            self.assertIn("LAYOUT block_size=1899 block_num=193 stride=2208 ",
                          client.out)


class Large(PairTest):
    """Memory by the limits: too much for the sanitizers' shadow in the VM."""

    def test_largest_that_the_limit_allows(self):
        for sample, method in itertools.product(SAMPLES[4:], ("sgl", "copy")):
            with self.subTest(sample=sample, method=method):
                self.moved(sample, method, (1 << 20, 32, (64 << 20) // 32 + 32768), "-t", "100")


class Bench(PairTest):
    def test_bench_verifies_and_reports_every_point(self):
        csv = f"/tmp/bench-{os.getpid()}.csv"
        for sample in SAMPLES[5:]:  # 05 is measured by test_figures.py
            _, client = self.passes(sample, "--bench", "--iters", "1", "--sizes", "4K,16K",
                                    "--depth", "4", "--csv", csv, "-t", "100")
            lines = [line for line in client.out.splitlines() if line.startswith("BENCH ")]
            self.assertEqual(len(lines), 5 * (2 + 11), client)
            for line in lines:
                self.assertRegex(
                    line, r"^BENCH method=(sgl|copy|each|auto|contig) block_size=\d+ "
                    r"block_num=\d+ stride=\d+ bytes=\d+ iters=\d+ depth=\d+ clock=\w+ "
                    r"lat_p50_us=\d+\.\d+ lat_p99_us=\d+\.\d+ bw_MBps=\d+\.\d+ repeats=\d+$")
            with open(csv, encoding="ascii") as file:
                self.assertEqual(len(file.readlines()), 1 + len(lines))
            os.remove(csv)


class DeadPeer(PairTest):
    """The peer's process is killed once its queue pair is up: nobody acknowledges."""

    def test_retry_counter_exceeded_is_explained(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = start("03_read", "-t", "20", "-p", str(listener.getsockname()[1]),
                           "127.0.0.1")
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(SERVER_LINE.replace(b"qpn=0x000011", b"qpn=0x7fffff"))
                connection.sendall(b"sync ready\n")
                self.check_failed(
                    end(client), "03_read", "client",
                    r"completion of the RDMA READ: transport retry counter exceeded "
                    r"\(status 12\)\n  hint: no acknowledgement came")


class WrongPairs(PairTest):
    def test_each_client_at_each_other_server(self):
        for there in SAMPLES:
            port = str(next(ports))
            server = start(there, "-p", port)
            wait_for_listener(port, server)
            others = [sample for sample in SAMPLES if sample != there]
            for sample in others:
                with self.subTest(server=there, client=sample):
                    self.check_failed(
                        run(sample, "-p", port, "127.0.0.1"), sample, "client",
                        f'the server refused: "this side runs {there}, the other {sample}"')
            client = run(there, "-p", port, "127.0.0.1")
            server = end(server)
            for sample in others:
                self.assertIn(f"refused a client: this side runs {there}, the other {sample}\n",
                              server.err)
            server.err = ""
            self.both_pass(there, server, client)


class BadEnvironment(PairTest):
    def test_unknown_device(self):
        for sample in SAMPLES:
            with self.subTest(sample=sample):
                self.check_failed(run(sample, "-d", "nosuch0"), sample, "server",
                                  "no RDMA device named 'nosuch0'")

    def test_port_that_the_device_has_not(self):
        self.check_failed(run("03_read", "-d", "rxe0", "-i", "7", "localhost"), "03_read",
                          "client", "port 7: rxe0 has ports 1 to 1")
        self.check_failed(run("03_read", "-i", "7", "localhost"), "03_read", "client",
                          "no ACTIVE port on any RDMA device")

    def test_gid_index_empty_or_out_of_range(self):
        for index in ("200", "1024", "65535"):
            with self.subTest(index=index):
                server, client = self.start_pair("03_read", "-g", index, server_args=["-t", "2"])
                self.check_failed(end(client), "03_read", "client", f"GID index {index}")
                self.check_failed(end(server), "03_read", "server", "no client came in 2 s")

    def test_mtu_above_the_ports(self):
        self.check_failed(run("03_read", "-m", "4096", "localhost"), "03_read", "client",
                          "path MTU 4096 is above the port's active MTU, 1024")

    def test_host_that_does_not_resolve(self):
        self.check_failed(run("03_read", "no.such.host.invalid"), "03_read", "client",
                          "cannot resolve 'no.such.host.invalid'")

    def test_refused_connection_says_to_start_the_server(self):
        began = time.monotonic()
        side = run("03_read", "-p", str(next(ports)), "127.0.0.1")
        self.check_failed(side, "03_read", "client",
                          "cannot connect to 127.0.0.1(?s:.)*start the server first")
        self.assertTrue(4 < time.monotonic() - began < 15)

    def test_unreachable_host_within_the_timeout(self):
        began = time.monotonic()
        side = run("03_read", "-t", "2", "10.0.0.77")
        self.check_failed(side, "03_read", "client", "cannot connect to 10.0.0.77")
        self.assertLess(time.monotonic() - began, 10)

    def test_server_port_in_use(self):
        port = str(next(ports))
        server = start("03_read", "-p", port, "-t", "6")
        time.sleep(2)
        self.check_failed(run("03_read", "-p", port), "03_read", "server",
                          "cannot listen on TCP port")
        self.check_failed(end(server), "03_read", "server", "no client came in 6 s")

    def test_memlock_limit_is_named(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become a user with a low limit")

        def become_limited_user():
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
            os.setgroups([])
            os.setuid(65534)

        port = str(next(ports))
        server = start("03_read", "-p", port, "-t", "5")
        side = run("03_read", "-p", port, "-s", "1M", "127.0.0.1", preexec_fn=become_limited_user)
        self.check_failed(side, "03_read", "client",
                          r"ibv_reg_mr of 1048576 bytes: Cannot allocate memory \(12\); "
                          "ulimit -l is 64 KiB")
        end(server)

    @unittest.skipUnless(IN_VM, "would take the machine's own device away")
    def test_device_without_atomics_exits_77(self):
        side = run("04_atomic", env={
            **os.environ, "LD_PRELOAD": os.environ["HV_NO_ATOMICS"],
            "ASAN_OPTIONS": "verify_asan_link_order=0"})
        self.check_failed(side, "04_atomic", "server", "no atomic operations on", status=77)

    @unittest.skipUnless(IN_VM, "would take the machine's own device away")
    def test_port_without_link(self):
        subprocess.run(["ip", "link", "set", "dummy0", "down"], check=True)
        try:
            for sample in SAMPLES:
                with self.subTest(sample=sample):
                    self.check_failed(run(sample), sample, "server", "no ACTIVE port on any")
                    self.check_failed(run(sample, "-d", "rxe0", "-i", "1"), sample, "server",
                                      "no ACTIVE port on rxe0")
        finally:
            subprocess.run(["ip", "link", "set", "dummy0", "up"], check=True)

    @unittest.skipUnless(IN_VM, "would take the machine's own device away")
    def test_interface_without_an_address(self):
        subprocess.run(["ip", "addr", "del", "10.0.0.1/24", "dev", "dummy0"], check=True)
        try:
            server, client = self.start_pair("03_read", server_args=["-t", "3"])
            self.check_failed(end(client), "03_read", "client", "no RoCE v2 GID but link-local")
            self.check_failed(end(server), "03_read", "server", "no client came in 3 s")
        finally:
            subprocess.run(["ip", "addr", "add", "10.0.0.1/24", "dev", "dummy0"], check=True)

    @unittest.skipUnless(IN_VM, "would take the machine's own device away")
    def test_no_device_exits_77(self):
        subprocess.run(["rdma", "link", "delete", "rxe0"], check=True)
        try:
            for sample in SAMPLES:
                self.check_failed(run(sample), sample, "server", "no RDMA device here", status=77)
        finally:
            subprocess.run(["rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "dummy0"],
                           check=True)


GOOD_LINE = ("hello-verbs/1 sample=03_read lid=0x0000 qpn=0x000011 psn=0x3a5f10 "
             "gid=0000:0000:0000:0000:0000:ffff:0a00:0001 mtu=1024 addr=0x0 rkey=0x0 len=0 "
             "size=4096 iters=1 seed=1 timeout=5 digest=0x0\n").encode()
SERVER_LINE = GOOD_LINE.replace(b"rkey=0x0 len=0", b"rkey=0x1 len=4096")



def footprint(process):
    """Its resident memory in KiB, and its open files."""
    with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
        rss = re.search(r"VmRSS:\s+(\d+)", file.read())
    files = []
    for _ in range(10):  # the last stranger may still be leaving
        files.append(len(os.listdir(f"/proc/{process.pid}/fd")))
        time.sleep(0.1)
    return {"VmRSS": int(rss[1]), "files": min(files)}


def number(text):
    """As common/rendezvous.h has it: hex after 0x, else decimal; -1 if it is none."""
    if not re.fullmatch("0x[0-9a-fA-F]+|[0-9]+", text):
        return -1
    return int(text, 16 if text.startswith("0x") else 10)


RULES = {  # by the header's words, not by its code: so much may stand in 03_read's line
    "sample": lambda value: value == "03_read",
    "gid": lambda value: re.fullmatch("[0-9a-fA-F]{4}(:[0-9a-fA-F]{4}){7}", value),
    "mtu": lambda value: number(value) in (256, 512, 1024, 2048, 4096),
    **{name: lambda value, low=low, high=high: low <= number(value) <= high
       for name, low, high in (
           ("lid", 0, 2**16 - 1), ("qpn", 0, 2**24 - 1), ("psn", 0, 2**24 - 1),
           ("addr", 0, MASK), ("rkey", 0, 2**32 - 1), ("len", 0, MASK), ("size", 1, 2**26),
           ("iters", 1, 10**6), ("seed", 0, MASK), ("timeout", 1, 3600), ("digest", 0, MASK))}}


def is_good(line):
    if len(line) > 1024 or not re.fullmatch(rb"hello-verbs/1( [ -~]+)?\n", line):
        return False
    fields = [word.partition("=") for word in line.decode()[:-1].split(" ")[1:]]
    known = [(name, value) for name, _, value in fields if name in RULES]
    return (all(name and equals for name, equals, _ in fields)
            and sorted(name for name, _ in known) == sorted(RULES)
            and all(RULES[name](value) for name, value in known))


def mutated(line, dice):
    """The line after one to three accidents."""
    for _ in range(dice.randint(1, 3)):
        at, to = sorted(dice.randint(0, len(line)) for _ in range(2))
        words = line.split(b" ")
        one, two = dice.randrange(len(words)), dice.randrange(len(words))
        line = dice.choice((
            lambda: line[:at] + dice.randbytes(dice.randint(1, 8)) + line[at:],
            lambda: line[:at] + bytes([dice.randrange(256)]) + line[at + 1:],
            lambda: line[:at] + line[to:],
            lambda: line[:at],
            lambda: line[:at] + b"\n",
            lambda: line[:to] + line[at:],
            lambda: line[:at] + dice.choice((b" ", b"=", b"\0", b"\n", b"0x", b"-")) + line[at:],
            lambda: (line[:at] + bytes([dice.randrange(256)]) * dice.choice((9, 900, 9000))
                     + line[at:]),
            lambda: b" ".join(words[:one] + words[one + 1:]),
            lambda: b" ".join(words[:one] + [words[two]] + words[one:]),
            lambda: b" ".join(words[:one] + [words[one].split(b"=")[0] + b"=" + dice.choice((
                b"", b"0", b"-1", b"4294967296", b"18446744073709551615",
                b"18446744073709551616", b"0x", b"1e9", b"%s%n", b"9" * 400))] + words[one + 1:]),
        ))()
    return line


class BadPeers(PairTest):
    """A stranger on the TCP port, on either side."""

    def talk(self, *pieces, close=False):
        """A client's run against a server that answers its line with these pieces."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = start("03_read", "-t", "3", "-p", str(listener.getsockname()[1]),
                           "127.0.0.1")
            connection, _ = listener.accept()
            with connection:
                self.assertRegex(connection.recv(4096), b"^hello-verbs/1 sample=03_read .*\n$")
                for piece in pieces:
                    connection.sendall(piece)
                    time.sleep(0.3 if len(pieces) > 1 else 0)
                if close:
                    connection.close()
                began = time.monotonic()
                ended = end(client)
                self.assertLess(time.monotonic() - began, 12)
                return ended

    def test_client_meets_a_server_that_is_none(self):
        for data, reason in (
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not begin with hello-verbs/1"),
            (b"\x00\xff\x1b[31m\n", "not plain ASCII|does not begin"),
            (b"A" * 5000, "line of more than 1024 bytes"),
            (GOOD_LINE[:100], "the peer is silent: no 'endpoint' from it in 3 s"),
            (b"", "the peer is silent: no 'endpoint' from it in 3 s"),
            (GOOD_LINE.replace(b"03_read", b"04_atomic"), "this side runs 03_read"),
            (GOOD_LINE.replace(b"size=4096", b"size=4097"), "another workload"),
            (GOOD_LINE.replace(b"qpn=0x000011", b"qpn=17 qpn=17"), "field qpn is repeated"),
            (GOOD_LINE.replace(b"ffff:0a00:0001", b"0000:0000:0000"), "only one side has a GID"),
            (SERVER_LINE.replace(b"len=4096", b"len=4095"), "4095 bytes of memory for messages of up to 4096"),
            (b'hello-verbs/1 error="no \x1b[31mred"\n', 'the server refused: "no .\\[31mred"'),
            (SERVER_LINE, "the peer is silent: no 'sync ready'"),
            (SERVER_LINE + b"sync go\n", "the peer sent 'sync go' instead of 'sync ready'"),
        ):
            with self.subTest(data=data[:60]):
                self.check_failed(self.talk(data), "03_read", "client", reason)

    def test_client_meets_a_server_that_goes_away(self):
        for data in (b"", SERVER_LINE[:50], SERVER_LINE, SERVER_LINE + b"sync re"):
            with self.subTest(data=data[:60]):
                self.check_failed(self.talk(data, close=True), "03_read", "client",
                                  "the peer closed the connection")

    def test_client_reads_a_line_that_comes_in_pieces(self):
        side = self.talk(SERVER_LINE[:10], b"", SERVER_LINE[10:200], SERVER_LINE[200:])
        self.check_failed(side, "03_read", "client", "the peer is silent: no 'sync ready'")

    def test_server_reads_a_line_that_comes_in_pieces(self):
        port = next(ports)
        server = start("03_read", "-p", str(port))
        with self.connect(port) as connection:
            for piece in (GOOD_LINE[:1], GOOD_LINE[1:99], GOOD_LINE[99:]):
                connection.sendall(piece)
                time.sleep(0.3)
            self.assertRegex(connection.recv(4096), b"^hello-verbs/1 sample=03_read .* len=4096 ")
        self.check_failed(end(server), "03_read", "server", "the peer closed the connection")

    def test_no_rkey_for_a_client_without_a_gid(self):
        port = next(ports)
        server = start("03_read", "-p", str(port))
        with self.connect(port) as connection:
            connection.sendall(GOOD_LINE.replace(b"ffff:0a00:0001", b"0000:0000:0000"))
            self.assertEqual(self.answer(connection),
                             b'hello-verbs/1 error="only one side has a GID"\n')
        self.check_failed(end(server), "03_read", "server", "only one side has a GID")

    def connect(self, port):
        deadline = time.monotonic() + 10
        while True:
            try:
                return socket.create_connection(("127.0.0.1", port), timeout=20)
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def answer(self, connection):
        data = b""
        while chunk := connection.recv(4096):
            data += chunk
        return data

    def test_server_refuses_strangers_and_then_serves_the_right_client(self):
        port = next(ports)
        server = start("03_read", "-p", str(port), "-t", "60")
        for data, reason in (
            (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"there is more after the first line"),
            (b"GET / HTTP/1.1\n", b"does not begin with hello-verbs/1"),
            (b"\n", b"does not begin with hello-verbs/1"),
            (b"\x00" * 200 + b"\n", b"not plain ASCII"),
            (b"A" * 100000, b"longer than 1024 bytes"),
            (GOOD_LINE * 2, b"there is more after the first line"),
            (GOOD_LINE.replace(b"size=4096", b"size=99999999999"), b"field size is"),
            (GOOD_LINE.replace(b"verbs/1", b"verbs/2"), b"does not begin with hello-verbs/1"),
        ):
            with self.subTest(data=data[:40]), self.connect(port) as connection:
                connection.sendall(data)
                answer = self.answer(connection)
                self.assertRegex(answer, b'^hello-verbs/1 error="[^"]+"\n$')
                self.assertIn(reason, answer)
                self.assertNotIn(b"rkey", answer)
        silent = [self.connect(port) for _ in range(40)]
        half = self.connect(port)
        half.sendall(GOOD_LINE[:40])
        self.connect(port).close()
        client = run("03_read", "-p", str(port), "127.0.0.1")
        server = end(server)
        for connection in silent + [half]:
            connection.close()
        self.assertIn("a client went away after 0 bytes of its line", server.err)
        server.err = ""
        self.both_pass("03_read", server, client)

    def test_thousands_of_mutated_lines_at_one_server(self):
        dice, port, tried = random.Random(1), next(ports), 0
        log = tempfile.TemporaryFile()  # a pipe that nobody reads would stop it
        server = subprocess.Popen([path("03_read"), "-p", str(port), "-t", "600"],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        before = None
        while tried < 2000:
            line = mutated(GOOD_LINE, dice)
            if is_good(line):
                continue  # would be its client: see the next test
            with self.connect(port) as connection:
                connection.sendall(line)
                connection.shutdown(socket.SHUT_WR)
                answer = self.answer(connection)
            if b"\n" in line or len(line) >= 1024:
                self.assertRegex(answer, rb'^hello-verbs/1 error="[ -~]+"\n$', line)
            else:
                self.assertEqual(answer, b"", line)  # it waits for the rest, and we are gone
            tried += 1
            if tried == 1000:
                before = footprint(server)
        after = footprint(server)
        self.assertEqual(after["files"], before["files"])
        with open(path("03_read"), "rb") as program:
            if b"__asan_init" not in program.read():  # the sanitizer keeps what has been freed
                self.assertLessEqual(after["VmRSS"], before["VmRSS"] + 64)  # KiB
        client = run("03_read", "-p", str(port), "127.0.0.1")
        out, _ = server.communicate(timeout=20)
        self.both_pass("03_read", Ended(server.returncode, out.decode(), ""), client)
        log.close()
        print(f"ok - server: {tried} hostile inputs tried", flush=True)

    def test_a_mutated_line_that_is_still_good_makes_a_client(self):
        dice, seen = random.Random(2), 0
        while seen < 8:
            line = mutated(GOOD_LINE, dice)
            if (not is_good(line) or line == GOOD_LINE or b" size=4096 " not in line
                    or b"gid=0000:0000:0000:0000:0000:ffff" not in line):
                continue  # these two fields have tests of their own
            port = next(ports)
            server = start("03_read", "-p", str(port), "-t", "20")
            with self.connect(port) as connection:
                connection.sendall(line)
                self.assertRegex(connection.recv(4096), b"^hello-verbs/1 sample=03_read ", line)
            self.check_failed(end(server), "03_read", "server", "the peer closed|ibv_modify_qp")
            seen += 1

    def test_mutated_lines_of_a_server(self):
        dice, tried = random.Random(3), 0
        while tried < 40:
            line = mutated(SERVER_LINE, dice)
            if is_good(line.partition(b"\n")[0] + b"\n"):
                continue  # what it has from a good one is told by other tests
            with self.subTest(line=line[:200]):
                self.check_failed(self.talk(line, close=True), "03_read", "client",
                                  "wrong endpoint|more than 1024 bytes|closed the connection")
            tried += 1
        print(f"ok - client: {tried} hostile inputs tried", flush=True)

    def test_server_refuses_layouts_that_cannot_be(self):
        good = GOOD_LINE[:-1].replace(b"03_read", b"05_gather_write") + (
            b" block_size=64 block_num=64 stride=128 method=sgl max_sge=32 rd_atomic=0"
            b" depth=0 sizes=none\n")
        port = next(ports)
        server = start("05_gather_write", "-p", str(port), "-t", "60")
        for old, new, reason in (
            (b"stride=128", b"stride=63", b"stride is below block_size"),
            (b"block_num=64", b"block_num=0", b"must not be 0"),
            (b"block_size=64", b"block_size=0", b"must not be 0"),
            (b"stride=128", b"stride=18446744073709551615", b"above 64 MiB"),
            (b"block_num=64", b"block_num=4503599627370498", b"more than 262144 blocks"),
            (b"size=4096", b"size=4095", b"size is not block_size * block_num"),
            (b"method=sgl", b"method=magic", b"field method is not"),
            (b"max_sge=32", b"max_sge=0", b"field max_sge is"),
            (b"depth=0", b"depth=65", b"field depth is"),
            (b"depth=0", b"depth=1", b"a list of numbers"),
            (b"depth=0 sizes=none", b"depth=1 sizes=4K,64M", b"more than 262144 blocks"),
            (b" stride=128", b"", b"field stride is missing"),
        ):
            with self.subTest(new=new), self.connect(port) as connection:
                connection.sendall(good.replace(old, new, 1))
                answer = self.answer(connection)
                self.assertRegex(answer, b'^hello-verbs/1 error="[^"]+"\n$')
                self.assertIn(reason, answer)
        client = run("05_gather_write", "-p", str(port), "127.0.0.1")
        server = end(server)
        server.err = ""
        self.both_pass("05_gather_write", server, client)

    def test_server_gives_up_on_a_half_line_and_goes_on(self):
        port = next(ports)
        server = start("03_read", "-p", str(port), "-t", "100")
        with self.connect(port) as connection:
            connection.settimeout(60)
            connection.sendall(GOOD_LINE[:40])
            began = time.monotonic()
            self.assertIn(b"no whole line came in time", self.answer(connection))
            self.assertTrue(9 < time.monotonic() - began < 14)
        client = run("03_read", "-p", str(port), "127.0.0.1")
        server = end(server)
        server.err = ""
        self.both_pass("03_read", server, client)

    def test_server_ends_in_time_without_a_client(self):
        port = next(ports)
        server = start("03_read", "-p", str(port), "-t", "3")
        with self.connect(port) as connection:
            connection.sendall(GOOD_LINE[:40])
            self.check_failed(end(server), "03_read", "server", "no client came in 3 s")

    def test_server_loses_its_client_after_the_swap(self):
        for last in (b"", b"sync ready\n", b"sync ready\nsync done\n", b"nonsense\n"):
            with self.subTest(last=last):
                port = next(ports)
                server = start("03_read", "-p", str(port), "-t", "30")
                with self.connect(port) as connection:
                    connection.sendall(GOOD_LINE)
                    self.assertRegex(connection.recv(4096), b"^hello-verbs/1 sample=03_read .* "
                                     b"rkey=0x[0-9a-f]{8} len=4096 ")
                    connection.sendall(last)
                    connection.shutdown(socket.SHUT_WR)
                    self.check_failed(
                        end(server), "03_read", "server",
                        "the peer closed the connection before its|the peer sent 'nonsense'")

    def test_a_failed_verdict_of_the_peer_fails_this_side(self):
        port = next(ports)
        server = start("03_read", "-p", str(port))
        with self.connect(port) as connection:
            connection.sendall(GOOD_LINE)
            connection.recv(4096)
            connection.sendall(b"sync ready\nsync done\nverdict FAIL\n")
            side = end(server)
        self.assertEqual(side.status, 1, side)
        self.check_result(side, "03_read", "server", "FAIL")
        self.assertIn("the peer's verdict is FAIL", side.err)


if __name__ == "__main__":
    main()
