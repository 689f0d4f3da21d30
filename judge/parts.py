# SPDX-License-Identifier: BSD-2-Clause
"""The form of what make check demands of a lab: for the tables in labs.py, flush.py and newer.py."""
from collections import namedtuple

from ends import gives_back, notices, passes
from messages import STATUS

# rules: about a run in which the student's program has this role and the reference the other; ends: about
# one in which both sides are the student's. todo: the place that it judges; LAST: all of them.
# alone: harm that needs a run of its own.
Part = namedtuple("Part", "name todo roles rules ends alone", defaults=((), ()))
Lab = namedtuple("Lab", "runs harms parts")
LAST = 99
BOTH, CLIENT, SERVER = ("client", "server"), ("client",), ("server",)


def lab(runs, *parts, harms=(None, None), alone=(STATUS,)):
    """runs: the client's options when it is the student's, when the server is, and when both are. harms: what is done
    to the client and to the server in the first two. alone: what the part careful is about."""
    rules = [] if any(notices in part.rules for part in parts) else [notices]
    last = [
        Part("with itself", LAST, BOTH, [], [passes, gives_back]),
        Part("careful", LAST, BOTH, rules, alone=alone),
    ]
    return Lab(runs.split(" / "), dict(zip(BOTH, harms)), [*parts, *last])
