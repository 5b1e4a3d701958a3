"""Steps of an optimizer with the reference's gradients, also with gradients as a wrong version would have them.

For torch, `optimizer` makes one: lambda parameters: torch.optim.AdamW(parameters, lr=1e-3). For others it is a function
(params, grads, state) -> params, where `state` is a dict that it fills. Results: each parameter under its name, after the
last step; its state, as NAME/exp_avg; and loss/1, norm/1 and so on, of each step."""
from __future__ import annotations

import sys


def keeper(case, params):
    """Parameters with their optimizer."""
    return (Torch if case.framework.__name__.endswith("in_torch") else Plain)(case, params)


def trained(case, params, batches, wrong=None, clip=None, after=None, state=None):
    """`wrong(step, gradients, params, batch)` gives other gradients, `clip(gradients)` clipped ones, and
    `after(step, parameters before, now, state)` other parameters, where a wrong version has them; `state`: what it has at first."""
    keep = keeper(case, params)
    keep.kept = {**(state or {}), **keep.kept}
    results = {}
    for step in range(case.steps):
        batch = batches[step % len(batches)]
        found = case.reference(keep.params(), batch)
        grads = {name: value for name, value in found.items() if name in params}
        if wrong:
            grads = wrong(step, grads, keep.params(), batch)
        for name, value in found.items():
            if name not in params:
                results[f"{name}/{step + 1}"] = value
        norm = keep.clipped(clip(grads) if clip else grads, None if clip else case.clip)
        if norm is not None:
            results[f"norm/{step + 1}"] = norm
        before = keep.params()
        keep.step()
        if after:
            keep.replace(after(step, before, keep.params(), keep.kept))
    return {**results, **keep.params(), **keep.state()}


class Torch:
    def __init__(self, case, params):
        self.torch = sys.modules["torch"]
        self.of = {name: self.torch.nn.Parameter(value.clone()) for name, value in params.items()
                   if value.is_floating_point()}
        self.rest = {name: value for name, value in params.items() if name not in self.of}
        self.optimizer = case.optimizer(list(self.of.values()))

    def params(self):
        return {**{name: value.detach().clone() for name, value in self.of.items()}, **self.rest}

    def clipped(self, grads, clip):
        for name, value in self.of.items():
            value.grad = grads[name].detach().clone() if name in grads else None
        return self.torch.nn.utils.clip_grad_norm_(self.of.values(), clip) if clip else None

    def step(self):
        self.optimizer.step()

    kept = {}  # its state is the optimizer's own

    def replace(self, params):
        with self.torch.no_grad():
            for name, value in self.of.items():
                value.copy_(params[name])

    def state(self):
        return {f"{name}/{key}": part for name, value in self.of.items()
                for key, part in self.optimizer.state.get(value, {}).items() if getattr(part, "dim", lambda: 0)()}


class Plain:
    def __init__(self, case, params):
        self.of, self.optimizer, self.kept, self.framework = dict(params), case.optimizer, {}, case.framework

    def params(self):
        return dict(self.of)

    def clipped(self, grads, clip):
        self.grads = grads
        if clip:
            norm = sum((value * value).sum() for value in grads.values()) ** 0.5
            share = clip / (norm + 1e-6)
            if where := getattr(self.framework, "where", None):  # of values that are not known yet
                self.grads = {name: where(share < 1, value * share, value) for name, value in grads.items()}
            elif share < 1:
                self.grads = {name: value * share for name, value in grads.items()}
            return norm
        return None

    def step(self):
        self.of.update(self.optimizer(self.of, self.grads, self.kept))

    def replace(self, params):
        self.of.update(params)

    def state(self):
        return {f"{name}/{key}": value for key, of in self.kept.items() if isinstance(of, dict)
                for name, value in of.items()}
