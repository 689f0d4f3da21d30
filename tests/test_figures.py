# SPDX-License-Identifier: BSD-2-Clause
"""The measurements: two runs of 05's sweep over block sizes, in virtual time, in a VM each."""
import os
import re
import subprocess
import unittest

from samples import ROOT, ran

COMMAND = [
    "testenv/testenv.sh",
    "run",
    "testenv/pair.sh",
    "05_gather_write/gather_write",
    "--bench",
    "--iters=1",
    "--sizes=64K",
    "--timeout=300",
]
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
                [*COMMAND, f"--csv={CSV.format(i)}"],
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

    def test_a_list_costs_what_it_does_on_other_kernels(self):
        """More than one piece: what grade goes by, if a student's kernel is another one."""
        with open(os.path.join(ROOT, "bench", "reference.txt"), encoding="ascii") as file:
            reference = figures(file.read().partition("06_scatter_read")[0])
        here, there = (
            float(run["sgl", 64]["lat_p50_us"]) - float(run["contig", 64]["lat_p50_us"])
            for run in (self.runs[0], reference)
        )
        self.assertLess(abs(here / there - 1), 0.06, (here, there))

    def test_a_list_of_whole_packets_costs_nothing(self):
        for block in (4096, 8192, 16384, 32768, 65536):
            self.assertGreater(self.mbps("sgl", block) / self.mbps("contig", block), 0.99)

    def test_a_list_beats_a_request_for_each_block(self):
        for block, least in ((64, 6), (512, 1.8), (4096, 1)):
            self.assertGreater(self.mbps("sgl", block) / self.mbps("each", block), least)

    def test_small_blocks_in_virtual_megabytes_a_second(self):
        for block, least in ((64, 9.34), (512, 14.16), (4096, 14.23)):
            self.assertGreater(self.mbps("sgl", block), least)

    def test_auto_is_as_good_as_the_better_one(self):
        for method, block in self.runs[0]:
            if method == "auto":
                best = max(self.mbps("sgl", block), self.mbps("copy", block))
                self.assertGreater(self.mbps("auto", block) / best, 0.98, block)

    def test_the_model_finds_the_crossover(self):
        said = ran([os.path.join(ROOT, "bench", "model.py"), CSV.format(0)], check=True).stdout
        low, high, predicted, _ = map(
            int,
            re.search(
                r"^MODEL .*crossover_measured=(\d+)\.\.(\d+) crossover_predicted=(\d+)\.\.(\d+)$",
                said,
                re.M,
            ).groups(),
        )
        self.assertTrue(low / 2 <= predicted <= low * 2, said)
        self.assertEqual(high, 2 * low)
        self.assertLess(
            {("copy", low), ("sgl", high)}, set(self.runs[0]), "sizes that were measured"
        )
        row = next(line for line in said.splitlines() if line.startswith(f"{low:8} "))
        self.assertLess(
            float(row.split("|")[3].split()[0].rstrip("=")), 0.99, "copying is faster there"
        )

    def test_equal_figures_are_marked(self):
        """What differs by no more than a per cent, and nothing else."""
        said = ran([os.path.join(ROOT, "bench", "model.py"), CSV.format(0)], check=True).stdout
        rows = [line.split("|") for line in said.splitlines() if line.count("|") == 3][1:]
        self.assertGreater(len(rows), 11)
        marked = 0
        for _, speeds, _, speedup in rows:
            *methods, contig = re.findall(r"([\d.]+)(=?)", speeds)
            for figure, mark in methods:
                part = abs(float(figure) / float(contig[0]) - 1)
                if abs(part - 0.01) > 0.002:  # the table's figures are rounded
                    self.assertEqual(mark == "=", part < 0.01, speeds)
                marked += mark == "="
            figure, mark = re.match(r" *([\d.]+)(=?)", speedup).groups()
            if abs(abs(float(figure) - 1) - 0.01) > 0.002:
                self.assertEqual(mark == "=", abs(float(figure) - 1) < 0.01, speedup)
        self.assertGreater(marked, 5)

    def test_a_program_of_ones_own_is_drawn_beside_the_reference(self):
        name = os.path.basename(CSV.format(0))[:-4]
        subprocess.run(
            [os.path.join(ROOT, "bench", "plot.sh"), name], check=True, stdout=subprocess.DEVNULL
        )
        for sweep in ("message", "block"):
            with open(
                os.path.join(ROOT, "results", f"{name}-{sweep}.svg"), encoding="utf-8"
            ) as file:
                drawn = file.read()
            self.assertEqual(len(set(re.findall(r">reference \w+", drawn))), 5, sweep)
            circles = drawn.count(
                "<use xlink:href='#gpPt5'"
            )  # of 4 sizes of messages, 11 of blocks; in the key
            self.assertGreaterEqual(circles, 5 * (4 if sweep == "message" else 11) + 5, sweep)
