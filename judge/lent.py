# SPDX-License-Identifier: BSD-2-Clause
"""Whether a program touches a buffer that it has lent to the NIC: from ibv_post_send(3) or ibv_post_recv(3) until
it has polled the completion. A watchpoint of the processor tells of a touch, the queues tell what is lent."""
import fcntl
import mmap
import os
import selectors
import struct
from contextlib import suppress
from itertools import product

from pairing import libc
from witness import Wrong, maps, number, rings, span

PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}.get(os.uname().machine)
# struct perf_event_attr (perf_event_open(2)) up to bp_len, and values for it (linux/perf_event.h, hw_breakpoint.h).
ATTRIBUTES, BREAKPOINT, CLOEXEC, STORES, ALL = struct.Struct("=IIQQQQQIIQQ"), 5, 8, 2, 3
ENABLE, DISABLE = 0x2400, 0x2401  # PERF_EVENT_IOC_ENABLE and so on
SIGNALED, INLINE, RECV = 2, 8, 128  # enum ibv_send_flags, enum ibv_wc_opcode
DMA, SGE = {
    "send": 184,
    "receive": 16,
}, 24  # struct rxe_dma_info in both requests, its list (rdma/rdma_user_rxe.h)
# Which queue has the buffers of copy, and what nobody may do with them meanwhile.
# Of 07's client, messages tell what it may use again: only that it packs is seen.
BUFFERS = {
    "05client": ("send", STORES),
    "06client": ("send", ALL),
    "07server": ("receive", ALL),
    "07client": ("send", STORES),
}


def requests(pid, queue, told_by_messages=False, lists=False, least=0):
    """Addresses in one queue of a process with one queue pair, the last one first: of what waits, of what else is lent
    (it is not known to be done), and of all that is done. Nothing, if a peer's messages may tell what is done, unless
    told_by_messages. Of requests with one element, of at least so many bytes; or lists: where each begins, 0 if inline.
    """
    *completions, send, receive = rings(pid)
    if (
        len(completions) > 2 or queue == "send" and receive[1] and not told_by_messages
    ):  # or more queue pairs
        return [], [], []
    told = sum(
        queue == ("receive" if number(held, at * size + 12) >= RECV else "send")
        for size, waiting, held in completions
        for at in range(waiting)
    )  # completions that are not polled yet
    size, waiting, held = send if queue == "send" else receive
    waits, lent = [held[at : at + size] for at in range((waiting - 1) * size, -1, -size)], []
    done = [held[at : at + size] for at in range(len(held) - size, waiting * size - 1, -size)]
    signaled = [queue == "receive" or number(request, 16) & SIGNALED for request in done]
    for request, has_completion in zip(done, signaled if any(signaled) else [True] * len(done)):
        told -= bool(has_completion)
        if told < 0:
            break
        lent.append(request)  # so are those without one, up to the next that has one
    inline = INLINE if queue == "send" else 0
    return [
        [
            0
            if number(request, 16) & inline
            else struct.unpack_from("=Q", request, DMA[queue] + SGE)[0]
            for request in some
            if lists
            or number(request, DMA[queue] + 12) == 1
            and not number(request, 16) & inline
            and number(request, DMA[queue] + SGE + 8) >= least
        ]
        for some in (waits, lent, done)
    ]


def pages(start, length):
    """Those that are wholly inside: QEMU tells of touches beside a watched byte, in its page, too."""
    return range(start + -start % mmap.PAGESIZE, start + length - mmap.PAGESIZE, mmap.PAGESIZE)


class Watched:
    """Bytes in the memory of one side. Pair calls touched."""

    def __init__(self, pair, role):
        self.ready, self.role, self.events, self.on = pair.ready, role, [], True

    def watch(self, kind, places):
        for thread, at in product(threads := os.listdir(f"/proc/{self.pid}/task"), places):
            attributes = ATTRIBUTES.pack(BREAKPOINT, ATTRIBUTES.size, 0, 1, 0, 0, 0, 1, kind, at, 1)
            event = libc.syscall(PERF_EVENT_OPEN, attributes, int(thread), -1, -1, CLOEXEC)
            if event >= 0:
                ring = mmap.mmap(
                    event, 2 * mmap.PAGESIZE, prot=mmap.PROT_READ
                )  # or it wakes nobody
                self.events.append((open(event, "rb", buffering=0), ring))
                self.ready.register(event, selectors.EVENT_READ, self)
        return threads

    def switch(self, on):
        for event, _ in self.events if on != self.on else ():
            fcntl.ioctl(event, ENABLE if on else DISABLE)
        self.on = on

    def end(self):
        """Returns how often it was touched."""
        times = 0
        for event, ring in self.events:
            times += number(event.read(8), 0)
            self.ready.unregister(event)
            ring.close()
            event.close()
        self.events = []
        return times


class Idle(Watched):
    """The blocks of one side, while the NIC gathers from them or scatters into them: no processor has to."""

    def __init__(self, pair, role, held, layout, kind, random, moving):
        """held: their processes and addresses; moving: if messages are under way, tells by which method."""
        super().__init__(pair, role)
        self.pid, base = held[0]
        self.moving, self.spans, at = (
            moving,
            [range(base, base + span(layout)) for _, base in held],
            base + layout.block_size,
        )
        while (at - base) % layout.stride >= layout.block_size:  # in a gap
            at = random.choice(pages(base, span(layout))) + random.randrange(mmap.PAGESIZE)
        self.watch(kind, [at])
        self.switch(False)

    def look(self, method):
        """Do the newest requests name other memory? More than two messages have gone, so they are of this method."""
        with suppress(OSError, ValueError):
            newest = sum(
                requests(self.pid, "receive" if self.role == "server" else "send", True, True), []
            )[:2]
            if (
                newest
                and not any(at in blocks for at in newest for blocks in self.spans)
                and all(
                    any(start <= at < end for start, end, *_ in maps(self.pid)) for at in newest
                )
            ):
                raise Wrong(
                    f"{method}: the {self.role}'s requests name other memory than its blocks while messages are measured"
                )

    def touched(self):
        self.switch(False)
        if method := self.moving():
            raise Wrong(
                f"{method}: the {self.role}'s processor touches its blocks while messages are measured; the NIC has to"
            )


class Lent(Watched):
    """A buffer by which one side moves messages."""

    def __init__(self, pair, side, role, message, random, watched):
        """side: lab and role; watched: buffers that others watch. A byte in each half is watched, or nothing if there is
        no such buffer yet."""
        super().__init__(pair, role)
        (self.queue, kind), self.acked = BUFFERS[side], side == "07client"
        self.requests = lambda: requests(
            self.pid, self.queue, self.acked, least=len(message)
        )  # not of what comes next
        for self.pid in (members := pair.sides[role].members()):
            with suppress(OSError, ValueError), open(
                f"/proc/{self.pid}/mem", "rb", buffering=0
            ) as memory:
                waits, lent, done = self.requests()
                under_way = sorted({*waits, *lent})
                if any(0 < b - a < len(message) for a, b in zip(under_way, under_way[1:])):
                    raise Wrong(
                        f"copy: the {role}'s buffers of two messages that are under way overlap"
                    )
                for self.buffer in (
                    buffer for buffer in waits + lent + done if buffer not in watched
                ):
                    held = os.pread(memory.fileno(), 300, self.buffer)
                    if (
                        held[100:200] in message or held[200:] in message
                    ):  # a bit may just have changed
                        inside = pages(self.buffer, len(message))
                        places = [
                            random.choice(half) + random.randrange(mmap.PAGESIZE)
                            for half in (inside[:7], inside[-6:])
                        ]
                        self.threads, self.kind = self.watch(kind, places), kind
                        self.posted = (done + waits * (kind == STORES)).count(self.buffer)
                        self.used = (
                            self.buffer in waits + lent and len(members) == 1 and self.private()
                        )
                        return

    def private(self):
        """Is there no other address by which it can be touched?"""
        return any(
            rights[3] == "p" and start <= self.buffer < end
            for start, end, rights, *_ in maps(self.pid)
        )

    def touched(self):
        """Whoever did it waits: this process goes before all others."""
        self.switch(False)  # an emulated processor may go on telling of it at each instruction
        with suppress(OSError, ValueError):
            waits, lent, _ = self.requests()
            if self.buffer in waits + lent and not self.acked:
                raise Wrong(
                    f"copy: the {self.role} touches a buffer that it has posted before it has polled the completion"
                )

    def end(self):
        """At a barrier. If a message has come into it since, it must have been read there; or packed there, if it was
        posted again."""
        times = super().end()
        with suppress(OSError, ValueError):
            waits, lent, done = self.requests()
            if self.queue == "send" and waits + lent and not self.acked:
                raise Wrong(
                    f"copy: the {self.role} goes on while it measures before it has polled its requests' completions"
                )
            if (
                self.used
                and not times
                and self.threads == os.listdir(f"/proc/{self.pid}/task")
                and done.count(self.buffer) > self.posted
            ):
                raise Wrong(
                    f"copy: the {self.role} "
                    + (
                        "does not unpack a message from where it came in"
                        if self.kind == ALL
                        else "sends a buffer again into which it has not packed again"
                    )
                )
