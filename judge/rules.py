# SPDX-License-Identifier: BSD-2-Clause
"""What can be demanded of a run, one function each. It returns a function of a run and a role, which returns
what is wrong in a sentence, or None. A demand on one side alone names it; for the other it holds."""
import re
import signal

from check_words import say

RIGHTS = {1: "LOCAL_WRITE", 2: "REMOTE_WRITE", 4: "REMOTE_READ", 8: "REMOTE_ATOMIC", 16: "MW_BIND"}
TYPES = {2: "IBV_QPT_RC", 3: "IBV_QPT_UC", 4: "IBV_QPT_UD"}
MTUS = {1: "IBV_MTU_256", 2: "IBV_MTU_512", 3: "IBV_MTU_1024", 4: "IBV_MTU_2048", 5: "IBV_MTU_4096"}
STATES = {1: "INIT", 2: "RTR", 3: "RTS"}
MASK = {
    1: "STATE",
    8: "ACCESS_FLAGS",
    0x10: "PKEY_INDEX",
    0x20: "PORT",
    0x40: "QKEY",
    0x80: "AV",
    0x100: "PATH_MTU",
    0x200: "TIMEOUT",
    0x400: "RETRY_CNT",
    0x800: "RNR_RETRY",
    0x1000: "RQ_PSN",
    0x2000: "MAX_QP_RD_ATOMIC",
    0x8000: "MIN_RNR_TIMER",
    0x10000: "SQ_PSN",
    0x20000: "MAX_DEST_RD_ATOMIC",
    0x100000: "DEST_QPN",
}
NEEDED = {
    2: {1: 0x39, 2: 0x129181, 3: 0x12E01},
    3: {1: 0x39, 2: 0x101181, 3: 0x10001},
    4: {1: 0x71, 2: 1, 3: 0x10001},
}
KINDS = {
    0: "SEND",
    4: "SEND",
    5: "SEND with immediate",
    6: "RDMA WRITE",
    10: "RDMA WRITE",
    11: "RDMA WRITE with immediate",
    12: "RDMA READ",
    19: "compare-and-swap",
    20: "fetch-and-add",
    23: "SEND with invalidate",
}
FLAGS = {1: "IBV_SEND_FENCE", 2: "IBV_SEND_SIGNALED", 4: "IBV_SEND_SOLICITED", 8: "IBV_SEND_INLINE"}
STATUS = (
    "success",
    "local length error",
    "local QP operation error",
    "local EE context operation error",
    "local protection error",
    "Work Request Flushed Error",
    "memory management operation error",
    "bad response error",
    "local access error",
    "remote invalid request error",
    "remote access error",
    "remote operation error",
    "transport retry counter exceeded",
    "RNR retry counter exceeded",
)
OTHER = {"server": "client", "client": "server"}


def names(bits, table, nothing="0"):
    return " | ".join(name for bit, name in table.items() if bits & bit) or nothing


def shown(field, value):
    """An attribute of a queue pair, as its writer knows it."""
    if field == "mtu":
        return MTUS.get(value) or say("no mtu", found=value)
    return names(value, RIGHTS) if field == "access" else hex(value)


def asked(run, name, otherwise=0):
    """A number of the client's command line."""
    found = [a.split("=", 1)[1] for a in run.arguments if a.startswith(f"--{name}=")]
    return int(found[0]) if found else otherwise


def only(wanted, demand):
    """A demand on one side alone."""
    return lambda run, role: demand(run, role) if role == wanted else None


# ---- objects ----


def made(kind, what, role=None):
    return (
        lambda run, r: say("not made", role=r, what=what)
        if role in (None, r) and not run.of(r, kind)
        else None
    )


def room(least):
    """Of the completion queue."""

    def demand(run, role):
        found = sum(f["cqe"] for f in run.of(role, "create_cq"))
        return say("cq small", role=role, found=found, right=least) if found < least else None

    return demand


def region(length=None, **access):
    """A region has these rights, and none has more for the peer. length(run, role): its bytes, or more for no peer."""

    def demand(run, role):
        if role not in access:
            return None
        right, found = access[role], run.regions(role)
        tried = [call["access"] & 31 for call in run.of(role, "register")]
        odd = [rights for rights in tried if rights & ~right & ~1] or (
            tried if right not in tried else []
        )
        if odd:
            return say("rights", role=role, found=names(odd[0], RIGHTS), right=names(right, RIGHTS))
        sizes, least = [r.length for r in found if r.access & 31 == right], length(
            run, role
        ) if length else 0
        if not sizes:
            return say("no region", role=role)
        if length and least not in sizes and (right & 14 or max(sizes) < least):
            return say("region size", role=role, found=sizes[0], right=least)
        return None

    return demand


def queue_pair(kind=2, srq=None, inline=None, selective=False):
    """srq: the role whose queue pairs have a shared receive queue. inline(run): bytes, on the client. selective: only
    what asks for a completion makes one."""

    def demand(run, role):
        pairs = run.of(role, "create_qp")
        if not pairs:
            return say("not made", role=role, what="a queue pair")
        for f in pairs:
            if f["type"] != kind:
                return say(
                    "qp type", role=role, found=TYPES.get(f["type"], f["type"]), right=TYPES[kind]
                )
            if selective and not f["asked"]:
                return say("all signalled", role=role)
            if srq == role and not f["srq"]:
                return say("with srq", role=role)
            if inline and role == "client" and f["inline"] < inline(run):
                return say("inline room", role=role, found=f["inline"], right=inline(run))
        return None

    return demand


def states(kind=2, asks=0, answers=0, qkey=None, cm=False, **access):
    """RESET -> INIT -> RTR -> RTS, with what the peer has said. access: the peer's rights, by role; asks, answers:
    READs and atomics at a time, of the client and of the server; cm: the connection manager does it.
    """

    def demand(run, role):
        calls = run.of(role, "modify_qp")
        peer = OTHER[role]
        for state, name in STATES.items():
            call = next((f for f in calls if f["state"] == state), None)
            if not call:
                return say("no state", role=role, state=name)
            lacking = NEEDED[kind][state] & ~call["mask"]
            if lacking and not cm:
                return say(
                    "mask",
                    role=role,
                    state=name,
                    what=" | ".join("IBV_QP_" + MASK[b] for b in MASK if lacking & b),
                )
            right = {
                "qp_access_flags": (
                    state == 1 and kind != 4,
                    "access",
                    access.get(role, 0),
                    "why access",
                ),
                "qkey": (state == 1 and qkey, "qkey", qkey, ""),
                "dest_qp_num": (
                    state == 2 and kind != 4,
                    "dest",
                    run.number(peer, "qpn"),
                    "why dest",
                ),
                "rq_psn": (
                    state == 2 and kind != 4,
                    "rq_psn",
                    run.number(peer, "psn"),
                    "why peer psn",
                ),
                "path_mtu": (
                    state == 2 and kind != 4,
                    "mtu",
                    min(run.number(side, "mtu") for side in OTHER).bit_length() - 8,
                    "why mtu",
                ),
                "is_global": (state == 2 and kind != 4, "is_global", 1, ""),
                "sgid_index": (state == 2 and kind != 4, "sgid", 1, ""),
                "max_dest_rd_atomic": (
                    state == 2 and kind == 2,
                    "answers",
                    answers if role == "server" else 0,
                    "why answers",
                ),
                "sq_psn": (state == 3, "sq_psn", run.number(role, "psn"), "why own psn"),
                "max_rd_atomic": (
                    state == 3 and kind == 2,
                    "asks",
                    asks if role == "client" else 0,
                    "why asks",
                ),
            }
            for attribute, (counts, field, value, why) in right.items():
                if counts and (not cm or field in ("asks", "answers")) and call[field] != value:
                    return say(
                        "attribute",
                        role=role,
                        state=name,
                        name=attribute,
                        found=shown(field, call[field]),
                        right=shown(field, value),
                        why=say(why) if why else "",
                    )
            if (
                state == 3
                and kind == 2
                and not (call["timeout"] and call["retry_cnt"] and call["rnr_retry"])
            ):
                return say(
                    "attribute",
                    role=role,
                    state=name,
                    name="timeout, retry_cnt or rnr_retry",
                    found=0,
                    right="more",
                    why="",
                )
        return None

    return demand


# ---- what is posted, and what goes over the wire ----


def sge_right(run, role, what, sge):
    addr, size, lkey = sge
    for r, key in run.keys(role):
        if r.iova <= addr and addr + size <= r.iova + r.length:
            return (
                None
                if lkey == key
                else say("sge lkey", role=role, what=what, found=lkey, right=key)
            )
    return say("sge outside", role=role, what=what, length=size, addr=addr)


def receives(role, least, length, which="recv"):
    """Posted when the side says ready. least, length: functions of the run."""

    def demand(run, r):
        if role != r or (
            run.todo(r) and "ready" not in run.steps
        ):  # it stopped before one could look
            return None
        waiting, elements = run.queue(role, "ready", which)
        if waiting < least(run):
            return say("no receive", role=role, found=waiting, right=least(run))
        places = [element.sges[0][0] for element in elements if element.sges]
        if len(set(places)) < len(places):
            return say("receive twice", role=role)
        for element in elements:
            room_for = sum(sge[1] for sge in element.sges)
            wrong = next(
                filter(None, (sge_right(run, role, "receive", sge) for sge in element.sges)), None
            )
            if room_for != length(run) or wrong:
                return wrong or say("receive short", role=role, found=room_for, right=length(run))
        return None

    return demand


def waits_in_vain(run, role):
    """For the completion of a request of its own, by its own words."""
    return re.search(r"no completion of (the )?(RDMA|SEND|WRITE|READ)", run.words(role))


def joined(found, wanted):
    """One message may be moved by several WRITEs or READs, side by side: these count as one."""
    out = []
    for p in found:
        last, (_, fields) = out[-1] if out else p, wanted[
            min(len(out), len(wanted)) - 1
        ] if wanted else ("", {})
        if (
            out
            and p.opcode & 31 in (6, 10, 12)
            and KINDS[p.opcode & 31] == KINDS.get(last.opcode & 31)
            and (p.rkey, p.va) == (last.rkey, last.va + last.length)
            and last.length < fields.get("length", 0)
        ):
            out[-1] = last._replace(length=last.length + p.length)
        else:
            out.append(p)
    return out


def sends(role, right, name="messages"):
    """right(run): of each message the kind, and fields that it has, in order."""

    def demand(run, r):
        if role != r:
            return None
        wanted = right(run)
        found = joined(getattr(run, name)(role), wanted)
        for number, (kind, fields) in enumerate(wanted):
            if number >= len(found) and run.spoilt and run.harm.env and run.status(role):
                return None  # it has noticed, and stopped
            if number >= len(found):
                key = "messages" if number else "no message"
                if number and waits_in_vain(run, role):
                    key = "unsignalled"
                return say(key, role=role, what=kind, found=number, right=len(wanted))
            if KINDS.get(found[number].opcode & 31) != kind:
                return say(
                    "opcode",
                    number=number,
                    role=role,
                    found=KINDS.get(found[number].opcode & 31),
                    right=kind,
                )
            for field, value in fields.items():
                value, why = value if isinstance(value, tuple) else (value, "")
                seen = getattr(found[number], field)
                if seen != value:
                    shown = {"va": "remote_addr"}.get(field, field)
                    form = (
                        hex
                        if field in ("va", "rkey", "add", "compare", "invalidates", "imm")
                        else str
                    )
                    return say(
                        "field",
                        number=number,
                        role=role,
                        what=kind,
                        name=shown,
                        found=form(seen),
                        right=form(value),
                        why=say(why) if why else "",
                    )
        if len(found) > len(wanted):
            return say(
                "messages",
                role=role,
                what=wanted[-1][0] if wanted else "any",
                found=len(found),
                right=len(wanted),
            )
        return None

    return demand


def requests_seen(run, role):
    """Of 12: what the NIC looks at when it moves the chain's data. An inline request's it does not move."""
    back = [
        f for f in run.any("request") if f["opcode"] == 2 and not f["access"]
    ]  # IBV_WR_SEND, read here
    if len(run.messages(role)) < 3:
        return None
    if len(back) > len(run.messages(role)) // 3:
        return say("flags", number=2, role=role, name=FLAGS[8])
    if not back or not all(f["flags"] & 1 for f in back):  # of each chain
        return say("flags", number=1, role=role, name=FLAGS[1])
    found, right = len(run.completions(role)), len(run.messages(role)) // 3
    return say("completions", role=role, found=found, right=right) if found != right else None


def sge_of_requests(role, length, step="done", pieces=False):
    """pieces: a message may be that of several requests."""

    def demand(run, r):
        if role != r:
            return None
        for request in run.queue(role, step, "send")[1]:
            wrong = next(
                filter(None, (sge_right(run, role, "request", sge) for sge in request.sges)), None
            )
            total = sum(sge[1] for sge in request.sges)
            if wrong or not (pieces and 0 < total < length(run)) and total != length(run):
                return wrong or say(
                    "sge length", role=role, what="request", found=total, right=length(run)
                )
        return None

    return demand


def no_rnr(role):
    def demand(run, r):
        if role != r:
            return None
        late = any(p.opcode == 17 and p.syndrome & 0x60 == 0x20 for p in run.packets(role))
        return say("own rnr", role=role) if late else None

    return demand


def completes(run, role):
    """No request of its own has failed."""
    bad = next((f["status"] for f in run.completions(role) if f["status"]), None)
    if bad is None:
        return say("cq full", role=role) if run.any("cq_error") else None
    return say("bad completion", role=role, status=STATUS[bad] if bad < len(STATUS) else bad)


def waited(run, role):
    """Nothing is under way any more when it says so: its requests are done, and it has polled that."""
    queues, number = next((held for at, held in run.queues[role] if at == "done"), []), len(
        run.of(role, "create_cq")
    )
    unpolled = [
        held[at + 12]
        for size, waiting, held in queues[:number]
        for at in range(0, waiting * size, size)
    ]
    if (
        any(opcode < 128 for opcode in unpolled) or run.queue(role, "done", "send")[0]
    ):  # enum ibv_wc_opcode: no receive's
        return say("not waited", role=role)
    return None


def data_right(run, role):
    """What its peer, the sample, does not complain about."""
    words = run.words(OTHER[role])
    spoilt = re.search(r":b:(\d+)", run.env.get(OTHER[role], {}).get("HV_SEND", ""))
    if spoilt and f"byte {spoilt[1]} of " in words:
        return None  # its own
    return (
        say("peer finds", role=role, words=words)
        if "byte " in words or "bytes came" in words
        else None
    )


def verdict(run, role):
    return None if run.verdicts.get(role) == "verdict PASS" else say("no verdict", role=role)


def arms(role, most):
    """Asks for events, of solicited completions only, and not more often than most(run)."""

    def demand(run, r):
        if role != r:
            return None
        calls = run.of(role, "notify")
        if not calls:
            return say("notify", role=role)
        if any(f["flags"] & 3 != 1 for f in calls):
            return say("not solicited", role=role)
        return say("waits", role=role, found=len(calls)) if len(calls) > most(run) else None

    return demand


def wakes(run, role):
    """It does not sleep on behind the last message: judge.py makes it lose the CPU before it asks for an event."""
    seen = [
        kind
        for thread, kind, f in run.events
        if kind == "notify"
        and thread == run.pid(role)
        or kind == "completion"
        and f["qpn"] == run.number(role, "qpn")
    ]
    return say("lost wake-up", role=role) if run.out_of_time and seen[-1:] == ["notify"] else None


def count(kind, key, role, right):
    def demand(run, r):
        found = len(run.any(kind))
        return (
            say(key, role=r, found=found, right=right(run))
            if role == r and found != right(run)
            else None
        )

    return demand


def with_channel(run, role):
    return (
        None
        if any(f["channel"] for f in run.of(role, "create_cq"))
        else say("no channel", role=role)
    )


# ---- the end ----


def stops(run, role):
    """It did not even get to its memory."""
    if run.todo(role) or run.of(role, "register"):
        return None
    return say("stops", role=role, status=run.status(role))


def window_type(right):
    def demand(run, role):
        found = [f["type"] for f in run.of(role, "mw")]
        return (
            say("window type", role=role, found=found[0], right=right)
            if found[:1] != [right]
            else None
        )

    return demand


def depth(run, role):
    """What the client asks for comes with its request, so its peer's queue pair shows it."""
    rights = [f["access"] for f in run.of("server", "modify_qp") if f["mask"] & 8]
    return say("depth") if role == "client" and rights and not rights[-1] & 4 else None


def strangers(run, role):
    """Only the one that was sent."""
    if any(f" strange={run.spoilt:d}" in line for line in run.said(role)):
        return None
    return (
        say("strange one", role=role, what=say(run.harm.what))
        if run.spoilt
        else say("strangers", role=role)
    )


def keeps(run, role):
    """Between ready and done it deregisters no memory that its peer may use."""
    asked, lent = 0, set()
    for i, (thread, kind, f) in enumerate(run.events):
        if kind == "register" and thread == run.pid(role):
            asked = f["access"]
        elif kind == "registered" and thread == run.pid(role) and asked & 14:
            lent.add(f["mr"])
        elif (
            kind == "free_mr" and f["mr"] in lent and run.before["ready"] <= i < run.before["done"]
        ):
            return say("freed early", role=role)
    return None


def killed(run, role):
    """By a signal of its own making."""
    status = run.status(role) or 0
    return (
        say("killed", role=role, signal=signal.Signals(-status).name)
        if status < 0 and status != -signal.SIGKILL
        else None
    )


def passes(run, role):
    """The side, and what it prints last."""
    result, status = run.result(role), run.status(role)
    if status == -9:  # it had to be ended
        unacknowledged = run.of(role, "notify") and run.verdicts.get(role)
        return say("not acknowledged" if unacknowledged else "hangs", role=role)
    if killed(run, role):
        return killed(run, role)
    if status != 0 or result.get("status") != "PASS":
        sent = run.messages(role)
        if sent and waits_in_vain(run, role):
            what = KINDS.get(sent[-1].opcode & 31, "request")
            return say("unsignalled", role=role, what=what, found=len(sent))
        return say("ends", role=role, status=status, result=result.get("status"))
    results = [line for line in run.said(role) if line.startswith("RESULT ")]
    if len(results) != 1 or run.said(role)[-1] != results[0]:
        return say("two results", role=role, number=len(results))
    peer = run.result(OTHER[role])
    for name in ("bytes", "digest"):
        if peer.get(name) != result.get(name):
            return say(
                "other result", role=role, name=name, found=result.get(name), right=peer.get(name)
            )
    return None


def so_far(run, role):
    """The side passes, or stops at a later TODO, or fails behind its first connection (14)."""
    ended = any(f["mask"] & 1 and f["state"] == 6 for f in run.of(role, "modify_qp"))
    return None if ended or run.todo(role) else passes(run, role)


def agrees(run, role):
    """Each connection begins with the message that the server names (14)."""
    said = {
        r: re.findall(r"goes on with message (\d+)", " ".join(run.said(r)))
        for r in ("client", "server")
    }
    if not said["client"]:
        return so_far(run, role) or say("goes on nowhere", role=role)
    for number, (found, right) in enumerate(zip(said["client"], said["server"]), 1):
        if found != right:
            return say("goes on", role=role, number=number, found=found, right=right)
    return None


def resets(run, role):
    """Each time but the first INIT comes from RESET, and that from ERR (14)."""
    asked_for = [f["state"] for f in run.of(role, "modify_qp") if f["mask"] & 1]
    for i in [i for i, state in enumerate(asked_for) if state == 1][1:]:
        for name, before in (("RESET", asked_for[i - 1] == 0), ("ERR", asked_for[i - 2] == 6)):
            if not before:
                return say("no state", role=role, state=name)
    return None


def notices(run, role):
    """The harm that was done to the run, and tells its peer."""
    if not run.spoilt or run.harm.status is not None:
        return None
    result, what = run.result(role).get("status"), say(run.harm.what)
    if run.status(role) == 0 or result == "PASS":
        return say("passes wrong", what=what, role=role, status=run.status(role), result=result)
    if run.verdicts.get(role, "verdict FAIL") != "verdict FAIL":
        return say("verdict wrong", what=what, role=role, found=run.verdicts[role])
    return None


def gives_back(run, role):
    """The kernel ends with what was made first. Of rdma_cm's objects, only the PD of an id can be seen."""
    left = run.left(role)[:1]
    return (
        say("left", role=role, what="an id" if left == ["a pd"] and not run.line(role) else left[0])
        if left
        else None
    )
