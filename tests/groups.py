# SPDX-License-Identifier: BSD-2-Clause
"""Which tests run where, and together: conftest.py reads this.

A group is a list of tests that run in one process: in a VM, on one of two hosts, or on this machine. A
part is one or more groups, and the name by which people run them: make test ONLY="wire peers"."""
import os
from dataclasses import dataclass, field

from samples import FIXED, ROOT

OUT = os.path.join(ROOT, "build")
# In the VM's virtual time a deadline can't be missed because this machine is busy. The processor is
# the one that QEMU emulates in the least time, where no figures are looked at.
FAST = {"TESTENV_CPU": "max,-erms,-fsrm"}
VIRTUAL = {"TESTENV_CLOCK": "virtual", **FAST}
TWO_HOSTS = {"TESTENV_HOSTS": "2", "TESTENV_CPU": ""}
BUILT = {
    "HV_BUILD": f"{OUT}/gcc",
    "HV_OTHER_DEVICE": f"{OUT}/other_device.so",
    "HV_FAIL_VERBS": f"{OUT}/fail_verbs.so",
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
NEWER_KERNEL = "linux-image-6.12-amd64"


@dataclass(frozen=True)
class Group:
    part: str
    tests: str  # names as unittest takes them: test_10.Dying.test_hung
    name: str = ""  # where a part has several groups
    vm: bool = True  # within it; else on this machine, where a test may start one
    env: dict = field(default_factory=dict)
    build: str = "gcc"  # the directory in build/ of the programs
    unstable: bool = False  # with the kernel of Debian unstable

    def command(self, tests):
        runner = ["python3", "tests/runner.py", *tests]
        if self.vm:
            within = FIXED  # see samples.py
            if self.build in ("debian13", "sid"):
                within = (*within, "tests/debian13.sh", "in")
            runner = ["testenv/testenv.sh", "run", *within, *runner]
        return ["tests/unstable.sh", *runner] if self.unstable else runner

    def environment(self):
        env = {**os.environ, **BUILT, "HV_BUILD": f"{OUT}/{self.build}", **self.env}
        if self.vm:
            env.update(
                TESTENV_LIMIT="3000", TESTENV_PASS=" ".join(("HV_SOME", "PYTHONPATH", *BUILT))
            )
        return env


def here(part, tests, name="", **more):
    return Group(part, tests, name, vm=False, **more)


def kernel(name):
    return {"KERNEL": name}


ON_EACH_KERNEL = "test_pairs.Defaults test_pairs.Options test_pairs.WrongPairs"
FIGURES_ON_EACH_KERNEL = "test_figures.Figures.test_two_runs_agree"
LAYOUTS_07 = "test_pairs.Layouts.test_07_every_method_by_every_layout"

# The longest first: at the end, two cores have something to do.
QUICK = (
    # What the samples from 08 on have of their own; what takes long, or two hosts, is in crowd and recover.
    Group(
        "more",
        "test_08 test_09.Pairs test_09.Liars test_10.Pairs test_10.Dying.test_gone_or_lying_at_each_step"
        " test_10.Dying.test_one_that_sends_without_a_credit test_10.Refused test_12 test_13 test_15 test_16 test_17 test_18",
        env=VIRTUAL,
    ),
    here("handout", "test_labs.BreakIt test_labs.Prose test_labs.References", env=VIRTUAL),
    # 11 wants to be the first to take the device away.
    Group(
        "peers",
        "test_11.Good test_11.BothFamilies test_11.Bad test_devices test_peers",
        env=VIRTUAL,
    ),
    here("grading", "test_collect", "collect"),
    here(
        "grading", "test_bundles.Bundles.test_formats test_bundles.Bundles.test_contents", "bundles"
    ),
    here("grading", "test_grading", "marks"),
    Group("pairs", ON_EACH_KERNEL, env=VIRTUAL),
    Group("layouts", "test_pairs.Layouts", env=VIRTUAL),
    Group("wire", "test_wire.Good test_11.Hosts", env=TWO_HOSTS),
    here(
        "check_some",
        " ".join(
            f"test_check.Check.test_{t}"
            for t in (
                "some",
                "hints",
                "a_field_that_this_kernel_has_not",
            )
        ),
    ),
    here("check_some", "test_probes", "probes"),
    here("break", "test_break"),
    here("starters", "test_starter.Places"),
    here("sources", "test_zh"),
    here("units", "test_cheatsheet test_usage"),
)

# Sanitizers see what concerns memory: data of all sizes, layouts, strangers' bytes; not what takes the
# device away, or much memory.
REST = (
    Group("programs", "test_charge", "charge", env={"TESTENV_CLOCK": "virtual"}),
    here("programs", "test_programs", env=FAST),
    here(
        "check",
        "test_check.Check.test_samples_and_halves test_check.Check.test_mutants"
        " test_check.Check.test_blocks test_check.Check.test_commands",
    ),
    Group("faults", "test_faults", env=VIRTUAL),
    here("show", "test_show"),
    Group("bad_wire", "test_wire.Bad test_wire.Unreliable test_wire.Cut", env=TWO_HOSTS),
    Group("crowd", "test_10.Dying test_10.Crowd", env=VIRTUAL),
    Group("recover", "test_14.Breaks test_14.Strangers test_14.Ladder test_14.Drawn", env=VIRTUAL),
    Group("recover", "test_14.Wire", "wire", env=TWO_HOSTS),
    here("asan", "test_usage", "usage", build="asan"),
    Group(
        "asan",
        "test_pairs.Defaults test_pairs.Options.test_message test_pairs.Options.test_sizes"
        f" test_pairs.Options.test_iters {LAYOUTS_07} test_pairs.Layouts.test_students_layout_and_many_messages",
        "pairs",
        build="asan",
        env=VIRTUAL,
    ),
    Group("asan", "test_peers", "peers", build="asan", env=VIRTUAL),
    here("newer", FIGURES_ON_EACH_KERNEL, "figures", env=kernel(NEWER_KERNEL)),
    Group(
        "newer", "test_charge", "charge", env={"TESTENV_CLOCK": "virtual", **kernel(NEWER_KERNEL)}
    ),
    here(
        "newer",
        "test_labs.BreakIt",
        "handout",
        env={"TESTENV_CLOCK": "virtual", **kernel(NEWER_KERNEL)},
    ),
    Group(
        "newer",
        f"test_pairs.Defaults {LAYOUTS_07} test_15 test_16.Batches test_17 test_18.Threads",
        "debian13",
        build="debian13",
        env={**VIRTUAL, **kernel(NEWER_KERNEL)},
    ),
    Group(
        "newer",
        "test_wire.Flush",
        "flush",
        build="debian13",
        env={**TWO_HOSTS, **kernel(NEWER_KERNEL)},
    ),
    here("newer", "test_check.Newer", "check", build="debian13", env=kernel(NEWER_KERNEL)),
    Group("newer", ON_EACH_KERNEL, "pairs", env={**VIRTUAL, **kernel(NEWER_KERNEL)}),
    # One of them in a new root; what they differ in, test_formats and test_contents see.
    here(
        "platforms",
        "test_bundles.Bundles.test_platforms",
        env={"HV_FORMATS": os.environ.get("HV_FORMATS", "gradescope")},
    ),
    here("newest", FIGURES_ON_EACH_KERNEL, "figures", unstable=True),
    here("newest", "test_labs.BreakIt", "handout", unstable=True, env={"TESTENV_CLOCK": "virtual"}),
    Group("newest", ON_EACH_KERNEL + " test_17.Memory", "pairs", unstable=True, env=VIRTUAL),
    Group("newest", "test_17.Memory", "sid", unstable=True, build="sid", env=VIRTUAL),
    here("kernels", "test_kernels"),
    here("half_way", "test_starter.HalfWay test_starter.Release", env=VIRTUAL),
    Group("large", "test_pairs.Large", env=VIRTUAL),
    # Two processors: both sides really run at a time.
    Group("large", "test_pairs.Defaults", "two-cpus", env={"TESTENV_CPU": ""}),
    Group("dead", "test_dead", env=VIRTUAL),
    here("testenv", "test_testenv"),
    here("handin", "test_handin"),
    here("wires", "test_labs.Wires", env=VIRTUAL),
    here("machines", "test_machines"),
    here("figures", "test_figures"),
    here("arm64", "test_arm64"),
    Group("doctor", "test_doctor", env=VIRTUAL),
    here("fabric", "test_fabric"),
    here("above", "test_above"),
)
