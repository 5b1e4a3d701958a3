"""What wrong versions of one's own training give: steps of the reference in which one thing is done otherwise; or of several
replicas, each with its own parameters and rows."""
from __future__ import annotations

import functools

import numpy as np

from ..problems.bounded import part
from . import training


def versions(case, placed, mesh, wrong):
    """Yields (cause, results by device, whether they are rough)."""
    for text, run in of_one(case, placed, mesh, wrong):
        yield text, lambda device, run=functools.cache(run): run(), False
    yield from of_clipping(case, placed)
    for axis, size in enumerate(mesh.values()):
        if 1 < size <= case.batch_size:
            words = f" over {list(mesh)[axis]}" if len(mesh) > 1 else ""
            for text, run in of_replicas(case, size, words):
                yield text, lambda device, run=functools.cache(run), axis=axis: \
                    run()[np.unravel_index(device, tuple(mesh.values()))[axis]], False


def ran(case, **more):
    """{name: array} of a training in which one thing is done otherwise."""
    return case.ran_on(case.batches, lambda params, batches: training.trained(case, params, batches, **more))[0]


def buckets(case):
    """(words, names): a parameter; all but some of the first; all but some of the last."""
    names = list(case.params)
    for name in names:
        yield name, (name,)
    for k in range(2, len(names)):
        yield f"{names[0]} to {names[k - 1]}", tuple(names[:k])
    for k in range(1, len(names) - 1):
        yield f"{names[k]} to {names[-1]}", tuple(names[k:])


# ---- One program
def of_one(case, placed, mesh, wrong):
    sizes = sorted({size for size in mesh.values() if size > 1} | {int(np.prod(list(mesh.values())))} - {1})
    if case.clip:
        yield "gradients not clipped?", functools.partial(ran, case, clip=lambda grads: grads)
        yield "each tensor clipped by its own norm?", functools.partial(ran, case, clip=lambda grads: {
            name: clipped({name: g}, case.clip)[name] for name, g in grads.items()})
        for words, names in (*buckets(case), *of_one_axis(case)):
            yield f"clipped by a norm without {words}?", functools.partial(ran, case, clip=lambda grads, names=names: clipped(
                grads, case.clip, of=[name for name in grads if name not in names]))
        for size in sizes:
            yield f"clipped by a norm that counts each gradient {size} times?", \
                functools.partial(ran, case, clip=lambda grads, size=size: clipped(grads, case.clip, size**0.5))
    for size in sizes:
        for factor, words in ((size, str(size)), (1 / size, f"1/{size}")):
            yield f"steps {words} times as long: the learning rate times {words}?", functools.partial(ran, case, after=longer(factor))
    count = case.steps
    for words, factor in (("warmed up over these steps", lambda step: (step + 1) / count), ("as of the step before in a warm-up",
                          lambda step: step / count), ("falling to 0 over these steps", lambda step: 1 - step / count)):
        yield f"the learning rate {words}?", functools.partial(
            ran, case, after=lambda step, before, now, state, factor=factor: longer(factor(step))(step, before, now, state))
    for words, names in buckets(case):
        yield f"{words} one step late: weights of the step before, not gathered in time?", functools.partial(behind, case, names)
    yield from fitted(case, wrong)
    yield from scaled_in_each_step(case, wrong)
    yield "the result of the step before: weights not updated, or not gathered after the step?", \
        functools.partial(ran, case, after=lambda step, before, now, state: before if step == case.steps - 1 else now)
    yield "every step with the gradients of the first step: never computed again?", functools.partial(ran, case, wrong=first())
    for words, names in buckets(case):
        yield f"the gradient of {words} one step late: a stale bucket?", functools.partial(ran, case, wrong=late(names))
    for name in case.params:
        yield f"{name} never updated?", functools.partial(ran, case, after=lambda step, before, now, state, name=name: {**now, name: before[name]})
    for extra in (1, -1):
        yield f"the optimizer's count of steps {'two at a time' if extra > 0 else 'never more than at first'}: another bias correction?", \
            functools.partial(ran, case, after=counting(extra))
    yield "the optimizer's count of steps two at a time, from 2: another bias correction?", functools.partial(counted_twice, case)
    yield from of_settings(case)
    for step in range(case.steps - 1):
        yield f"the optimizer's count of steps begins again after step {step + 1}: another bias correction?", \
            functools.partial(ran, case, after=counted_anew(step))
        for name in case.params:
            yield f"the optimizer's state of {name} lost after step {step + 1}?", \
                functools.partial(ran, case, after=with_state(step, name, lambda value: 0 * value))
        yield f"the optimizer's state lost after step {step + 1}?", functools.partial(ran, case, after=with_state(step, None, lambda value: 0 * value))
        for name, value in case.params.items():
            for axis in range(getattr(value, "ndim", 0)):
                for size in sizes:
                    by = -(-value.shape[axis] // size)
                    for shift in (-by, by):
                        yield f"after step {step + 1}, the optimizer's state of {name} from another device's piece of axis {axis}?", \
                            functools.partial(ran, case, after=with_state(step, name, lambda t, shift=shift, axis=axis: np.roll(t, shift, axis)))


def of_one_axis(case):
    """Biases and norms, together."""
    flat = tuple(name for name, value in case.params.items() if getattr(value, "ndim", 0) < 2)
    if len(flat) > 1:
        yield "parameters of one axis, as biases", flat


def clipped(grads, most, times=1.0, of=None):
    norm = times * sum((grads[name] * grads[name]).sum() for name in (grads if of is None else of)) ** 0.5
    share = most / (norm + 1e-6)
    return {name: g * share for name, g in grads.items()} if share < 1 else grads


def longer(factor):
    return lambda step, before, now, state: {name: before[name] + (value - before[name]) * factor for name, value in now.items()}


def late(names):
    kept = {}

    def gradients(step, grads, params, batch):
        before, kept[step] = kept.get(step - 1, grads) if step else grads, grads
        return {name: before[name] if name in names else g for name, g in grads.items()}
    return gradients


def first():
    kept = {}

    def gradients(step, grads, params, batch):
        return kept.setdefault("first", grads) if step else kept.update(first=grads) or grads
    return gradients


def counting(extra):
    """Steps of which the optimizer counts one more, or none, each time."""
    def after(step, before, now, state):
        for key, value in state.items():
            if np.ndim(value) == 0 and not isinstance(value, dict):
                state[key] = value + extra
        return now
    return after


def counted_anew(at):
    def after(step, before, now, state):
        for key, value in state.items() if step == at else ():
            if np.ndim(value) == 0 and not isinstance(value, dict):
                state[key] = 0
        return now
    return after


def counted_twice(case):
    seen = {}

    def look(step, before, now, state):
        seen.update({key: 1 for key, value in state.items() if np.ndim(value) == 0 and not isinstance(value, dict)})
        return now
    ran(case, after=look)
    return ran(case, after=counting(1), state=seen)


def behind(case, names):
    """A training whose forward passes, and results, have some weights of the step before."""
    late = {}

    def after(step, before, now, state):
        found = {name: late.get(name, before[name]) if name in names else value for name, value in now.items()}
        late.update({name: now[name] for name in names})
        return found
    return ran(case, after=after)


def of_settings(case):
    """Of torch's optimizers, which say their settings: another default, or two exchanged."""
    if not case.framework.__name__.endswith("in_torch"):
        return
    for words, change in (("betas exchanged", lambda group: {"betas": group["betas"][::-1]}),
                          ("epsilon 1e-8", lambda group: {"eps": 1e-8}), ("no weight decay", lambda group: {"weight_decay": 0.0}),
                          ("no momentum", lambda group: {"momentum": 0.0})):
        def run(change=change):
            made = case.optimizer

            def optimizer(parameters):
                found = made(parameters)
                for group in found.param_groups:
                    group.update({key: value for key, value in change(group).items() if key in group})
                return found
            try:
                case.optimizer = optimizer
                return ran(case)
            finally:
                case.optimizer = made
        yield f"an optimizer with {words}?", run


def with_state(at, name, change):
    """Changes the optimizer's state after a step: of a parameter, or of all."""
    def after(step, before, now, state):
        for key, of in state.items() if step == at else ():
            if isinstance(of, dict):
                state[key] = {which: change(value) if name in (None, which) else value for which, value in of.items()}
        return now
    return after


def fitted(case, wrong):
    """A number of each step that explains what is off: of weight decay, and of the steps' length."""
    flat = {name for name, value in case.params.items() if getattr(value, "ndim", 0) < 2}
    few = ("weights of one axis, as biases, times {:.6g} in each step, too: weight decay of these otherwise?",
           lambda c: lambda step, before, now, state: {name: value - before[name] * c if name in flat else value
                                                       for name, value in now.items()})
    many = ("weights of two axes times {:.6g} in each step, too: weight decay of these otherwise?",
            lambda c: lambda step, before, now, state: {name: value if name in flat else value - before[name] * c
                                                        for name, value in now.items()})
    for text, hook in (*(few, many) * bool(flat), ("weights times {:.6g} in each step, too: weight decay of another size, or twice?",
                        lambda c: lambda step, before, now, state: {name: value - before[name] * c for name, value in now.items()}),
                       ("steps {:.6g} times as long: another learning rate?", lambda c: longer(1 + c))):
        c, step = 0.0, 1e-3
        for _ in range(4):
            base, moved = (gathered(ran(case, after=hook(at)), wrong) for at in (c, c + step))
            by, off = moved - base, gathered(None, wrong) - base
            if not np.any(by):
                break
            c += step * float(by @ off / (by @ by))
        if 1e-6 < abs(c) < 64:
            yield text.format(1 - c if "decay" in text else 1 + c), functools.partial(ran, case, after=hook(c))


def scaled_in_each_step(case, wrong):
    """Numbers by which all gradients of each step are multiplied, as clipping and loss scales do."""
    def run(logs):
        steps = iter(np.exp(logs))
        def clip(grads):
            factor = next(steps)
            grads = clipped(grads, case.clip) if case.clip else grads
            return {name: g * factor for name, g in grads.items()}
        return ran(case, clip=clip)
    given = gathered(None, wrong)
    if given.size < case.steps + 8:
        return
    def off(logs):
        return float(np.linalg.norm(gathered(run(logs), wrong) - given))
    logs = min((np.full(case.steps, start) for start in (0.0, -2.0, -4.0, -7.0, 1.0, 3.0)), key=off)
    for free in [np.ones((case.steps, 1))] * 4 + [np.eye(case.steps)] * 6:  # first one number for all steps
        at, step = gathered(run(logs), wrong), 1e-4
        slopes = np.stack([(gathered(run(logs + step * one), wrong) - at) / step for one in free.T], 1)
        change = free @ np.linalg.lstsq(slopes, given - at, rcond=1e-6)[0]
        change *= min(1, 3 / max(np.abs(change).max(), 1e-30))
        logs = logs + next((share for share in (1, 0.5, 0.25, 0.125) if off(logs + share * change) < np.linalg.norm(given - at)), 0) * change
    if np.abs(logs).max() > 1e-3:
        factors = ", ".join(dict.fromkeys(f"{factor:.4g}" for factor in np.exp(logs)))
        yield f"all gradients of each step times {factors}{', after clipping: clipped by another norm, or to another limit' if case.clip else ''}?", \
            functools.partial(run, logs)


def gathered(results, wrong):
    """One vector of all wrong pieces, given (None) or of results."""
    return np.concatenate([((f.given if results is None else results[f.name].ravel()[f.pieces[f.device].at]) /
                            max(np.abs(f.want).max(initial=0), 1e-30)).ravel() for _, f in wrong])


def of_clipping(case, placed):
    """Each device clips by the norm of what it has. Copies of a tensor then differ, which the reference cannot have: rough."""
    names = [name for name in case.params if name in placed and all(piece is not None for piece in placed[name])]
    if not case.clip or len(names) < len(case.params) or any(piece.at is None for name in names for piece in placed[name]):
        return
    devices = range(len(placed[names[0]]))
    found = {}

    def of_device(mine):
        def clip(grads):
            flat = {name: np.array(g).ravel() for name, g in grads.items()}
            shares = [min(1, case.clip / (sum((flat[name][placed[name][d].at] ** 2).sum() for name in names) ** 0.5 + 1e-6))
                      for d in devices]
            result = {}
            for name in names:
                factor = np.zeros_like(flat[name])
                for d in [*devices, mine]:
                    factor[placed[name][d].at] = shares[d]
                result[name] = grads[name] * factor.reshape(grads[name].shape)
            return result
        return clip

    def results(device):
        if device not in found:
            found[device] = ran(case, clip=of_device(device))
        return found[device]
    yield "clipped by the norm of a device's own slices alone?", results, True


# ---- Several replicas
def of_replicas(case, count, words):
    for how, blocks in case.partitions(count):
        weights = [case.weight(rows) for rows in blocks]
        if any(weight is None for weight in weights):
            continue

        def trained(is_reduced, after=None, case=case, blocks=blocks, weights=weights):
            return functools.partial(replicas, case, blocks, weights, is_reduced, after)
        last = case.steps - 1
        if case.clip:
            yield f"clipped by each device's own norm before the sum{words}?{how}", \
                functools.partial(replicas, case, blocks, weights, lambda step, name: True, None, True)
        yield f"gradients not reduced{words} in the last step: each device's own addend?{how}", \
            trained(lambda step, name: step != last)
        yield f"gradients not reduced{words} in the first step: each device's own addend?{how}", \
            trained(lambda step, name: step != 0)
        yield f"gradients never reduced{words}: each device's own addend?{how}", trained(lambda step, name: False)
        for bucket, names in buckets(case):
            yield f"gradients of {bucket} not reduced{words}: each device's own addend?{how}", \
                trained(lambda step, name, names=names: name not in names)
        for missing in range(count):
            yield f"device {missing}'s last step left out: its copies not updated?", trained(
                lambda step, name: True, lambda replica, step, before, now, missing=missing:
                before if replica == missing and step == last else now)
        if how:
            continue
        for names in [*[(name,) for name in case.params], tuple(case.params)]:
            def own_alone(replica, step, before, now, names=names):
                found = dict(now)
                for name in names:
                    if getattr(now[name], "ndim", 0):
                        size = now[name].shape[0]
                        mask = np.zeros((size,) + (1,) * (now[name].ndim - 1), "f4")
                        mask[slice(*part(size, count, replica))] = 1
                        found[name] = now[name] * mask + before[name] * (1 - mask)
                return found
            text = "each parameter" if len(names) > 1 else names[0]
            yield f"each device updates its piece of {text}, and has the others' as they were: not gathered after the step?", \
                trained(lambda step, name: True, own_alone)
            if len(case.params) == 1:
                break


def replicas(case, blocks, weights, is_reduced, after=None, clips_first=False):
    """[{name: array}] of replicas that train on their rows. `is_reduced(step, name)`: whether its gradient is the sum."""
    def program(params, batches):
        keepers = [training.keeper(case, params) for _ in blocks]
        for step in range(case.steps):
            batch = batches[step % len(batches)]
            own = []
            for keep, rows, weight in zip(keepers, blocks, weights):
                found = case.reference(keep.params(), case.of_rows(rows, batch))
                own.append({name: found[name] * weight for name in params if name in found})
            if clips_first:
                own = [clipped(of, case.clip) for of in own]
            total = {name: sum(of[name] for of in own) for name in own[0]}
            for k, keep in enumerate(keepers):
                before = keep.params()
                keep.clipped({name: total[name] if is_reduced(step, name) else own[k][name] for name in total}, case.clip)
                keep.step()
                if after:
                    keep.replace(after(k, step, before, keep.params()))
        return {f"{k}:{name}": value for k, keep in enumerate(keepers) for name, value in {**keep.params(), **keep.state()}.items()}
    results = case.ran_on(case.batches, program)[0]
    return [{name.split(":", 1)[1]: value for name, value in results.items() if name.startswith(f"{k}:")}
            for k in range(len(blocks))]
