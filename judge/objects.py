# SPDX-License-Identifier: BSD-2-Clause
"""What can be demanded of a run, one function each: what the program makes, and its queue pair's states. A demand is
a function of a run and a role, which returns what is wrong in a sentence, or None. A demand on one side alone names it;
for the other it holds."""
from check_words import say
from sandbox import OTHER

FLUSH_GLOBAL = 1 << 8
RIGHTS = {1: "LOCAL_WRITE", 2: "REMOTE_WRITE", 4: "REMOTE_READ", 8: "REMOTE_ATOMIC", 16: "MW_BIND"}
RIGHTS |= {FLUSH_GLOBAL: "FLUSH_GLOBAL", 1 << 9: "FLUSH_PERSISTENT"}
KNOWN = sum(RIGHTS)
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


def names(bits, table):
    return " | ".join(name for bit, name in table.items() if bits & bit) or "0"


def shown(field, value):
    """An attribute of a queue pair, as its writer knows it."""
    if field == "mtu":
        return MTUS.get(value) or say("no mtu", found=value)
    if field == "length":
        return value
    return names(value, RIGHTS) if field == "access" else hex(value)


def asked(run, name, otherwise=0):
    """A number of the client's command line."""
    found = [a.split("=", 1)[1] for a in run.arguments if a.startswith(f"--{name}=")]
    return int(found[0]) if found else otherwise


def only(wanted, demand):
    """A demand on one side alone."""
    return lambda run, role: demand(run, role) if role == wanted else None


def made(kind, what):
    return lambda run, role: None if run.of(role, kind) else say("not made", role=role, what=what)


def room(least):
    """Of the completion queues together. least: a number, or a function of the run."""

    def demand(run, role):
        found = sum(f["cqe"] for _, f in run.has(role, "create_cq"))
        right = least(run) if callable(least) else least
        return say("cq small", role=role, found=found, right=right) if found < right else None

    return demand


def region(length=None, **access):
    """A region has these rights, and none has more for the peer. length(run, role): its bytes, or more for no peer."""

    def demand(run, role):
        if role not in access:
            return None
        right, found = access[role], run.regions(role)
        tried = [call["access"] & KNOWN for call in run.of(role, "register")]
        odd = [rights for rights in tried if rights & ~right & ~1]
        if odd := odd or (tried if right not in tried else []):
            return say("rights", role=role, found=names(odd[0], RIGHTS), right=names(right, RIGHTS))
        sizes = [r.length for r in found if r.access & KNOWN == right]
        least = length(run, role) if length else 0
        if not sizes:
            return say("no region", role=role)
        if length and least not in sizes and (right & 14 or max(sizes) < least):
            return say("region size", role=role, found=sizes[0], right=least)
        return None

    return demand


def queue_pair(kind=2, srq=None, inline=None, selective=False, **least):
    """srq: the role whose queue pairs have a shared receive queue. inline(run): bytes, on the client. selective: only
    what asks for a completion makes one. send, receive: of the run, for how many requests and receives all are.
    """

    def demand(run, role):
        pairs = [f for _, f in run.has(role, "create_qp")]
        if not pairs:
            return say("not made", role=role, what="a queue pair")
        for queue, right in least.items():
            found = sum(f[queue] for f in pairs)
            if found < right(run):
                name = f"max_{queue.replace('receive', 'recv')}_wr"
                return say("qp small", role=role, name=name, found=found, right=right(run))
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


def attributes(run, role, kind, rights, qkey, asks, answers):
    """What a call of ibv_modify_qp must have: of each state the attribute, its field, its value, and why."""
    peer, mtu = OTHER[role], min(run.number(side, "mtu") for side in OTHER).bit_length() - 8
    init = [("qp_access_flags", "access", rights, "why access")] if kind != 4 else []
    rtr = [
        ("dest_qp_num", "dest", run.number(peer, "qpn"), "why dest"),
        ("rq_psn", "rq_psn", run.number(peer, "psn"), "why peer psn"),
        ("path_mtu", "mtu", mtu, "why mtu"),
        ("is_global", "is_global", 1, ""),
        ("sgid_index", "sgid", 1, ""),
    ]
    deep = [("max_dest_rd_atomic", "answers", answers if role == "server" else 0, "why answers")]
    rts = [("sq_psn", "sq_psn", run.number(role, "psn"), "why own psn")]
    wide = [("max_rd_atomic", "asks", asks if role == "client" else 0, "why asks")]
    return {
        1: init + ([("qkey", "qkey", qkey, "")] if qkey else []),
        2: (rtr if kind != 4 else []) + (deep if kind == 2 else []),
        3: rts + (wide if kind == 2 else []),
    }


def states(kind=2, asks=0, answers=0, qkey=None, cm=False, **access):
    """RESET -> INIT -> RTR -> RTS, with what the peer has said. access: the peer's rights, by role; asks, answers:
    READs and atomics at a time, of the client and of the server; cm: the connection manager does it.
    """

    def state_right(run, role, state, name):
        call = next((f for f in run.of(role, "modify_qp") if f["state"] == state), None)
        if not call:
            return say("no state", role=role, state=name)
        if (lacking := NEEDED[kind][state] & ~call["mask"]) and not cm:
            what = " | ".join("IBV_QP_" + MASK[b] for b in MASK if lacking & b)
            return say("mask", role=role, state=name, what=what)
        where = {"role": role, "state": name}
        wanted = attributes(run, role, kind, access.get(role, 0), qkey, asks, answers)
        for attribute, field, right, why in wanted[state]:
            wrong = call[field] != right
            if cm:  # it knows the rest; a program may allow more READs than it needs
                wrong = field in ("asks", "answers") and call[field] < right
            if wrong:
                both = {"found": shown(field, call[field]), "right": shown(field, right)}
                reason = say(why) if why else ""
                return say("attribute", name=attribute, why=reason, **both, **where)
        patient = call["timeout"] and call["retry_cnt"] and call["rnr_retry"]
        if state == 3 and kind == 2 and not patient:
            name = "timeout, retry_cnt or rnr_retry"
            return say("attribute", name=name, found=0, right="more", why="", **where)
        return None

    def demand(run, role):
        wrong = (state_right(run, role, state, name) for state, name in STATES.items())
        return next(filter(None, wrong), None)

    return demand
