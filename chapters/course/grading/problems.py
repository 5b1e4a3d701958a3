"""The problem that a test gives a program, and the expected results.

A test has the arguments of the chapter's program: "3 train --variant column-row --layers 4 --batch 7". Other than
there, a seed makes its weights and data. A hidden test leaves sizes open, "{2..5} train --batch {3..11}" or
"{4 --mesh rows=2,columns=2|6 --mesh rows=2,columns=3}", and the seed chooses."""
import copy
import itertools
import json
import random
import re
import shlex
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from named_tests import sizes_that_fill
from small_problems import RingProblem
import shardbook_check as sb
from shardbook_check.problems.bounded import Precision, Undecided
from shardbook_check.problems.kinds import DecoderProblem, Problem
from shardbook_check.problems.networks import Mistake

# Arguments with a network's sizes; those in the second set are also options of the program.
SIZES = {"--layers", "--batch", "--model-dim", "--hidden-dim", "--experts", "--steps",
         "--blocks", "--heads", "--key-heads", "--length", "--vocabulary"}
OF_DECODERS = {"--head-dim": 4, "--window": 0, "--rope-base": 10000, "--top-k": 1}
NOT_OPTIONS = {"--variant", "--only", "--query-scale"}


@dataclass(frozen=True)
class Test:
    """A test of an exercise."""
    text: str        # "3 train --variant column-row"
    kind: str        # "public", "hidden" or "large"
    seed: str
    wants_input_grad: bool = True  # a program may be right only if dL/dx is wanted

    @cached_property
    def words(self):
        return shlex.split(self.text)

    @property
    def devices(self):
        return int(self.words[0])

    @cached_property
    def options(self):
        """The options as {"--batch": "7"}."""
        rest = self.words[1:] if self.words[1].startswith("--") else self.words[2:]
        return dict(zip(rest[::2], rest[1::2]))

    def size(self, name, default):
        return int(self.options.get(name, default))


def settled(text, seed):
    """A hidden test's arguments, with the seed's choice in each pair of braces."""
    chooses = random.Random(f"{seed}/{text}")
    def choice(found):
        if between := re.fullmatch(r"(\d+)\.\.(\d+)", found[1]):
            return str(chooses.randint(*map(int, between.groups())))
        return chooses.choice(found[1].split("|"))
    return re.sub(r"\{([^{}]*)\}", choice, text)


# ---- Problems of steps -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Stepped(Problem):
    """A problem after steps of the optimizer `integer`, w <- ((w - g) mod 5) - 2: integers stay small."""
    steps_before: int = 0

    @cached_property
    def params(self):
        if self.steps_before == 0:
            return Problem.params.func(self)
        before = replace(self, steps_before=self.steps_before - 1, mistake=Mistake())
        return {name: np.mod(w - before.expected[name], 5) - 2 for name, w in before.params.items()}

    def with_params(self, params):
        """The results with other parameters, {name: array}."""
        other = replace(self)
        other.__dict__["params"] = params
        return {name: result.value for name, result in other.solved(Precision(0, 0)).items()}


@dataclass(frozen=True)
class OfScores(DecoderProblem):
    """A decoder with the queries' weights times a power of 2: of large scores, exponentials overflow."""
    query_scale: float = 1.0

    @cached_property
    def params(self):
        return {name: w * self.query_scale if name.endswith("query") else w
                for name, w in DecoderProblem.params.func(self).items()}


# ---- The files of a test ---------------------------------------------------------------------------------
class Asked:
    """A test as files, and its expected results, {name: array}, in `problem.expected`."""
    def __init__(self, test, chapter, beats="", knows_fullest=False):
        self.test, self.chapter, self.beats, self.knows_fullest = test, chapter, beats, knows_fullest
        self.random = random.Random(f"{test.seed}/{test.text}")
        kind = {"00": self.ring, "07": self.layer, "08": self.decoder, "05": self.mixture, "10": self.split}
        is_mixture = test.options.get("--variant", "") in ("expert-data", "switch-data")
        self.program, self.problem, self.job, self.batch = \
            (self.mixture if is_mixture else kind.get(chapter[:2], self.mlp))()
        self.wants_input_grad = self.job.get("input_grad", True)

    @cached_property
    def expected(self):
        """The expected results, {name: array}."""
        if "expected" not in self.problem.__dict__:
            results = self.problem.results("float32")
            self.problem.__dict__["expected"] = {name: result.value for name, result in results.items()}
            if self.problem.kind != "exact":
                self.bounds = {name: result.error for name, result in results.items()}
        return self.problem.expected

    @cached_property
    def bounds(self):
        """The largest allowed error of each element, {name: array}."""
        return {name: np.broadcast_to(0.0, value.shape) for name, value in self.expected.items()}

    def write(self, folder):
        """Writes the program's input, which has neither the seed nor the expected results."""
        folder.mkdir()
        (folder / "job.json").write_text(json.dumps(self.job))
        if self.batch:
            sb.write(folder / "batch.safetensors", self.batch)
        if hasattr(self.problem, "params"):
            first = replace(self.problem, steps_before=0) if isinstance(self.problem, Stepped) else self.problem
            sb.write(folder / "params.safetensors", first.params)

    @property
    def key(self):
        """The key of this test among others."""
        return self.test, self.chapter, self.job.get("steps"), self.wants_input_grad

    def of_beaten(self):
        """The same test for the program and the variant that a free exercise must beat."""
        other, (chapter, variant) = copy.copy(self), self.beats.split()
        other.chapter, other.program, other.beats = chapter, f"solve.{chapter}", ""
        other.job = {**self.job, "variant": variant}
        return other

    def with_input_grad(self):
        """The same test with dL/dx wanted."""
        other = copy.copy(self)
        other.wants_input_grad, other.job = True, {**self.job, "input_grad": True}
        return other

    def with_fewer_steps(self):
        """Yields the same test with one step, with two and so on."""
        for steps in range(getattr(self.problem, "steps_before", 0)):
            fewer = copy.copy(self)
            fewer.problem, fewer.job = replace(self.problem, steps_before=steps), {**self.job, "steps": steps + 1}
            for cached in ("expected", "bounds"):
                fewer.__dict__.pop(cached, None)
            yield fewer

    def before(self):
        """The problem with one step less; nothing for one step."""
        steps = getattr(self.problem, "steps_before", 0)
        return replace(self.problem, steps_before=steps - 1) if steps else None

    def engine_job(self):
        options = {name: value for name, value in self.test.options.items()
                   if name not in SIZES | NOT_OPTIONS}
        return {"variant": self.test.options.get("--variant", "single"), "options": options,
                "steps": self.test.size("--steps", 1), "input_grad": self.test.wants_input_grad}

    # Each of these functions returns the program, the problem, the job, and the batch.
    def mlp(self):
        t = self.test
        stages = t.devices if self.chapter.startswith("04") else 1
        stages *= 2 if t.options.get("--variant") == "interleaved" else 1
        layers = t.size("--layers", max(2, stages + stages % 2))
        usual = 64 if self.beats else self.random.randint(5, 8)  # 64 as in `train`
        wide, narrow = t.size("--model-dim", usual), t.size("--hidden-dim", 11)
        widths = tuple(wide if i % 2 == 0 else narrow for i in range(layers + 1))
        problem = self.usable(Stepped("problem", "mlp", "exact", t.size("--batch", 13), widths,
                                      seed=self.random.randrange(2**32), steps_before=t.size("--steps", 1) - 1))
        job = {**self.engine_job(), "steps": problem.steps_before + 1}
        return f"solve.{self.chapter}", problem, job, problem.batch

    def mixture(self):
        t = self.test
        job = {**self.engine_job(), "steps": 1}
        default = 1 if "switch" in job["variant"] else 2
        factor = float(job["options"].get("--capacity-factor", 1.25))
        weight = 2.0**-6
        top_k = int(job["options"].get("--top-k", default))
        job["options"] |= {"--capacity-factor": repr(factor), "--aux-weight": repr(weight)}
        widths = (t.size("--model-dim", 6), t.size("--hidden-dim", 7), t.size("--model-dim", 6))
        problem = self.usable(Problem("problem", "mixture", "real", t.size("--batch", 17), widths,
                                      seed=self.random.randrange(2**32), experts=t.size("--experts", 7),
                                      top_k=top_k, capacity_factor=factor, aux_weight=weight))
        return f"solve.{self.chapter}", problem, job, problem.batch

    def decoder(self):
        t = self.test
        job = {**self.engine_job(), "steps": 1, "input_grad": False}
        job["options"] = {**{name: str(value) for name, value in OF_DECODERS.items()}, **job["options"]}
        head_dim, window, base, top_k = (int(job["options"][name]) for name in OF_DECODERS)
        job["options"]["--epsilon"] = repr(DecoderProblem.norm_epsilon)
        problem = OfScores(
            "problem", "real", t.size("--batch", 3), t.size("--length", 9), t.size("--model-dim", 7),
            t.size("--heads", 6), t.size("--key-heads", 3), head_dim, t.size("--hidden-dim", 5), 11,
            blocks=t.size("--blocks", 2), experts=t.size("--experts", 0), top_k=top_k, window=window,
            rope_base=float(base), query_scale=float(t.size("--query-scale", 1)),
            seed=self.random.randrange(2**32))
        problem = self.usable(problem)
        return f"solve.{self.chapter}", problem, job, problem.batch

    def ring(self):
        n = self.test.devices
        least = 0 if self.test.kind == "hidden" else n * self.random.randint(1, 6)
        size = least + self.random.randint(1, max(n - 1, 1))  # chunks differ; in hidden tests some are empty
        if self.test.kind == "large":
            size = 1 << 18
        problem = RingProblem(name="ring", batch_size=n, size=size, seed=self.random.randrange(2**32))
        return "ring", problem, {}, {f"addend_{device}": problem.addends[device] for device in range(n)}

    def layer(self):
        name = self.test.options["--only"]
        axis = {"cross entropy": "vocabulary"}.get(name, "features")
        job = {"layer": name, "axis": axis, "seed": self.random.randrange(2**32)}
        return "layers", None, job, {}

    def split(self):
        most = self.test.size("--max-shard-size", 300)
        sizes = sizes_that_fill(most, self.random, self.random.randint(11, 30))
        return "split", None, {"bytes": sizes, "most": most}, {}

    def usable(self, problem):
        """A problem with exact numbers if possible, else with bounds, and without signs that rounding can change. A
        large network has too many ReLUs for the latter: there, such a sign makes bounds larger."""
        unsure = "counts" if self.test.kind == "large" else "refused"
        for kind in dict.fromkeys((problem.kind, "real")):
            for seed in itertools.islice(itertools.count(problem.seed), 200):
                is_one_step = {"steps_before": 0} if kind == "real" and isinstance(problem, Stepped) else {}
                candidate = replace(problem, kind=kind, seed=seed, **is_one_step)
                try:
                    coarsest = candidate.results("float32", if_unsure=unsure)
                except Undecided:
                    if candidate.kind == "exact" and seed > problem.seed + 3:
                        break
                    continue
                if kind == "real" or all((r.value != 0).mean() >= 0.5 for r in coarsest.values()):
                    return candidate
        raise Undecided(f"{problem}: no seed makes it decided")
