# SPDX-License-Identifier: BSD-2-Clause
"""The unit tests in C (unit/), each of cmocka's tests one of pytest's, and a fuzzer's first lines."""
import functools
import glob
import os
import re
import subprocess

import pytest
from builds import OUT, environment, run
from samples import ROOT, read

pytestmark = [pytest.mark.quick, pytest.mark.units]
FLAGS = "-std=c11 -Wall -Wextra -Werror -g -fsanitize=address,undefined -fno-sanitize-recover=all"
FILES = sorted(glob.glob(f"{ROOT}/tests/unit/test_*.c"))


@functools.cache
def outcomes(path):
    """{test: cmocka's line}, and what the file's tests wrote to stderr: they provoke hundreds of errors,
    which tell something only if a test fails. A C file that the test includes, for what is static in
    there, is not linked once more."""
    included = re.findall(r'#include "\.\./\.\./(.*\.c)"', read(path))
    sources = [*glob.glob("common/*.c", root_dir=ROOT), *glob.glob("blocks/*.c", root_dir=ROOT)]
    program = f"{OUT}/unit-{os.path.basename(path)[:-2]}"
    linked = " ".join(sorted(set(sources) - set(included)))
    run(f"gcc {FLAGS} -Icommon -Iblocks -o {program} {path} {linked} -libverbs -lcmocka")
    ended = subprocess.run(
        [program],
        env=environment(CMOCKA_MESSAGE_OUTPUT="TAP", ASAN_OPTIONS="detect_leaks=1"),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=900,
        check=False,
    )
    lines = re.findall(r"(?m)^((?:not )?ok)\b[ \d-]*(\w+)", ended.stdout)
    return {name: ok for ok, name in lines}, ended


@pytest.mark.parametrize("path", FILES, ids=os.path.basename)
def test_ends_well(path):
    assert outcomes(path)[1].returncode == 0, outcomes(path)[1].stderr


@pytest.mark.parametrize(
    "path, name",
    [
        (path, name)
        for path in FILES
        for name in re.findall(r"cmocka_unit_test\w*\((\w+)", read(path))
    ],
    ids=lambda value: os.path.basename(value),
)
def test_unit(path, name):
    lines, ended = outcomes(path)
    assert lines.get(name) == "ok", ended.stdout + ended.stderr


def test_100000_mangled_lines():
    run(["tests/fuzz/run.sh", "100000"])
