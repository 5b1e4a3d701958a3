#!/usr/bin/python3
"""graded_test.py BUILD: submissions that are graded as an instructor does it. What is built for it stays in
BUILD/course-test."""
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

root = Path(__file__).resolve().parents[2]
work = Path(sys.argv.pop(1)).resolve() / "course-test"
course = root / "chapters/course"
RING, ENGINE = "chapters/00_collectives/ring.hpp", "chapters/03_tensor_parallel/tensor_parallel.hpp"
SPLIT = "chapters/engine/checkpoints/split.cpp"
ASKED = "00.1,03.1,03.2,10.1"


class Graded(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="submissions ")
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)
        subprocess.run([course / "make", cls.folder / "untouched", "--exercises", ASKED], check=True,
                       stdout=subprocess.DEVNULL)
        cls.submission("solved", lambda file, text: text)
        cls.submission("one mistake", lambda file, text: text.replace(
            "Sharded<1> dz = relu_backward(std::move(dh), h);", "Sharded<1> dz = std::move(dh);"))
        cls.submission("waits", lambda file, text: text.replace(
            "x = all_reduce(std::move(out));  // (B, D)     P → R: the one",
            "if (device_id() == 0) group().receive(1);\n      x = all_reduce(std::move(out));  // "))
        cls.submission("does not compile", lambda file, text: text.replace(
            "arrived(step, coming);", "arrive(step);"))
        cls.submission("gathers", lambda file, text: text.replace(
            "Sharded<1> h = relu(matmul(x, block.w0));", "all_gather(block.w0);\n      Sharded<1> h = "
            "relu(matmul(x, block.w0));"))
        cls.submission("a brace too few", lambda file, text: text.replace(
            "Sharded<1> h = relu(matmul(x, block.w0));", "if (true) {\n Sharded<1> h = relu(matmul(x, block.w0));"))
        forward = "Placed forward(Tensor input) override {"
        cls.submission("adds", lambda file, text: text.replace(
            "#pragma once", "#pragma once\n#include <numeric>").replace(
            "  /// ## Forward\n", "  static int twice(int i) { return std::midpoint(3 * i, i); }\n").replace(
            forward, "Placed forward( Tensor input )\n override {\n  if (twice(2) != 4) throw 1;"))
        cls.submission("adds what does not compile", lambda file, text: text.replace(
            "  /// ## Forward\n", "  int twice(int i) { return j; }\n").replace(
            forward, f"{forward}\n  twice(2);"))
        cls.submission("copies", lambda file, text: text.replace("kept.push_back({std::move(x), std::move(h)});",
                                                                 "std::vector<Replicated> xs; xs.push_back(x);"))
        shutil.move(cls.folder / "adds", cls.folder / "inner")
        shutil.copytree(cls.folder / "inner", cls.folder / "adds/week 3/inner")
        (cls.folder / "handed in nothing").mkdir()
        cls.job = subprocess.run(
            [course / "grade", "--exercises", ASKED, "--seed", "test", "--work", work, "--csv",
             cls.folder / "all.csv", "--json", cls.folder / "%s.json", "--junit", cls.folder / "%s.xml",
             *(cls.folder / name for name in cls.names())], capture_output=True, text=True)
        if cls.job.returncode == 69:  # this machine allows no sandbox
            print(cls.job.stderr, end="", file=sys.stderr)
            os._exit(69)
        if cls.job.returncode == 0:
            rows = list(csv.DictReader((cls.folder / "all.csv").read_text().splitlines()))
            cls.points = {row["submission"]: [float(row[e]) for e in ASKED.split(",")] for row in rows}

    @staticmethod
    def names():
        return ["untouched", "solved", "one mistake", "waits", "does not compile", "gathers", "a brace too few",
                "handed in nothing", "adds", "adds what does not compile", "copies"]

    @classmethod
    def submission(cls, name, change):
        """The starter with changed solutions."""
        shutil.copytree(cls.folder / "untouched", cls.folder / name)
        for file in (RING, ENGINE, SPLIT):
            (cls.folder / name / file).write_text(change(file, (root / file).read_text()))

    def why(self, name):
        content = json.loads((self.folder / f"{name}.json").read_text())
        return "\n".join(test["output"] for test in content["tests"])

    def test_all_are_graded(self):
        self.assertEqual(self.job.returncode, 0, self.job.stderr)
        self.assertEqual(sorted(self.points), sorted(self.names()))
        for name in self.names():
            self.assertTrue((self.folder / f"{name}.xml").exists())

    def test_a_solution_has_all_points(self):
        self.assertEqual(self.points["solved"], [8, 8, 10, 6], self.why("solved"))

    def test_a_hole_has_none(self):
        self.assertEqual(self.points["untouched"], [0, 0, 0, 0])
        self.assertIn("exercise 03.1 is not done yet", self.why("untouched"))

    def test_a_mistake_costs_its_exercise_alone(self):
        ring, forward, backward, split = self.points["one mistake"]
        self.assertEqual((ring, forward, split), (8, 8, 6))
        self.assertEqual(backward, 5)  # the points for communication and memory
        self.assertRegex(self.why("one mistake"), r"layer_0/weights on device \d at \(\d+, \d+\): expected .*, "
                                                  r"given .*: a ReLU's mask forgotten\?")

    def test_devices_that_wait(self):
        self.assertEqual([self.points["waits"][i] for i in (0, 2)], [8, 10])
        self.assertIn("deadlock", self.why("waits"))
        self.assertIn("tensor_parallel.hpp:", self.why("waits"))

    def test_what_does_not_compile(self):
        self.assertEqual(self.points["does not compile"], [0, 8, 10, 6])
        self.assertIn("‘arrive’ was not declared in this scope", self.why("does not compile"))
        self.assertIn("only functions and includes that are added are taken", self.why("does not compile"))

    def test_what_is_none_costs_its_own_points_alone(self):
        self.assertEqual(self.points["a brace too few"], [8, 0, 10, 6])
        self.assertIn(f"{ENGINE}: expected a closing brace", self.why("a brace too few"))
        self.assertEqual(self.points["handed in nothing"], [0, 0, 0, 0])
        self.assertIn("expected your repository, with the folder chapters/ in it", self.why("handed in nothing"))

    def test_what_is_added_is_taken(self):
        self.assertEqual(self.points["adds"], [8, 8, 10, 6], self.why("adds"))
        self.assertEqual(self.points["adds what does not compile"], [8, 0, 10, 6])
        self.assertIn("‘twice’ was not declared in this scope", self.why("adds what does not compile"))

    def test_what_copies_is_said_in_our_words(self):
        self.assertEqual(self.points["copies"], [8, 0, 10, 6])
        self.assertRegex(self.why("copies"), r"it does not compile: a Replicated is not copied: write std::move\(x\), "
                                             r"or x.clone\(\) of a Tensor \(.*\) \(at `std::vector<Replicated> xs; xs.p")

    def test_what_sends_more(self):
        forward = self.points["gathers"][1]
        self.assertTrue(0 < forward < 8, forward)
        self.assertRegex(self.why("gathers"), r"device 0 sent [\d,]+ bytes; the closed form says [\d,]+")

    def test_no_solution_is_told(self):
        secret = "Partial out = matmul(h, block.w1)"
        for name in self.names():
            self.assertNotIn(secret, self.why(name))
        self.assertNotIn(secret, self.job.stdout)

    def test_nothing_is_left(self):
        self.assertEqual(sorted(p.name for p in work.iterdir()), ["lock", "scratch", "staff", "tree"])
        self.assertEqual(list((work / "scratch").iterdir()), [])


unittest.main()
