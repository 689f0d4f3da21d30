# SPDX-License-Identifier: BSD-2-Clause
"""What the files of a run say (see trace.py), as one list of events: what the page of make show steps through."""
import json
import os
import re
import sys
from collections import defaultdict
from contextlib import suppress

sys.path.insert(0, os.path.realpath(__file__ + "/../../../judge"))
from ladder import ANSWERS, OPCODES, packets, relative  # noqa: E402

SIDES = {"client": "10.0.1.2", "server": "10.0.1.1"}
OTHER = {"client": "server", "server": "client"}
MOST = 600  # events of a page, from the first
LATE = 40  # of those behind them that tell how it ended: so many of the first, and of the last
KERNEL = re.compile(r".*-(\d+) +\[\d+\] .* ([\d.]+): (\w+): \(.*?\) ?(.*)")
TEXTS = ("out", "err", "tcp_out", "tcp_in")
# Of events at the same microsecond: the program posts before the NIC works, and polls after it.
RANKS = (("copy", "atomic", "sent", "arrived", "cqe"), ("poll", "cq_event", "tcp_in"), TEXTS[:2])
RANK = {name: rank for rank, names in enumerate((*RANKS, ("exit",)), 1) for name in names}


def fields(text):
    """name=value, with numbers; but a browser has none of 64 bits."""
    found = dict(re.findall(r"(\w+)=(\{.*?\}|\S*)", text))
    for name, value in found.items():
        if value[:1] == "[":
            found[name] = json.loads(value)
        elif value[:1] == "{":  # bytes, as the kernel writes them
            found[name] = bytes(int(byte, 16) for byte in value[1:-1].split(","))
        elif name != "wr_id" and re.fullmatch(r"-?(0x[\da-f]+|0|[1-9]\d*)", value):
            found[name] = int(value, 0)
    return found


def lines(path):
    with suppress(FileNotFoundError), open(path, encoding="utf-8", errors="replace") as file:
        yield from file.read().splitlines()


def in_order(events):
    events.sort(key=lambda event: (int(event["t"]), RANK.get(event["k"], 0)))


class Run:
    """Events, in one order; regions, packets and the rest of the page."""

    def __init__(self, folder, hosts):
        self.folder, self.hosts = folder, hosts
        self.notes, self.sides, self.packets = [], {}, []
        self.calls = {side: self.read_side(side) for side in SIDES}
        for side in SIDES:
            self.sides[side]["extents"] = self.extents(side)
            self.read_kernel(side)
        for events in self.calls.values():
            in_order(events)
        self.match_packets()
        self.events = self.merge()
        for event in self.events:
            if event["k"] in ("copy", "atomic"):
                self.place(event)
        self.add_queues()

    def note(self, name, **values):
        if {"key": name, **values} not in self.notes:
            self.notes.append({"key": name, **values})

    def read_side(self, side):
        """Its calls and what it printed."""
        about = {"missing": [], "exit": None, "regions": [], "result": None}
        self.sides[side], events = about, []
        of = "server" if self.hosts == 1 else side  # who has traced the kernel
        for line in [*lines(f"{self.folder}/{side}.said"), *lines(f"{self.folder}/{side}.calls")]:
            time, name, text = f"{line} ".split(" ", 2)
            text = text.rstrip(" ")
            event = {"k": name, "s": side, "t": int(time) / 1000}
            event |= {"text": text} if name in TEXTS else fields(text)
            if name == "reg_mr":
                event["region"] = len(about["regions"])
                about["regions"].append(
                    [event[x] for x in ("addr", "len", "access", "lkey", "rkey")]
                )
            elif name == "dereg_mr":
                keys = [region[3] for region in about["regions"]]
                event["region"] = len(keys) - 1 - keys[::-1].index(event["lkey"])
            elif name == "exit":
                about["exit"] = str(event["status"])
            elif name == "out" and text.startswith("RESULT "):
                about["result"] = fields(text)
            events.append(event)
        for line in lines(f"{self.folder}/{of}.missing"):
            kernel, *about["missing"] = line.split()
            for what in about["missing"]:
                self.note("missing", side=side, what=what, kernel=kernel)
        return events

    def extents(self, side):
        """Its memory: regions that overlap or touch are one piece."""
        found = []
        for number, (addr, length, *_) in sorted(
            enumerate(self.sides[side]["regions"]), key=lambda r: r[1]
        ):
            if not found or addr > found[-1]["addr"] + found[-1]["len"]:
                found.append({"addr": addr, "len": 0, "regions": []})
            last = found[-1]
            last["len"] = max(last["len"], addr + length - last["addr"])
            last["regions"] = sorted([*last["regions"], number])
        return found

    def extent(self, side, event):
        """The number of the piece of memory that an event is about, or None."""
        addr, end = event["addr"], event["addr"] + event.get("len", 8)
        for number, extent in enumerate(self.sides[side]["extents"]):
            if extent["addr"] <= addr and end <= extent["addr"] + extent["len"]:
                return number
        return None

    def place(self, event):
        """Where a NIC has been in memory, and what it wrote there."""
        event |= {"len": event.get("len", 8), "extent": self.extent(event["s"], event)}
        data = event.pop("data", b"")[: event["len"]]
        if event.get("dir") == 0 and "error" not in event:
            event["new"] = data[:32].hex()

    def read_kernel(self, side):
        """The NIC's events. On one host those of both sides are in the server's file."""
        under_way = {}  # by thread: a copy that has begun
        for line in lines(f"{self.folder}/{side}.kernel"):
            if "LOST" in line:
                self.note("lost", side=side)
            if not (found := KERNEL.match(line)):
                continue
            event = {"k": found[3], "t": float(found[2]) * 1e6, "s": side, **fields(found[4])}
            if event["k"] == "copied":
                if event["error"]:
                    under_way[found[1]]["error"] = event["error"]
                continue
            if event["k"] == "copy":
                under_way[found[1]] = event
            if self.hosts == 1:
                event["s"] = self.whose(event)
            if event["k"] in ("request", "answer"):
                event["k"] = "arrived"
            if event["s"]:
                self.calls[event["s"]].append(event)
            else:
                self.note("whose", what=event["k"])

    def whose(self, event):
        """The side of an event of one host's NIC: by the memory, or by the number of the queue pair, which in a packet is
        its receiver's. None where both or no side has it."""
        if "addr" in event:
            found = [side for side in SIDES if self.extent(side, event) is not None]
        else:
            qpn = int.from_bytes(event["bth"][5:8], "big") if "bth" in event else event["qpn"]
            found = [
                side
                for side, events in self.calls.items()
                if any(e["k"] == "create_qp" and e["qpn"] == qpn for e in events)
            ]
        if len(found) != 1:
            return None
        return OTHER[found[0]] if event["k"] == "sent" else found[0]

    def captured(self):
        """{sender, opcode and PSN: its packets on the wire}"""
        found = defaultdict(list)
        if self.hosts == 2:
            for packet in packets(f"{self.folder}/packets.pcap"):
                side = next(s for s, address in SIDES.items() if address == packet.src)
                found[side, packet.raw[0], packet.raw[9:12]].append(packet)
        else:
            self.note("one clock")
        if not found:
            self.note("no capture")
        return found

    def match_packets(self):
        """A packet, the moment that a NIC sent it, and that the other got it: by opcode and PSN, in order."""
        captured, waiting, first = self.captured(), defaultdict(list), {}
        seen = bool(captured)
        both = [event for events in self.calls.values() for event in events if "bth" in event]
        sent = [event for event in both if event["k"] == "sent"]
        for event in sent:
            which = event["s"], event["bth"][0], event["bth"][9:12]
            event["p"] = len(self.packets)
            waiting[which].append(event["p"])
            self.packets.append(self.packet(event, captured[which], first))
        for event in both:
            bth = event.pop("bth")
            if event["k"] == "arrived":
                found = waiting[OTHER[event["s"]], bth[0], bth[9:12]]
                event["p"] = found.pop(0) if found else None
        arrived = {event["p"] for event in both if event["k"] == "arrived"}
        for event in sent:  # rxe drops what a queue pair has sent before its error
            packet = self.packets[event["p"]]
            if seen and not packet["captured"] and event["p"] not in arrived:
                event["k"], packet["unsent"] = "unsent", True
        if left := sum(map(len, captured.values())):
            self.note("unmatched", count=left)
        if count := sum(packet["captured"] for packet in self.packets):
            self.note("capture", n=count, all=sum("unsent" not in p for p in self.packets))

    @staticmethod
    def packet(event, captured, first):
        """What is known of a packet. first: of each requester the first PSN, from which all are counted."""
        if captured:
            p = captured.pop(0)
            return {
                "name": p.name,
                "psn": p.psn,
                "bytes": p.payload,
                "carries": p.carries,
                "captured": True,
            }
        opcode, psn = event["bth"][0], int.from_bytes(event["bth"][9:12], "big")
        requester = OTHER[event["s"]] if opcode in ANSWERS else event["s"]
        name, _ = OPCODES.get(opcode) or OPCODES[opcode % 32]
        psn = relative(psn, first.setdefault((requester, opcode == 100), psn))
        return {"name": name, "psn": psn, "bytes": None, "carries": "", "captured": False}

    def crossings(self):
        """What left one side and came to the other: pairs of events."""
        sent = {e["p"]: e for events in self.calls.values() for e in events if e["k"] == "sent"}
        for side, events in self.calls.items():
            for event in events:
                if event["k"] == "arrived" and event["p"] in sent:
                    yield sent[event["p"]], event
            yield from zip(
                (e for e in events if e["k"] == "tcp_out"),
                (e for e in self.calls[OTHER[side]] if e["k"] == "tcp_in"),
            )

    def merge(self):
        """Two clocks: the server's is moved to where all arrives after it was sent, and nothing overtakes."""
        pairs = list(self.crossings())
        least = [a["t"] - b["t"] for a, b in pairs if a["s"] == "client"]
        most = [b["t"] - a["t"] for a, b in pairs if a["s"] == "server"]
        if self.hosts == 2 and least and most:
            for event in self.calls["server"]:
                event["t"] += (max(least) + min(most)) / 2
            self.note("clocks", us=round(abs(min(most) - max(least)) / 2))
        before = {id(b): id(a) for a, b in pairs}
        queues, done, events = [list(each) for each in self.calls.values()], {None}, []
        while queues := [queue for queue in queues if queue]:
            ready = [queue for queue in queues if before.get(id(queue[0])) in done]
            event = min(ready or queues, key=lambda queue: queue[0]["t"]).pop(0)
            done.add(id(event))
            events.append(event)
        start = events[0]["t"] if events else 0
        for event in events:
            event["t"] = round(event["t"] - start)
        return events

    def add_queues(self):
        """After each event that changes one: the wr_ids in a side's send, receive and completion queue."""
        queues = {side: {"s": [], "r": [], "c": []} for side in SIDES}
        posted = {side: 0 for side in SIDES}
        for event in self.events:
            if event["k"] not in ("post_send", "post_recv", "cqe", "poll"):
                continue
            of, entry, changed = queues[event["s"]], (event["qpn"], event["wr_id"]), "c"
            if event["k"] == "poll":
                changed += taken(of, entry, event["opcode"])
            else:
                changed = {"post_send": "s", "post_recv": "r"}.get(event["k"], "c")
                of[changed].append(entry)
                posted[event["s"]] += 1 if changed != "c" else -1
            event["q"] = {
                name: [len(of[name]), *(wr_id for _, wr_id in of[name][:12])] for name in changed
            }
        for side, count in posted.items():
            if count < 0:
                self.note("posts unseen", side=side)

    def tells_the_end(self, event):
        """What has failed, and what the programs print."""
        if event["k"] in ("failed", "out", "err", "exit"):
            return True
        packet = self.packets[event["p"]] if event.get("p") is not None else {"carries": ""}
        return any(map(event.get, ("status", "error", "errno"))) or "NAK" in packet["carries"]

    def page(self, title, command):
        shown = self.events[:MOST]
        if len(self.events) > MOST:
            self.note("cut", total=len(self.events), first=MOST)
            late = [event for event in self.events[MOST:] if self.tells_the_end(event)]
            shown += late[:LATE] + late[LATE:][-LATE:]
        self.note("polls")
        for side, about in self.sides.items():
            about["address"] = SIDES[side] if self.hosts == 2 else ""
        printed = {
            side: [[e["k"], e["text"]] for e in self.calls[side] if e["k"] in ("out", "err")]
            for side in SIDES
        }
        layouts = [text for _, text in printed["client"] if text.startswith("LAYOUT ")]
        return {
            "title": title,
            "command": command,
            "layout": fields(layouts[0]) if layouts else None,
            "sides": self.sides,
            "packets": self.packets,
            "events": shown,
            "printed": printed,
            "notes": self.notes,
        }


def taken(queues, entry, opcode):
    """A completion is taken: which other queue has become shorter, too."""
    del queues["c"][:1]
    qpn, wr_id = entry
    if entry in queues["s"] and opcode < 128:  # what came before it on this queue pair is done, too
        last = queues["s"].index(entry)
        queues["s"][:] = [w for i, w in enumerate(queues["s"]) if i > last or w[0] != qpn]
        return "s"
    for receive in queues["r"]:
        if receive in (entry, (0, wr_id)):
            queues["r"].remove(receive)
            break
    return "r"
