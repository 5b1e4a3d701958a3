"""Verdicts as text, JSON and JUnit."""
import json
import xml.etree.ElementTree as xml
from pathlib import Path

from .folders import FORMAT
from .layouts import VERSION
from .problems.files import Refused


class Report:
    """Prints each verdict at once, and a summary at the end."""
    def __init__(self):
        self.verdicts, self.refused = [], []

    def add(self, problem, devices, outcome):
        if isinstance(outcome, str):
            self.refused.append((problem.name, devices, outcome))
            print(f"{problem.name} on {devices}: refused: {outcome}", flush=True)
            return
        self.verdicts.append(outcome)
        share = f", at most {outcome.worst:.2g} of the bound" if outcome.worst else ""
        print(f"{outcome}{share if outcome.is_right else ''}", *sorted(set(outcome.notes)), sep="\n    ",
              flush=True)

    def end(self, json_file, junit_file):
        """Writes the files, prints the summary, and returns the exit code."""
        wrong = [verdict for verdict in self.verdicts if not verdict.is_right]
        print(f"{len(self.verdicts)} held: {len(self.verdicts) - len(wrong)} right, {len(wrong)} wrong; "
              f"{len(self.refused)} refused by the program")
        if json_file:
            Path(json_file).write_text(json.dumps(self.as_json(), indent=1) + "\n")
        if junit_file:
            xml.ElementTree(self.as_junit()).write(junit_file, encoding="utf-8", xml_declaration=True)
        if not self.verdicts:
            raise Refused("expected results to hold against a problem, given none")
        return 86 if wrong else 0

    def as_json(self):
        return {"format": FORMAT, "version": VERSION,
                "verdicts": [{"problem": v.problem, "devices": v.devices, "right": v.is_right,
                              "share_of_bound": v.worst, "inferred": v.notes,
                              "differences": [vars(d) for d in v.differences]} for v in self.verdicts],
                "refused": [{"problem": name, "devices": devices, "says": text}
                            for name, devices, text in self.refused]}

    def as_junit(self):
        suite = xml.Element("testsuite", name="equivalence",
                            tests=str(len(self.verdicts) + len(self.refused)),
                            failures=str(sum(not v.is_right for v in self.verdicts)),
                            skipped=str(len(self.refused)))
        for v in self.verdicts:
            case = xml.SubElement(suite, "testcase", classname=v.problem, name=f"{v.devices} devices")
            if not v.is_right:
                xml.SubElement(case, "failure", message=str(v.differences[0])).text = str(v)
        for name, devices, text in self.refused:
            case = xml.SubElement(suite, "testcase", classname=name, name=f"{devices} devices")
            xml.SubElement(case, "skipped", message=text)
        return suite
