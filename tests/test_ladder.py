# SPDX-License-Identifier: BSD-2-Clause
"""Which packets each sample is made of: test_wire.py has left the captures, see CAPTURES
there, in results/wire; tshark decodes them."""
import os
import re
import sys
import unittest

from pairs import messages, pattern
from samples import ROOT, ran

sys.path.insert(0, os.path.join(ROOT, "judge"))
from ladder import packets  # noqa: E402

CLIENT, SERVER = "10.0.1.2", "10.0.1.1"
MTU = 1024


def split(kind, *sizes):
    """The packets of messages of so many bytes, cut at the path MTU: (name, payload)."""
    for size in sizes:
        if size <= MTU:
            yield f"{kind} Only", size
            continue
        yield f"{kind} First", MTU
        yield from [(f"{kind} Middle", MTU)] * (-(-size // MTU) - 2)
        yield f"{kind} Last", size - (-(-size // MTU) - 1) * MTU


class Ladder(unittest.TestCase):
    maxDiff = None
    checked = 0

    @classmethod
    def tearDownClass(cls):
        print(
            f"{'ok' if cls.checked else 'not ok'} - ladder: {cls.checked} packets compared",
            flush=True,
        )

    def read(self, sample):
        """The conversation without what rxe has repeated (see README.md)."""
        sent, kept = set(), []
        for packet in packets(os.path.join(ROOT, "results", "wire", sample + ".pcap")):
            key = (packet.src, packet.name, packet.psn)
            if key not in sent:
                kept.append(packet)
            sent.add(key)
        Ladder.checked += len(kept)
        return kept

    def requests(self, found, src, wanted, first=0):
        """What src asks for is this, PSN after PSN."""
        mine = [p for p in found if p.src == src and not p.answer]
        self.assertEqual([(p.name, p.payload) for p in mine], list(wanted))
        self.assertEqual([p.psn for p in mine], list(range(first, first + len(mine))))
        return mine

    def acknowledged(self, found, by, *last_psns):
        """Acknowledge packets: the last one's PSN, and none but after a message's end. One
        acknowledges all before it, so there may be fewer than messages."""
        acks = [p for p in found if p.src == by and p.name == "Acknowledge"]
        self.assertEqual(acks[-1].psn, last_psns[-1])
        self.assertLessEqual({p.psn for p in acks}, set(last_psns))
        for ack in acks:
            self.assertEqual(ack.carries, f"AETH ACK msn {last_psns.index(ack.psn) + 1}")
        return len(acks)

    def holds(self, found, data):
        self.assertTrue(b"".join(p.data for p in found) == data, "other bytes on the wire")

    def test_01_a_write_and_its_acknowledgement(self):
        found = self.read("01_hello_write")
        (write,) = self.requests(found, CLIENT, split("RDMA WRITE", 11))
        self.assertRegex(write.carries, "^RETH va 0x[0-9a-f]+ rkey 0x[0-9a-f]+ length 11$")
        self.holds([write], b"hello verbs")
        self.assertEqual(self.acknowledged(found, SERVER, 0), 1)
        self.assertEqual(len(found), 2)

    def test_02_a_send_of_four_packets_each_way(self):
        found = self.read("02_send_recv")
        for src, other in ((CLIENT, SERVER), (SERVER, CLIENT)):
            sent = self.requests(found, src, split("SEND", 4096))
            self.holds(sent, pattern(4096, 1))
            self.assertEqual([p.carries for p in sent], [""] * 4)  # it names no memory
            self.assertEqual(self.acknowledged(found, other, 3), 1)  # one for four packets
        self.assertEqual(len(found), 10)

    def test_03_a_read_is_one_packet_and_its_answer_four(self):
        found = self.read("03_read")
        (read,) = self.requests(found, CLIENT, [("RDMA READ Request", 0)])
        self.assertRegex(read.carries, "^RETH va 0x[0-9a-f]+ rkey 0x[0-9a-f]+ length 4096$")
        answer = [p for p in found if p.src == SERVER]
        self.assertEqual(
            [(p.name, p.payload) for p in answer], list(split("RDMA READ response", 4096))
        )
        self.assertEqual([p.psn for p in answer], [0, 1, 2, 3])
        self.assertEqual([p.carries for p in answer], ["AETH ACK msn 1", "", "", "AETH ACK msn 1"])
        self.holds(answer, pattern(4096, 1))
        self.assertEqual(len(found), 5)  # the answer acknowledges: no Acknowledge besides

    def test_04_an_atomic_and_the_word_as_it_was(self):
        found = self.read("04_atomic")  # --iters 2 --seed 5
        asked = self.requests(
            found, CLIENT, [("FetchAdd", 0)] * 2 + [("CmpSwap", 0)] * 2 + [("FetchAdd", 0)]
        )
        swapped = 2**64 - 1 - 7
        self.assertEqual(
            [re.sub(".* rkey [^ ]+ ", "", p.carries) for p in asked],
            ["add 1", "add 1", f"compare 7 swap {swapped}", "compare 7 swap 0", "add 0"],
        )
        answers = [p for p in found if p.src == SERVER]
        self.assertEqual(
            [(p.name, p.psn, p.carries) for p in answers],
            [
                ("ATOMIC Acknowledge", n, f"AETH ACK msn {n + 1}, was {was}")
                for n, was in enumerate((5, 6, 7, swapped, swapped))
            ],
        )

    def test_05_gathered_blocks_are_one_contiguous_message(self):
        found = self.read("05_gather_write")  # 40 blocks of 100 bytes: lists of 32 and 8
        sent = self.requests(found, CLIENT, split("RDMA WRITE", 3200, 800))
        self.holds(sent, pattern(4000, 1))
        first, second = sent[0].value, sent[4].value
        self.assertEqual((first["reth.dmalen"], second["reth.dmalen"]), (3200, 800))
        self.assertEqual(second["reth.va"], first["reth.va"] + 3200)  # right behind it
        self.acknowledged(found, SERVER, 3, 4)

    def test_05_each_block_is_a_packet(self):
        found = self.read("05_gather_write-each")
        self.holds(self.requests(found, CLIENT, split("RDMA WRITE", *[100] * 40)), pattern(4000, 1))

    def test_06_one_contiguous_answer_is_scattered(self):
        found = self.read("06_scatter_read")
        asked = [p for p in found if p.src == CLIENT]
        self.assertEqual(
            [(p.name, p.psn, p.value["reth.dmalen"]) for p in asked],
            [("RDMA READ Request", 0, 3200), ("RDMA READ Request", 4, 800)],
        )
        self.assertEqual(asked[1].value["reth.va"], asked[0].value["reth.va"] + 3200)
        answer = [p for p in found if p.src == SERVER]
        self.assertEqual(
            [(p.name, p.payload) for p in answer], list(split("RDMA READ response", 3200, 800))
        )
        self.holds(answer, pattern(4000, 1))

    def test_07_blocks_on_both_sides_and_one_message_between(self):
        found = self.read("07_gssr")
        self.holds(self.requests(found, CLIENT, split("SEND", 3200, 800)), pattern(4000, 1))
        self.acknowledged(found, SERVER, 3, 4)
        # the server's word that it has the message, which used two receives
        (word,) = self.requests(found, SERVER, [("SEND Only with Immediate", 0)])
        self.assertEqual(word.carries, "immediate 2")
        self.acknowledged(found, CLIENT, 0)

    def test_08_the_last_packet_of_a_write_carries_the_immediate(self):
        found = self.read("08_write_imm")  # --size 1500: First and Last
        sent = self.requests(
            found, CLIENT, [("RDMA WRITE First", 1024), ("RDMA WRITE Last with Immediate", 476)] * 4
        )
        self.assertEqual(
            [p.carries for p in sent[1::2]],
            ["immediate 0", "immediate 1", "immediate 2", "immediate 3, solicited"],
        )
        self.assertEqual(
            [p.value["reth.va"] - sent[0].value["reth.va"] for p in sent[::2]],
            [0, 1500, 3000, 4500],
        )
        self.holds(sent, messages(4, 1500, 1))
        self.acknowledged(found, SERVER, 1, 3, 5, 7)

    def test_12_the_fence_keeps_the_send_behind_the_answer(self):
        note = pattern(64, 2**64 - 2)
        for capture, fence in (("12_ordering", True), ("12_ordering-no-fence", False)):
            found = self.read(capture)
            asked, *sent = [p for p in found if p.src == CLIENT and not p.answer]
            self.assertEqual((asked.name, asked.psn), ("RDMA READ Request", 0))
            self.assertEqual(
                [(p.name, p.payload) for p in sent], [*split("SEND", 4096), ("SEND Only", 64)]
            )
            self.assertEqual([p.psn for p in sent], list(range(4, 9)))
            answer = [p for p in found if p.src == SERVER and "response" in p.name]
            if (
                fence
            ):  # without, a busy machine may send the SEND late; its payload tells that it did not wait
                self.assertLess(found.index(answer[-1]), found.index(sent[0]))
            self.holds(answer, pattern(4096, 1))
            poison = bytes(byte ^ 0xFF for byte in pattern(4096, 1))
            self.holds(sent[-1:], note)
            if fence:
                self.holds(sent[:-1], pattern(4096, 1))
            else:
                self.holds(sent[:1], poison[:MTU])
            for i, packet in enumerate(
                sent[1:-1], 1
            ):  # on a busy machine the answer may come before these, also without a fence
                piece = slice(i * MTU, (i + 1) * MTU)
                self.assertIn(packet.data, (pattern(4096, 1)[piece], poison[piece]))

    def rungs(self, sample):
        return [(p.src == CLIENT, p.name, p.psn) for p in self.read(sample)]

    def test_11_the_connection_managers_datagrams_around_the_verbs(self):
        found = self.rungs("11_rdma_cm")
        self.assertEqual(
            found[:4],
            [
                (True, "CM ConnectRequest", 0),
                (False, "CM ConnectReply", 0),
                (True, "CM ReadyToUse", 1),
                (True, "RDMA WRITE Only", 0),
            ],
        )
        self.assertEqual(
            [(right, name) for right, name, _ in found if "SEND" in name or "READ" in name],
            [
                (True, "RDMA READ Request"),
                (False, "RDMA READ response Only"),
                (True, "SEND Only"),
                (False, "SEND Only"),
            ],
        )
        self.assertEqual(
            [rung[:2] for rung in found[-2:]],
            [(False, "CM DisconnectRequest"), (True, "CM DisconnectReply")],
        )

    def test_13_a_loan_its_end_and_the_refusal(self):
        found = self.read("13_memory_window")
        lent, *rest = [p for p in found if not p.name == "Acknowledge"]
        self.assertEqual(
            [(p.src, p.name, p.payload) for p in (lent, *rest)],
            [
                (SERVER, "SEND Only", 16),
                (CLIENT, "RDMA WRITE Only", 100),
                (CLIENT, "SEND Only with Invalidate", 0),
                (CLIENT, "RDMA WRITE Only", 100),
            ],
        )
        rkey = int.from_bytes(lent.data[:8], "big")
        self.assertEqual([p.value["reth.r_key"] for p in (rest[0], rest[2])], [rkey, rkey])
        self.assertEqual(rest[1].carries, f"IETH rkey 0x{rkey:x}")
        self.assertEqual(found[-1].carries, "AETH NAK (remote access error) msn 2")

    def test_09_a_datagram_and_its_answer(self):
        found = self.read("09_ud")  # 3 messages of 100 bytes
        for src in (CLIENT, SERVER):
            sent = [p for p in found if p.src == src]
            self.assertEqual(
                [(p.name, p.payload, p.psn) for p in sent],
                [("UD SEND Only with Immediate", 100, i) for i in range(3)],
            )
            for i, packet in enumerate(sent):
                self.assertRegex(
                    packet.carries, f"^DETH Q_Key 12345 from QPN 0x[0-9a-f]+, " f"immediate {i}$"
                )
                self.assertEqual(packet.data, pattern(100, 1 + i))
        self.assertEqual(len(found), 6)  # nothing is acknowledged

    def test_10_two_permissions_for_nine_messages(self):
        found = self.read("10_srq")
        self.holds(
            self.requests(found, CLIENT, split("SEND", *[1024] * 9)),
            b"".join(pattern(1024, 1 + i) for i in range(9)),
        )
        self.requests(found, SERVER, [("SEND Only", 0)] * 2)
        second = [i for i, p in enumerate(found) if p.src == SERVER and not p.answer][1]
        self.assertEqual(sum(p.src == CLIENT and not p.answer for p in found[:second]), 8)
        self.acknowledged(found, SERVER, *range(9))
        self.acknowledged(found, CLIENT, 0, 1)

    def test_make_wire_prints_the_ladder(self):
        ended = ran(
            [
                os.path.join(ROOT, "judge", "ladder.py"),
                os.path.join(ROOT, "results", "wire", "03_read.pcap"),
            ],
            check=True,
        )
        self.assertRegex(
            ended.stdout,
            r"(?s)client 10\.0\.1\.2 .* server 10\.0\.1\.1\n.*"
            r"0  RDMA READ Request, RETH .* length 4096 +--> \|\n.*"
            r"<-- +1\.\.2  RDMA READ response Middle x 2, 1024 bytes each +\|\n",
        )
