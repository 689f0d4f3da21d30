# SPDX-License-Identifier: BSD-2-Clause
"""Everything builds without a warning."""
import builds
import pytest


def cases(of, *marks):
    return [pytest.param(name, marks=[getattr(pytest.mark, mark) for mark in marks]) for name in of]


@pytest.mark.parametrize(
    "name",
    [
        *cases(builds.BASE, "quick", "sources"),
        *cases(builds.SOURCES, "quick", "sources"),
        *cases(builds.ASAN, "rest", "asan"),
        *cases(builds.DEBIANS, "rest", "newer"),
    ],
)
def test_build(name):
    assert builds.build(name) == ""
