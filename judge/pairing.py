# SPDX-License-Identifier: BSD-2-Clause
"""Runs a server and a client as two processes, and stands between them on TCP: all that they say
to each other passes here, and at a barrier, where both wait, one can look at them. Only in the VM."""
import ctypes
import os
import resource
import selectors
import socket
import subprocess
import time
from contextlib import suppress

from witness import read, write

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
        if any(
            libc.setns(space, 0) for space in spaces
        ):  # they are there as long as one of the two is
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


def fields(line):
    """The values in a line of text, by name."""
    return dict(word.partition("=")[::2] for word in line.split()[1:] if "=" in word)


def members(role, kind="procs"):
    """A control group's processes, or its threads."""
    return list(map(int, read(f"{GROUPS}/{role}/cgroup.{kind}").split()))


def listens(user):
    """The TCP ports on which a user's processes wait for a connection (proc_net_tcp)."""
    sockets = [
        line.split() for name in ("tcp", "tcp6") for line in read(f"/proc/net/{name}").splitlines()
    ]
    return {
        int(line[1].split(":")[1], 16)
        for line in sockets
        if line[3] == "0A" and line[7] == str(user)
    }


def end(role):
    """All processes of a control group, and so everything that they had."""
    write(f"{GROUPS}/{role}/cgroup.kill", "1")
    for _ in range(1000):
        if not members(role):
            return
        time.sleep(0.005)


class Side:
    """One process of a pair: the reference, or, with a user, a student's program. At the same addresses as in the
    last run: there QEMU has translated the code. Where the reference is, or who is away, they are no peer's.
    """

    away = ("server", "client")

    def __init__(self, role, command, user=None, env=None):
        self.role, self.student, self.left_running, self.stopped = (
            role,
            user is not None,
            False,
            False,
        )
        self.output = [f"{SAID}/{role}.{name}" for name in ("out", "err")]
        away = role in self.away and not self.student
        libc.personality(NO_RANDOMIZE)
        resource.setrlimit(
            resource.RLIMIT_STACK, (8 << 20 + 6 * away, resource.RLIM_INFINITY)
        )  # mmap's is below it
        env = {
            **(env or {}),
            **({"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=1"} if away else {}),
        }
        with open(self.output[0], "wb") as out, open(self.output[1], "wb") as err:
            # pylint: disable-next=subprocess-popen-preexec-fn # there is one thread
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=env,
                cwd="/",
                preexec_fn=(lambda: locked_up(role, user, OPEN + "/home"))
                if self.student
                else None,
            )

    def members(self, kind="procs"):
        """Its processes, or threads."""
        return members(self.role, kind) if self.student else [self.process.pid]

    def ended(self):
        return self.process.poll() is not None

    def finish(self):
        """Ends what is left of it."""
        self.left_running = self.ended() and self.student and bool(self.members())
        self.process.kill()
        if self.student:
            end(self.role)
        self.process.wait()

    def said(self, *which):
        """What it has printed: the lines of its stdout (0), of its stderr (1)."""
        return [
            line for one in which for line in read(self.output[one]).split("\n") if line.strip()
        ]


class Pair:
    """A server and a client, and the wire between them. on(STEP, pair) is called when both wait
    at a barrier of this name or have sent their verdicts ("verdict"), and when one has introduced
    itself ("client's line"), or at times while the client alone waits. said has the last line of each,
    which on may change; it may return "cut" to end the connection."""

    port, lead = 20000, 0  # lead: seconds by which the server goes on before the client
    pieces = False  # a line comes in two
    nap = 0.5  # seconds after which on("meanwhile", pair) is called, if nothing comes

    def __init__(self, on, limit=20):
        self.on, self.until = on, time.monotonic() + limit
        self.said, self.lines = {}, {"server": [], "client": []}
        self.first = {}  # the line with which each introduced itself

    def run(self, server, client):
        """server, client: start a side with these arguments more."""
        Pair.port = 20000 + (Pair.port + 2) % 10000  # below those that the kernel takes itself
        with socket.create_server(("127.0.0.1", self.port)) as listener:
            self.sides = {
                "server": server([f"--port={self.port + 1}"]),
                "client": client([f"--port={self.port}", "127.0.0.1"]),
            }
            try:
                ends = self.meet(listener)
                if ends:
                    self.relay(ends)
                    for side in self.sides.values():  # to end by itself
                        while (
                            not side.ended() and not side.stopped and time.monotonic() < self.until
                        ):
                            time.sleep(0.005)
            finally:
                for side in self.sides.values():
                    side.finish()

    def meet(self, listener):
        """The client's connection, and one to the server; or nothing."""
        listener.settimeout(0.02)
        here = None
        while time.monotonic() < self.until and not any(s.ended() for s in self.sides.values()):
            try:
                here = here or listener.accept()[0]
                there = socket.create_connection(("127.0.0.1", self.port + 1), 1)
                return {"client": here, "server": there}
            except (TimeoutError, ConnectionRefusedError):
                time.sleep(0.005)
        return None

    def relay(self, ends):
        unread, going = {"server": b"", "client": b""}, True
        with selectors.DefaultSelector() as ready:
            self.ready = ready  # for what else may wake it: something with a method touched
            for role, connection in ends.items():
                ready.register(connection, selectors.EVENT_READ, role)
            while going and time.monotonic() < self.until:
                for key, _ in (events := ready.select(self.nap)):
                    if key.data not in ends:
                        key.data.touched()
                        continue
                    data = b""
                    with suppress(OSError):
                        data = key.fileobj.recv(4096)
                    *lines, unread[key.data] = (unread[key.data] + data).split(b"\n")
                    self.lines[key.data] += lines
                    going = going and data and len(unread[key.data]) < 4096
                if all(key.data not in ends for key, _ in events):
                    self.on("meanwhile", self)
                while self.pass_on(ends):
                    pass
                if len(self.first) == 2 and self.lines["client"] and not self.lines["server"]:
                    self.on("client waits", self)
        for role, connection in ends.items():
            with suppress(OSError):  # it has gone; how it ended, tells
                connection.sendall(b"".join(line + b"\n" for line in self.lines[OTHER[role]]))
            connection.close()

    def pass_on(self, ends):
        """The client's line, then the server's, then one of each at a time; if they are there."""
        turns = [("client",), ("server",), ("server", "client")][min(len(self.first), 2)]
        if not all(self.lines[role] for role in turns):
            return False
        for role in turns:
            self.said[role] = self.lines[role].pop(0)
            self.first.setdefault(role, self.said[role])
        words = self.said[turns[0]].decode("ascii", "replace").split() or [""]
        step = (
            f"{turns[0]}'s line"
            if len(turns) == 1
            else words[words[0] == "sync" and len(words) > 1]
        )
        if self.on(step, self) == "cut":
            for connection in ends.values():
                connection.shutdown(socket.SHUT_RDWR)
            return False
        for role in reversed(turns) if self.lead else turns:
            line, cut = self.said[role] + b"\n", 6 if self.pieces else 1024
            with suppress(OSError):
                ends[OTHER[role]].sendall(line[:cut])
                time.sleep(0.002 if line[cut:] else 0)
                ends[OTHER[role]].sendall(line[cut:])
            time.sleep(self.lead)
        return True
