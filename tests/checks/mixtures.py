"""Expert parallel mixtures with one mistake each, on simulated devices: lists with an entry for each. Rows of the batch
(tokens) and experts are divided."""
import sys
from pathlib import Path

import numpy as np

root = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(root / "chapters/suite"), str(root / "tests/equivalence/adapters")]
import router
import shardbook_check as sb
from shardbook_check.problems.files import Stored
from shardbook_check.problems.kinds import vars_of


class Mixture:
    """`planted`: the mistake, or ""."""
    def __init__(self, problem, devices, planted=""):
        self.p, self.n, self.planted = vars_of(problem), devices, planted
        self.read = {name: t.astype("f4") for of in (problem.params, problem.batch) for name, t in of.items()}
        self.rows = [np.arange(*sb.part(problem.batch_size, devices, d)) for d in range(devices)]
        self.owned = [list(range(*sb.part(problem.experts, devices, d))) for d in range(devices)]
        self.stored = self.owned  # under which numbers experts' gradients are written
        if planted == "experts dealt out in turn":
            self.owned = [list(range(d, problem.experts, devices)) for d in range(devices)]

    def expert(self, e):
        """The expert whose weights answer for e."""
        if self.planted == "experts dealt out in turn":  # what is read in turn is taken for a range
            places = [e for of in self.owned for e in of]
            return places[e]
        return e

    def routed(self, logits):
        if self.planted == "router's logits in bfloat16":
            logits = sb.rounded(logits, "BF16").astype("f4")
        p, chosen, gates = router.choose(logits, self.p["top_k"])
        if self.planted == "gates of two exchanged":
            gates = gates[:, ::-1].copy()
        if self.planted == "gates of two not divided by their sum":
            gates = np.take_along_axis(p, chosen, 1)
        return p, chosen, gates

    def room(self, chosen):
        if self.planted == "capacity of own tokens":
            return np.concatenate([router.with_room(chosen[rows], self.p) for rows in self.rows])
        if self.planted == "tokens dropped, none should be":
            return router.with_room(chosen, {**self.p, "capacity_factor": 1.0})
        if self.planted == "capacity rounded down":
            flat, e = chosen.T.ravel(), self.p["experts"]
            factor = self.p["capacity_factor"]
            place = np.eye(e)[flat].cumsum(0)[range(flat.size), flat]
            most = np.inf if factor == "none" else factor * flat.size // e
            return (place <= most).reshape(chosen.T.shape).T
        return router.with_room(chosen, self.p)

    def balanced(self, device, p, chosen, gates, dgates, all_chosen):
        fields, counted = dict(self.p), all_chosen
        if self.planted == "balancing loss of each device, added up":
            fields["aux_weight"] *= self.n
        if self.planted == "balancing loss of own tokens":
            counted = chosen
            fields["aux_weight"] /= self.n
        if self.planted == "balancing loss forgotten":
            fields["aux_weight"] = 0
        if self.planted == "balancing loss without the number of experts":
            fields["aux_weight"] /= self.p["experts"]
        return router.backward(fields, p, chosen, gates, dgates, counted)

    def results(self):
        x, dy, w = self.read["input"], self.read["output_grad"], self.read["router/weights"]
        plant, n = self.planted, self.n
        p, chosen, gates = self.routed(x @ w)
        kept = self.room(chosen)
        if plant == "second choices lost" and self.p["top_k"] > 1:
            kept = kept & (np.arange(self.p["top_k"]) == 0)
        output, input_grad, dgates = np.zeros_like(dy), np.zeros_like(x), np.zeros_like(gates)
        grads = [{} for _ in range(n)]
        device_of = np.repeat(np.arange(n), [len(rows) for rows in self.rows])
        for d in range(n):
            for e in self.stored[d]:
                names = [f"expert_{e}/layer_{layer}/weights" for layer in range(2)]
                w0, w1 = (self.read[f"expert_{self.expert(e)}/layer_{layer}/weights"] for layer in range(2))
                if plant == "second layers of the next expert":
                    w1 = self.read[f"expert_{(e + 1) % self.p['experts']}/layer_1/weights"]
                token, rank = np.nonzero(kept & (chosen == e))
                if plant == "an expert's first token lost" and len(token) > 1:
                    token, rank = token[1:], rank[1:]
                gate = gates[token, rank][:, None]
                if plant == "gates of the token before":
                    gate = np.roll(gate, 1, axis=0)
                if plant == "answers in the order of devices":  # each device's own first
                    order = np.argsort((device_of[token] - d) % n, kind="stable")
                else:
                    order = np.arange(len(token))
                a = x[token]
                h = np.maximum(a @ w0, 0)
                y = h @ w1
                at_home = gate * y[order] if plant != "gates forgotten on the way out" else y
                if plant == "gates multiplied at both ends":
                    at_home = gate * at_home
                np.add.at(output, token, at_home)
                back = dy[token] * gate
                if plant == "gates not multiplied backward":
                    back = dy[token]
                dh = (back @ w1.T) * (h > 0)
                here = device_of[token] == d if plant == "dL/dx of own experts alone" else np.ones(len(token), bool)
                np.add.at(input_grad, token[here], (dh @ w0.T)[here])
                dgates[token, rank] = (dy[token] * y).sum(1)
                if plant == "experts' masks forgotten":
                    dh = back @ w1.T
                of = [a.T @ dh, h.T @ back]
                if plant == "experts' gradients a mean over their tokens":
                    of = [g / np.float32(max(len(token), 1)) for g in of]
                if plant == "experts' gradients divided by N":
                    of = [g / np.float32(n) for g in of]
                if plant == "experts' gradients of own tokens":
                    mine = device_of[token] == d
                    of = [a[mine].T @ dh[mine], h[mine].T @ back[mine]]
                grads[d].update(zip(names, of))
        addends, found = [], []
        if plant == "gates detached":
            dgates = dgates * 0
        for d, rows in enumerate(self.rows):
            dz = self.balanced(d, p[rows], chosen[rows], gates[rows], dgates[rows], chosen)
            if plant != "router's dx forgotten":
                input_grad[rows] += dz @ w.T
            addends.append(x[rows].T @ dz)
        for d, rows in enumerate(self.rows):
            of_router = sum(addends)
            if plant == "router's gradient not summed":
                of_router = addends[d]
            if plant == "router's gradient a mean":
                of_router = of_router / np.float32(n)
            found.append({"output": output[rows], "input_grad": input_grad[rows], "router/weights": of_router, **grads[d]})
        return found


def pieces(problem, program, devices, planted=""):
    """What each device has: as check_pieces wants it."""
    return [{name: Stored(np.asarray(t, float), "F32") for name, t in of.items()}
            for of in program(problem, devices, planted).results()]
