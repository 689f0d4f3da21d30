# SPDX-License-Identifier: BSD-2-Clause
"""What stands in a process's memory, read by root while it waits at a barrier; layouts of blocks; and the queues that
it shares with the kernel. Only in the VM."""
import os
import re
import struct
from collections import namedtuple
from contextlib import suppress

DEVICE = "infiniband/uverbs0"  # its queues in a process's map, where /dev may be of another mount
HEAD = 384  # bytes before a queue's elements
Layout = namedtuple("Layout", "block_size block_num stride")
# What stands in a queue: a request, a receive.
Request = namedtuple("Request", "wr_id opcode flags remote rkey num_sge sges")
Receive = namedtuple("Receive", "wr_id num_sge sges")


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def read(path):
    with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
        return file.read()


class Wrong(Exception):
    """What a program did wrong, in words for its writer."""


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
    # By blocks, or by what stands first, second and so on in each: the fewer.
    for i in range(min(size, number)):
        if size < number:
            right[i::stride] = message[i::size]
        else:
            right[i * stride : i * stride + size] = message[i * size : (i + 1) * size]
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
    found, out = [each for each in maps(pid) if each[-1].endswith(DEVICE)], []
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        # struct rxe_queue_buf (rdma/rdma_user_rxe.h), which the process may overwrite
        for at, end, *_ in sorted(found, key=lambda each: each[3]):
            head = os.pread(memory.fileno(), HEAD, at)
            size, made, taken = 1 << min(16, number(head, 0)), number(head, 128), number(head, 256)
            most = min((end - at) // size, number(head, 4))
            waiting = made - taken & most
            before = min(recent, most + 1 - waiting)
            first = (taken - before & most) * size
            length = (before + waiting) * size
            straight = min(length, (most + 1) * size - first)
            held = os.pread(memory.fileno(), straight, at + HEAD + first)
            held += os.pread(memory.fileno(), length - straight, at + HEAD)  # round its end
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


def sges(element, at, number, most=32):
    return [
        struct.unpack_from("QII", element, at + 16 * i)
        for i in range(min(number, most))
        if at + 16 * i + 16 <= len(element)
    ]


def request(element):
    wr_id, _, opcode, flags = struct.unpack_from("QIII", element)
    remote, rkey = struct.unpack_from("QI", element, 24)
    number = struct.unpack_from("I", element, 196)[0]
    return Request(wr_id, opcode, flags, remote, rkey, number, sges(element, 208, number))


def receive(element):
    number = struct.unpack_from("I", element, 28)[0]
    return Receive(struct.unpack_from("Q", element)[0], number, sges(element, 40, number))
