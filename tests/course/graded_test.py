#!/usr/bin/python3
"""graded_test.py BUILD: submissions that are graded as an instructor does it. What is built for it stays in
BUILD/course-test."""
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

root = Path(__file__).resolve().parents[2]
if len(sys.argv) < 2 or not Path(sys.argv[1]).is_dir():
    sys.exit(__doc__)
work = Path(sys.argv.pop(1)).resolve() / "course-test"
course = root / "chapters/course"
ASKED = ["00.1", "03.1", "03.2", "10.1"]
ENGINE = "chapters/03_tensor_parallel/tensor_parallel.hpp"
FILES = ("chapters/00_collectives/ring.hpp", ENGINE, "chapters/engine/checkpoints/split.cpp")
FIRST_LINE, HIDDEN = "  Placed forward(Tensor input) override {", "Sharded<1> h = relu(matmul(x, block.w0));"

# {name: (what is written instead of what in the solutions, the points of the exercises asked, what is said)}
SUBMISSIONS = {
    "solved": ({}, [8, 8, 10, 6], ""),
    # A mistake costs its exercise alone; the points for communication and memory stay.
    "one mistake": ({"Sharded<1> dz = relu_backward(std::move(dh), h);": "Sharded<1> dz = std::move(dh);"},
                    [8, 8, 5, 6],
                    r"layer_0/weights on device \d at \(\d+, \d+\): expected .*: a ReLU's mask forgotten\?"),
    "waits": ({HIDDEN: f"if (device_id() == 0) group().receive(1);\n{HIDDEN}"}, [8, 0, 10, 6],
              r"(?s)deadlock.*tensor_parallel\.hpp:"),
    "does not compile": ({"arrived(step, coming);": "arrive(step);"}, [0, 8, 10, 6],
                         "‘arrive’ was not declared in this scope.*only functions and includes that are added"),
    "gathers": ({HIDDEN: f"all_gather(block.w0);\n{HIDDEN}"}, [8, 4, 10, 6],
                r"device 0 sent [\d,]+ bytes; the closed form says [\d,]+"),
    "a brace too few": ({HIDDEN: "if (true) {\n" + HIDDEN}, [8, 0, 10, 6],
                        f"{ENGINE}: expected a closing brace"),
    "adds": ({"#pragma once": "#pragma once\n#include <numeric>",
              "  /// ## Forward\n": "  static int twice(int i) { return std::midpoint(3 * i, i); }\n",
              FIRST_LINE: "Placed forward( Tensor input )\n override {\n  if (twice(2) != 4) throw 1;"},
             [8, 8, 10, 6], ""),
    "adds what does not compile": ({"  /// ## Forward\n": "  int twice(int i) { return j; }\n",
                                    FIRST_LINE: f"{FIRST_LINE}\n  twice(2);"},
                                   [8, 0, 10, 6], "‘twice’ was not declared in this scope"),
    "copies": ({"kept.push_back({std::move(x), std::move(h)});":
                "std::vector<Replicated> xs; xs.push_back(x);"},
               [8, 0, 10, 6],
               r"it does not compile: a Replicated is not copied: write std::move\(x\), or x.clone\(\) of a "
               r"Tensor \(.*\) \(at `std::vector<Replicated> xs; xs.p"),
    "untouched": (None, [0, 0, 0, 0], "exercise 03.1 is not done yet"),
    "nothing": (None, [0, 0, 0, 0], "expected your repository, with the folder chapters/ in it"),
}


class Graded(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="submissions ")
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)
        starter = cls.folder / "untouched"
        subprocess.run([course / "make", starter, "--exercises", ",".join(ASKED)], check=True,
                       stdout=subprocess.DEVNULL)
        (cls.folder / "nothing").mkdir()
        for name, (changes, _, _) in SUBMISSIONS.items():
            if changes is None:
                continue
            place = cls.folder / name / ("week 3/inner" if name == "adds" else "")
            shutil.copytree(starter, place)
            texts = {file: (root / file).read_text() for file in FILES}
            for old, new in changes.items():
                assert any(old in text for text in texts.values()), old
                texts = {file: text.replace(old, new) for file, text in texts.items()}
            for file, text in texts.items():
                (place / file).write_text(text)
        cls.job = subprocess.run(
            [course / "grade", "--exercises", ",".join(ASKED), "--seed", "test", "--work", work,
             "--csv", cls.folder / "all.csv", "--json", cls.folder / "%s.json",
             *(cls.folder / name for name in SUBMISSIONS)], capture_output=True, text=True)
        if cls.job.returncode == 69:  # this machine allows no sandbox
            print(cls.job.stderr, end="", file=sys.stderr)
            os._exit(69)

    def why(self, name):
        content = json.loads((self.folder / f"{name}.json").read_text())
        return "\n".join(test["output"] for test in content["tests"])

    def test_points_and_reasons(self):
        self.assertEqual(self.job.returncode, 0, self.job.stderr)
        with open(self.folder / "all.csv", newline="") as table:
            rows = {row["submission"]: [float(row[e]) for e in ASKED] for row in csv.DictReader(table)}
        self.assertEqual(sorted(rows), sorted(SUBMISSIONS))
        for name, (_, points, said) in SUBMISSIONS.items():
            with self.subTest(name):
                self.assertEqual(rows[name], points, self.why(name))
                self.assertTrue(re.search(said, self.why(name)), self.why(name))

    def test_no_solution_is_told(self):
        secret = "Partial out = matmul(h, block.w1)"
        for text in (self.job.stdout, *map(self.why, SUBMISSIONS)):
            self.assertNotIn(secret, text)

    def test_a_talk_is_on_the_students_own_program(self):
        def talk(exercise, name):
            job = subprocess.run([course / "oral", "--exercises", exercise, "--work", work, "--student", "17",
                                  self.folder / name], capture_output=True, text=True)
            return job.returncode, job.stdout, job.stderr.removeprefix(f"error: {self.folder / name}: ")
        code, text, _ = talk("03.1", "adds")  # whose function stands two lines below that of the project
        line = next(i for i, line in enumerate((self.folder / "adds/week 3/inner" / ENGINE).read_text().split("\n"), 1)
                    if "x = all_reduce(" in line)
        self.assertEqual(code, 0)
        self.assertIn(f"1. Look at line {line} of {ENGINE}, `x = all_reduce(std::move(out));`", text)
        code, text, _ = talk("03.1", "waits")
        self.assertEqual(code, 0)
        self.assertIn("it ended with code 82, deadlock: ", text)
        self.assertEqual(talk("03.1", "untouched"), (65, "", "03.1: it is not done yet\n"))
        self.files_are_filled(*talk("10.1", "solved"))
        self.assertIn("03.1: it does not compile: ", talk("03.1", "adds what does not compile")[2])

    def files_are_filled(self, code, text, said):
        """The questions on exercise 10.1, whose runs have no record, with their answers."""
        self.assertEqual((code, said), (0, ""))
        most = int(re.search(r"`most` = (\d+) bytes", text)[1])
        sizes = list(map(int, re.findall(r" t\d+ (\d+)", text)))
        files, open_file, used = [], [], 0
        for tensor, size in enumerate(sizes):
            if size > most:
                files.append([tensor])
                continue
            if used + size > most:
                files.append(open_file)
                open_file, used = [], 0
            open_file.append(tensor)
            used += size
        files = [" ".join(f"t{tensor}" for tensor in file) for file in [*files, open_file]]
        number, count, answer = re.search(r"Which tensors has file (\d+) of (\d+)\?\n\n +\*(.*)\.\*", text).groups()
        self.assertEqual((answer, int(count)), (files[int(number) - 1], len(files)))
        first, begin, used, more = map(int, re.search(r"Why is t(\d+) not in the file that begins with t(\d+)\?\n\n +\*That file "
                                                      r"has (\d+) bytes. With t\d+ it would have (\d+),", text).groups())
        self.assertEqual(used + sizes[first], more)
        self.assertGreater(more, most)
        self.assertEqual(sum(sizes[int(t[1:])] for t in next(f for f in files if f.split()[0] == f"t{begin}").split()), used)
        self.assertRegex(text, rf"With `most` = {more}, which is the first file that has other tensors, and which has it then\?")

    def test_nothing_is_left(self):
        self.assertEqual(sorted(p.name for p in work.iterdir()), ["lock", "scratch", "staff", "tree"])
        self.assertEqual(list((work / "scratch").iterdir()), [])


unittest.main()
