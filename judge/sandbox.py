# SPDX-License-Identifier: BSD-2-Clause
"""Limits to students' programs: a user without rights, in spaces and control groups of its own. Only in the VM."""
import ctypes
import os
import resource
import time

from memory import read, write

OPEN = "/run/open"  # what students' programs may see
GROUPS = "/run/groups"  # control groups (cgroups(7), version 2)
CLONE_NEWNS, CLONE_NEWIPC = 0x20000, 0x8000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_PRIVATE = 1, 32, 4096, 0x44000
NO_RANDOMIZE = 0x40000
SAID = "/run/said"  # what the two sides print
OTHER = {"server": "client", "client": "server"}
libc = ctypes.CDLL(None, use_errno=True)


def mount(kind, where, options="", flags=0):
    if libc.mount(b"none", where.encode(), kind.encode(), flags, options.encode()):
        raise OSError(ctypes.get_errno(), f"mount {where}")


def room_for_output():
    """A place of its own, so that who prints for ever fills no other."""
    os.mkdir(SAID)
    mount("tmpfs", SAID, "size=8M,mode=700")


def take_charge():
    """Limits to students' programs. Nothing moves while this process works, however long that takes (testenv/init)."""
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(2))
    os.mkdir(GROUPS)
    mount("cgroup2", GROUPS)
    write(f"{GROUPS}/cgroup.subtree_control", "+memory +pids")
    for role in ("server", "client", "build"):
        os.mkdir(f"{GROUPS}/{role}")
        write(f"{GROUPS}/{role}/memory.max", str(160 << 20))
        write(f"{GROUPS}/{role}/pids.max", "64")


def locked_up(role, user, home):
    """In a new process: a user without rights, with limits; nothing can be written but its home, and
    directories and System V objects of its own and its peer's, if that is a student's, too. They end with them.
    """
    write(f"{GROUPS}/{role}/cgroup.procs", str(os.getpid()))
    write("/proc/self/oom_score_adj", "1000")
    try:
        peer = members(OTHER[role])[0]
        spaces = [os.open(f"/proc/{peer}/ns/{kind}", os.O_RDONLY) for kind in ("ipc", "mnt")]
        root = os.open(f"/proc/{peer}/root", os.O_PATH)
        # They are there as long as one of the two is.
        if any(libc.setns(space, 0) for space in spaces):
            raise OSError(ctypes.get_errno(), "setns")
        os.fchdir(root)
        os.chroot(".")
    except (OSError, LookupError):
        if libc.unshare(CLONE_NEWNS | CLONE_NEWIPC):
            raise OSError(ctypes.get_errno(), "unshare") from None
        mount("", "/", flags=MS_PRIVATE)
        mount("", "/", flags=MS_REMOUNT | MS_BIND | MS_RDONLY)
        for place in ("/tmp", "/dev/shm", OPEN + "/home"):
            mount("tmpfs", place, "size=64M,mode=1777")
    os.chdir(home)
    for kind, most in (
        (resource.RLIMIT_CPU, 60),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_MEMLOCK, resource.RLIM_INFINITY),
    ):
        resource.setrlimit(kind, (most, most))
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    libc.personality(NO_RANDOMIZE)  # a compiler, too; for other reasons see Side


def members(role, kind="procs"):
    """A control group's processes, or its threads."""
    return list(map(int, read(f"{GROUPS}/{role}/cgroup.{kind}").split()))


def end(role):
    """All processes of a control group, and so everything that they had."""
    write(f"{GROUPS}/{role}/cgroup.kill", "1")
    for _ in range(1000):
        if not members(role):
            return
        time.sleep(0.005)
