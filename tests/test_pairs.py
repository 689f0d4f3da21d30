# SPDX-License-Identifier: BSD-2-Clause
"""Every sample as a pair of processes on a real RDMA device."""
import itertools
import os
import re
import time

from pairs import MASK, PairTest, fnv1a, messages, pattern, ports, word_after
from samples import SAMPLES, WITH_BLOCKS, end, run, some, start, wait_for_listener


def tearDownModule():
    if PairTest.passed:
        print(
            f"ok - __main__: {PairTest.passed} pairs passed on Linux {os.uname().release}",
            flush=True,
        )


class Defaults(PairTest):
    def test_01_hello_write(self):
        server, client = self.passes("01_hello_write", data=b"hello verbs")
        self.assertIn('memory holds "hello verbs"', server.out)
        self.assertIn('wrote "hello verbs"', client.out)

    def test_02_send_recv(self):
        self.passes("02_send_recv", data=pattern(4096, 1))

    def test_03_read(self):
        self.passes("03_read", data=pattern(4096, 1))

    def test_09_ud(self):  # more: test_09.py
        self.passes("09_ud", data=b"".join(pattern(256, 1 + i) for i in range(10)))

    def test_10_srq(self):  # more: test_10.py
        self.passes("10_srq", data=b"".join(pattern(1024, 1 + i) for i in range(80)))

    def test_04_atomic(self):
        server, client = self.passes("04_atomic", data=word_after(100, 1))
        self.assertIn("100 x fetch-and-add of 1: 1 -> 101", client.out)
        self.assertIn("the word was 1 and is now 18446744073709551514", server.out)

    def test_08_write_imm(self):
        server, client = self.passes("08_write_imm", data=messages(8, 4096, 1))
        for side in (server, client):
            self.assertIn("\n8 messages sent, 8 arrived, 0 missed\n", side.out)

    def test_12_ordering(self):
        _, client = self.passes("12_ordering", data=pattern(4096, 1) + pattern(64, MASK - 1))
        self.assertIn("\n3 work requests, 1 completion\n", client.out)

    def test_14_recover(self):  # more: test_14.py
        server, client = self.passes("14_recover", data=messages(100, 4096, 1))
        self.assertIn("\nreceived 100 messages over 5 connections\n", server.out)
        self.assertIn("\nsent 100 messages over 5 connections\n", client.out)


class Options(PairTest):
    def test_message(self):
        for text in ("x", "你好,verbs", "a\x1b[31mb", "a\u009b31mb", "long " * 2000):
            with self.subTest(text=text[:20]):
                server, _ = self.passes("01_hello_write", "-M", text, data=text.encode())
                self.assertNotRegex(server.out, "[\x1b\x7f-\x9f]")
                self.assertLess(len(server.out), 1000)
        self.passes("01_hello_write", "--message=two words", data=b"two words")

    def test_sizes(self):
        for sample, size in itertools.product(
            ("02_send_recv", "03_read"), (1, 7, 1023, 1024, 1025, 9999)
        ):
            with self.subTest(sample=sample, size=size):
                self.passes(sample, "-s", str(size), data=pattern(size, 1))

    def test_suffixes_and_large_messages(self):
        for sample in ("02_send_recv", "03_read"):
            _, client = self.passes(sample, "--size=64K")
            self.assertEqual(client.result["bytes"], "65536")
            _, client = self.passes(sample, "-s", "1M")
            self.assertEqual(client.result["bytes"], "1048576")

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
                server, client = self.passes(
                    sample, "-d", device, "-i", "1", server_args=["--ib-dev", device, "--ib-port=1"]
                )
                index = server.out.split("GID index ")[1].split()[0]
                self.passes(sample, "-g", index, server_args=["--gid-idx=" + index])

    def test_bind(self):
        self.passes("03_read", server_args=["-b", "127.0.0.1"])
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
            # The server of 10_srq answers all clients at a time, by code of its own.
            for side in (server, client) if sample != "10_srq" else (client,):
                for line in (
                    "-> hello-verbs/2 sample=" + sample,
                    "<- hello-verbs/2 sample=" + sample,
                    "-> sync ready",
                    "<- sync ready",
                    "-> sync done",
                    "<- sync done",
                ):
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
            self.assertIn(" addr=0x0 rkey=0x0 len=0 ", sent)
            lends = "rkey=0x0 " not in got
            self.assertEqual(
                lends,
                sample
                not in (
                    "02_send_recv",
                    "07_gssr",
                    "09_ud",
                    "10_srq",
                    "13_memory_window",
                    "14_recover",
                ),
                got,
            )


LAYOUTS = {  # what is special about it: block_size, block_num, stride
    "one block": (4096, 1, 4096),
    "one byte": (1, 1, 1),
    "exactly max_sge blocks": (100, 32, 133),
    "one more than max_sge": (100, 33, 133),
    "no gaps": (512, 70, 512),
    "gaps of one byte": (1023, 65, 1024),
    "1-byte blocks": (1, 1000, 3),
    "thousands of blocks": (24, 5000, 40),
    "more lists than the queue has places": (1, 70000, 2),
    "few large blocks": (100001, 3, 140000),
}


class Layouts(PairTest):
    def every_method(self, sample):
        for (name, layout), method in itertools.product(
            LAYOUTS.items(), ("sgl", "copy", "each", "auto")
        ):
            if layout[1] > {"auto": 70, "each": 5000}.get(method, 1 << 30):
                continue  # auto is one of the first two, each is beyond the queue at 5000: not where they take long
            with self.subTest(layout=name, method=method):
                client = self.moved(sample, method, layout)
                wrs = int(re.search(r": (\d+) work requests in all", client.out)[1])
                if method == "sgl":
                    self.assertEqual(wrs, -(-layout[1] // 32), client)
                elif method == "each":
                    self.assertEqual(wrs, layout[1], client)
                elif method == "copy":
                    self.assertEqual(wrs, 1, client)
                self.assertEqual(
                    client.result["digest"], f"{fnv1a(pattern(layout[0] * layout[1], 1)):016x}"
                )

    def test_05_every_method_by_every_layout(self):
        self.every_method("05_gather_write")

    def test_06_every_method_by_every_layout(self):
        self.every_method("06_scatter_read")

    def test_07_every_method_by_every_layout(self):
        self.every_method("07_gssr")

    def test_students_layout_and_many_messages(self):
        for sample in WITH_BLOCKS:
            _, client = self.passes(sample, "--student", "alice", "-n", "5")
            self.assertIn("LAYOUT block_size=1899 block_num=193 stride=2208 ", client.out)


class Large(PairTest):
    """Memory by the limits: too much for the sanitizers' shadow in the VM. And what takes long."""

    def test_four_megabytes(self):
        for sample in ("02_send_recv", "03_read"):
            _, client = self.passes(sample, "-s", "4M")
            self.assertEqual(client.result["bytes"], "4194304")

    def test_many_requests_and_blocks_of_many_packets(self):
        for sample, layout in itertools.product(WITH_BLOCKS, ((3, 40000, 5), (300001, 3, 400000))):
            with self.subTest(sample=sample, layout=layout):
                self.moved(sample, "each", layout)

    def test_largest_that_the_limit_allows(self):
        for sample, method in zip(WITH_BLOCKS, ("sgl", "copy", "sgl")):
            with self.subTest(sample=sample, method=method):
                self.moved(
                    sample, method, (1 << 20, 32, (64 << 20) // 32 + 32768), "--timeout", "100"
                )


class Bench(PairTest):
    def test_bench_verifies_and_reports_every_point(self):
        csv = f"/tmp/bench-{os.getpid()}.csv"
        for sample in WITH_BLOCKS[1:]:  # 05 is measured by test_figures.py
            _, client = self.passes(
                sample,
                "--bench",
                "--iters",
                "1",
                "--sizes",
                "4K,16K",
                "--depth",
                "4",
                "--csv",
                csv,
                "--timeout",
                "100",
            )
            lines = [line for line in client.out.splitlines() if line.startswith("BENCH ")]
            self.assertEqual(len(lines), 5 * (2 + 11), client)
            for line in lines:
                self.assertRegex(
                    line,
                    r"^BENCH method=(sgl|copy|each|auto|contig) block_size=\d+ "
                    r"block_num=\d+ stride=\d+ bytes=\d+ iters=\d+ depth=\d+ clock=\w+ "
                    r"lat_p50_us=\d+\.\d+ lat_p99_us=\d+\.\d+ bw_MBps=\d+\.\d+ copy_us=\d+\.\d+ "
                    r"repeats=\d+$",
                )
            with open(csv, encoding="ascii") as file:
                self.assertEqual(len(file.readlines()), 1 + len(lines))
            os.remove(csv)


class WrongPairs(PairTest):
    def test_other_clients_at_each_server(self):
        for there in SAMPLES:
            port = str(next(ports))
            server = start(there, "-p", port)
            wait_for_listener(port, server)
            others = some([sample for sample in SAMPLES if sample != there], 3)
            for sample in others:
                with self.subTest(server=there, client=sample):
                    self.check_failed(
                        run(sample, "-p", port, "127.0.0.1"),
                        sample,
                        "client",
                        f"the server refused: this side runs {there}, the other {sample}\n",
                    )
            client = run(there, "-p", port, "127.0.0.1")
            server = end(server)
            for sample in others:
                self.assertIn(
                    f"{there} server: refused a client: this side runs {there}, "
                    f"the other {sample}\n",
                    server.err,
                )
            server.err = ""
            self.both_pass(there, server, client)
