# SPDX-License-Identifier: BSD-2-Clause
"""What make check demands of the labs 01 to 04 and 08 to 14 (flush.py: of 15, newer.py: of 16 and 18): of each, how its
pairs are run, and its parts. (05 to 07: blocks.py has their TODOs; whole, they are examined by assignment.py, as make grade-program
does it.)"""
from ends import (
    agrees,
    depth,
    gives_back,
    keeps,
    notices,
    passes,
    resets,
    so_far,
    stops,
    strangers,
    window_type,
)
from objects import asked, made, only, queue_pair, region, room, states
from wire import (
    arms,
    completes,
    completion_of,
    count,
    data_right,
    no_rnr,
    receives,
    requests_seen,
    sends,
    sge_of_requests,
    verdict,
    waited,
    wakes,
    with_channel,
)
from messages import (
    BURST,
    GUARD,
    Harm,
    LATE,
    LW,
    MW,
    QKEY,
    RA,
    RKEY,
    RR,
    RW,
    EACH_STATUS,
    STATUS,
    VERDICT,
    WR_ID,
    atomics,
    binds,
    bursts,
    chains,
    datagrams,
    loans,
    middle,
    place,
    refilled,
    size,
    status,
    text,
    text_and_back,
    to_peer,
)
from flush import FLUSH
from newer import NEWER
from parts import BOTH, CLIENT, SERVER, Part, lab

SIZES = "--size={odd} --iters={few} --seed={seed}"
BREAKS = "--size={odd} --iters={many} --seed={seed} --break=3"
LABS = {
    "01": lab(
        "--message={short} / --message={long} / ",
        Part(
            "device, PD and CQ",
            1,
            BOTH,
            [made("pd", "a protection domain"), made("create_cq", "a completion queue"), room(1)],
        ),
        Part(
            "memory and queue pair",
            2,
            BOTH,
            [region(length=lambda run, _: text(run), client=0, server=LW | RW), queue_pair()],
        ),
        Part("states", 3, BOTH, [states(server=RW)]),
        Part(
            "the WRITE",
            4,
            BOTH,
            [
                sends("client", lambda run: [("RDMA WRITE", to_peer(run, length=text(run)))]),
                only("client", waited),
                only("client", completes),
                sge_of_requests("client", text, pieces=True),
            ],
            [passes, keeps],
        ),
        harms=(LATE, LATE),
        alone=(RKEY, WR_ID, VERDICT),
    ),
    "02": lab(
        f"{SIZES} / {SIZES} / --size={{big}} --iters={{few}}",
        Part("the receive", 1, BOTH, [receives(role, lambda run: 1, size) for role in BOTH]),
        Part(
            "the messages",
            2,
            BOTH,
            [
                *(sends(role, lambda run: [("SEND", {})] * asked(run, "iters")) for role in BOTH),
                waited,
                completes,
                *(sge_of_requests(role, size) for role in BOTH),
                *map(no_rnr, BOTH),
                data_right,
            ],
            [verdict],
        ),
        Part("undo", 3, BOTH, [], [gives_back, passes]),
        harms=(
            Harm(
                "short", env=lambda draw: f"HV_SEND={middle(draw)}:l:{draw['odd'] - 16}", peer=True
            ),
            Harm(
                "spoilt",
                env=lambda draw: f"HV_SEND={middle(draw)}:b:{place(draw, draw['odd'])}",
                peer=True,
            ),
        ),
        alone=EACH_STATUS,
    ),
    "03": lab(
        f"{SIZES} / {SIZES} / --size={{big}} --iters={{few}}",
        Part("memory", 1, BOTH, [region(length=size, client=LW, server=RR)]),
        Part("states", 2, BOTH, [states(asks=1, answers=1, server=RR)]),
        Part(
            "the READs",
            3,
            CLIENT,
            [
                sends(
                    "client",
                    lambda run: [("RDMA READ", to_peer(run, length=size(run)))]
                    * asked(run, "iters"),
                ),
                waited,
                completes,
                sge_of_requests("client", size, pieces=True),
            ],
        ),
        Part("verify", 4, BOTH, [notices], [verdict, passes, keeps]),
        harms=(
            Harm("stale", env=lambda draw: f"HV_STALE={middle(draw)}:{place(draw, draw['odd'])}"),
            GUARD,
        ),
        alone=(RKEY, VERDICT, LATE._replace(role="server")),
    ),
    "04": lab(
        "--iters={few} --seed={seed} / --iters={few} --seed={seed} / --iters={few}",
        Part("the device", 1, BOTH, [stops]),
        Part("memory", 2, BOTH, [region(length=lambda *_: 8, client=LW, server=LW | RA)]),
        Part(
            "the atomics",
            3,
            CLIENT,
            [sends("client", atomics), waited, completes, sge_of_requests("client", lambda _: 8)],
        ),
        Part("verify", 4, BOTH, [notices], [verdict, passes, keeps]),
        harms=(Harm("stale", env=lambda draw: f"HV_STALE={draw['few'] + 1}:0"), LATE),
        alone=(
            Harm("stale", env=lambda draw: f"HV_STALE={draw['few'] + 3}:0"),
            Harm("stale", env=lambda draw: "HV_STALE=2:0"),
            STATUS,
            WR_ID,
            VERDICT,
            Harm("no atomics", env=lambda draw: "HV_DEVICE=no-atomics", status=77),
            Harm("more atomics", env=lambda draw: "HV_DEVICE=global-atomics", status=0),
        ),
    ),
    "08": lab(
        f"{SIZES} / {SIZES} / --transport=uc",
        Part(
            "channel and CQ",
            1,
            BOTH,
            [made("create_cq", "a completion queue"), room(BURST), with_channel],
        ),
        Part("the receives", 2, SERVER, [receives("server", lambda run: BURST, lambda run: 0)]),
        Part(
            "the WRITEs",
            3,
            CLIENT,
            [sends("client", bursts), completes, sge_of_requests("client", size), data_right],
        ),
        Part(
            "the sleep",
            4,
            SERVER,
            [arms("server", lambda run: 4 * BURST * asked(run, "iters")), wakes, passes],
        ),
        alone=(
            STATUS,
            status(1, "server"),
            Harm(
                "spoilt",
                env=lambda draw: "HV_SEND={}:b:{}".format(
                    middle(draw, BURST, 1 + draw["seed"] // 3 % BURST), place(draw, draw["odd"])
                ),
                peer=True,
                role="server",
            ),
        ),
    ),
    "09": lab(
        f"{SIZES} / {SIZES} / --iters={{few}}",
        Part("queue pair", 1, BOTH, [queue_pair(4, send=lambda run: 64, receive=lambda run: 64)]),
        Part(
            "states and address handle",
            2,
            BOTH,
            [states(4, qkey=QKEY), only("client", made("ah", "an address handle"))],
        ),
        Part(
            "the SEND",
            3,
            BOTH,
            [
                sends("client", datagrams("client", False), "datagrams"),
                completes,
                only("client", data_right),
            ],
        ),
        Part(
            "from whom",
            4,
            BOTH,
            [strangers, *(sends(role, datagrams(role), "datagrams") for role in BOTH), passes],
        ),
        harms=(
            Harm("not due", env=lambda draw: "HV_SEND=2:i:60000", peer=True, status=0),
            Harm("stranger", env=lambda draw: "HV_STRANGER=2", status=0),
        ),
        alone=EACH_STATUS,
    ),
    "10": lab(
        "--iters={many} --seed={seed} / --iters={many} --seed={seed} / --iters={many}",
        Part(
            "queue pairs", 1, CLIENT, [queue_pair(send=lambda run: 16)]
        ),  # the server's need its SRQ before
        Part(
            "shared receive queue",
            2,
            SERVER,
            [made("srq", "a shared receive queue"), queue_pair(srq="server")],
        ),
        Part(
            "the receives",
            3,
            BOTH,
            [
                receives("server", lambda run: 128, lambda run: 1024, "srq"),
                receives("client", lambda run: 1, lambda run: 0),
                no_rnr("client"),
            ],
        ),
        Part("limit and refill", 4, SERVER, [refilled, no_rnr("server"), passes]),
        alone=(
            STATUS,
            status(2),
            Harm(
                "spoilt",
                env=lambda draw: f"HV_SEND={draw['many'] // 2}:b:{place(draw, 1024)}",
                peer=True,
                role="server",
            ),
        ),
    ),
    "11": lab(
        "--message={short} / --message={long} / ",
        Part("ids", 1, BOTH, [stops]),
        Part(
            "queue pair",
            2,
            BOTH,
            [region(client=LW, server=LW | RW | RR), queue_pair(selective=True)],
        ),
        Part("connect", 3, BOTH, [states(cm=True, asks=1, answers=1), depth, no_rnr("server")]),
        Part(
            "WRITE and READ",
            4,
            BOTH,
            [
                sends("client", text_and_back),
                only("client", completes),
                completion_of("RDMA READ", 2),
                passes,
            ],
        ),
        alone=(STATUS, status(1, "server")),
    ),
    "12": lab(
        f"{SIZES} --inline=90 / {SIZES} / --sig-all",
        Part(
            "queue pair",
            1,
            BOTH,
            [queue_pair(inline=lambda run: asked(run, "inline", 64), selective=True)],
        ),
        Part("the chain", 2, CLIENT, [requests_seen, sends("client", chains), completes]),
        Part("the completions", 3, BOTH, [passes], [verdict, passes]),
        alone=(
            STATUS,
            status(1, "server"),
            WR_ID,
            Harm(
                "spoilt",
                env=lambda draw: f"HV_SEND={middle(draw, 3, 3)}:b:{place(draw, 64)}",
                peer=True,
                role="server",
            ),
        ),
    ),
    "13": lab(
        f"{SIZES} / {SIZES} --withdraw=2 / --withdraw=2",
        Part(
            "memory",
            1,
            BOTH,
            [
                region(
                    length=lambda run, role: size(run) if role == "server" else 16,
                    client=LW,
                    server=LW | MW,
                )
            ],
        ),
        Part("the window", 2, SERVER, [made("mw", "a memory window"), window_type(2)]),
        Part(
            "the loans",
            3,
            SERVER,
            [
                binds,
                only("server", waited),
                count("bind", "binds", "server", lambda run: asked(run, "iters")),
            ],
        ),
        Part(
            "the client's WRITEs",
            4,
            BOTH,
            [
                sends("client", loans),
                completion_of("SEND with invalidate", 0, lambda run: asked(run, "iters")),
                *map(no_rnr, BOTH),
                passes,
            ],
        ),
        alone=EACH_STATUS,
    ),
    "14": lab(
        f"{BREAKS} / {BREAKS} / --iters={{many}} --break=4",
        Part("queue pair", 1, BOTH, [queue_pair()]),
        Part("where to go on", 2, CLIENT, [agrees]),
        Part("the messages", 3, SERVER, [so_far]),
        Part("ERR and RESET", 4, BOTH, [resets, passes]),
        alone=(
            Harm("status", env=lambda draw: "HV_FAIL=completion:1:10", status=0),  # it goes on
            Harm(  # all have arrived then
                "status",
                env=lambda draw: f"HV_FAIL=completion:{draw['many']}:10",
                options=" --break=0",
                status=0,
            ),
            Harm(
                "spoilt",
                env=lambda draw: f"HV_SEND={middle(draw)}:b:{place(draw, draw['odd'])}",
                peer=True,
                options=" --break=9",  # later than that message
                role="server",
            ),
            Harm(
                "number",
                env=lambda draw: f"HV_SEND={middle(draw)}:i:{middle(draw)}",
                peer=True,
                options=" --break=9",  # later than that message
                role="server",
            ),
        ),
    ),
    **FLUSH,
    **NEWER,
}
# The sides that are slow at times: their receives must be there before, and an event asked for.
SLOW = {"02": BOTH, "08": SERVER, "10": CLIENT, "11": SERVER, "13": BOTH}
