# SPDX-License-Identifier: BSD-2-Clause
"""Every sample as a pair of processes on a real RDMA device."""
import itertools
import os
import re
import time

from pairs import MASK, PairTest, fnv1a, messages, pattern, ports, word_after
from samples import SAMPLES, WITH_BLOCKS, end, run, some, start


def tearDownModule():
    if PairTest.passed:
        release = os.uname().release
        print(f"ok - __main__: {PairTest.passed} pairs passed on Linux {release}", flush=True)


DEFAULTS = {  # what the receiver holds, and what the server and the client say
    "01_hello_write": (b"hello verbs", 'memory holds "hello verbs"', 'wrote "hello verbs"'),
    "02_send_recv": (pattern(4096, 1), "", ""),
    "03_read": (pattern(4096, 1), "", ""),
    "04_atomic": (
        word_after(100, 1),
        "the word was 1 and is now 18446744073709551514",
        "100 x fetch-and-add of 1: 1 -> 101",
    ),
    "05_gather_write": (pattern(64 * 4096, 1), "LAYOUT ", "LAYOUT "),
    "06_scatter_read": (pattern(64 * 4096, 1), "LAYOUT ", "LAYOUT "),
    "07_gssr": (pattern(64 * 4096, 1), "LAYOUT ", "LAYOUT "),
    "08_write_imm": (messages(8, 4096, 1), *2 * ["\n8 messages sent, 8 arrived, 0 missed\n"]),
    "09_ud": (messages(10, 256, 1), "", ""),
    "10_srq": (messages(80, 1024, 1), "", ""),
    "12_ordering": (
        pattern(4096, 1) + pattern(64, MASK - 1),
        "",
        "\n3 work requests, 1 completion\n",
    ),
    "13_memory_window": (None, "", "remote access error\n"),
    "14_recover": (
        messages(100, 4096, 1),
        "\nreceived 100 messages over 5 connections\n",
        "\nsent 100 messages over 5 connections\n",
    ),
    "16_extended": (
        messages(64, 4096, 1),
        "\nreceived 64 messages of 4096 bytes in batches of 8 and sent each back\n",
        "\nsent 64 messages of 4096 bytes in batches of 8 and got each back\n",
    ),
    "18_threads": (
        messages(256, 4096, 1),
        *2 * ["\n4 threads wrote 64 messages of 4096 bytes each, by 1 queue pair\n"],
    ),
}


class Defaults(PairTest):
    def test_each(self):
        for sample in SAMPLES:
            data, *said = DEFAULTS[sample]
            for side, words in zip(self.passes(sample, data=data), said):
                self.assertIn(words, side.out)


class Options(PairTest):
    def test_message(self):
        for text in ("x", "two words", "你好,verbs", "a\x1b[31mb", "a\u009b31mb", "long " * 2000):
            server, _ = self.passes("01_hello_write", "-M", text, data=text.encode())
            self.assertNotRegex(server.out, "[\x1b\x7f-\x9f]")
            self.assertLess(len(server.out), 1000)

    def test_sizes(self):
        sizes = {"1": 1, "1023": 1023, "1025": 1025, "64K": 64 << 10, "1M": 1 << 20}
        for sample, size in itertools.product(("02_send_recv", "03_read"), sizes):
            self.passes(sample, "-s", size, data=pattern(sizes[size], 1))

    def test_iters(self):
        self.passes("02_send_recv", "-n", 50, "-s", 100, data=messages(50, 100, 1))
        self.passes("03_read", "--iters=50", "-s", 100, data=pattern(100, 1))
        self.passes("04_atomic", "-n", 1, data=word_after(1, 1))

    def test_seed(self):
        for seed in (0, 12345, MASK):
            self.passes("02_send_recv", "--seed", seed, data=pattern(4096, seed))
            self.passes("03_read", "-S", seed, data=pattern(4096, seed))
            self.passes("04_atomic", "--seed", seed, data=word_after(100, seed))

    def test_mtu(self):
        for mtu in (256, 1024):
            self.passes("03_read", "-m", mtu)
        # the smaller of the two sides' holds
        self.passes("02_send_recv", "--mtu=256", server_args=["-m", "512"])

    def test_device_port_and_gid_by_name(self):
        device = sorted(os.listdir("/sys/class/infiniband"))[0]
        for sample in SAMPLES:
            named = ["--ib-dev", device, "--ib-port=1"]
            server, _ = self.passes(sample, "-d", device, "-i", 1, server_args=named)
            index = server.out.split("GID index ")[1].split()[0]
            self.passes(sample, "-g", index, server_args=["--gid-idx=" + index])

    def test_addresses_of_the_rendezvous(self):
        self.passes("03_read", server_args=["-b", "127.0.0.1"])
        server, port = self.serve("03_read")
        self.serves_the_next("03_read", server, port, 0)
        server, port = self.serve("03_read")
        client = run("03_read", "-p", port, "::1")
        self.both_pass("03_read", end(server), client)

    def test_verbose_shows_the_lines(self):
        """And that only who lends memory sends an rkey."""
        lending = {"01", "03", "04", "05", "06", "08", "12", "17", "18"}
        for sample in SAMPLES:
            server, client = self.passes(sample, "-v", server_args=["--verbose"])
            # The server of 10_srq answers all clients at a time, by code of its own.
            for side in (server, client) if sample != "10_srq" else (client,):
                for line in (f"hello-verbs/2 sample={sample}", "sync ready", "sync done"):
                    self.assertIn(f"\n-> {line}", "\n" + side.out)
                    self.assertIn(f"\n<- {line}", "\n" + side.out)
            self.assertRegex(client.out, "(?m)^-> hello.* addr=0x0 rkey=0x0 len=0 ")
            lends = re.search("(?m)^<- hello.* rkey=(0x[0-9a-f]+)", client.out)[1] != "0x0"
            self.assertEqual(lends, sample[:2] in lending)

    def test_client_may_come_first(self):
        port = str(next(ports))
        client = start("01_hello_write", "-p", port, "127.0.0.1")
        time.sleep(0.5)
        server = run("01_hello_write", "-p", port)
        self.both_pass("01_hello_write", server, end(client))


LAYOUTS = {  # what is special about it: block_size, block_num, stride
    "one byte": (1, 1, 1),
    "exactly max_sge blocks": (100, 32, 133),
    "one more than max_sge, no gaps": (512, 33, 512),
    "gaps of one byte": (1023, 65, 1024),
    "thousands of blocks": (24, 5000, 40),
    "more lists than the queue has places": (1, 70000, 2),
    "few large blocks": (100001, 3, 140000),
}


class Layouts(PairTest):
    def every_method(self, sample):
        methods = ("sgl", "copy", "each", "auto")
        for (name, layout), method in itertools.product(LAYOUTS.items(), methods):
            if layout[1] > {"auto": 70, "each": 5000}.get(method, 1 << 30):
                continue  # auto is one of the first two, each is beyond the queue at 5000: not where they take long
            client = self.moved(sample, method, layout)
            wrs = int(re.search(r": (\d+) work requests in all", client.out)[1])
            lists = {"sgl": -(-layout[1] // 32), "each": layout[1], "copy": 1}
            self.assertEqual(wrs, lists.get(method, wrs), client)
            digest = fnv1a(pattern(layout[0] * layout[1], 1))
            self.assertEqual(client.result["digest"], f"{digest:016x}")

    def test_05_every_method_by_every_layout(self):
        self.every_method("05_gather_write")

    def test_06_every_method_by_every_layout(self):
        self.every_method("06_scatter_read")

    def test_07_every_method_by_every_layout(self):
        self.every_method("07_gssr")

    def test_students_layout_and_many_messages(self):
        for sample in WITH_BLOCKS:
            _, client = self.passes(sample, "--student", "alice", "-n", 5)
            self.assertIn("LAYOUT block_size=1899 block_num=193 stride=2208 ", client.out)


class Large(PairTest):
    """Memory by the limits: too much for the sanitizers' shadow in the VM. And what takes long."""

    def test_largest_that_the_limit_allows(self):
        for sample, method in zip(WITH_BLOCKS, ("sgl", "copy", "sgl")):
            layout = (1 << 20, 32, (64 << 20) // 32 + 32768)
            self.moved(sample, method, layout, "--timeout", 100)
            self.moved(sample, "each", (3, 40000, 5))  # many requests


class WrongPairs(PairTest):
    def test_other_clients_at_each_server(self):
        for there in some(SAMPLES):
            server, port = self.serve(there)
            others = some([sample for sample in SAMPLES if sample != there], 4)
            for sample in others:
                reason = (
                    f"the server refused: this side runs {there}, the other {sample}\n.*same sample"
                )
                side = run(sample, "-p", port, "127.0.0.1")
                self.check_failed(side, sample, "client", reason)
            self.serves_the_next(there, server, port, len(others))
