# SPDX-License-Identifier: BSD-2-Clause
"""What can be seen without running a pair: how the samples build, what is in which order, style."""
import glob
import os
import re

import pytest
from builds import CORES, OUT, run
from places import copy_project
from samples import PROGRAM, ran, read

pytestmark = [pytest.mark.quick, pytest.mark.sources]
C_FILES = (
    "common/*.[ch] blocks/*.[ch] [0-9]*/*.c bench/*.c tests/unit/*.[ch] tests/fuzz/*.c tests/*.c"
)
SCRIPTS = "testenv/*.sh bench/*.sh teach/*.sh tests/*.sh tests/fuzz/*.sh .ci/run"
CPPCHECK = (
    "cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr"
    # uint64_t and uintmax_t (%ju) are the same type with glibc, which gcc checks.
    " --suppress=invalidPrintfArgType_uint --suppress=invalidScanfArgType_int"
    " --error-exitcode=1 -Icommon -Iblocks common blocks [0-9][0-9]_*"
)


@pytest.fixture(scope="module", name="copy")
def fresh_copy():
    """A copy of what git tracks or would track: what a student gets from a clone."""
    copy = f"{OUT}/copy"
    copy_project(copy)
    return copy


@pytest.mark.parametrize("sample, program", PROGRAM.items(), ids=PROGRAM)
def test_builds_alone(copy, sample, program):
    """By make and by the gcc line in its head comment, without a warning."""
    directory = os.path.join(copy, sample)
    assert run(["make", "-s"], cwd=directory) == ""
    run([f"./{program}", "--help"], cwd=directory)
    os.remove(os.path.join(directory, program))
    line = re.search(r"(?m)^ \*   (gcc .*)", read(f"{sample}/{program}.c"))[1]
    assert run(f"{line} -Wall", cwd=directory) == ""
    run([f"./{program}", "--help"], cwd=directory)


def up_to_date(copy, sample):
    return ran(["make", "-q", "-C", sample], cwd=copy).returncode == 0


def test_a_change_rebuilds_what_it_must(copy):
    """A header or common's code every sample; a sample's file that one."""
    run(["make", "-s", CORES], cwd=copy)
    for changed in ["common/sample.mk", *sorted(glob.glob("common/*.[ch]", root_dir=copy))]:
        path = os.path.join(copy, changed)
        os.utime(path)
        some = [sample for sample in PROGRAM if sample[:2] in ("01", "05", "11")]  # of each kind
        for sample in PROGRAM if changed == "common/sample.mk" else some:
            assert not up_to_date(copy, sample), f"{changed}: {sample}"
        past = os.path.getmtime(path) - 3600  # or nothing is shown of the next one
        os.utime(path, (past, past))
        assert up_to_date(copy, "01_hello_write"), changed
    os.utime(os.path.join(copy, "03_read", "read.c"))
    assert run(["make", "-C", "03_read"], cwd=copy).count(" -o ") == 1
    assert [sample for sample in PROGRAM if not up_to_date(copy, sample)] == []


def test_builds_leave_nothing_that_git_does_not_ignore():
    run(["make", "-s"])
    left = run(["git", "status", "--porcelain", "--ignored=no"])
    assert re.findall(r"(?m)^\?\? .*\d\d_.*", left) == []


def test_make_help_lists_every_target():
    shown = run(["make", "-s", "help"])
    targets = " ".join(re.findall(r"(?m)^\.PHONY: (.*)", read("Makefile"))).split()
    missing = [t for t in targets if t[0].isalpha() and f"\n  make {t} " not in "\n" + shown]
    assert missing == []


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("python3 tests/shape.py", id="shape"),
        pytest.param(CPPCHECK, id="cppcheck"),
        pytest.param(
            f"clang-format --dry-run -Werror {C_FILES} learn/show/*.c",
            id="clang-format",
        ),
        pytest.param(f"shfmt -d {SCRIPTS}", id="shfmt"),
        pytest.param(f"shellcheck -x {SCRIPTS}", id="shellcheck"),
    ],
)
def test_style(command):
    run(command)


def test_black():
    if " 23." not in run("black --version"):  # each year's style is another
        pytest.skip("black is not that of 2023")
    run("black -q -l 100 --check bench fabric judge learn teach tests")
