#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Peers for 02, 04 and 07 from the documents alone: peer.py SAMPLE [options] [HOST-IF-CLIENT]"""
import argparse
import contextlib
import ctypes
import mmap
import os
import re
import socket
import struct
import sys
import time
from ipaddress import IPv6Address

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

from formats import (
    M64,
    MTUS,
    WORKS,
    Fail,
    check_work,
    fnv1a,
    gathered,
    layout_of_student,
    parse,
    parse_line,
    pattern,
    poison,
    require,
    scattered,
)

UNACKED, ACK_AFTER, ACK_RECEIVES = 1024, 256, 16  # 07's flow control
SEND, ADD, SWAP = e.IBV_WR_SEND, e.IBV_WR_ATOMIC_FETCH_AND_ADD, e.IBV_WR_ATOMIC_CMP_AND_SWP
GUARD = b"a guard: nobody may change these" * 2


class Memory:
    """Registered memory of size bytes, between guards."""

    def __init__(self, pd, size, access=0):
        self.map = mmap.mmap(-1, size + 2 * len(GUARD))
        self.map[: len(GUARD)] = self.map[-len(GUARD) :] = GUARD
        self.bytes = memoryview(self.map)[len(GUARD) : -len(GUARD)]
        self.addr, self.size = ctypes.addressof(ctypes.c_char.from_buffer(self.bytes)), size
        self.mr = MR(pd, size, e.IBV_ACCESS_LOCAL_WRITE | access, address=self.addr)

    def sge(self, offset=0, length=None):
        return SGE(self.addr + offset, self.size if length is None else length, self.mr.lkey)

    def right(self, what, want):
        """True if the bytes are these and the guards whole. Otherwise says what is not."""
        guarded = self.map[: len(GUARD)] == self.map[-len(GUARD) :] == GUARD
        if self.bytes != want or not guarded:
            wrong = [i for i in range(self.size) if self.bytes[i] != want[i]]
            print(f"{what}: {len(wrong)} wrong from {wrong[:1]}, guards {guarded}", file=sys.stderr)
        return self.bytes == want and guarded


class Peer:
    """One side: its TCP connection, device and queue pair."""

    def __init__(self, o):
        self.o, self.client, self.socket, self.line = o, o.host is not None, None, None
        contexts = [Context(name=device.name.decode()) for device in get_device_list()]
        require(contexts, "no RDMA device here", 77)
        deadline = time.monotonic() + (5 if self.client else o.timeout or 600)
        self.trace = sys.stdout if o.verbose else open(os.devnull, "w")
        (self.dial if self.client else self.listen)(deadline)
        local = self.socket.getsockname()[0].partition("%")[0]
        local = IPv6Address(local if ":" in local else "::ffff:" + local)
        gids = [
            (IPv6Address(entry.gid_str()), entry, context)
            for context in contexts
            for entry in context.query_gid_table(256)
            if entry.gid_type == e.IBV_GID_TYPE_ROCE_V2
            and context.query_port(entry.port_num).state == e.IBV_PORT_ACTIVE
        ]
        # The connection's own address, or else the first that is not link-local.
        gids = [g for g in gids if g[0] == local] or [g for g in gids if not g[0].is_link_local]
        require(gids, "no ACTIVE port with a usable GID", 77)
        gid, entry, self.context = gids[0]
        self.gid = socket.inet_ntop(socket.AF_INET6, gid.packed)
        self.gid_index, self.port = entry.gid_index, entry.port_num
        mtu = 128 << self.context.query_port(self.port).active_mtu
        self.mtu, self.pd = min(mtu, o.mtu or mtu), PD(self.context)

    def dial(self, deadline):
        while not self.socket:
            with contextlib.suppress(ConnectionRefusedError):
                self.socket = socket.create_connection((self.o.host, self.o.port), 5)
            require(self.socket or time.monotonic() < deadline, "cannot connect")
            time.sleep(0.05)

    def listen(self, deadline):
        """Until there is a client whose line is right; refuses others."""
        any_address = dict(family=socket.AF_INET6, dualstack_ipv6=True)
        listening = socket.create_server(("", self.o.port), **any_address)
        while not self.line:
            listening.settimeout(max(deadline - time.monotonic(), 0.001))
            self.socket = listening.accept()[0]
            try:
                line = parse_line(self.hear(2), self.o.sample)
                vars(self.o).update(parse(line.work, "", WORKS[self.o.sample], ","))
                check_work(self.o)
                self.line = line
            except (Fail, OSError, ValueError) as reason:
                print("refused a client:", reason.args[-1], file=sys.stderr)
                with contextlib.suppress(OSError):  # it may have gone
                    self.say(f"hello-verbs/2 error={ascii(reason.args[-1])[:900]}")
                self.socket.close()
        listening.close()

    def say(self, line):
        print("->", line, file=self.trace)
        self.socket.sendall(line.encode("ascii") + b"\n")

    def hear(self, timeout):
        line, deadline = b"", time.monotonic() + timeout
        while not line.endswith(b"\n"):
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            byte = self.socket.recv(1)
            require(byte and len(line) < 1024, "the peer closed, or its line is too long")
            line += byte
        require(re.fullmatch(rb"[ -~]*\n", line), "the peer's line is not printable ASCII")
        line = line.decode().rstrip("\n")
        print("<-", line, file=self.trace)
        return line

    def swap(self, line, wanted):
        self.say(line)
        answer = self.hear(self.o.timeout)
        require(answer in wanted, f"wanted {wanted}, but the peer said: {answer}")
        return answer

    def sync(self, step):
        self.swap("sync " + step, ["sync " + step])

    def verdict(self, passed):
        verdicts = ["verdict FAIL", "verdict PASS"]
        return self.swap(verdicts[passed], verdicts) == "verdict PASS" and passed

    def create_qp(self, sends=1, receives=1, max_sge=1):
        self.scq, self.rcq = CQ(self.context, sends), CQ(self.context, receives)
        self.max_sge, cap = max_sge, QPCap(sends, receives, max_sge, max_sge)
        init = QPInitAttr(e.IBV_QPT_RC, scq=self.scq, rcq=self.rcq, cap=cap, sq_sig_all=0)
        self.qp = QP(self.pd, init)

    def connect(self, lends=None, answers=0, asks=0):
        """Swaps the lines and brings the QP to RTS. Answers, asks: that many atomics at a time."""
        o, psn = self.o, int.from_bytes(os.urandom(3), "big")
        work = ",".join(f"{name}={getattr(o, name)}" for name in WORKS[o.sample])
        addr, rkey, size = (lends.addr, lends.mr.rkey, lends.size) if lends else (0, 0, 0)
        work = work if self.client else self.line.work
        self.say(
            f"hello-verbs/2 sample={o.sample} lid=0x0000 qpn=0x{self.qp.qp_num:06x} "
            f"psn=0x{psn:06x} gid={self.gid} mtu={self.mtu} addr=0x{addr:x} rkey=0x{rkey:x} "
            f"len={size} max_sge={self.max_sge} rd_atomic={answers} work={work}"
        )
        peer = self.line or parse_line(self.hear(o.timeout), o.sample)
        require(peer.work == work, "the server repeats other work: " + peer.work)
        self.peer, self.mtu = peer, min(self.mtu, peer.mtu)
        attr = QPAttr(port_num=self.port)
        attr.qp_access_flags = e.IBV_ACCESS_REMOTE_ATOMIC if answers else 0
        attr.path_mtu, attr.dest_qp_num, attr.rq_psn = MTUS.index(self.mtu) + 1, peer.qpn, peer.psn
        attr.max_dest_rd_atomic, attr.min_rnr_timer = answers, 12
        attr.max_rd_atomic = min(asks, peer.rd_atomic)
        to = GID(IPv6Address(peer.gid).exploded)
        route = GlobalRoute(dgid=to, sgid_index=self.gid_index, hop_limit=64)
        attr.ah_attr = AHAttr(port_num=self.port, is_global=1, gr=route)
        attr.sq_psn, attr.timeout, attr.retry_cnt, attr.rnr_retry = psn, 16, 6, 6
        self.qp.to_rts(attr)

    def post(self, lists, wr_id=0):
        """Posts a receive for each list of SGEs, with wr_ids from wr_id on."""
        for i, sges in enumerate(lists, wr_id):
            self.qp.post_recv(RecvWR(wr_id=i, num_sge=len(sges), sg=sges))

    def send(self, what, lists, wr_id=0, opcode=SEND, imm=0, operands=None):
        """Posts such a request for each list of SGEs, and waits until all have completed."""
        last = wr_id + len(lists) - 1
        for i, sges in enumerate(lists, wr_id):
            wr = SendWR(
                wr_id=i,
                num_sge=len(sges),
                sg=sges,
                opcode=opcode,
                imm_data=socket.htonl(imm),
                send_flags=e.IBV_SEND_SIGNALED if i == last else 0,
            )
            if operands:
                wr.set_wr_atomic(self.peer.rkey, self.peer.addr, *operands)
            self.qp.post_send(wr)
        self.wait(self.scq, what, last)

    def receive(self, what, wr_id, length):
        wc = self.wait(self.rcq, what, wr_id)
        require(wc.byte_len == length, f"the {what} has {wc.byte_len} bytes, not {length}")
        return socket.ntohl(wc.imm_data) if wc.wc_flags & e.IBV_WC_WITH_IMM else None

    def wait(self, cq, what, wr_id):
        """The next completion of cq, which must be this one."""
        deadline = time.monotonic() + self.o.timeout
        while not (found := cq.poll()[1]):
            require(time.monotonic() < deadline, f"no completion of the {what} in time")
            time.sleep(0.00005)
        wc = found[0]
        require(
            (wc.status, wc.wr_id) == (e.IBV_WC_SUCCESS, wr_id),
            f"completion of the {what}: status {wc.status}, wr_id {wc.wr_id}",
        )
        return wc


# The samples. Each returns: all was right, bytes, digest.
def send_recv(p):
    o, ok, digest = p.o, True, fnv1a(b"")
    inbox, outbox = Memory(p.pd, o.size), Memory(p.pd, o.size)

    def expect(i):
        inbox.bytes[:] = poison(o.seed + i, o.size)
        p.post([[inbox.sge()]], i)

    p.create_qp()
    p.connect()
    expect(0)
    p.sync("ready")
    for i in range(o.iters):
        outbox.bytes[:] = message = pattern(o.seed + i, o.size)
        if p.client:
            p.send("SEND", [[outbox.sge()]], i)
        p.receive("receive", i, o.size)
        ok &= inbox.right(f"message {i}", message)
        digest = fnv1a(inbox.bytes, digest)
        outbox.bytes[:] = inbox.bytes
        if i + 1 < o.iters:
            expect(i + 1)
        if not p.client:
            p.send("SEND", [[outbox.sge()]], i)
    p.sync("done")
    return ok, o.size * o.iters, digest


def atomic(p):
    o, ok, todo = p.o, True, []
    p.create_qp()
    word = Memory(p.pd, 8, 0 if p.client else e.IBV_ACCESS_REMOTE_ATOMIC)
    total = o.seed + o.iters & M64
    final = total ^ M64
    if p.client:  # word gets the old values
        p.connect(asks=1)
        require(p.peer.len == 8 and p.peer.addr % 8 == 0, "the server lends no aligned word")
        require(p.peer.rd_atomic == 1, "the server's rd_atomic is not 1")
        todo = [(ADD, (1, 0), o.seed + i & M64) for i in range(o.iters)]
        todo += [
            (SWAP, (total, final), total),
            (SWAP, (total, o.seed), final),
            (ADD, (0, 0), final),
        ]
    else:
        word.bytes[:] = struct.pack("=Q", o.seed)
        p.connect(lends=word, answers=1)
    p.sync("ready")
    for i, (opcode, operands, old) in enumerate(todo):
        word.bytes[:] = struct.pack("=Q", old ^ M64)
        p.send("atomic", [[word.sge()]], i, opcode, operands=operands)
        ok &= word.right(f"the old value of atomic {i}", struct.pack("=Q", old))
    p.sync("done")
    ok &= word.right("the word", struct.pack("=Q", final))
    return ok, 8, fnv1a(struct.pack("<Q", *struct.unpack("=Q", word.bytes)))


def gssr(p):
    o, ok = p.o, True
    print(
        f"LAYOUT block_size={o.block_size} block_num={o.block_num} stride={o.stride} "
        f"bytes={o.size} seed={o.seed}"
    )
    blocks, staging = Memory(p.pd, o.span), Memory(p.pd, o.size)
    empty, max_sge = [[staging.sge(0, 0)]], p.context.query_device().max_sge
    p.create_qp(
        *((UNACKED, ACK_RECEIVES) if p.client else (ACK_RECEIVES, UNACKED)),
        min(max_sge, o.max_sge or max_sge),
    )
    p.connect()
    method = ("sgl" if o.block_size >= p.mtu else "copy") if o.method == "auto" else o.method
    per = {"sgl": min(p.max_sge, p.peer.max_sge), "each": 1, "copy": o.block_num}[method]
    starts = range(0, o.span, o.stride)  # of the blocks in the span
    places = starts, o.block_size
    requests = [starts[i : i + per] for i in range(0, o.block_num, per)]
    used = acked = 0  # receives of data since the start; those that are acknowledged

    def lists(some):
        return [
            [staging.sge()]
            if method == "copy"
            else [blocks.sge(at, o.block_size) for at in request]
            for request in some
        ]

    def send_message():
        nonlocal used, acked
        if method == "copy":
            staging.bytes[:] = gathered(blocks.bytes, *places)
        sent = 0
        while sent < len(requests) or acked < used:
            some = requests[sent : sent + min(ACK_AFTER, UNACKED - (used - acked))]
            if some:
                p.send("SEND", lists(some))
                sent, used = sent + len(some), used + len(some)
                continue
            imm = p.receive("acknowledgement", 0, 0)
            p.post(empty)
            more = 0 if imm is None else imm - acked & 0xFFFFFFFF
            require(
                0 < more <= min(ACK_AFTER, used - acked),
                f"acknowledged: {imm}; {acked} were before, {used} are sent",
            )
            acked += more

    def receive_message():
        nonlocal used, acked
        posted = UNACKED
        for done, request in enumerate(requests, 1):
            imm = p.receive("receive", done - 1, len(request) * o.block_size)
            require(imm is None, "data came with immediate data")
            used += 1
            if done == len(requests) or used - acked == (o.ack_after or ACK_AFTER):
                p.post(lists(requests[posted : done + UNACKED]), posted)
                posted = done + UNACKED
                if done == len(requests) and method == "copy":
                    blocks.bytes[:] = scattered(staging.bytes, blocks.bytes, *places)
                p.send("acknowledgement", empty, 0, e.IBV_WR_SEND_WITH_IMM, used & 0xFFFFFFFF)
                acked = used

    message, canaries = pattern(o.seed, o.size), poison(~o.seed, o.span)
    right, nothing = scattered(message, canaries, *places), poison(o.seed, o.size)
    missing = scattered(nothing, canaries, *places)
    for _ in range(ACK_RECEIVES if p.client else 0):
        p.post(empty)
    p.sync("ready")
    for i in range(o.iters):
        blocks.bytes[:], staging.bytes[:] = right if p.client else missing, nothing
        p.post([] if p.client else lists(requests[:UNACKED]))
        p.sync("prepared")
        send_message() if p.client else receive_message()
        p.sync("moved" if i + 1 < o.iters else "done")
        ok &= blocks.right("blocks", right)
        ok &= staging.right("staging", message if method == "copy" else nothing)
    print(f"moved {o.block_num} blocks by method {method}: {used} work requests in all")
    return ok, o.size, fnv1a(gathered(blocks.bytes, *places))


SAMPLES = {"02_send_recv": send_recv, "04_atomic": atomic, "07_gssr": gssr}
WORK_DEFAULTS = {
    "02_send_recv": dict(size=4096, iters=1, seed=1),
    "04_atomic": dict(size=8, iters=100, seed=1),
    "07_gssr": dict(
        block_size=4096, block_num=64, stride=0, iters=1, seed=1, method="sgl", student=""
    ),
}
DEFAULTS = dict(port=18515, timeout=0, mtu=0, max_sge=0, ack_after=0)  # the last two are to try


def number(text):
    [(digits, suffix)] = re.findall(r"^([0-9]+)([KM]?)$", text)
    return int(digits) << {"": 0, "K": 10, "M": 20}[suffix]


def options():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("sample", choices=SAMPLES)
    parser.add_argument("host", nargs="?")
    parser.add_argument("-v", "--verbose", action="store_true")
    work = WORK_DEFAULTS.get((sys.argv + [""])[1], {})
    for name, default in (DEFAULTS | work).items():
        kind = str if isinstance(default, str) else number
        parser.add_argument("--" + name.replace("_", "-"), type=kind, default=DEFAULTS.get(name))
    o = parser.parse_intermixed_args()
    given = {name for name in work if getattr(o, name) is not None}
    if not o.host:
        if given:
            parser.error(f"the client's alone: {given}")
        return o
    vars(o).update({name: default for name, default in work.items() if name not in given})
    o.timeout, o.depth, o.sizes = o.timeout or 30, 0, "none"
    if o.sample == "07_gssr":
        if o.student:
            o.block_size, o.block_num, o.stride, o.seed = layout_of_student(o.student)
        o.stride, o.size = o.stride or 2 * o.block_size, o.block_size * o.block_num
    try:
        check_work(o)
    except Fail as reason:
        parser.error(reason.args[-1])
    return o


def main():
    o, passed, size, digest = options(), False, 0, 0
    role, status = "client" if o.host else "server", 1
    try:
        p = Peer(o)
        ok, size, digest = SAMPLES[o.sample](p)
        passed = p.verdict(ok)
    except (Fail, OSError, ValueError, PyverbsError) as reason:
        print(f"{o.sample} {role}: {reason.args[-1]}", file=sys.stderr)
        status, size, digest = reason.args[0] if isinstance(reason, Fail) else 1, 0, 0
    print(
        f"RESULT sample={o.sample} role={role} status={'PASS' if passed else 'FAIL'} "
        f"bytes={size} digest={digest:016x}",
        flush=True,
    )
    os._exit(0 if passed else status)  # the kernel destroys the verbs objects


if __name__ == "__main__":
    main()
