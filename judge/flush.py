# SPDX-License-Identifier: BSD-2-Clause
"""What make check demands of 15, as labs.py of the others."""
from check_words import say
from ends import notices, passes
from memory import Wrong
from messages import LW, RW, Harm, at, middle, place, size, to_peer
from objects import FLUSH_GLOBAL, asked, only, queue_pair, region, states
from parts import BOTH, CLIENT, SERVER, Part, lab
from wire import completes, data_right, numbered, sends, signalled, waited

SIZES = "--size={odd} --iters={few} --seed={seed}"
TAIL, RECORD = 8, ("RDMA WRITE", "FLUSH", "ATOMIC WRITE")  # bytes in front of the log; its requests
RIGHTS = RW | FLUSH_GLOBAL


def memory(run, role):
    return TAIL + size(run) * asked(run, "iters") if role == "server" else size(run)


def records(run):
    """The requests of all records; if the client has failed, of those alone that it has begun."""
    out, kind = [], {"type": (1, "why visible"), "level": (0, "why range")}
    for i in range(asked(run, "iters")):
        where = to_peer(run, TAIL + i * size(run), length=size(run))
        tail = to_peer(run, length=TAIL, value=((i + 1) * size(run), "why tail"))
        out += zip(RECORD, (where, {**where, **kind}, tail))
    return out if run.status("client") == 0 else out[: max(3, len(run.messages("client")))]


def plain(run):
    """The same with neither FLUSH nor ATOMIC WRITE."""
    out = [field for kind, field in records(run) if kind != "FLUSH"]
    return [("RDMA WRITE", {name: f[name] for name in ("va", "rkey", "length")}) for f in out]


def operations(run, role):
    """HV_OPS: the three in enum ibv_qp_create_send_ops_flags. Without one a NULL pointer ends the client."""
    if role == "client" and run.spoilt:
        raise Wrong(say("operations"))


def last_alone(run, role):
    """Of a record, the last request has a completion, and no other."""
    odd = [f["opcode"] for f in run.requests_done(role) if f["status"] == 0 and f["opcode"] != 9]
    kinds = {1: "RDMA WRITE", 8: "FLUSH"}  # enum ibv_wc_opcode
    return say("last alone", role=role, what=kinds.get(odd[0], odd[0])) if odd else None


def same_id(run, role):
    """All requests of the last record have its number: those that the send queue still shows."""
    found = run.queue(role, "done", "send")[1][-len(RECORD) :]
    right = asked(run, "iters") - 1
    for kind, request in zip(RECORD, found):
        if request.wr_id != right:
            return say("record id", role=role, what=kind, found=request.wr_id, right=right)
    return None


def gives_up(run, role):
    return say("never ends", role=role) if run.status(role) == -9 else None


def torn(run):
    """Where a byte is wrong that its client's NIC takes along, until both sides have said done."""
    draw = {"seed": asked(run, "seed"), "few": asked(run, "iters")}
    return TAIL + (middle(draw) - 1) * size(run) + place(draw, size(run))


NOT_SUPPORTED = Harm("no flush", env=lambda draw: "HV_FAIL=ibv_create_qp_ex:1:95", status=77)
NO_MEMORY = Harm("no memory", env=lambda draw: "HV_FAIL=ibv_create_qp_ex:1:12", status=1)
PLAIN = Harm("plain", status=0, options=" --no-flush --plain-tail", demand=sends("client", plain))
SILENT = Harm(
    "silent",
    env=lambda draw: f"HV_FAIL=ibv_wr_complete:{middle(draw)}:12",
    peer=True,
    role="server",
    demand=gives_up,
)
FLUSH = {
    "15": lab(
        f"{SIZES} / {SIZES} / --size={{big}} --iters={{few}}",
        Part("memory", 1, BOTH, [region(length=memory, client=0, server=LW | RIGHTS)]),
        Part(
            "queue pair",
            2,
            BOTH,
            [
                queue_pair(),
                only("client", queue_pair(send=lambda run: len(RECORD))),
                operations,
                states(asks=2, answers=2, server=RIGHTS),
            ],
            alone=(NOT_SUPPORTED, NO_MEMORY),
        ),
        Part(
            "the records",
            3,
            CLIENT,
            [
                sends("client", records),
                signalled,
                last_alone,
                numbered(lambda run: range(asked(run, "iters"))),
                completes,
                data_right,
                same_id,
                waited,
                passes,
            ],
            alone=(PLAIN,),
        ),
        Part("the reader", 4, SERVER, [notices], [passes], alone=(SILENT,)),
        harms=(
            Harm("operations", env=lambda draw: "HV_OPS=0x1801", status=0),
            Harm(
                "torn",
                at("done", torn),
                lambda draw: f"HV_SEND={middle(draw)}:b:{place(draw, draw['odd'])}",
                peer=True,
            ),
        ),
    ),
}
