# SPDX-License-Identifier: BSD-2-Clause
"""What a program did, seen from where it cannot reach: the kernel's software NIC is traced, and its
memory is read by root while it waits at a barrier. Only in the VM."""
import os
import re
import struct
from collections import Counter, namedtuple
from contextlib import contextmanager, suppress

TRACE = "/sys/kernel/tracing"
# The same functions and arguments from Linux 6.1 to 7.2; $argN is the N-th argument on every
# processor (Documentation/trace/kprobetrace.rst). modify_qp gets what libibverbs wrote (struct
# ib_uverbs_modify_qp, rdma/ib_user_verbs.h); rxe_pkt_info has the packet's header as its fourth word:
# opcode first, PSN last (IBTA specification: base transport header).
PROBES = """p:copy rxe_mr_copy mr=$arg1:x64 iova=$arg2:x64 len=$arg4:u32 dir=$arg5:u32
p:register rxe_reg_user_mr addr=$arg2:x64 len=$arg3:u64 iova=$arg4:x64 access=$arg5:x32
r:registered rxe_reg_user_mr mr=$retval:x64
p:create_cq rxe_create_cq cq=$arg1:x64 cqe=+0($arg2):u32
p:create_qp rxe_create_qp qp=$arg1:x64 asked=+72($arg2):u32 scq=+16($arg2):x64 rcq=+24($arg2):x64 send=+48($arg2):u32 receive=+52($arg2):u32
r:ring rxe_queue_init buf=+8($retval):x64
p:modify_qp ib_uverbs:modify_qp mask=+68($arg2):x32 access=+88($arg2):x32 mtu=+98($arg2):u8 asks=+101($arg2):u8 answers=+102($arg2):u8 timeout=+105($arg2):u8 retry_cnt=+106($arg2):u8
p:packet rxe_xmit_packet qp=$arg1:x64 opcode=+0(+24($arg2)):x8 psn=+8(+24($arg2)):x32
p:cq_error ib_uverbs_cq_event_handler
p:free_mr rxe_dereg_mr mr=$arg1:x64
p:free_qp rxe_destroy_qp
p:free_cq rxe_destroy_cq
p:free_pd rxe_dealloc_pd
p:free_completion_channel uverbs_completion_event_file_destroy_uobj
p:exits do_exit
p:closing uverbs_destroy_ufile_hw
r:closed uverbs_destroy_ufile_hw
"""
# The trace as it lies in the kernel (events/header_page, header_event): its text takes far more time. Of an
# event: its length in words (of 5 bits; from 29 on it is none), its number, more flags, the thread.
PAGE, EVENT, SIZES = (
    struct.Struct("=QQ"),
    struct.Struct("=IHHi"),
    {"u8": "B", "x8": "B", "16": "H", "32": "I", "64": "Q"},
)
COUNTERS = "/sys/class/infiniband/rxe0/ports/1/hw_counters/"
DEVICE = "infiniband/uverbs0"  # its queues in a process's map, where /dev may be of another mount
HEAD = 384  # bytes before a queue's elements
ERROR = (1 << 64) - 4096  # pointers from here on are error numbers
# SEND, WRITE: first or only packet, without and with immediate data or key; READ request.
FIRST = {0x00, 0x04, 0x05, 0x06, 0x0A, 0x0B, 0x0C, 0x17}

Layout = namedtuple("Layout", "block_size block_num stride")
Region = namedtuple("Region", "addr length iova access thread")
Copy = namedtuple("Copy", "thread addr length writes")  # writes: into that memory, by the NIC
# sent: messages by thread. Pairs of a thread and, left: what it did not give back; queues: kind, and of a send
# queue whether only those requests are signalled that ask for it. attributes of a QP, by the names below:
# mtu as enum ibv_mtu; asks, answers: READs and atomics of its own at a time, and of its peer's.
Seen = namedtuple("Seen", "regions copies sent left queues attributes")
MASKS = {
    "access": 1 << 3,
    "mtu": 1 << 8,
    "timeout": 1 << 9,
    "retry_cnt": 1 << 10,
    "asks": 1 << 13,
    "answers": 1 << 17,
}  # ibv_modify_qp(3)


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def read(path):
    with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
        return file.read()


def counter(name):
    """Of this device: sent_pkts, packets; send_rnr_err, NAKs that it has sent because a SEND found no receive."""
    return int(read(COUNTERS + name))


class Wrong(Exception):
    """What a program did wrong, in words for its writer."""


class Nic:
    """Soft-RoCE, watched."""

    def __init__(self, probes=PROBES):
        write(COUNTERS + "lifespan", "0")  # or what one reads may be 10 ms old
        write(f"{TRACE}/buffer_size_kb", "4096")
        events = os.open(
            f"{TRACE}/kprobe_events", os.O_WRONLY
        )  # not truncated: what is there stays
        for probe in probes.splitlines():
            event = f"{TRACE}/events/kprobes/{probe[2:].split()[0]}"
            if not os.path.exists(event):  # a stopped VM may have it already
                os.write(events, probe.encode())
                write(f"{event}/enable", "1")
        if "p:packet " in probes:  # the others are not even written down
            write(
                f"{TRACE}/events/kprobes/packet/filter",
                " || ".join(f"opcode == {opcode}" for opcode in FIRST),
            )
        self.kinds = dict(map(self.kind, probes.splitlines()))
        self.raw, self.known = (
            os.open(f"{TRACE}/per_cpu/cpu0/trace_pipe_raw", os.O_RDONLY | os.O_NONBLOCK),
            [],
        )
        self.inside = None  # where in rxe's structure of a region that is which verbs know

    @staticmethod
    def kind(probe):
        """An event's number; its name, where its fields lie, and their names."""
        about, _, *fields = probe.split()
        where = (
            "=16x" if about[0] == "p" else "=24x"
        )  # behind what all have: the thread, one place in the kernel or two
        return int(read(f"{TRACE}/events/kprobes/{about[2:]}/id")), (
            about[2:],
            struct.Struct(where + "".join(SIZES[f[-2:]] for f in fields)),
            [f.partition("=")[0] for f in fields],
        )

    @contextmanager
    def unwatched(self, *events):
        """For measuring, and for more copies or packets than are worth looking at: watching takes time.
        events: "copy/", say; "": all. Without any, the probes stay, and nothing is written down: that switches at once.
        """
        switches = [f"{TRACE}/events/kprobes/{event}enable" for event in events] or [
            f"{TRACE}/tracing_on"
        ]
        for switch in switches:
            write(switch, "0")
        try:
            yield
        finally:
            for switch in switches:
                write(switch, "1")

    def forget(self):
        """From here on events count."""
        write(f"{TRACE}/trace", "")
        write(f"{TRACE}/tracing_on", "1")
        self.known = []

    def events(self):
        """All that happened, in order: thread, kind, and what is known of it."""
        with suppress(BlockingIOError):  # that was all
            while page := os.read(self.raw, 1 << 16):
                at, end = PAGE.size, PAGE.size + (PAGE.unpack_from(page)[1] & 0xFFFFF)
                while at < end:
                    head, number, rest, thread = EVENT.unpack_from(page, at)
                    whole = 4 * (head & 31) if 0 < head & 31 < 29 else 0
                    if whole and number in self.kinds:
                        name, fields, names = self.kinds[number]
                        self.known.append(
                            (thread, name, dict(zip(names, fields.unpack_from(page, at + 4))))
                        )
                    at += 4 + (
                        whole or (4 if head & 31 > 29 else number | rest << 16)
                    )  # a time; nothing
        return self.known

    def seen(self, events=None):
        events = events or self.events()
        if re.search(r"(?m)^overrun: [1-9]", read(f"{TRACE}/per_cpu/cpu0/stats")):
            raise RuntimeError("more happened than could be watched")
        if self.inside is None and (used := {f["mr"] for _, kind, f in events if kind == "copy"}):
            known = {f["mr"] for _, kind, f in events if kind in ("registered", "free_mr")}
            self.inside = next(
                (d for d in range(0, 512, 8) if all(mr + d in known for mr in used)), None
            )
        inside = self.inside or 0
        seen = Seen([], [], Counter(), [], [], {name: [] for name in MASKS})
        now, asked, creator, packets, closing, exiting = {}, {}, {}, set(), set(), set()
        for thread, kind, f in events:
            if kind == "copy":
                if region := now.get(f["mr"] + inside):
                    seen.copies.append(
                        Copy(
                            region.thread,
                            region.addr + f["iova"] - region.iova,
                            f["len"],
                            f["dir"] == 0,
                        )
                    )
            elif kind == "register":
                asked[thread] = Region(f["addr"], f["len"], f["iova"], f["access"], thread)
            elif kind == "registered" and thread in asked and f["mr"] < ERROR:
                now[f["mr"]] = asked.pop(thread)
                seen.regions.append(now[f["mr"]])
            elif kind == "create_qp":
                creator[f["qp"]] = thread
                seen.queues.extend([(thread, "send", f["asked"]), (thread, "receive", 0)])
            elif kind == "create_cq":
                seen.queues.append((thread, "completion", 0))
            elif kind == "modify_qp":
                for name, mask in MASKS.items():
                    seen.attributes[name] += [(thread, f[name])] if f["mask"] & mask else []
            elif kind == "packet" and (*f.values(),) not in packets:
                packets.add((*f.values(),))  # a repeated one counts once
                seen.sent[creator.get(f["qp"])] += 1
            elif kind == "cq_error":
                raise Wrong("there is no room for a completion in its queue (IBV_EVENT_CQ_ERR)")
            elif kind == "exits":
                exiting.add(thread)
            elif kind == "closing":
                closing.add(thread)
            elif kind == "closed":
                closing.discard(thread)
                seen.left.extend([(thread, "the device")] * (thread in exiting))
            elif kind[:5] == "free_" and thread in closing:  # the kernel frees what was left
                seen.left.append((thread, "a " + kind[5:].replace("_", " ")))
        return seen


def merged(pieces):
    """Pairs of start and length, sorted; what touches becomes one."""
    out = []
    for start, length in sorted(pieces):
        if out and start <= out[-1][0] + out[-1][1]:
            out[-1][1] = max(out[-1][1], start + length - out[-1][0])
        else:
            out.append([start, length])
    return out


def last(pieces, length):
    """Those of the last message, if those of the others look the same: each may have had other memory."""
    messages, missing = [], 0
    for piece in pieces:
        if missing <= 0:
            messages.append([])
            missing = length
        messages[-1].append(piece)
        missing -= piece[1]
    shapes = {
        tuple((addr - shape[0][0], n) for addr, n in shape) for shape in map(merged, messages)
    }
    return messages[-1] if len(shapes) == 1 else pieces


def maps(pid):
    """Its mappings (proc(5)): start, end, rights, offset, inode, name."""
    for line in read(f"/proc/{pid}/maps").splitlines():
        extent, rights, offset, _, inode, *name = line.split()
        yield *(int(x, 16) for x in extent.split("-")), rights, int(offset, 16), inode, "".join(
            name
        )


def used(pid, start, end):
    """The parts of a mapping to look at: all of a small one; of a large one, what has been used (proc(5), pagemap)."""
    if not 8 << 20 < end - start <= 1 << 30:
        return [(start, end)]
    with open(
        f"/proc/{pid}/pagemap", "rb", buffering=0
    ) as pages:  # 8 bytes a page; the highest bit: it is there
        there = os.pread(pages.fileno(), end - start >> 9, start >> 9)[7::8]
    return [
        (start + (run.start() << 12), start + (run.end() << 12))
        for run in re.finditer(rb"(?s)[\x80-\xff](?:.{0,99}[\x80-\xff])*", there)
    ]


class Memory:
    """The data of some processes, at one moment."""

    MOST = 64 << 20  # bytes that are looked at

    def __init__(self, pids):
        self.pieces, room = [], self.MOST
        for pid in pids:
            with suppress(OSError), open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
                for start, end, rights, _, inode, name in maps(pid):
                    data = rights[0] == "r" and (
                        rights[1] == "w" or rights[3] == "s" or inode == "0"
                    )
                    for a, b in used(pid, start, end) if data and not name.endswith(DEVICE) else ():
                        if b - a <= room:
                            room -= b - a
                            with suppress(OSError):
                                self.add(pid, a, os.pread(memory.fileno(), b - a, a))

    def add(self, pid, start, data):
        """An array may lie in two mappings, one behind the other: what is not zero at first, and the rest."""
        for of, first, before in self.pieces[-1:]:
            if (of, first + len(before)) == (pid, start):
                start, data = first, before + data
                self.pieces.pop()
        self.pieces.append((pid, start, data))

    def at(self, addr, length):
        """By process: the bytes there."""
        return {
            pid: data[addr - start : addr - start + length]
            for pid, start, data in self.pieces
            if start <= addr and addr + length <= start + len(data)
        }

    def find(self, layout, message):
        """Where the message stands in blocks of this layout: pairs of process and address."""
        few = min(layout.block_num, max(1, 64 // layout.block_size))
        needle = re.compile(
            b"(?s)"
            + (b".{%d}" % (layout.stride - layout.block_size)).join(
                re.escape(message[i * layout.block_size : (i + 1) * layout.block_size][:64])
                for i in range(few)
            )
        )
        for pid, start, data in self.pieces:
            at = needle.search(data)
            while at:
                held = data[at.start() : at.start() + span(layout)]
                if len(held) == span(layout) and with_message(layout, held, message) == held:
                    yield pid, start + at.start()
                at = needle.search(data, at.start() + 1)


def span(layout):
    return layout.stride * (layout.block_num - 1) + layout.block_size


def with_message(layout, held, message):
    """A span with this message in its blocks, and its gaps as they were."""
    right, (size, number, stride) = bytearray(held), layout
    for i in range(
        min(size, number)
    ):  # by blocks, or by what stands first, second and so on in each: the fewer
        which, of = (
            (slice(i, None, stride), slice(i, None, size))
            if size < number
            else (slice(i * stride, i * stride + size), slice(i * size, (i + 1) * size))
        )
        right[which] = message[of]
    return right


def difference(layout, right, held):
    """The first byte of a span that is not right, as words; None if all are."""
    if right == held:
        return None
    i = next(i for i, (a, b) in enumerate(zip(right, held)) if a != b)
    block, byte = divmod(i, layout.stride)
    where = (
        f"byte {byte} of block {block}"
        if byte < layout.block_size
        else f"byte {byte - layout.block_size} of the gap behind block {block}"
    )
    return f"{where} is 0x{held[i]:02x}, not 0x{right[i]:02x}"


def rings(pid, recent=99):
    """A process's queues, in the order in which they were made: size of an element, how many are posted and not yet
    taken, the bytes of these, and behind them of those that were taken: recent at most, the last one last.
    """
    found, out = [
        (at, start, end - start)
        for start, end, _, at, _, name in maps(pid)
        if name.endswith(DEVICE)
    ], []
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for _, at, length in sorted(
            found
        ):  # struct rxe_queue_buf (rdma/rdma_user_rxe.h), which the process may overwrite
            head = os.pread(memory.fileno(), HEAD, at)
            size, made, taken = 1 << min(16, number(head, 0)), number(head, 128), number(head, 256)
            most = min(length // size, number(head, 4))
            waiting = made - taken & most
            before = min(recent, most + 1 - waiting)
            first = (taken - before & most) * size
            held = os.pread(
                memory.fileno(),
                min((before + waiting) * size, (most + 1) * size - first),
                at + HEAD + first,
            )
            held += os.pread(
                memory.fileno(), (before + waiting) * size - len(held), at + HEAD
            )  # round its end
            out.append((size, waiting, held[before * size :] + held[: before * size]))
    return out


def number(data, at):
    return int.from_bytes(data[at : at + 4], "little")


def poke(places, change):
    """Changes bits of the bytes at these places, as process and address. They may be the same memory, or not there."""
    files = []
    for pid, addr in places:
        with suppress(OSError, IndexError):
            file = open(f"/proc/{pid}/mem", "r+b", buffering=0)
            files.append((file, addr, os.pread(file.fileno(), 1, addr)[0]))
    for file, addr, byte in files:
        with suppress(OSError), file:
            os.pwrite(file.fileno(), bytes([byte ^ change]), addr)


def apart(sides):
    """Nothing is mapped by processes of both sides of a pair, where one of them may write."""
    mapped = [
        [
            ((inode, name), rights)
            for pid in side.members()
            for _, _, rights, _, inode, name in maps(pid)
            if rights[3] == "s" and not name.endswith(DEVICE)
        ]
        for side in sides.values()
    ]
    both = set.intersection(*({what for what, _ in each} for each in mapped))
    for what, rights in sum(mapped, []):
        if what in both and rights[1] == "w":
            raise Wrong(f"both sides have mapped {what[1]}: data may go that way")
