# SPDX-License-Identifier: BSD-2-Clause
"""The command line, as far as it needs no RDMA device."""
import re
import subprocess

from samples import SAMPLES, WITH_BLOCKS, SampleTest, path, run

COMMON = (
    "d ib-dev, i ib-port, g gid-idx, m mtu, l sl, traffic-class, pkey-idx, p port, b bind, timeout,"
    " v verbose, h help"
)
ITERS, SIZE = "n iters, S seed", "s size, n iters, S seed"
LAYOUT = "B block-size, block-num, T stride, S seed, I student"
BENCH = "x method, n iters, k bench, D depth, z sizes, csv"
OWN = {  # the client's alone (--own: the server's), with letters where they have one
    "01_hello_write": "M message",
    "02_send_recv": SIZE,
    "03_read": SIZE,
    "04_atomic": ITERS,
    **dict.fromkeys(("05_gather_write", "06_scatter_read", "07_gssr"), f"{LAYOUT}, {BENCH}"),
    "08_write_imm": f"{SIZE}, transport",
    "09_ud": f"{SIZE}, clients",
    "10_srq": f"{ITERS}, clients, own",
    "12_ordering": f"{SIZE}, inline, no-fence, sig-all",
    "13_memory_window": f"{SIZE}, w withdraw",
    "14_recover": f"{SIZE}, break",
    "16_extended": f"{SIZE}, api, batch, list",
    "18_threads": f"{SIZE}, threads, share",
}
# What libibverbs' own examples mean by a letter (ibv_rc_pingpong(1), of rdma-core 44 and 64).
PINGPONG = (
    "p port, d ib-dev, i ib-port, s size, m mtu, r rx-depth, n iters, l sl, e events, g gid-idx, o odp, O iodp,"
    " P prefetch, t ts, c chk, j dm, N new_send, U allow-cc-unprotected"
)
# The samples; wrong arguments (with the host h: a client's); what is said.
WRONG = """
all      -Z                         -Z: no such option
03       --message=1 h              no such option
all      -p                         -p: no such option, or its value is missing
all      --verbose=1                --verbose=1: no such option, or .* one too many
all      h i                        i: one HOST is needed
all      --bind 127.0.0.1 h         bind: for servers only
03       -p 65536                   not a number from 1 to 65535
03       -p 1x h                    not a number from 1 to 65535
03       -p 99999999999999999999    not a number from 1 to 65535
03       -m 1000                    256, 512
03       --timeout 3601             not a number from 1 to 3600
02 03    -s 65M h                   not a number from 1 to 67108864
09       -s 4097 h                  not a number from 1 to 4096
09       --clients 17 h             not a number from 1 to 16
10       --clients 65 h             not a number from 1 to 64
10       --own --clients 2          clients: only for the client
10       --own h                    own: for servers only
02 05    -n 1000001 h               not a number from 1 to 1000000
08       --transport ud h           transport is rc or uc
12       --inline 4097 h            not a number from 1 to 4096
16       --api old h                --api: post or wr
16       --api wr,batch=9 h         --api: post or wr
18       --share cq h               --share: none or qp
blocks   -B 8 -T 7 h                stride is below block_size
blocks   -B 1 --block-num 262145 h  not a number from 1 to 262144
blocks   -B 1 --block-num 2 -T 64M h  above 64 MiB
blocks   -x magic h                 method: sgl, copy, each or auto
blocks   -k -z 4K,,8K h             sizes:
blocks   -k -n 1001 h               at most 1000 rounds
blocks   -k -x sgl h                leave --method out
blocks   --csv x.csv h              need --bench
blocks   -I a -B 100 h              --student gives the layout
"""


def options(listed):
    return listed.split(", ")


class Usage(SampleTest):
    def test_help_lists_each_option_and_the_exit_status(self):
        for sample in SAMPLES:
            side = run(sample, "--help")
            self.assertEqual((side.status, side.err), (0, ""), side)
            listed = re.findall(r"(?m)^  (?:-(\w), |    )--([\w-]+)", side.out)
            wanted = options(f"{COMMON}, {OWN[sample]}")
            self.assertEqual([" ".join(option).strip() for option in listed], wanted)
            self.assertIn("77 no RDMA device", side.out)
            without_path = re.sub(r"(?m)^/\S*/", "", side.out)
            self.assertLess(max(map(len, without_path.splitlines())), 82)

    def test_letters_mean_what_they_mean_in_libibverbs_examples(self):
        theirs = dict(option.split() for option in options(PINGPONG))
        for option in options(", ".join([COMMON, *OWN.values()])):
            letter, _, name = option.rpartition(" ")
            self.assertEqual(theirs.get(letter, name), name)

    def refused(self, sample, args, reason):
        role = "client" if {"h", "i"} & set(args[-1:]) else "server"
        self.check_failed(run(sample, *args), sample, role, reason, status=2)

    def test_wrong_arguments(self):
        for line in WRONG.strip().splitlines():
            chosen, args, reason = re.fullmatch(r"(\w+(?: \d\d)*) +(.+?)  +(.*)", line).groups()
            some = {"all": SAMPLES, "blocks": WITH_BLOCKS}.get(chosen)
            for sample in some or (name for name in SAMPLES if name[:2] in chosen.split()):
                self.refused(sample, args.split(), reason)
        self.refused("01_hello_write", ["-M", "", "h"], "its value is empty")

    def test_workload_given_to_the_server(self):
        for sample in SAMPLES:
            name = options(OWN[sample])[0].split()[-1]
            self.refused(sample, [f"--{name}", "3"], f"{name}: only for the client")

    def test_result_that_cannot_be_written_is_no_success(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            help_text = subprocess.run([path("03_read"), "--help"], stdout=full, check=False)
        self.assertEqual(help_text.returncode, 1)
