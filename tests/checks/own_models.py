"""A model of one's own, on one device and sharded, with one mistake each: the devices are entries of a dict. Rows of the
batch are divided over data; hidden units (columns of `up`, rows of `down`) over tensor. And decoders and mixtures of
decoders.py and mixtures.py, held against themselves on one device."""
import itertools
import sys
from pathlib import Path

import numpy as np

root = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(root / "chapters/suite"), str(root / "tests/equivalence/adapters")]
import numpy_decoder
import shardbook_check as sb
from decoders import Group
from mixtures import Mixture
from shardbook_check.own.held import verdict
from shardbook_check.problems.kinds import vars_of
from shardbook_check.problems.layers import turns

ROWS, RATE, BETAS, EPSILON, DECAY, CLIP, STEPS = 12, 2.0**-5, (0.75, 0.875), 2.0**-6, 0.125, 0.5, 4
LAYOUT = {"up": {"tensor": {"sharded": 1}}, "shift": {"tensor": {"sharded": 0}}, "down": {"tensor": {"sharded": 0}},
          "hidden": {"data": {"sharded": 0}, "tensor": {"sharded": 1}}, "out": {"data": {"sharded": 0}}}
CUT = {"up": 1, "shift": 0, "down": 0}


def numbers(seed=0):
    random = np.random.default_rng(seed)
    params = {"first": random.normal(size=(6, 7)) / 2, "up": random.normal(size=(7, 12)) / 2,
              "shift": random.normal(size=12) / 2, "down": random.normal(size=(12, 6)) / 2, "bias": random.normal(size=6),
              "head": random.normal(size=(6, 5)) / 2}
    batch = {"x": random.normal(size=(ROWS, 6)), "y": random.normal(size=(ROWS, 5)),
             "keep": random.integers(0, 2, (ROWS, 12)) * 2.0, "count": random.integers(1, 4, ROWS) * 1.0}
    return tuple({name: value.astype("f4") for name, value in of.items()} for of in (params, batch))


def forward(w, b):
    first = b["x"] @ w["first"]
    h = np.maximum(first @ w["up"] + w["shift"], 0) * b["keep"]
    return first, h, h @ w["down"]


def reference(w, b):
    first, h, out = forward(w, b)
    out = out + w["bias"]
    z = out @ w["head"]
    off, share = z - b["y"], b["count"] / b["count"].sum()
    dz = 2 * off * share[:, None]
    dout = dz @ w["head"].T
    dh = (dout @ w["down"].T) * b["keep"] * (h > 0)
    dfirst = dh @ w["up"].T
    return {"hidden": h, "out": out, "loss": (off * off * share[:, None]).sum(), "head": out.T @ dz, "bias": dout.sum(0),
            "down": h.T @ dout, "shift": dh.sum(0), "up": first.T @ dh, "first": b["x"].T @ dfirst}


def adamw(params, grads, state):
    """Adam with decoupled weight decay, in the words of sb.case."""
    return stepped(params, grads, state)


def stepped(params, grads, state, rate=RATE, betas=BETAS, decay=DECAY, epsilon=EPSILON):
    step = state["step"] = state.get("step", 0) + 1
    m, v = (state.get(key, {name: 0 * g for name, g in grads.items()}) for key in ("exp_avg", "exp_avg_sq"))
    f = np.float32
    state["exp_avg"] = {name: m[name] * f(betas[0]) + g * f(1 - betas[0]) for name, g in grads.items()}
    state["exp_avg_sq"] = {name: v[name] * f(betas[1]) + g * g * f(1 - betas[1]) for name, g in grads.items()}
    found = {}
    for name in grads:
        top = state["exp_avg"][name] / f(1 - betas[0]**step)
        below = np.sqrt(state["exp_avg_sq"][name] / f(1 - betas[1]**step)) + f(epsilon)
        found[name] = params[name] * f(1 - rate * decay) - top / below * f(rate)
    return found


class Own:
    """The same on a mesh of data x tensor. `planted`: the mistake, or ""."""
    def __init__(self, data, tensor, planted="", steps=0, seed=0):
        self.data, self.tensor, self.planted, self.steps = data, tensor, planted, steps
        self.params, self.batch = numbers(seed)
        self.devices = list(itertools.product(range(data), range(tensor)))
        self.w = {d: self.loaded(d) for d in self.devices}
        self.state, self.before = {d: {} for d in self.devices}, {}

    def case(self):
        more = {"optimizer": adamw, "steps": self.steps, "clip": CLIP} if self.steps else {}
        return sb.case(reference, self.params, self.batch, name="own", **more)

    def cut(self, name, t, of=None):
        size = (of if of is not None else self.params[name]).shape[CUT[name]]
        begin, end = sb.part(size, self.tensor, t)
        return (slice(None),) * CUT[name] + (slice(begin, end),)

    def loaded(self, d):
        found = {}
        for name, value in self.params.items():
            t = d[1]
            if self.planted == "next rank's slice of down" and name == "down":
                t = (t + 1) % self.tensor
            if self.planted == "slice 0 of shift on each device" and name == "shift":
                t = 0
            found[name] = value[self.cut(name, t)] if name in CUT else value
            if self.planted == "head drawn anew on each device" and name == "head" and d[0]:
                found[name] = np.random.default_rng(d[0]).normal(size=value.shape).astype("f4") / 2
        return found

    def rows(self, d):
        rows = np.arange(*sb.part(ROWS, self.data, 0 if self.planted == "rows of device 0 on every device" else d[0]))
        if self.planted == "last micro-batch of 3 dropped":
            rows = rows[:len(rows) * 2 // 3]
        return rows

    def mine(self, d):
        found = {name: value[self.rows(d)] for name, value in self.batch.items()}
        if self.planted == "labels of the next device's rows":
            found["y"] = self.batch["y"][self.rows(((d[0] + 1) % self.data, 0))]
        if self.planted == "one mask on all data ranks":
            found["keep"] = self.batch["keep"][self.rows((0, 0))]
        t = 0 if self.planted == "one mask on all tensor ranks" else d[1]
        if self.planted == "labels strided, rows contiguous":
            found["y"] = self.batch["y"][d[0]::self.data]
        if self.planted == "counts of the device before":
            found["count"] = self.batch["count"][self.rows(((d[0] - 1) % self.data, 0))]
        begin, end = sb.part(12, self.tensor, t)
        found["keep"] = found["keep"][:, begin:end]
        return found

    def over(self, of, axis):
        return {d: sum(of[e] for e in self.devices if e[1 - axis] == d[1 - axis]) for d in self.devices}

    def gradients(self):
        plant, f = self.planted, np.float32
        b, kept = {d: self.mine(d) for d in self.devices}, {}
        for d in self.devices:
            kept[d] = forward(self.w[d], b[d])
        partial = {d: kept[d][2] + self.w[d]["bias"] if plant == "bias added on each device" else kept[d][2]
                   for d in self.devices}
        out = partial if plant == "out not reduced" else self.over(partial, 1)
        if plant not in ("bias added on each device", "bias not added"):
            out = {d: out[d] + self.w[d]["bias"] for d in self.devices}
        total = self.batch["count"].sum()
        if plant == "mean over rows, not counts":
            total = f(ROWS)
        found = {}
        for d in self.devices:
            w, of, (first, h, _) = self.w[d], b[d], kept[d]
            divisor = of["count"].sum() * f(self.data) if plant == "mean of means" else total
            off, share = out[d] @ w["head"] - of["y"], of["count"] / divisor
            dz = 2 * off * share[:, None]
            dout = dz @ w["head"].T
            keep = of["keep"]
            if plant == "mask not applied backward":
                keep = 0 * keep + 1
            if plant == "another mask in the backward pass":
                keep = np.roll(keep, 1, axis=0)
            dh = (dout @ w["down"].T) * keep * (first @ w["up"] + w["shift"] > 0)
            dfirst = dh @ w["up"].T
            found[d] = {"hidden": h, "out": out[d], "loss": (off * off * share[:, None]).sum(), "head": out[d].T @ dz,
                        "bias": dout.sum(0), "down": h.T @ dout, "shift": dh.sum(0), "up": first.T @ dh, "dfirst": dfirst}
        dfirst = {d: found[d].pop("dfirst") for d in self.devices}
        if plant != "dx not reduced":
            dfirst = self.over(dfirst, 1)
        for d in self.devices:
            found[d]["first"] = b[d]["x"].T @ dfirst[d]
            if plant == "accumulated, and divided by 2 once too often":
                found[d].update({name: found[d][name] / f(2) for name in self.params})
            if plant == "first a mean over tensor":
                found[d]["first"] = found[d]["first"] / f(self.tensor)
            if plant == "bias reduced over tensor, too":
                found[d]["bias"] = found[d]["bias"] * f(self.tensor)
        return found

    def reduced(self, found, step):
        plant = self.planted
        if plant == "clipped before the sum":
            of = self.clipped({d: {name: found[d][name] for name in self.params} for d in self.devices})
            found = {d: {**found[d], **of[d]} for d in self.devices}
        for name in (*self.params, "loss"):
            if plant == "last bucket not reduced" and name in ("first", "up"):
                continue
            if plant == "not reduced in the last step" and step == self.steps - 1:
                continue
            for d, total in self.over({d: found[d][name] for d in self.devices}, 0).items():
                found[d] = {**found[d], name: total / np.float32(self.data if plant == "mean" else 1)}
        grads = {d: {name: found[d][name] for name in self.params} for d in self.devices}
        if plant == "gradients of the first step in every step":
            grads = self.before = self.before or grads
        if plant == "stale bucket":
            now = {d: grads[d]["up"] for d in self.devices}
            for d in self.devices:
                grads[d]["up"] = self.before.get(d, grads[d]["up"])
            self.before = now
        return found, grads

    def clipped(self, grads):
        plant, found = self.planted, {}
        squares = {d: {name: float((g.astype(float)**2).sum()) for name, g in of.items()} for d, of in grads.items()}
        for d, of in grads.items():
            total = 0.0
            for name in of:
                if plant == "norm without biases" and name in ("bias", "shift"):
                    continue
                group = [e for e in self.devices if e[0] == d[0]] if name in CUT and plant != "norm of own slices" else [d]
                total += sum(squares[e][name] for e in group)
            if plant == "norm of each tensor":
                found[d] = {name: g * np.float32(min(1, CLIP / (np.sqrt(squares[d][name]) + 1e-6))) for name, g in of.items()}
                continue
            share = 1 if plant == "not clipped" else min(1, CLIP / (np.sqrt(total) + 1e-6))
            found[d] = {name: g * np.float32(share) for name, g in of.items()}
        return found

    def updated(self, d, grads, step):
        plant, more = self.planted, {}
        if plant == "decay applied twice":
            more["decay"] = 2 * DECAY
        if plant == "rate times N":
            more["rate"] = RATE * self.data
        if plant == "rate warmed up":
            more["rate"] = RATE * (step + 1) / self.steps
        if plant == "betas exchanged":
            more["betas"] = BETAS[::-1]
        if plant == "epsilon of another default":
            more["epsilon"] = 1e-8
        if plant == "steps counted twice":
            self.state[d]["step"] = self.state[d].get("step", 0) + 1
        self.before_update = {key: dict(of) if isinstance(of, dict) else of for key, of in self.state[d].items()}
        found = stepped(self.w[d], grads, self.state[d], **more)
        if plant == "no decay of biases":
            without = stepped(self.w[d], grads, self.before_update, decay=0)
            found.update({name: without[name] for name in ("bias", "shift")})
        if plant == "weights kept in bfloat16":
            found = {name: sb.rounded(value, "BF16").astype("f4") for name, value in found.items()}
        if plant == "first one step late":
            self.late = getattr(self, "late", {})
            found["first"], self.late[d] = self.late.get(d, self.w[d]["first"]), found["first"]
        if plant == "state of up lost" and step == 1:
            for key in ("exp_avg", "exp_avg_sq"):
                self.state[d][key]["up"] = 0 * self.state[d][key]["up"]
        if plant == "replica 1 misses the second step" and d[0] == 1 and step == 1:
            return self.w[d]
        if plant == "replica 1 misses the last step" and d[0] == 1 and step == self.steps - 1:
            return self.w[d]
        if plant == "pieces of up not gathered":  # each data rank has updated its rows
            mine = slice(*sb.part(7, self.data, d[0]))
            up = self.w[d]["up"].copy()
            up[mine] = found["up"][mine]
            found["up"] = up
        if plant == "state of the next piece" and step == 1:  # read again after two steps, and cut otherwise
            for key in ("exp_avg", "exp_avg_sq"):
                of = self.state[d][key]
                of["up"] = np.roll(of["up"], -sb.part(7, self.data, 0)[1], axis=0)
        return found

    def results(self):
        found, grads = self.reduced(self.gradients(), 0)
        if not self.steps:
            return [found[d] for d in self.devices]
        for step in range(self.steps):
            if step:
                found, grads = self.reduced(self.gradients(), step)
            grads = self.clipped(grads)
            self.w = {d: self.updated(d, grads[d], step) for d in self.devices}
        return [self.w[d] for d in self.devices]

    def verdict(self):
        mesh = {"data": self.data, "tensor": self.tensor}
        return verdict(self.results(), self.case(), mesh, layout=LAYOUT)


class OneDevice(numpy_decoder.Decoder):
    """A decoder on one device."""
    def __init__(self, problem, w):
        super().__init__(None, problem, w)
        at = np.arange(problem["length"])
        self.at = turns(at, problem["head_dim"], problem["rope_base"])
        self.sees = (at <= at[:, None]) & (at > at[:, None] - (problem["window"] or len(at)))
        self.key_of = np.arange(problem["heads"]) // (problem["heads"] // problem["key_heads"])


def decoder_case(problem):
    fields = vars_of(problem)

    def decoder(params, batch):
        labels = batch["labels"]
        one = OneDevice({**fields, "batch_size": len(labels)}, params)
        mean = (labels >= 0) / (labels >= 0).sum()
        z, losses = one.step(batch["input_ids"], labels, mean)
        return {"logits": z.reshape(*labels.shape, -1), "loss": (losses * mean.ravel()).sum(), **one.g}
    params = {name: t.astype("f4") for name, t in problem.params.items()}
    return sb.case(decoder, params, problem.batch, name="decoder")


def decoder_verdict(problem, program, devices, planted, case):
    read = {name: t.astype("f4") for name, t in problem.params.items()}
    with np.errstate(all="ignore"):
        found = Group(devices).run(lambda group: program(group, vars_of(problem), read, planted).results(problem.batch))
    return verdict(found, case)


def mixture_case(problem):
    def mixture(params, batch):
        one = Mixture(problem, 1)
        one.read, one.rows = {**params, **batch}, [np.arange(len(batch["input"]))]
        return one.results()[0]
    params, batch = ({name: t.astype("f4") for name, t in of.items()} for of in (problem.params, problem.batch))
    return sb.case(mixture, params, batch, name="mixture")


def mixture_verdict(problem, program, devices, planted, case):
    return verdict(program(problem, devices, planted).results(), case)
