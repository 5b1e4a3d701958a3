#!/usr/bin/python3
"""package_test.py: the wheel is built without a download, installs in an empty environment, and runs there; processes of
a test, and mistakes planted in collectives."""
import ast
import json
import os
import subprocess
import sys
import tempfile
import threading
import unittest
import venv
from pathlib import Path

import numpy as np

here = Path(__file__).resolve().parent
suite = here.parents[1] / "chapters/suite"
sys.path[:0] = [str(suite), str(here)]
import network
import shardbook_check as sb

PARAMS, BATCH = network.numbers()
foreign = os.environ.get("FOREIGN_PYTHON", "")  # one that has pytest and PyTorch

# program, processes, mistake, what is said
EXAMPLES = (
    ("ddp", 3, "", "6 results are right"), ("ddp", 3, "mean", "one cause in 6 of 6: 1/3 of it in every element: a mean"),
    ("ddp", 3, "own", "one cause in 6 of 6: the mean over each device's own rows"),
    ("fsdp_tensor", 4, "", "42 results are right"),
    ("fsdp_tensor", 4, "mean", "every gradient 1/2 of it: a mean over data"), ("fsdp_tensor", 4, "norm", "results differ"),
    ("mistral", 2, "", "21 results are right"), ("mistral", 2, "mean", "1/2 of it in every element: a mean"),
    ("mistral", 2, "own", "the mean over each device's own rows"),
    ("jax_shard_map", 0, "", "3 results are right"), ("jax_shard_map", 0, "mean", "1/2 of it in every element: a mean"),
    ("jax_shard_map", 0, "twice", "2 times it in every element"))


def right(mesh):
    assert mesh == {"data": 2, "tensor": 2} and os.environ["WORLD_SIZE"] == "4"


def wrong(mesh, words):
    assert os.environ["RANK"] != "1", words


def hangs(mesh):
    threading.Event().wait()


# Trainings whose references a bound needs: one differentiates by its input, too; one is traced, and clipped.
TRAININGS = ("""
import torch, shardbook_check as sb
def reference(params, batch):
    w, x = (t.detach().clone().requires_grad_() for t in (params["w"], batch["x"]))
    ((x @ w) ** 2).mean().backward()
    return {"w": w.grad}
case = sb.case(reference, {"w": torch.ones(3, 2)}, {"x": torch.randn(5, 3)}, optimizer=lambda of: torch.optim.SGD(of, 0.5), steps=2)
""", """
import jax, shardbook_check as sb
def reference(params, batch):
    return {"w": jax.grad(lambda w: ((batch["x"] @ w) ** 2).mean())(params["w"])}
def sgd(params, grads, state):
    return {name: params[name] - 0.5 * g for name, g in grads.items()}
x = jax.random.normal(jax.random.key(0), (5, 3))
case = sb.case(reference, {"w": jax.numpy.ones((3, 2))}, {"x": x}, optimizer=sgd, steps=2, clip=0.25)
""")


class Package(unittest.TestCase):
    def run_on(self, test, mesh, seconds=60, **more):
        from shardbook_check.launch.ranks import run
        run(test, mesh, ("data", "tensor"), None, seconds, "cpu", more)

    def test_the_wheel(self):
        with tempfile.TemporaryDirectory(prefix="a folder ") as folder:
            folder = Path(folder)
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
            offline = ["--no-index", "--no-deps"]
            subprocess.run([*pip, "wheel", *offline, "-w", folder, suite], check=True)
            wheel, = folder.glob("*.whl")
            self.assertLess(wheel.stat().st_size, 2**20)
            venv.create(folder / "env", system_site_packages=True, with_pip=False)  # NumPy is the system's
            python = folder / "env/bin/python"
            subprocess.run([*pip, "--python", python, "install", *offline, wheel], check=True)
            env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

            def call(*words):
                ended = subprocess.run(list(map(str, words)), capture_output=True, text=True, cwd=folder, env=env)
                self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
                return ended.stdout.strip()
            where = call(python, "-c", "import shardbook_check as sb; print(sb.__file__)")
            self.assertTrue(where.startswith(str(folder)), where)
            command = folder / "env/bin/shardbook-check"
            call(command, "export", folder / "problems")
            made, golden = (json.loads(file.read_text())["problems"] for file in
                            (folder / "problems/manifest.json", Path(where).parent / "problems/golden.json"))
            exact = [{entry["name"]: entry["sha256"]["expected"] for entry in of if entry["kind"] == "exact"} for of in
                     (made, golden)]
            self.assertEqual(*exact)
            self.assertIn("1 held: 1 right", call(command, "run", "--problems", "mlp-exact-13x7x11x7", "--session", "--devices",
                                                  2, "--", python, here / "solves.py", "session", "{folder}", "{devices}"))
            said = call(python, "-c", "from importlib.metadata import distribution; "
                        "print([p.load().__name__ for p in distribution('shardbook-check').entry_points if p.group == 'pytest11'])")
            self.assertEqual(said, "['shardbook_check.launch.pytest_plugin']")

    def test_all_of_it_is_python_3_9(self):
        for file in suite.rglob("*.py"):
            ast.parse(file.read_text("utf-8"), file.name, feature_version=(3, 9))

    def test_processes_of_a_test(self):
        self.run_on(right, (2, 2))
        with self.assertRaisesRegex(AssertionError, "on 3 devices: process 1: of mine"):
            self.run_on(wrong, 3, words="of mine")
        with self.assertRaisesRegex(AssertionError, "expected an end within 2 s"):
            self.run_on(hangs, 2, seconds=2)

    def test_each_mutant_is_noticed_by_a_check(self):
        """A data parallel program of two threads, which reduce by a function of an array."""
        for mutant in ("", *(name for name in sb.MUTANTS if name != "another slice")):  # an all_reduce has no slices
            found, meeting, slots = [None, None], threading.Barrier(2), [None, None]

            def device(rank):
                def all_reduce(array):
                    slots[rank] = array
                    meeting.wait()
                    total = slots[0] + slots[1]
                    meeting.wait()
                    return total
                reduce = sb.planted(all_reduce, mutant, rank, 2) if mutant else all_reduce
                params, state = dict(PARAMS), {}
                for _ in range(2):
                    mine = network.addends(params, BATCH, 2)[rank]
                    params = network.momentum(params, {name: reduce(mine[name]) for name in PARAMS}, state)
                found[rank] = params
            threads = [threading.Thread(target=device, args=(rank,)) for rank in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            case = sb.case(network.step, PARAMS, BATCH, optimizer=network.momentum, steps=2)
            with self.subTest(mutant):
                if mutant:
                    with self.assertRaises(sb.Differs):
                        sb.check(found, case)
                else:
                    sb.check(found, case)

    def test_a_command_without_collectives_has_no_mutants(self):
        for program, words in (("pass", "no mistake was made"), ("raise SystemExit(3)", "expected code 0 without a mistake")):
            command = [sys.executable, suite / "shardbook-check", "mutants", "--", sys.executable, "-c", program]
            ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
            self.assertEqual(ended.returncode, 65, ended.stdout)
            self.assertIn(words, ended.stderr)

    def test_even_problems(self):
        from shardbook_check.launch import pytest_plugin
        listed = pytest_plugin.listed()
        of_8 = {problem.name for problem in listed if "16x8" in problem.name or "even" in problem.name}
        self.assertEqual({problem.name for problem in listed if pytest_plugin.is_even(problem)}, of_8)

    @unittest.skipUnless(foreign, "FOREIGN_PYTHON: no Python with pytest and PyTorch")
    def test_the_plugin(self):
        env = {**os.environ, "PYTHONPATH": str(suite)}
        words = [foreign, "-m", "pytest", "-p", "shardbook_check.launch.pytest_plugin", "-q", here / "with_pytest.py"]
        ended = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, env=env)
        self.assertIn("mutants of test_of_the_test: 6 noticed", ended.stdout)
        self.assertEqual(ended.returncode, 0, ended.stdout)

    @unittest.skipUnless(foreign, "FOREIGN_PYTHON: no Python with PyTorch, transformers and JAX")
    def test_examples(self):
        for name, devices, mistake, words in EXAMPLES:
            with self.subTest(name, mistake=mistake):
                launcher = ["-m", "torch.distributed.run", "--nproc-per-node", devices] if devices else []
                command = [foreign, *launcher, here / f"examples/{name}.py", *mistake.split()]
                ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False,
                                       env={**os.environ, "PYTHONPATH": str(suite), "OMP_NUM_THREADS": "1"})
                self.assertIn(words, ended.stdout + ended.stderr)
                self.assertEqual(ended.returncode == 0, not mistake)

    @unittest.skipUnless(foreign, "FOREIGN_PYTHON: no Python with PyTorch and JAX")
    def test_trainings_have_bounds(self):
        for program in TRAININGS:
            ended = subprocess.run([foreign, "-c", program + "print(0 < case.limits['w'].max() < 1e-5)"], capture_output=True, text=True,
                                   check=False, env={**os.environ, "PYTHONPATH": str(suite)})
            self.assertEqual(ended.stdout, "True\n", ended.stderr)

    @unittest.skipUnless(foreign, "FOREIGN_PYTHON: no Python with PyTorch")
    def test_a_session_keeps_its_processes(self):
        for strategy in ("ddp", "fsdp"):
            command = [foreign, suite / "shardbook-check", "run", "--session", "--problems", "mlp-real-1*,mlp-sgd-16x8x24x8*",
                       "--devices", "1,2,3", "--", foreign, "-m", "torch.distributed.run", "--nproc-per-node", "{most}",
                       here / "examples/session.py", "{folder}", strategy]
            ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False,
                                   env={**os.environ, "OMP_NUM_THREADS": "1"})
            self.assertIn("12 held: 12 right, 0 wrong", ended.stdout + ended.stderr)


if __name__ == "__main__":
    unittest.main()
