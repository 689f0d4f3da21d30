# SPDX-License-Identifier: BSD-2-Clause
"""The command line, as far as it needs no RDMA device."""
import os
import re
import subprocess

from samples import SAMPLES, WITH_BLOCKS, SampleTest, path, run

COMMON = (
    "d ib-dev",
    "i ib-port",
    "g gid-idx",
    "m mtu",
    "l sl",
    "traffic-class",
    "pkey-idx",
    "p port",
    "b bind",
    "timeout",
    "v verbose",
    "h help",
)
BLOCK_OPTIONS = (
    "B block-size",
    "block-num",
    "T stride",
    "S seed",
    "I student",
    "x method",
    "n iters",
    "k bench",
    "D depth",
    "z sizes",
    "csv",
)
OWN = {  # the client's alone (--own: the server's), with letters where they have one
    "01_hello_write": ("M message",),
    "02_send_recv": ("s size", "n iters", "S seed"),
    "03_read": ("s size", "n iters", "S seed"),
    "04_atomic": ("n iters", "S seed"),
    "05_gather_write": BLOCK_OPTIONS,
    "06_scatter_read": BLOCK_OPTIONS,
    "07_gssr": BLOCK_OPTIONS,
    "08_write_imm": ("s size", "n iters", "S seed", "transport"),
    "09_ud": ("s size", "n iters", "S seed", "clients"),
    "10_srq": ("n iters", "S seed", "clients", "own"),
    "12_ordering": ("s size", "n iters", "S seed", "inline", "no-fence", "sig-all"),
    "13_memory_window": ("s size", "n iters", "S seed", "w withdraw"),
    "14_recover": ("s size", "n iters", "S seed", "break"),
}
# What libibverbs' own examples mean by a letter (ibv_rc_pingpong(1), of rdma-core 44 and 64).
PINGPONG = {
    "p": "port",
    "d": "ib-dev",
    "i": "ib-port",
    "s": "size",
    "m": "mtu",
    "r": "rx-depth",
    "n": "iters",
    "l": "sl",
    "e": "events",
    "g": "gid-idx",
    "o": "odp",
    "O": "iodp",
    "P": "prefetch",
    "t": "ts",
    "c": "chk",
    "j": "dm",
    "N": "new_send",
    "U": "allow-cc-unprotected",
}


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
                listed = re.findall(r"(?m)^  (?:-(\w), |    )--([\w-]+)", side.out)
                self.assertEqual(
                    [" ".join(option).strip() for option in listed], [*COMMON, *OWN[sample]]
                )
                self.assertIn("77 no RDMA device", side.out)
                without_path = re.sub(r"(?m)^/\S*/", "", side.out)
                self.assertLess(max(map(len, without_path.splitlines())), 82)
                self.assertEqual(run(sample, "-h").out, side.out)

    def test_letters_mean_what_they_mean_in_libibverbs_examples(self):
        for option in {*COMMON, *(option for own in OWN.values() for option in own)}:
            letter, _, name = option.rpartition(" ")[0], "", option.split()[-1]
            if letter:
                self.assertEqual(PINGPONG.get(letter, name), name)

    def test_unknown_option(self):
        self.each(["-Z"], "-Z: no such option")
        self.each(["--zzz"], "--zzz: no such option")
        self.each(["--zzz=1"], "--zzz=1: no such option")
        self.each(["-t", "3"], "-t: no such option", role="client")

    def test_options_of_other_samples_are_unknown(self):
        every = {option.split()[-1] for own in OWN.values() for option in own}
        for sample in SAMPLES:
            own = {option.split()[-1] for option in OWN[sample]}
            for name in every - own:
                if not any(mine.startswith(name) for mine in own):  # getopt takes a beginning
                    self.each([f"--{name}=1", "h"], "no such option", samples=[sample])

    def test_missing_and_superfluous_values(self):
        self.each(["-p"], "-p: no such option, or its value is missing")
        self.each(["--port"], "--port: no such option, or its value is missing")
        self.each(["--verbose=1"], "--verbose=1: no such option, or .* one too many")

    def test_what_is_for_servers_is_refused_to_clients(self):
        self.each(["--bind", "127.0.0.1", "h"], "bind: for servers only")

    def test_bad_numbers(self):
        for option, bad in (
            (
                "-p",
                ["", "0", "65536", "-1", "x", "1x", "0x10", "1.5", " 1", "99999999999999999999"],
            ),
            ("-i", ["0", "256", "x"]),
            ("-g", ["-1", "256", "x"]),
            ("-m", ["0", "255", "1000", "8192", "x"]),
            ("-l", ["16", "-1", "x"]),
            ("--traffic-class", ["256", "x"]),
            ("--pkey-idx", ["65536", "x"]),
            ("--timeout", ["0", "3601", "x", "-1"]),
        ):
            for value in bad:
                self.each(
                    [option, value],
                    r"^\S+ server: .*: (not a number from \d+ to \d+|256, 512)",
                    samples=["03_read"],
                )

    def test_size_zero_or_above_the_limit(self):
        for value in ("0", "65M", "67108865", "-1", "1G", "x", ""):
            self.each(
                ["-s", value, "h"],
                "not a number from 1 to 67108864",
                samples=["02_send_recv", "03_read"],
            )
        for value in ("0", "4097", "x"):
            self.each(["-s", value, "h"], "not a number from 1 to 4096", samples=["09_ud"])
        for sample, most in (("09_ud", 16), ("10_srq", 64)):
            for value in ("0", str(most + 1), "x"):
                self.each(
                    ["--clients", value, "h"], f"not a number from 1 to {most}", samples=[sample]
                )
        for value in ("0", "1000001", "x"):
            self.each(["-n", value, "h"], "not a number from 1 to 1000000", samples=SAMPLES[1:])
        self.each(["-M", "", "h"], "its value is empty", samples=["01_hello_write"])

    def test_layouts_that_cannot_be(self):
        for args, reason in (
            (["-B", "0"], "not a number from 1"),
            (["--block-num", "0"], "not a number from 1"),
            (["-T", "0"], "not a number from 1"),
            (["-B", "8", "-T", "7"], "stride is below block_size"),
            (["-B", "18446744073709551615", "--block-num", "1"], "not a number from 1"),
            (
                ["-B", "4096", "--block-num", "4503599627370498", "-T", "4096"],
                "not a number from 1",
            ),
            (["-B", "1", "--block-num", "2", "-T", "64M"], "above 64 MiB"),
            (["-x", "magic"], "method: sgl, copy, each or auto"),
            (["-x", "contig"], "method: sgl, copy, each or auto"),
            (["-I", ""], "its value is empty"),
            (["-k", "-z", "4K,,8K"], "sizes: "),
            (["-k", "-z", "0"], "sizes: "),
            (["-k", "-z", "4K,65M"], "sizes: "),
            (["-k", "-z", "4K,"], "sizes: "),
            (["-k", "-z", "4K" + ",4K" * 40], "more than 40 points"),
            (["-k", "-n", "1001"], "at most 1000 rounds"),
            (["-k", "-D", "0"], "not a number from 1 to 64"),
            (["-k", "-D", "65"], "not a number from 1 to 64"),
            (["-B", "1", "--block-num", "262145"], "not a number from 1 to 262144"),
            (["-k", "-z", ",".join(["4096"] * 28)], "the list is too long"),
            (["-z", "4K"], "need --bench"),
            (["--csv", "x.csv"], "need --bench"),
            (["-D", "3"], "need --bench"),
            (["-k", "-x", "sgl"], "leave --method out"),
            (["-I", "a", "-B", "100"], "--student gives the layout"),
            (["-I", "a", "--block-num", "3"], "--student gives the layout"),
            (["-I", "a", "-T", "5000"], "--student gives the layout"),
            (["-I", "a", "-S", "2"], "--student gives the layout"),
        ):
            self.each(args + ["h"], reason, samples=WITH_BLOCKS)

    def test_workload_given_to_the_server(self):
        for sample in SAMPLES:
            name = OWN[sample][0].split()[-1]
            self.each([f"--{name}", "3"], f"{name}: only for the client", samples=[sample])

    def test_what_is_the_servers_given_to_the_client(self):
        self.each(["--own", "h"], "own: for servers only", samples=["10_srq"])
        self.each(["--own", "--clients", "2", "h"], "own: for servers only", samples=["10_srq"])
        self.each(["--own", "--clients", "2"], "clients: only for the client", samples=["10_srq"])
        self.assertIn("\n\nonly for the server:\n      --own ", run("10_srq", "--help").out)

    def test_two_hosts_or_an_empty_one(self):
        self.each(["a", "b"], "b: one HOST is needed", role="client")
        self.each([""], "one HOST is needed", role="client")

    def test_a_mistake_before_the_host_is_the_clients(self):
        self.each(["-p", "x", "h"], "not a number", samples=["03_read"])
        self.each(["--zzz", "-v", "h"], "no such option", samples=["03_read"])

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
                    self.check_failed(
                        run(sample, *args), sample, role, "no RDMA device here", status=77
                    )
