#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs one side of a pair, and writes down what it does, with times of this host's monotonic clock:
    trace.py FOLDER HOSTS PROGRAM [ARG...]
FOLDER/ROLE.calls: the program's calls (trace.so, see trace.c); ROLE.kernel: what the software NIC does
(kernel probes; needs root; on one host the server's file has both sides'); ROLE.missing: the kernel, and what it
can't tell; ROLE.said: what the program prints, and how it ends. All are written at once, so that
nothing is lost if somebody ends this side."""
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

TRACE = "/sys/kernel/tracing"
INSTANCE = f"{TRACE}/instances/show"
# Functions and arguments are the same from Linux 6.1 to 7.2, but for atomics: there the second of two
# is for 6.3 and later. sk_buff keeps rxe_pkt_info 40 bytes from its start; that has the packet's
# header as its fourth word. What a completion queue entry looks like says ib_uverbs_wc
# (rdma/ib_user_verbs.h).
PROBES = (
    "p:show/copy rxe_mr_copy addr=$arg2:x64 len=$arg4:u32 dir=$arg5:u32 data=+0($arg3):x8[64]",
    "r:show/copied rxe_mr_copy error=$retval:s32",
    "p:show/atomic iova_to_vaddr addr=$arg2:x64",
    "p:show/atomic rxe_mr_do_atomic_op addr=$arg2:x64",
    "p:show/sent rxe_xmit_packet bth=+0(+24($arg2)):x8[12]",
    "p:show/request rxe_resp_queue_pkt bth=+0(+64($arg2)):x8[12]",
    "p:show/answer rxe_comp_queue_pkt bth=+0(+64($arg2)):x8[12]",
    "p:show/cqe rxe_cq_post wr_id=+0($arg2):u64 status=+8($arg2):u32 opcode=+12($arg2):u32"
    " bytes=+20($arg2):u32 qpn=+28($arg2):x32",
)
NAMES = sorted({probe[7:].split()[0] for probe in PROBES})


def write(path, text):
    with open(path, "rb+", buffering=0) as file:  # not emptied: other people's probes stay
        file.write(text.encode())


class Kernel:
    """The NIC's trace, in an instance of its own."""

    def __init__(self, path):
        self.ending, self.reader = threading.Event(), None
        try:
            self.missing = self.begin()
        except OSError:
            self.missing = ["all"]
            return
        self.reader = threading.Thread(target=self.read, args=(path,))
        self.reader.start()

    @staticmethod
    def begin():
        """Starts the trace. What this kernel can't tell."""
        os.makedirs(INSTANCE, exist_ok=True)
        write(f"{INSTANCE}/trace_clock", "mono")
        write(f"{INSTANCE}/buffer_size_kb", "8192")
        missing = []
        for probe in PROBES:
            with suppress(OSError):  # one of the two for atomics
                write(f"{TRACE}/kprobe_events", f"{probe}\n")
        for name in NAMES:
            try:
                write(f"{INSTANCE}/events/show/{name}/enable", "1")
            except OSError:
                missing.append(name)
        return missing

    def read(self, path):
        pipe = os.open(f"{INSTANCE}/trace_pipe", os.O_RDONLY | os.O_NONBLOCK)
        with open(path, "wb", buffering=0) as out:
            ending = False
            while not ending:
                ending = self.ending.wait(0.05)
                with suppress(BlockingIOError):
                    while data := os.read(pipe, 1 << 16):
                        out.write(data)
        os.close(pipe)

    def end(self):
        if not self.reader:
            return
        time.sleep(0.2)  # the NIC may still be at work for the other side
        self.ending.set()
        self.reader.join()
        with suppress(OSError):
            write(f"{INSTANCE}/events/show/enable", "0")
            os.rmdir(INSTANCE)
        for name in NAMES:
            with suppress(OSError):
                write(f"{TRACE}/kprobe_events", f"-:show/{name}\n")


class Said:
    """What a program prints, each line with its time, on its way to where it belongs."""

    def __init__(self, path):
        self.file = open(path, "wb", buffering=0)

    def note(self, name, text):
        self.file.write(f"{time.monotonic_ns()} {name} {text}\n".encode())

    def hand_on(self, name, source, target):
        for line in source:
            self.note(name, line.rstrip("\n"))
            target.write(line)
            target.flush()


def run(command, said, **env):
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, **env},
    ) as program:
        signal.signal(signal.SIGTERM, lambda *_: program.terminate())
        streams = ("out", program.stdout, sys.stdout), ("err", program.stderr, sys.stderr)
        readers = [threading.Thread(target=said.hand_on, args=args) for args in streams]
        for reader in readers:
            reader.start()
        status = program.wait()
        for reader in readers:
            reader.join()
    said.note("exit", f"status={status}")
    return status if status >= 0 else 128 - status


def main(folder, hosts, *command):
    role = "client" if len(command) > 1 else "server"
    files = f"{folder}/{role}"
    kernel = Kernel(f"{files}.kernel") if hosts == "2" or role == "server" else None
    if kernel:
        with open(f"{files}.missing", "w", encoding="ascii") as file:
            file.write(" ".join([os.uname().release, *kernel.missing]))
    # Relative: ld.so takes a blank or a colon in there for the end of the name.
    preloaded = f"{os.path.relpath(folder)}/trace.so"
    status = run(command, Said(f"{files}.said"), LD_PRELOAD=preloaded, SHOW_CALLS=f"{files}.calls")
    if kernel:
        kernel.end()
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
