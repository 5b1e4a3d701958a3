"""Grades a submission: all its bodies together first, then each exercise that loses a point by itself. So a mistake
in one exercise costs no point in another."""
import contextlib
import re
import shutil
import time
from dataclasses import dataclass, field, replace
from fractions import Fraction

from holes import Misplaced
from judge import Counted, Outcome, cause_in, judge, read_device
from problems import Asked, Test, settled
from sandbox import Limits, loopback_bytes
from shardbook_check.wrong_versions import SAYS
from small_problems import LayerProblem
from submission import answer_to, repository_in
from trees import in_bodies

RUN = Limits(seconds=120, cpu=20)  # of a test, which takes less than two seconds; the machine may be busy
# Sends the devices' messages through the loopback, where the kernel counts them.
COUNTED = {"OMPI_MCA_btl": "tcp,self", "OMPI_MCA_btl_tcp_if_include": "lo"}


TAKEN = "of what stands outside of the exercises' functions, only functions and includes that are added are taken, " \
        "if they compile, and if all else there is as it was"


@dataclass
class Part:
    """A test of an exercise, as a student sees it: its points, and why points were lost."""
    exercise: str
    name: str    # "3 train --variant column-row", "communication", "memory"
    kind: str    # "public", "hidden", "communication", "memory"
    points: Fraction
    earned: Fraction = 0
    why: list = field(default_factory=list)


@dataclass
class Graded:
    name: str
    parts: list = field(default_factory=list)
    figures: dict = field(default_factory=dict)  # {exercise: {name: number}}
    seconds: float = 0
    answers: dict = field(default_factory=dict)  # {exercise: {hole: text}} of what was handed in

    @property
    def points(self):
        return sum(part.points for part in self.parts)

    @property
    def earned(self):
        return sum(part.earned for part in self.parts)


def tests_of(exercise, seed):
    """All tests of an exercise. In hidden ones, the seed has chosen."""
    public = [Test(text, "public", seed) for text in exercise.tests]
    hidden = [Test(settled(text, f"{seed}/{i}"), "hidden", f"{seed}/{i}",
                   wants_input_grad=i + 1 < len(exercise.hidden)) for i, text in enumerate(exercise.hidden)]
    return public + hidden + ([Test(exercise.large, "large", seed)] if exercise.large else [])


@dataclass
class Staff:
    """The results of the staff's program for a test."""
    figures: list  # of each device
    counted: Counted

    def as_bounds(self, devices):
        """The limits for a free exercise: bytes of the device that sends most, and of all in the kernel's count. No
        device may compute more than 1.5 times its share."""
        operations = 3 * sum(figures["operations"] for figures in self.figures) // (2 * devices)
        bound = {"bytes below": max(figures["bytes"] for figures in self.figures),
                 "operations at most": operations}
        return Staff([bound] * devices, replace(self.counted, is_bound=True))


class Grader:
    def __init__(self, tree, some, seed):
        self.tree, self.exercises, self.seed = tree, some, seed
        self.asked = {e.id: [Asked(test, e.chapter, e.beats, bool(e.figures)) for test in tests_of(e, seed)]
                      for e in some.values()}
        every = [a for asked in self.asked.values() for a in asked]
        tree.make_staff(sorted({a.program for a in every} | {a.of_beaten().program for a in every if a.beats}))
        self.staff = {}  # results of the staff's programs, by test

    # ---- A submission ------------------------------------------------------------------------------------
    def hand_in(self, name, folder):
        """Grades a submission, which is a folder. Without a starter repository it has no points."""
        try:
            return self.grade(name, repository_in(folder))
        except Misplaced as why:
            return self.without(name, f"{folder.name}: {why}")

    def without(self, name, why):
        """A submission without points."""
        return Graded(name, [part for i, e in self.exercises.items() for part in parts_of(e, self.asked[i], None, why)])

    def grade(self, name, folder):
        start, graded = time.monotonic(), Graded(name)
        answers = {e.id: answer_to(e, folder) for e in self.exercises.values()}
        refused = {i: a.refused for i, a in answers.items() if a.refused}
        refused |= {i: f"exercise {i} is not done yet" for i, a in answers.items()
                    if i not in refused and not a.is_done}
        left = {i: a for i, a in answers.items() if i not in refused}
        graded.answers = {i: a.bodies for i, a in left.items()}
        refused |= self.build(left)
        outcomes = {i: self.outcomes(self.exercises[i]) for i in left if i not in refused}
        if len(outcomes) > 1:
            outcomes |= self.alone({i: left[i] for i, found in outcomes.items() if not all_right(found)})
        for i, exercise in self.exercises.items():
            graded.parts += parts_of(exercise, self.asked[i], outcomes.get(i), refused.get(i))
            graded.figures[i] = figures_of(outcomes.get(i, []))
        graded.seconds = time.monotonic() - start
        return graded

    def build(self, answers):
        """Builds these answers together. Leaves out those that do not compile, with the reason: {id: text}."""
        refused, with_files = {}, True
        while left := {i: a for i, a in answers.items() if i not in refused}:
            bodies = {hole: body for a in left.values() for hole, body in a.bodies.items()}
            files = {file: text for a in left.values() for file, text in a.files.items() if with_files}
            self.tree.refresh(bodies, files)
            said = self.tree.make(sorted({a.program for i in left for a in self.asked[i]}))
            if not said:
                return refused
            errors = in_bodies(said, self.tree, bodies)
            for i, a in left.items():
                if mine := [text for hole in a.bodies for text in errors.get(hole, [])]:
                    refused[i] = "it does not compile: " + "; ".join(mine[:3])
                    if re.search("was not declared|not a member|has no member", refused[i]):
                        refused[i] += f" ({TAKEN})"
            if not errors and files:  # additions to the files may not compile
                with_files = False
            elif not errors:  # no body has the error: it is elsewhere, or a limit was exceeded
                refused |= {i: f"it does not compile with the project's own files: {TAKEN}" for i in left} \
                    if len(left) == 1 else \
                    self.each_build(left)
        return refused

    def each_build(self, answers):
        return {i: text for i, a in answers.items() for text in self.build({i: a}).values()} or \
            {i: "it does not compile together with the other answers" for i in answers}

    def alone(self, answers):
        """The outcomes of exercises by themselves, {id: outcomes}. Those of different chapters run together."""
        found, left = {}, dict(answers)
        while left:
            together = {}
            for i, answer in left.items():
                together.setdefault(answer.exercise.chapter, i)
            round_of = {i: left.pop(i) for i in together.values()}
            self.build(round_of)
            found |= {i: self.outcomes(self.exercises[i]) for i in round_of}
        return found

    # ---- A test ------------------------------------------------------------------------------------------
    def outcomes(self, exercise):
        """The outcomes of all tests. After a test that exceeds a limit, the remaining tests are not run."""
        found, broke = [], ""
        for asked in self.asked[exercise.id]:
            outcome = Outcome.not_run(broke) if broke else self.outcome(asked)
            broke = broke or outcome.broke
            found.append(outcome)
        return found

    def outcome(self, asked):
        outcome = self.judged(asked)
        if outcome.results:  # later steps are wrong everywhere: the first wrong step may show the cause
            earlier = (self.judged(fewer).results for fewer in asked.with_fewer_steps())
            outcome.results = next(filter(None, earlier), outcome.results)
        if outcome.results and not asked.wants_input_grad and not self.judged(asked.with_input_grad()).results:
            outcome.results = [text.replace(SAYS["unknown"], SAYS["only_if_wanted"]) for text in outcome.results]
        return outcome

    def judged(self, asked):
        is_counted = asked.test.kind == "large"
        staff = self.of_staff(asked)
        for _ in range(3):
            with self.scratch() as folder:
                ended, counted = self.run(asked, self.tree.program(asked.program), folder, is_counted)
                outcome = judge(asked, ended, folder / "out", staff.figures,
                                (counted, staff.counted) if is_counted else None)
            if not is_counted or not counted.misses_some(staff.counted):
                break
        return outcome

    def run(self, asked, program, folder, is_counted=False, devices=None):
        """Runs a program on a test in this folder, and counts what it used."""
        asked.write(folder / "problem")
        (folder / "out").mkdir()
        before = loopback_bytes()
        launcher = self.tree.folder / "chapters/on_devices"
        ended = self.tree.sandbox.run(
            [launcher, devices or asked.test.devices, program, folder / "problem", folder / "out"],
            sees=[self.tree.folder, self.tree.staff, folder / "problem"], writes=[folder / "out"], limits=RUN,
            environment=COUNTED if is_counted else None)
        seen = ended.devices(program)
        return ended, Counted(loopback_bytes() - before, [p.written for p in seen], [p.peak for p in seen],
                              ended.seconds)

    def of_staff(self, asked):
        """The results of the staff's program for the same test, with the expected results if only it has them. For a
        free exercise: bounds, less than what it must beat."""
        if asked.beats:
            return self.of_staff(asked.of_beaten()).as_bounds(asked.test.devices)
        if asked.key not in self.staff:
            with self.scratch() as folder:
                ended, counted = self.run(asked, self.tree.staff / asked.program, folder,
                                          is_counted=asked.test.kind == "large")
                require_right(ended, asked)
                found = [read_device(folder / "out", device) for device in range(asked.test.devices)]
                figures = [device.figures | {"names": set(device.tensors)} for device in found]
            if asked.test.kind == "large":
                with self.scratch() as folder:
                    again = self.run(asked, self.tree.staff / asked.program, folder, is_counted=True)[1]
                    counted = counted.with_most_of(again)
            self.staff[asked.key] = Staff(figures, counted)
        if asked.problem is None:
            with self.scratch() as folder:
                ended, _ = self.run(asked, self.tree.staff / asked.program, folder, devices=1)
                require_right(ended, asked)
                found = read_device(folder / "out", 0).tensors
                whole = {name: t.values for name, t in found.items()}
                asked.problem = LayerProblem.of(asked.job.get("layer", asked.program), whole, asked.job)
        return self.staff[asked.key]

    @contextlib.contextmanager
    def scratch(self):
        """A folder for one job."""
        folder = self.tree.sandbox.scratch / "job"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def require_right(ended, asked):
    if ended.code or ended.broke:
        raise RuntimeError(f"{asked.test.text}: the staff's own program ended with code {ended.code} "
                           f"{ended.broke}: {ended.output[-1000:]}")


def all_right(outcomes):
    return not any(o.results or o.communication or o.memory for o in outcomes)


def figures_of(outcomes):
    """The figures of the large test, if there is one."""
    return next((o.figures for o in reversed(outcomes) if "kernel_bytes" in o.figures), {})


def parts_of(exercise, asked, outcomes, refused):
    """An exercise's points, test by test."""
    counts = {kind: sum(a.test.kind == kind for a in asked) for kind in ("public", "hidden", "large")}
    weights = {kind: weight for kind, weight in exercise.weights.items()
               if counts.get(kind, counts["public"])}
    unit = Fraction(exercise.points, sum(weights.values()))  # exact: a score is compared with its most
    parts = []
    for i, a in enumerate(asked):
        if a.test.kind == "large":
            continue
        outcome = outcomes[i] if outcomes else Outcome(results=[refused])
        points = unit * weights[a.test.kind] / counts[a.test.kind]
        parts.append(Part(exercise.id, a.test.text, a.test.kind, points, points * (not outcome.results),
                          outcome.results))
    found = outcomes or [Outcome(results=[refused])]
    judged = found if is_one_mistake(found) else [o for o in found if not o.results]
    for kind in ("communication", "memory"):
        if weights.get(kind):
            why = list(dict.fromkeys(text for o in judged for text in getattr(o, kind)))
            points = unit * weights[kind]
            earned = points * (not why) * len(judged) / len(found)
            if len(judged) < len(found):
                wrong = f"the results of {len(found) - len(judged)} of {len(found)} tests are not right"
                why.append(wrong if outcomes else refused)
            parts.append(Part(exercise.id, kind, kind, points, earned, why[:3]))
    return parts


def is_one_mistake(outcomes):
    """Whether wrong results have one known cause, the same in all tests, and the bytes sent are right. A program that
    computes nothing has no such cause."""
    wrong = [o for o in outcomes if o.results]
    causes = {cause_in(text) for o in wrong for text in o.results} - {""}
    is_whole = all(o.has_figures and not o.communication for o in wrong)
    return is_whole and len(causes) == 1 and "never written" not in causes.pop()
