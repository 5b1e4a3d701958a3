#!/usr/bin/python3
"""grading_test.py: each part of the grader by itself: problems, submissions, the sandbox, the judge, and the files of
results."""
import contextlib
import csv
import dataclasses
import io
import itertools
import json
import operator
import os
import random
import re
import subprocess
import sys
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from unittest import mock

root = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(root / name) for name in ("chapters/course/grading", "chapters/course", "chapters")]
import sandbox

sandbox.enter("namespaces")  # runs this script again in namespaces; exits with 69 if there are none

import numpy as np

import class_view
import exercises
import judge
import named_tests
import problems
import results
import small_problems
import shardbook_check as sb
import submission
import trees
from grading import Graded, Grader, Part, parts_of, tests_of
from problems import Asked, Mistake, Test, settled

ALL = exercises.read_all()
HOLE = ALL["03.1"].holes[0]


class Folder(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="grading ")
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)


class Problems(unittest.TestCase):
    def test_a_seed_chooses(self):
        text = "{2..5} train --mesh {a=1|b=2} --batch {3..4}"
        chosen = {settled(text, seed) for seed in range(60)}
        self.assertEqual(len(chosen), 16)
        for words in chosen:
            self.assertRegex(words, r"^[2-5] train --mesh (a=1|b=2) --batch [34]$")
        self.assertEqual(settled(text, 1), settled(text, 1))

    def test_every_exercise_has_problems_for_every_seed(self):
        for seed in ("a", "b", "q"):
            for e in ALL.values():
                for test in tests_of(e, seed):
                    if test.kind == "large" and seed != "q":
                        continue
                    asked = Asked(test, e.chapter)
                    self.assertTrue(1 <= test.devices <= 8, test.text)
                    if asked.problem:
                        self.assertEqual(asked.expected.keys(), asked.bounds.keys())
                        self.assertTrue(all(np.isfinite(t).all() for t in asked.expected.values()), test.text)

    def test_numbers_depend_on_the_seed(self):
        first, other = (Asked(Test("2 train --variant gpipe --steps 1", "public", seed), "04_pipeline")
                        for seed in "ab")
        self.assertFalse(np.array_equal(first.batch["input"], other.batch["input"]))

    def test_a_program_reads_no_seed_and_no_result(self):
        with tempfile.TemporaryDirectory() as name:
            asked = Asked(Test("2 train --variant zero1 --steps 3", "public", "word"), "06_fully_sharded")
            asked.write(Path(name, "p"))
            job = json.loads(Path(name, "p/job.json").read_text())
            self.assertEqual(job, {"variant": "zero1", "options": {}, "steps": 3, "input_grad": True})
            self.assertEqual(sorted(p.name for p in Path(name, "p").iterdir()),
                             ["batch.safetensors", "job.json", "params.safetensors"])
            first = sb.read(Path(name, "p/params.safetensors"))
            now = asked.problem.params
            self.assertTrue(any((first[key].values != now[key]).any() for key in now))

    def test_files_are_full_in_each_problem(self):
        """Wrong rules that differ from the right one only where a file is full, behind a large tensor, or where all tensors
        are large, are noticed with any seed."""
        def split(sizes, most, is_too_large=operator.gt, is_too_much=operator.gt, ends_at_large=False, has_empty=False):
            files, opened = [], []
            for i, size in enumerate(sizes):
                if is_too_large(size, most):
                    files, opened = ([*files, opened, [i]], []) if ends_at_large and opened else ([*files, [i]], opened)
                elif is_too_much(sum(sizes[j] for j in opened) + size, most):
                    files, opened = [*files, opened], [i]
                else:
                    opened.append(i)
            return [*files, opened] if opened or has_empty else files
        wrong = [{"is_too_large": operator.ge}, {"is_too_much": operator.ge}, {"ends_at_large": True}]
        for seed in range(50):
            for test in tests_of(ALL["10.1"], str(seed)):
                sizes, most = (Asked(test, "10_checkpoints").job[name] for name in ("bytes", "most"))
                for rule in wrong if most > 4 else [{"has_empty": True}]:
                    self.assertNotEqual(split(sizes, most, **rule), split(sizes, most), test)
        for most in (4, 300, 1000, 100000):
            sizes = named_tests.sizes_that_fill(most, random.Random(1), 20)
            self.assertTrue(all(size % 4 == 0 for size in sizes))
            for rule in ({}, *(wrong[1:] if most > 4 else [{"has_empty": True}])):
                files = split(sizes, most, **rule)
                said = named_tests.what_is_wrong({f"{i:03}": [f"t{j:02}" for j in file] for i, file in enumerate(files)},
                                                 {f"t{i:02}": size for i, size in enumerate(sizes)}, most)
                self.assertEqual(bool(said), bool(rule), said)

    def test_who_gets_a_slot_matters_in_each_problem(self):
        """Slots without a limit, a limit for each device, and devices before ranks are noticed with any seed."""
        def differs(asked, rule):
            wrong = dataclasses.replace(asked.problem, mistake=Mistake(rule, devices=asked.test.devices))
            wrong.__dict__.pop("expected", None)
            found = wrong.results("float32", if_unsure="counts")
            return any((np.abs(found[name].value - want) > 2 * asked.bounds[name] + found[name].error).any()
                       for name, want in asked.expected.items() if name in found)
        for seed in range(20):
            asked = [Asked(test, "05_expert") for test in tests_of(ALL["05.1"], str(seed)) if test.kind != "large"]
            for rule in ("capacity", "places elsewhere", "ranks elsewhere"):
                self.assertTrue(any(differs(one, rule) for one in asked), (seed, rule))

    def test_chunks_of_a_ring_differ_and_some_are_empty(self):
        for seed in range(50):
            for test in tests_of(ALL["00.1"], str(seed)):
                asked = Asked(test, "00_collectives")
                sizes = [len(asked.expected[f"chunk {k}"]) for k in range(test.devices)]
                self.assertTrue(len(set(sizes)) > 1 or test.kind == "large" or test.devices == 1, sizes)
                self.assertEqual(0 in sizes, test.kind == "hidden", sizes)

    def test_steps_of_the_integer_optimizer(self):
        asked = Asked(Test("1 train --steps 2", "public", "word"), "01_single_device")
        before = dataclasses.replace(asked.problem, steps_before=0)
        name = "layer_0/weights"
        want = np.fmod(before.params[name] - np.fmod(before.expected[name], 5), 5)
        want = np.where(want < 0, want + 5, want) - 2  # as in emu/operations/parameter_updates.cpp
        self.assertTrue(np.array_equal(asked.problem.params[name], want))


class Submissions(Folder):
    def answer(self, body, head=""):
        path = self.folder / "chapters" / HOLE.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{head}\nPlaced forward(Tensor input) override {{{body}}}\n")
        return submission.answer_to(ALL["03.1"], self.folder)

    def test_a_body_is_taken(self):
        answer = self.answer(" return 1; ")
        self.assertEqual((answer.bodies, answer.is_done, answer.refused), ({HOLE: " return 1; "}, True, ""))

    def test_a_hole_is_not_done(self):
        self.assertFalse(self.answer(' not_done("03.1"); ').is_done)
        self.assertFalse(self.answer(' if (a) not_done ("03.1"); ').is_done)
        self.assertTrue(self.answer(' // not_done("03.1");\n return 1; ').is_done)

    def test_what_an_exercise_must_not_use(self):
        for body, said in (("\n fork();", ":3: `fork`: an exercise must not use it: an exercise needs no"),
                           ("\n\n#include <x>\n", ":4: `#`: an exercise must not use the preprocessor"),
                           ("%> int a() <%", "`%>`: an exercise must not use digraphs"),
                           ('asm("x");', "`asm`"), ("int __x;", "`__x`"), ('auto a = R"(x)";', "raw strings"),
                           ("// a \\\n b", "a line that goes on in the next"),
                           ("ledger().reset();", "`ledger`"), ("std::ofstream f;", "`ofstream`"),
                           ("SequenceParallel e(group());", "write the step yourself"),
                           (" return open(); ", "`open`"),
                           (" { auto fork = 0; } fork();", "`fork`"), (" fork(); auto fork = [] {};", "`fork`"),
                           (" auto fork = [] {}; fork(); ::fork();", "`fork`")):
            with self.subTest(body=body):
                self.assertIn(said, self.answer(body).refused)

    def test_comments_strings_and_lambdas_may_have_any_name(self):
        for body in (" // fork(), system()\n return 1; ", ' throw Error("do not fork"); ', " int forks = 1; ",
                     " /* #include */ return x.clone(); ", " auto open = [] { return 1; };\n return open(); "):
            self.assertEqual(self.answer(body).refused, "", body)

    def test_every_solution_may_be_handed_in(self):
        for e in ALL.values():
            for hole in e.holes:
                text = exercises.source(hole.file).read_text()
                begin, end = hole.body(text)
                self.assertEqual(submission.refusal(hole, text, begin, text[begin:end]), "", e.id)

    def test_a_whole_file(self):
        e, path = ALL["11.1"], self.folder / "chapters/11_own/own.hpp"
        path.parent.mkdir(parents=True)
        skeleton = exercises.source("11_own/own.hpp").with_name("skeleton.hpp").read_text()
        path.write_text(skeleton)
        self.assertFalse(submission.answer_to(e, self.folder).is_done)
        text = '#pragma once\n#include "engine/layouts/mesh.hpp"\n#include <vector>\nint a;\n'
        path.write_text(text)
        answer = submission.answer_to(e, self.folder)
        self.assertEqual((answer.is_done, answer.refused, list(answer.bodies.values())), (True, "", [text]))
        for line in ('#include "03_tensor_parallel/row_column.hpp"', "#define a b", "RowColumnParallel e;"):
            path.write_text(text + line + "\n")
            self.assertIn("chapters/11_own/own.hpp:5: ", submission.answer_to(e, self.folder).refused)

    def test_files_that_are_none(self):
        path = self.folder / "chapters" / HOLE.file
        self.answer("")
        path.unlink()
        said = f"chapters/{HOLE.file}: expected a file, given none"
        self.assertEqual(submission.answer_to(ALL["03.1"], self.folder).refused, said)
        path.symlink_to(exercises.CHAPTERS / HOLE.file)
        self.assertEqual(submission.answer_to(ALL["03.1"], self.folder).refused, said)
        path.unlink()
        path.parent.rmdir()
        path.parent.symlink_to((exercises.CHAPTERS / HOLE.file).parent)
        self.assertEqual(submission.answer_to(ALL["03.1"], self.folder).refused, said)
        self.assertIn("at most 1 MiB, given 2 MiB", self.answer_of_size(2 << 20))

    def answer_of_size(self, size):
        (self.folder / "chapters" / HOLE.file).parent.unlink()
        return self.answer("", head="//" + "x" * size).refused

    def test_a_repository_may_lie_deeper(self):
        for place in ("", "shardbook", "a/b"):
            with tempfile.TemporaryDirectory() as folder:
                for path in (Path(folder, place, "chapters"), Path(folder, "__MACOSX/chapters")):
                    path.mkdir(parents=True)
                self.assertEqual(submission.repository_in(Path(folder)), Path(folder, place))
        for folders, said in ((["notes"], "given notes$"), ([], "given nothing$"),
                              (["a/chapters", "b/chapters"], "given a and b$")):
            with tempfile.TemporaryDirectory() as folder:
                for name in folders:
                    Path(folder, name).mkdir(parents=True)
                with self.assertRaisesRegex(submission.Misplaced, said):
                    submission.repository_in(Path(folder))

    def test_what_is_added_beside_the_functions(self):
        path, own = self.folder / "chapters" / HOLE.file, exercises.source(HOLE.file).read_text()
        path.parent.mkdir(parents=True)
        mine = own.replace("#pragma once", "#pragma once\n#include <numeric>  // iota").replace(
            "  /// ## Forward\n", "  int two() { return 2; }\n\n").replace("Sharded<1> h = relu(", "Sharded<1> h = (")
        for text, taken in ((own, None), (mine, mine.replace("Sharded<1> h = (", "Sharded<1> h = relu(")),
                            (mine.replace("return 2", "return fork()"), None),
                            (mine.replace("num_blocks() const {", "num_blocks() const { fork();"), None),
                            (mine + "#define a b\n", None), (mine.replace("int two()", "} int two()"), None)):
            path.write_text(text.replace("#pragma once\n", f'#pragma once\n#include "{submission.NOT_DONE}"\n', 1))
            answer = submission.answer_to(ALL["03.1"], self.folder)
            self.assertEqual((answer.refused, answer.files), ("", {HOLE.file: taken} if taken else {}))
            self.assertEqual("= relu(" in answer.bodies[HOLE], text == own)

    def test_a_function_that_is_there_twice(self):
        said = self.answer("", head="Placed forward(Tensor input) override { }").refused
        self.assertIn("expected one function", said)

    def test_bytes_that_are_no_text(self):
        self.answer("return x;  // f\u00fcr alle\n")
        path = self.folder / "chapters" / HOLE.file
        path.write_bytes(path.read_text().encode("latin-1"))
        self.assertIn("return x;", submission.answer_to(ALL["03.1"], self.folder).bodies[HOLE])
        for junk in (b"\xff\xfe", path.read_text(errors="replace").encode("utf-16")):
            path.write_bytes(junk)
            said = f"chapters/{HOLE.file}: expected one function"
            self.assertIn(said, submission.answer_to(ALL["03.1"], self.folder).refused)

    def test_a_brace_too_few(self):
        path = self.folder / "chapters" / HOLE.file
        self.answer("")
        text = exercises.source(HOLE.file).read_text()
        begin, end = HOLE.body(text)
        path.write_text(text[:begin] + " if (a) { return 1; " + text[end:])
        self.assertIn("expected a closing brace", submission.answer_to(ALL["03.1"], self.folder).refused)
        path.write_text(text[:begin] + " if (a) { return 1; } " + text[end:])
        self.assertEqual(submission.answer_to(ALL["03.1"], self.folder).refused, "")


class Box(Folder):
    """The sandbox, with programs of the system."""
    def setUp(self):
        super().setUp()
        self.box = sandbox.Sandbox("namespaces", self.folder)
        self.addCleanup(lambda: subprocess.run(["umount", self.folder], check=True))
        (self.folder / "out").mkdir()

    def sh(self, text, **limits):
        return self.box.run(["sh", "-c", text], writes=[self.folder / "out"], limits=sandbox.Limits(**limits))

    def test_code_and_words(self):
        ended = self.sh("echo said; echo wrong >&2; exit 7")
        self.assertEqual((ended.code, sorted(ended.output.split()), ended.broke), (7, ["said", "wrong"], ""))

    def test_what_is_there(self):
        os.environ["SEED"] = "a secret"
        self.addCleanup(os.environ.pop, "SEED")
        ended = self.sh(f"ls / /home /root {root}; id -u; cat /proc/net/dev; env")
        self.assertNotIn("chapters", ended.output)
        self.assertNotIn("eth", ended.output)
        self.assertIn("\n1000\n", ended.output)
        self.assertNotIn("a secret", ended.output)

    def test_writes_only_where_it_may(self):
        ended = self.sh(f"cd '{self.folder}'; echo a > out/a; echo b > /usr/b; echo c > c; echo d > /tmp/d")
        self.assertEqual(ended.output.count("cannot create"), 1, ended.output)  # /usr alone; /tmp is the sandbox's own
        self.assertEqual(sorted(p.name for p in self.folder.rglob("*")), ["a", "out"])
        self.assertFalse(Path("/tmp/d").exists())
        ended = self.box.run(["sh", "-c", f"cd '{self.folder}'; ls; echo e > e"], sees=[self.folder],
                             writes=[self.folder / "out"])
        self.assertEqual(ended.output.split()[0], "out")
        self.assertIn("Read-only file system", ended.output)

    def test_limits(self):
        for text, limits, said in (("sleep 60", {"seconds": 0.3}, "time: expected an end within 0 s, of which it had a processor for 0 s"),
                                   ("while :; do :; done", {"cpu": 1}, "time: expected an end within 1 s of processor time"),
                                   ("yes", {}, "output: expected at most 1024 KiB"),
                                   ("for i in 1 2 3 4 5 6 7 8 9; do sleep 60 & done; wait", {"processes": 5},
                                    "processes: expected at most 5, given "),
                                   ("python3 -c 'a = bytearray(b\"1\") * (300 << 20); input()' < /dev/zero",
                                    {"memory": 100 << 20}, "memory: expected at most 100 MiB")):
            with self.subTest(text=text):
                self.assertIn(said, self.sh(text, **limits).broke)

    def test_a_disk_that_is_full(self):
        ended = self.sh(f"cd '{self.folder}/out'; for i in 1 2 3 4 5 6; do cat /dev/zero > $i; done")
        self.assertIn("File size limit exceeded", ended.output)
        self.assertIn("No space left on device", ended.output)
        sizes = [path.stat().st_size for path in (self.folder / "out").iterdir()]
        self.assertEqual((max(sizes), len(sizes)), (sandbox.Limits.file, 6))
        self.assertLessEqual(sum(sizes), 2 << 30)
        for folder in ("/tmp", "/dev/shm"):
            ended = self.sh(f"cd {folder}; for i in 1 2; do head -c 300M /dev/zero > $i; done; du -mc 1 2")
            self.assertIn("No space left on device", ended.output)
            self.assertIn("512\ttotal\n", ended.output)

    def test_nothing_stays(self):
        for _ in range(20):  # a namespace ends a moment after its first process
            self.sh("setsid sh -c 'sleep 60' & (sleep 60 &) ; exit 0")
            left = [name for number, _ in sandbox.processes()
                    if "sleep" in (name := Path(f"/proc/{number}/cmdline").read_text())]
            self.assertEqual(left, [])

    def test_what_a_process_uses_is_counted(self):
        ended = self.sh("exec /usr/bin/python3 -c 'import time; a = bytearray(b\"1\") * (64 << 20); "
                        "time.sleep(.2); print(\"x\" * 1000, flush=True); time.sleep(.2)'")
        used = ended.devices(os.path.realpath("/usr/bin/python3"))[0]
        self.assertTrue(64 << 20 < used.peak < 128 << 20, used)
        self.assertTrue(1000 < used.written < 5000, used)

    def test_the_loopback_is_counted(self):
        before = sandbox.loopback_bytes()
        self.sh("/usr/bin/python3 -c 'import socket; a = socket.create_server((\"127.0.0.1\", 0)); "
                "b = socket.create_connection(a.getsockname()); b.sendall(bytes(5000)); "
                "a.accept()[0].recv(5000)'")
        self.assertTrue(5000 < sandbox.loopback_bytes() - before < 8000)


class Trees(Folder):
    def make(self, *outputs):
        """What a build says whose commands end so, and the numbers of jobs."""
        tree, jobs, left = trees.Tree.__new__(trees.Tree), [], list(outputs)
        tree.folder = tree.build = self.folder

        def in_sandbox(command, *_, **__):
            jobs.append(command[command.index("-j") + 1])
            said = left.pop(0)
            return sandbox.Ended(int(bool(said)), said, 1.0)
        with mock.patch.object(tree, "in_sandbox", in_sandbox), mock.patch.object(tree, "configure", lambda: None), \
                mock.patch("trees.memory", lambda: 5 << 30), \
                mock.patch("os.sched_getaffinity", lambda _: set(range(8))):
            try:
                return tree.make(["ring"]), jobs
            except trees.NoRoom as error:
                return str(error), jobs

    def test_a_compiler_that_the_kernel_ends_is_no_mistake_of_a_student(self):
        killed = "a.hpp:1:2: warning: x\nc++: fatal error: Killed signal terminated program cc1plus\n"
        self.assertEqual(self.make(""), ("", [5]))
        self.assertEqual(self.make(killed, ""), ("", [5, 1]))
        said, jobs = self.make(killed, killed)
        self.assertRegex(said, "^memory: expected 1024 MiB for a compiler, given 5120 MiB for all here")
        self.assertEqual(jobs, [5, 1])
        mine = "a.hpp:1:2: error: static assertion failed: c++: fatal error: Killed signal terminated program\n"
        self.assertEqual(self.make(mine), (f"\n{mine}", [5]))


class Entered(unittest.TestCase):
    def test_a_containers_first_process_enters_too(self):
        """A container's first process has number 1, and still the container's network."""
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder, "script")
            script.write_text(f"import os, sys\nsys.path[:0] = {sys.path[:3]}\nimport sandbox\n"
                              "print(os.getpid(), os.readlink('/proc/self/ns/net'), flush=True)\n"
                              "sandbox.enter('namespaces')\n")
            job = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", sys.executable, script],
                                 capture_output=True, text=True)
        (first, outside), (second, inside) = map(str.split, job.stdout.splitlines())
        self.assertEqual((first, second), ("1", "1"))
        self.assertNotEqual(outside, inside)


class AsAnotherUser(unittest.TestCase):
    def test_what_is_left_is_ended(self):
        if not is_real_root():
            self.skipTest("needs root")
        with tempfile.TemporaryDirectory() as name:
            box = sandbox.Sandbox("user", name)
            other = subprocess.Popen(["sleep", "60"], user=box.account.pw_uid)
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as said:
                sandbox.Sandbox("user", name)
            other.kill()
            other.wait()
            self.assertIn("has no other processes", said.getvalue())
            out = Path(name, "out")
            out.mkdir()
            os.chmod(name, 0o755)
            ended = box.run(["sh", "-c", f"cd {name}; id -un; echo a > out/a; echo b > b; touch /tmp/mine; "
                             "setsid sleep 60 & exit 0"], writes=[out])
            self.assertIn(box.account.pw_name, ended.output)
            self.assertEqual({path.stat().st_uid for path in (out, out / "a")}, {0})
            self.assertEqual(sorted(p.name for p in Path(name).rglob("*")), ["a", "out"])
            self.assertFalse(Path("/tmp/mine").exists())
            left = [number for number, _ in sandbox.processes()  # a process that has ended has no command line
                    if os.stat(f"/proc/{number}").st_uid == box.account.pw_uid
                    and Path(f"/proc/{number}/cmdline").read_bytes()]
            self.assertEqual(left, [])


def is_real_root():
    """Whether this process can use all user ids, not only its own in a namespace."""
    return Path("/proc/self/uid_map").read_text().split()[2] == "4294967295"


def judge_figures(forms, figures):
    """The first sentence on memory."""
    outcome = judge.Outcome()
    judge.hold_figures(outcome, [judge.Device({}, {}, device) for device in figures], forms)
    return outcome.memory[0]


class Judged(Folder):
    def setUp(self):
        super().setUp()
        self.asked = Asked(Test("3 train --variant column-row --batch 5 --hidden-dim 7", "public", "word"),
                           "03_tensor_parallel")
        self.parts = []
        for device in range(3):
            begin, end = sb.part(7, 3, device)
            cut = {"layer_0/weights": (slice(None), slice(begin, end)), "layer_1/weights": (slice(begin, end),)}
            self.parts.append({name: (t[cut[name]] if name in cut else t,
                                      [begin if s != slice(None) else 0 for s in
                                       (*cut.get(name, ()), slice(None), slice(None))[:2]])
                               for name, t in self.asked.expected.items()})
        self.forms = [{"bytes": 80, "messages": 4, "held": 90, "kept": 8} for _ in range(3)]
        self.figures = [dict(form) for form in self.forms]

    def judged(self, counted=None, code=0, output="", broke=""):
        for device, parts in enumerate(self.parts):
            if parts is None:
                continue
            sb.write(self.folder / f"device_{device}.safetensors",
                                     {name: values for name, (values, _) in parts.items()})
            begins = {name: begin for name, (_, begin) in parts.items()}
            said = {"begin": begins, "figures": self.figures[device]}
            (self.folder / f"device_{device}.json").write_text(json.dumps(said))
        return judge.judge(self.asked, sandbox.Ended(code, output, 1.0, broke), self.folder, self.forms,
                           counted)

    def change(self, device, name, values=None, begin=None):
        old_values, old_begin = self.parts[device][name]
        self.parts[device][name] = (old_values if values is None else values, begin or old_begin)

    def test_right(self):
        outcome = self.judged()
        self.assertEqual((outcome.results, outcome.communication, outcome.memory), ([], [], []))
        self.assertEqual(outcome.figures, {"bytes": 80, "held": 90})

    def test_a_wrong_element(self):
        values = self.parts[1]["layer_0/weights"][0].copy()
        values[2, 1] += 1
        self.change(1, "layer_0/weights", values)
        self.assertRegex(self.judged().results[0],
                         r"^layer_0/weights on device 1 at \(2, 4\): expected .*, given ")

    def test_a_cause(self):
        self.change(2, "output", 3 * self.parts[2]["output"][0])
        self.assertIn("summed where every device has the sum?", self.judged().results[0])

    def test_problems_of_which_no_mistake_is_known(self):
        for asked, words in ((Asked(Test("3 --only ring", "public", "word"), "00_collectives"), "chunk 1"),
                             (Asked(Test("3 --only LayerNorm", "public", "word"), "07_layers"), "bias"),
                             (Asked(Test("3 reshard --max-shard-size 300", "public", "word"), "10_checkpoints"), "files")):
            if asked.problem is None:
                whole = {words: np.arange(4.0), "output": np.ones((3, 2))}
                asked.problem = small_problems.LayerProblem.of(asked.job.get("layer", asked.program), whole)
            whole = [{name: (t, [0] * t.ndim) for name, t in asked.expected.items()} for _ in range(3)]
            whole[2][words] = (whole[2][words][0] + 1000.5, [0])
            self.asked, self.parts = asked, whole
            self.assertRegex(self.judged().results[0], f"^{words} on device 2 at .*: on this device alone: ")

    def test_rounding_explains_all_or_nothing(self):
        rounded = judge.SAYS["right_in_bf16"]
        for causes, said in (([rounded, rounded], rounded), ([rounded, judge.SAYS["unknown"]], judge.SAYS["unknown"])):
            found = [judge.Difference("output", "expected 1, given 2", device) for device in range(2)]
            for difference, cause in zip(found, causes):
                difference.cause = cause
            with mock.patch("judge.results_of", return_value=([], mock.Mock(differences=found))):
                self.judged()
            self.assertEqual([d.cause for d in found], [said, said])

    def test_what_a_ring_tells(self):
        """Its rows are no parts of a tensor, so another device's row is no slice of another device."""
        for name, words in small_problems.TOLD.items():
            self.asked = Asked(Test("3 --only ring", "public", "word"), "00_collectives")
            self.parts = [{n: (t, [0] * t.ndim) for n, t in self.asked.expected.items()} for _ in range(3)]
            for told in ("arrived", "steps"):
                for device, parts in enumerate(self.parts):
                    parts[told] = (self.asked.expected[told][device:][:1], [device, 0])
            self.parts[0][name] = (self.asked.expected["arrived"][1:2], [0, 0])
            self.assertRegex(self.judged().results[0], f"^{name} on device 0 at .*: {re.escape(words)}$")

    def test_causes_of_a_layer(self):
        """Each wrong cross entropy is named, and the right one is right."""
        numbers, words = np.random.default_rng(1), "4 --only 'cross entropy'"
        given = {"input": numbers.integers(-3, 4, (9, 13)) * 1.0, "labels": np.arange(9) * 1.0,
                 "output_grad": np.array([0.5])}
        right = small_problems.cross_entropy(given, 1)[0]
        self.assertNotEqual(right["output"], 0)
        for wrong, text in [("", ""), *small_problems.CROSS_ENTROPY.items()]:
            self.asked = Asked(Test(words, "public", "word"), "07_layers")
            self.asked.problem = small_problems.LayerProblem.of(
                "cross entropy", right | {f"given/{name}": t for name, t in given.items()})
            devices = small_problems.cross_entropy(given, 4, wrong)
            self.parts = [{"output": (d["output"], [0]), "input_grad": (d["input_grad"], [0, 0])}
                          for d in devices]
            self.forms = self.figures = [{"bytes": 1, "messages": 1, "kept": 0}] * 4
            said = self.judged().results
            self.assertFalse(any(s.endswith("no known cause") for s in said), wrong)
            self.assertEqual(any(s.endswith(text) for s in said), wrong != "", said)

    def test_causes_of_a_norm(self):
        """Each wrong LayerNorm is named, and the right one is right."""
        numbers = np.random.default_rng(1)
        given = {name: numbers.integers(-300, 300, shape) / 256.0 for name, shape in
                 (("input", (7, 10)), ("output_grad", (7, 10)), ("weights", 10), ("bias", 10))}
        right = small_problems.layer_norm(given, 1)[0]
        self.assertTrue(all((small_problems.layer_norm(given, 4)[0][name] == t).all() for name, t in right.items()))
        for wrong, text in [("", ""), *small_problems.LAYER_NORM.items()]:
            self.asked = Asked(Test("4 --only LayerNorm", "public", "word"), "07_layers")
            self.asked.problem = small_problems.LayerProblem.of(
                "LayerNorm", right | {f"given/{name}": t for name, t in given.items()})
            devices = small_problems.layer_norm(given, 4, wrong)
            self.parts = [{name: (t, [0] * t.ndim) for name, t in d.items()} for d in devices]
            self.forms = self.figures = [{"bytes": 1, "messages": 1, "kept": 0}] * 4
            said = self.judged().results
            self.assertFalse(any(s.endswith("no known cause") for s in said), (wrong, said))
            self.assertEqual(any(s.endswith(text) for s in said), wrong != "", said)

    def test_causes_of_a_split(self):
        """Each wrong split is named, one that nobody knows has no cause, and the right one is right."""
        for wrong, text in [*small_problems.SPLIT.items(), ("", "")]:  # an empty file is there if all tensors have their own
            most = 4 if wrong == "empty" else 300
            self.asked = Asked(Test(f"1 reshard --max-shard-size {most}", "public", "word"), "10_checkpoints")
            right = small_problems.split(self.asked.job, 1)[0]
            self.asked.problem = small_problems.LayerProblem.of("split", right, self.asked.job)
            self.parts = [{name: (t, [0]) for name, t in small_problems.split(self.asked.job, 1, wrong)[0].items()}]
            self.forms = self.figures = [{}]
            said = self.judged().results
            self.assertEqual((bool(said), all(s.endswith(text) for s in said)), (wrong != "", True), (wrong, said))
        self.parts = [{"file": (right["file"][::-1], [0]), "place": (right["place"], [0]), "files": (right["files"], [0])}]
        self.assertTrue(all(s.endswith("no known cause") for s in self.judged().results), self.judged().results)

    def test_no_number(self):
        for device, name, value in itertools.product(range(3), self.asked.expected, (np.nan, np.inf, -np.inf)):
            values, begin = self.parts[device][name]
            wrong = values.copy()
            wrong.flat[-1] = value
            self.change(device, name, wrong)
            self.assertRegex("\n".join(self.judged().results), rf"^{name} on device {device} at .* not finite")
            self.parts[device][name] = values, begin

    def test_parts_that_are_missing(self):
        del self.parts[1]["layer_0/weights"]
        self.assertIn("layer_0/weights: expected on some device at (0, 3), given on none",
                      self.judged().results[0])
        for parts in self.parts:
            parts.pop("output")
        self.assertIn("output: expected a result of this name, given none", "\n".join(self.judged().results))

    def test_parts_of_no_size(self):
        for device in range(3):
            self.change(device, "layer_0/weights", np.zeros((7, 0)), [0, 0])
        self.assertIn("expected", self.judged().results[0])

    def test_a_part_elsewhere(self):
        for begin in ([0, 5], [0, -1], [0], "x", None, [0.5, 0]):
            with self.subTest(begin=begin):
                self.parts[0]["layer_1/weights"] = (self.parts[0]["layer_1/weights"][0], begin)
                self.assertIn("layer_1/weights on device 0: expected a part of", self.judged().results[0])

    def test_a_device_without_a_word(self):
        self.parts[2] = None
        self.assertIn("device 2: expected what it holds, given nothing that can be read",
                      self.judged().results[0])

    def test_files_that_are_none(self):
        self.judged()
        for text in ("", "[" * 100000, "{}", '{"begin": 1, "figures": {}}',
                     '{"begin": {}, "figures": {"bytes": "x"}}'):
            (self.folder / "device_0.json").write_text(text)
            found, verdict = judge.results_of(self.asked, self.folder, self.forms)
            self.assertFalse(verdict.is_right, text)
        self.judged()
        (self.folder / "device_0.safetensors").write_bytes(b"\xff" * 40)
        self.assertFalse(judge.results_of(self.asked, self.folder, self.forms)[1].is_right)

    def test_figures(self):
        for form, figures in zip(self.forms, self.figures):
            form |= {"held as parameters": 40, "held as activations": 30, "held by the update": 20}
            figures |= {"held as parameters": 41, "held as activations": 30}
        self.figures[1] |= {"bytes": 88, "held": 91, "held as activations": 1034}
        self.figures[2] |= {"held": 10, "kept": 9, "held by the update": 21, "messages": 5}
        outcome = self.judged()
        self.assertEqual(outcome.results, [])
        self.assertEqual(outcome.communication, ["device 1 sent 88 bytes; the closed form says 80",
                                                 "device 2 sent 5 messages; the closed form says 4"])
        self.assertEqual(outcome.memory, ["device 1 held 91 bytes at its fullest; the closed form says 90. "
                                          "Of activations it held at most 1,034, the solution 30",
                                          "device 2 held 21 bytes at most in the optimizer's step; expected 20 or less",
                                          "device 2 held 9 bytes after the step; expected 8 or less"])
        self.forms[0]["order"], self.figures[0]["order"] = [["F0", ".", "B0"]], [["F0", "B1", "."]]
        self.assertIn(". The order of work is another one, too: device 0's piece of work 2: expected B0, given B1",
                      judge_figures(self.forms, self.figures))

    def test_the_fullest_device_is_the_limit_where_check_knows_no_other(self):
        self.forms[0] |= {"held": 100}
        self.figures[1] |= {"held": 91}
        self.assertNotEqual(self.judged().memory, [])
        self.asked.knows_fullest = True
        self.assertEqual(self.judged().memory, [])
        self.figures[1] |= {"held": 101}
        self.assertIn("device 1 held 101 bytes", self.judged().memory[0])

    def test_a_pipeline_that_idles(self):
        self.judged()
        said = json.loads((self.folder / "device_0.json").read_text())
        said["described"] = "F0 F1\ndevices idle 33.3 % of the time, if messages took none"
        (self.folder / "device_0.json").write_text(json.dumps(said))
        self.assertEqual(judge.read_device(self.folder, 0).figures["idle"], 33.3)
        found, outcome = [judge.read_device(self.folder, d) for d in range(3)], judge.Outcome()
        judge.hold_figures(outcome, found, [{**form, "idle": 20.0} for form in self.forms])
        self.assertEqual(outcome.communication,
                         ["devices idle 33.3 % of the time, by the schedule; expected 20.0 %"])

    def counted(self, sent=10 << 20, written=1 << 20, held=30 << 20):
        staff = judge.Counted(10 << 20, [1 << 20] * 3, [30 << 20] * 3, 2.0)
        return self.judged((judge.Counted(sent, [1 << 20, 1 << 20, written], [held] * 3, 1.0), staff))

    def test_what_the_kernel_counts(self):
        outcome = self.counted()
        self.assertEqual((outcome.communication, outcome.memory), ([], []))
        self.assertEqual(outcome.figures["time_ratio"], 0.5)
        for sent in (11 << 20, 9 << 20):
            self.assertIn("went between the devices", self.counted(sent=sent).communication[0])
        self.assertIn("a device wrote", self.counted(written=2 << 20).communication[0])
        self.assertIn("held", self.counted(held=40 << 20).memory[0])

    def test_a_device_that_was_not_seen_to_its_end(self):
        """Such a count is not held against an answer: the job runs again."""
        staff, low = judge.Counted(1 << 20, [9 << 19, 1 << 19], [7, 8], 1.0), judge.Counted(1 << 20, [2567, 9 << 19], [9, 1], 1.0)
        self.assertEqual([one.misses_some(staff) for one in (staff, low, dataclasses.replace(low, sent=5))],
                         [False, True, False])
        most = low.with_most_of(staff)
        self.assertEqual((most.written, most.held), ([1 << 19, 9 << 19], [7, 9]))
        for counts, left in (([low, staff, low], 1), ([low, low, low], 0), ([staff, low, low], 2)):
            grader = Grader.__new__(Grader)
            grader.tree = mock.Mock()
            asked = mock.Mock(test=mock.Mock(kind="large"))
            counts = list(counts)
            with mock.patch.object(grader, "run", lambda *_: (None, counts.pop(0)), create=True), \
                    mock.patch.object(grader, "scratch", lambda: contextlib.nullcontext(Path("x")), create=True), \
                    mock.patch.object(grader, "of_staff", lambda _: mock.Mock(counted=staff), create=True), \
                    mock.patch("grading.judge", lambda *args: args[-1][0].written):
                written = grader.judged(asked)
            self.assertEqual((written == staff.written, len(counts)), (left > 0, left))

    def test_what_a_free_exercise_must_beat(self):
        bound = {"bytes below": 81, "operations at most": 10}
        self.forms = [bound] * 3
        for figures in self.figures:
            figures["operations"] = 10
        self.assertEqual(self.judged().communication, [])
        self.figures[1] |= {"bytes": 81, "operations": 11}
        self.assertEqual(self.judged().communication, [
            "device 1 sent 81 bytes; expected less than the 81 of what is to be beaten",
            "device 1 computed 11 operations; expected at most 10, 1.5 times an even share"])
        staff = judge.Counted(100, [], [], 1.0, is_bound=True)
        outcome = judge.Outcome()
        judge.hold_counted(outcome, judge.Counted(99, [5], [1 << 40], 1.0), staff)
        self.assertEqual(outcome.communication + outcome.memory, [])
        judge.hold_counted(outcome, judge.Counted(100, [5], [5], 1.0), staff)
        self.assertEqual(len(outcome.communication), 1)

    def test_a_dx_that_no_step_wants(self):
        for form, figures in zip(self.forms, self.figures):
            form["operations"] = figures["operations"] = 10
        self.figures[1]["operations"] = 15
        self.assertEqual(self.judged().communication, [])  # here dL/dx is wanted
        self.asked.wants_input_grad = False
        self.assertEqual(self.judged().communication, [
            "device 1 computed 15 operations; expected 10: dL/dx, which this step does not want?"])
        self.figures[1]["operations"] = 10
        self.assertEqual(self.judged().communication, [])

    def test_ends(self):
        outcome = self.judged(broke="time: expected an end within 9 s")
        self.assertEqual(outcome.results, ["time: expected an end within 9 s; the job was ended"])
        self.assertEqual(outcome.broke, "time: expected an end within 9 s")
        outcome = self.judged(code=82, output="noise\nerror: deadlock: devices 0, 1\n  device 0 waits\n")
        self.assertEqual(outcome.results, ["error: deadlock: devices 0, 1\n  device 0 waits"])
        self.assertFalse(outcome.has_figures)
        self.assertEqual(self.judged(code=3).results, ["ended with code 3 and said nothing"])


class Points(unittest.TestCase):
    def outcomes(self, *results):
        return [judge.Outcome(results=list(r), communication=["c"] if r else [], memory=["m"] if r else [])
                for r in results]

    def test_parts_add_up(self):
        for e in ALL.values():
            asked = [Asked(dataclasses.replace(t), e.chapter) for t in tests_of(e, "x") if t.kind != "large"]
            right = parts_of(e, asked, self.outcomes(*[[]] * len(asked)), None)
            self.assertEqual([sum(p.points for p in right), sum(p.earned for p in right)], [e.points, e.points])
            self.assertEqual([p.name for p in right if p.earned != p.points], [])
            self.assertEqual(sum(p.earned for p in parts_of(e, asked, None, "why")), 0)

    def test_a_part_of_the_points(self):
        e = ALL["03.1"]
        asked = [Asked(t, e.chapter) for t in tests_of(e, "x") if t.kind != "large"]
        outcomes = self.outcomes(*[["wrong"] if a.test.kind == "hidden" else [] for a in asked])
        parts = parts_of(e, asked, outcomes, None)
        self.assertEqual({p.kind for p in parts if p.earned == 0}, {"hidden"})
        # Communication and memory count if results are right: in 5 of 7 tests.
        self.assertAlmostEqual(float(sum(p.earned for p in parts)), e.points * (2 + 5 * 5 / 7) / 10)
        self.assertEqual(parts[-1].why, ["the results of 2 of 7 tests are not right"])

    def test_one_mistake_keeps_what_it_did_right(self):
        e = ALL["03.1"]
        asked = [Asked(t, e.chapter) for t in tests_of(e, "x") if t.kind != "large"]
        mean = "output on device 0 at (0, 0): expected 4, given 2: 1/2 of it in every element: a mean for a sum?"
        other, none = mean.replace("a mean", "a wrong scale"), "layer_0/weights: no known cause"
        zero = "output on device 0 at (0, 0): expected 4, given 0: 0 in every element: never written, or left out?"
        for sentences, changes, earned in (
                ([mean], {}, 5), ([mean, none], {}, 5), ([none], {}, 0), ([mean, other], {}, 0), ([zero], {}, 0),
                ([mean], {"communication": ["sent 5"]}, 0), ([mean], {"memory": ["held 5"]}, 3),
                ([mean], {"has_figures": False}, 0)):
            outcomes = [judge.Outcome([text.replace("1/2", f"1/{2 + i}") for text in sentences], has_figures=True)
                        for i in range(len(asked))]
            for name, value in changes.items():
                setattr(outcomes[-1], name, value)
            found = parts_of(e, asked, outcomes, None)
            self.assertAlmostEqual(sum(p.earned for p in found), e.points * earned / 10, msg=sentences)


class Written(Folder):
    graded = Graded("ada", [Part("03.1", "2 train", "public", 3, 3, []),
                            Part("03.1", "3 train", "hidden", 4, 0, ["output: \x1b\x00 <&]]>"]),
                            Part("03.1", "memory", "memory", 1, 1, [])],
                    {"03.1": {"kernel_bytes": 10, "kernel_held": 20, "time_ratio": 1.5}}, 2.0)

    def table(self, *some, text="", due="", keep="best"):
        """The rows of points.csv, and the page."""
        (self.folder / "class.csv").write_text(text)
        rows = class_view.read_class(text and self.folder / "class.csv", ["03.1"])
        students = class_view.students_of(some, rows, due, keep, {"03.1": 2})
        class_view.write_csv(students, ["03.1"], self.folder / "t.csv", due)
        class_view.write_html(students, {"03.1": "A <block>"}, self.folder / "t.html", due)
        with open(self.folder / "t.csv", newline="") as file:
            return list(csv.reader(file)), (self.folder / "t.html").read_text()

    def test_table(self):
        other = Graded("bob", [Part("03.1", "2 train", "public", 8, 1.5, [])])
        rows, page = self.table(self.graded, other)
        self.assertEqual(rows, [["submission", "points", "maximum", "03.1", "same text as"], ["ada", "4", "8", "4", ""],
                                ["bob", "1.5", "8", "1.5", ""]])
        for words in ("A &lt;block&gt;", "<td class=n>8</td><td class=n>2.75</td><td class=n>0</td><td class=n>1</td>",
                      "wrong results of no known cause", "&lt;&amp;]]&gt;"):
            self.assertIn(words, page)

    def test_a_table_of_the_class(self):
        better = dataclasses.replace(self.graded, name="ada 1", parts=[Part("03.1", "2 train", "public", 8, 6, [])])
        text = "submission,student,Email,handed in,03.1\nada 1,Ada,a@x,2025-10-07,2\nada,Ada,a@x,2025-10-08T00:10,1.5\n"
        head = ["submission", "student", "Email", "late days", "points", "maximum", "03.1", "questions", "same text as"]
        for keep, row in (("best", ["ada 1", "Ada", "a@x", "0", "8", "10", "6", "2", ""]),
                          ("last", ["ada", "Ada", "a@x", "1", "5.5", "10", "4", "1.5", ""])):
            self.assertEqual(self.table(self.graded, better, text=text, due="2025-10-07", keep=keep)[0], [head, row])
        for text in ("name\nada\n", "submission,handed in\nada,yesterday\n", "submission,03.1\nada,many\n"):
            with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()) as said:
                self.table(self.graded, text=text)
            self.assertEqual(ended.exception.code, 65)
            self.assertRegex(said.getvalue(), "class.csv: expected a table with a column `submission`")

    def test_causes_are_counted(self):
        cause, told = "a mean where a sum is meant?", []
        for name, why, kind in (
                ("a", f"output on device 0: 1/2 of it: {cause}", "public"), ("b", f"x: 1/3: {cause}", "hidden"),
                ("c", "it does not compile: f is unavailable: a Partial (at `x`)", "public"), ("d", "device 1 sent 5 bytes", "communication"),
                ("e", "exercise 03.1 is not done yet", "memory"), ("h", "nothing was handed in", "memory"),
                ("f", "error: device 1: layer_0/w: expected a part, given 3", "public"),
                ("g", "it does not compile: \u2018::socket\u2019 has not been declared (at `::socket`)", "public")):
            unknown = [Part("03.1", "u", kind, 4, 0, ["y: no known cause"])] * (kind != "memory")
            told.append(Graded(name, [Part("03.1", "t", kind, 4, 0, [why]), *unknown]))
        rows = class_view.reasons(class_view.students_of(told, {}, "", "best"), ["03.1"])
        self.assertIn(["03.1", cause, 2, "a, b"], rows)
        self.assertEqual({row[1] for row in rows}, {cause, "does not compile: a Partial",
                                                    "does not compile: \u2018::socket\u2019 has not been declared",
                                                    "sends something else", "not done", "nothing handed in",
                                                    "ends with an error: expected a part",
                                                    "wrong results of no known cause"})

    def test_answers_that_are_alike(self):
        """Names, comments and exchanged lines hide no copy; the chapter is a member of each group."""
        file = exercises.source(HOLE.file).read_text()
        chapter = file[slice(*HOLE.body(file))]
        renamed = re.sub(r"\bx\b", "input_rows", re.sub(r"\bkept\b", "saved", re.sub(r"\bh\b", "hidden", chapter)))
        text = "\n  Replicated x(group(), in);  // one\n  Partial out = matmul(h, w1);\n  out += l < 2;\n  f(out, x);"
        moved = "Partial sum=matmul(h, w1); Replicated all(group(), in); sum+=l < 2; f(sum, all);"
        other = text.replace("matmul", "add").replace("f(out, x)", "g(x)")
        for bodies, groups in (((text, moved, other), [("03.1", ["a", "b"], 1)]), ((text, other), []),
                               ((renamed,), [("03.1", ["the chapter", "a"], 1)]),
                               ((chapter, text, renamed), [("03.1", ["the chapter", "a", "c"], 1)])):
            told = [dataclasses.replace(self.graded, name=name, answers={"03.1": {HOLE: body}})
                    for name, body in zip("abc", bodies)]
            self.assertEqual(class_view.alike(class_view.students_of(told, {}, "", "best")), groups)
            rows, page = self.table(*told)
            said = {name: f"03.1: {', '.join(n for n in group if n != name)}" for _, group, _ in groups for name in group}
            self.assertEqual([row[-1] for row in rows[1:]], [said.get(row[0], "") for row in rows[1:]])
            self.assertEqual("<td>100%</td>" in page, bool(groups))

    def test_some_are_graded_anew(self):
        """The rows of the others stay as they are."""
        other = dataclasses.replace(self.graded, name="bob")
        text = "submission,student,Email\nada,Ada,a@x\nada 2,Ada,a@x\nbob,Bob,b@x\n"
        rows, _ = self.table(self.graded, other, text=text)
        before = class_view.of_others(class_view.read_points(self.folder / "t.csv"), ["ada 2"],
                                      class_view.read_class(self.folder / "class.csv", ["03.1"]))
        self.assertEqual([row["student"] for row in before], ["Bob"])
        better = Graded("ada 2", [Part("03.1", "2 train", "public", 8, 7, [])])
        students = class_view.students_of([better], class_view.read_class(self.folder / "class.csv", []), "", "best")
        class_view.write_csv(students, ["03.1"], self.folder / "t.csv", "", before)
        with open(self.folder / "t.csv", newline="") as file:
            self.assertEqual(list(csv.reader(file)), [rows[0], rows[2], ["ada 2", "Ada", "a@x", "7", "8", "7", ""]])
        (self.folder / "t.csv").write_text("a\n1\n")
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as said:
            class_view.read_points(self.folder / "t.csv")
        self.assertIn("expected a table that grade wrote", said.getvalue())

    def test_text(self):
        self.assertEqual(results.as_text(self.graded).splitlines()[:3],
                         ["ada: 4 of 8 points (2 s)", "  03.1      4 of 8", "          hidden: 3 train"])


class Scripts(Folder):
    """The script `grade`, without a grader."""
    def setUp(self):
        super().setUp()
        loader = SourceFileLoader("grade", str(root / "chapters/course/grade"))
        self.grade = module_from_spec(spec_from_loader("grade", loader))
        with mock.patch("setup.main"):
            loader.exec_module(self.grade)

    def test_who_handed_in_nothing(self):
        rows = {"ada 1": {"student": "Ada"}, "ada 2": {"student": "Ada"}, "zed": {}, "Kim": {"student": "Kim K"}}
        without = mock.Mock(without=lambda name, why: (name, why))
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(self.grade.absent(without, "class.csv", rows, ["ada 1", "fay"]),
                             [("zed", "nothing was handed in"), ("Kim", "nothing was handed in")])
        self.assertEqual(said.getvalue(), "class.csv: no folder ada 2, zed, Kim\nclass.csv: no row for fay\n")
        self.assertEqual(self.grade.absent(without, None, {}, ["fay"]), [])

    def test_a_table_of_others_stays(self):
        file = self.folder / "points.csv"
        self.grade.require_no_others({"--csv": file}, ["a"], {})
        file.write_text("submission,points\na,1\nb,2\n")
        self.grade.require_no_others({"--csv": file}, ["a", "b"], {})
        self.grade.require_no_others({"--csv": file}, ["a", "b 2"], {"b 2": {"student": "b"}})
        with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()) as said:
            self.grade.require_no_others({"--csv": file}, ["a"], {})
        self.assertEqual(ended.exception.code, 65)
        self.assertIn("given 1 others, such as b: --into", said.getvalue())

    def test_a_student_is_graded_anew_with_all_folders(self):
        table = {"b 1": {"student": "b"}, "b 2": {"student": "b"}, "c": {"student": ""}, "d": {}}
        self.grade.require_all_of(["b 1", "b 2", "c"], table)
        with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()) as said:
            self.grade.require_all_of(["c", "b 2"], table)
        self.assertEqual(ended.exception.code, 65)
        self.assertIn("--into: expected all folders of b, given b 2 without b 1", said.getvalue())


class Words(unittest.TestCase):
    def test_bad_words(self):
        for words, code, said in (([], 64, "grade: expected folders, given nothing"),
                                  (["/nowhere"], 65, "/nowhere: expected a folder, given none"),
                                  ([root, "--sandbox", "x"], 64, "--sandbox: expected namespaces or user"),
                                  ([root, "--exercises", "99"], 64, "--exercises: expected ids"),
                                  ([root, root, "--json", "x"], 64, "--json: expected a file with %s"),
                                  ([root, "--seed"], 64, "--seed: expected a word, given nothing"),
                                  ([root, "--keep", "x"], 64, "--keep: expected best or last, given x"),
                                  ([root, "--into", "x", "--html", "y"], 64, "--into: expected neither --csv nor"),
                                  (["--what"], 64, "grade: expected folders, given --what")):
            job = subprocess.run([root / "chapters/course/grade", *words], capture_output=True, text=True)
            self.assertEqual((job.returncode, job.stdout), (code, ""), words)
            self.assertRegex(job.stderr, f"^error: {re.escape(said)}[^\n]*\n$")


unittest.main()
