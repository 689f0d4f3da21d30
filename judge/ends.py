# SPDX-License-Identifier: BSD-2-Clause
"""What can be demanded of a run (see objects.py): how the program ends, and what it must notice."""
import re
import signal

from check_words import say
from sandbox import OTHER
from wire import signalled


def stops(run, role):
    """It did not even get to its memory."""
    if run.todo(role) or run.of(role, "register"):
        return None
    return say("stops", role=role, status=run.status(role))


def window_type(right):
    def demand(run, role):
        found = next((f["type"] for f in run.of(role, "mw")), None)
        wrong = found != right
        return say("window type", role=role, found=found, right=right) if wrong else None

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
    asked, lent, mine = 0, set(), run.mine(role)
    for i, (thread, kind, f) in enumerate(run.events):
        if kind == "register" and thread in mine:
            asked = f["access"]
        elif kind == "registered" and thread in mine and asked & 14:
            lent.add(f["mr"])
        elif (
            kind == "free_mr" and f["mr"] in lent and run.before["ready"] <= i < run.before["done"]
        ):
            return say("freed early", role=role)
    return None


def killed(run, role):
    """By a signal of its own making."""
    status = run.status(role) or 0
    if status >= 0 or status == -signal.SIGKILL:
        return None
    return say("killed", role=role, signal=signal.Signals(-status).name)


def ends_well(run, role):
    """The side, and what it prints last."""
    result, status = run.result(role), run.status(role)
    if status == -9:  # it had to be ended
        unacknowledged = run.of(role, "notify") and run.verdicts.get(role)
        return say("not acknowledged" if unacknowledged else "hangs", role=role)
    if killed(run, role):
        return killed(run, role)
    if status != 0 or result.get("status") != "PASS":
        return signalled(run, role) or say(
            "ends", role=role, status=status, result=result.get("status")
        )
    results = run.results(role)
    if len(results) != 1 or not run.said(role)[-1].endswith(results[0]):
        return say("two results", role=role, number=len(results))
    return None


def passes(run, role):
    """And what it prints last is the same as its peer's."""
    if wrong := ends_well(run, role):
        return wrong
    result, peer = run.result(role), run.result(OTHER[role])
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
