# SPDX-License-Identifier: BSD-2-Clause
"""Judges programs part by part, in the VM: those of a JSON file that check.py wrote. Prints a line of JSON for
each program."""
import json
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "learn")]
# pylint: disable=wrong-import-position
from memory import Wrong, read  # noqa: E402
from pair import Apart, Direct, Flow, Lead, Pair, Side  # noqa: E402
from labs import LABS, SLOW  # noqa: E402
from parts import BOTH, LAST  # noqa: E402
from ends import killed, notices  # noqa: E402
from sandbox import OTHER  # noqa: E402
from check_words import say  # noqa: E402
from run import DONE, PATIENCE, Watched  # noqa: E402
from sandbox import room_for_output  # noqa: E402
from trace import Nic, wanted  # noqa: E402

KINDS = {"08": Lead, "09": Flow, "11": Direct, "14": Apart}


class Judge:
    """Of one program after the other: which of a lab's parts are right, and the first thing that is not."""

    def __init__(self, nic):
        self.nic = nic

    def run(self, students, harm=None):
        """students: the roles that are the student's program; the first one is harmed."""
        lab, env = LABS[self.job["lab"]], {}
        number = (
            2 if len(students) > 1 else students.index("server") + 1 if "server" in students else 0
        )
        programs = {
            role: self.job["program" if role in students else "reference"] for role in OTHER
        }
        draw = self.job["draws"][number]
        if number < 2 and not harm:
            harm = lab.harms[students[0]]
            env = (
                {students[0]: {"HV_SLOW": "10"}}
                if students[0] in SLOW.get(self.job["lab"], ())
                else {}
            )
        if harm and harm.env:
            name, value = harm.env(draw).split("=")
            env.setdefault(OTHER[students[0]] if harm.peer else students[0], {})[name] = value
        for variables in env.values():
            # Copied: ld.so takes a blank or a colon in a path for the end of a name.
            library = shutil.copy(self.job.get(next(iter(variables)), self.job["HV_FAIL"]), "/run/")
            variables |= {"HV_DONE": DONE, "LD_PRELOAD": library}
        options = lab.runs[number] + (harm.options if harm else "")
        arguments = options.format(**draw).split()
        return self.pair(programs, arguments, harm, students[0], env)

    def pair(self, programs, arguments, harm=None, harmed="", env=None):
        """Runs it. env: by role."""

        def side(role, more):
            return lambda rest: Side(
                role,
                [programs[role], *more, f"--timeout={PATIENCE}", *rest],
                env=(env or {}).get(role),
            )

        sides = {"server": side("server", []), "client": side("client", arguments)}
        kind = KINDS.get(self.job["lab"], Pair)
        run = Watched(self.nic, sides, arguments, kind, harm=harm, harmed=harmed)
        run.env, run.once = env or {}, self.once
        return run

    def once(self, students):
        """Such a run, made once."""
        if students not in self.runs:
            self.runs[students] = self.run(students)
        return self.runs[students]

    def alone(self, harm):
        """What is wrong with how a side takes it."""
        role = harm.role
        if harm.status == 0 and self.once((role,)).status(role):
            return None  # it fails without it, too
        run = self.run((role,), harm)
        self.last = run, role
        refused = harm.unless and harm.unless in run.words(OTHER[role])
        if refused or harm.status in (None, run.status(role)):
            return notices(run, role) or (harm.demand and harm.demand(run, role))
        return say(
            "not as", what=say(harm.what), role=role, status=run.status(role), right=harm.status
        )

    def part(self, part):
        """What is wrong with it, in a sentence; nothing if all is right."""
        missing = sorted(int(n) for n in self.job["unwritten"])
        if part.todo in missing:
            return say("not written", number=part.todo, what=self.job["unwritten"][str(part.todo)])
        if part.todo == LAST and missing:
            return say("not reached", number=missing[0])
        for rules, both in ((part.rules, False), (part.ends, True)):
            for role in part.roles if rules else ():
                run = self.once(BOTH if both else (role,))
                self.last = run, role
                for rule in rules:
                    if 0 < run.todo(role) < part.todo:
                        return say("not reached", number=run.todo(role))
                    wrong = self.nic.tried(rule, run, role)
                    if wrong:
                        return killed(run, role) or wrong
        for harm in part.alone:
            wrong = self.alone(harm)
            if wrong:
                return wrong
        return ""

    def shows(self, options):
        """Whether the program fails by itself with these options, as make run has it do."""
        programs = dict.fromkeys(OTHER, self.job["program"])
        run = self.pair(programs, options.split() if len(options) < 200 else [])
        return any(run.status(role) and not run.todo(role) for role in OTHER)

    def row(self, part, why):
        """Of a part, with what the last run's program said, if it was that."""
        words, options = "", ""
        if why and self.last:
            run, role = self.last
            sides = (role, OTHER[role]) if run is self.runs.get(BOTH) else (role,)
            if not run.todo(role) and not run.spoilt:
                words = "; ".join(filter(None, map(run.words, sides)))
            options = " ".join(run.arguments)
        return {
            "part": part.name,
            "todo": part.todo,
            "right": not why,
            "why": why,
            "says": words,
            "options": options,
            "memory": bool(why and self.last and why == killed(*self.last)),
        }

    def judge(self, job):
        """The rows of a program."""
        self.job, self.runs, rows = job, {}, []
        Watched.most_cpu = 3 if job["lab"] == "15" else 1  # its server polls all the time
        for part in LABS[job["lab"]].parts:
            self.last = None
            wrong = next((row["part"] for row in rows if not row["right"]), "")
            try:
                why = (
                    say("not after", part=wrong)
                    if wrong and part.todo == LAST and not job["unwritten"]
                    else self.nic.tried(self.part, part) or ""
                )
            except (IndexError, KeyError, OSError) as reason:  # it did less than anybody thought of
                why = say("nothing seen", reason=repr(reason))
            except Wrong as reason:
                why = str(reason)
            rows.append(self.row(part, why))
            if why and not wrong and self.last and not job["unwritten"] and not job.get("first"):
                rows[-1]["shows"] = self.shows(rows[-1]["options"])
            if why and job.get("first"):
                break
        return rows


def main(path):
    os.makedirs("/run/grade", exist_ok=True)
    room_for_output()
    Side.away = ("client",)  # be it the student's
    with open(path, encoding="utf-8") as file:
        jobs = list(enumerate(json.load(file)))
    ours = [each for each in jobs if each[1]["lab"] in LABS]
    probes = read(jobs[0][1]["probes"])
    nics = [Nic(wanted({job["lab"] for _, job in ours}, probes))] if ours else []
    for number, job in ours:
        print("ROW " + json.dumps([number, Judge(nics[0]).judge(job)]), flush=True)
    if len(ours) < len(jobs):
        sys.pycache_prefix, ours_compiled = None, sys.pycache_prefix
        import random, traceback  # noqa: F401,E401 pylint: disable=all # of Python's own, which assignment.py takes

        sys.pycache_prefix = ours_compiled
        import examined  # pylint: disable=import-outside-toplevel # it takes time

        nics.append(examined.set_up(jobs[0][1]["course"], probes))
    for number, job in jobs:
        if job["lab"] not in LABS:
            print("ROW " + json.dumps([number, examined.Checked(nics[-1], job).rows()]), flush=True)
    for what in {what: True for nic in nics for what in nic.missed}:
        print("NOTE " + say("no field", what=what), flush=True)
