# SPDX-License-Identifier: BSD-2-Clause
"""Every sample with each of its verbs calls made to fail. (That each gives the least rights, the judge sees:
test_check.py; that nothing leaks, the group asan.)"""
import collections
import errno
import glob
import os
import re
import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor

from pairs import PairTest, preloaded
from pairs import rdma_resources as resources
from samples import ROOT, SAMPLES, end, read, some, start, wait_until

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
    "ibv_cq_ex_to_cq",
    "ibv_end_poll",
    "ibv_next_poll",  # then 16 does without it: test_16.py
    "ibv_qp_to_qp_ex",
    "ibv_query_device_ex",  # where there are timestamps: test_16.py
    "ibv_wc_read_byte_len",
    "ibv_wc_read_completion_ts",
    "ibv_wc_read_vendor_err",
    "ibv_wr_send",
    "ibv_wr_set_sge",
    "ibv_wr_set_sge_list",
    "ibv_wr_start",
}
# What the error is, where it is neither EBUSY, of what undoes, nor ENOMEM.
ERROR = {
    "ibv_get_device_list": errno.ENOSYS,
    "ibv_open_device": errno.EACCES,
    "ibv_query_device": errno.EIO,
    "ibv_query_port": errno.EIO,
    "ibv_query_gid_ex": errno.ENODATA,
    "ibv_query_gid_table": errno.EIO,
    "ibv_modify_qp": errno.EINVAL,
    "ibv_post_send": errno.EINVAL,
    "ibv_get_cq_event": errno.EIO,
    "ibv_init_ah_from_wc": errno.EIO,
    "ibv_modify_srq": errno.EINVAL,
    "ibv_get_async_event": errno.EIO,
}
UNDO = re.compile("ibv_(de|close)")
BY_CHANCE = ("ibv_get_cq_event", "ibv_req_notify_cq", "ibv_poll_cq")  # how often they are called
# What a server with several clients refuses one for, or counts as strange.
GOES_ON = {
    ("09_ud", "server", "ibv_create_ah"),
    ("09_ud", "server", "ibv_init_ah_from_wc"),
    ("10_srq", "server", "ibv_modify_qp"),
}
GENERAL_ERR = 21  # IBV_WC_GENERAL_ERR: no real completion here carries it
NO_PORT = "no ACTIVE port with a usable GID on any device"


def error_of(call):
    return ERROR.get(call, errno.EBUSY if UNDO.match(call) else errno.ENOMEM)


def calls_in(*directories):
    """How often each verbs call stands in their code, without comments and strings."""
    found = collections.Counter()
    for directory in directories:
        for path in glob.glob(f"{ROOT}/{directory}/*.c"):
            code = re.sub(r'/\*.*?\*/|"(\\.|[^"\\])*"', "", read(path), flags=re.S)
            found.update(re.findall(r"\b(ibv_\w+)\(", code))
    return {name: n for name, n in found.items() if name not in HARMLESS}


# 14 goes on after many a failure, and undoes what it made after the others: test_14.py.
EXITING = [sample for sample in SAMPLES if sample != "14_recover"]
ONLY_COMMON = set(calls_in("common")) - set(calls_in(*EXITING))
# The server's and the client's options with which all calls are reached: more than one way for some. (The
# server of 02 answers two messages; one side of 07 waits for the other, and sleeps.)
WAYS = {
    "02_send_recv": [([], ["-n", 2])],
    "07_gssr": [([], ["-n", 20])],
    "10_srq": [([], []), (["--own"], [])],
    "13_memory_window": [([], []), ([], ["-w", 1])],
    "16_extended": [([], []), ([], ["--api", "post"])],
    "18_threads": [([], ["--share", "none"])],
}


def calls_of(trace):
    """Those that HV_TRACE has listed: (name, place in the code)."""
    return [tuple(line.split()) for line in read(trace).splitlines()]


class Faults(PairTest):
    def pair(self, sample, way, server_env=None, client_env=None):
        server_args, client_args = way
        server, port = self.serve(sample, "--timeout", 10, *server_args, env=server_env)
        args = ["-p", port, "--timeout", 6, *client_args, "127.0.0.1"]
        client = start(sample, *args, env=client_env)
        client, server = end(client), end(server)
        return {"server": server, "client": client}


class Verbs(Faults):
    """Each call of each sample made to fail, where it stands in the code."""

    def alone(self, sample, way, env):
        """A client that fails before it has said who it is; who listens there, says nothing."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            args = ["-p", listener.getsockname()[1], "--timeout", 5, *way[1], "127.0.0.1"]
            return {"client": end(start(sample, *args, env=env))}

    def traced(self, sample, way):
        """What both roles call in a pair that passes: {role: [(name, place in the code)]}."""
        with tempfile.TemporaryDirectory() as work:
            envs = [preloaded(HV_TRACE=f"{work}/{role}") for role in ("server", "client")]
            sides = self.pair(sample, way, *envs)
            self.both_pass(sample, sides["server"], sides["client"])
            return {role: calls_of(f"{work}/{role}") for role in ("client", "server")}

    def sites(self, sample, way):
        """The calls to make fail: the first from each place in the code, as a list of
        (role, name, its number among the calls of that name, comes before the swap). What
        comes before the swap both roles do alike, so it is made to fail in the client."""
        found, common = [], set()
        for role, calls in self.traced(sample, way).items():
            made = [name for name, _ in calls]
            last = "ibv_create_qp_ex" if "ibv_create_qp_ex" in made else "ibv_create_qp"
            before_swap = made.index(last) + 1
            numbers, seen = collections.Counter(), set()
            for i, (name, place) in enumerate(calls):
                numbers[name] += 1
                early = i < before_swap
                # the same code of common/'s ends each program in the same way
                same = early and sample != SAMPLES[0] and name.lstrip("_") in ONLY_COMMON
                # how often 13 polls before the last WRITE is chance
                chance = (sample[:2], name) == ("13", "ibv_poll_cq") and numbers[name] > 1
                # of no request: 16's trial finds it
                chance |= early and (name, numbers[name]) == ("completion", 2)
                known = (name, place) in (common if early else seen) or name in HARMLESS
                if not same and not chance and not known:
                    found.append((role, name, numbers[name], early))
                seen.add((name, place))
            common |= seen
        return found, {name.lstrip("_") for name, _ in common}

    def told(self, sample, role, call):
        """What this side has to say of this failure, and its exit status."""
        error = error_of(call)
        text = os.strerror(error)
        if call == "ibv_get_device_list":
            return f"no RDMA device here: {text}|{NO_PORT}", 77
        if call == "ibv_query_gid_ex":
            return f"no such GID index: {text}", 1
        if call == "ibv_poll_cq":
            return call, 1
        if call == "completion":
            return rf"completion of [^:]+: general error \(status {GENERAL_ERR}\)", 1
        # A device that doesn't answer is passed over; here there is no other.
        told = rf"{call}[^:]*: {text} \({error}\)|warning: rxe0 passed over: {text}\n{sample} {role}: {NO_PORT}"
        if (sample, role, call) in GOES_ON:  # here no other client comes, or it gets no answer
            told += rf"|refused a client: {call}.*\n{sample} {role}: no client came in 10 s"
            told += "|the peer closed the connection: no 'sync done' from it"
        return told, 1

    def judge(self, sample, sides, role, call):
        """This side says what has failed; the other one fails, too, or has already passed."""
        if (sample, role, call) == ("10_srq", "server", "completion"):
            return  # for this server it is one client less, see test_10.py
        if (role, call) == ("server", "ibv_get_device_list") and len(sides) == 2:
            # What gid_fits() can't ask, it leaves to open_device(), which tells.
            self.both_pass(sample, sides["server"], sides["client"])
            return
        told, status = self.told(sample, role, call)
        if NO_PORT in sides[role].err:
            status = 77
        told = rf"(?m)^{sample} {role}: ({told}).*\n  hint: \S"
        self.check_failed(sides[role], sample, role, told, status)
        if len(sides) == 1:
            return
        peer = "client" if role == "server" else "server"
        # All was done, and the verdicts given. (09 asks for the way before it accepts.)
        asks_the_way = call == "ibv_destroy_ah" and "DATAGRAMS" not in sides[role].out
        if UNDO.match(call) and not asks_the_way or "ibv_modify_qp to ERR" in sides[role].err:
            self.assertEqual((sides[peer].status, sides[peer].err), (0, ""))
            self.check_result(sides[peer], sample, peer, "PASS")
        else:
            hint = (sample, peer) != ("10_srq", "server")
            self.check_failed(sides[peer], sample, peer, rf"(?m)^{sample} {peer}: \S", hint=hint)

    def inject(self, sample, way, site):
        """What is wrong with the outcome of a run in which this call failed, or None."""
        role, name, number, before_swap = site
        call = name.lstrip("_")
        code = GENERAL_ERR if name == "completion" else error_of(call)
        # Refused once, 05 to 07 ask for a queue pair with shorter lists.
        on = ":on" if name == "ibv_create_qp" else ""
        for _ in range(5):
            env = preloaded(HV_FAIL=f"{name}:{number}:{code}{on}")
            if before_swap and role == "client":
                sides = self.alone(sample, way, env)
            else:
                sides = self.pair(sample, way, **{role + "_env": env})
            if sides[role].status != 0 or name not in BY_CHANCE:
                break
            number -= name == "ibv_poll_cq"
        try:
            self.judge(sample, sides, role, call)
        except AssertionError as why:
            both = "\n".join(f"{r}: {side}" for r, side in sides.items())
            return f"{sample} {way}, {role}'s {name}: {why}\n{both}"
        return None

    def test_each_call_of_each_sample(self):
        injected, before = 0, resources()
        with ThreadPoolExecutor(6) as pool:  # most of the time is waiting for time-outs
            for sample in some(EXITING):
                reached = set()
                for way in WAYS.get(sample, [([], [])]):
                    sites, names = self.sites(sample, way)
                    reached |= names
                    injected += len(sites)
                    tried = [pool.submit(self.inject, sample, way, site) for site in sites]
                    for wrong in filter(None, (each.result() for each in tried)):
                        with self.subTest(sample=sample):
                            self.fail(wrong)
                self.assertEqual(set(calls_in("common", sample)) - reached, set(), sample)
                # What the failed left behind, the kernel has destroyed with the process.
                self.assertTrue(wait_until(lambda: resources() == before, 10), f"left: {sample}")
        print(f"ok - verbs: {injected} failures injected", flush=True)
