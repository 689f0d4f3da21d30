# SPDX-License-Identifier: BSD-2-Clause
"""Which packets a sample is made of, and what is in them: test_wire.py has left the captures, see CAPTURES
there, in results/wire; tshark decodes them. (What the handout shows of 03 and of 08 to 13: test_labs.Wires.)"""
import os
import re
import sys
import unittest

from pairs import pattern
from samples import ROOT

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

    def read(self, sample):
        """The conversation without what rxe has repeated (see README.md)."""
        kept = {}
        for packet in packets(os.path.join(ROOT, "results", "wire", sample + ".pcap")):
            kept.setdefault((packet.src, packet.name, packet.psn), packet)
        return list(kept.values())

    def sends(self, found, src, wanted, data=None):
        """What src asks for, or answers to a READ, is this, PSN after PSN; and is made of such data."""
        mine = [p for p in found if p.src == src and not p.name.endswith("Acknowledge")]
        self.assertEqual([(p.name, p.payload) for p in mine], list(wanted))
        self.assertEqual([p.psn for p in mine], list(range(len(mine))))
        if data is not None:
            self.assertTrue(b"".join(p.data for p in mine) == data, "other bytes on the wire")
        return mine

    def lists(self, requests):
        """The second of these requests concerns what is right behind the first one's 3200 bytes."""
        first, second = (p.value for p in requests)
        self.assertEqual((first["reth.dmalen"], second["reth.dmalen"]), (3200, 800))
        self.assertEqual(second["reth.va"], first["reth.va"] + 3200)

    def test_04_an_atomic_and_the_word_as_it_was(self):
        found = self.read("04_atomic")  # --iters 2 --seed 5
        wanted = [*2 * ["FetchAdd"], *2 * ["CmpSwap"], "FetchAdd"]
        asked = self.sends(found, CLIENT, [(name, 0) for name in wanted])
        swapped = 2**64 - 1 - 7
        operands = ["add 1", "add 1", f"compare 7 swap {swapped}", "compare 7 swap 0", "add 0"]
        self.assertEqual([re.sub(".* rkey [^ ]+ ", "", p.carries) for p in asked], operands)
        answers = [(p.name, p.psn, p.carries) for p in found if p.src == SERVER]
        was = [5, 6, 7, swapped, swapped]
        acks = [("ATOMIC Acknowledge", n, f"AETH ACK msn {n + 1}, was {was[n]}") for n in range(5)]
        self.assertEqual(answers, acks)

    def test_05_gathered_blocks_are_one_contiguous_message(self):
        found = self.read("05_gather_write")  # 40 blocks of 100 bytes: lists of 32 and 8
        sent = self.sends(found, CLIENT, split("RDMA WRITE", 3200, 800), pattern(4000, 1))
        self.lists([sent[0], sent[4]])

    def test_06_one_contiguous_answer_is_scattered(self):
        found = self.read("06_scatter_read")
        asked = [p for p in found if p.src == CLIENT]
        names = [(p.name, p.psn) for p in asked]
        self.assertEqual(names, [("RDMA READ Request", 0), ("RDMA READ Request", 4)])
        self.lists(asked)
        self.sends(found, SERVER, split("RDMA READ response", 3200, 800), pattern(4000, 1))

    def test_07_blocks_on_both_sides_and_one_message_between(self):
        found = self.read("07_gssr")
        self.sends(found, CLIENT, split("SEND", 3200, 800), pattern(4000, 1))
        # the server's word that it has the message, which used two receives
        (word,) = self.sends(found, SERVER, [("SEND Only with Immediate", 0)])
        self.assertEqual(word.carries, "immediate 2")

    def test_12_the_fence_keeps_the_send_behind_the_answer(self):
        data, note = pattern(4096, 1), pattern(64, 2**64 - 2)
        for capture, fence in (("12_ordering", True), ("12_ordering-no-fence", False)):
            found = self.read(capture)
            read, *sent = [p for p in found if p.src == CLIENT and not p.answer]
            wanted = [("RDMA READ Request", 0), *split("SEND", 4096), ("SEND Only", 64)]
            self.assertEqual([(p.name, p.payload) for p in (read, *sent)], wanted)
            answer = [p for p in found if p.src == SERVER and "response" in p.name]
            self.assertEqual(b"".join(p.data for p in answer), data)
            self.assertEqual(sent[-1].data, note)
            if fence:
                self.assertLess(found.index(answer[-1]), found.index(sent[0]))
                self.assertEqual(b"".join(p.data for p in sent[:-1]), data)
            else:  # a busy machine may send it late; its payload tells that it did not wait
                poison = bytes(byte ^ 0xFF for byte in data[:MTU])
                self.assertEqual(sent[0].data, poison)

    def test_13_a_loan_its_end_and_the_refusal(self):
        found = self.read("13_memory_window")
        lent, write, end, again = [p for p in found if not p.name == "Acknowledge"]
        sent = [(p.src, p.name, p.payload) for p in (lent, write, end, again)]
        wanted = [
            (SERVER, "SEND Only", 16),
            (CLIENT, "RDMA WRITE Only", 100),
            (CLIENT, "SEND Only with Invalidate", 0),
            (CLIENT, "RDMA WRITE Only", 100),
        ]
        self.assertEqual(sent, wanted)
        rkey = int.from_bytes(lent.data[:8], "big")
        self.assertEqual([p.value["reth.r_key"] for p in (write, again)], [rkey, rkey])
        self.assertEqual(end.carries, f"IETH rkey 0x{rkey:x}")
        self.assertEqual(found[-1].carries, "AETH NAK (remote access error) msn 2")
