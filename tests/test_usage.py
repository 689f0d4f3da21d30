#!/usr/bin/env python3
"""The command line, as far as it needs no RDMA device."""
import os
import subprocess

from samples import SAMPLES, SampleTest, main, path, run

WORKLOAD = {
    "01_hello_write": "M",
    "02_send_recv": "snS",
    "03_read": "snS",
    "04_atomic": "nS",
    "05_gather_write": "BNTISxnkzDc",
    "06_scatter_read": "BNTISxnkzDc",
    "07_gssr": "BNTISxnkzDc",
}
LONG = {"s": "size", "n": "iters", "S": "seed", "M": "message", "B": "block-size",
        "N": "block-num", "T": "stride", "I": "student", "x": "method", "k": "bench",
        "z": "sizes", "D": "depth", "c": "csv"}


class Usage(SampleTest):
    def each(self, args, reason, role=None, samples=SAMPLES):
        """role: by the HOST "h" at the end of args, unless given."""
        role = role or ("client" if args[-1] == "h" else "server")
        for sample in samples:
            with self.subTest(sample=sample, args=args):
                self.check_failed(run(sample, *args), sample, role, reason, status=2)

    def test_help_lists_each_option_and_the_exit_status(self):
        for sample in SAMPLES:
            with self.subTest(sample=sample):
                side = run(sample, "--help")
                self.assertEqual((side.status, side.err), (0, ""), side)
                for letter in "digpmtbvh" + WORKLOAD[sample]:
                    self.assertIn(f"  -{letter}, --", side.out)
                for letter in LONG:
                    if letter not in WORKLOAD[sample]:
                        self.assertNotRegex(side.out, f"--{LONG[letter]}[= ]")
                self.assertIn("77 no usable RDMA device", side.out)
                self.assertEqual(run(sample, "-h").out, side.out)

    def test_unknown_option(self):
        self.each(["-Z"], "unknown option '-Z'")
        self.each(["--zzz"], "unknown option '--zzz'")
        self.each(["--verb"], "unknown option '--verb'")
        self.each(["--por", "1"], "unknown option '--por'")
        self.each(["--zzz=1"], "unknown")

    def test_workload_options_of_other_samples_are_unknown(self):
        for sample in SAMPLES:
            for letter in LONG:
                if letter not in WORKLOAD[sample]:
                    self.each([f"-{letter}", "1", "h"], "unknown option", samples=[sample])
                    self.each([f"--{LONG[letter]}=1", "h"], "unknown|takes no value",
                              samples=[sample])

    def test_missing_and_superfluous_values(self):
        self.each(["-p"], "option '-p' needs a value")
        self.each(["--port"], "option '--port' needs a value")
        self.each(["--verbose=1"], "option '--verbose=1' takes no value")

    def test_bad_numbers(self):
        for option, bad in (
            ("-p", ["", "0", "65536", "-1", "x", "1x", "0x10", "1.5", " 1", "99999999999999999999"]),
            ("-i", ["0", "256", "x"]),
            ("-g", ["-1", "65536", "x"]),
            ("-m", ["0", "255", "1000", "8192", "x"]),
            ("-t", ["0", "3601", "x", "-1"]),
        ):
            for value in bad:
                self.each([option, value], r"^\S+ server: --", samples=["03_read"])

    def test_size_zero_or_above_the_limit(self):
        for value in ("0", "65M", "67108865", "-1", "1G", "x", ""):
            self.each(["-s", value, "h"], "--size: '.*' is not a number from 1 to 67108864",
                      samples=["02_send_recv", "03_read"])
        for value in ("0", "1000001", "x"):
            self.each(["-n", value, "h"], "--iters: ", samples=SAMPLES[1:])
        self.each(["-M", "", "h"], "--message: ", samples=["01_hello_write"])

    def test_layouts_that_cannot_be(self):
        for args, reason in (
            (["-B", "0"], "must not be 0"),
            (["-N", "0"], "must not be 0"),
            (["-T", "0"], "--stride: '0' is not a number"),
            (["-B", "8", "-T", "7"], "stride is below block_size"),
            (["-B", "18446744073709551615", "-N", "1"], "above 64 MiB"),
            (["-B", "4096", "-N", "4503599627370498", "-T", "4096"], "more than 262144 blocks"),
            (["-B", "1", "-N", "2", "-T", "64M"], "above 64 MiB"),
            (["-x", "magic"], "'magic' is not sgl, copy, each or auto"),
            (["-x", "contig"], "'contig' is not sgl, copy, each or auto"),
            (["-I", ""], "the ID is empty"),
            (["-k", "-z", "4K,,8K"], "--sizes: "),
            (["-k", "-z", "0"], "--sizes: "),
            (["-k", "-z", "4K,65M"], "--sizes: "),
            (["-k", "-z", "4K" + ",4K" * 40], "--sizes: "),
            (["-k", "-n", "1001"], "more than 1000 rounds"),
            (["-k", "-D", "0"], "--depth: "),
            (["-k", "-D", "65"], "--depth: "),
            (["-B", "1", "-N", "262145"], "more than 262144 blocks"),
            (["-k", "-z", ",".join(["4096"] * 28)], "the list is too long"),
            (["-z", "4K"], "it needs --bench"),
            (["-c", "x.csv"], "it needs --bench"),
        ):
            self.each(args + ["h"], reason, samples=SAMPLES[4:])

    def test_workload_given_to_the_server(self):
        for sample in SAMPLES:
            letter = WORKLOAD[sample][0]
            self.each([f"-{letter}", "3"], "is the client's to give", samples=[sample])

    def test_two_hosts_or_an_empty_one(self):
        self.each(["a", "b"], "what is 'b'", role="client")
        self.each([""], "HOST is empty", role="client")

    def test_result_that_cannot_be_written_is_no_success(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            help_text = subprocess.run([path("03_read"), "--help"], stdout=full, check=False)
        self.assertEqual(help_text.returncode, 1)


class NoDevice(SampleTest):
    def test_machine_without_rdma_exits_77(self):
        if os.path.isdir("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"):
            self.skipTest("this machine has an RDMA device")
        for sample in SAMPLES:
            for args, role in (([], "server"), (["localhost"], "client")):
                with self.subTest(sample=sample, role=role):
                    self.check_failed(run(sample, *args), sample, role, "no RDMA device here",
                                      status=77)


if __name__ == "__main__":
    main()
