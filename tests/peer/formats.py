#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Test data, layouts and lines of text, as the documents define them. Nothing here knows verbs."""
import argparse
import re
import struct
from ipaddress import IPv6Address

M64 = 2**64 - 1
MAX_BYTES, MAX_BLOCKS, MAX_ITERS, MAX_TIMEOUT = 64 << 20, 1 << 18, 1000000, 3600
MTUS = [256, 512, 1024, 2048, 4096]


class Fail(Exception):
    """Its arguments are the exit status and the reason."""


def require(holds, text, status=1):
    if not holds:
        raise Fail(status, text)


# --- pattern.h and layout.h -----------------------------------------------------------------------


def splitmix64(seed, n):
    z = seed + (n + 1) * 0x9E3779B97F4A7C15 & M64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & M64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & M64
    return z ^ z >> 31


def pattern(seed, size, mask=0):
    """size bytes of the pattern of a seed (modulo 2^64), or with M64 for a mask its poison."""
    words = [splitmix64(seed & M64, n) ^ mask for n in range(-(-size // 8))]
    return struct.pack(f"<{len(words)}Q", *words)[:size]


def poison(seed, size):
    return pattern(seed, size, M64)


def fnv1a(data, digest=0xCBF29CE484222325):
    for b in data:
        digest = (digest ^ b) * 0x100000001B3 & M64
    return digest


def layout_of_student(text):
    """block_size, block_num, stride, seed."""
    r = [splitmix64(fnv1a(text.encode()), k) for k in range(4)]
    block_size, block_num = 17 + 2 * (r[0] % 1000), 33 + r[1] % 168
    while block_num % 30 == 0 or block_num % 32 == 0:
        block_num += 1
    return block_size, block_num, block_size + 1 + r[2] % 999, r[3]


def scattered(message, span, starts, block_size):
    """The bytes of span, but with the message in its blocks."""
    result = bytearray(span)
    for i, at in enumerate(starts):
        result[at : at + block_size] = message[i * block_size : (i + 1) * block_size]
    return bytes(result)


def gathered(span, starts, block_size):
    return b"".join(span[at : at + block_size] for at in starts)


# --- rendezvous.h, and for work= options.h and work.h -----------------------------------------

HEX, NUMBER, WORD = "0x[0-9a-f]{1,16}", "[0-9]{1,20}", "[^ ,]+"
LINE = dict(
    sample=WORD,
    lid=HEX,
    qpn=HEX,
    psn=HEX,
    gid=WORD,
    mtu=NUMBER,
    addr=HEX,
    rkey=HEX,
    len=NUMBER,
    max_sge=NUMBER,
    rd_atomic=NUMBER,
    work=".*",
)
WORK = dict.fromkeys(["size", "iters", "seed", "timeout"], NUMBER)
WORKS = {
    "02_send_recv": WORK,
    "04_atomic": WORK,
    "07_gssr": WORK
    | dict(
        block_size=NUMBER, block_num=NUMBER, stride=NUMBER, method=WORD, depth=NUMBER, sizes=".+"
    ),
}


def parse(text, head, fields, separator):
    """Text is head and then all fields in this order; returns their values."""
    found = re.fullmatch(head + separator.join(f"{k}=({v})" for k, v in fields.items()), text)
    require(found, "this is not understood: " + text)
    return {
        name: int(value, 0 if kind == HEX else 10) if kind in (HEX, NUMBER) else value
        for (name, kind), value in zip(fields.items(), found.groups())
    }


def parse_line(text, sample):
    require(not text.startswith("hello-verbs/2 error="), "the server refuses: " + text[20:])
    line = argparse.Namespace(**parse(text, "hello-verbs/2 ", LINE, " "))
    require(line.sample == sample, f"this side runs {sample}, the other {line.sample}")
    require(
        line.qpn < 2**24
        and line.psn < 2**24
        and line.rkey < 2**32
        and line.lid < 2**16
        and line.len <= M64
        and line.addr + line.len <= 2**64
        and line.mtu in MTUS
        and line.max_sge,
        "a field is out of range: " + text,
    )
    require(IPv6Address(line.gid) != IPv6Address(0), "the peer uses LIDs")
    return line


def check_work(o):
    """Fails if the work is out of range: what a client wants, or what a server is asked for."""
    require(
        1 <= o.size <= MAX_BYTES
        and 1 <= o.iters <= MAX_ITERS
        and 0 <= o.seed <= M64
        and 1 <= o.timeout <= MAX_TIMEOUT,
        "work is out of range",
    )
    require(o.sample != "04_atomic" or o.size == 8, "an atomic has 8 bytes")
    if o.sample == "07_gssr":
        o.span = (o.block_num - 1) * o.stride + o.block_size
        require(
            1 <= o.block_num <= MAX_BLOCKS
            and 1 <= o.block_size <= o.stride
            and o.span <= MAX_BYTES,
            "no such layout",
        )
        require(o.size == o.block_size * o.block_num, "size is not block_size * block_num")
        require(o.method in ("sgl", "copy", "each", "auto"), "no such method: " + o.method)
        require((o.depth, o.sizes) == (0, "none"), "this peer cannot measure (--bench)")
