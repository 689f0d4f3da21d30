# SPDX-License-Identifier: BSD-2-Clause
"""Labs 05 to 07, the parts of the rubric: for make check and make grade-program the same. Only in the VM."""
import ctypes
import sys
from contextlib import nullcontext

from bench import MEASURING, Midway
from careful import Careful
from harms import APART, CONTIGUOUS, EVERYWHERE, Harm
from memory import Layout, Wrong
from pair import OTHER, starts, undisturbed
from run import Run
from sandbox import OPEN
from trace import counter
from transfer import RIGHTS, Transfer

WORK = "/run/grade"  # the reference: students' programs may not look at it
MINE = f"{OPEN}/suite/mine"
EAGER = {"07": ["chrt", "-f", "1"]}  # what the reference is started by to look at once
DENSE = Layout(100, 40, 100)  # no gaps
LONG = Layout(1048577, 2, 1048585)  # more than a buffer of some fixed size may hold
# One block more than a list holds, of a byte; full lists; long blocks; no gaps; one message a block; a long message.
AWKWARD = [
    Layout(*n)
    for n in ((1, 33, 3), (6, 1056, 10), (65537, 3, 65557), DENSE, (5, 1, 5), (301, 420, 417))
]
ASAN = {"ASAN_OPTIONS": "use_sigaltstack=0"}  # or gcc 12 finds fault with a cancelled thread
INLINE = 512  # bytes, at most, in a request of rxe
PARTS = ("sgl", "copy", "each", "itself", "verifies", "careful")


class Examiner(Careful):
    """Of one program: what its parts do. program: in MINE. random: new for each part."""

    def __init__(self, nic, lab, course, user):
        self.nic, self.lab, self.user = nic, lab, user
        self.receiver = "client" if lab == "06" else "server"
        self.movers = ["server", "client"] if lab == "07" else ["client"]  # those with blocks
        self.course, self.program, self.random = ctypes.CDLL(course), "", None
        self.course.fnv1a.restype = ctypes.c_uint64
        self.careless, self.tried, self.base, self.message = [], [], 0, b""
        self.passed, self.already = False, False  # it has moved data; see Transfer
        self.at_once, self.timeout = [], 5  # see EAGER; seconds

    def digest(self, message):
        """The suite's own, as its pattern."""
        basis, length = ctypes.c_uint64(0xCBF29CE484222325), ctypes.c_size_t(len(message))
        return f"{self.course.fnv1a(basis, message, length):016x}"

    def pattern(self, length, seed):
        """A message, as the suite makes it."""
        buffer = ctypes.create_string_buffer(length)
        self.course.pattern_fill(buffer, ctypes.c_size_t(length), ctypes.c_uint64(seed))
        return buffer.raw

    def draw(self, most_blocks=132, least=1):
        size = self.random.randint(least, 600)
        number = self.random.randint(most_blocks // 4, most_blocks)
        return Layout(size, number, size + self.random.randint(1, 200))

    # ---- one pair ----

    def sides(self, students, options, patience, env=None):
        """students: the roles that are the student's; the others are the reference's."""
        mine = {"program": f"{MINE}/{self.program}", "user": self.user, "env": env or ASAN}
        reference = {"program": f"{WORK}/reference", "before": self.at_once, "away": True}
        sides = {role: mine if role in students else reference for role in OTHER}
        return starts(sides, options, patience)

    def pair(self, students, method, layout, on, messages=1, device="", room=None):
        """device: what the students' device is made to look like (other_device.c). A new message each time."""
        seed = self.random.getrandbits(32)
        self.message = self.pattern(layout.block_size * layout.block_num, seed)
        self.tried = [
            f"--method={method}",
            *(f"--{name.replace('_', '-')}={value}" for name, value in layout._asdict().items()),
            f"--seed={seed}",
            f"--iters={messages}",
        ]
        env = {"LD_PRELOAD": f"{OPEN}/other_device.so", "HV_DEVICE": device} if device else None
        sides = self.sides(students, self.tried, self.timeout, env)
        return Run(self.nic, sides, self.tried, on=on, limit=20 + self.timeout, room=room)

    def itself(self, on, options, watched=False):
        """Runs the student's program as both sides."""
        sides = self.sides(OTHER, options, self.timeout)
        with nullcontext() if watched else self.nic.unwatched():
            return Run(self.nic, sides, options, on=on, limit=60)

    # ---- the parts ----

    def move(self, *what, **more):
        Transfer(self, *what, **more).run()

    def part_sgl(self):
        for layout in AWKWARD:
            self.move(self.movers, "sgl", layout)
        self.move(["client"], "sgl", self.draw(), messages=3)
        self.move(["server"], "sgl", Layout(self.random.randint(2, 60), 40, 64))
        narrow = {b"max_sge": 5, b"rd_atomic": 1, b"mtu": 512}
        self.move(["client"], "sgl", self.draw(least=50), limits=narrow)
        layout = Layout(self.random.randint(512, 999), 40, 999)
        self.when("path MTU 512", self.move, ["client"], "auto", layout, 1, {b"mtu": 512})
        # A device that can hold fewer elements than it names, and a peer's that can hold more.
        self.move(["client"], "sgl", self.draw(), 1, {b"max_sge": 64}, "sges:32:32:8:r")

    def part_copy(self):
        self.move(["client"], "copy", self.draw(), messages=2)
        short = Layout(self.random.randint(1, 12), 20, 15)  # it may be inline
        self.move(self.movers, "copy", short)
        self.move(self.movers, "copy", DENSE)
        self.move(["client"], "copy", LONG)
        self.at_once = EAGER.get(self.lab, [])  # at what it gets
        self.move(["server"], "copy", Layout(8, self.random.randint(20000, 30000), 11))

    def part_each(self):
        acks = self.lab == "07"  # they free the queue; it is filled often then
        number = 6000 if acks else 1300
        self.move(["client"], "each", Layout(8, number, 9), slow=acks, room=True)
        for size in (DENSE.block_size, self.random.randint(2, 64)):
            self.move(self.movers, "each", DENSE._replace(block_size=size, stride=size))
        self.at_once = EAGER.get(self.lab, [])  # at what it may send
        self.move(["server"], "each", Layout(8, 1250 if acks else 50, 11), room=acks)

    def part_itself(self):
        for method in ("sgl", "copy", "each"):
            number = self.random.randint(1, 4) * 32 + 1
            self.move(["server", "client"], method, self.draw()._replace(block_num=number))
        self.when("measuring", self.measures)

    def measures(self):
        """Eight messages one after another, 32 with more under way (blocks/measure.h)."""
        size = self.random.randint(INLINE + 1, 1500)
        layout = Layout(size, (64 << 10) // size, 2 * size)
        # So many under way that the last buffer is used more than once; 32 is no multiple of it.
        self.tried = [*MEASURING, f"--block-size={size}", "--depth=7"]
        contiguous = [role for role in OTHER if self.lab + role in RIGHTS]
        message = self.pattern(size * layout.block_num, 7)
        midway = Midway(OTHER[self.receiver], layout, contiguous, message, self.random)
        try:
            run = self.itself(midway.on, self.tried, watched=True)
        finally:
            self.nic.only("copy")
        for role in contiguous:
            if run.number(role, "len") < len(message):
                told = run.number(role, "len")
                raise Wrong(f"the {role}'s line has len={told}; a message has {len(message)} bytes")
        if midway.moves or midway.move:
            words = [
                f"the {role} says: {line}"
                for role, side in run.sides.items()
                for line in side.said(1)[:1]
            ]
            raise Wrong("\n".join(["it does not go on to the end", *words]))
        midway.in_place(run)

    def part_verifies(self):
        self.must_move()
        self.move([self.receiver], "sgl", self.draw(20), 3)  # or nothing would do, too
        if self.already:
            raise Wrong(
                "when it says that it is prepared, the message before is still in the blocks: one that never "
                "comes looks right"
            )
        for words, *how in EVERYWHERE + (CONTIGUOUS if self.lab == "05" else APART):
            self.when(words, Harm(self, *how).run)

    def must_move(self):
        """Who moves nothing, does nothing wrong, either: that must not count."""
        if not self.passed:
            narrow = {b"rd_atomic": 1, b"mtu": 512}
            self.move(["server", "client"], "sgl", self.draw(), limits=narrow)

    def when(self, words, function, *arguments):
        try:
            function(*arguments)
        except Wrong as why:
            raise Wrong(f"{words}: {why}") from None

    def attempt(self, part):
        self.at_once, self.timeout, self.already = [], 5, False
        if part == "builds" or self.program:
            getattr(self, f"part_{part}")()

    def part(self, part, again=2):
        """What was wrong, or nothing. Once more, if a packet was sent again where that is not meant to be."""
        lost = counter("completer_retry_err")
        try:
            undisturbed(self.attempt, part)
        except Wrong as why:
            odd = part not in ("builds", "verifies", "careful")
            if odd and again and counter("completer_retry_err") > lost:
                return self.part(part, again - 1)
            tried = [" ".join(self.tried)] if self.tried and str(why) not in self.careless else []
            return "\n".join(str(why).splitlines()[:3] + tried)
        except Exception as reason:  # pylint: disable=broad-exception-caught # the others' turn
            sys.excepthook(*sys.exc_info())
            return f"it could not be graded: {reason}"
        return ""
