"""Verdicts as text, JSON and JUnit."""
import json
import re
import shlex
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
from pathlib import Path

from .folders import FORMAT
from .layouts import VERSION
from .problems.bounded import Undecided
from .problems.files import Refused


def commit():
    """The commit of the folder in which the command runs; None where there is none."""
    try:
        said = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
                              capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.stdout.strip() or None


class Report:
    """Prints each verdict at once, and a summary at the end."""
    def __init__(self, precision):
        self.precision, self.began = precision, time.monotonic()
        self.verdicts, self.refused, self.unsolved, self.undecided = [], [], [], []
        self.wrong_alone = {}  # {problem: cause} of those that are wrong on one device

    def add(self, problem, devices, outcome):
        """The time since the verdict before is this one's."""
        seconds, self.began = time.monotonic() - self.began, time.monotonic()
        if isinstance(outcome, str):
            self.refused.append((problem.name, devices, outcome))
            print(f"{problem.name} on {devices}: refused: {outcome}", flush=True)
            return
        if isinstance(outcome, Undecided):
            self.undecided.append((problem.name, devices, str(outcome)))
            print(f"{problem.name} on {devices}: undecided: {outcome}", flush=True)
            return
        outcome.seconds = round(seconds, 3)
        self.verdicts.append(outcome)
        share = f", at most {outcome.worst:.2g} of the bound" if outcome.worst else ""
        if not outcome.is_right and devices == 1:
            self.wrong_alone[outcome.problem] = outcome.cause
        elif not outcome.is_right and outcome.cause == self.wrong_alone.get(outcome.problem):
            outcome.notes.append("on one device, too: not the sharding")
        print(f"{outcome}{share if outcome.is_right else ''}", *sorted(set(outcome.notes)), sep="\n    ",
              flush=True)

    def add_unsolved(self, problem, missing):
        """`missing`: {number of devices: why}."""
        for why in sorted(set(missing.values())):
            devices = [n for n, other in missing.items() if other == why]
            print(f"{problem.name} on {', '.join(map(str, devices))}: not solved: {why}", flush=True)
        self.unsolved += [(problem.name, devices, f"not solved: {why}") for devices, why in missing.items()]

    def of_all(self, wrong):
        """The cause of most wrong verdicts, in a line; "" without one. Numbers, as in 1/3, are those of the devices."""
        def kind(verdict):
            return re.sub(r"\d+", "N", verdict.cause)
        kinds = [kind(verdict) for verdict in wrong if verdict.cause]
        if len(wrong) < 2 or not kinds:
            return ""
        most = max(kinds, key=kinds.count)
        example = next(verdict.cause for verdict in wrong if kind(verdict) == most)
        return f"{len(wrong)} wrong, one cause in {kinds.count(most)}: {example}" if kinds.count(most) > 1 else ""

    def end(self, json_file, junit_file):
        """Writes the files, prints the summary, and returns the exit code."""
        wrong = [verdict for verdict in self.verdicts if not verdict.is_right]
        for line in filter(None, [self.of_all(wrong)]):
            print(line)
        print(f"{len(self.verdicts)} held: {len(self.verdicts) - len(wrong)} right, {len(wrong)} wrong; "
              f"{len(self.refused)} refused by the program"
              + f"; {len(self.unsolved)} not solved" * bool(self.unsolved)
              + f"; {len(self.undecided)} undecided" * bool(self.undecided))
        if json_file:
            Path(json_file).write_text(json.dumps(self.as_json(), indent=1) + "\n")
        if junit_file:
            xml.ElementTree(self.as_junit()).write(junit_file, encoding="utf-8", xml_declaration=True)
        if not self.verdicts:
            raise Refused("expected results to hold against a problem, given none" if not self.undecided else
                          "expected a precision that decides a problem, given one that decides none")
        return 86 if wrong or self.unsolved else 0

    def as_json(self):
        wrong = [v for v in self.verdicts if not v.is_right]
        return {"format": FORMAT, "version": VERSION, "cause": self.of_all(wrong), "commit": commit(), "precision": self.precision,
                "command": shlex.join(sys.argv), "seconds": sum(v.seconds for v in self.verdicts),
                "verdicts": [{"problem": v.problem, "devices": v.devices, "right": v.is_right,
                              "cause": v.cause, "seconds": v.seconds, "share_of_bound": v.worst, "inferred": v.notes,
                              "differences": [vars(d) for d in v.differences]} for v in self.verdicts],
                **{kind: [{"problem": name, "devices": devices, "says": text} for name, devices, text in listed]
                   for kind, listed in (("refused", self.refused), ("not_solved", self.unsolved),
                                        ("undecided", self.undecided))}}

    def as_junit(self):
        suite = xml.Element("testsuite", name="equivalence",
                            tests=str(sum(map(len, (self.verdicts, self.refused, self.unsolved, self.undecided)))),
                            failures=str(sum(not v.is_right for v in self.verdicts) + len(self.unsolved)),
                            skipped=str(len(self.refused) + len(self.undecided)))
        for v in self.verdicts:
            case = xml.SubElement(suite, "testcase", classname=v.problem, name=f"{v.devices} devices",
                                  time=f"{v.seconds:.3f}")
            if not v.is_right:
                xml.SubElement(case, "failure", message=str(v.differences[0])).text = str(v)
        for kind, listed in (("skipped", self.refused + self.undecided), ("failure", self.unsolved)):
            for name, devices, text in listed:
                case = xml.SubElement(suite, "testcase", classname=name, name=f"{devices} devices")
                xml.SubElement(case, kind, message=text)
        return suite
