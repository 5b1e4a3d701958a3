"""What the grader and ./check say of answers: both build the same sources once."""
import subprocess, sys, tempfile
from pathlib import Path

import exercises, setup, starters, trees
from grading import Grader, all_right, parts_of, tests_of
from judge import Outcome, place_of, read_device
from problems import Asked

RUN = """
import runpy, sys
from pathlib import Path
starter, tree, wanted = sys.argv[1:]
sys.argv[0] = starter + "/check"
sys.path.insert(0, starter + "/chapters")
import setup
setup.main = lambda *_: None
check = runpy.run_path(starter + "/check")
told = check["check"].__globals__
told["here"] = Path(tree)
sys.exit(0 if check["check"](next(e for e in told["EXERCISES"] if e["id"] == wanted), is_alone=True) else 86)
"""


class Both:
    """Grades answers to some exercises, and checks them as a student does. Ends what it has made with the `with`."""
    def __init__(self, some, work, seeds):
        work.mkdir(parents=True, exist_ok=True)
        self.some, self.tree = some, trees.Tree(work, "namespaces")
        self.graders = [Grader(self.tree, some, seed) for seed in seeds]

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.starter = Path(self.folder.name, "starter")
        starters.write(self.starter, self.some, None)
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def verdicts(self, answers, until_wrong=False):
        """{exercise: (what ./check says if it is red, or nothing; the parts by each seed)} of answers that are built
        together. `until_wrong`: of an answer, no test is run after one that loses points."""
        refused = self.graders[0].build(answers)
        built = [self.some[i] for i in answers if i not in refused]
        self.tree.make([], targets=sorted({e.chapter for e in built} | {e.beats.split()[0] for e in built if e.beats}))
        return {i: (refused.get(i) or self.check(i), [self.parts(grader, i, refused.get(i), until_wrong) for grader in self.graders])
                for i in answers}

    def parts(self, grader, exercise, refused, until_wrong):
        e, outcomes = self.some[exercise], None
        if not refused and until_wrong:
            outcomes = []
            for asked in grader.asked[exercise]:
                is_wrong = outcomes and not all_right(outcomes)
                outcomes.append(Outcome(results=["not run"]) if is_wrong else grader.outcome(asked))
        elif not refused:
            outcomes = grader.outcomes(e)
        return parts_of(e, grader.asked[exercise], outcomes, refused)

    def lucky(self, exercise, seeds):
        """The seeds with which the answer that was built has full points. Of each seed, tests are run until one loses
        some; the test that lost the last seed's goes first."""
        e, first, found = self.some[exercise], 0, []
        for seed in seeds:
            tests = tests_of(e, seed)
            order = sorted(range(len(tests)), key=lambda i: (i != first, i))
            lost = next((i for i in order if self.loses(e, tests[i])), None)
            first = first if lost is None else lost
            found += [seed] * (lost is None)
        return found

    def loses(self, e, test):
        """Whether the answer that was built loses a point by a test. Results are compared first: that needs no program of
        the staff, and no likely cause."""
        grader, asked = self.graders[0], Asked(test, e.chapter, e.beats, bool(e.figures))
        if asked.problem and test.kind != "large":
            with grader.scratch() as folder:
                ended, _ = grader.run(asked, self.tree.program(asked.program), folder)
                if ended.code or ended.broke or differs(asked, folder / "out"):
                    return True
        outcome = grader.judged(asked)
        return bool(outcome.results or any(getattr(outcome, kind) and e.weights.get(kind)
                                           for kind in ("communication", "memory")))

    def check(self, exercise):
        job = subprocess.run([sys.executable, "-c", RUN, self.starter, self.tree.folder, exercise],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return job.stdout or "?" if job.returncode else ""


def differs(asked, folder):
    """Whether an element of a result is not the expected one."""
    for device in [read_device(folder, device) for device in range(asked.test.devices)]:
        for name, t in device.tensors.items():
            want, bound = asked.expected.get(name), asked.bounds.get(name)
            here = None if want is None else place_of(device.begin.get(name), t.values, want)
            if here and not (abs(t.values - want[here]) <= bound[here]).all():
                return True
    return False
