#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs a pair and makes a page of it, results/show/LAB.html, on which one steps through the run.
    show.py LAB [DIR] [client's arguments]     DIR: your own program instead of the sample ("": none)
Two small VMs run the pair (HOSTS=1: one host, this machine if it has an RDMA device). What each side
did is in results/show/LAB/: trace.py says in which files. This program puts their lines into one order."""
import glob
import html
import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter, defaultdict
from contextlib import suppress

LEARN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(LEARN)
sys.path[:0] = [f"{ROOT}/judge", LEARN]
from ladder import ANSWERS, OPCODES, packets, relative  # noqa: E402
from memory import merged  # noqa: E402
from words import language, say, writing  # noqa: E402

SIDES = {"client": "10.0.1.2", "server": "10.0.1.1"}
HOSTS = 1 if os.environ.get("HOSTS") == "1" else 2
OTHER = {"client": "server", "server": "client"}
BLOCKS = "--block-size 100 --block-num 5 --stride 300"
# Where the default is long.
SMALL = {
    "04": "-n 3",
    "05": BLOCKS,
    "06": BLOCKS,
    "07": BLOCKS,
    "08": "-n 1 -s 1500",
    "09": "-n 3 -s 100",
    "10": "-n 9",
    "13": "-n 1",
    "14": "-n 4 -s 100 --break 0",
}
FIRST, LAST = 450, 150  # events that are kept of a long run
KERNEL = re.compile(r" ([\d.]+): (\w+): \(.*?\) ?(.*)")
# Of events at the same microsecond: the program posts before the NIC works, and polls after it.
RANK = {
    "poll": 2,
    "cq_event": 2,
    "tcp_in": 2,
    "out": 3,
    "err": 3,
    "exit": 4,
    "copy": 1,
    "atomic": 1,
    "sent": 1,
    "arrived": 1,
    "cqe": 1,
    "unsent": 1,
}


def words(text):
    return dict(re.findall(r"(\w+)=(\{.*?\}|\S*)", text))


def fields(text):
    """With numbers; but a browser has none of 64 bits."""
    return {
        name: int(value, 0)
        if name != "wr_id" and re.fullmatch(r"-?(0x[\da-f]+|0|[1-9]\d*)", value)
        else value
        for name, value in words(text).items()
    }


def lines(path):
    with suppress(FileNotFoundError), open(path, encoding="utf-8", errors="replace") as file:
        yield from file.read().splitlines()


class Run:
    """What the files of a run say: events, in one order; regions, packets and the rest of the page."""

    def __init__(self, folder, hosts):
        self.folder, self.hosts = folder, hosts
        self.notes, self.sides, self.packets = [], {}, []
        self.calls = {side: self.read_side(side) for side in SIDES}
        self.extents = {side: self.read_extents(side) for side in SIDES}
        self.read_kernel()
        self.match_packets()
        self.events = self.merge()
        self.add_contents()
        self.add_queues()

    def note(self, name, **values):
        if {"key": name, **values} not in self.notes:
            self.notes.append({"key": name, **values})

    def read_side(self, side):
        """Its calls and what it printed."""
        events, about = [], {
            "kernel": "?",
            "missing": "",
            "realtime": 0,
            "exit": None,
            "regions": [],
        }
        for line in lines(f"{self.folder}/{side}.said"):
            time, name, *text = line.split(" ", 2)
            if name in about:
                about[name] = text[0] if text else ""
            else:
                events.append(
                    {"k": name, "s": side, "t": int(time) / 1000, "text": text[0] if text else ""}
                )
            if name == "exit":
                events.append({"k": name, "s": side, "t": int(time) / 1000, "status": int(text[0])})
        for line in lines(f"{self.folder}/{side}.calls"):
            time, name, rest = line.split(" ", 2)
            event = {"k": name, "s": side, "t": int(time) / 1000}
            if name[:4] == "tcp_":
                event["text"] = rest[5:]
            elif name == "mem":
                event |= {
                    "addr": int(rest.split()[0][5:], 0),
                    "data": bytes.fromhex(rest.partition("hex=")[2]),
                }
            else:
                event |= fields(rest)
            if "sges" in event:
                event["sges"] = [
                    [int(x, 0) for x in sge.split(":")]
                    for sge in str(event["sges"]).split(",")
                    if sge
                ]
            if name == "reg_mr":
                event["region"] = len(about["regions"])
                about["regions"].append(
                    [event[x] for x in ("addr", "len", "access", "lkey", "rkey", "iova")]
                )
            if name == "dereg_mr":
                event["region"] = max(
                    (
                        i
                        for i, r in enumerate(about["regions"])
                        if r[3] == event["lkey"] and r[0] == event["addr"]
                    ),
                    default=0,
                )
            events.append(event)
        results = [
            words(e["text"]) for e in events if e["k"] == "out" and e["text"].startswith("RESULT ")
        ]
        about["result"] = results[-1] if results else None
        self.sides[side] = about
        about["missing"] = about["missing"].split(",") if about["missing"] else []
        for what in about["missing"]:
            self.note("missing", side=side, what=what, kernel=about["kernel"])
        return events

    def read_extents(self, side):
        return [
            {
                "addr": a,
                "len": n,
                "regions": [
                    i for i, r in enumerate(self.sides[side]["regions"]) if a <= r[0] < a + n
                ],
            }
            for a, n in merged((r[0], r[1]) for r in self.sides[side]["regions"])
        ]

    def place(self, side, addr, length):
        """Index of the extent in which that memory lies."""
        return next(
            (
                i
                for i, e in enumerate(self.extents[side])
                if e["addr"] <= addr and addr + length <= e["addr"] + e["len"]
            ),
            None,
        )

    def read_kernel(self):
        """The NIC's events. On one host each of the two files has those of both sides; who was meant has to
        be found out by queue pair and address."""
        qpns = {
            side: {e["qpn"] for e in self.calls[side] if e["k"] == "create_qp"} for side in SIDES
        }
        under_way = defaultdict(list)
        files = {side: list(lines(f"{self.folder}/{side}.kernel")) for side in SIDES}
        if self.hosts == 1:
            longer = max(files, key=lambda side: len(files[side]))
            files = {longer: files[longer]}
        for side, found_lines in files.items():
            for line in found_lines:
                found = KERNEL.search(line)
                if "LOST" in line:
                    self.note("lost", side=side)
                if not found:
                    continue
                event = {"k": found[2], "t": float(found[1]) * 1e6, "s": side, **fields(found[3])}
                thread = line.split(" [")[0], side
                if event["k"] == "copy":
                    under_way[thread].append(event)
                if event["k"] == "copied":
                    copy = under_way[thread].pop() if under_way[thread] else {}
                    if event["error"]:
                        copy["error"] = event["error"]
                    continue
                if "bth" in event:
                    event["bth"] = bytes(int(x, 16) for x in event["bth"][1:-1].split(","))
                if self.hosts == 1:
                    qpn = (
                        int.from_bytes(event["bth"][5:8], "big")
                        if "bth" in event
                        else event.get("qpn")
                    )
                    at = [
                        s
                        for s in SIDES
                        if (
                            self.place(s, event["iova"], event.get("len", 8)) is not None
                            if "iova" in event
                            else qpn in qpns[s]
                        )
                    ]
                    if len(at) != 1:
                        self.note("whose", what=event["k"])
                        continue
                    event["s"] = OTHER[at[0]] if event["k"] == "sent" else at[0]
                if event["k"] in ("request", "answer"):
                    event["k"] = "arrived"
                if event["k"] == "copy":
                    event["data"] = bytes(
                        int(x, 16) for x in re.findall("0x[0-9a-f]+", str(event["data"]))
                    )
                self.calls[event["s"]].append(event)
        for side in SIDES:
            self.calls[side].sort(key=lambda e: (int(e["t"]), RANK.get(e["k"], 0)))

    def match_packets(self):
        """A packet, the moment that a NIC sent it, and that the other got it: by opcode and PSN, in order."""
        captured = defaultdict(list)
        with suppress(subprocess.CalledProcessError, FileNotFoundError):
            for p in packets(f"{self.folder}/packets.pcap") if self.hosts == 2 else ():
                side = next(s for s, address in SIDES.items() if address == p.src)
                captured[side, p.raw[0], p.raw[9:12]].append(p)
        if not captured:
            self.note("no capture")
        first, waiting, at = {}, defaultdict(list), "client"
        if not any(e["k"] == "sent" for side in SIDES for e in self.calls[side]) and captured:
            self.note("by capture")  # tcpdump ran on the client's host
            for (side, opcode, psn), found in captured.items():
                self.calls[at] += [
                    {
                        "k": "sent",
                        "s": side,
                        "t": p.time * 1e6 - int(self.sides[at]["realtime"]) / 1000,
                        "wire": True,
                        "bth": bytes([opcode, *[0] * 8, *psn]),
                    }
                    for p in found
                ]
            self.calls[at].sort(key=lambda e: (int(e["t"]), RANK.get(e["k"], 0)))
        for event in sorted(
            (e for side in SIDES for e in self.calls[side] if "bth" in e),
            key=lambda e: e["k"] == "arrived",
        ):
            bth, side = event.pop("bth"), event["s"]
            if event["k"] == "arrived":
                found = waiting[OTHER[side], bth[0], bth[9:12]]
                event["p"] = found.pop(0) if found else None
                if event["p"] is not None:
                    self.packets[event["p"]]["arrived"] = True
                continue
            opcode, psn = bth[0], int.from_bytes(bth[9:12], "big")
            known = captured[side, opcode, bth[9:12]]
            requester = OTHER[side] if opcode in ANSWERS else side
            name, _ = OPCODES.get(opcode) or OPCODES.get(opcode % 32) or (f"opcode {opcode}", 0)
            packet = {
                "s": side,
                "name": name,
                "psn": relative(psn, first.setdefault((requester, opcode == 100), psn)),
                "bytes": None,
                "carries": "",
                "captured": bool(known),
            }
            if known:
                p = known.pop(0)
                packet |= {"name": p.name, "psn": p.psn, "bytes": p.payload, "carries": p.carries}
            event["p"] = len(self.packets)
            waiting[side, opcode, bth[9:12]].append(event["p"])
            self.packets.append(packet)
        for event in (e for side in SIDES for e in self.calls[side] if e["k"] == "sent"):
            packet = self.packets[
                event["p"]
            ]  # rxe drops what a queue pair has sent before its error
            if (
                not packet.pop("arrived", False)
                and not packet["captured"]
                and any(p["captured"] for p in self.packets)
            ):
                event["k"], packet["unsent"] = "unsent", True
        left = sum(map(len, captured.values()))
        if left:
            self.note("unmatched", count=left)
        if self.hosts == 1:
            self.note("one clock")

    def crossings(self):
        """What left one side and came to the other: pairs of events."""
        sent = {e["p"]: e for side in SIDES for e in self.calls[side] if e["k"] == "sent"}
        for side in SIDES:
            for event in self.calls[side]:
                if event["k"] == "arrived" and event["p"] in sent:
                    yield sent[event["p"]], event
            yield from zip(
                (e for e in self.calls[side] if e["k"] == "tcp_out"),
                (e for e in self.calls[OTHER[side]] if e["k"] == "tcp_in"),
            )

    def merge(self):
        """Two clocks: the server's is moved to where all arrives after it was sent, and nothing overtakes."""
        pairs = list(self.crossings())
        if self.hosts == 2 and pairs:
            least = max((a["t"] - b["t"] for a, b in pairs if a["s"] == "client"), default=None)
            most = min(
                (b["t"] - a["t"] for a, b in pairs if a["s"] == "server" and "wire" not in a),
                default=None,
            )
            least, most = (most if least is None else least), (least if most is None else most)
            for event in self.calls["server"]:
                event["t"] += (least + most) / 2
            self.note("clocks", us=round(abs(most - least) / 2))
        after = {id(b): a for a, b in pairs}
        queues, done, events = [list(self.calls[side]) for side in SIDES], set(), []
        while any(queues):
            ready = [
                q for q in queues if q and (id(q[0]) not in after or id(after[id(q[0])]) in done)
            ]
            queue = min(ready or [q for q in queues if q], key=lambda q: q[0]["t"])
            done.add(id(queue[0]))
            events.append(queue.pop(0))
        start = events[0]["t"] if events else 0
        for event in events:
            event["t"] = round(event["t"] - start)
        return events

    def add_contents(self):
        """What the NIC read and wrote: the bytes, as far as the program's own memory has told."""
        held = {side: [bytearray(e["len"]) for e in self.extents[side]] for side in SIDES}
        known = {side: [bytearray(e["len"]) for e in self.extents[side]] for side in SIDES}
        for e in self.events:
            addr = e.pop("iova", None) if e["k"] in ("copy", "atomic") else e.get("addr")
            if e["k"] in ("copy", "atomic"):  # rxe knows memory by its I/O virtual address
                addr = next(
                    (
                        r[0] + addr - r[5]
                        for r in self.sides[e["s"]]["regions"]
                        if r[5] <= addr < r[5] + r[1]
                    ),
                    addr,
                )
            if e["k"] not in ("copy", "atomic", "mem"):
                continue
            e["len"] = len(e["data"]) if e["k"] == "mem" else e.get("len", 8)
            e |= {"addr": addr, "extent": self.place(e["s"], addr, e["len"])}
            data = e.pop("data", b"")[: e["len"]]
            if e["extent"] is None:
                continue
            at = addr - self.extents[e["s"]][e["extent"]]["addr"]
            memory, sure = held[e["s"]][e["extent"]], known[e["s"]][e["extent"]]
            if e["k"] == "copy":
                part = slice(at, at + min(e["len"], 32))
                e["old"] = memory[part].hex() if all(sure[part]) else None
                e["new"] = data[:32].hex() if e["dir"] == 0 else e["old"]
            if e["k"] == "mem" or (e["k"] == "copy" and e["dir"] == 0 and "error" not in e):
                memory[at : at + len(data)] = data
                sure[at : at + e["len"]] = bytes(e["len"])
                sure[at : at + len(data)] = b"\1" * len(data)
        self.events = [e for e in self.events if e["k"] != "mem"]

    def add_queues(self):
        """After each event that changes one: the wr_ids in a side's send, receive and completion queue."""
        queues = {(side, name): [] for side in SIDES for name in "src"}
        for e in self.events:
            send, receive, completions = (queues[e["s"], name] for name in "src")
            changed = ""
            if e["k"] in ("post_send", "post_recv"):
                changed = "s" if e["k"] == "post_send" else "r"
                queues[e["s"], changed].append((e["qpn"], e["wr_id"]))
            elif e["k"] == "cqe":
                completions.append((e["qpn"], e["wr_id"]))
                changed = "c"
            elif e["k"] == "poll":
                changed = "rc" if (e["qpn"], e["wr_id"]) not in send or e["opcode"] >= 128 else "sc"
                if completions:
                    completions.pop(0)
                if changed == "sc":  # and what came before it on this queue pair is done, too
                    last = send.index((e["qpn"], e["wr_id"]))
                    send[:] = [w for i, w in enumerate(send) if i > last or w[0] != e["qpn"]]
                else:
                    of = next(
                        (w for w in receive if w[0] in (e["qpn"], 0) and w[1] == e["wr_id"]), None
                    )
                    if of:
                        receive.remove(of)
            if changed:
                e["q"] = {
                    name: [len(queues[e["s"], name]), *(w for _, w in queues[e["s"], name][:12])]
                    for name in changed
                }
        for side in SIDES:
            kinds = Counter(e["k"] for e in self.events if e["s"] == side)
            if kinds["cqe"] > kinds["post_send"] + kinds["post_recv"]:
                self.note("posts unseen", side=side)

    def cut(self):
        """Of a long run its begin and end, and between them one event that says what is left out."""
        if len(self.events) <= FIRST + LAST:
            return self.events
        out = self.events[FIRST:-LAST]
        gap = {
            "k": "gap",
            "s": "",
            "t": out[0]["t"],
            "count": len(out),
            "kinds": Counter(e["k"] for e in out),
            "of": {},
        }
        for side in SIDES:
            mine = [e for e in out if e["s"] == side]
            copies = [
                [e for e in mine if e["k"] == "copy" and e["dir"] == way and "error" not in e]
                for way in (0, 1)
            ]
            kinds = Counter(e["k"] for e in mine)
            gap["of"][side] = {
                "moved": [sum(e["len"] for e in found) for found in copies],
                "copies": [
                    [*piece, way]
                    for way in (0, 1)
                    for piece in merged((e["addr"], e["len"]) for e in copies[way])[:200]
                ],
                "q": {name: value for e in mine for name, value in e.get("q", {}).items()},
                "live": [[e["region"], 1 + (e["k"] == "dereg_mr")] for e in mine if "region" in e],
                "printed": kinds["out"] + kinds["err"],
                **{name: kinds[name] for name in ("post_send", "post_recv", "poll", "atomic")},
            }
        self.note("cut", total=len(self.events), first=FIRST, last=LAST)
        return self.events[:FIRST] + [gap] + self.events[-LAST:]

    def page(self, title, command):
        layout = next(
            (
                fields(e["text"])
                for e in self.events
                if e["k"] == "out" and e["text"].startswith("LAYOUT ")
            ),
            None,
        )
        for side, about in self.sides.items():
            about |= {
                "extents": self.extents[side],
                "address": SIDES[side] if self.hosts == 2 else "",
            }
        printed = {
            side: [
                [e["k"], e["text"]]
                for e in self.events
                if e["s"] == side and e["k"] in ("out", "err")
            ]
            for side in SIDES
        }
        events = self.cut()
        captured = sum(p["captured"] for p in self.packets)
        if captured:
            self.note("capture", n=captured, all=sum("unsent" not in p for p in self.packets))
        self.note("polls")
        return {
            "title": title,
            "command": command,
            "layout": layout,
            "sides": self.sides,
            "packets": self.packets,
            "events": events,
            "printed": printed,
            "notes": self.notes,
        }


def write_page(lab, title, command):
    with open(f"{LEARN}/show/show.html", encoding="utf-8") as file:
        page = file.read()
    with open(f"{LEARN}/show/words.json", encoding="utf-8") as file:
        table = json.load(file)
    for mark, value in (
        ("RUN", Run(f"{ROOT}/results/show/{lab}", HOSTS).page(title, command)),
        ("WORDS", table),
    ):
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
        page = page.replace(f"@{mark}@", text)
    page = page.replace("@LANG@", language()).replace("@TITLE@", html.escape(title))
    with open(f"{ROOT}/results/show/{lab}.html", "w", encoding="utf-8") as file:
        file.write(page)


def prepared(lab, own, *arguments):
    """Builds the program and empties the run's folder. What testenv.sh is to run, and the page's title; None: it
    doesn't build."""
    where = own or next(iter(glob.glob(f"{ROOT}/{lab}_*") if lab else ()), "")
    if not os.path.exists(f"{where}/Makefile"):
        sys.exit(say("show what", lab=lab, directory=own))
    with open(f"{where}/Makefile", encoding="utf-8") as file:
        program = re.search(r"(?m)^SAMPLE *= *(\S+)", file.read())[1]
    arguments = list(arguments) or SMALL.get(lab, "").split()
    folder = f"{ROOT}/results/show/{lab}"
    os.makedirs(folder, exist_ok=True)
    for path in glob.glob(f"{folder}/*"):
        os.remove(path)
    for build in (
        ["make", "-s", "--no-print-directory", "-C", where],
        [
            "gcc",
            "-O2",
            "-U_FORTIFY_SOURCE",
            "-fPIC",
            "-shared",
            "-o",
            f"{folder}/trace.so",
            f"{LEARN}/show/trace.c",
        ],
    ):
        if subprocess.run(build, check=False).returncode:
            return None
    wrapper = f"{folder}/{program}"  # as pair.sh wants it: one file with the program's name
    with open(wrapper, "w", encoding="utf-8") as file:
        file.write(
            "#!/bin/sh\nexec python3 -B "
            + shlex.join([f"{LEARN}/show/trace.py", folder, os.path.abspath(f"{where}/{program}")])
            + ' "$@"\n'
        )
    os.chmod(wrapper, 0o755)
    capture = [f"{ROOT}/testenv/capture.sh", f"{folder}/packets.pcap"] if HOSTS == 2 else []
    return [*capture, f"{ROOT}/testenv/pair.sh", wrapper, *arguments], (
        os.path.basename(os.path.abspath(where)) + f": {program}",
        shlex.join([program, *arguments]),
    )


def main(lab="", own="", *arguments):
    if not (run := prepared(lab, own, *arguments)):
        return 1
    command, title = run
    folder = f"{ROOT}/results/show/{lab}"
    print(say("show running"), flush=True)
    with open(
        f"{folder}/printed.txt", "wb"
    ) as printed:  # not here: whoever predicts has not seen it yet
        status = subprocess.run(
            [f"{ROOT}/testenv/testenv.sh", "run", *command],
            check=False,
            stdout=printed,
            env={**os.environ, "TESTENV_HOSTS": str(HOSTS)},
        ).returncode
    if not os.path.exists(f"{folder}/client.said"):
        print(*lines(f"{folder}/printed.txt"), sep="\n")
        print(say("show failed"), file=sys.stderr)
        return status or 1
    write_page(lab, *title)
    print(
        say("show made", page=f"results/show/{lab}.html", printed=f"results/show/{lab}/printed.txt")
    )
    return status and int(os.environ.get("NOT_YET", 1))


if __name__ == "__main__":
    sys.exit(writing(main, *sys.argv[1:]))
