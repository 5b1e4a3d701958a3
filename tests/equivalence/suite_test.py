#!/usr/bin/python3
"""suite_test.py PROGRAMS: tests the suite for foreign implementations: its problems, its verdicts on right and
wrong implementations, and its answers to bad files. PROGRAMS has the chapters' programs."""
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np

here = Path(__file__).resolve().parent
suite = here.parents[1] / "chapters/suite"
sys.path.insert(0, str(suite))
os.environ.update(PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=str(suite))  # of adapters
import shardbook_check as sb
from shardbook_check import causes, layouts, wrong_versions
from shardbook_check.command import main
from shardbook_check.problems import bounded, kinds, networks, other_functions
from shardbook_check.problems.layers import OnGrid, Real

programs = Path(sys.argv.pop(1)).resolve()
python = "/usr/bin/python3"
foreign = os.environ.get("FOREIGN_PYTHON", python)  # one that has PyTorch, or JAX
SMALL, EVEN = "mlp-exact-13x7x11x7", "mlp-exact-16x8x24x8x24x8"
REAL_MLP = "mlp-real-13x7x11x7"
SGD, ADAM = "mlp-sgd-16x8x24x8", "mlp-adam-16x8x24x8"
TOP_1, TOP_2 = "mixture-exact-23x5x7x5-5-top1", "mixture-exact-11x5x7x5-3-top2"
FULL = "mixture-exact-16x5x7x5-7-top2-full"


def problems_with_tokens():
    return [problem for problem in sb.problems() if problem.workload in kinds.TOKENS]


class Suite(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="a folder ")
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)

    def call(self, command, *words, code=0):
        """What a command of the suite says, on standard output, and on standard error where it refuses."""
        said, refused = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(refused):
            try:
                ended = main([command, *map(str, words)])
            except SystemExit as error:
                ended = error.code
        self.assertEqual(ended, code, said.getvalue() + refused.getvalue())
        return (refused if code in (64, 65) else said).getvalue()

    def adapter(self, name, problems, devices, edit=None, code=0, strategy=(), with_python=python):
        """Runs the suite on an adapter, with one text of it replaced."""
        shutil.copytree(here / "adapters", self.scratch / "adapters", dirs_exist_ok=True)
        adapter, shared = (self.scratch / f"adapters/{file}.py" for file in (name, "numpy_decoder"))
        if edit:
            file = adapter if edit[0] in adapter.read_text() else shared
            text = file.read_text()
            self.assertEqual(text.count(edit[0]), 1, edit[0])
            file.write_text(text.replace(*edit))
        out = "{out}" if name.startswith(("jax", "transformers")) else "{out_dir}"
        return self.call("run", "--problems", problems, "--devices", devices, "--json",
                         self.scratch / "v.json", "--", with_python, adapter, *strategy, "{problem}", out,
                         "{devices}", code=code)

    def wrong_versions(self, name, table, devices, **more):
        """The suite must find each wrong version, and name the device, the tensor and the cause."""
        for text, instead, problem, tensor, device, cause in table:
            with self.subTest(instead):
                said = self.adapter(name, problem, devices, (text, instead), code=86, **more)
                found = json.loads((self.scratch / "v.json").read_text())["verdicts"][0]["differences"]
                self.assertTrue(any(d["tensor"] == tensor and d["device"] == device and cause in d["cause"]
                                    for d in found), said)


class Problems(Suite):
    def test_golden_vectors(self):
        """Inputs and exact results are those of version 1, bit for bit. (unsharded_test.cpp holds all results.)"""
        self.call("export", self.scratch / "new")
        made, stored = (json.loads(path.read_text()) for path in (self.scratch / "new/manifest.json",
                                                                  suite / "shardbook_check/problems/golden.json"))
        for entry in made["problems"] + stored["problems"]:
            if entry["kind"] != "exact":
                del entry["sha256"]["expected"]  # NumPy may round otherwise elsewhere
        self.assertEqual(made, stored)

    def test_no_problem_hides_a_mistake(self):
        for problem in sb.problems():
            rows = problem.batch["input_ids" if problem.workload in kinds.TOKENS else "input"]
            self.assertEqual(len(np.unique(rows, axis=0)), problem.batch_size, problem.name)
            for name, want in problem.expected.items():
                is_zero = name == "router/weights" and not problem.has_ties  # where probabilities are 1 and 0
                self.assertGreater((want != 0).mean(), -1 if is_zero else 0.3, (problem.name, name))
        sizes = [n for problem in sb.problems() if problem.workload not in kinds.TOKENS
                 for n in (problem.batch_size, *problem.widths)]
        self.assertLess(min(sizes), 8)  # fewer rows or columns than devices
        exact = sb.problem(SMALL)
        product = exact.batch["input"] @ exact.params["layer_0/weights"]
        self.assertTrue((product == 0).any())  # a ReLU at its kink

    def test_problems_for_coarse_operands_and_even_sizes(self):
        """Of each kind one is decided in bf16, and has sizes that 2, 4 and 8 divide."""
        for name in ("mlp-adam-16x8x24x8-far", "mlp-sgd-16x8x24x8-weighted", "mixture-real-16x8x16x8-8-top2",
                     "decoder-real-even-experts", "decoder-real-even-window-tied", "t5-real-even"):
            problem = sb.problem(name)
            for result, bound in problem.bounds("bf16").items():
                self.assertTrue(np.isfinite(bound).all(), (name, result))
            sizes = [n for want in problem.expected.values() for n in want.shape if n > 4]
            self.assertEqual([n for n in sizes if n % 8], [], name)

    def test_an_exact_mixture_without_ties(self):
        """Any router is right: also one that takes the last of equals."""
        problem = sb.problem("mixture-exact-16x8x16x8-8-top1-apart")
        logits = np.sort(problem.batch["input"] @ problem.params["router/weights"], axis=1)
        self.assertTrue((logits[:, -1] - logits[:, -2] >= 1024).all())
        other = kinds.after(problem, forgets="the first of equals")
        for name, want in problem.expected.items():
            self.assertEqual(other[name].tolist(), want.tolist(), name)

    def test_other_functions_go_backward_as_they_go_forward(self):
        """By central differences, of the sum of all results times a gradient."""
        numbers, step = np.random.default_rng(1), 2.0**-17
        x, up, dy = numbers.uniform(-2, 2, (3, 1, 4, 6))
        w = numbers.uniform(0.5, 1.5, (6, 1)).T
        for forgets in other_functions.CAUSES:
            layers = other_functions.of_mistake(Real(bounded.Precision(0, 0), epsilon=0.1, samples=0), forgets)
            is_norm = "norms" in forgets or "epsilon" in forgets
            forward = (lambda t: layers.norm(t, w)[0]) if is_norm else lambda t: layers.gated(t, up)
            back = layers.norm_backward_of_rows(dy, w, layers.norm(x, w)[1]) if is_norm else layers.gated_backward(dy, x, up)[0]
            for at in np.ndindex(*x.shape):
                by = np.zeros_like(x)
                by[at] = step
                slope = ((forward(x + by) - forward(x - by)) * dy).sum() / (2 * step)
                self.assertAlmostEqual(back[at], slope, delta=1e-7, msg=(forgets, at))

    def test_an_exact_mixture_has_all_gates_and_drops_choices(self):
        problem = sb.problem(TOP_1)
        logits = problem.batch["input"] @ problem.params["router/weights"]
        gates = networks.softmax(bounded.Bounded.exact(logits, bounded.EXACT)).value.max(axis=1)
        self.assertEqual(set(gates), {1, 0.5, 0.25})
        full = sb.problem(FULL)
        roomy = replace(full, capacity_factor="none").expected["output"]
        self.assertGreater((full.expected["output"] != roomy).any(axis=1).sum(), 2)

    def test_what_float32_does_not_hold_is_no_exact_problem(self):
        def exact(*values):
            return bounded.Bounded.exact([values], bounded.EXACT)
        self.assertEqual(bounded.unit_of(np.array([6, 0.75, 0])), 0.25)
        for compute in (lambda n: exact(n, 1) @ exact(1, 1).T,
                        lambda n: networks.sum_of([exact(n), exact(1)]),
                        lambda n: exact(n) - exact(1)):
            compute(2.0**21)
            with self.assertRaises(sb.Undecided):
                compute(2.0**24)
        networks.softmax(exact(0, 0))
        with self.assertRaises(sb.Undecided):
            networks.softmax(exact(0, 0, 0))

    def test_no_order_of_summation_exceeds_the_bound(self):
        random = np.random.default_rng(1)
        problem = sb.problem("mlp-real-16x8x24x8")
        w, x = problem.params, problem.batch["input"].astype("f4")
        for _ in range(50):
            order = random.permutation(24)
            h = np.maximum(x @ w["layer_0/weights"].astype("f4"), 0)
            y = np.zeros((16, 8), "f4")
            for k in order:
                y += np.outer(h[:, k], w["layer_1/weights"][k].astype("f4"))
            self.assertTrue((np.abs(y - problem.expected["output"]) <= problem.bounds()["output"]).all())

    def test_numbers_that_rounding_decides_are_in_no_exact_problem(self):
        layers = OnGrid(sb.problem(PLAIN).grid, 0.0, is_checked=True)
        self.assertEqual(layers.rounded([0.0625, 0.1875, 0.06, -70]).tolist(), [0, 0.25, 0, -64])
        for compute in (lambda: layers.rounded(0.0625 + 2.0**-27), lambda: layers.held(1 + 2.0**-30),
                        lambda: layers.product(np.array([[2.0**25, 1]]), np.ones((2, 1)))):
            with self.assertRaises(sb.Undecided):
                compute()

    def test_bounds_of_networks_of_tokens_are_small(self):
        for problem in problems_with_tokens():
            for name, result in problem.results("float32").items():
                self.assertLess(result.error.max(), 1e-3 * np.abs(result.value).max(), (problem.name, name))
                self.assertEqual(problem.kind == "exact", not result.error.any(), (problem.name, name))

    def test_bounds_of_a_shape(self):
        said = self.call("bound", "--batch", 64, "--widths", "64,128,64", "--precision", "bf16")
        self.assertRegex(said, r"layer_1/weights +\d\.\de-0\d +\d\.\de-0\d +\d\.\de")


class Implementations(Suite):
    def chapter(self, name, *options):
        return ["--", here.parents[1] / "chapters/on_devices", "{devices}", programs / name, "gradients",
                "--params", "{params}", "--batch", "{batch}", "--out", "{out}", *options]

    def test_a_chapter(self):
        said = self.call("run", "--problems", f"{SMALL},mlp-real-13*", "--devices", "1,3", "--json",
                         self.scratch / "v.json", "--junit", self.scratch / "v.xml",
                         *self.chapter("03_tensor_parallel"))
        self.assertIn("4 held: 4 right, 0 wrong; 0 refused", said)
        verdicts = json.loads((self.scratch / "v.json").read_text())["verdicts"]
        self.assertEqual([(v["problem"], v["devices"], v["right"]) for v in verdicts],
                         [(p, n, True) for p in (SMALL, "mlp-real-13x7x11x7") for n in (1, 3)])
        cases = xml.parse(self.scratch / "v.xml").getroot()
        self.assertEqual([cases.get(key) for key in ("tests", "failures", "skipped")], ["4", "0", "0"])

    def test_the_mixture(self):
        options = ["--variant", "top-k", "--top-k", "{top_k}", "--capacity-factor", "{capacity_factor}",
                   "--aux-weight", "{aux_weight}"]
        said = self.call("run", "--problems", "mixture-*top2*", "--devices", "3",
                         *self.chapter("05_expert", *options))
        self.assertIn("6 held: 6 right", said)
        options = ["--variant", "switch", "--capacity-factor", "none", "--aux-weight", "{aux_weight}"]
        said = self.call("run", "--problems", "mixture-*top1", "--devices", "3",
                         *self.chapter("05_expert", *options))
        self.assertIn("2 held: 2 right", said)

    def test_numpy(self):
        said = self.adapter("numpy_tensor_parallel", "m*", "3,8")
        self.assertIn("26 held: 26 right, 0 wrong; 18 refused", said)
        said = self.adapter("numpy_expert_parallel", "mixture-*", "1,2,3")
        self.assertIn("27 held: 27 right, 0 wrong", said)
        in_float64 = ('astype("f4")', 'astype("f8")')
        said = self.adapter("numpy_expert_parallel", "mixture-exact-*", "2", in_float64)
        self.assertIn("5 held: 5 right, 0 wrong", said)

    WRONG = [  # a text, what stands there instead; problem; tensor, device and words of the cause
        ("x = all_reduce(h @ w[layer + 1])", "x = all_reduce(h @ w[layer + 1]) / n", SMALL, "output", 0,
         "1/3 of it in every element: a mean where a sum is meant?"),
        ("d = all_reduce(dh @ w[layer].T)", "d = dh @ w[layer].T", SMALL, "input_grad", 1,
         "an addend: those of all devices add up to it: a reduction left out?"),
        ("d = all_reduce(dh @ w[layer].T)", "d = all_reduce(all_reduce(dh @ w[layer].T))", SMALL,
         "input_grad", 2, "3 times it in every element: summed where every device has the sum?"),
        ("dh = (d @ w[layer + 1].T) * (h > 0)", "dh = d @ w[layer + 1].T", SMALL, "layer_0/weights", 0,
         "a ReLU's mask forgotten?"),
        ("g[layer + 1] = h.T @ d", "g[layer + 1] = 2 * h.T @ d", SMALL, "layer_1/weights", 1,
         "2 times it in every element: a wrong scale?"),
        ("g[layer + 1] = h.T @ d", "g[layer + 1] = h.T @ d / 13", SMALL, "layer_1/weights", 2,
         "1/13 of it in every element: a mean over the batch where a sum is meant?"),
        ("g[layer + 1] = h.T @ d", "g[layer + 1] = h[1:].T @ d[1:]", SMALL, "layer_1/weights", 0,
         "the addend of row 0 of the batch is missing from the sum"),
        ("g[layer] = x.T @ dh", "g[layer] = x.T @ dh + x[5:8].T @ dh[5:8]", SMALL, "layer_0/weights", 1,
         "the addend of rows 5 to 7 of the batch is in the sum twice"),
        ("g[layer] = x.T @ dh", "g[layer] = -x.T @ dh", SMALL, "layer_0/weights", 1, "a sign?"),
        ("w = optimizer.step(w, g, norm)", "w = optimizer.step(w, g, norm) if _ < 4 else w",
         "mlp-sgd-13x7x11x7", "layer_0/weights", 0, "the result of the step before"),
        ("w = optimizer.step(w, g, norm)", "w = optimizer.step(w, [x / 3 for x in g], norm / 3)",
         "mlp-adam-13x7x11x7", "layer_0/weights", 0, "every gradient 1/3 of it: a mean where"),
        ("w = optimizer.step(w, g, norm)", "w = optimizer.step(w, [x * 3 for x in g], norm * 3)",
         "mlp-adam-16x8x24x8", "layer_0/weights", 0, "every gradient 3 times it: summed where every device"),
        ("w = optimizer.step(w, g, norm)", "w = optimizer.step(w, g, 0)", "mlp-adam-16x8x24x8",
         "layer_1/weights", 2, "gradients not clipped, or by the norm of a few"),
        ("w = optimizer.step(w, g, norm)",
         "s = [a + b for a, b in zip(s, g)] if _ else g; w = optimizer.step(w, s, norm)", SGD,
         "layer_1/weights", 1, "gradients of all steps added up: not set to 0?"),
        ("n, device)\n        return", "n, (device + 1) % n)\n        return", "mlp-exact-16x8x24x8x24x8",
         "layer_0/weights", 0, "device 1's slice, not device 0's"),
        ('"input_grad": d,', '"input_grad": 0 * d,', SMALL, "input_grad", 0, "0 in every element"),
        ('"input_grad": d,', '"input_grad": d + (device == 1) * np.eye(*d.shape),', SMALL, "input_grad", 1,
         "on this device alone: the results of the others are right"),
        ('"output": y, "input_grad": d,', '"output": y, **({"input_grad": d} if device != 1 else {}),', SMALL,
         "input_grad", 1, "expected a result of this name, given none"),
        ('"output": y, "input_grad": d,', '"output": y,', SMALL, "input_grad", None,
         "expected a result of this name, given none"),
        ("dict(zip(names, g))", 'dict(zip(["layer_7/weights", *names[1:]], g))', SMALL, "layer_7/weights", None,
         "no such result: expected input_grad, layer_0/weights"),
        ("g[layer] = x.T @ dh", "g[layer] = sb.rounded(x.T @ dh, 'BF16')", REAL_MLP, "layer_0/weights", 1,
         "what bfloat16 has of it: a conversion to 16 bits?"),
        ("w = [mine(read[name], layer)", "w = [sb.rounded(mine(read[name], layer), 'F16')", REAL_MLP,
         "output", 0, "what weights in float16 give: kept in 16 bits?"),
        ("inputs += [x, h]", "inputs += [x, x @ w[layer]]", SMALL, "layer_1/weights", 0,
         "a layer's input kept as it was before its ReLU?"),
    ]

    WRONG_ON_2 = [
        ("[f\"layer_{layer}/weights\" for layer in range(problem[\"layers\"])]\n    w = [mine",
         "[f\"layer_{layer}/weights\" for layer in (2, 3, 0, 1)]\n    w = [mine", EVEN, "layer_2/weights", 1,
         "the layers of devices 0 and 1 in each other's place?"),
        ("w = optimizer.step(w, g, norm)",
         "norms = [all_reduce((x * x).sum()) ** 0.5 for x in g]; "
         "g = [x * min(1, problem['clip_norm'] / norm) for x, norm in zip(g, norms)]; "
         "w = optimizer.step(w, g, 0)", ADAM, "layer_0/weights", 0,
         "clipped by the norm of a device's layers alone?"),
        ("d = all_reduce(dh @ w[layer].T)", "d = dh @ w[layer].T if layer else all_reduce(dh @ w[layer].T)", EVEN,
         "layer_1/weights", 1, "dL/dx of the block behind it not reduced?"),
        ("d = all_reduce(dh @ w[layer].T)", "d = dh @ w[layer].T if layer else all_reduce(dh @ w[layer].T)", EVEN,
         "input_grad", 0, "dL/dx of the block behind it not reduced?"),
        ("inputs += [x, h]\n            x = all_reduce(h @ w[layer + 1])",
         "x = all_reduce(h @ w[layer + 1]); inputs += [x, h]", EVEN, "layer_0/weights", 1,
         "a block's output kept for its input?"),
        ("x = all_reduce(h @ w[layer + 1])", "x = np.maximum(all_reduce(h @ w[layer + 1]), 0 if layer == 0 else -9e9)",
         EVEN, "output", 0, "a ReLU between all layers"),
        ("d = all_reduce(dh @ w[layer].T)", "d = all_reduce(dh @ w[layer].T) if layer else d", EVEN, "input_grad", 1,
         "the block's own dL/dx left out?"),
        ("optimizer = Optimizer(problem)", "optimizer = Optimizer({**problem, 'kind': 'adam', 'betas': problem['betas']}); "
         "optimizer.steps = 10**6", ADAM, "layer_0/weights", 0, "what Adam makes without its bias correction?"),
    ]
    WRONG_MIXTURE = [
        ("np.add.at(output, token,", "np.add.at(output, token[::-1],", TOP_1, "output", 0,
         "its rows in another order"),
        ("np.add.at(output, token, gate * y)", "np.add.at(output, token, y)", TOP_2, "output", 1,
         "answers not multiplied by their gates, in the forward pass alone?"),
        ("dgates[token, rank] = (dy", "dgates[token, rank] = 0 * (dy", TOP_1, "input_grad", 2,
         "the gates' gradient forgotten?"),
        ("dgates[token, rank] = (dy", "dgates[token, rank] = 0 * (dy", FULL, "router/weights", 0,
         "the gates' gradient forgotten?"),
        ("dz = router.backward(problem,", "dz = router.backward({**problem, 'aux_weight': 0},", FULL,
         "router/weights", 0, "the balancing loss forgotten?"),
        ("gates, dgates, all_chosen)", "gates, dgates, chosen)", FULL, "router/weights", 0,
         "the balancing loss of each device's own tokens, and then their sum?"),
        ("problem, p, chosen, gates, dgates, all_chosen)",
         "{**problem, 'aux_weight': problem['aux_weight'] / n}, p, chosen, gates, dgates, chosen)", FULL, "router/weights", 1,
         "the balancing loss of each device's own tokens, and then their mean?"),
        ("problem, p, chosen, gates, dgates, all_chosen)",
         "{**problem, 'aux_weight': problem['aux_weight'] * n}, p, chosen, gates, dgates, all_chosen)", FULL,
         "router/weights", 2, "3 times the balancing loss"),
        ("gates, dgates, all_chosen)", "gates, dgates, all_chosen[:, :1])", FULL, "router/weights", 1,
         "a balancing loss that counts first choices alone?"),
        ("h.T @ d[of_e])", "3 * h.T @ d[of_e])", TOP_2, "expert_1/layer_1/weights", 1,
         "3 times it in every element: summed where every device has the sum?"),
        ("group.all_reduce(x.T @ dz)", "x.T @ dz", TOP_2, "router/weights", 0, "those of device 0: a reduction, or the other rows, left out?"),
        ("group.all_reduce(x.T @ dz)", "group.all_reduce(x.T @ dz) / n", FULL, "router/weights", 2,
         "1/3 of it in every element: a mean where a sum is meant?"),
        ("(d[of_e] @ w1.T) * (h > 0)", "d[of_e] @ w1.T", TOP_2, "expert_2/layer_0/weights", 2,
         "a ReLU's mask forgotten?"),
    ]

    def test_wrong_versions(self):
        self.wrong_versions("numpy_tensor_parallel", self.WRONG, "3")
        self.wrong_versions("numpy_tensor_parallel", self.WRONG_ON_2, "2")
        self.wrong_versions("numpy_expert_parallel", self.WRONG_MIXTURE, "3")

    def test_each_cause_of_an_mlp_is_named(self):
        """What each wrong version computes has its name in some problem, and everywhere one that fits."""
        named, known = set(), set()
        for problem in (sb.problem(name) for name in (EVEN, "mlp-real-5x3x2x3x2x3", ADAM, SGD)):
            for text, mistake in wrong_versions.mistakes(problem, 2):
                wrong = {name: sb.Stored(value, "F64")
                         for name, value in kinds.after(problem, **mistake).items()}
                causes = {d.cause for d in sb.check_pieces(problem, 2, [wrong]).differences}
                self.assertNotIn("no known cause", causes, (problem.name, text))
                known.add(text)
                named |= causes & {text}
        same = {text for text in known if re.search(r"in every block|layer \d's|rows? \d|device \d", text)}  # as another one
        self.assertEqual(known - named - same, set())

    def test_nothing_is_accused_without_a_reason(self):
        """Random values have no known cause: as noise above the bound, or in an element, rows, or every second element."""
        random = np.random.default_rng(3)
        for name in (SMALL, REAL_MLP, ADAM, SGD, TOP_2, REAL):
            problem = sb.problem(name)
            for tensor, want in problem.expected.items():
                bound = np.maximum(problem.bounds()[tensor], 1 / 64 if problem.kind == "exact" else 0)
                for where in (want == want, np.arange(want.size).reshape(want.shape) == want.size // 2,
                              np.arange(want.size).reshape(want.shape) % 2 == 0):
                    for size in (30 * bound, np.abs(want).max()):
                        wrong = want + where * size * random.uniform(0.5, 1, want.shape) * random.choice([-1, 1], want.shape)
                        given = {**problem.expected, tensor: wrong}
                        verdict = sb.check_pieces(problem, 3, [{k: sb.Stored(t, "F64")
                                                                       for k, t in given.items()}])
                        bf16 = {wrong_versions.SAYS["right_in_bf16"]} if size is not np.abs(want).max() else set()  # is true
                        self.assertLessEqual({d.cause for d in verdict.differences}, {"no known cause"} | bf16, (name, tensor))

    def checked(self, problem, devices, name, wrong, rows="whole"):
        """The causes of a wrong result on each device. `rows`: how the output shows that the rows lie: "divided" over the
        devices, "owned" by the last one, as a pipeline has it, or "whole" on each."""
        pieces = []
        for device in range(devices):
            begin, end = sb.part(problem.batch_size, devices, device)
            has = {"divided": True, "owned": device == devices - 1, "whole": True}[rows]
            mine = slice(begin, end) if rows == "divided" else slice(None)
            pieces.append({n: sb.Stored(wrong if n == name else t[mine] if n in layouts.OF_ROWS and t.ndim else t, "F64")
                           for n, t in problem.expected.items() if has or n not in layouts.OF_ROWS})
        return {d.cause for d in sb.check_pieces(problem, devices, pieces).differences if d.tensor == name}

    def test_sums_over_some_rows_are_named_as_the_outputs_show_that_rows_lie(self):
        problem, name = sb.problem(SMALL), "layer_1/weights"
        def rows(*of):
            return sum(kinds.after(problem, rows=r)[name] for r in of)
        want = problem.expected[name]
        first, last = rows((0, 3), (5, 7), (9, 11)), rows((3, 5), (7, 9), (11, 13))  # of two micro-batches a device
        of_three = [rows((0, 5)), rows((5, 9)), rows((9, 13))]  # three micro-batches, or three devices
        for lie, wrong, cause in (
                ("divided", of_three[2], "the addend of rows 9 to 12 of the batch alone, those of device 2: a reduction, or the other rows, left out?"),
                ("divided", want - of_three[1], "the addend of rows 5 to 8 of the batch is missing from the sum: those of device 1"),
                ("divided", want + of_three[0], "the addend of rows 0 to 4 of the batch is in the sum twice: those of device 0"),
                ("owned", of_three[2], "the addend of rows 9 to 12 of the batch alone: the rest overwritten, or left out?"),
                ("whole", of_three[2], "the addend of rows 9 to 12 of the batch alone: the rest overwritten, or left out?"),
                ("owned", want - of_three[0], "the addend of rows 0 to 4 of the batch is missing from the sum"),
                ("owned", want + of_three[0], "the addend of rows 0 to 4 of the batch is in the sum twice"),
                ("divided", first, "what the first micro-batch of each device adds: the others overwritten, or left out?"),
                ("divided", last, "what the last micro-batch of each device adds: the others overwritten, or left out?"),
                ("divided", first / 2 + last, "sums divided by 2 after each micro-batch, the first ones again and again?"),
                ("owned", of_three[0] / 9 + of_three[1] / 3 + of_three[2],
                 "sums divided by 3 after each micro-batch, the first ones again and again?"),
                ("divided", 3 * first + last,
                 "sums over the devices made after each micro-batch, the first ones again and again?")):
            self.assertEqual(self.checked(problem, 3, name, wrong, lie), {cause}, (lie, cause))

    def test_losses_that_are_off_by_a_logarithm_are_named(self):
        for name, loss, log in ((PLAIN, "losses", 1.625), (REAL, "loss", np.log(3))):  # on the grid, log2(3) is 1.625
            problem = sb.problem(name)
            for sign, word in ((1, "more"), (-1, "less")):
                wrong = problem.expected[loss] + sign * log * (problem.expected[loss] != 0)
                said = self.checked(problem, 3, loss, wrong)
                self.assertTrue(all(s.startswith(f"log 3 {word} than it") for s in said), (name, said))

    def test_another_slice_is_named_if_slices_have_different_lengths(self):
        problem, name = sb.problem(SMALL), "output"
        want = problem.expected[name]
        for begins, device in (((0, 0, 0), 0), ((9, 9, 9), 2)):
            pieces = [{**{n: sb.Stored(t, "F64") for n, t in problem.expected.items()},
                       name: sb.Stored(np.resize(want[begin:][:end - first], (end - first, want.shape[1])), "F64")}
                      for begin, (first, end) in zip(begins, (sb.part(13, 3, d) for d in range(3)))]
            layout = (3,), {name: (sb.Letter("S", 0),)}
            for d in sb.check_pieces(problem, 3, pieces, layout).differences:
                self.assertEqual(d.cause, f"device {device}'s slice, not device {d.device}'s")

    def test_a_number_that_is_not_finite_is_a_difference_in_each_result(self):
        for problem in sb.problems():
            for name, want in problem.expected.items():
                for value in (np.nan, np.inf, -np.inf):
                    wrong = np.array(want)
                    wrong.flat[-1] = value
                    given = {**problem.expected, name: wrong}
                    for verdict in (sb.check(given, problem, "single"), sb.check_pieces(
                            problem, 3, [{n: sb.Stored(t, "F32") for n, t in given.items()}])):
                        causes = {d.cause for d in verdict.differences}
                        self.assertEqual(causes, {wrong_versions.SAYS["not_finite"]}, (problem.name, name, value))

    def test_addends_that_are_divided_by_their_devices_rows_are_named(self):
        problem, name = sb.problem(SMALL), "layer_1/weights"
        def cause(devices):
            rows = [sb.part(problem.batch_size, devices, d) for d in range(devices)]
            wrong = sum(kinds.after(problem, rows=r)[name] / (r[1] - r[0]) for r in rows)
            given = {**problem.expected, name: 7 * wrong}
            verdict = sb.check_pieces(problem, devices, [{k: sb.Stored(t, "F64") for k, t in given.items()}])
            return {d.cause for d in verdict.differences}
        self.assertEqual(cause(3), {wrong_versions.SAYS["averaged_over_own_rows"]})
        self.assertEqual(cause(13), {"7 times it in every element: a wrong scale?"})  # a row each

    def test_another_of_equally_likely_experts_is_named(self):
        """As PyTorch's topk may take it: token by token."""
        random = np.random.default_rng(2)
        problem = sb.problem(TOP_1)
        logits = problem.batch["input"] @ problem.params["router/weights"]
        chosen = tuple((int(random.choice(np.flatnonzero(row == row.max()))),) for row in logits)
        wrong = {name: sb.Stored(t, "F32") for name, t in kinds.after(problem, chosen=chosen).items()}
        verdict = sb.check_pieces(problem, 3, [wrong])
        self.assertEqual({d.cause for d in verdict.differences}, {wrong_versions.SAYS["other_of_equals"]})

    def test_the_cause_that_explains_all_devices_counts(self):
        """Device 0 comes first in each order, so none of these mistakes drops its choices."""
        problem = sb.problem(FULL)
        bounds = [sb.part(problem.batch_size, 3, device) for device in range(3)]
        for forgets, cause in (("capacity", "choices that an expert has no room for not dropped?"),
                               ("where slots end", "an expert's capacity one more than it is?"),
                               ("ranks elsewhere",
                                "slots given to all choices of a device before those of the next?")):
            wrong = kinds.after(problem, forgets=forgets, devices=3)["output"]
            pieces = [{"output": sb.Stored(wrong[begin:end], "F32")} for begin, end in bounds]
            verdict = sb.check_pieces(problem, 3, pieces)
            self.assertEqual({d.cause.startswith(cause[:-1]) for d in verdict.differences if d.tensor == "output"}, {True})


PLAIN, TIED, EXPERTS = (f"decoder-exact-{name}" for name in ("plain", "window-tied", "experts"))
REAL = "decoder-real-plain"


class Decoders(Suite):
    IDS, LABELS = "[], self.in_slice(ids)", "self.in_slice(labels)"
    SHARED = "return self.group.all_reduce(t) if self.shares_keys else t"
    TENSOR = [
        (IDS, "[], self.in_slice(ids + self.vocabulary[0])", PLAIN, "losses", 1,
         "ids looked up in each slice of the embedding without the slice's offset?"),
        (LABELS, "self.in_slice(labels + self.vocabulary[0])", PLAIN, "losses", 0,
         "labels looked up in each slice of the logits without the slice's offset?"),
        (LABELS, "self.in_slice(labels + self.vocabulary[0])", REAL, "head", 2,
         "labels looked up in each slice of the logits without the slice's offset?"),
        (SHARED, "return t", TIED, "block_1/key", 1,
         "what the query heads of device 1 add to it: key-value heads that devices share"),
        (SHARED, "return t", "decoder-real-window-tied", "block_1/value", 2,
         "what the query heads of device 2 add to it: key-value heads that devices share"),
        ("(self.g[\"embedding\"] if self.p[\"is_tied\"] else 0)", "0", TIED, "embedding", 1,
         "a tied table with the gradient of the head alone?"),
        ("transposed(dz) @ n + (", "0 * transposed(dz) @ n + (", TIED, "embedding", 0,
         "a tied table with the gradient of the embedding alone?"),
        ("transposed(dz) @ n + (", "2 * transposed(dz) @ n + (", "decoder-real-window-tied", "embedding", 0,
         "a tied table that has its gradient through the head twice?"),
        ("transposed(dz) @ n + (self.g", "transposed(dz) @ n + (2 * self.g", TIED, "embedding", 2,
         "a tied table that has its gradient through the embedding twice?"),
        ("np.arange(*self.heads) // shared - self.keys[0]", "np.arange(*self.heads) % key_heads", TIED,
         "losses", 0, "query heads h, h + G, ... share key-value head h, where neighbours are meant?"),
        ("g, u = self.product(n,", "u, g = self.product(n,", PLAIN, "losses", 0,
         "gate and up in each other's place?"),
        ("out, p = ", "self.a.scale = 1; out, p = ", REAL, "logits", 1,
         "scores not divided by the root of a head's width?"),
        ("/ (labels >= 0).sum()", "/ 1", REAL, "loss", 0, "a sum over tokens where a mean is meant?"),
        ("/ (labels >= 0).sum()", "/ labels.size", REAL, "head", 1,
         "a mean over all tokens, those without a label too?"),
        ("d = self.attend_backward(f\"block_{b}/\", d, attention)",
         "d = self.attend_backward(f\"block_{b}/\", d, attention); self.g = {k: -g if 'query' in k else g "
         "for k, g in self.g.items()}", PLAIN, "block_0/query", 1, "a sign?"),
    ]
    CONTEXT = [
        ("turns(mine[:, 0],", "turns(mine[:, 0] - self.begin,", PLAIN, "losses", 1,
         "rotary positions that begin at 0 on each device?"),
        ("turns(mine[:, 0],", "turns(mine[:, 0] - self.begin,", REAL, "block_0/query", 1,
         "rotary positions that begin at 0 on each device?"),
        ("(at <= mine)", "(at <= mine) & (at >= self.begin)", EXPERTS, "losses", 2,
         "tokens that see the keys of their own device alone?"),
        ("(at <= mine)", "(np.concatenate([np.arange(len(t)) for t in np.array_split(at, group.devices)]) "
         "<= mine - self.begin)", REAL, "logits", 0, "a causal mask that compares places within a device"),
        ("(at <= mine)", "(at >= 0)", PLAIN, "losses", 0, "tokens that see later ones: no causal mask?"),
        ("& (at > mine - (problem[\"window\"] or len(at)))", "", TIED, "losses", 2,
         "tokens that see beyond their window?"),
        ("self.group.all_reduce(t)[:, :, self", "t[:, :, self", PLAIN, "block_0/value", 0,
         "keys and values with the gradient of their own device's queries alone?"),
        ("name: group.all_reduce(g) for", "name: g if 'norm' in name else group.all_reduce(g) for", TIED,
         "final_norm", 1, "what the tokens of device 1 add to it: a norm's gradient not summed"),
        ("name: group.all_reduce(g) for", "name: g if 'norm' in name else group.all_reduce(g) for",
         "decoder-real-window-tied", "block_0/attention_norm", 2,
         "what the tokens of device 2 add to it: a norm's gradient not summed"),
        ("name: group.all_reduce(g) for", "name: group.all_reduce(g) / group.devices for", PLAIN, "head", 0,
         "1/3 of it in every element: a mean where a sum is meant?"),
        ("labels = (batch[\"labels\"] >= 0)", "labels = group.devices * (mine[\"labels\"] >= 0)", REAL,
         "head", 0, "a mean over the labels of each device's part of sequences, and then over devices?"),
        ("gates = self.a.gates(np.take_along_axis(z, chosen, 1))",
         "gates = np.take_along_axis(self.a.gates(z), chosen, 1)", "decoder-real-experts", "logits", 0,
         "gates that are a softmax over all experts, not over the chosen ones?"),
        ("gates[token, rank][:, None] * answers", "answers", EXPERTS, "losses", 1,
         "answers not multiplied by their gates?"),
        ("self.a.gates_backward(dgates, gates)", "0", EXPERTS, "block_1/router", 0, "0 in every element"),
        ("self.a.gates_backward(dgates, gates)", "0", "decoder-real-experts", "block_1/feed_forward_norm", 1,
         "the gates' gradient forgotten?"),
    ]

    def test_right(self):
        said = self.adapter("numpy_decoder_tensor_parallel", "decoder-*", "2,5")
        self.assertIn("14 held: 14 right, 0 wrong; 6 refused", said)
        said = self.adapter("numpy_decoder_context_parallel", "decoder-*", "1,5")
        self.assertIn("20 held: 20 right, 0 wrong", said)

    def test_each_cause_is_named(self):
        """What each wrong version computes has its name in some problem, and everywhere one that fits."""
        named, known = set(), set()
        for problem in (p for p in problems_with_tokens() if p.kind == "real"):
            for text, mistake in wrong_versions.mistakes(problem, 3):
                wrong = {name: sb.Stored(sb.rounded(value, "F32"), "F32")
                         for name, value in kinds.after(problem, **mistake).items()}
                verdict = sb.check_pieces(problem, 3, [wrong])
                causes = {d.cause for d in verdict.differences if d.ratio is None or d.ratio > 8}
                self.assertNotIn("no known cause", causes, (problem.name, text))
                known.add(text)
                named |= causes & {text}
        self.assertEqual(known, named)

    def test_wrong_tensor_parallel(self):
        self.wrong_versions("numpy_decoder_tensor_parallel", self.TENSOR, "3")

    def test_wrong_context_parallel(self):
        self.wrong_versions("numpy_decoder_context_parallel", self.CONTEXT, "3")


def has(module):
    imports = subprocess.run([foreign, "-c", f"import {module}"], capture_output=True, check=False)
    return imports.returncode == 0


class Frameworks(Suite):
    """Adapters of frameworks are right. (What is said of wrong programs does not depend on who computes.)"""
    MLPS = f"{EVEN},{SMALL},mlp-real-16*,{SGD},mlp-adam-16*"

    @unittest.skipUnless(has("jax"), f"{foreign}: expected jax, given none")
    def test_jax(self):
        said = self.adapter("jax_tensor_parallel", "mlp-*", "3,8", with_python=foreign)
        self.assertIn("24 held: 24 right", said)

    @unittest.skipUnless(has("torch.distributed.fsdp"), f"{foreign}: expected PyTorch, given none")
    def test_torch(self):
        for name, problems, devices, *strategy in (
                ("torch_data_parallel", self.MLPS, "2", "ddp"), ("torch_data_parallel", self.MLPS, "2", "fsdp"),
                ("torch_tensor_parallel", self.MLPS, "2"), ("torch_pipeline", self.MLPS, "2"),
                ("torch_decoder_tensor_parallel", "decoder-real-*", "1,2,3")):
            said = self.adapter(name, problems, devices, strategy=strategy, with_python=foreign)
            self.assertIn(" 0 wrong", said)

    @unittest.skipUnless(has("transformers"), f"{foreign}: expected transformers, given none")
    def test_mistral_of_transformers(self):
        said = self.adapter("transformers_decoder", "decoder-real-*", "1", with_python=foreign)
        self.assertIn("4 held: 4 right, 0 wrong; 2 refused", said)


class HuggingFace(Suite):
    """Chapters that read a feed-forward block of a T5 from a folder as save_pretrained writes it."""
    MOST_DEVICES = {"01_single_device": 5, "02_data_parallel": 5, "03_tensor_parallel": 5,
                    "04_pipeline": 2, "06_fully_sharded": 5}  # a pipeline cuts two layers once
    BLOCKS = {"encoder.1": "encoder.block.1.layer.1", "decoder.0": "decoder.block.0.layer.2"}

    def each_result(self, folder, batch, block):
        """What each chapter computes of a block, on each number of devices."""
        out = self.scratch / "out"
        for chapter, most in self.MOST_DEVICES.items():
            for devices in range(1, most + 1):
                with self.subTest(chapter=chapter, block=block, devices=devices):
                    command = [here.parents[1] / "chapters/on_devices", devices, programs / chapter,
                               "gradients", "--params", folder, "--block", block, "--batch", batch,
                               "--out", out]
                    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                                           check=False)
                    self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, "", ""))
                    yield {name: stored.values for name, stored in sb.read(out).items()}

    def write_t5(self, folder, problem):
        """The network of a problem, as PyTorch stores it, in two blocks, each tensor in a file of its own.
        The numbers of one block are twice those of the other."""
        index = {}
        for factor, block in enumerate(self.BLOCKS.values(), 1):
            for layer, name in enumerate(("wi", "wo")):
                tensor = f"{block}.DenseReluDense.{name}.weight"
                index[tensor] = f"model-{len(index) + 1:05}-of-00004.safetensors"
                sb.write(folder / index[tensor],
                                {tensor: factor * problem.params[f"layer_{layer}/weights"].T})
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
        config = {"model_type": "t5", "d_model": problem.widths[0], "d_ff": problem.widths[1]}
        (folder / "config.json").write_text(json.dumps(config))

    def test_exact(self):
        problem = sb.problem(SMALL)
        sb.write(self.scratch / "batch", problem.batch)
        self.write_t5(self.scratch, problem)
        want = {"output": 4 * problem.expected["output"], "input_grad": 4 * problem.expected["input_grad"]}
        for layer, name in enumerate(("wi", "wo")):
            want[f"{self.BLOCKS['decoder.0']}.DenseReluDense.{name}.weight"] = \
                2 * problem.expected[f"layer_{layer}/weights"].T
        for given in self.each_result(self.scratch, self.scratch / "batch", "decoder.0"):
            self.assertEqual({name: values.tolist() for name, values in given.items()},
                             {name: values.tolist() for name, values in want.items()})

    @unittest.skipUnless(has("torch, transformers"), f"{foreign}: expected transformers, given none")
    def test_transformers(self):
        folder = self.scratch / "t5"
        made = subprocess.run([foreign, here / "make_t5.py", folder], capture_output=True, text=True,
                              check=False)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertGreater(len(list(folder.glob("model-*.safetensors"))), 9)
        for block in self.BLOCKS:
            expected = sb.read(folder / f"{block}.expected")
            for given in self.each_result(folder, folder / f"{block}.batch", block):
                self.assertEqual(given.keys(), expected.keys())
                for name, want in expected.items():
                    self.assertEqual(given[name].shape, want.values.shape, name)
                    off = np.abs(given[name] - want.values).max() / np.abs(want.values).max()
                    self.assertLess(off, 1e-5, name)


class Results(Suite):
    """Results in a folder, in all allowed forms."""
    def setUp(self):
        super().setUp()
        self.problem = sb.problem(SMALL)
        self.folder = self.scratch / "problems"
        self.call("export", self.folder, "--problems", SMALL)
        self.results = self.folder / SMALL / "results/4"
        self.results.mkdir(parents=True)

    def put(self, pieces, on=None, mesh=None, dtype="F32"):
        for device, piece in enumerate(pieces):
            sb.write(self.results / f"device_{device}.safetensors", piece, dtype)
        if on is not None:
            layout = {"version": 1, "mesh": mesh or {"devices": 4}, "tensors": on}
            (self.results / "layout.json").write_text(json.dumps(layout))

    def whole(self, **changes):
        return {**self.problem.expected, **changes}

    def check(self, *words, devices=4, code=0):
        return self.call("check", self.folder, "--devices", devices, *words, code=code)

    def test_what_was_not_solved_counts(self):
        """A program that died on some numbers of devices, or that left what it wrote yesterday, is not right."""
        sb.write(self.results / "results.safetensors", self.whole())
        files = ["--json", self.scratch / "v.json", "--junit", self.scratch / "v.xml"]
        said = self.call("check", self.folder, *files, code=86)
        self.assertIn(f"{SMALL} on 1, 2, 3, 5, 8: not solved: expected results in ", said)
        self.assertIn("1 held: 1 right, 0 wrong; 0 refused by the program; 5 not solved", said)
        self.assertEqual([v["devices"] for v in json.loads(files[1].read_text())["not_solved"]], [1, 2, 3, 5, 8])
        cases = xml.parse(files[3]).getroot()
        self.assertEqual([cases.get(key) for key in ("tests", "failures")], ["6", "5"])
        self.assertIn("1 held: 1 right", self.check())
        (self.results.parent / "8").mkdir()
        (self.results.parent / "8/refused").write_text("two layers cannot be cut in 8\n")
        said = self.call("check", self.folder, "--devices", "4,8")
        self.assertIn("on 8: refused: two layers cannot be cut in 8\n1 held: 1 right, 0 wrong; 1 refused", said)
        start = self.scratch / "start"
        start.write_text("")
        os.utime(self.results / "results.safetensors", (1, 1))
        said = self.call("check", self.folder, "--devices", "4,8", "--newer-than", start, code=65)
        self.assertIn("expected results to hold", said)
        sb.write(self.results / "results.safetensors", self.whole())
        self.assertIn("1 right", self.check("--newer-than", self.scratch))

    def test_a_rule_that_fails_costs_no_verdict(self):
        def broken(_):
            raise IndexError("an index")
        rules = causes.RULES
        self.addCleanup(setattr, causes, "RULES", rules)
        causes.RULES = (broken, *rules)
        mean = self.whole(output=self.problem.expected["output"] / 4)
        verdict = sb.check_pieces(self.problem, 4, [{n: sb.Stored(t, "F64") for n, t in mean.items()}])
        self.assertIn("1/4 of it in every element", str(verdict))
        self.assertEqual(verdict.notes, ["a rule failed: broken of output: IndexError: an index"])

    def test_no_rule_fails_where_a_device_has_no_tokens(self):
        problem = sb.problem(EXPERTS)  # sequences of 3 tokens, on 5 devices
        odd = problem.expected["block_0/query"].copy()
        odd[0, 0] += 1
        verdict = sb.check_pieces(problem, 5, [{**{n: sb.Stored(t, "F64") for n, t in problem.expected.items()},
                                                "block_0/query": sb.Stored(odd, "F64")}])
        self.assertEqual(([d.tensor for d in verdict.differences], verdict.notes), (["block_0/query"], []))

    def test_the_report_says_what_ran(self):
        sb.write(self.results / "results.safetensors", self.whole())
        self.check("--precision", "tf32", "--json", self.scratch / "v.json", "--junit", self.scratch / "v.xml")
        said = json.loads((self.scratch / "v.json").read_text())
        self.assertEqual((said["precision"], "suite_test" in said["command"]), ("tf32", True))
        self.assertRegex(said["commit"], "^[0-9a-f]{40}(-dirty)?$")
        self.assertGreater(said["seconds"], 0)
        self.assertGreater(float(xml.parse(self.scratch / "v.xml").getroot()[0].get("time")), 0)

    def test_files_that_do_not_belong_together(self):
        self.put([self.whole()] * 5)
        self.assertIn("expected files of 4 devices, given device_4.safetensors too", self.check(code=86))
        (self.results / "device_4.safetensors").unlink()
        sb.write(self.results / "results.safetensors", self.whole())
        self.assertIn("or files of devices, given both", self.check(code=86))

    def test_problems_but_some(self):
        self.call("export", self.scratch / "some", "--problems", "mlp-*,!mlp-[es]*")
        names = [e["name"] for e in json.loads((self.scratch / "some/manifest.json").read_text())["problems"]]
        self.assertEqual({name.split("-")[1] for name in names}, {"real", "adam"})

    def test_the_copied_folder_works_alone(self):
        """The page says that a copy of the folder is enough."""
        page = (here.parents[1] / "docs/equivalence.md").read_text()
        folder, = re.findall(r"or copy its folder,\s+`([^`]+)`", page)
        shutil.copytree(here.parents[1] / folder, self.scratch / "alone" / Path(folder).name)
        program = ("import numpy as np, shardbook_check as sb; p = sb.problem('" + SMALL + "'); "
                   "print(sb.check({'output': p.expected['output'] / 3}, p, 'tp', 0, 3))")
        ended = subprocess.run([python, "-I", "-c", "import sys; sys.path.insert(0, '.'); " + program],
                               cwd=self.scratch / "alone", capture_output=True, text=True, check=False)
        self.assertIn("1/3 of it in every element", ended.stdout, ended.stderr)

    def test_one_file(self):
        for dtype in ("F64", "F32", "F16", "BF16"):
            sb.write(self.results / "results.safetensors", self.whole(), dtype)
            self.assertIn("1 held: 1 right", self.check())
        mean = self.whole(output=self.problem.expected["output"] / 4)
        sb.write(self.results / "results.safetensors", mean)
        self.assertIn("1/4 of it in every element: a mean where a sum is meant?", self.check(code=86))
        wrong = self.whole(output=self.problem.expected["output"] + 1)
        sb.write(self.results / "results.safetensors", wrong)
        self.assertIn("output on device 0 at (0, 0): expected -5, given -4: no known cause",
                      self.check(code=86))

    def test_small_noise_is_no_other_order(self):
        want, limit = np.arange(12.0).reshape(4, 3), np.full((4, 3), 0.01)
        def said(given):
            return causes.reordered(SimpleNamespace(given=given, want=want, limit=limit))
        self.assertEqual(said(want[::-1]), "its rows in another order")
        self.assertEqual(said(want + 0.03), None)
        alike = want / 1000  # rows that differ by less than the bounds
        self.assertEqual(causes.reordered(SimpleNamespace(given=alike + 0.03, want=alike, limit=limit)), None)

    def test_bf16_rounds_to_nearest_and_ties_to_even(self):
        sb.write(self.scratch / "t.safetensors", {"x": [1 + 2**-8, 1 + 3 * 2**-8, -3.14159]}, "BF16")
        self.assertEqual(sb.read(self.scratch / "t.safetensors")["x"].values.tolist(),
                         [1, 1 + 2**-6, -3.140625])

    def test_names_and_transposes(self):
        mine = self.whole()
        mine["fc1.weight"] = mine.pop("layer_0/weights").T
        sb.write(self.results / "results.safetensors", mine)
        self.assertIn("1 right", self.check("--map", "fc1.weight=layer_0/weights^T"))
        (self.scratch / "map.json").write_text(json.dumps({"fc1.weight": "layer_0/weights^T"}))
        self.assertIn("1 right", self.check("--map", self.scratch / "map.json"))
        self.assertIn("no such result: expected input_grad, layer_0/weights", self.check(code=86))
        mine["fc1.weight"] = mine["fc1.weight"] + (np.arange(77) == 2).reshape(11, 7)
        sb.write(self.results / "results.safetensors", mine)
        self.assertIn("fc1.weight on device 0 at (0, 2): ", self.check("--map", "fc1.weight=layer_0/weights^T", code=86))
        self.call("export", self.scratch / "theirs", "--problems", SMALL, "--map",
                  "fc1.weight=layer_0/weights^T")
        params = sb.read(self.scratch / "theirs" / SMALL / "params.safetensors")
        self.assertEqual(params["fc1.weight"].values.tolist(),
                         self.problem.params["layer_0/weights"].T.tolist())

    def columns(self, name, devices=4):
        w = self.problem.expected[name]
        return [w[:, slice(*sb.part(w.shape[1], devices, device))] for device in range(devices)]

    def test_slices_inferred(self):
        pieces = [self.whole(**{"layer_0/weights": piece}) for piece in self.columns("layer_0/weights")]
        self.put(pieces)
        self.assertIn("layer_0/weights: inferred: sharded along axis 1", self.check())
        pieces[1], pieces[2] = pieces[2], pieces[1]
        self.put(pieces)
        self.assertRegex(self.check(code=86),
                         r"layer_0/weights on device 1 at \(0, 3\): .*: device 2's slice, not device 1's")

    def test_owned_by_one_device(self):
        rest = self.whole()
        del rest["output"]
        self.put([rest, self.whole(), rest, rest])
        self.assertIn("output: inferred: owned by device 1", self.check())

    def test_replicas_that_disagree(self):
        odd = self.problem.expected["output"].copy()
        odd[3, 2] += 1
        self.put([self.whole(), self.whole(), self.whole(output=odd), self.whole()], on={})
        said = self.check(code=86)
        self.assertIn("output on device 2 at (3, 2)", said)
        self.assertIn(": 1 differ", said)

    def test_partial(self):
        quarter = self.problem.expected["layer_1/weights"] / 4
        quarters = [self.whole(**{"layer_1/weights": quarter * factor}) for factor in (1, 2, 0, 1)]
        self.put(quarters, on={"layer_1/weights": {"devices": "partial"}})
        self.check()
        unequal = [self.whole(**{"layer_1/weights": 4 * quarter["layer_1/weights"]}) for quarter in quarters]
        self.put(unequal, on={})
        self.assertIn("mean over the devices is it: a reduction to the mean left out?", self.check(code=86))
        self.put(quarters, on={})
        self.assertIn("an addend: those of all devices add up to it", self.check(code=86))

    def test_a_mesh(self):
        """Rows over one axis, columns over the other, in slices that differ in size; and a nested cut."""
        w = self.problem.expected["layer_0/weights"]  # (7, 11)
        rows, columns = [slice(0, 4), slice(4, 7)], [slice(0, 6), slice(6, 11)]
        on = {"layer_0/weights": {"data": {"sharded": 0}, "tensor": {"sharded": 1}}}
        pieces = [self.whole(**{"layer_0/weights": w[rows[d // 2], columns[d % 2]]}) for d in range(4)]
        self.put(pieces, on, {"data": 2, "tensor": 2})
        self.check()
        pieces[3]["layer_0/weights"] = pieces[3]["layer_0/weights"] + np.eye(3, 5)
        self.put(pieces, on, {"data": 2, "tensor": 2})
        self.assertIn("layer_0/weights on device 3 at (4, 6)", self.check(code=86))
        nested = {"layer_0/weights": {"data": {"sharded": 0}, "tensor": {"sharded": 0}}}
        ends = [0, 2, 4, 6, 7]
        self.put([self.whole(**{"layer_0/weights": w[ends[d]:ends[d + 1]]}) for d in range(4)], nested,
                 {"data": 2, "tensor": 2})
        self.check()
        reverse = {"layer_0/weights": {"data": {"sharded": 0, "offsets": [3, 0]}}}
        self.put([self.whole(**{"layer_0/weights": w[3:] if d < 2 else w[:3]}) for d in range(4)], reverse,
                 {"data": 2, "tensor": 2})
        self.check()
        self.put([self.whole(**{"layer_0/weights": w[:2]})] * 4, nested, {"data": 2, "tensor": 2})
        self.assertIn("expected (7, 11), given slices that make (8, 11)", self.check(code=86))

    def test_the_axis_that_an_entry_names_first_cuts_first(self):
        """FSDP2 with tensor parallelism: the mesh is (data, tensor), but tensor cuts first."""
        w, ends = self.problem.expected["layer_0/weights"], [0, 2, 4, 6, 7]
        rows = [slice(ends[2 * (d % 2) + d // 2], ends[2 * (d % 2) + d // 2 + 1]) for d in range(4)]
        on, mesh = {"tensor": {"sharded": 0}, "data": {"sharded": 0}}, {"data": 2, "tensor": 2}
        pieces = [self.whole(**{"layer_0/weights": w[of]}) for of in rows]
        self.put(pieces, {"layer_0/weights": on}, mesh)
        self.check()
        self.put(pieces, {"layer_0/weights": dict(reversed(on.items()))}, mesh)
        self.assertIn("1 differ\n  layer_0/weights: right if tensor cuts first: layout.json", self.check(code=86))
        (self.results / "layout.json").unlink()
        self.put([self.whole(**{"layer_0/weights": w[4 * (d // 2):4 + 3 * (d // 2), 6 * (d % 2):6 + 5 * (d % 2)]})
                  for d in range(4)])
        self.assertIn(": a mesh? Then write a layout.json", self.check(code=86))

    def test_slices_of_several_ranges(self):
        """As of fused query, key and value weights: columns 0, 1 and 5, 6 on one device, and so on."""
        w, name = self.problem.expected["layer_0/weights"], "layer_0/weights"  # (7, 11)
        ranges = [[[0, 2], [5, 7]], [[2, 4], [7, 9]], [[4, 5]], [[9, 11]]]
        pieces = [self.whole(**{name: np.concatenate([w[:, b:e] for b, e in of], 1)}) for of in ranges]
        self.put(pieces, {name: {"devices": {"sharded": 1, "ranges": ranges}}})
        self.check()
        pieces[1][name] = pieces[1][name] + np.eye(7, 4)[::-1]
        self.put(pieces)
        self.assertRegex(self.check(code=86), r"layer_0/weights on device 1 at \(3, 8\): ")
        pieces = [self.whole(**{name: 4 * np.concatenate([w[:, b:e] for b, e in of], 1)}) for of in ranges]
        self.put(pieces)
        self.assertIn("4 times it in every element", self.check(code=86))
        self.put(pieces, {name: {"devices": {"sharded": 1, "ranges": [*ranges[:3], [[8, 10]]]}}})
        self.assertIn("the ranges of its slices overlap, or leave a gap", self.check(code=86))

    def test_flat_buffers(self):
        """ZeRO's: a piece of all weights one behind the other, with padding at the end."""
        names = ["layer_0/weights", "layer_1/weights"]
        rest = {n: t for n, t in self.whole().items() if n not in names}
        flat = np.append(np.concatenate([self.problem.expected[n].ravel() for n in names]), [9, 9])  # 156 = 4 * 39
        pieces = [{**rest, "flat": flat[39 * d:39 * (d + 1)]} for d in range(4)]
        self.put(pieces, {"flat": {"devices": {"flat": names}}})
        self.check()
        odd = flat.copy()
        odd[80] += 1  # of layer_1/weights, (11, 7): element 3; device 2 has elements 78 to 116
        self.put([{**rest, "flat": odd[39 * d:39 * (d + 1)]} for d in range(4)])
        self.assertIn("1 differ\n  layer_1/weights on device 2 at (0, 3): ", self.check(code=86))
        self.put([{**rest, "flat": flat[30 * d:30 * (d + 1)]} for d in range(4)])
        self.assertIn("flat: expected at least 154 elements up to the end of layer_1/weights, given 120",
                      self.check(code=86))
        self.put(pieces, {"flat": {"devices": {"flat": ["layer_0/weights", "w1"]}}})
        self.assertIn("layout.json: flat: w1 is no result; expected ", self.check(code=86))
        theirs = np.append(np.concatenate([self.problem.expected[n].T.ravel() for n in names]), [9, 9])
        self.put([{**rest, "flat": theirs[39 * d:39 * (d + 1)]} for d in range(4)], {"flat": {"devices": {"flat": ["a", "b"]}}})
        self.check("--map", "a=layer_0/weights^T", "--map", "b=layer_1/weights^T")
        columns = [np.concatenate([self.problem.expected["layer_0/weights"][:, a].ravel(),  # over data, of tensor's slices
                                   self.problem.expected["layer_1/weights"][a].ravel()])
                   for a in (slice(0, 6), slice(6, 11))]
        pieces = [{**rest, "flat": np.array_split(columns[d % 2], 2)[d // 2]} for d in range(4)]
        self.put(pieces, {"flat": {"data": {"flat": names}}, names[0]: {"tensor": {"sharded": 1}},
                          names[1]: {"tensor": {"sharded": 0}}}, {"data": 2, "tensor": 2})
        self.check()

    def test_inside_a_test(self):
        for rank, piece in enumerate(self.columns("layer_0/weights", 3)):
            mine = {"layer_0/weights": piece, "output": self.problem.expected["output"]}
            self.assertTrue(sb.check(mine, SMALL, strategy="tp", rank=rank, world=3).is_right)
            self.assertTrue(sb.check(mine, SMALL, rank=rank, world=3).is_right)
            verdict = sb.check(mine, SMALL, strategy="tp", rank=(rank + 1) % 3, world=3)
            self.assertFalse(verdict.is_right)
        decoder = sb.problem(REAL)  # 6 heads of 2: two devices of 4 have 2 heads, the others 1
        w = decoder.expected["block_0/query"]
        for rank, begin in enumerate((0, 4, 8, 10)):
            mine = {"block_0/query": w[:, begin:begin + (4 if rank < 2 else 2)],
                    "block_1/key": decoder.expected["block_1/key"]}
            self.assertTrue(sb.check(mine, decoder, "tp", rank, 4).is_right)
            self.assertFalse(sb.check(mine, decoder, "tp", (rank + 2) % 4, 4).is_right)
        mean = {"output": self.problem.expected["output"] / 3}
        self.assertIn("a mean where a sum is meant?", str(sb.check(mean, SMALL, "tp", 0, 3)))

    def test_bad_results(self):
        """They count as wrong, and other problems are held."""
        def wrong(words):
            self.assertIn(words, self.check(code=86))
        self.put([self.whole()] * 3)
        wrong("expected a file of each of 4 devices, given no device_3.safetensors")
        for on, words in (({"devices": "everywhere"}, "everywhere, which is not replicated, partial"),
                          ({"device": "partial"}, "device, which is no axis of the mesh devices"),
                          ({"devices": {"sharded": 0, "offsets": [0, 3]}}, "2 offsets on the axis devices"),
                          ({"devices": {"sharded": 2}}, "output: sharded along axis 2, but it has 2 axes")):
            self.put([self.whole()] * 4, {"output": on})
            wrong(words)
        quarters = np.split(np.append(self.problem.expected["output"], np.zeros((3, 7)), 0), 4)
        self.put([self.whole(output=quarter[:4 - (d > 0)]) for d, quarter in enumerate(quarters)],
                 {"output": {"devices": {"sharded": 0, "offsets": [0, 4, 6, 10]}}})
        wrong("output: the offsets of its slices overlap, or leave a gap")
        self.put([self.whole()] * 4, {}, {"devices": 3})
        wrong("layout.json: expected a mesh of 4 devices, given 3")
        (self.results / "device_0.safetensors").write_bytes(b"not tensors")
        wrong("device_0.safetensors: expected a safetensors file")

    def test_bad_files(self):
        def refused(words, *more):
            self.assertRegex(self.check(*more, code=65), f"^error: [^\\n]*{words}[^\\n]*\\n$")
        refused("expected results to hold against a problem, given none")
        self.put([self.whole()] * 4, {})
        refused("/no/such/v.json: No such", "--json", "/no/such/v.json")
        manifest = self.folder / "manifest.json"
        manifest.write_text(manifest.read_text().replace('"version": 1', '"version": 2'))
        refused("expected shardbook-equivalence, version 1, given shardbook-equivalence, version 2")
        manifest.unlink()
        refused("expected a manifest, given none that can be read")

    def test_a_precision_that_decides_nothing(self):
        experts = sb.problem("decoder-real-experts")
        self.call("export", self.scratch / "experts", "--problems", experts.name)
        results = self.scratch / "experts" / experts.name / "results/1"
        results.mkdir(parents=True)
        sb.write(results / "results.safetensors", experts.expected)
        words = ["check", self.scratch / "experts", "--devices", 1]
        self.assertIn("1 right", self.call(*words))
        self.assertIn("expected a precision that decides a problem", self.call(*words, "--precision", "bf16", code=65))
        self.call("export", self.scratch / "both", "--problems", f"{SMALL},{experts.name}")
        for problem in (self.problem, experts):
            (self.scratch / "both" / problem.name / "results/1").mkdir(parents=True)
            sb.write(self.scratch / "both" / problem.name / "results/1/results.safetensors", problem.expected)
        said = self.call("check", self.scratch / "both", "--devices", 1, "--precision", "bf16", "--junit",
                         self.scratch / "v.xml")
        self.assertIn("decoder-real-experts on 1: undecided: --precision bf16 decides nothing here: two experts", said)
        self.assertIn("1 held: 1 right, 0 wrong; 0 refused by the program; 1 undecided", said)
        self.assertEqual(xml.parse(self.scratch / "v.xml").getroot().get("skipped"), "1")

    def test_bad_words(self):
        self.assertIn("expected -- and a command, given none", self.call("run", code=64))
        self.assertIn("given nothing-like-it",
                      self.call("run", "--problems", "nothing-like-it", "--", "true", code=64))
        self.assertIn("which is not empty", self.call("export", self.folder, code=64))
        self.assertIn("no-such-program: No such file", self.call("run", "--", "no-such-program", code=65))
        one = ["run", "--problems", SMALL, "--devices", "1"]
        self.assertIn("{outdir}: expected one of", self.call("run", "--", "true", "{outdir}", code=64))
        self.assertIn("expected results, given none", self.call(*one, "--", "true", code=86))
        self.assertIn("ended with code 1: it said nothing", self.call(*one, "--", "false", code=86))
        self.assertIn("expected an end within 0.2 s",
                      self.call(*one, "--seconds", "0.2", "--", "sleep", "5", code=86))


if __name__ == "__main__":
    unittest.main()
