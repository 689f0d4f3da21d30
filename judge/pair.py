# SPDX-License-Identifier: BSD-2-Clause
"""Runs a server and a client as two processes, and stands between them on TCP: all that they say
to each other passes here, and at a barrier, where both wait, one can look at them. Only in the VM."""
import resource
import selectors
import signal
import socket
import subprocess
import time
from contextlib import contextmanager, suppress

from memory import read
from sandbox import NO_RANDOMIZE, OPEN, OTHER, SAID, end, libc, locked_up, members


PATIENCE = 2  # seconds that a side waits for the other


class Stalled(Exception):
    """The machine under the VM stood still, while the VM's clock went on: programs lose patience."""


@contextmanager
def awake(nap):
    """So many seconds may pass here."""
    late = time.monotonic() + nap + PATIENCE / 2
    yield
    if time.monotonic() > late:
        raise Stalled


def pause(nap=0.005):
    with awake(nap):
        time.sleep(nap)


def undisturbed(function, *arguments):
    """What it returns; called again if the machine stood still."""
    for _ in range(3):
        with suppress(Stalled):
            return function(*arguments)
    return function(*arguments)


def fields(line):
    """The values in a line of text, by name."""
    return dict(word.partition("=")[::2] for word in line.split()[1:] if "=" in word)


class Side:
    """One process of a pair: the reference, or, with a user, a student's program. At the same addresses as in the
    last run: there QEMU has translated the code. away: at others, so that they are not its peer's.
    """

    def __init__(self, role, command, user=None, env=None, away=False):
        self.role, self.student = role, user is not None
        self.left_running = self.stopped = False
        self.output = [f"{SAID}/{role}.{name}" for name in ("out", "err")]
        libc.personality(NO_RANDOMIZE)
        # mmap's addresses are below it. A thread's stack is as large, and must not be larger than the VM's memory.
        stack = (320 if away else 8) << 20
        resource.setrlimit(resource.RLIMIT_STACK, (stack, resource.RLIM_INFINITY))
        if away:
            env = {**(env or {}), "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=1"}
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


def starts(sides, options, patience=PATIENCE):
    """For Run: what starts each side with some words more. sides: by role the program, and what else Side takes; options: the
    client's."""

    def start(role, program, words=(), before=(), **how):
        fixed = [*before, program, *words, f"--timeout={patience}"]
        return lambda more: Side(role, [*fixed, *more], **how)

    return {
        "server": start("server", **sides["server"]),
        "client": start("client", words=options, **sides["client"]),
    }


class Pair:
    """A server and a client, and the wire between them. on(STEP, pair) is called when both wait
    at a barrier of this name or have sent their verdicts ("verdict"), and when one has introduced
    itself ("client's line"), or at times while the client alone waits. said has the last line of each,
    which on may change; it may return "cut" to end the connection."""

    port, lead = 20000, 0  # lead: seconds by which the server goes on before the client
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
                        if not side.stopped:  # for ever
                            side.process.send_signal(signal.SIGCONT)
                        while (
                            not side.ended() and not side.stopped and time.monotonic() < self.until
                        ):
                            pause()
            finally:
                for side in self.sides.values():
                    side.finish()

    def meet(self, listener):
        """The client's connection, and one to the server; or nothing."""
        listener.settimeout(0.02)
        here = None
        while time.monotonic() < self.until and not any(s.ended() for s in self.sides.values()):
            with awake(0.02), suppress(TimeoutError, ConnectionRefusedError):
                here = here or listener.accept()[0]
                there = socket.create_connection(("127.0.0.1", self.port + 1), 1)
                return {"client": here, "server": there}
            pause()
        return None

    def relay(self, ends):
        unread, going = {"server": b"", "client": b""}, True
        with selectors.DefaultSelector() as ready:
            self.ready = ready  # for what else may wake it: something with a method touched
            for role, connection in ends.items():
                ready.register(connection, selectors.EVENT_READ, role)
            while going and time.monotonic() < self.until:
                with awake(self.nap):
                    events = ready.select(self.nap)
                for key, _ in events:
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
            with suppress(OSError):
                ends[OTHER[role]].sendall(self.said[role] + b"\n")
            pause(self.lead)
        return True


class Flow(Pair):
    """Passes each line on at once: for a side that waits for a line before it sends its own."""

    def pass_on(self, ends):
        if len(self.first) < 2:
            return super().pass_on(ends)
        for role in ("client", "server"):
            while self.lines[role]:
                self.said[role] = self.lines[role].pop(0)
                step = self.said[role].decode("ascii", "replace").removeprefix("sync ")
                if self.on(step.split(" ")[0], self) == "cut":
                    return False
                with suppress(OSError):
                    ends[OTHER[role]].sendall(self.said[role] + b"\n")
        return False


class Lead(Pair):
    """At a barrier the server goes on a little before the client: it is to sleep when a message comes."""

    lead = 0.03


class Direct:
    """A server and a client with no TCP between them (11): rdma_cm's port, and its device's address."""

    port, host = 21000, "10.0.0.1"
    waits = (
        True  # with the client until the server says that it waits; and not long for it at the end
    )

    def __init__(self, on, limit=20):
        self.on, self.until, self.said, self.first = on, time.monotonic() + limit, {}, {}

    def run(self, server, client):
        Direct.port += 1
        self.sides = {"server": server([f"--port={self.port}"])}
        try:
            while self.waits and not (
                self.sides["server"].ended()
                or time.monotonic() > self.until
                or any("waiting" in line for line in self.sides["server"].said(0))
            ):
                pause()
            self.sides["client"] = client([f"--port={self.port}", self.host])
            while (
                any(not side.ended() for side in self.sides.values())
                and time.monotonic() < self.until
            ):
                failed = self.sides["client"].ended() and self.sides["client"].process.returncode
                if failed and self.waits:
                    self.until = min(self.until, time.monotonic() + 0.3)
                pause()
        finally:
            for side in self.sides.values():
                side.finish()


class Apart(Direct):
    """The same on TCP: they connect more than once (14), so nobody stands between them. The client waits for the
    server by itself, and the server for another client."""

    host, waits = "127.0.0.1", False
