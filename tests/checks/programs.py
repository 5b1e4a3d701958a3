"""The cases of `score`: sharded programs, right ones and wrong ones, as folders of files that know no framework."""
import functools
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import sharded_mlp
from held_out import TABLE as HELD_OUT, HeldOut

import shardbook_check as sb

PROBLEMS = ("mlp-exact-13x7x11x7", "mlp-real-13x7x11x7", "mlp-real-16x8x24x8", "mlp-adam-13x7x11x7", "mlp-adam-16x8x24x8")
MESHES = ((1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (1, 2), (1, 3), (1, 4), (2, 2), (2, 3), (3, 2))  # of (data, tensor)
STEPS = 50  # of a loss curve


class Program(HeldOut):
    """A sharded mlp that also says the loss of each step."""
    def __init__(self, *words):
        super().__init__(*words)
        self.losses = []

    def step(self):
        y, dx, g = super().step()
        if "target" in self.batch:
            of = [(y[d], self.rows(d[0])) for d in y if d[1] == 0]
            counts = [self.p.row_weights[rows][:, None] for _, rows in of]
            total = sum((c * (out - self.batch["target"][rows]) ** 2).sum() for (out, rows), c in zip(of, counts))
            self.losses.append(float(total / max(sum(c.sum() for c in counts) * self.p.widths[-1], 1)))
        return y, dx, g


@dataclass(frozen=True)
class Case:
    problem: str
    mesh: tuple
    planted: str = ""  # "": a right program

    @property
    def name(self):
        return "-".join([self.problem, f"{self.mesh[0]}x{self.mesh[1]}", *([self.planted.replace(" ", "-")] if self.planted else [])])

    @functools.cached_property
    def of(self):
        return sb.problem(self.problem)

    @functools.cached_property
    def pieces(self):
        """(pieces, layout) of check_pieces."""
        return Program(self.of, *self.mesh, self.planted).pieces()

    @functools.cached_property
    def losses(self):
        """Of 50 steps of training; () of a problem that does not train."""
        if not self.of.is_training:
            return ()
        program = Program(replace(self.of, steps=STEPS), *self.mesh, self.planted)
        program.train()
        return tuple(program.losses)

    @functools.cached_property
    def whole(self):
        """{name: array}: pieces put together, where they fit, and all of them behind one another where they do not."""
        pieces, (_, letters) = self.pieces
        found = {}
        for name in pieces[0]:
            axis = {letter.axis for letter in letters[name] if letter.kind == "S"}
            cuts = len(self.mesh) - 1 if letters[name][1].kind == "S" else 0
            of = [p[name].values for k, p in enumerate(pieces)
                  if (k % self.mesh[1] if cuts == 0 else k // self.mesh[1]) == 0]
            found[name] = np.concatenate(of, axis.pop()) if axis else of[0]
        return {name: t.astype("f4") for name, t in found.items()}

    def on(self, problem, data, tensor):
        """This program, made for another problem and mesh."""
        return Program(problem, data, tensor, self.planted)

    def right_on(self, problem, data, tensor):
        return Program(problem, data, tensor)

    def at(self, params):
        """The loss of this program with other parameters, as the program adds it up: Σ output · output_grad over its rows."""
        moved = replace(self.of)
        moved.__dict__.update(params=params, batch=self.of.batch)
        program = Program(moved, *self.mesh, self.planted)
        y, _, _ = program.step()
        return float(sum((y[d, 0].astype(float) * self.of.batch["output_grad"][program.rows(d)]).sum() for d in range(self.mesh[0])))

    def write(self, folder):
        """single/ and sharded/ hold results as the suite's format has them, with whole.safetensors beside."""
        (folder / "single").mkdir(parents=True)
        (folder / "sharded").mkdir()
        single, (pieces, (_, letters)) = single_of(self.problem), self.pieces
        sb.write(folder / "params.safetensors", self.of.params)
        sb.write(folder / "batch.safetensors", self.of.batch)
        sb.write(folder / "single/results.safetensors", single.whole)
        sb.write(folder / "whole.safetensors", self.whole)
        for k, piece in enumerate(pieces):
            sb.write(folder / f"sharded/device_{k}.safetensors", {name: t.values for name, t in piece.items()})
        tensors = {name: {axis: {"sharded": letter.axis} for axis, letter in zip(("data", "tensor"), of) if letter.kind == "S"}
                   for name, of in letters.items() if name in pieces[0]}
        (folder / "sharded/layout.json").write_text(json.dumps(
            {"version": 1, "mesh": dict(zip(("data", "tensor"), self.mesh)), "tensors": tensors}))
        (folder / "losses.json").write_text(json.dumps({"single": single.losses, "sharded": self.losses}))


@functools.cache
def single_of(problem):
    return Case(problem, (1, 1))


def right():
    """More than a hundred right programs."""
    return [Case(problem.name, mesh) for problem in sb.problems() if problem.workload == "mlp" for mesh in MESHES]


def wrong():
    """Wrong programs: each mistake on each mesh in each of the problems, where it changes a result."""
    for planted, meshes, _ in [*sharded_mlp.TABLE, *HELD_OUT]:
        for mesh in meshes:
            for problem in PROBLEMS:
                case = Case(problem, mesh, planted)
                try:
                    given = case.pieces[0]
                except ValueError:  # slices that do not fit together
                    continue
                if any(a[name].values.shape != b[name].values.shape or (a[name].values != b[name].values).any()
                       for a, b in zip(given, Case(problem, mesh).pieces[0]) for name in a):
                    yield case
