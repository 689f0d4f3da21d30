# SPDX-License-Identifier: BSD-2-Clause
"""Where testenv keeps things, copies of the project, and apt for other packages than this
machine's; shared by the tests."""
import glob
import os
import shutil

from samples import ran, write

CACHE = os.environ.get("TESTENV_CACHE") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "hello-verbs"
)


def copy_project(to):
    """What git tracks or would track: what a student gets from a clone. And results/, which is empty."""
    shutil.rmtree(to, ignore_errors=True)
    os.makedirs(f"{to}/results")
    listed = ran(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], check=True
    )
    ran(["xargs", "-0", "cp", "--parents", "-t", to], check=True, input=listed.stdout)


def unpack_kernel(to, *patterns):
    """Of the package of this machine's kernel for the VM, which is returned."""
    debs = glob.glob(os.path.join(CACHE, "debs-debian-*-amd64", "*.deb"))
    deb = max(debs, key=os.path.getsize)
    files = " ".join(patterns)
    ran(
        f"dpkg-deb --fsys-tarfile {deb} | tar -x --wildcards {files}",
        shell=True,
        cwd=to,
        check=True,
    )
    return deb


def apt_config(work, sources, processor):
    """A configuration for apt in the directory work: that file of sources, that processor's
    packages, and nothing of this machine's. Returns the environment that selects it."""
    for name in ("state/lists/partial", "cache/archives/partial"):
        os.makedirs(os.path.join(work, name))
    settings = (
        f'Dir::State "{work}/state"; Dir::Cache "{work}/cache";\n'
        f'Dir::State::status "/dev/null"; Dir::Etc::sourcelist "{sources}";\n'
        'Dir::Etc::sourceparts "-"; Acquire::Languages "none";\n'
        f'APT::Architecture "{processor}"; APT::Architectures "{processor}";\n'
    )
    return {"APT_CONFIG": write(f"{work}/apt.conf", settings)}
