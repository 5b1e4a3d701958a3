#!/usr/bin/python3
"""prebuilt_test.py: an autograder with what all submissions share. Of a submission it compiles what depends on the
student's file, and nothing else; with other packages, it takes nothing of it."""
import json
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path

root = Path(__file__).resolve().parents[2]
course = root / "chapters/course"
sys.path[:0] = [str(path) for path in (course / "gradescope", course, root / "chapters")]
import built
import exercises
import starters

ALL = exercises.read_all()
# {exercise: what its answer has compiled and linked}: one that is in a header, and one that is a file of the engine
DEPENDS = {
    "01.1": {"CMakeFiles/01_single_device.objects.dir/chapters/01_single_device/chapter.cpp.o",
             "course/solve.01_single_device"},
    "10.1": {"CMakeFiles/engine.dir/chapters/engine/checkpoints/split.cpp.o", "course/split"},
}


class Prebuilt(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="autograder")
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)
        file, cls.source = cls.folder / "week.zip", cls.folder / "source"
        made = subprocess.run([course / "gradescope/make", file, "--exercises", ",".join(DEPENDS), "--seed", "test",
                               "--built"], capture_output=True, text=True)
        if "this user make them" in made.stderr:
            print(made.stderr, file=sys.stderr)
            sys.exit(69)
        assert made.returncode == 0, made.stderr
        with zipfile.ZipFile(file) as archive:
            archive.extractall(cls.source)
        built.unpack(cls.source / built.ARCHIVE, cls.folder)

    def outputs(self):
        """What ninja has compiled and linked so far, one after the other."""
        lines = (self.folder / "work/tree/build/.ninja_log").read_text().splitlines()
        names = [line.split("\t")[3] for line in lines if "\t" in line]
        return [name for name in names if not name.endswith("cmake.verify_globs")]

    def test_it_compiles_what_depends_on_the_students_file(self):
        for i, expected in DEPENDS.items():
            exercise, hand_in = ALL[i], self.folder / f"hand in {i}"
            starters.write(hand_in, {i: exercise}, None)
            for hole in exercise.holes:
                path = hand_in / "chapters" / hole.file
                path.write_text(hole.filled(path.read_text(), f" // mine\n{exercises.solution(hole)}"))
            before = self.outputs()
            words = ["--work", "/autograder/work", "--exercises", i, "--seed", "test", "--json", "/autograder/out.json"]
            job = subprocess.run([*built.as_autograder(self.folder), sys.executable,
                                  "/autograder/source/chapters/course/grade", *words, f"/autograder/{hand_in.name}"],
                                 capture_output=True, text=True)
            self.assertEqual(job.returncode, 0, job.stderr)
            self.assertEqual(json.loads((self.folder / "out.json").read_text())["score"], exercise.points, job.stdout)
            made = self.outputs()
            self.assertEqual(made[:len(before)], before)
            self.assertEqual(set(made[len(before):]), expected)

    def test_with_other_packages_it_is_left(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / built.MADE_WITH).write_text(built.system().replace("g++ ", "g++ 1:"))
            with tarfile.open(Path(folder, built.ARCHIVE), "w:gz") as archive:
                archive.add(Path(folder, built.MADE_WITH), f"{built.FOLDER}/{built.MADE_WITH}")
            job = subprocess.run([sys.executable, "-c", "import sys, built; built.unpack(*sys.argv[1:])",
                                  Path(folder, built.ARCHIVE), folder], capture_output=True, text=True,
                                 env={"PYTHONPATH": f"{course}/gradescope:{root}/chapters", "PATH": "/usr/bin:/bin"})
            self.assertIn("such as g++ ", job.stderr)
            self.assertFalse(Path(folder, built.FOLDER).exists())


unittest.main()
