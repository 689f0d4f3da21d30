# SPDX-License-Identifier: BSD-2-Clause
"""Every sample with something made to go wrong: in its verbs calls, or by its peer."""
import collections
import errno
import glob
import os
import re
import socket
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from pairs import IN_VM, PairTest, ports
from samples import FIXED, PROGRAM, ROOT, SAMPLES, Ended, end, ran, some, start, wait_for_listener

RIGHTS = os.environ["HV_RIGHTS"]  # tests/rights.c, built
ALL = os.environ["HV_ALL"]  # tests/all.c
FAIL_VERBS = os.environ["HV_FAIL_VERBS"]  # tests/fail_verbs.c, built
# No call to make fail: these return nothing, or cannot fail.
HARMLESS = {
    "ibv_ack_async_event",
    "ibv_ack_cq_events",
    "ibv_free_device_list",
    "ibv_get_device_name",
    "ibv_wc_status_str",
    "ibv_inc_rkey",
    "ibv_wr_atomic_write",  # of 15 alone, and not called with older headers
    "ibv_wr_flush",
}
# What the error is, where it isn't ENOMEM.
ERROR = {
    "ibv_get_device_list": errno.ENOSYS,
    "ibv_open_device": errno.EACCES,
    "ibv_query_device": errno.EIO,
    "ibv_query_port": errno.EIO,
    "ibv_query_gid_ex": errno.ENODATA,
    "ibv_query_gid_table": errno.EIO,
    "ibv_modify_qp": errno.EINVAL,
    "ibv_post_send": errno.EINVAL,
    "ibv_dealloc_mw": errno.EBUSY,
    "ibv_get_cq_event": errno.EIO,
    "ibv_destroy_qp": errno.EBUSY,
    "ibv_dereg_mr": errno.EBUSY,
    "ibv_destroy_cq": errno.EBUSY,
    "ibv_destroy_comp_channel": errno.EBUSY,
    "ibv_dealloc_pd": errno.EBUSY,
    "ibv_close_device": errno.EIO,
    "ibv_init_ah_from_wc": errno.EIO,
    "ibv_destroy_ah": errno.EBUSY,
    "ibv_modify_srq": errno.EINVAL,
    "ibv_destroy_srq": errno.EBUSY,
    "ibv_get_async_event": errno.EIO,
}
# Calls that these samples alone come to, of those that stand in their code or common's.
ONLY_IN = [
    ("ibv_poll_cq", {*SAMPLES} - {"07_gssr", "09_ud"}),  # they have their own
    ("ibv_bind_mw", set()),  # only by option: see test_a_bind_that_fails
    *2 * [("ibv_post_recv", {*SAMPLES} - {"10_srq"})],  # by option: see test_a_receive_that_fails
    ("ibv_poll_cq", {*SAMPLES} - {"07_gssr"}),  # of the other queue, after a flush
    *2
    * [
        ("ibv_destroy_qp", {*SAMPLES} - {"10_srq"})
    ],  # of a client that is refused, or has gone: test_10.py
    *3 * [("ibv_modify_qp", {*SAMPLES} - {"01_hello_write", "09_ud"})],
]  # written out there
UNDO = re.compile("ibv_(de|close)")
# What a server with several clients refuses one for, or counts as strange.
GOES_ON = {
    ("09_ud", "server", "ibv_create_ah"),
    ("09_ud", "server", "ibv_init_ah_from_wc"),
    ("10_srq", "server", "ibv_modify_qp"),
}
GENERAL_ERR = 21  # IBV_WC_GENERAL_ERR: no real completion here carries it


def source(path):
    """C code without its comments and strings."""
    with open(path, encoding="utf-8") as file:
        return re.sub(r'/\*.*?\*/|"(\\.|[^"\\])*"', "", file.read(), flags=re.S)


def calls_in(*directories):
    found = collections.Counter()
    for path in (
        path for directory in directories for path in glob.glob(f"{ROOT}/{directory}/*.c")
    ):
        found.update(re.findall(r"\b(ibv_\w+)\(", source(path)))
    return {name: n for name, n in found.items() if name not in HARMLESS}


# 14 goes on after many a failure, and undoes what it made after the others: test_14.py.
EXITING = [sample for sample in SAMPLES if sample != "14_recover"]
ONLY_COMMON = set(calls_in("common")) - set(calls_in(*EXITING))


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def preloaded(**more):
    return {**os.environ, "LD_PRELOAD": FAIL_VERBS, **more}


def resources():
    """How many queue pairs, regions and so on the kernel holds."""
    return ran(["rdma", "resource", "show"], check=True).stdout


class Verbs(PairTest):
    """Each call of each sample made to fail, where it stands in the code."""

    def pair(self, sample, options, server_env=None, client_env=None):
        port = str(next(ports))
        server = start(sample, "-p", port, "--timeout", "10", *options["server"], env=server_env)
        wait_for_listener(port, server)
        client = start(
            sample, "-p", port, "--timeout", "6", *options["client"], "127.0.0.1", env=client_env
        )
        client, server = end(client), end(server)
        return {"server": server, "client": client}

    def alone(self, sample, options, env):
        """A client that fails before it has said who it is; who listens there, says nothing."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            return {
                "client": end(
                    start(
                        sample,
                        "-p",
                        str(listener.getsockname()[1]),
                        "--timeout",
                        "5",
                        *options["client"],
                        "127.0.0.1",
                        env=env,
                    )
                )
            }

    def sites(self, sample, options):
        """The calls to make fail: the first from each place in the code, as a list of
        (role, name, its number among the calls of that name, comes before the swap). What
        comes before the swap both roles do alike, so it is made to fail in the client."""
        traces = {role: f"/tmp/trace-{os.getpid()}-{role}" for role in ("server", "client")}
        envs = {role: preloaded(HV_TRACE=path) for role, path in traces.items()}
        sides = self.pair(sample, options, envs["server"], envs["client"])
        self.both_pass(sample, sides["server"], sides["client"])
        found, places = [], set()
        for role in ("client", "server"):
            with open(traces[role], encoding="ascii") as file:
                calls = [line.split() for line in file]
            os.remove(traces[role])
            numbers, seen = collections.Counter(), set()
            self.assertTrue(calls, sides[role])
            made = [name for name, _ in calls]
            before_swap = made.index("ibv_create_qp") + 1
            for i, (name, place) in enumerate(calls):
                numbers[name] += 1
                if (sample[:2], name) == ("13", "ibv_poll_cq") and numbers[name] > 1:
                    pass  # how often it polls before the last WRITE is chance
                elif i < before_swap and sample != SAMPLES[0] and name.lstrip("_") in ONLY_COMMON:
                    pass  # the same code, and it ends the program in the same way
                elif (name, place) not in (places if i < before_swap else seen):
                    found.append((role, name, numbers[name], i < before_swap))
                seen.add((name, place))
            places |= seen
        return found, collections.Counter(name.lstrip("_") for name, _ in places)

    def explain(self, sample, sides, role, name, alone):
        """What is wrong with the outcome of a run in which this call failed, or None."""
        call = name.lstrip("_")
        error = ERROR.get(call, errno.ENOMEM)
        status, told = 1, rf"{call}[^:]*: {os.strerror(error)} \({error}\)"
        # A device that doesn't answer is passed over; here there is no other.
        told += (
            rf"|warning: rxe0 passed over: {os.strerror(error)}\n"
            rf"{sample} {role}: no ACTIVE port with a usable GID on any device"
        )
        if (role, call, alone) == ("server", "ibv_get_device_list", False):
            return self.still_passes(sample, sides)
        if call == "ibv_get_device_list":
            told = (
                "no RDMA device here: "
                + os.strerror(error)
                + "|no ACTIVE port with a usable GID on any device"
            )
            status = sides[role].status if sides[role].status in (1, 77) else 77
        elif call == "ibv_query_gid_ex":
            told = rf"no such GID index: {os.strerror(error)}"
        elif call == "ibv_poll_cq":
            told = "ibv_poll_cq"
        elif call == "completion" and (sample, role) == ("10_srq", "server"):
            return None  # for this server it is one client less, see test_10.py
        elif (
            sample,
            role,
            call,
        ) in GOES_ON:  # with other clients; here none comes, or the one gets no answer
            told += rf"|(refused a client: {call}.*\n{sample} {role}: no client came in 10 s)"
            told += "|the peer closed the connection: no 'sync done' from it"
        elif call == "completion":
            told = rf"completion of [^:]+: general error \(status {GENERAL_ERR}\)"
        try:
            self.check_failed(
                sides[role], sample, role, rf"(?m)^{sample} {role}: ({told}).*\n  hint: \S", status
            )
            if not alone:
                peer = "client" if role == "server" else "server"
                # All was done, and the verdicts given.
                asked_the_way = (
                    call == "ibv_destroy_ah" and "DATAGRAMS" not in sides[role].out
                )  # 09, before it accepts
                if (
                    UNDO.match(call)
                    and not asked_the_way
                    or "ibv_modify_qp to ERR" in sides[role].err
                ):
                    self.assertEqual((sides[peer].status, sides[peer].err), (0, ""))
                    self.check_result(sides[peer], sample, peer, "PASS")
                else:
                    self.check_failed(
                        sides[peer],
                        sample,
                        peer,
                        rf"(?m)^{sample} {peer}: \S",
                        hint=(sample, peer) != ("10_srq", "server"),
                    )
        except AssertionError as why:
            return f"{sample}, {role}'s {name}: {why}\n" + "\n".join(
                f"{r}: {s}" for r, s in sides.items()
            )
        return None

    def still_passes(self, sample, sides):
        """What gid_fits() can't ask, it leaves to open_device(), which tells."""
        try:
            self.both_pass(sample, sides["server"], sides["client"])
        except AssertionError as why:
            return f"{sample}, server's ibv_get_device_list: {why}"
        return None

    def inject(self, sample, site, options):
        role, name, number, before_swap = site
        code = GENERAL_ERR if name == "completion" else ERROR.get(name.lstrip("_"), errno.ENOMEM)
        # Refused once, 05 to 07 ask for a queue pair with shorter lists.
        on = ":on" if name == "ibv_create_qp" else ""
        for _ in range(5):
            env = preloaded(HV_FAIL=f"{name}:{number}:{code}{on}")
            if before_swap and role == "client":
                sides = self.alone(sample, options, env)
            else:
                sides = self.pair(sample, options, **{role + "_env": env})
            # Whether a side has to sleep until an event, and how often it polls, is chance: then once more.
            if sides[role].status != 0 or name not in (
                "ibv_get_cq_event",
                "ibv_req_notify_cq",
                "ibv_poll_cq",
            ):
                break
            number -= name == "ibv_poll_cq"
        return self.explain(sample, sides, role, name, len(sides) == 1)

    def test_each_call_of_each_sample(self):
        injected, before, chosen = 0, resources(), some(EXITING)
        # The server answers two messages; one side waits for the other, and sleeps.
        more = {"02_send_recv": ["-n", "2"], "07_gssr": ["-n", "20"]}
        total = collections.defaultdict(collections.Counter)
        with ThreadPoolExecutor(6) as pool:  # most of the time is waiting for time-outs
            for sample in chosen:
                options = {"server": [], "client": more.get(sample, [])}
                sites, places = self.sites(sample, options)
                total[sample] += places
                for wrong in pool.map(lambda site: self.inject(sample, site, options), sites):
                    if wrong:
                        with self.subTest(sample=sample):
                            self.fail(wrong)
                injected += len(sites)
                # What the failed left behind, the kernel has destroyed with the process.
                deadline = time.monotonic() + 10
                while resources() != before and time.monotonic() < deadline:
                    time.sleep(0.2)
                self.assertEqual(resources(), before, f"left over after {sample}")
        for sample in chosen:
            for name, count in calls_in("common", sample).items():
                count -= sum(sample not in where for call, where in ONLY_IN if call == name)
                self.assertGreaterEqual(total[sample][name], count, f"{sample}: {name} not reached")
        print(f"ok - verbs: {injected} failures injected", flush=True)

    def test_a_bind_that_fails(self):
        sides = self.pair(
            "13_memory_window",
            {"server": [], "client": ["-w", "1"]},
            preloaded(HV_FAIL="ibv_bind_mw:1:12"),
        )
        self.assertIsNone(self.explain("13_memory_window", sides, "server", "ibv_bind_mw", False))

    def test_a_receive_that_fails(self):
        """The first that the server posts again, after the eight of its only client."""
        sides = self.pair(
            "10_srq", {"server": ["--own"], "client": []}, preloaded(HV_FAIL="ibv_post_recv:9:12")
        )
        self.assertIsNone(self.explain("10_srq", sides, "server", "ibv_post_recv", False))


INVALID, ACCESS = 9, 10  # IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_ACCESS_ERR
ALLOWED = {
    "01": ("write",),
    "02": (),
    "03": ("read",),
    "04": ("add", "swap"),
    "05": ("write",),
    "06": ("read",),
    "07": (),
    "08": ("write",),
    "12": ("read",),
    "13": ("write",),
}
ENDS = (
    "02",
    "07",
    "08",
    "12",
    "13",
)  # the server waits for completions: it sees its queue pair fail


class Rights(PairTest):
    """What a server doesn't allow, tried by a client that meets it as its own does.

    Soft-RoCE tells the two places of a right apart: a verb that the queue pair doesn't
    allow ends as remote invalid request (9), one that it allows and the memory region
    doesn't as remote access error (10). Each sample sets both; so that either is seen to
    be enough, HV_GRANT makes the other generous.
    """

    def attempt(self, sample, verb, at, length, key, grant=None):
        """Returns server, client, and how the access ended."""
        port = str(next(ports))
        env = preloaded(HV_GRANT=grant) if grant else None
        elsewhere = FIXED and (
            "setarch",
            os.uname().machine,
        )  # memory lies at another address than in the last run
        server = start(sample, "-v", "-p", port, "--timeout", "30", env=env, there=elsewhere)
        wait_for_listener(port, server)
        client = end(
            subprocess.Popen(
                [RIGHTS, sample, verb, at, str(length), key, port],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
        ended = re.search(r"ended .* \((\d+)\)", client.out)
        return end(server), client, ended and int(ended[1])

    def refused(self, sample, verb, at, length, key, grant, status):
        """What is wrong with the outcome, or None."""
        server, client, ended = self.attempt(sample, verb, at, length, key, grant)
        try:
            self.assertEqual((client.status, client.err), (0, ""))
            self.assertIn(ended, [status] if IN_VM else [INVALID, ACCESS])
            if sample[:2] not in ENDS:  # and not a byte has changed
                self.assertEqual((server.status, server.err), (0, ""))
            else:
                self.check_failed(server, sample, "server", "flushed|Flushed|the peer closed")
        except AssertionError as why:
            return (
                f"{sample}, grant={grant}: {verb} of {length} bytes at {at}, key {key}: {why}\n"
                f"server: {server}\nclient: {client}"
            )
        return None

    def stale(self):
        """Address and key of memory whose process has ended."""
        server, client, _ = self.attempt("03_read", "read", "+0", 1, "0x1")
        self.assertEqual(server.status, 0, f"server: {server}\nclient: {client}")
        return re.search(r"lent (0x\w+) (0x\w+)", client.out).groups()

    def cases(self):
        old_addr, old_key = self.stale()
        for sample in SAMPLES[:7]:  # UD and SRQ expose nothing, either, but speak another protocol
            allowed = ALLOWED[sample[:2]]
            key = "lent" if allowed else "mine"
            for verb in ("write", "read", "add", "swap"):
                if verb not in allowed:
                    yield sample, verb, "+0", 8, key, None, INVALID
                    yield sample, verb, "+0", 8, key, "mr", INVALID
                    yield sample, verb, "+0", 8, key, "qp", ACCESS
            for verb in allowed:
                size, least = (8, 8) if sample[:2] == "04" else (4096, 1)
                ranges = [(f"-{least}", least), (f"+{size}", least)]
                if least == 1:
                    ranges += [("-1", 2), ("+0", size + 1), (f"+{size - 1}", 2)]
                if sample[:2] == "13":  # rxe checks the region's range, not the window's
                    ranges = [(at, length) for at, length in ranges if at[0] == "+"]
                for at, length in ranges:
                    yield sample, verb, at, length, "lent", None, ACCESS
                for key in ("mine", "dead", "0", old_key):
                    yield sample, verb, "+0", least, key, None, ACCESS
                yield sample, verb, old_addr, least, old_key, None, ACCESS
                # a key of memory that is there, for an address that is not its own
                yield sample, verb, old_addr, least, "lent", None, ACCESS

    def test_what_is_not_allowed_is_refused(self):
        cases = list(self.cases())
        with ThreadPoolExecutor(3) as pool:
            for case, wrong in zip(cases, pool.map(lambda case: self.refused(*case), cases)):
                if wrong:
                    with self.subTest(case=case):
                        self.fail(wrong)
        print(f"ok - rights: {len(cases)} accesses refused", flush=True)

    def test_what_is_spoilt_at_the_last_moment_is_found(self):
        """After the right data wrong data comes, just before the client says done."""
        for sample, at, length, said in (
            ("01_hello_write", "+100", 8, "memory does not hold the text that was sent"),
            ("04_atomic", "+0", 8, "the word is \\d+, not \\d+"),
            ("05_gather_write", "+0", 8, "message: byte 0 of 4096 is 0x.. \\(poison"),
            ("05_gather_write", "+4088", 8, "message: byte 4088 of 4096 is 0x"),
        ):
            with self.subTest(sample=sample, at=at):
                server, client, ended = self.attempt(sample, "spoil", at, length, "lent")
                self.assertEqual((client.status, ended), (0, 0), client)
                self.check_failed(
                    server, sample, "server", rf"(?m)^{sample} server: {said}", hint=False
                )
                self.assertIn("rights client: the peer sent 'verdict FAIL'", client.err)


class Memcheck(PairTest):
    """Valgrind on both sides of each sample: memory, and what is left open at exit."""

    # Translating is most of the time: optimize little. (At level 0, "pxor %xmm2,%xmm2" counts
    # as a use of what xmm2 held.)
    VALGRIND = (
        "valgrind",
        "--vex-iropt-level=1",
        "--error-exitcode=99",
        "--leak-check=full",
        "--show-leak-kinds=definite,indirect,possible",
        "--track-fds=yes",
        "--read-inline-info=no",  # 1 s less
        f"--suppressions={ROOT}/tests/valgrind.supp",
    )

    @classmethod
    def setUpClass(cls):
        """Reading libc's symbols takes half of the time. Those that may be needed are ld.so's."""
        notes = ran(["readelf", "-n", "/lib/x86_64-linux-gnu/libc.so.6"], check=True).stdout
        build_id = re.search(r"Build ID: (..)(\w+)", notes)
        debug = f"/usr/lib/debug/.build-id/{build_id[1]}/{build_id[2]}.debug"
        if IN_VM and os.path.exists(debug):
            subprocess.run(["mount", "--bind", "/dev/null", debug], check=True)

    def begin(self, role):
        """tests/all.c, which runs what it is told."""
        return subprocess.Popen(
            [*self.VALGRIND, f"--log-file={self.dir}/%p", ALL, f"{self.dir}/{role}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def look(self, line, sample, *server_args):
        """One pair. Returns how each side ended."""
        port, both, ends = str(next(ports)), {"server": server_args, "client": ("127.0.0.1",)}, {}
        for role, args in both.items():
            print(PROGRAM[sample], "--timeout 100 -p", port, *args, file=self.sides[role].stdin)
            if role == "server":
                wait_for_listener(port, self.sides[role])
        for role in both:
            pid, status = self.sides[role].stdout.readline().split()
            said = [read(f"{self.dir}/{role}.{line}.{kind}") for kind in ("out", "err")]
            self.pids[pid] = sample, role
            ends[role] = Ended(int(status), said[0], said[1])
        return ends

    def test_no_error_no_leak_no_descriptor(self):
        self.pids = {}
        with tempfile.TemporaryDirectory() as self.dir:
            self.sides = {role: self.begin(role) for role in ("server", "client")}
            for line, (sample, *args) in enumerate(
                [*((sample,) for sample in SAMPLES), ("10_srq", "--own")]
            ):
                for role, side in self.look(line, sample, *args).items():
                    with self.subTest(sample=sample, role=role):
                        self.assertEqual(side.status, 0, side)
                        self.check_result(side, sample, role, "PASS")
            for role, side in self.sides.items():
                side.communicate()
                with self.subTest(
                    role=role
                ):  # an error in the first pair is one of all the later ones, too
                    self.assertEqual(side.returncode, 0)
            self.assertEqual(len(self.pids), 2 * len(SAMPLES) + 2)
            for pid, which in self.pids.items():
                with self.subTest(which=which):
                    log = read(f"{self.dir}/{pid}")
                    self.assertIn("ERROR SUMMARY: 0 errors", log)
                    self.assertIn("FILE DESCRIPTORS: ", log)
                    self.assertNotRegex(
                        log, r"Open [^\n]*descriptor [^\n]*\n(?!==\d+==    <inherited)"
                    )
