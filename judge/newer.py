# SPDX-License-Identifier: BSD-2-Clause
"""What make check demands of 16 and 18, as labs.py of the others."""
import re

from check_words import say
from ends import passes
from messages import LATE, STATUS, Harm, size, to_peer
from objects import asked, made, queue_pair, room
from parts import BOTH, CLIENT, Part, lab
from wire import completes, data_right, numbered, sends, signalled, waited

ODD = "--size={odd} --seed={seed}"
LIST = Harm("list", status=0, options=" --list", unless="counts its first SGE twice")


def batch(run):
    return asked(run, "batch")


def threads(run):
    return asked(run, "threads")


def writes(run):
    """Of 18, by place; if the client has failed, those alone that it has posted."""
    first, places = run.number("server", "addr"), range(asked(run, "threads") * asked(run, "iters"))
    sent = {(p.va - first) // size(run) for p in run.messages("client")}
    wanted = places if run.status("client") == 0 else [m for m in places if m in sent] or [0]
    return [("RDMA WRITE", to_peer(run, m * size(run), length=size(run))) for m in wanted]


def numbers(run):
    """Of 18's messages, as they were posted."""
    return [(p.va - run.number("server", "addr")) // size(run) for p in run.messages("client")]


def fields(run, role):
    """All of them are asked for of the completion queues (16): the one with timestamps is refused."""
    said = any("no completion timestamps" in line for line in run.said(role))
    return None if said else say("wc flags", role=role)


def new_way(run, role):
    """It is there (16), and no old call was made: judge.py has these fail."""
    if not run.line(role):
        return say("no qpx", role=role)
    return say("old way", role=role, what=say(run.harm.what)) if run.spoilt else None


def costs(run, role):
    """16's client counts its calls that post."""
    said = re.search(r"post_calls=(\d+)", " ".join(run.said(role)))
    right = 2 * asked(run, "iters") + 2 * -(-asked(run, "iters") // batch(run))
    return say("calls", found=said[1], right=right) if said and int(said[1]) != right else None


def noted(run, role):
    """In the order of the posts (18): else a completion seems to be another's, where threads share a queue pair."""
    odd = "another request's completion" in run.words(role)
    return say("noted") if odd and run.once(("client", "server")).status(role) == 0 else None


def owners(run, role):
    """None waits for what another has counted (18)."""
    found = len(run.requests_done(role))
    odd = "no completion of a WRITE" in run.words(role) and found == len(run.messages(role))
    return say("owner", found=found) if odd else None


NEWER = {
    "16": lab(
        f"--batch={{few}} {ODD} --iters=23 / --batch=64 {ODD} --iters=100 / --batch=1 --iters={{few}}",
        Part(
            "completion queues",
            1,
            BOTH,
            [made("create_cq", "a completion queue"), fields, room(lambda run: 2 * batch(run))],
        ),
        Part("queue pair", 2, BOTH, [queue_pair(send=batch, receive=batch), new_way]),
        Part(
            "the SENDs",
            3,
            CLIENT,
            [
                sends(
                    "client",
                    lambda run: [("SEND", {})] * max(batch(run), len(run.messages("client"))),
                ),
                signalled,
                numbered(lambda run: range(len(run.messages("client")))),
                completes,
                data_right,
                costs,
            ],
            alone=(LIST,),
        ),
        Part(
            "the completions",
            4,
            BOTH,
            [
                passes,
                *(sends(role, lambda run: [("SEND", {})] * asked(run, "iters")) for role in BOTH),
                waited,
            ],
        ),
        harms=(
            Harm("post_send", env=lambda draw: "HV_FAIL=ibv_post_send:1:95", status=0),
            Harm("poll_cq", env=lambda draw: "HV_FAIL=ibv_poll_cq:1:95", status=0),
        ),
        alone=(  # two completions at most are the trial's
            Harm("status", env=lambda draw: "HV_FAIL=completion:3:10"),
            Harm("status", env=lambda draw: "HV_FAIL=completion:3:10", role="server"),
            Harm("wr id", env=lambda draw: "HV_FAIL=wr_id:3:4097"),
            Harm("byte_len", env=lambda draw: "HV_FAIL=byte_len:2:1"),
        ),
    ),
    "18": lab(
        f"--share=qp --threads={{few}} {ODD} --iters=8 / --share=none --threads={{few}} {ODD} --iters=8 "
        "/ --share=none --threads=16 --iters={few}",
        Part("queues", 1, BOTH, [queue_pair(send=threads), room(threads)]),
        Part(
            "the WRITEs",
            2,
            CLIENT,
            [
                sends("client", writes, "by_place"),
                signalled,
                numbered(numbers),
                completes,
                data_right,
                noted,
            ],
        ),
        Part("the completions", 3, CLIENT, [owners, waited, passes], [passes]),
        harms=(Harm("turns", env=lambda draw: "HV_TURNS=1", status=0), LATE),
        alone=(STATUS, Harm("wr id", env=lambda draw: "HV_FAIL=wr_id:1:1")),
    ),
}
