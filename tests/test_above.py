# SPDX-License-Identifier: BSD-2-Clause
"""above/: each protocol moves its data by RDMA, in these messages; the proof fails where it did not.

Each test runs two VMs. A protocol that this kernel or machine has not is left out with its reason.
"""
import re
import subprocess
import tempfile
import unittest

from samples import ROOT, ran, write

SIZE = 262144


def run(app, **env):
    """(exit status, RESULT's fields, all that it said); a test of what is not here is skipped."""
    command = ["timeout", "-s", "KILL", "600", "above/run.sh", app]
    ended = ran(command, env={"LAB_LANG": "en", **env}, stderr=subprocess.STDOUT)
    lines = re.findall("(?m)^RESULT (.*)", ended.stdout)
    fields = dict(field.split("=", 1) for field in lines[-1].split()) if lines else {}
    if ended.returncode == 77:
        raise unittest.SkipTest(ended.stdout.strip().splitlines()[-2])
    return ended.returncode, fields, ended.stdout


class Above(unittest.TestCase):
    def moves(self, app, write, read):
        """It passes; what carried most of the bytes either way is this."""
        status, fields, said = run(app)
        self.assertEqual((status, fields.get("status")), (0, "PASS"), said)
        for step, by in (("write", write), ("read", read)):
            carried = dict(part.split(":") for part in fields[step].split("+"))
            self.assertGreaterEqual(int(carried.get(by, 0)), SIZE, said)
            self.assertLess(int(fields[step + "_other"]), SIZE // 16, said)
        return said

    def test_nvme(self):
        said = self.moves("nvme", "READ", "WRITE")
        # 64 KiB each: a command, then the target fetches or brings the data, then it invalidates.
        for message in ("READ 65536", "WRITE 65536", "INVALIDATE 16"):
            self.assertRegex(said, f"<-- {message} ", said)
        self.assertRegex(said, "SEND 64 +-->")

    def test_nvme_small(self):
        """4 KiB travel in the command, so nobody READs."""
        status, fields, said = run("nvme", BLOCK="4096")
        self.assertEqual((status, fields.get("status")), (0, "PASS"), said)
        self.assertEqual(fields["write"], f"SEND:{SIZE + 64 * 64}", said)

    def test_iser(self):
        # Of each 64 KiB the host sends 8 KiB with the command.
        status, fields, said = run("iser")
        self.assertEqual((status, fields.get("status")), (0, "PASS"), said)
        self.assertRegex(said, r"<-- READ 57344 ")
        self.assertRegex(said, r"<-- WRITE 65536 ")

    def test_srp(self):
        said = self.moves("srp", "READ", "WRITE")
        for message in ("READ 65536", "WRITE 65536", "SEND 36"):
            self.assertRegex(said, f"<-- {message} ", said)
        self.assertNotIn("INVALIDATE", said)

    def test_nfs(self):
        self.moves("nfs", "READ", "WRITE")

    def test_smc(self):
        said = self.moves("smc", "WRITE", "WRITE")
        self.assertRegex(said, "WRITE 65536 +-->", said)

    def test_rds(self):
        self.moves("rds", "SEND", "SEND")

    def test_rsockets(self):
        self.moves("rsockets", "WRITE", "WRITE")

    def test_libfabric(self):
        self.moves("libfabric", "SEND", "SEND")

    def test_mpi(self):
        self.moves("mpi", "SEND", "SEND")

    def test_ucx(self):
        self.moves("ucx", "SEND", "SEND")


class Vector(unittest.TestCase):
    def test_the_assignments_data_by_libraries(self):
        """One row of make bench-mpi's table: each way moves it by RDMA; libraries copy, so they are slower."""
        ended = ran(["make", "-s", "bench-mpi", "BLOCKS=4096"])
        self.assertEqual(ended.returncode, 0, ended)
        block, *figures = map(float, re.findall(r"[\d.]+", ended.stdout.splitlines()[-1]))
        self.assertEqual((block, len(figures)), (4096, 18), ended.stdout)
        libraries, sends, packets = (figures[i::3] for i in (6, 7, 8))
        self.assertGreater(min(libraries), 8, ended.stdout)
        self.assertGreater(min(figures[:6]), max(libraries), ended.stdout)
        # 64 KiB are more than one buffer, and 64 packets.
        self.assertGreater(min(sends), 1, ended.stdout)
        self.assertGreaterEqual(min(packets), 64, ended.stdout)


class Proof(unittest.TestCase):
    """Right data alone is no proof."""

    def test_tcp_is_no_rdma(self):
        status, fields, said = run("nvme", BY="tcp")
        self.assertEqual((status, fields.get("status")), (1, "FAIL"), said)
        self.assertIn("not by RDMA: write: ", said)
        self.assertGreaterEqual(int(fields["write_other"]), SIZE, said)

    def test_counters_and_errors(self):
        """No packets, or an APP that failed."""
        status, _, said = run("nvme")
        pcap = f"{ROOT}/results/above/nvme.pcap"
        for client, size, reason in (
            ("sent_pkts=356 us=1 status=0 why=", SIZE, ""),
            ("sent_pkts=0 us=1 status=0 why=", SIZE, "not by RDMA: rxe0 counts 0 packets"),
            ("sent_pkts=356 us=1 status=1 why=other data", SIZE, "other data"),
            ("sent_pkts=356 us=1 status=0 why=", 2 * SIZE, "not by RDMA: write: "),
        ):
            with tempfile.TemporaryDirectory() as folder:
                file = write(f"{folder}/client", client)
                proof = ran(["above/proof.py", "nvme", pcap, str(size), file])
            self.assertEqual(proof.returncode, 1 if reason else 0, proof.stderr)
            self.assertIn(reason, proof.stderr)

    def test_the_table_of_the_lab(self):
        """What is wrong is named."""
        self.assertEqual(run("nvme")[0], 0)
        for row, status, words in (
            ("nvme 64 READ WRITE server\n", 0, ["right: 4, wrong: 0"]),
            (
                "nvme 65536 READ+SEND READ\n",
                1,
                ["no 65536", r"no READ\+SEND", "right: 0, wrong: 3"],
            ),
            ("nvme 64\nother 1\n", 0, ["first run make above APP=other", "right: 1, wrong: 0"]),
        ):
            with tempfile.TemporaryDirectory() as folder:
                mine = write(f"{folder}/mine", row)
                said = ran(["make", "-s", "check", "LAB=above", f"FILE={mine}"])
            self.assertEqual(bool(said.returncode), bool(status), said)
            for each in words:
                self.assertRegex(said.stdout, each)
