# SPDX-License-Identifier: BSD-2-Clause
"""Where testenv keeps things, copies of the project, and apt for other packages than this
machine's; shared by the tests."""
import os
import subprocess

from samples import ROOT

CACHE = os.environ.get("TESTENV_CACHE") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "hello-verbs"
)


def copy_project(to):
    """What git tracks or would track: what a student gets from a clone."""
    subprocess.run(
        [
            "bash",
            "-c",
            "set -o pipefail; git ls-files -z --cached --others "
            '--exclude-standard | xargs -0 cp --parents -t "$0"',
            to,
        ],
        cwd=ROOT,
        check=True,
    )


def apt_config(work, sources, processor):
    """A configuration for apt in the directory work: that file of sources, that processor's
    packages, and nothing of this machine's. Returns the environment that selects it."""
    for name in ("state/lists/partial", "cache/archives/partial"):
        os.makedirs(os.path.join(work, name))
    path = os.path.join(work, "apt.conf")
    with open(path, "w", encoding="ascii") as file:
        file.write(
            f'Dir::State "{work}/state"; Dir::Cache "{work}/cache";\n'
            f'Dir::State::status "/dev/null"; Dir::Etc::sourcelist "{sources}";\n'
            'Dir::Etc::sourceparts "-"; Acquire::Languages "none";\n'
            f'APT::Architecture "{processor}"; APT::Architectures "{processor}";\n'
        )
    return {"APT_CONFIG": path}
