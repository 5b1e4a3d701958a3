#!/usr/bin/python3
"""course_test.py BUILD: holes, exercises and starter repositories. BUILD has the chapters' programs: with the
solutions in them, every public test must pass."""
import contextlib
import copy
import dataclasses
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from unittest import mock

root = Path(__file__).resolve().parents[2]
if len(sys.argv) < 2 or not Path(sys.argv[1]).is_dir():
    sys.exit(__doc__)
build = Path(sys.argv.pop(1)).resolve()
course = root / "chapters/course"
sys.path[:0] = [str(course / "grading"), str(course), str(root / "chapters")]
sys.dont_write_bytecode = True
import setup
setup.player()
import compiler
import exercises
import join
import runs
import starters
import talk
from holes import Hole, Misplaced, additions, outside, with_include
from named_tests import held_otherwise

ALL = exercises.read_all()
SCHEDULES = "engine/schedules/schedules.hpp"  # each function is another engine's


def script(path):
    """A script as a module."""
    loader = SourceFileLoader(Path(path).name, str(root / path))
    module = module_from_spec(spec_from_loader(loader.name, loader))
    with mock.patch("setup.main"):
        loader.exec_module(module)
    return module


def run(*words, **options):
    job = subprocess.run(words, capture_output=True, text=True, **options)
    return job.returncode, job.stdout, job.stderr


@contextlib.contextmanager
def refused(test, code):
    """Checks that what is done ends with this exit code. Gives what is said on standard error."""
    with test.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()) as said:
        yield said
    test.assertEqual(ended.exception.code, code)


class Holes(unittest.TestCase):
    text = '''int a() { return 1; }
/// int b() { in a comment }
int  b(int x,
       int y) {
  // }
  const char* text = "}\\"}"; char c = '}'; auto raw = R"(})"; int n = 1'000;
  if (x) { return y; } /* } */
}
int c() { return 2; }
'''

    def test_a_body_ends_where_it_does(self):
        cut = Hole("f.hpp", "int b(int x, int y)").cut(self.text, "9.1")
        self.assertEqual(re.sub(r"\s+", " ", cut), 'int a() { return 1; } /// int b() { in a comment } '
                         'int b(int x, int y) { not_done("9.1"); } int c() { return 2; } ')

    def test_a_signature_with_other_spaces(self):
        text = "int b (int x,\n std::vector< int > & y)\n{ return 1; }"
        begin, end = Hole("f.hpp", "int b(int x, std::vector<int>& y)").body(text)
        self.assertEqual(end - begin, len(" return 1; "))
        for text in ("intb(int x, std::vector<int>& y) {}", "int b(int x, std::vector<int>& z) {}"):
            with self.assertRaises(Misplaced):
                Hole("f.hpp", "int b(int x, std::vector<int>& y)").body(text)

    def test_what_stands_outside(self):
        own = "#include <a>\nint a;  // a comment\n" + self.text
        hole = Hole("f.hpp", "int b(int x, int y)")
        lines = list(outside(own, [hole]).values())
        for change, added in ((("return y;", "return x;"), []), (("int a;", "int  a ;  // another one"), []),
                              (("int a;", "int d() { return 3; }\nint a;"), [2]), (("<a>", "<b>"), None),
                              (("int c()", "int e()"), None), (("int x,\n", "int x ,"), [])):
            self.assertEqual(additions(outside(own.replace(*change), [hole]), lines), added, change)

    def test_an_include_comes_last(self):
        self.assertEqual(with_include("#pragma once\n#include <a>\n#include \"b\"\nint x;\n", "c"),
                         "#pragma once\n#include <a>\n#include \"b\"\n#include \"c\"\nint x;\n")
        self.assertEqual(with_include("", "c"), "#include \"c\"\n")  # a whole file that a student has emptied


class Compiler(unittest.TestCase):
    def test_errors_are_said_at_the_lines_that_somebody_wrote(self):
        """Messages of gcc: in a template of the library, in one of the engine, in a line, and in another file."""
        said = """/usr/include/c++/12/bits/alloc_traits.h: In instantiation of ...
/usr/include/c++/12/bits/stl_vector.h:1281:30:   required from 'constexpr void std::vector<_Tp>::push_back(...)'
/home/a b/chapters/starter/chapters/03_x/x.hpp:7:9:   required from here
/usr/include/c++/12/bits/alloc_traits.h:518:28: error: no matching function for call to \
'construct_at(shard::Sharded<0>*&, const shard::Sharded<0>&)'
../chapters/03_x/x.hpp:9:2: error: use of deleted function 'shard::Tensor::Tensor(const shard::Tensor&)'
../chapters/engine/layouts.hpp:5:1: error: of somebody else
../chapters/03_x/x.hpp:10:2: error: 'y' was not declared in this scope; did you mean 'x'?
""".replace("\\\n", "")
        found = compiler.errors_at(said, lambda file, line: file == "03_x/x.hpp")
        self.assertEqual([(line, text.split(" (")[0]) for _, line, text in found], [
            (7, "a Sharded<0> is not copied: write std::move(x), or x.clone() of a Tensor"),
            (9, "a Tensor is not copied: write std::move(x), or x.clone() of a Tensor"),
            (10, "'y' was not declared in this scope; did you mean 'x'?")])

    def test_warnings_are_said_too_also_of_functions_that_were_inlined(self):
        said = """In function 'L shard::scale(L&&, float)',
    inlined from 'shard::Gradients Engine::reduce()' at /home/chapters/03_x/x.hpp:12:41:
../chapters/engine/layouts/layouts.hpp:100:80: warning: 'factor' may be used uninitialized
../chapters/03_x/x.hpp:14:3: warning: no return statement in function returning non-void
../chapters/engine/layouts.hpp:5:1: warning: of somebody else
../chapters/03_x/x.hpp:15:2: error: 'class shard::Partial' has no member named 'local'
"""
        def found(kind):
            return [(line, text) for _, line, text in compiler.errors_at(said, lambda file, _: file == "03_x/x.hpp", kind)]
        self.assertEqual(found("warning"), [(12, "'factor' may be used uninitialized"),
                                            (14, "no return statement in function returning non-void")])
        self.assertEqual(found("error"), [(15, "a Partial is one addend of a sum: all_reduce(std::move(x)) makes the sum "
                                               "('class shard::Partial' has no member named 'local')")])


class Exercises(unittest.TestCase):
    def test_each_is_whole(self):
        for e in ALL.values():
            for file in e.files:
                text = exercises.source(file).read_text()
                cut = text
                for hole in e.holes:
                    cut = hole.cut(cut, e.id) if hole.file == file else cut
                self.assertNotEqual(cut, text)
                for hole in e.holes:
                    cut = hole.filled(cut, hole.body_in(text)) if hole.file == file else cut
                self.assertEqual(cut, text, e.id)

    def test_what_is_wrong_with_a_file_is_said(self):
        good = (course / "exercises/04_pipeline.toml").read_text()
        for old, new, said in (
                ('id = "04.1"', 'id = "05.1"', "05.1: id: expected 04.1 or another number, given 05.1"),
                ('id = "04.2"', 'id = "04.1"', "04.1: expected one exercise of this id, given two"),
                ('goal = "read and', 'aim = "read and', "04_pipeline.toml: goal: expected a text, given nothing"),
                ('goal = "write a schedule', 'gaol = "write a schedule', "04.1: goal: expected a text, given nothing"),
                ("points = 4", "points = 0", "04.1: points: expected a number above 0, given 0"),
                ("points = 4", 'points = "4"', "04.1: points: expected a number, given 4"),
                ("difficulty = 1", "difficulty = 4", "04.1: difficulty: expected 1, 2 or 3, given 4"),
                ("difficulty = 1\n", "", "04.1: difficulty: expected a number, given nothing"),
                ("minutes = 15", "minute = 15", "04.1: minutes: expected a number, given nothing"),
                ("minutes = 15", "minutes = 15\nseconds = 1",
                 "04.1: a field: expected id, name, .*, given seconds"),
                ("  \"Two loops for each device: one up, one down.\",\n", "",
                 "04.1: hints: expected 3, given 2"),
                ("inline Work gpipe(", "inline Work gpip(",
                 "schedules.hpp: expected one function .*, given 0"),
                ("engine/schedules/schedules.hpp: inline Work gpipe", "none.hpp: gpipe",
                 "04.1: a hole: expected a file of chapters/, given none.hpp"),
                ('prints."4 train', 'prints."5 train',
                 "04.1: prints: expected a test of the exercise, given 5 train"),
                ('prints."4 train', 'figures."4 train',
                 "04.1: figures: expected bytes sent, messages and bytes held, given a text"),
                ('tests = ["2 train --variant gpipe', 'tests = ["2 train --variant gpip',
                 "04.1: a test: expected a variant that 04_pipeline has, given --variant gpip"),
                ('tests = ["2 train', 'tests = ["train',
                 "04.1: a test: expected a number of devices, .* given train"),
                ("rubric = [", "rubrics = [",
                 "04.1: a question: expected a text and a rubric, given rubrics, text"),
                ("[[exercise]]", "[exercise", "04_pipeline.toml: ")):
            with self.subTest(new=new), tempfile.TemporaryDirectory() as folder:
                self.assertIn(old, good)
                Path(folder, "04_pipeline.toml").write_text(good.replace(old, new, 1))
                with refused(self, 65) as text:
                    exercises.read_all(Path(folder))
                self.assertRegex(text.getvalue(), f"^error: [^\n]*{said}[^\n]*\n$")


class Starters(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="a course ")
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch, cls.out = Path(scratch.name), Path(scratch.name) / "all"
        cls.made = run(course / "make", cls.out, "--seed", "7")

    def test_all_is_there(self):
        self.assertEqual((self.made[0], self.made[2]), (0, ""))
        for e in ALL.values():
            for hole in e.holes:
                self.assertIn(f'{{ not_done("{e.id}"); }}', (self.out / "chapters" / hole.file).read_text())
            self.assertIn(f"## {e.id} {e.name}", (self.out / "README.md").read_text())
        self.assertIn("(After exercise 04.1.) In `engine/schedules/schedules.hpp`, function `gpipe`",
                      (self.out / "chapters/04_pipeline/README.md").read_text())
        self.assertIn("`./check EXERCISE_ID`".replace("EXERCISE_ID", "00.1"), (self.out / "AGENTS.md").read_text())
        answers = (self.out / "answers.md").read_text()
        self.assertEqual([question["text"] in answers for e in ALL.values() for question in e.questions].count(False), 0)
        self.assertFalse((self.out / "chapters/course").exists() or (self.out / ".git").exists())
        self.assertEqual(sorted(p.name for p in self.scratch.iterdir() if p.name.startswith("all")), ["all"])

    def test_holes_compile(self):
        for file in sorted({hole.file for e in ALL.values() for hole in e.holes}):
            job = run("c++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-restrict",
                      "-DFMT_SHARED", "-iquote", "chapters", "-I.", "-include", f"chapters/{file}", "-x", "c++",
                      os.devnull, cwd=self.out)
            self.assertEqual(job, (0, "", ""))

    def test_a_later_chapter_is_not_there(self):
        out = self.scratch / "some"
        self.assertEqual(run(course / "make", out, "--exercises", "02.1,03")[:2],
                         (0, f"{out}: 5 exercises, 44 points, about 4 hours\nthe tests of 03.1 call 03.2, too\n"))
        self.assertEqual([p.name for p in sorted(out.glob("chapters/[0-9]*"))],
                         ["00_collectives", "01_single_device", "02_data_parallel", "03_tensor_parallel"])
        self.assertNotIn("not_done", (out / "chapters/01_single_device/single_device.hpp").read_text())

    def test_each_alone_pairs_and_weeks(self):
        """Starters have what the tests of their exercises need. (`solved` runs the tests of all of them.)"""
        for ids in script("tests/course/solved").sets_of(ALL):
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder)
                for hole in {hole for e in ALL.values() for hole in e.holes + e.also}:
                    (out / "chapters" / hole.file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(exercises.source(hole.file), out / "chapters" / hole.file)
                starters.cut(out, {i: ALL[i] for i in ids})
                self.require_solvable(out, [ALL[i] for i in ids])

    def require_solvable(self, out, some):
        """Checks that the functions are holes, and that the rest of their files, and what they need, is there."""
        for e in some:
            for hole in e.holes:
                text = (out / "chapters" / hole.file).read_text()
                self.assertIn(f'not_done("{e.id}")', text[slice(*hole.body(text))])
                if hole.file != SCHEDULES:
                    self.assertNotIn("left_out(", text)
            for hole in e.needs:
                text = (out / "chapters" / hole.file).read_text()
                self.assertNotIn("left_out(", text[slice(*hole.body(text))])

    def test_what_shows_a_solution_is_named(self):
        out = self.scratch / "shown"
        for ids, said in (
                ("02.1,06.1", "06_fully_sharded/zero1.hpp has backward_rows, which 06.1 needs: it shows much of 02.1\n"),
                ("01.2,02.1", "chapters from 02_data_parallel on repeat 01.2 with other types\nengine/workloads/mlp/mlp.cpp has "
                 "UnshardedMlp::backward, which all chapters are compared with: it shows much of 01.2\n"),
                ("05", "the tests of 05.1 call 05.2 and 05.3, too\nthe tests of 05.2 call 05.1 and 05.3, too\n"
                 "the tests of 05.3 call 05.1 and 05.2, too\n")):
            code, text, err = run(course / "make", out, "--exercises", ids)
            self.assertEqual((code, err, text[text.index("\n") + 1:]), (0, "", said))
            shutil.rmtree(out)

    def test_a_solution_elsewhere_is_found(self):
        some = {"06.1": dataclasses.replace(ALL["06.1"], also=[])}
        with refused(self, 70) as said:
            starters.write(self.scratch / "leak", some, None)
        self.assertIn("zero2.hpp:45: expected no line of 06.1's solution", said.getvalue())
        self.assertFalse(list(self.scratch.glob("leak*")))

    def test_a_page_loses_the_block_with_a_solution(self):
        page = self.scratch / "pages/page.md"
        page.parent.mkdir()
        page.write_text("Before: `matmul(dz,\ntransposed(block.w0))` and `if (wants_input_grad())`.\n\n```cpp\nint a;\n"
                        "Partial dx = matmul(dz, transposed(block.w0));  // P\n```\n\n```cpp\nint b;\n"
                        "Gradients gradients;\n```\n[a link](none.md) and [another](#here)\n")
        starters.redact_pages(page.parent, ALL)
        starters.mend_links(page.parent)
        self.assertEqual(page.read_text(), "Before: (the code of exercise 03.2) and `if (wants_input_grad())`.\n\n"
                         "(Exercise 03.2: yours to write.)\n\n```cpp\nint b;\nGradients gradients;\n```\n"
                         "a link and [another](#here)\n")

    def test_a_chapter_that_git_does_not_know(self):
        with refused(self, 65) as said:
            starters.copy(self.scratch / "unknown", "12", [Hole("12_mine/mine.hpp", "int a()")])
        self.assertIn("chapters/12_mine/mine.hpp: expected a file under version control", said.getvalue())

    def test_bad_words(self):
        for words, code, said in ((("--exercises", "99", "x"), 64, "--exercises: expected ids .*, given 99"),
                                  ((), 64, "make: expected a folder, given nothing"),
                                  (("x", "--seed", "-1"), 64, "--seed: expected a number, given -1"),
                                  ((self.scratch,), 65, "expected a folder that is new, given one that exists")):
            job = run(course / "make", *words)
            self.assertEqual(job[:2], (code, ""))
            self.assertRegex(job[2], f"^error: .*{said}")

    def checked(self, out, programs, *words, ninja=""):
        """The output of ./check in a starter whose programs are already built. `ninja`: what that does instead."""
        (out / "build").mkdir(exist_ok=True)
        for name, text in (("build.ninja", ""), ("CMakeCache.txt", "SHARDBOOK_TESTS:BOOL=OFF\n")):
            (out / "build" / name).write_text(text)
        if not (out / "build/emu").exists():
            (out / "build/emu").symlink_to(programs)
        played = self.scratch / "bin"
        played.mkdir(exist_ok=True)
        for name in ("ninja", "dpkg-query"):
            said = ninja if name == "ninja" else ""
            (played / name).write_text(f"#!/bin/sh\n{said}shift 3; for name; do echo \"$name installed\"; done\n")
            (played / name).chmod(0o755)
        return run(out / "check", *words, env={**os.environ, "PATH": f"{played}:{os.environ['PATH']}"})

    def test_every_public_test_passes_with_the_solutions(self):
        code, out, err = self.checked(self.out, build / "emu")
        self.assertEqual(code, 0, out + err)
        self.assertIn(f"{len(ALL)} of {len(ALL)} exercises pass", out)
        known = json.loads((self.out / "exercises.json").read_text())
        self.assertTrue(all(e["seed"] == 7 for e in known))
        hint = self.checked(self.out, build / "emu", "--hint", "03.2", "3")
        self.assertEqual(hint, (0, ALL["03.2"].hints[2] + "\n", ""))
        code, _, err = self.checked(self.out, build / "emu", "7.1")
        self.assertEqual(code, 64)
        self.assertEqual(err, "error: expected a chapter or an exercise, such as 00.1, given 7.1\n")

    def test_what_grading_would_not_take_is_said(self):
        out = self.scratch / "changed"
        run(course / "make", out, "--exercises", "03.1")
        file = "chapters/03_tensor_parallel/tensor_parallel.hpp"
        text = (out / file).read_text()
        for change, code, said in (
                (('not_done("03.1");', "int a;"), 0, ""),
                (("#pragma once", "#pragma once\n#include <numeric>"), 0,
                 ""),
                (("#pragma once", "#pragma twice"), 0,
                 f"{file}: lines are missing or changed outside of the exercises' functions: grading takes only "
                 "these functions' bodies from it\n"),
                (("Placed forward(Tensor input)", "Placed forward(Tensor in)"), 65,
                 f'error: {file}: expected one function "Placed forward(Tensor input) override", given 0\n'),
                (('not_done("03.1");', "if (true) {"), 65,
                 f"error: {file}: expected as many closing braces as opening ones, given 12 and 13\n")):
            (out / file).write_text(text.replace(*change))
            ended = self.checked(out, build / "emu", "03.1")
            self.assertEqual((ended[0], ended[2]), (code, said))
        (out / file).write_text(text)
        same = out / "chapters/engine/layouts/layouts.cpp"
        same.write_bytes(same.read_bytes().replace(b"\n", b"\r\n"))
        (out / "chapters/engine/engines/loss.cpp").write_text("int mine;\n")
        self.assertEqual(self.checked(out, build / "emu", "03.1")[2],
                         "chapters/engine/engines/loss.cpp: changed or missing; grading takes the project's own\n")

    def test_what_does_not_compile_is_the_students(self):
        out = self.scratch / "broken"
        run(course / "make", out, "--exercises", "03.1")
        for file, code in (("03_tensor_parallel/tensor_parallel.hpp", 86), ("engine/engines/loss.cpp", 70)):
            said = f"echo \"../chapters/{file}:7:2: error: 'y' was not declared in this scope\"; exit 1\n"
            ended = self.checked(out, build / "emu", "03.1", ninja=said)
            self.assertEqual(ended[0], code, ended)
            self.assertIn("'y' was not declared in this scope", ended[2])

    def test_wrong_results_do_not_pass(self):
        out, programs = self.scratch / "wrong", self.scratch / "programs"
        run(course / "make", out, "--exercises", "03.1")
        programs.mkdir()
        program = programs / "03_tensor_parallel"
        program.write_text("#!/bin/sh\ncat > /dev/null; for row in 1 2 3 4 5 6; do echo 0,0,0,0,0; done\n")
        program.chmod(0o755)
        exercises_file = out / "exercises.json"
        known = json.loads(exercises_file.read_text())
        known[0]["tests"] = ["1 infer"]
        exercises_file.write_text(json.dumps(known))
        code, said, _ = self.checked(out, programs, "03.1")
        self.assertEqual(code, 86)
        self.assertRegex(said, r"expected the rows \[\[.*, given \[\[0.0, 0.0")
        known[0]["tests"] = ["3 train --steps 1 --fault device=1,call=3,kind=corrupt", "3 train --steps 1"]
        exercises_file.write_text(json.dumps(known))
        (out / "build/emu").unlink()
        code, said, _ = self.checked(out, build / "emu", "03")
        self.assertEqual((code, said.splitlines()[-1]), (86, "0 of 1 exercises pass their public tests"))
        self.assertIn(" 1 of 2 tests ", said)
        known[0] |= {"tests": ["3 train --steps 1"], "prints": {"3 train --steps 1": "what no program prints"}}
        exercises_file.write_text(json.dumps(known))
        code, said, _ = self.checked(out, build / "emu", "03.1")
        self.assertEqual(code, 86)
        self.assertIn("expected: what no program prints", said)
        known[0]["prints"] = {"3 train --steps 1": "03 tensor parallel, column-row, on 4 devices"}
        exercises_file.write_text(json.dumps(known))
        self.assertIn("expected: 03 tensor parallel, column-row, on 4 devices\n   given: 03 tensor parallel, column-row, on 3 devices",
                      self.checked(out, build / "emu", "03.1")[1])
        for given, told in (("2, 1", ""), ("2, 2", "\n  device 1 holds 2 micro-batches and not 1: too many forwards before a backward?"),
                            ("1, 1", "\n  device 0 holds 1 micro-batches and not 2: too few forwards before a backward?")):
            self.assertEqual(held_otherwise("held, by device: 2, 1", f"held, by device: {given}"), told)
        self.assertRegex(said, r"(?s)exact mode: .*\n    variant  .*column-row")
        known[0] |= {"tests": ["3 train --steps 1"], "prints": {}}
        for figures, told in (([21848, 4, 999999], ""), ([21849, 4, 999999], "sends most: expected 21,849, given 21,848"),
                              ([21848, 9, 999999], "messages: expected 9, given 4"),
                              ([21848, 4, 9999], "bytes held: expected at most 9,999, given 98,816")):
            exercises_file.write_text(json.dumps([known[0] | {"figures": {"3 train --steps 1": figures}}]))
            code, said, _ = self.checked(out, build / "emu", "03.1")
            self.assertEqual(code, 86 if told else 0, said)
            self.assertIn(told, said)
        self.assertNotRegex(said, "before training|##")

    def test_a_report_decides(self):
        """Who holds less than the formula says passes; who sends as much as what is to be beaten does not."""
        out, programs = self.scratch / "reported", self.scratch / "reporting"
        run(course / "make", out, "--exercises", "03.1")
        programs.mkdir()
        program = programs / "03_tensor_parallel"
        program.write_text("#!/bin/sh\nfor word; do [ \"$before\" = --report ] && file=$word; before=$word; done\n"
                           f"cd '{programs}'; case $* in *own*) cp own \"$file\"; exit $(cat code);; esac\n"
                           "cp other \"$file\"\n")
        program.chmod(0o755)
        known = json.loads((out / "exercises.json").read_text())[0] | {"tests": ["1 train --variant own"]}
        met = {name: {"measured": [4, 4], "formula": [4, 4]} for name in ("bytes", "messages", "flops", "peak")} | \
            {"max_ulp": 0, "curve": None}
        def checked(own, code, beats=""):
            (out / "exercises.json").write_text(json.dumps([known | {"beats": beats}]))
            for name, content in (("own", json.dumps(met | own)), ("other", json.dumps(met)), ("code", str(code))):
                (programs / name).write_text(content)
            ended = self.checked(out, programs, "03.1")
            return ended[0], ended[1].splitlines()[1:-2]
        figure = {"formula": [4, 4]}
        self.assertEqual(checked({"peak": figure | {"measured": [4, 3]}}, 86),
                         (0, ["each device holds no more than the formula says, and some less: that is right, too"]))
        for wrong in ({"peak": figure | {"measured": [3, 5]}}, {"bytes": figure | {"measured": [4, 3]}}, {"max_ulp": 1},
                      {"flops": figure | {"measured": [3, 3]}}, {"curve": {"wrong_step": 2}}):
            self.assertEqual(checked({"peak": figure | {"measured": [4, 3]}} | wrong, 86)[0], 86)
        beats = "03_tensor_parallel column-row"
        free = {"bytes": {"measured": [3, 3], "formula": None}}
        self.assertEqual(checked(free, 0, beats), (0, []))
        self.assertEqual(checked({}, 0, beats), (86, ["bytes sent by the device that sends most: expected less than the 4 of "
                                                      "column-row, given 4"]))
        self.assertEqual(checked(free | {"flops": {"measured": [7, 1], "formula": None}}, 0, beats),
                         (86, ["operations of the device that computes most: expected at most 6, 1.5 times an even share, given 7"]))


class Exam(unittest.TestCase):
    def test_programs_count_what_formulas_say(self):
        exam = script("chapters/course/exam")
        exam.PROGRAMS = build / "emu"
        self.assertEqual(len(exam.QUESTIONS), 20)
        for seed in ("a", "b"):
            for question in exam.QUESTIONS:
                [chapter] = [path.name for path in (build / "emu").glob(f"{question.chapter}_*")]
                text, _, answer = exam.solved(question, exam.sizes_of(question, seed), chapter)
                self.assertGreater(answer, 0, text)
        wrong = dataclasses.replace(exam.QUESTIONS[0], formula="B*D*F")
        with refused(self, 70) as said:
            exam.solved(wrong, exam.sizes_of(wrong, "a"), "01_single_device")
        self.assertIn("expected that B*D*F is ", said.getvalue())
        with tempfile.TemporaryDirectory() as folder, mock.patch("setup.build") as built, mock.patch("setup.install_packages"), \
                contextlib.redirect_stdout(io.StringIO()):
            exam.script([f"{folder}/all", "--seed", "a"])
            exam.script([f"{folder}/some", "--seed", "a", "--chapters", "04"])
            self.assertEqual(built.call_args.args[1], ["04_pipeline"])
            every, some = ([line.partition(". ")[2] for line in Path(folder, name, "exam.md").read_text().split("\n")]
                           for name in ("all", "some"))
            of_04 = [line for line in every if "chapter 04" in line]
            self.assertEqual(of_04, [line for line in some if line.startswith("`")])
            with refused(self, 64) as said:
                exam.script([f"{folder}/none", "--chapters", "05"])
        self.assertIn("--chapters: expected some of 01,", said.getvalue())


class Oral(unittest.TestCase):
    """Questions for a talk, on a run of the solutions."""
    def asked(self, exercise, student, *more):
        """(words of the run, questions with answers, all that the run said)"""
        program = build / "emu" / exercise.chapter
        with tempfile.TemporaryDirectory() as folder:
            record = Path(folder, "run.json")
            for test in runs.largest([t for t in (*exercise.hidden, *exercise.tests) if runs.is_recorded(t)]):
                devices, words = runs.words_of(test, student)
                if run(root / "chapters/on_devices", devices, program, *words, "--record", record)[0] != 64:
                    break
            page = join.run_of(record.read_text(), root)
        lines = {f"chapters/{hole.file}": {line: line for line in lines_of(hole)} for hole in exercise.holes}
        return [devices, program, *words], talk.Talk(page, student, lines).asked

    def test_each_exercise_has_three(self):
        for e in ALL.values():
            if not any(map(runs.is_recorded, e.tests)):
                self.assertEqual(e.id, "10.1")
                continue
            words, asked = self.asked(e, "17")
            self.assertEqual([question[-1] for question, _ in asked], ["?"] * 3, e.id)
            self.assertNotRegex(str(asked), "None|what does it do", e.id)
            if words[0] != "1" and e.id not in ("04.1", "04.2", "05.1", "05.3", "08.1"):  # these functions send nothing
                file, _, _ = next(iter(e.holes)).file.rpartition("/")
                self.assertRegex(asked[0][0], rf"line \d+ of chapters/(course/)?{file}/.*(send|reduce|gather|all_to_all|spread|collect|<)", e.id)

    def test_answers_are_counted(self):
        """By hand: 448 elements in chunks of 150, 149 and 149, of which a device sends all but one, and all but another."""
        words = ["3", build / "emu/03_tensor_parallel", "train", "--layers", "4", "--batch", "7", "--steps", "1"]
        with tempfile.TemporaryDirectory() as folder:
            record = Path(folder, "run.json")
            self.assertEqual(run(root / "chapters/on_devices", *words, "--record", record)[0], 0)
            said = {student: run(course / "oral", record, "--student", str(student)) for student in (*range(20), 3)}
            self.assertEqual([(code, err) for code, _, err in said.values()], [(0, "")] * 20)
            self.assertEqual(run(course / "oral", record, "--student", "3")[1], said[3][1])
            self.assertGreater(len({text for _, text, _ in said.values()}), 10)
            for _, text, _ in said.values():
                self.assertIn("*R, (7, 64). Before it: P. Devices 0–2 reduce ", text)
                device, size = re.search(r"does device (\d) send.*\n\n +\*(\S+) bytes in 4 messages; .* together 7,168\.", text).groups()
                self.assertIn(size, ("2,388", "2,392"))
            self.left_out(words, next(text for _, text, _ in said.values() if "leaves out the call at line 59" in text))
            out = Path(folder, "sheets")
            self.assertEqual(run(course / "oral", record, "--out", out), (0, f"{out}/run.md\n", ""))
            self.assertNotIn("*", (out / "run.md").read_text())
            self.assertIn("1. ", (out / "run-answers.md").read_text())
            self.refusals(Path(folder), json.loads(record.read_text()))

    def left_out(self, words, text):
        """What the answer says of a call that is left out is what happens."""
        waiting, device, fault = re.search(r"\*Devices ([\d and]+) in this call, for device (\d)\..*`(--fault [^`]*)`", text).groups()
        _, _, err = run(root / "chapters/on_devices", *words, *fault.split())
        waiting = waiting.replace(" and", ",")
        self.assertRegex(err, rf"devices {waiting} wait in all_reduce \(call \d+ at \S+:59\) for device {device}")

    def refusals(self, folder, record):
        record_without_events = copy.deepcopy(record)
        for device in record_without_events["devices"]:
            for section in device["sections"]:
                section["events"] = []
        for content, said in ((json.dumps(record_without_events), "expected calls or operations with a line, given none"),
                              (json.dumps(record | {"version": 2}), "expected version 1, given 2"),
                              (json.dumps({**record, "what": []}), "expected the fields of docs/record.md, given none"),
                              ("{", "expected JSON, given"), (b"\xff", "expected a record, given no text")):
            file = folder / "wrong.json"
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
            code, out, err = run(course / "oral", file)
            self.assertEqual((code, out, err.count("\n")), (65, "", 1))
            self.assertIn(said, err)
        for words, code, said in (([], 64, "expected folders or records"), (["none"], 65, "expected a submission or a record"),
                                  (["a", "b", "--student", "1"], 64, "--student: expected one submission, given 2"),
                                  ([file, "--out", folder], 65, "expected a folder that is new")):
            found = run(course / "oral", *words)
            self.assertEqual((found[0], found[1], found[2].count("\n")), (code, "", 1))
            self.assertIn(said, found[2])


def lines_of(hole):
    text = exercises.source(hole.file).read_text()
    begin, end = (text[:at].count("\n") + 1 for at in hole.body(text))
    return range(begin, end + 1)



class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="pages ")
        cls.addClassCleanup(scratch.cleanup)
        cls.copy = Path(scratch.name)
        shutil.copytree(root / "chapters", cls.copy / "chapters", ignore=shutil.ignore_patterns("__pycache__"))
        (cls.copy / "docs").mkdir()
        shutil.copy(root / "docs/exercises.md", cls.copy / "docs")

    def pages(self, *words):
        return run(self.copy / "chapters/course/pages", *words)

    @contextlib.contextmanager
    def changed(self, name, old, new):
        """Changes a file of the copy within a `with` block."""
        path = self.copy / name
        text = path.read_text()
        self.assertIn(old, text)
        path.write_text(text.replace(old, new, 1))
        try:
            yield path
        finally:
            path.write_text(text)

    def test_pages_say_what_the_exercises_are(self):
        self.assertEqual(run(course / "pages"), (0, "", ""))
        for e in ALL.values():
            page = root / "chapters" / e.chapter / "README.md"
            for path in [root / "docs/exercises.md", *([page] if page.exists() else [])]:
                self.assertIn(f"| {e.id} | {e.name} | {e.minutes} | {e.points} | {e.how_hard} |",
                              path.read_text())
            if page.exists():
                titles = re.findall("^## .*", page.read_text(), re.M)
                self.assertRegex(titles[-1], r"^## \d+\. Exercises$")

    def test_a_page_that_differs_is_named(self):
        name = "chapters/03_tensor_parallel/README.md"
        with self.changed(name, "| 40 | 8 | easy |", "| 40 | 9 | easy |") as path:
            code, out, err = self.pages()
            self.assertEqual((code, out), (86, ""))
            self.assertRegex(err, rf"^error: {name}:\d+: expected \| 03.1 .* 8 .*, given .* 9 [^\n]*\n$")
            self.assertEqual(self.pages("--write"), (0, f"{name}: written\n", ""))
            self.assertEqual(path.read_text(), (root / name).read_text())

    def test_a_page_without_its_section_gets_one(self):
        name = "chapters/03_tensor_parallel/README.md"
        text = (root / name).read_text()
        section = re.search("<!-- exercises -->.*<!-- end of exercises -->\n", text, re.S)[0]
        with self.changed(name, f"{section}\n", "") as path:
            self.assertEqual(self.pages()[0], 86)
            self.assertEqual(self.pages("--write"), (0, f"{name}: written\n", ""))
            self.assertTrue(path.read_text().endswith(f"\n\n{section}"))

    def test_an_exercise_that_changes_is_noticed_on_its_pages(self):
        pages = ["chapters/04_pipeline/README.md", "docs/exercises.md", "chapters/course/syllabus.md"]
        for old, new, wrong in (("points = 4", "points = 5", pages[:2]), ("minutes = 15", "minutes = 20", pages),
                                ('goal = "write', 'goal = "copy', pages[2:])):
            with self.changed("chapters/course/exercises/04_pipeline.toml", old, new):
                code, _, err = self.pages()
                self.assertEqual((code, re.findall(r"(\S+\.md):", err)), (86, wrong))

    def test_a_chapter_without_exercises_has_no_section(self):
        file = "chapters/course/exercises/07_layers.toml"
        with self.changed(file, (root / file).read_text(), ""):
            code, out, _ = self.pages("--write")
            self.assertEqual((code, re.findall(r"(\S+\.md): written", out)),
                             (0, ["chapters/07_layers/README.md", "docs/exercises.md", "chapters/course/syllabus.md"]))
            self.assertNotIn("xercises", (self.copy / "chapters/07_layers/README.md").read_text())
        shutil.copy(root / "chapters/07_layers/README.md", self.copy / "chapters/07_layers")
        shutil.copy(root / "docs/exercises.md", self.copy / "docs")
        shutil.copy(course / "syllabus.md", self.copy / "chapters/course")

    def test_what_is_wrong_is_said(self):
        self.assertEqual(self.pages("x"), (64, "", "error: pages: expected --write or nothing, given x\n"))
        with self.changed("docs/exercises.md", "<!-- end of exercises -->", ""):
            begin, end = "<!-- exercises -->", "<!-- end of exercises -->"
            said = f"expected {begin}, and behind it {end}, given {begin}"
            self.assertEqual(self.pages("--write"), (65, "", f"error: docs/exercises.md: {said}\n"))


class Solutions(unittest.TestCase):
    def test_a_page_for_each(self):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "solutions")
            self.assertEqual(run(course / "solutions", out), (0, f"{out}: {len(ALL)} solutions\n", ""))
            page = (out / "03.2.md").read_text()
            for words in ('-  Gradients backward(Tensor dout) override { not_done("03.2"); }',
                          "+      Partial dx = matmul(dz, transposed(block.w0));",
                          ALL["03.2"].questions[0]["rubric"][0]):
                self.assertIn(words, page)
            self.assertEqual(run(course / "solutions", out)[0], 65)


unittest.main()
