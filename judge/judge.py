# SPDX-License-Identifier: BSD-2-Clause
"""Judges programs part by part, in the VM: those of a JSON file that check.py wrote. Prints a line of JSON for
each program."""
import json
import os
import shutil

from memory import read
from pair import Apart, Direct, Flow, Lead, Pair, starts, undisturbed
from labs import LABS, SLOW
from parts import BOTH, LAST
from rows import reason, row_of, why_unseen
from ends import killed, notices
from sandbox import OTHER, room_for_output
from check_words import say
from run import DONE, Watched
from trace import BLOCKS, Nic, wanted

PAIRS = {"08": Lead, "09": Flow, "11": Direct, "14": Apart}


class Judge:
    """Of one program: which of a lab's parts are right, and the first thing that is not."""

    most_cpu = 1  # seconds; see Watched

    def __init__(self, nic, job):
        self.nic, self.job, self.runs = nic, job, {}
        if job["lab"] == "15":  # its server polls all the time
            self.most_cpu = 3
        self.last = None  # the run that was looked at, and whose side of it

    def run(self, students, harm=None):
        """students: the roles that are the student's program; the first one is harmed."""
        lab, env = LABS[self.job["lab"]], {}
        number = 2 if students == BOTH else BOTH.index(students[0])
        programs = {
            role: self.job["program" if role in students else "reference"] for role in OTHER
        }
        draw = self.job["draws"][number]
        if number < 2 and not harm:
            harm = lab.harms[students[0]]
            if students[0] in SLOW.get(self.job["lab"], ()):
                env = {students[0]: {"HV_SLOW": "10"}}
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
        env, kind = env or {}, PAIRS.get(self.job["lab"], Pair)
        sides = {role: {"program": programs[role], "env": env.get(role)} for role in OTHER}
        sides["client"]["away"] = True  # be it the student's
        how = {"harm": harm, "harmed": harmed, "most_cpu": self.most_cpu}
        run = Watched(self.nic, starts(sides, arguments), arguments, kind, **how)
        run.env, run.once = env, self.once
        return run

    def once(self, students):
        """Such a run, made once."""
        if students not in self.runs:
            self.runs[students] = self.run(students)
        return self.runs[students]

    def alone(self, harm):
        """What is wrong with how a side takes it."""
        role = harm.role
        if harm.status == 0 and not (plain := self.once((role,))).spoilt and plain.status(role):
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
        for rules, both in ((part.rules, False), (part.ends, True)):
            for role in part.roles if rules else ():
                run = self.once(BOTH if both else (role,))
                self.last = run, role
                for rule in rules:
                    if 0 < run.todo(role) < part.todo:
                        return say("not reached", number=run.todo(role))
                    wrong = rule(run, role)
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

    def row(self, name, todo, why):
        """Of a part, with what the last run's program said, if it was that."""
        if not why or not self.last:
            return row_of(name, todo, why)
        run, role = self.last
        sides = (role, OTHER[role]) if run is self.runs.get(BOTH) else (role,)
        heard = not run.todo(role) and not run.spoilt
        words = "; ".join(filter(None, map(run.words, sides))) if heard else ""
        return row_of(name, todo, why, words, " ".join(run.arguments), why == killed(run, role))

    def rows(self):
        rows, wrong, unwritten = [], "", self.job["unwritten"]
        for part in LABS[self.job["lab"]].parts:
            self.last = None
            why = why_unseen(unwritten, part.todo, wrong if part.todo == LAST else "")
            why = why or reason(self.nic.tried, self.part, part)
            rows.append(self.row(part.name, part.todo, why))
            if why and self.job.get("first"):
                break
            if why and not wrong and self.last and not unwritten:
                rows[-1]["shows"] = undisturbed(self.shows, rows[-1]["options"])
            wrong = wrong or (part.name if why else "")
        return rows


def main(path):
    os.makedirs("/run/grade", exist_ok=True)
    room_for_output()
    with open(path, encoding="utf-8") as file:
        jobs = json.load(file)
    nic, examined = Nic(wanted({job["lab"] for job in jobs}, read(jobs[0]["probes"]))), None
    for number, job in sorted(enumerate(jobs), key=lambda each: each[1]["lab"] in BLOCKS):
        if job["lab"] in BLOCKS and not examined:
            import examined  # pylint: disable=import-outside-toplevel # it takes time

            examined.set_up(nic, job["course"])
        judge = examined.Checked if job["lab"] in BLOCKS else Judge
        print("ROW " + json.dumps([number, judge(nic, job).rows()]), flush=True)
    for what in nic.missed:
        print("NOTE " + say("no field", what=what), flush=True)
