#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Peers for 02, 04 and 07 from the documents alone: peer.py SAMPLE [options] [HOST-IF-CLIENT]"""
import argparse
import ctypes
import mmap
import os
import re
import socket
import struct
import time
from ipaddress import IPv6Address

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

from pairs import MASK, fnv1a, pattern

UNACKED, ACK_AFTER, ACK_RECEIVES = 1024, 256, 16  # 07's flow control
MTUS = [256, 512, 1024, 2048, 4096]
ADD, SWAP = e.IBV_WR_ATOMIC_FETCH_AND_ADD, e.IBV_WR_ATOMIC_CMP_AND_SWP
HEX, NUMBER, WORD = "0x[0-9a-f]{1,16}", "[0-9]{1,20}", "[^ ,]+"
LINE = {
    **{"sample": WORD, "lid": HEX, "qpn": HEX, "psn": HEX, "gid": WORD, "mtu": NUMBER},
    **{"addr": HEX, "rkey": HEX, "len": NUMBER, "max_sge": NUMBER, "rd_atomic": NUMBER},
    "work": ".*",
}
WORK = dict.fromkeys(["size", "iters", "seed", "timeout"], NUMBER)
BLOCKS = dict.fromkeys(["block_size", "block_num", "stride"], NUMBER)
WORKS = {
    "02_send_recv": WORK,
    "04_atomic": WORK,
    "07_gssr": {**WORK, **BLOCKS, "method": WORD, "depth": NUMBER, "sizes": ".+"},
}


def require(holds, text):
    if not holds:
        raise ValueError(text)


def parse(text, head, fields, separator):
    """Text is head and then all fields in this order; returns their values."""
    found = re.fullmatch(head + separator.join(f"{k}=({v})" for k, v in fields.items()), text)
    require(found, "this is not understood: " + text)
    values = {}
    for (name, kind), value in zip(fields.items(), found.groups()):
        values[name] = int(value, 0 if kind == HEX else 10) if kind in (HEX, NUMBER) else value
    return argparse.Namespace(**values)


def poison(size, seed):
    return bytes(byte ^ 0xFF for byte in pattern(size, seed))


def layout_of_student(text):
    """block_size, block_num, stride, seed."""
    words = pattern(32, fnv1a(text.encode()))
    r = [int.from_bytes(words[8 * k :][:8], "little") for k in range(4)]
    block_size, block_num = 17 + 2 * (r[0] % 1000), 33 + r[1] % 168
    while block_num % 30 == 0 or block_num % 32 == 0:
        block_num += 1
    return block_size, block_num, block_size + 1 + r[2] % 999, r[3]


class Memory:
    """Registered memory of size bytes."""

    def __init__(self, pd, size, access=0):
        self.bytes = memoryview(mmap.mmap(-1, size))
        self.addr, self.size = ctypes.addressof(ctypes.c_char.from_buffer(self.bytes)), size
        self.mr = MR(pd, size, e.IBV_ACCESS_LOCAL_WRITE | access, address=self.addr)

    def sge(self, offset=0, length=None):
        return SGE(self.addr + offset, self.size if length is None else length, self.mr.lkey)


class Peer:
    """One side: its TCP connection, device and queue pair. A server has its client's line."""

    def __init__(self, sample, port, host=None, timeout=60, mtu=0):
        self.sample, self.client, self.timeout = sample, bool(host), timeout
        if host:
            self.socket = socket.create_connection((host, port), timeout)
        else:
            any_address = {"family": socket.AF_INET6, "dualstack_ipv6": True}
            with socket.create_server(("", port), **any_address) as listener:
                self.socket = listener.accept()[0]
        self.socket.settimeout(timeout)
        self.line = None if host else self.hear_line()
        self.context = Context(name=get_device_list()[0].name.decode())
        port_attr = self.context.query_port(1)
        gids = [
            (
                socket.inet_ntop(socket.AF_INET6, IPv6Address(entry.gid_str()).packed),
                entry.gid_index,
            )
            for entry in self.context.query_gid_table(256)
            if entry.gid_type == e.IBV_GID_TYPE_ROCE_V2
        ]
        self.gid, self.gid_index = next(gid for gid in gids if not gid[0].startswith("fe80:"))
        self.mtu = mtu or 128 << port_attr.active_mtu
        self.pd = PD(self.context)

    def say(self, line):
        self.socket.sendall(line.encode("ascii") + b"\n")

    def hear(self):
        line = b""
        while not line.endswith(b"\n"):
            byte = self.socket.recv(1)
            require(byte and len(line) < 1024, "the peer closed, or its line is too long")
            line += byte
        require(re.fullmatch(rb"[ -~]*\n", line), "the peer's line is not printable ASCII")
        return line.decode().rstrip("\n")

    def hear_line(self):
        line = parse(self.hear(), "hello-verbs/2 ", LINE, " ")
        require(line.sample == self.sample, f"the other side runs {line.sample}")
        limits = (
            line.qpn < 2**24 and line.psn < 2**24 and line.rkey < 2**32 and line.lid < 2**16
        )
        require(limits and line.mtu in MTUS and line.max_sge, "a field is out of range")
        return line

    def swap(self, line, wanted):
        self.say(line)
        answer = self.hear()
        require(answer in wanted, f"wanted {wanted}, but the peer said: {answer}")
        return answer

    def sync(self, step):
        self.swap("sync " + step, ["sync " + step])

    def verdict(self):
        return self.swap("verdict PASS", ["verdict FAIL", "verdict PASS"]) == "verdict PASS"

    def create_qp(self, sends=1, receives=1, max_sge=1):
        self.scq, self.rcq = CQ(self.context, sends), CQ(self.context, receives)
        self.max_sge, cap = max_sge, QPCap(sends, receives, max_sge, max_sge)
        init = QPInitAttr(e.IBV_QPT_RC, scq=self.scq, rcq=self.rcq, cap=cap, sq_sig_all=0)
        self.qp = QP(self.pd, init)

    def connect(self, work, lends=None, answers=0, asks=0):
        """Swaps the lines and brings the QP to RTS. Answers, asks: that many atomics at a time."""
        psn = int.from_bytes(os.urandom(3), "big")
        addr, rkey, size = (lends.addr, lends.mr.rkey, lends.size) if lends else (0, 0, 0)
        self.say(
            f"hello-verbs/2 sample={self.sample} lid=0x0000 qpn=0x{self.qp.qp_num:06x} "
            f"psn=0x{psn:06x} gid={self.gid} mtu={self.mtu} addr=0x{addr:x} rkey=0x{rkey:x} "
            f"len={size} max_sge={self.max_sge} rd_atomic={answers} work={work}"
        )
        self.line = peer = self.line or self.hear_line()
        require(peer.work == work, "the server repeats other work: " + peer.work)
        self.mtu = min(self.mtu, peer.mtu)
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = e.IBV_ACCESS_REMOTE_ATOMIC if answers else 0
        attr.path_mtu, attr.dest_qp_num, attr.rq_psn = MTUS.index(self.mtu) + 1, peer.qpn, peer.psn
        attr.max_dest_rd_atomic, attr.min_rnr_timer = answers, 12
        attr.max_rd_atomic = asks
        to = GID(IPv6Address(peer.gid).exploded)
        route = GlobalRoute(dgid=to, sgid_index=self.gid_index, hop_limit=64)
        attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
        attr.sq_psn, attr.timeout, attr.retry_cnt, attr.rnr_retry = psn, 16, 6, 6
        self.qp.to_rts(attr)

    def post(self, lists, wr_id=0):
        """Posts a receive for each list of SGEs, with wr_ids from wr_id on."""
        for i, sges in enumerate(lists, wr_id):
            self.qp.post_recv(RecvWR(wr_id=i, num_sge=len(sges), sg=sges))

    def send(self, lists, opcode=e.IBV_WR_SEND, imm=0, operands=None):
        """Posts such a request for each list of SGEs, and waits until all have completed."""
        last = len(lists) - 1
        for i, sges in enumerate(lists):
            flags = e.IBV_SEND_SIGNALED if i == last else 0
            wr = SendWR(wr_id=i, num_sge=len(sges), sg=sges, opcode=opcode, send_flags=flags)
            wr.imm_data = socket.htonl(imm)
            if operands:
                wr.set_wr_atomic(self.line.rkey, self.line.addr, *operands)
            self.qp.post_send(wr)
        self.completion(self.scq, last)

    def receive(self, wr_id, length):
        wc = self.completion(self.rcq, wr_id)
        require(wc.byte_len == length, f"{wc.byte_len} bytes came, not {length}")
        return socket.ntohl(wc.imm_data) if wc.wc_flags & e.IBV_WC_WITH_IMM else None

    def completion(self, cq, wr_id):
        """The next one, which must be this."""
        deadline = time.monotonic() + self.timeout
        while not (found := cq.poll()[1]):
            require(time.monotonic() < deadline, "no completion in time")
            time.sleep(0.00005)
        wc, wanted = found[0], (e.IBV_WC_SUCCESS, wr_id)
        require((wc.status, wc.wr_id) == wanted, f"completion: status {wc.status}, {wc.wr_id}")
        return wc


# The samples. Each returns: bytes, digest.
def send_recv(p, o, work):
    inbox, outbox, digest = Memory(p.pd, o.size), Memory(p.pd, o.size), fnv1a(b"")
    p.create_qp()
    p.connect(work)
    p.post([[inbox.sge()]])
    p.sync("ready")
    for i in range(o.iters):
        outbox.bytes[:] = message = pattern(o.size, o.seed + i)
        if p.client:
            p.send([[outbox.sge()]])
        p.receive(i, o.size)
        require(inbox.bytes == message, f"message {i} is wrong")
        digest = fnv1a(inbox.bytes, digest)
        inbox.bytes[:] = bytes(o.size)
        if i + 1 < o.iters:
            p.post([[inbox.sge()]], i + 1)
        if not p.client:
            p.send([[outbox.sge()]])
    p.sync("done")
    return o.size * o.iters, digest


def atomic(p, o, work):
    word = Memory(p.pd, 8, 0 if p.client else e.IBV_ACCESS_REMOTE_ATOMIC)
    total = o.seed + o.iters & MASK
    final, todo = total ^ MASK, []
    p.create_qp()
    if p.client:  # word gets the old values
        p.connect(work, asks=1)
        require(p.line.len == 8 and p.line.addr % 8 == 0, "the server lends no aligned word")
        require(p.line.rd_atomic == 1, "the server's rd_atomic is not 1")
        todo = [(ADD, (1, 0), o.seed + i & MASK) for i in range(o.iters)]
        todo.append((SWAP, (total, final), total))
        todo.append((SWAP, (total, o.seed), final))
        todo.append((ADD, (0, 0), final))
    else:
        word.bytes[:] = struct.pack("=Q", o.seed)
        p.connect(work, lends=word, answers=1)
    p.sync("ready")
    for opcode, operands, old in todo:
        p.send([[word.sge()]], opcode, operands=operands)
        require(word.bytes == struct.pack("=Q", old), f"the old value was not {old}")
    p.sync("done")
    require(word.bytes == struct.pack("=Q", final), f"the word is not {final}")
    return 8, fnv1a(struct.pack("<Q", *struct.unpack("=Q", word.bytes)))


class Gssr:
    """07: the blocks of one side, and the requests that move them."""

    def __init__(self, p, o):
        self.p, self.o = p, o
        self.span = (o.block_num - 1) * o.stride + o.block_size
        self.starts = range(0, self.span, o.stride)
        self.blocks, self.staging = Memory(p.pd, self.span), Memory(p.pd, o.size)
        self.empty = [[self.staging.sge(0, 0)]]
        self.used = self.acked = 0  # receives of data since the start; those that are acknowledged

    def begin(self):
        p, o = self.p, self.o
        method = ("sgl" if o.block_size >= p.mtu else "copy") if o.method == "auto" else o.method
        self.copies = method == "copy"
        per = {"sgl": min(p.max_sge, p.line.max_sge), "each": 1, "copy": o.block_num}[method]
        self.requests = [self.starts[i : i + per] for i in range(0, o.block_num, per)]

    def lists(self, some):
        if self.copies:
            return [[self.staging.sge()] for _ in some]
        return [[self.blocks.sge(at, self.o.block_size) for at in request] for request in some]

    def scattered(self, message, span):
        """The bytes of span, but with the message in its blocks."""
        result, size = bytearray(span), self.o.block_size
        for i, at in enumerate(self.starts):
            result[at : at + size] = message[i * size : (i + 1) * size]
        return bytes(result)

    def gathered(self):
        return b"".join(self.blocks.bytes[at : at + self.o.block_size] for at in self.starts)

    def send_message(self):
        if self.copies:
            self.staging.bytes[:] = self.gathered()
        sent = 0
        while sent < len(self.requests) or self.acked < self.used:
            room = min(ACK_AFTER, UNACKED - (self.used - self.acked))
            if some := self.requests[sent : sent + room]:
                self.p.send(self.lists(some))
                sent, self.used = sent + len(some), self.used + len(some)
                continue
            imm = self.p.receive(0, 0)
            self.p.post(self.empty)
            more = 0 if imm is None else imm - self.acked & 0xFFFFFFFF
            due = 0 < more <= min(ACK_AFTER, self.used - self.acked)
            require(due, f"acknowledged: {imm}; {self.acked} were before, {self.used} are sent")
            self.acked += more

    def receive_message(self):
        posted, last = UNACKED, len(self.requests)
        for done, request in enumerate(self.requests, 1):
            imm = self.p.receive(done - 1, len(request) * self.o.block_size)
            require(imm is None, "data came with immediate data")
            self.used += 1
            if done == last or self.used - self.acked == (self.o.ack_after or ACK_AFTER):
                self.p.post(self.lists(self.requests[posted : done + UNACKED]), posted)
                posted = done + UNACKED
                if done == last and self.copies:
                    self.blocks.bytes[:] = self.scattered(self.staging.bytes, self.blocks.bytes)
                self.p.send(self.empty, e.IBV_WR_SEND_WITH_IMM, self.used & 0xFFFFFFFF)
                self.acked = self.used


def gssr(p, o, work):
    print(
        f"LAYOUT block_size={o.block_size} block_num={o.block_num} stride={o.stride} "
        f"bytes={o.size} seed={o.seed}"
    )
    move = Gssr(p, o)
    queues = (UNACKED, ACK_RECEIVES) if p.client else (ACK_RECEIVES, UNACKED)
    p.create_qp(*queues, o.max_sge or p.context.query_device().max_sge)
    p.connect(work)
    move.begin()
    canaries = poison(move.span, ~o.seed)
    right = move.scattered(pattern(o.size, o.seed), canaries)
    missing = move.scattered(poison(o.size, o.seed), canaries)
    for _ in range(ACK_RECEIVES if p.client else 0):
        p.post(move.empty)
    p.sync("ready")
    for i in range(o.iters):
        move.blocks.bytes[:] = right if p.client else missing
        p.post([] if p.client else move.lists(move.requests[:UNACKED]))
        p.sync("prepared")
        move.send_message() if p.client else move.receive_message()
        p.sync("moved" if i + 1 < o.iters else "done")
        require(move.blocks.bytes == right, "blocks, or the gaps between them, are wrong")
    return o.size, fnv1a(move.gathered())


SAMPLES = {"02_send_recv": send_recv, "04_atomic": atomic, "07_gssr": gssr}


def options():
    """What the tests give: the work by the client alone."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("sample", choices=SAMPLES)
    parser.add_argument("host", nargs="?")
    parser.add_argument("--method", default="sgl")
    parser.add_argument("--student")
    numbers = {"port": 18515, "timeout": 60, "mtu": 0, "max_sge": 0, "ack_after": 0}  # to try
    numbers |= {"size": 4096, "iters": 0, "seed": 1, "block_size": 4096, "block_num": 64}
    for name, default in {**numbers, "stride": 0}.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=default)
    o = parser.parse_intermixed_args()
    o.iters = o.iters or (100 if o.sample == "04_atomic" else 1)
    o.depth, o.sizes = 0, "none"
    if o.sample == "04_atomic":
        o.size = 8
    if o.sample == "07_gssr":
        if o.student:
            o.block_size, o.block_num, o.stride, o.seed = layout_of_student(o.student)
        o.stride, o.size = o.stride or 2 * o.block_size, o.block_size * o.block_num
    return o


def main():
    o = options()
    p = Peer(o.sample, o.port, o.host, o.timeout, o.mtu)
    if p.client:
        work = ",".join(f"{name}={getattr(o, name)}" for name in WORKS[o.sample])
    else:
        work = p.line.work
        vars(o).update(vars(parse(work, "", WORKS[o.sample], ",")))
    size, digest = SAMPLES[o.sample](p, o, work)
    require(p.verdict(), "the peer's verdict is FAIL")
    role = "client" if p.client else "server"
    print(
        f"RESULT sample={o.sample} role={role} status=PASS bytes={size} digest={digest:016x}",
        flush=True,
    )
    os._exit(0)  # the kernel destroys the verbs objects


if __name__ == "__main__":
    main()
