# SPDX-License-Identifier: BSD-2-Clause
"""The measurements: two runs of 05's sweep over block sizes, in virtual time, in a VM each."""
import os
import re
import subprocess
import unittest

from samples import ROOT, ran, read

COMMAND = "testenv/testenv.sh run testenv/pair.sh 05_gather_write/gather_write --bench --iters=1 --sizes=64K"
CSV = os.path.join(ROOT, "results", f"test-figures-{os.environ.get('KERNEL', '')}" + "{}.csv")


def figures(text):
    """The BENCH lines of the sweep over block sizes: {(method, block_size): fields}."""
    found = {}
    for line in text.splitlines():
        if line.startswith("BENCH "):
            field = dict(part.split("=") for part in line.split()[1:])
            found[field["method"], int(field["block_size"])] = field
    return found


class Figures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        env = {**os.environ, "TESTENV_CLOCK": "virtual", "TESTENV_LIMIT": "3000"}
        os.makedirs(os.path.dirname(CSV), exist_ok=True)
        runs = [
            subprocess.Popen(
                [*COMMAND.split(), "--timeout=300", f"--csv={CSV.format(i)}"],
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
            )
            for i in range(2)
        ]
        cls.texts = [run.communicate()[0] for run in runs]
        cls.runs = [figures(text) for text in cls.texts]

    def mbps(self, method, block):
        return float(self.runs[0][method, block]["bw_MBps"])

    def test_two_runs_agree(self):
        """Within 2 %: make bench, which takes three rounds, agrees within one."""
        first, second = self.runs
        self.assertEqual(len(first), 5 * 11, self.texts[0])
        for point, fields in first.items():
            for name in ("lat_p50_us", "bw_MBps"):
                one, two = float(fields[name]), float(second[point][name])
                self.assertLess(abs(one / two - 1), 0.02, f"{point} {name}: {one} and {two}")
            self.assertEqual(fields["clock"], "virtual")

    def test_what_the_handout_says_of_the_methods(self):
        """A list of whole packets costs nothing, a request for each block much; auto takes the better one."""
        for block in (4096, 65536):
            self.assertGreater(self.mbps("sgl", block) / self.mbps("contig", block), 0.99)
        for block, least, mbps in ((64, 6, 9.34), (512, 1.8, 14.16), (4096, 1, 14.23)):
            self.assertGreater(self.mbps("sgl", block), mbps)
            self.assertGreater(self.mbps("sgl", block) / self.mbps("each", block), least)
        for method, block in self.runs[0]:
            best = max(self.mbps("sgl", block), self.mbps("copy", block))
            if method == "auto":
                self.assertGreater(self.mbps("auto", block) / best, 0.98, block)

    def test_the_model_finds_the_crossover(self):
        said = ran([f"{ROOT}/bench/model.py", CSV.format(0)], check=True).stdout
        line = r"(?m)^MODEL .*crossover_measured=(\d+)\.\.(\d+) crossover_predicted=(\d+)\.\.\d+$"
        low, high, predicted = map(int, re.search(line, said).groups())
        self.assertTrue(low / 2 <= predicted <= low * 2, said)
        self.assertEqual(high, 2 * low)
        row = next(line for line in said.splitlines() if line.startswith(f"{low:8} "))
        speedup = float(row.split("|")[3].split()[0].rstrip("="))
        self.assertLess(speedup, 0.99, "copying is faster there")

    def test_a_program_of_ones_own_is_drawn_beside_the_reference(self):
        name = os.path.basename(CSV.format(0))[:-4]
        ran([f"{ROOT}/bench/plot.sh", name], check=True)
        drawn = read(f"results/{name}-block.svg")
        self.assertEqual(len(set(re.findall(r">reference \w+", drawn))), 5)
        circles = drawn.count("<use xlink:href='#gpPt5'")  # all points; and in the key
        self.assertGreaterEqual(circles, 5 * 11 + 5)
        self.assertNotIn("reference sgl", read(f"results/{name}-message.svg"))
