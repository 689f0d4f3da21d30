# SPDX-License-Identifier: BSD-2-Clause
"""What can be demanded of a run (see objects.py): what the program posts, what goes over the wire, what completes."""
import re

from check_words import say
from objects import only
from sandbox import OTHER
from trace import KINDS

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


def sge_right(run, role, what, sge):
    addr, size, lkey = sge
    for r, key in run.keys(role):
        if r.iova <= addr and addr + size <= r.iova + r.length:
            right = lkey == key
            return None if right else say("sge lkey", role=role, what=what, found=lkey, right=key)
    return say("sge outside", role=role, what=what, length=size, addr=addr)


def sges_right(run, role, what, element):
    return next(filter(None, (sge_right(run, role, what, sge) for sge in element.sges)), None)


def receives(role, least, length, which="recv"):
    """Posted when the side says ready. least, length: functions of the run."""

    def demand(run, role):
        if run.todo(role) and "ready" not in run.steps:  # it stopped before one could look
            return None
        waiting, elements = run.queue(role, "ready", which)
        if waiting < least(run):
            return say("no receive", role=role, found=waiting, right=least(run))
        places = [element.sges[0][0] for element in elements if element.sges]
        if len(set(places)) < len(places):
            return say("receive twice", role=role)
        for element in elements:
            room_for = sum(sge[1] for sge in element.sges)
            wrong = sges_right(run, role, "receive", element)
            if room_for != length(run) or wrong:
                return wrong or say("receive short", role=role, found=room_for, right=length(run))
        return None

    return only(role, demand)


def waits_in_vain(run, role):
    """For the completion of a request of its own, by its own words; and not all have one."""
    return re.search(
        r"no completion of (the |a )?(RDMA|SEND|WRITE|READ|requests)", run.words(role)
    ) and len(run.requests_done(role)) < len(run.messages(role))


def signalled(run, role):
    """It does not wait for a completion that its last request does not make."""
    sent = run.messages(role)
    if not sent or not waits_in_vain(run, role):
        return None
    what = KINDS.get(sent[-1].opcode & 31, "request")
    return say("unsignalled", role=role, what=what, found=len(sent))


def numbered(numbers):
    """Each request's wr_id is its message's number. numbers(run): those of the messages, in order."""

    def demand(run, role):
        for f, number in zip(run.requests_done(role), numbers(run)):
            if f["id"] != number:
                return say("message id", role=role, found=f["id"], right=number)
        return None

    return demand


def joined(found, wanted):
    """One message may be moved by several WRITEs or READs, side by side: these count as one."""
    out = []
    for p in found:
        last = out[-1] if out else p
        whole = wanted[min(len(out), len(wanted)) - 1][1].get("length", 0) if wanted else 0
        if (
            p.opcode & 31 in (6, 10, 12)
            and KINDS[p.opcode & 31] == KINDS.get(last.opcode & 31)
            and (p.rkey, p.va) == (last.rkey, last.va + last.length)
            and last.length < whole
            and out
        ):
            out[-1] = last._replace(length=last.length + p.length)
        else:
            out.append(p)
    return out


def field_right(found, number, role, kind, fields):
    """Of a message: what has another value than it must have."""
    for field, value in fields.items():
        value, why = value if isinstance(value, tuple) else (value, "")
        if (seen := getattr(found, field)) == value:
            continue
        numbers = ("va", "rkey", "add", "compare", "invalidates", "imm")
        form, name = hex if field in numbers else str, "remote_addr" if field == "va" else field
        both = {"found": form(seen), "right": form(value), "why": say(why) if why else ""}
        return say("field", number=number, role=role, what=kind, name=name, **both)
    return None


def sends(role, right, name="messages"):
    """right(run): of each message the kind, and fields that it has, in order."""

    def demand(run, role):
        wanted = right(run)
        found = joined(getattr(run, name)(role), wanted)
        many = {"role": role, "right": len(wanted)}
        for number, (kind, fields) in enumerate(wanted):
            if number >= len(found) and run.spoilt and run.harm.env and run.status(role):
                return None  # it has noticed, and stopped
            if number >= len(found):
                key = "messages" if number else "no message"
                if number and waits_in_vain(run, role):
                    key = "unsignalled"
                return say(key, what=kind, found=number, **many)
            is_kind = KINDS.get(found[number].opcode & 31)
            if is_kind != kind:
                return say("opcode", number=number, role=role, found=is_kind, right=kind)
            if wrong := field_right(found[number], number, role, kind, fields):
                return wrong
        if len(found) > len(wanted):
            what = wanted[-1][0] if wanted else "any"
            return say("messages", what=what, found=len(found), **many)
        return None

    return only(role, demand)


def requests_seen(run, role):
    """Of 12: what the NIC looks at when it moves the chain's data. An inline request's it does not move."""
    # IBV_WR_SEND, read here
    back = [f for f in run.any("request") if f["opcode"] == 2 and not f["access"]]
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

    def demand(run, role):
        for request in run.queue(role, step, "send")[1]:
            wrong = sges_right(run, role, "request", request)
            found, right = sum(sge[1] for sge in request.sges), length(run)
            if wrong or found != right and not (pieces and 0 < found < right):
                where = {"role": role, "what": "request"}
                return wrong or say("sge length", found=found, right=right, **where)
        return None

    return only(role, demand)


def no_rnr(role):
    def demand(run, role):
        late = any(p.opcode == 17 and p.syndrome & 0x60 == 0x20 for p in run.packets(role))
        return say("own rnr", role=role) if late else None

    return only(role, demand)


def completion_of(what, opcode, number=lambda run: 1):
    """opcode: enum ibv_wc_opcode."""

    def demand(run, role):
        found, least = sum(f["opcode"] == opcode for f in run.completions(role)), number(run)
        return say("unsignalled", role=role, what=what, found=least) if found < least else None

    return only("client", demand)


def completes(run, role):
    """No request of its own has failed."""
    bad = next((f["status"] for f in run.completions(role) if f["status"]), None)
    if bad is None:
        return say("cq full", role=role) if run.any("cq_error") else None
    return say("bad completion", role=role, status=STATUS[bad] if bad < len(STATUS) else bad)


def waited(run, role):
    """Nothing is under way any more when it says so: its requests are done, and it has polled that."""
    unpolled = [
        held[at + 12]
        for size, waiting, held in run.held(role, "done", "create_cq")
        for at in range(0, waiting * size, size)
    ]
    under_way = any(waiting for _, waiting, _ in run.held(role, "done", "send"))
    if under_way or any(opcode < 128 for opcode in unpolled):  # enum ibv_wc_opcode: no receive's
        return say("not waited", role=role)
    return None


def data_right(run, role):
    """What its peer, the sample, does not complain about."""
    words = run.words(OTHER[role])
    spoilt = re.search(r":b:(\d+)", run.env.get(OTHER[role], {}).get("HV_SEND", ""))
    if spoilt and f"byte {spoilt[1]} of " in words:
        return None  # its own
    finds = "byte " in words or "bytes came" in words
    return say("peer finds", role=role, words=words) if finds else None


def verdict(run, role):
    return None if run.verdicts.get(role) == "verdict PASS" else say("no verdict", role=role)


def arms(role, most):
    """Asks for events, of solicited completions only, and not more often than most(run)."""

    def demand(run, role):
        calls = run.of(role, "notify")
        if not calls:
            return say("notify", role=role)
        if any(f["flags"] & 3 != 1 for f in calls):
            return say("not solicited", role=role)
        return say("waits", role=role, found=len(calls)) if len(calls) > most(run) else None

    return only(role, demand)


def wakes(run, role):
    """It does not sleep on behind the last message: judge.py makes it lose the CPU before it asks for an event."""
    seen = [
        kind
        for thread, kind, f in run.events
        if kind == "notify"
        and thread in run.mine(role)
        or kind == "completion"
        and f["qpn"] == run.number(role, "qpn")
    ]
    return say("lost wake-up", role=role) if run.out_of_time and seen[-1:] == ["notify"] else None


def count(kind, key, role, right):
    def demand(run, role):
        found = len(run.any(kind))
        return say(key, role=role, found=found, right=right(run)) if found != right(run) else None

    return only(role, demand)


def with_channel(run, role):
    has = any(f["channel"] for f in run.of(role, "create_cq"))
    return None if has else say("no channel", role=role)
