# SPDX-License-Identifier: BSD-2-Clause
"""The rendezvous' lines from the words of common/rendezvous.h, not from its code: good ones, a
judge of lines, and accidents that may happen to one."""
import ipaddress
import re

MASK = 2**64 - 1


def hello(sample="03_read", more="", size=4096, iters=1, gid="::ffff:10.0.0.1", qpn=0x11):
    """A client's line; more: what its work has behind the fields that all samples have."""
    return (
        f"hello-verbs/2 sample={sample} lid=0x0000 qpn=0x{qpn:06x} psn=0x3a5f10 gid={gid} "
        "mtu=1024 addr=0x0 rkey=0x0 len=0 max_sge=1 rd_atomic=0 "
        f"work=size={size},iters={iters},seed=1,timeout=3{more}\n"
    ).encode()


GOOD_LINE = hello()
SERVER_LINE = GOOD_LINE.replace(b"rkey=0x0 len=0", b"rkey=0x1 len=4096").replace(
    b"rd_atomic=0", b"rd_atomic=1"
)
HEX = {
    "lid": 2**16 - 1,
    "qpn": 2**24 - 1,
    "psn": 2**24 - 1,
    "addr": MASK,
    "rkey": 2**32 - 1,
}
DEC = {"mtu": (256, 4096), "len": (0, 10**19 - 1), "max_sge": (1, 65535), "rd_atomic": (0, 255)}
WORK = {"size": (1, 2**26), "iters": (1, 10**6), "seed": (0, MASK), "timeout": (1, 3600)}
FIELDS = "sample lid qpn psn gid mtu addr rkey len max_sge rd_atomic work".split()
ODD = ("", "0", "-1", "4294967296", f"{2**64 - 1}", f"{2**64}", "0x", "1e9", "%s%n", "9" * 400)


def is_gid(text):
    """As inet_ntop prints it, or another way of writing the same address."""
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return "%" not in text


def is_number(text, low, high):
    return bool(re.fullmatch(f"[0-9]{{1,{len(str(high))}}}", text)) and low <= int(text) <= high


def is_work(text):
    fields = [field.partition("=") for field in text.split(",")]
    return [name for name, _, _ in fields] == list(WORK) and all(
        is_number(value, *WORK[name]) and str(int(value)) == value for name, _, value in fields
    )


def is_good(line):
    """May a client of 03_read send this?"""
    if len(line) > 1024 or not re.fullmatch(rb"hello-verbs/2 [ -~]+\n", line):
        return False
    head, equals, work = line.decode()[len("hello-verbs/2 ") : -1].partition(" work=")
    fields = [word.partition("=") for word in head.split(" ")] + [("work", equals, work)]
    if [name for name, _, _ in fields] != list(FIELDS):
        return False
    value = {name: text for name, _, text in fields}
    return (
        value["sample"] == "03_read"
        and is_gid(value["gid"])
        and is_work(work)
        # as many digits as the greatest value has, at most
        and all(
            re.fullmatch(f"0x[0-9a-fA-F]{{1,{len(f'{high:x}')}}}", value[name])
            for name, high in HEX.items()
        )
        and all(is_number(value[name], *limits) for name, limits in DEC.items())
        and int(value["mtu"]) in (256, 512, 1024, 2048, 4096)
    )


def mutated(line, dice):
    """The line after one to three accidents: to bytes, or to words."""
    for _ in range(dice.randint(1, 3)):
        at, to = sorted(dice.randint(0, len(line)) for _ in range(2))
        words = line.split(b" ")
        one, two = dice.randrange(len(words)), dice.randrange(len(words))
        odd_value = words[one].split(b"=")[0] + b"=" + dice.choice(ODD).encode()
        separator = dice.choice((b" ", b"=", b"\0", b"\n", b"0x", b"-", b",", b"+"))
        many = bytes([dice.randrange(256)]) * dice.choice((9, 900, 9000))
        line = dice.choice(
            (
                line[:at] + dice.randbytes(dice.randint(1, 8)) + line[at:],
                line[:at] + dice.randbytes(1) + line[at + 1 :],
                line[:at] + line[to:],
                line[:at],
                line[:at] + b"\n",
                line[:to] + line[at:],
                line[:at] + separator + line[at:],
                line[:at] + many + line[at:],
                b" ".join(words[:one] + words[one + 1 :]),
                b" ".join(words[:one] + [words[two]] + words[one:]),
                b" ".join(words[:one] + [odd_value] + words[one + 1 :]),
            )
        )
    return line
