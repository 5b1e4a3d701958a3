#!/usr/bin/python3
"""own_model_test.py: right sharded programs raise no alarm against themselves on one device, and wrong ones are named."""
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np

here = Path(__file__).resolve().parent
suite = here.parents[1] / "chapters/suite"
sys.path[:0] = [str(suite), str(here)]
import network
import shardbook_check as sb

PARAMS, BATCH = network.numbers()
STEP = sb.case(network.step, PARAMS, BATCH, name="step")
TRAINING = sb.case(network.step, PARAMS, BATCH, optimizer=network.momentum, steps=3, name="training")

# mistake, devices, the first wrong result, and what the cause has.
DATA_PARALLEL = (
    ("mean", 3, "down", "1/3 of it in every element"),
    ("own means", 3, "down", "the mean over each device's own rows, and then their mean"),
    ("strided", 3, "down", "then their mean over devices? (rows r, r + N, ...)"),
    ("no reduction", 3, "down", "an addend: those of all devices add up to it"),
    ("dropped", 4, "down", "is missing from the sum: device 3's where 4 devices divide the rows"),
    ("twice", 4, "down", "is in the sum twice: device 0's where 4 devices divide the rows"),
    ("a row twice", 3, "down", "row 0 of the batch is in the sum twice"),
    ("rest dropped", 3, "down", "row 3 of the batch is missing"),
    ("16 bits", 3, "down", "bfloat16 numbers in every element"),
    ("drift", 3, "up", "devices 0 and 1 have different copies"),
    ("sign", 3, "down", "-1 times it"))  # of this tensor alone
TRAINED = (
    ("mean", 3, "every gradient 1/3 of it"),
    ("own means", 3, "the mean over each device's own rows, and then their mean"),
    ("stale", 2, "gradients of the step before: a stale bucket?"),
    ("zero_grad", 2, "gradients of all steps added up"),
    ("dropped", 3, "device 2's addend is missing from every gradient"))
ON_MESH = (
    ("mean", "down", "1/2 of it in every element: a mean over data, or over tensor"),
    ("no reduction", "down", "an addend: those over data add up to it: a reduction over data left out?"),
    ("swapped", "hidden", "device 0's slice, not device 1's"),
    ("out not reduced", "out", "an addend: those over tensor add up to it"))


class OwnModel(unittest.TestCase):
    def wrong(self, results, case, mesh, tensor, cause, layout=None):
        with self.assertRaises(sb.Differs) as raised:
            sb.check(results, case, mesh, layout=layout)
        first, verdict = raised.exception.verdict.differences[0], raised.exception.verdict
        self.assertIn(cause, first.cause, verdict)
        if tensor:
            self.assertEqual(first.tensor, tensor, verdict)
        return verdict

    def test_right_programs_raise_no_alarm(self):
        for seed in range(20):
            params, batch = network.numbers(seed)
            case = sb.case(network.step, params, batch)
            for devices in (1, 2, 3, 4, 7):
                verdict = sb.check(network.data_parallel(params, batch, devices), case)
                self.assertGreater(verdict.worst, 1e-3)  # the bound is no multiple of what is needed
            sb.check(network.on_mesh(params, batch), case, network.MESH, layout=network.LAYOUT)
            sb.check(network.on_mesh(params, batch), case, network.MESH)  # as shapes say

    def test_right_training_raises_no_alarm(self):
        for devices in (1, 2, 3, 5):
            sb.check(network.trained(PARAMS, BATCH, devices, 3), TRAINING)

    def test_wrong_data_parallel_programs_are_named(self):
        for mistake, devices, tensor, cause in DATA_PARALLEL:
            with self.subTest(mistake):
                verdict = self.wrong(network.data_parallel(PARAMS, BATCH, devices, mistake), STEP, None, tensor, cause)
                self.assertTrue(all(cause in d.cause for d in verdict.differences), verdict)

    def test_wrong_trainings_are_named(self):
        for mistake, devices, cause in TRAINED:
            with self.subTest(mistake):
                self.wrong(network.trained(PARAMS, BATCH, devices, 3, mistake), TRAINING, None, None, cause)

    def test_wrong_programs_on_a_mesh_are_named(self):
        params, batch = network.numbers(0, 12)
        case = sb.case(network.step, params, batch)
        for mistake, tensor, cause in ON_MESH:
            for layout in (network.LAYOUT, None):
                with self.subTest(mistake, layout=layout):
                    self.wrong(network.on_mesh(params, batch, mistake), case, network.MESH, tensor, cause, layout)

    def test_pieces_of_a_flat_buffer(self):
        grads, whole = network.data_parallel(PARAMS, BATCH, 2)[0], [{}, {}]
        for name in PARAMS:
            first, second = np.array_split(grads[name].ravel(), [5])
            whole[0][name], whole[1][name] = first, second
        sb.check(whole, STEP)
        whole[1]["up"] = whole[1]["up"] * np.float32(2)
        self.wrong(whole, STEP, None, "up", "2 times it")

    def test_an_expert_on_one_device_is_no_alarm(self):
        grads = network.data_parallel(PARAMS, BATCH, 3)
        del grads[0]["up"], grads[2]["up"]
        sb.check(grads, STEP)
        grads[1]["up"] = grads[1]["up"] * np.float32(3)
        self.wrong(grads, STEP, None, "up", "3 times it")
        grads = network.data_parallel(PARAMS, BATCH, 3)
        del grads[1]["up"]  # two of three have it
        self.wrong(grads, STEP, None, "up", "expected (7, 11)")

    def test_bounds_of_what_is_written_in_place(self):
        def sorted_step(params, batch):
            found, order = network.step(params, batch), np.argsort(-batch["x"], axis=1)
            put = np.zeros_like(batch["x"])
            np.put_along_axis(put, order, np.take_along_axis(batch["x"], order, 1), 1)
            return {**found, "up": put.T @ (batch["x"] @ found["up"])}
        case = sb.case(sorted_step, PARAMS, BATCH)
        self.assertLess(case.limits["up"].max(), 1e-4 * np.abs(case.results["up"]).max())

    def test_one_element_is_noticed(self):
        for name, value in PARAMS.items():
            for at in range(0, value.size, 7):
                grads = network.data_parallel(PARAMS, BATCH, 2)
                grads[1][name].flat[at] += np.float32(2 * STEP.limits[name].flat[at] + 1e-30)
                self.wrong(grads, STEP, None, name, "")

    def test_coarser_arithmetic_is_allowed_only_if_said(self):
        case = sb.case(network.step, PARAMS, BATCH, precision="bf16")
        rounded = network.data_parallel(PARAMS, BATCH, 3, "16 bits")
        sb.check(rounded, case)
        self.wrong(network.data_parallel(PARAMS, BATCH, 3, "mean"), case, None, "down", "1/3 of it")

    def test_results_stored_in_16_bits(self):
        """What is right up to the bound is right when it is stored, also where two neighbours are nearest."""
        for name, dtype in itertools.product(("mlp-real-16x8x24x8", "decoder-real-even", "mixture-real-16x8x16x8-8-top2"), ("BF16", "F16")):
            problem, random = sb.problem(name), np.random.default_rng(0)
            ends = [{name: want + sign * 0.9 * problem.bounds()[name] * random.choice([-1.0, 1.0], want.shape)
                     for name, want in problem.expected.items()} for sign in (1, -1) * 8]
            for of in ends:
                verdict = sb.check_pieces(problem, 1, [{name: sb.Stored(sb.rounded(t, dtype), dtype) for name, t in of.items()}])
                self.assertTrue(verdict.is_right, verdict)
            last = list(ends[0])[-1]
            wrong = {**ends[0], last: ends[0][last] * 1.02}
            self.assertFalse(sb.check_pieces(problem, 1, [{name: sb.Stored(sb.rounded(t, dtype), dtype) for name, t in wrong.items()}]).is_right)
        for sign in (1, -1) * 8:
            random = np.random.default_rng(0)
            ends = {name: STEP.results[name] + sign * 0.9 * STEP.limits[name] * random.choice([-1.0, 1.0], np.shape(STEP.results[name]))
                    for name in PARAMS}
            sb.check([{name: t.astype("f2") for name, t in ends.items()}], STEP)

    def test_training_gives_its_reference_float64(self):
        seen = []

        def step(params, batch):
            seen.extend(value.dtype for value in (*params.values(), *batch.values()))
            return network.step(params, batch)
        case = sb.case(step, PARAMS, [BATCH, BATCH], optimizer=network.momentum, steps=3, precision="bf16")
        self.assertGreater(case.limits["up"].max(), 0)
        self.assertEqual(set(map(str, seen)), {"float64"})

    def diff(self, folder, devices, code, *words):
        """What the command says of these devices' results."""
        sharded = Path(folder) / "sharded"
        shutil.rmtree(sharded, ignore_errors=True)
        sharded.mkdir()
        for k, results in enumerate(devices):
            sb.write(sharded / f"device_{k}.safetensors", results)
        content = {"version": 1, "mesh": network.MESH, "tensors": network.LAYOUT}
        (sharded / "layout.json").write_text(json.dumps(content))
        command = [sys.executable, suite / "shardbook-check", "diff", Path(folder) / "single", sharded, *words]
        ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        self.assertEqual(ended.returncode, code, ended.stdout + ended.stderr)
        return ended.stdout + ended.stderr

    def test_two_folders(self):
        with tempfile.TemporaryDirectory() as folder:
            single, right = Path(folder) / "single", network.on_mesh(PARAMS, BATCH)
            single.mkdir()
            self.assertIn("single/results.safetensors: expected", self.diff(folder, right, 65))
            doubles = {name: value.astype(float) for name, value in BATCH.items()}
            results = network.step(PARAMS, doubles)
            del results["loss"]
            sb.write(single / "results.safetensors", results, "F64")
            self.assertIn("bounds are assumed", self.diff(folder, right, 0))
            sb.write(single / "params.safetensors", PARAMS)
            words = [sys.executable, suite / "shardbook-check", "move", single / "params.safetensors", single / "moved"]
            subprocess.run(list(map(str, words)), check=True)
            for k in range(16):
                params = {name: of.values for name, of in sb.read(single / f"moved/params_{k}.safetensors").items()}
                sb.write(single / f"moved_{k}.safetensors", network.step(params, doubles), "F64")
            self.assertNotIn("bounds are assumed", self.diff(folder, right, 0))
            wrong = network.on_mesh(PARAMS, BATCH, "mean")
            self.assertIn("1/2 of it in every element: a mean over data, or over tensor", self.diff(folder, wrong, 86))
            del wrong[0]["up"], wrong[1]["up"], wrong[2]["up"], wrong[3]["up"]
            self.assertIn("up: expected a result of this name", self.diff(folder, wrong, 86))

    def test_what_cannot_be_a_reference_is_refused(self):
        random = np.random.default_rng(1)
        cases = ((lambda p, b: {**network.step(p, b), "up": random.normal(size=(7, 11))}, "the same in two runs"),
                 (lambda p, b: {"loss": network.step(p, b)["loss"]}, "gradients under the parameters' names"),
                 (lambda p, b: {**network.step(p, b), "up": p["up"] * np.inf}, "finite numbers"))
        for reference, words in cases:
            with self.assertRaisesRegex(sb.Refused, words):
                sb.check([{}], sb.case(reference, PARAMS, BATCH))
        with self.assertRaisesRegex(sb.Refused, "none was seen"):
            unseen = sb.case(lambda p, b: network.step(*({n: np.array(v) for n, v in of.items()} for of in (p, b))),
                             PARAMS, BATCH)
            sb.check(network.data_parallel(PARAMS, BATCH, 2), unseen)
        with self.assertRaisesRegex(sb.Refused, "expected 2 devices"):
            sb.check(network.data_parallel(PARAMS, BATCH, 2), STEP, {"data": 3})


if __name__ == "__main__":
    unittest.main()
