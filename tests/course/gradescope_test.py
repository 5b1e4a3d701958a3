#!/usr/bin/python3
"""gradescope_test.py: the scripts around the grader. The zip file for Gradescope and the job for Slurm, with a grader
that only pretends to grade; the fields of results.json in Gradescope's documentation; the packages of the
Containerfile; the exercises of the term's plan."""
import ast
import contextlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

root = Path(__file__).resolve().parents[2]
course = root / "chapters/course"
sys.path[:0] = [str(course / "grading"), str(course), str(root / "chapters")]
import exercises
import setup

# https://gradescope-autograders.readthedocs.io/en/latest/specs/#output-format
VISIBILITY = ("hidden", "after_due_date", "after_published", "visible")
FORMATS = ("text", "html", "simple_format", "md", "ansi")
NUMBER, TEXT, TABLE = (int, float), str, dict
TOP = {"score": NUMBER, "execution_time": NUMBER, "output": TEXT, "output_format": FORMATS,
       "test_output_format": FORMATS, "test_name_format": FORMATS, "visibility": VISIBILITY,
       "stdout_visibility": VISIBILITY, "extra_data": TABLE, "tests": list, "leaderboard": list}
TEST = {"score": NUMBER, "max_score": NUMBER, "status": ("passed", "failed"), "name": TEXT,
        "name_format": FORMATS, "number": TEXT, "output": TEXT, "output_format": FORMATS, "tags": list,
        "visibility": VISIBILITY, "extra_data": TABLE}
ENTRY = {"name": TEXT, "value": (int, float, str), "order": ("asc", "desc")}


def errors_of(content):
    """Yields each violation of Gradescope's documentation in a results.json."""
    yield from fields(content, TOP, "results.json")
    if "score" not in content and not any("score" in test for test in content.get("tests", [])):
        yield "results.json: expected a score, at the top or of each test"
    for kind, allowed in (("tests", TEST), ("leaderboard", ENTRY)):
        for i, entry in enumerate(content.get(kind, [])):
            yield from fields(entry, allowed, f"{kind}[{i}]")
            if not all(isinstance(tag, str) for tag in entry.get("tags", [])):
                yield f"{kind}[{i}]: tags: expected texts"


def fields(given, allowed, where):
    for name, value in given.items():
        kind = allowed.get(name)
        if kind is None:
            yield f"{where}: {name}: expected a field of the documentation"
        elif isinstance(kind, tuple) and isinstance(kind[0], str):
            if value not in kind:
                yield f"{where}: {name}: expected one of {', '.join(kind)}, given {value}"
        elif not isinstance(value, kind) or isinstance(value, bool):
            yield f"{where}: {name}: given {value!r}"


class Results(unittest.TestCase):
    def test_the_validator_finds_what_is_wrong(self):
        good = {"score": 1, "tests": [{"score": 1, "status": "passed", "tags": ["a"]}], "visibility": "visible"}
        self.assertEqual(list(errors_of(good)), [])
        for bad in ({"tests": []}, good | {"score": "1"}, good | {"score": True}, good | {"visibility": "never"},
                    good | {"points": 1}, good | {"output_format": "markdown"},
                    good | {"tests": [{"status": "ok"}]}, good | {"tests": [{"tags": [1]}]},
                    good | {"leaderboard": [{"name": "a", "order": "dsc"}]}):
            self.assertEqual(len(list(errors_of(bad))), 1, bad)

    def test_what_the_grader_writes_is_as_documented(self):
        try:
            import results
            from grading import Graded, Part
        except ImportError as missing:
            self.skipTest(f"missing: {missing.name}")
        parts = [Part("03.1", "2 infer", "public", 2, 2), Part("03.1", "3 train", "hidden", 4, 0, ["No."]),
                 Part("03.1", "communication", "communication", 2, 2)]
        graded = Graded("one", parts, {"03.1": {"kernel_bytes": 5, "kernel_held": 7, "time_ratio": 1.25}}, 12.5)
        with tempfile.TemporaryDirectory() as folder:
            results.write_json(graded, Path(folder, "results.json"))
            content = json.loads(Path(folder, "results.json").read_text())
        self.assertEqual(list(errors_of(content)), [])
        self.assertEqual((content["score"], content["execution_time"]), (4, 12.5))
        self.assertEqual([(test["score"], test["visibility"]) for test in content["tests"]],
                         [(2, "visible"), (0, "after_published"), (2, "visible")])
        self.assertEqual([entry["value"] for entry in content["leaderboard"]], [4, 5, 7, 1.25])


# ---- The zip ---------------------------------------------------------------------------------------------
# Prints its arguments, and acts as its submission demands.
GRADER = '''#!/usr/bin/python3
import json, os, sys
from pathlib import Path
words, folder = sys.argv[1:], Path(sys.argv[-1])
file = Path(words[words.index("--json") + 1].replace("%s", folder.name))
with open(os.environ["AUTOGRADER"] + "/called", "a") as log:
    log.write(json.dumps([words, os.listdir(folder), Path("/proc/self/cmdline").read_text()]) + "\\n")
wanted = folder / "wanted"
if wanted.exists() and wanted.read_text() == "half":
    file.write_text('{"score": 5, ')
elif wanted.exists() and wanted.read_text() == "failure":
    sys.exit(70)
else:
    score = 0 if os.environ.get("LOSES") else 8
    tests = [{"name": "03.1 infer", "score": score, "max_score": 8}]
    file.write_text(json.dumps({"score": score, "tests": tests}))
'''


class Gradescope(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.scratch.name, "autograder")
        cls.zip = Path(cls.scratch.name, "autograder.zip")
        cls.made = cls.make(cls.zip, "--exercises", "03.1,01")
        for name in ("source", "submission", "results", "bin"):
            (cls.folder / name).mkdir(parents=True)
        if cls.made[0] == 0:
            with zipfile.ZipFile(cls.zip) as archive:
                archive.extractall(cls.folder / "source")  # without executable bits
            (cls.folder / "source/chapters/course/grade").write_text(GRADER)
            # The steps of Gradescope.
            shutil.copy(cls.folder / "source/run_autograder", cls.folder)
            (cls.folder / "run_autograder").chmod(0o755)
            # This test creates no user on its machine.
            for name, text in (("id", "exit 1"), ("useradd", 'echo "$@" > "$AUTOGRADER/user"')):
                (cls.folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
                (cls.folder / "bin" / name).chmod(0o755)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def setUp(self):
        if self.made[0]:
            self.skipTest(f"no clone made by git: {self.made[2]}")

    @staticmethod
    def make(*words):
        job = subprocess.run([course / "gradescope/make", *words], capture_output=True, text=True)
        return job.returncode, job.stdout, job.stderr

    def run_in(self, *words, **environment):
        """Runs a script of the zip file. It writes the grader's arguments into `called`."""
        (self.folder / "called").unlink(missing_ok=True)
        job = subprocess.run(words, capture_output=True, text=True, cwd=self.folder, env={
            **os.environ, "AUTOGRADER": str(self.folder), **environment,
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}"})
        self.called = []
        with contextlib.suppress(FileNotFoundError):
            self.called = [json.loads(line) for line in (self.folder / "called").read_text().splitlines()]
        return job.returncode, job.stdout + job.stderr

    def graded(self, files):
        """The results of a submission with these files, {name: text}."""
        for name in ("submission", "results"):
            shutil.rmtree(self.folder / name)
            (self.folder / name).mkdir()
        for name, text in files.items():
            path = self.folder / "submission" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.assertEqual(self.run_in(self.folder / "run_autograder")[0], 0)
        content = json.loads((self.folder / "results/results.json").read_text())
        self.assertEqual(list(errors_of(content)), [])
        return content

    def test_a_zip_has_the_project_and_an_assignment(self):
        with zipfile.ZipFile(self.zip) as archive:
            names = archive.namelist()
            assignment = json.loads(archive.read("assignment.json"))
            modes = {name: archive.getinfo(name).external_attr >> 16 for name in ("setup.sh", "run_autograder")}
        self.assertEqual(len(names), len(set(names)))
        for name in ("setup.sh", "run_autograder", "chapters/course/grade", "CMakeLists.txt"):
            self.assertIn(name, names)
        self.assertFalse([name for name in names if name.startswith((".git/", "build"))])
        self.assertTrue(all(mode & stat.S_IXUSR for mode in modes.values()))
        self.assertEqual(assignment["exercises"], ["01.1", "01.2", "03.1"])
        self.assertRegex(assignment["seed"], "^[0-9a-f]{16}$")
        some = exercises.chosen(exercises.read_all(), "03.1,01")
        points = sum(e.points for e in some.values())
        self.assertEqual(self.made[1], f"{self.zip}: 3 exercises, {points} points, seed {assignment['seed']}\n")

    def test_a_seed_is_drawn_anew_unless_it_is_given(self):
        with tempfile.TemporaryDirectory() as folder:
            seeds = []
            for name, words in (("a", ()), ("b", ()), ("c", ("--seed", "word"))):
                self.make(f"{folder}/{name}.zip", "--exercises", "01", *words)
                with zipfile.ZipFile(f"{folder}/{name}.zip") as archive:
                    seeds.append(json.loads(archive.read("assignment.json"))["seed"])
        self.assertEqual(len(set(seeds)), 3)
        self.assertEqual(seeds[2], "word")

    def test_wrong_words(self):
        for word, code, said in (
                ("out", 64, "make: expected a file that ends in .zip, given out (--help lists the options)"),
                (self.zip, 65, f"{self.zip}: expected a file that is new, given one that exists")):
            self.assertEqual(self.make(word), (code, "", f"error: {said}\n"))

    def test_setup_makes_a_user_and_grades_the_solutions(self):
        (self.folder / "submission_metadata.json").write_text("{}")
        self.assertEqual(self.run_in("bash", self.folder / "source/setup.sh"), (0, ""))
        self.assertIn("student", (self.folder / "user").read_text())
        [(words, _, _)] = self.called
        self.assertEqual(Path(words[-1]), self.folder / "source")
        modes = {name: stat.S_IMODE((self.folder / name).stat().st_mode)
                 for name in ("source", "submission", "results", "submission_metadata.json", "work", ".")}
        self.assertEqual(modes, {"source": 0o700, "submission": 0o700, "results": 0o700,
                                 "submission_metadata.json": 0o700, "work": 0o755, ".": 0o755})
        self.assertTrue(os.access(self.folder / "source/chapters/on_devices", os.X_OK))
        self.assertFalse((self.folder / "results/graded.json").exists())

    def test_setup_fails_where_solutions_lose_points(self):
        code, said = self.run_in("bash", self.folder / "source/setup.sh", LOSES="1")
        self.assertEqual(code, 70)
        self.assertIn("the solutions earn all points in this image, given points lost for 03.1 infer", said)

    def test_what_was_handed_in_is_graded(self):
        self.assertEqual(self.graded({"chapters/x": ""})["score"], 8)
        [(words, inside, command)] = self.called
        self.assertIn("chapters", inside)
        given = dict(zip(words[::2], words[1::2]))
        assignment = json.loads((self.folder / "source/assignment.json").read_text())
        self.assertEqual((given["--sandbox"], given["--seed"], given["--exercises"], given["--work"]),
                         ("user", assignment["seed"], "01.1,01.2,03.1", str(self.folder / "work")))
        # Every user of the machine can read command lines.
        self.assertNotIn(assignment["seed"], command)

    def test_a_grader_that_fails_is_said(self):
        for wanted, said in (("failure", "The grader failed with code 70. "), ("half", "The grader failed. ")):
            content = self.graded({"chapters/x": "", "wanted": wanted})
            self.assertEqual((content["score"], content["visibility"]), (0, "visible"))
            self.assertTrue(content["output"].startswith(said), content["output"])
            self.assertIn("Please tell your instructor", content["output"])

    def test_a_grader_that_is_missing_is_said(self):
        assignment = self.folder / "source/assignment.json"
        text = assignment.read_text()
        assignment.unlink()
        try:
            self.assertIn("The grader failed.", self.graded({"chapters/x": ""})["output"])
        finally:
            assignment.write_text(text)


# ---- A cluster -------------------------------------------------------------------------------------------
class Slurm(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        for name in ("submissions/a", "submissions/b", "submissions/c", "chapters/course"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "chapters/course/grade").write_text(GRADER)
        (self.folder / "chapters/course/grade").chmod(0o755)

    def task(self, number, *words, count=2):
        """The grader's arguments in a task of an array job, started as by Slurm."""
        folder = str(self.folder)
        of_slurm = {"SLURM_SUBMIT_DIR": folder, "SLURM_ARRAY_TASK_ID": str(number), "SLURM_ARRAY_TASK_MIN": "1",
                    "SLURM_ARRAY_TASK_COUNT": str(count)}
        job = subprocess.run(["bash", course / "grading/slurm.sh", *words], capture_output=True, text=True, cwd=folder,
                             env={**os.environ, **of_slurm, "AUTOGRADER": folder, "TMPDIR": folder})
        log = self.folder / "called"
        called = [json.loads(line)[0] for line in log.read_text().splitlines()] if log.exists() else []
        log.unlink(missing_ok=True)
        return job.returncode, job.stderr, called

    def test_each_submission_is_graded_once(self):
        words = ("submissions", "out", "word", "--exercises", "03")
        graded = []
        for number in (1, 2):
            code, said, [called] = self.task(number, *words)
            self.assertEqual((code, said), (0, ""))
            graded += [Path(word).name for word in called if "submissions" in word]
            given = dict(zip(called[::2], called[1::2]))
            self.assertEqual((given["--seed"], given["--exercises"], given["--json"], given["--into"]),
                             ("word", "03", "out/%s.json", f"out/table-{number - 1}.csv"))
            self.assertFalse(Path(given["--work"]).exists())
        self.assertEqual(sorted(graded), ["a", "b", "c"])
        self.assertEqual(self.task(4, *words, count=4), (0, "", []))  # more tasks than submissions

    def test_wrong_words(self):
        self.assertEqual(self.task(1, "nowhere", "out", "word")[0], 64)
        self.assertEqual(self.task(1, "submissions")[0], 64)


# ---- Gradebooks ------------------------------------------------------------------------------------------
class Gradebook(unittest.TestCase):
    CANVAS = ("Student,ID,SIS User ID,SIS Login ID,Section,Week 3 (47),Other\n    Points Possible,,,,,10,5\n"
              '"Lovelace, Ada",1,u1,ada,A,,2\n"Doe, Bob",2,u2,bob,A,1,\nFay,3,u3,fay,A,2,\n')
    POINTS = "submission,student,SIS Login ID,points,maximum\nada-1,Ada,ada,8,10\nbob-2,\"Doe, Bob\",,7.5,10\ncem,cem,,3,9\n"

    def filled(self, points, export, column="Week 3 (47)"):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("points.csv", points), ("export.csv", export)):
                Path(folder, name).write_text(text)
            job = subprocess.run([course / "gradebook", "points.csv", "export.csv", column, "out.csv"], cwd=folder,
                                 capture_output=True, text=True)
            out = Path(folder, "out.csv")
            return job.returncode, job.stderr, out.read_text() if out.exists() else ""

    def test_a_column_is_filled(self):
        code, said, text = self.filled(self.POINTS, self.CANVAS)
        self.assertEqual((code, said), (0, "export.csv: no row for cem\npoints.csv: nothing for Fay\n"))
        self.assertEqual(text.splitlines(), ["Student,ID,SIS User ID,SIS Login ID,Section,Week 3 (47)",
                                             "    Points Possible,,,,,10", '"Lovelace, Ada",1,u1,ada,A,8',
                                             '"Doe, Bob",2,u2,bob,A,7.5', "Fay,3,u3,fay,A,2"])
        moodle = "First name,Email address,Week 3 (Real)\nAda,a@x,-\n"
        self.assertEqual(self.filled("submission,Email address,points\nweek-3-ada,a@x,4\n", moodle, "Week 3 (Real)"),
                         (0, "", moodle.replace("-", "4")))

    def test_what_does_not_fit(self):
        for points, export, said in ((self.POINTS, self.CANVAS.replace("Week 3", "Week 4"), "expected the column Week 3"),
                                     ("a,b\n1,2\n", self.CANVAS, "expected a table that grade wrote"),
                                     (self.POINTS, self.CANVAS.replace("bob,A", "ada,A"), "expected one row for ada-1"),
                                     ("submission,points\nx,1\n", self.CANVAS, "expected students of points.csv"),
                                     (self.POINTS, self.CANVAS + "1,2,3,4,5,6,7,8\n", "as many cells")):
            code, given, text = self.filled(points, export)
            self.assertEqual((code, text), (65, ""))
            self.assertIn(said, given.splitlines()[-1])


# ---- The term's plan -------------------------------------------------------------------------------------
class Plan(unittest.TestCase):
    def test_it_has_each_exercise_with_its_points(self):
        text = (course / "teaching.md").read_text()
        rows = re.findall(r"^\| (\d+) \|[^|]*\|([^|]*)\| (\d+|–) \|", text, re.M)
        self.assertEqual([int(week) for week, _, _ in rows], list(range(1, 11)))
        planned = {}
        for _, words, points in rows:
            of_week = {i: int(n) for i, n in re.findall(r"(\d\d\.\d) \((\d+)\)", words)}
            self.assertEqual(sum(of_week.values()), int(points.replace("–", "0")))
            planned |= of_week
        known = {i: e.points for i, e in exercises.read_all().items()}
        self.assertEqual(planned, known)
        self.assertIn(f"together have {sum(planned.values())} points", text)


    def test_hours_beside_other_courses(self):
        text, known = (course / "cs336.md").read_text(), exercises.read_all()
        rows = re.findall(r"\|((?: \d\d\.\d,?)+) \| ([\d.]+) \|$", text, re.M)
        self.assertEqual(len(rows), 9 + 4 + 5 + 4)
        for ids, hours in rows:
            minutes = sum(known[i].minutes for i in re.findall(r"\d\d\.\d", ids))
            self.assertLess(abs(minutes - 60 * float(hours)), 6, ids)
        ids, points, minutes = re.search(r"one week for all of it takes (.*?): (\d+) points, (\d+) minutes", text, re.S).groups()
        some = [known[i] for i in re.findall(r"\d\d\.\d", ids)]
        self.assertEqual([sum(e.points for e in some), sum(e.minutes for e in some)], [int(points), int(minutes)])


# ---- The container ---------------------------------------------------------------------------------------
class Container(unittest.TestCase):
    def test_packages_are_those_that_the_scripts_ask_for(self):
        text = re.sub(r"\\\n", " ", (root / "Containerfile").read_text())
        listed = re.search(r"--no-install-recommends (.*?) &&", text)[1].split()
        asked = {*setup.packages, *setup.recommended, *asked_in(root / "tests/run"), *asked_in(course / "grade")}
        # A fresh Debian with Python, and the packages for cloning this project.
        self.assertEqual(set(listed), asked | {"python3", "git", "ca-certificates"})
        self.assertEqual(len(listed), len(set(listed)))

    def test_a_user_who_is_not_root(self):
        users = re.findall(r"^USER (.*)", (root / "Containerfile").read_text(), re.M)
        self.assertEqual(users[-1:], ["reader"])


def asked_in(script):
    """The packages that a script names where it calls install_packages."""
    for call in ast.walk(ast.parse(script.read_text())):
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "install_packages":
            for word in ast.walk(call):
                if isinstance(word, ast.Constant) and word.value != "namespaces":
                    yield word.value


unittest.main()
