#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Prints a capture of RoCE v2 packets as a ladder between client and server.

    ladder.py FILE.pcap

A packet's line: its PSN, counted from the first of the same requester's; the opcode; what
its headers carry (RETH: which memory; AETH: the answer; AtomicETH: the operands); and how
many bytes of the message. tshark decodes; where each number stands in a packet says the
IBTA specification, chapter 9.
"""
import itertools
import subprocess
import sys

FIELDS = (
    "ip.src",
    "ip.dst",
    "udp.length",
    "infiniband.bth.opcode",
    "infiniband.bth.psn",
    "infiniband.bth.padcnt",
    "infiniband.bth.se",
    "infiniband.reth.va",
    "infiniband.reth.r_key",
    "infiniband.reth.dmalen",
    "infiniband.aeth.syndrome",
    "infiniband.aeth.msn",
    "infiniband.atomiceth.swapdt",
    "infiniband.atomiceth.cmpdt",
    "infiniband.deth.srcqp",
    "infiniband.atomicacketh.origremdt",
    "infiniband.immdt",
    "infiniband.deth.q_key",
    "udp.payload",
    "frame.time_epoch",
    "infiniband.bth.destqp",
    "ipv6.src",
    "ipv6.dst",
)
# The opcodes of RC by number (those of UC are 32 more; UD from 100), and the bytes of headers behind the BTH.
RETH, AETH, IMM, IETH, ATOMIC, ORIG, DETH, FETH = 16, 4, 4, 4, 28, 8, 8, 4
OPCODES = {
    0: ("SEND First", 0),
    1: ("SEND Middle", 0),
    2: ("SEND Last", 0),
    3: ("SEND Last with Immediate", IMM),
    4: ("SEND Only", 0),
    5: ("SEND Only with Immediate", IMM),
    6: ("RDMA WRITE First", RETH),
    7: ("RDMA WRITE Middle", 0),
    8: ("RDMA WRITE Last", 0),
    9: ("RDMA WRITE Last with Immediate", IMM),
    10: ("RDMA WRITE Only", RETH),
    11: ("RDMA WRITE Only with Immediate", RETH + IMM),
    12: ("RDMA READ Request", RETH),
    13: ("RDMA READ response First", AETH),
    14: ("RDMA READ response Middle", 0),
    15: ("RDMA READ response Last", AETH),
    16: ("RDMA READ response Only", AETH),
    17: ("Acknowledge", AETH),
    18: ("ATOMIC Acknowledge", AETH + ORIG),
    19: ("CmpSwap", ATOMIC),
    20: ("FetchAdd", ATOMIC),
    22: ("SEND Last with Invalidate", IETH),
    23: ("SEND Only with Invalidate", IETH),
    28: ("FLUSH", FETH + RETH),  # IBTA release 1.5, annex A19
    29: ("ATOMIC WRITE", RETH),
    100: ("UD SEND Only", DETH),
    101: ("UD SEND Only with Immediate", DETH + IMM),
}
CM = {
    16: "ConnectRequest",
    18: "ConnectReject",
    19: "ConnectReply",
    20: "ReadyToUse",
    21: "DisconnectRequest",
    22: "DisconnectReply",
}  # attributes of the CM's datagrams
NAKS = ("PSN sequence error", "invalid request", "remote access error", "remote operational error")
ANSWERS = range(13, 19)  # they repeat the PSN of what they answer


def relative(psn, first):
    """PSNs have 24 bits: what lies behind the first one is negative."""
    return (psn - first + (1 << 23)) % (1 << 24) - (1 << 23)


class Packet:
    """src, qp (where it goes to), time, name, answer (to the other's request), psn (relative), payload (bytes), data,
    value (of the header fields) and carries (the same in words)."""

    def __init__(self, line, first_psns):
        value = dict(zip(FIELDS, line.split("\t")))
        opcode = int(value["infiniband.bth.opcode"], 0)
        self.src, self.time = value["ip.src"] or value["ipv6.src"], float(value["frame.time_epoch"])
        self.qp = int(value["infiniband.bth.destqp"], 0)
        self.name, headers = OPCODES.get(opcode) or OPCODES[opcode % 32]
        self.answer = opcode in ANSWERS
        # UDP header 8, BTH 12, ICRC 4
        self.payload = int(value["udp.length"]) - 24 - headers - int(value["infiniband.bth.padcnt"])
        at = 12 + headers  # where the payload begins, behind the BTH and what follows it
        self.raw = bytes.fromhex(value["udp.payload"])
        self.data = self.raw[at : at + self.payload]
        if opcode == 100 and self.data[1] == 7:  # management class: communication manager
            self.name = "CM " + CM.get(int.from_bytes(self.data[16:18], "big"), "message")
        psn = int(value["infiniband.bth.psn"])
        requester = value["ip.dst"] or value["ipv6.dst"] if self.answer else self.src, opcode == 100
        self.psn = relative(psn, first_psns.setdefault(requester, psn))
        self.value = {
            name.split(".", 1)[1]: int(text, 16 if name == "infiniband.immdt" else 0)
            for name, text in value.items()
            if "eth." in name or "immdt" in name
            if text
        }
        if opcode in (28, 29):  # tshark 4.0 does not know these yet
            reth = self.raw[at - RETH : at]
            self.value["reth.va"] = int.from_bytes(reth[:8], "big")
            self.value["reth.r_key"] = int.from_bytes(reth[8:12], "big")
            self.value["reth.dmalen"] = int.from_bytes(reth[12:], "big")
        solicited = ["solicited"] * (value["infiniband.bth.se"] in ("1", "True"))
        self.carries = ", ".join([*self.headers(), *solicited])

    def headers(self):
        """What the headers behind the BTH say, header by header."""
        value = self.value
        if self.name == "FLUSH":  # FETH: what for (bits 0 to 3), and of what (4 and 5)
            feth = self.raw[15]
            kinds = [kind for bit, kind in enumerate(("visible", "persistent")) if feth >> bit & 1]
            yield f"FETH {' and '.join(kinds)}, {('range', 'whole region')[feth >> 4 & 1]}"
        if "reth.dmalen" in value:
            yield (
                f"RETH va 0x{value['reth.va']:x} rkey 0x{value['reth.r_key']:x} "
                f"length {value['reth.dmalen']}"
            )
        if "atomiceth.swapdt" in value:
            yield (
                f"AtomicETH va 0x{value['reth.va']:x} rkey 0x{value['reth.r_key']:x} "
                + (
                    f"add {value['atomiceth.swapdt']}"
                    if self.name == "FetchAdd"
                    else f"compare {value['atomiceth.cmpdt']} swap {value['atomiceth.swapdt']}"
                )
            )
        if "deth.q_key" in value and self.name[:3] != "CM ":
            yield f"DETH Q_Key {value['deth.q_key']} from QPN 0x{value['deth.srcqp']:x}"
        if "aeth.syndrome" in value:
            kind = ("ACK", "RNR NAK", "reserved", "NAK")[value["aeth.syndrome"] >> 5 & 3]
            kind += f" ({NAKS[value['aeth.syndrome'] & 3]})" if kind == "NAK" else ""
            yield f"AETH {kind} msn {value['aeth.msn']}"
        if "atomicacketh.origremdt" in value:
            yield f"was {value['atomicacketh.origremdt']}"
        if "Invalidate" in self.name:
            yield f"IETH rkey 0x{int.from_bytes(self.raw[12:16], 'big'):x}"
        if "immdt" in value:
            yield f"immediate {value['immdt']}"
        if self.name == "ATOMIC WRITE":
            yield f"value 0x{self.data.hex()}"


def packets(pcap):
    command = [
        "tshark",
        "-r",
        pcap,
        "-d",
        "udp.port==4791,infiniband",
        "-Y",
        "infiniband",
        "-T",
        "fields",
        "-E",
        "occurrence=f",
        *(word for name in FIELDS for word in ("-e", name)),
    ]
    out = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=True
    ).stdout
    first_psns = {}
    return [Packet(line, first_psns) for line in out.splitlines() if line.strip()]


def ladder(pcap, client="10.0.1.2", server="10.0.1.1"):
    print(f"client {client:<75} server {server}")
    for (right, name, payload), group in itertools.groupby(
        packets(pcap), lambda p: (p.src == client, p.name, p.payload)
    ):
        group = list(group)
        while group:  # only Middle packets have nothing but their number to tell
            some = group if "Middle" in name else group[:1]
            group = group[len(some) :]
            number = str(some[0].psn) + (f"..{some[-1].psn}" if len(some) > 1 else "")
            text = f"{number:>9}  {name}"
            text += f" x {len(some)}" if len(some) > 1 else ""
            text += f", {some[0].carries}" if some[0].carries else ""
            text += f", {payload} bytes" if payload else ""
            text += " each" if len(some) > 1 else ""
            print(f"  | {text:<86} --> |" if right else f"  | <-- {text:<86} |")


if __name__ == "__main__":
    ladder(*sys.argv[1:])
