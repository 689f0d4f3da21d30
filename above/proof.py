#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Proves from a capture that data went by RDMA, and tells which messages carried it.

    proof.py APP FILE.pcap BYTES SAID
    proof.py check FILE

BYTES were written to the server and read back. SAID is what the client left (run.sh). The
messages are those of the packets; what each is for stands in messages.txt. check: the lab's table, as a student
has filled it in, against the captures of all APPs that were run.
"""
import collections
import itertools
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = (os.path.join(os.path.dirname(HERE), name) for name in ("judge", "learn"))
import ladder  # noqa: E402
from words import language  # noqa: E402

CLIENT, SERVER = "10.0.1.2", "10.0.1.1"
SIDES = {CLIENT: "client", SERVER: "server"}
# GID 0, which UCX takes, is each host's link-local IPv6 address, made from its MAC address.
IPV6 = {"fe80::5054:ff:fe00:402": CLIENT, "fe80::5054:ff:fe00:401": SERVER}
STEPS = (("write", CLIENT), ("read", SERVER))  # and who has the data
Message = collections.namedtuple("Message", "side kind size packets time")


def said(english, chinese):
    return chinese if language() == "zh" else english


def others(pcap):
    """Of the packets that are no RoCE: the marks [(time, step)], and [(time, source, payload)]."""
    names = ("frame.time_epoch", "ip.src", "tcp.len", "udp.dstport", "udp.length", "udp.payload")
    names += ("ipv6.src",)
    out = subprocess.run(
        ["tshark", "-r", pcap, "-Y", "(tcp or udp) and not udp.port==4791 and not icmp"]
        + ["-T", "fields", *(word for name in names for word in ("-e", name))],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
    ).stdout  # fmt: skip
    marks, rest = [], []
    for line in out.splitlines():
        time, source, tcp, port, udp, payload, ipv6 = line.split("\t")
        if port == "9":
            marks.append((float(time), bytes.fromhex(payload).decode().strip()))
        else:
            rest.append(
                (float(time), source or IPV6.get(ipv6, ipv6), int(tcp) if tcp else int(udp) - 8)
            )
    return marks, rest


def kind(packet):
    """What the message is that this packet is part of; '' for one that only answers."""
    for word in ("READ Request", "WRITE", "SEND"):
        if word in packet.name and packet.name[:2] not in ("CM", "UD"):
            break
    else:
        return ""
    if "Invalidate" in packet.name:
        return "INVALIDATE"
    if "Immediate" in packet.name:
        return word + " IMM"
    return word.split()[0]


def messages(packets):
    """Packets of one sender to one queue pair, put together: a message ends with Last or Only."""
    open_ones, found = {}, []
    for packet in packets:
        name = kind(packet)
        if not name:
            continue
        size = packet.value["reth.dmalen"] if name == "READ" else packet.payload
        place = packet.src, packet.qp
        before, number = open_ones.pop(place, (0, 0))
        if re.search("First|Middle", packet.name):
            open_ones[place] = before + size, number + 1
        else:
            side = SIDES[packet.src]
            found.append(Message(side, name, before + size, number + 1, packet.time))
    return found


def sentences(app):
    """{(side, kind, size or '+'): sentence} out of messages.txt."""
    pattern = rf"(?m)^{app} (client|server) (\S+(?: IMM)?) (\d+|\+) \| (.*) \| (.*)$"
    with open(os.path.join(HERE, "messages.txt"), encoding="utf-8") as file:
        return {match[:3]: said(*match[3:]) for match in re.findall(pattern, file.read())}


def repeated(lines):
    """How many of the first lines come again at once, and how often: the choice that spares most."""
    best = 1, 1
    for length in range(1, 9):
        times = 1
        while lines[:length] == lines[length * times : length * (times + 1)]:
            times += 1
        if (times - 1) * length > (best[1] - 1) * best[0]:
            best = length, times
    return best


class Proof:
    """What the capture holds, step by step."""

    def __init__(self, app, pcap):
        self.words = sentences(app)
        self.marks, self.rest = others(pcap)
        every = {}  # what rxe has repeated counts once
        found = ladder.packets(pcap)
        for packet in found:
            packet.src = IPV6.get(packet.src, packet.src)
            every.setdefault((packet.src, packet.qp, packet.name, packet.psn), packet)
        self.packets = list(every.values())
        self.repeated = len(found) - len(every)

    def step(self, name, things, time):
        """Of these things those between the first mark with this name and the next one of another."""
        starts = [at for at, mark in self.marks if mark == name]
        if not starts:
            return []
        end = min((at for at, mark in self.marks if at > starts[0] and mark != name), default=1e12)
        return [thing for thing in things if starts[0] <= time(thing) < end]

    def carried(self, name, source):
        """Bytes from source in this step by RDMA, by what carried them, and by anything else."""
        by = collections.Counter()
        for packet in self.step(name, self.packets, lambda p: p.time):
            if packet.src == source and packet.payload and packet.name[:2] not in ("CM", "UD"):
                by[re.search("READ|WRITE|SEND", packet.name).group()] += packet.payload
        other = self.step(name, self.rest, lambda r: r[0])
        return by, sum(size for _, sender, size in other if sender == source)

    def show(self, name):
        """The messages of a step: those alike on one line, a row that repeats once."""
        found = self.step(name, messages(self.packets), lambda m: m.time)
        lines = [
            (*alike, len(list(group))) for alike, group in itertools.groupby(found, lambda m: m[:4])
        ]
        while lines:
            length, times = repeated(lines)
            if times > 1:
                print("  " + said(f"{times} times:", f"重复 {times} 次："))
            for line in lines[:length]:
                print(("  | " if times > 1 else "    ") + self.line(*line))
            lines = lines[length * times :]

    def line(self, side, what, size, packets, number):
        text = f"{what} {size} x {number}" if number > 1 else f"{what} {size}"
        arrow = f"{text:<22} -->" if side == "client" else f"<-- {text:<22}"
        words = self.words.get((side, what, str(size))) or self.words.get((side, what, "+"), "")
        unit = said("packets" if packets * number > 1 else "packet", "个包")
        return f"{arrow} {packets * number:>4} {unit:<8} {words}".rstrip()


def verdict(proof, size, client):
    """The reason why this is no pass, or ''; and the fields of the RESULT line."""
    fields, reason = [], client["why"] if client["status"] != "0" else ""
    for step, source in STEPS:
        by, other = proof.carried(step, source)
        fields.append(f"{step}=" + ("+".join(f"{k}:{n}" for k, n in sorted(by.items())) or "0"))
        fields.append(f"{step}_other={other}")
        if not reason and (sum(by.values()) < size or other > size // 16):
            reason = (
                f"not by RDMA: {step}: {sum(by.values())} of {size} bytes in RoCE packets, "
                f"{other} in others"
            )
    if not reason and int(client["sent_pkts"]) < size // 4096:
        reason = f"not by RDMA: rxe0 counts {client['sent_pkts']} packets sent"
    return reason, fields


def entries(app, pcap):
    """What may stand in the lab's table, column by column: sizes, operations with the data, who invalidates."""
    proof = Proof(app, pcap)
    found = messages(proof.packets)
    written = proof.step("write", found, lambda m: m.time)
    yield [{str(message.size)} for message in written if message.side == "client"]
    for step in STEPS:  # 8 KiB and more: all commands and answers together have less
        yield [{way for way, size in proof.carried(*step)[0].items() if size >= 8192}]
    yield [{message.side for message in found if message.kind == "INVALIDATE"} or {"nobody"}]


def check(path):
    """Lines such as "nvme 64 READ WRITE server"; SEND+READ: both carry data."""
    right = wrong = 0
    if not os.path.exists(path):
        sys.exit(f"no file {path}: above/README.md, step 7")
    with open(path, encoding="utf-8") as file:
        for app, *filled in filter(None, map(str.split, file)):
            pcap = f"results/above/{app}.pcap"
            if not os.path.exists(pcap):
                print(f"{path}: {app}: " + said("first run", "请先运行") + f" make above APP={app}")
                continue
            for entry, allowed in zip(filled, entries(app, pcap)):
                if set(entry.split("+")) in allowed:
                    right += 1
                else:
                    wrong += 1
                    print(f"{path}: {app}: " + said(f"no {entry} in {pcap}", f"{pcap} 里不是 {entry}"))
    print(said(f"right: {right}, wrong: {wrong}", f"正确：{right}，错误：{wrong}"))
    return 1 if wrong or not right else 0


def main(app, pcap, size, file):
    with open(file, encoding="utf-8") as text:
        client = dict(re.findall(r"(\w+)=((?<=why=).*|\S*)", text.read()))
    proof = Proof(app, pcap)
    for step, title in (
        ("write", said("the client writes", "客户端写")),
        ("read", said("the client reads", "客户端读")),
    ):
        print(f"{app}: {title}, {size} {said('bytes', '字节')}")
        proof.show(step)
    reason, fields = verdict(proof, int(size), client)
    if reason:
        print(f"proof.py: {app}: {reason}", file=sys.stderr)
    print(
        f"RESULT above={app} status={'FAIL' if reason else 'PASS'} bytes={size} "
        + " ".join(fields)
        + f" packets={len(proof.packets)} repeated={proof.repeated} sent_pkts={client['sent_pkts']} "
        + f"seconds={int(client['us']) / 1e6:.1f}"
    )
    return 1 if reason else 0


if __name__ == "__main__":
    sys.exit(check(sys.argv[2]) if sys.argv[1] == "check" else main(*sys.argv[1:]))
