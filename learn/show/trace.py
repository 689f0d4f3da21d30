#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs one side of a pair, and writes down what it does, with times of this host's monotonic clock:
    trace.py FOLDER PROGRAM [ARG...]
FOLDER/ROLE.calls: the program's calls (trace.so, see trace.c); ROLE.kernel: what the software NIC does
(kernel probes; needs root); ROLE.said: what the program prints, and how it ends. All are written at
once, so that nothing is lost if somebody ends this side."""
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

TRACE = "/sys/kernel/tracing"
# Functions and arguments are the same from Linux 6.1 to 7.2, but for atomics: there the second of two
# is for 6.3 and later. sk_buff keeps rxe_pkt_info 40 bytes from its start; that has the packet's
# header as its fourth word. What a completion queue entry looks like says ib_uverbs_wc
# (rdma/ib_user_verbs.h).
PROBES = {
    "copy": ["rxe_mr_copy iova=$arg2:x64 len=$arg4:u32 dir=$arg5:u32 data=+0($arg3):x8[64]"],
    "copied": ["rxe_mr_copy error=$retval:s32"],  # a return probe
    "atomic": ["iova_to_vaddr iova=$arg2:x64", "rxe_mr_do_atomic_op iova=$arg2:x64"],
    "sent": ["rxe_xmit_packet bth=+0(+24($arg2)):x8[12]"],
    "request": ["rxe_resp_queue_pkt bth=+0(+64($arg2)):x8[12]"],
    "answer": ["rxe_comp_queue_pkt bth=+0(+64($arg2)):x8[12]"],
    "cqe": [
        "rxe_cq_post wr_id=+0($arg2):u64 status=+8($arg2):u32 opcode=+12($arg2):u32 "
        "bytes=+20($arg2):u32 qpn=+28($arg2):x32"
    ],
}


def write(path, text):
    file = os.open(path, os.O_WRONLY | os.O_APPEND)  # what is there stays: another side's probes
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


class Kernel:
    """The NIC's trace, in an instance of its own: the other side may run on this host, too."""

    def __init__(self, folder, role):
        self.out, self.missing = open(f"{folder}/{role}.kernel", "wb", buffering=0), []
        self.instance, self.ending = f"{TRACE}/instances/{role}", threading.Event()
        self.reader = None
        if not os.path.exists(f"{TRACE}/kprobe_events"):
            subprocess.run(
                ["mount", "-t", "tracefs", "none", TRACE], check=False, stderr=subprocess.DEVNULL
            )
        try:
            self.begin()
        except OSError:
            self.missing = ["all"]

    def begin(self):
        with suppress(FileExistsError):
            os.mkdir(self.instance)
        for name, text in (("trace_clock", "mono"), ("buffer_size_kb", "8192")):
            write(f"{self.instance}/{name}", text)
        for name, forms in PROBES.items():
            for form in forms:
                with suppress(OSError):  # the other side may have made it already
                    if not os.path.exists(f"{TRACE}/events/show/{name}"):
                        write(
                            f"{TRACE}/kprobe_events",
                            f"{'r' if name == 'copied' else 'p'}:show/{name} {form}\n",
                        )
            try:
                write(f"{self.instance}/events/show/{name}/enable", "1")
            except OSError:
                self.missing.append(name)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        pipe = os.open(f"{self.instance}/trace_pipe", os.O_RDONLY | os.O_NONBLOCK)
        ending = False
        while not ending:
            ending = self.ending.wait(0.05)
            with suppress(BlockingIOError):
                while data := os.read(pipe, 1 << 16):
                    self.out.write(data)
        os.close(pipe)

    def end(self):
        if self.reader:
            time.sleep(0.2)  # the NIC may still be at work for the other side
            self.ending.set()
            self.reader.join()
        with suppress(OSError):
            write(f"{self.instance}/events/show/enable", "0")
            os.rmdir(self.instance)
        for name in PROBES:
            with suppress(OSError):  # busy, if the other side is still at work: it removes them
                write(f"{TRACE}/kprobe_events", f"-:show/{name}\n")


def main(folder, *command):
    role = "client" if len(command) > 1 else "server"
    kernel = Kernel(folder, role)
    with open(
        f"{folder}/{role}.said", "w", encoding="utf-8", errors="replace", buffering=1
    ) as said:
        lock = threading.Lock()

        def note(word, text):
            with lock:
                said.write(f"{time.monotonic_ns()} {word} {text}\n")

        def hand_on(name, source, target):
            for line in source:
                note(name, line.rstrip("\n"))
                target.write(line)
                target.flush()

        note("kernel", os.uname().release)
        note("realtime", time.time_ns() - time.monotonic_ns())
        note("missing", ",".join(kernel.missing))
        # Relative: ld.so takes a blank or a colon in there for the end of the name.
        env = {
            **os.environ,
            "LD_PRELOAD": f"{os.path.relpath(folder)}/trace.so",
            "SHOW_CALLS": f"{folder}/{role}.calls",
        }
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=env,
        ) as program:
            signal.signal(signal.SIGTERM, lambda *_: program.terminate())
            readers = [
                threading.Thread(target=hand_on, args=args)
                for args in (
                    ("out", program.stdout, sys.stdout),
                    ("err", program.stderr, sys.stderr),
                )
            ]
            for reader in readers:
                reader.start()
            status = program.wait()
            for reader in readers:
                reader.join()
        note("exit", str(status))
    kernel.end()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
