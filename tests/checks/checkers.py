"""Ways to check a sharded program, as people check theirs. Each takes a case, and says whether something is wrong, or None
where it cannot be asked."""
import functools

import numpy as np
import shardbook_check as sb

from foreign import FOREIGN
from programs import single_of


def allclose(case, rtol, atol):
    single = single_of(case.problem).whole
    return not all(case.whole[name].shape == want.shape and np.allclose(case.whole[name], want, rtol, atol)
                   for name, want in single.items())


def is_usual(case):
    """Two devices, and sizes that they divide."""
    return np.prod(case.mesh) == 2 and case.problem.endswith("16x8x24x8")


def losses_apart(case, most):
    if not case.of.is_training:
        return None
    pairs = list(zip(case.losses, single_of(case.problem).losses))
    return any(not abs(a - b) <= most * abs(b) for a, b in pairs)


def norms_apart(case, most):
    if case.of.is_training:
        return None
    norms = [np.sqrt(sum((of[name].astype(float)**2).sum() for name in of if name.startswith("layer")))
             for of in (case.whole, single_of(case.problem).whole)]
    return abs(norms[0] - norms[1]) > most * norms[1]


def differences(case, step=2.0**-7, most=1e-2):
    """Gradients of a sharded program against finite differences of the same program, along a random direction."""
    if case.of.is_training:
        return None
    random = np.random.default_rng(0)
    for name, value in case.of.params.items():
        along = random.choice([-1.0, 1.0], value.shape)
        up, down = ({**case.of.params, name: value + sign * step * along} for sign in (1, -1))
        want = (case.at(up) - case.at(down)) / (2 * step)
        gradient = case.whole[name]
        if gradient.shape != value.shape or \
                abs(want - (gradient * along).sum()) > most * np.abs(gradient).sum() + most:
            return True
    return False


def problems(case):
    pieces, layout = case.pieces
    return not sb.check_pieces(case.of, int(np.prod(case.mesh)), pieces, layout).is_right


@functools.cache
def own(problem):
    """A case of one's own, of the program on one device, in NumPy."""
    of = sb.problem(problem)

    def program(params, batch):
        kept, x = [], batch["input"]
        for layer in range(of.layers):
            x = np.maximum(x, 0) if layer % 2 else x
            kept.append(x)
            x = x @ params[f"layer_{layer}/weights"]
        counts = batch["row_weights"][:, None] if of.has_row_weights else np.ones((len(x), 1), x.dtype)
        d = 2 * counts * (x - batch["target"]) / (counts.sum() * x.shape[1]) if of.is_training else batch["output_grad"]
        found = {} if of.is_training else {"output": x}
        for layer in reversed(range(of.layers)):
            found[f"layer_{layer}/weights"] = kept[layer].T @ d
            d = (d @ params[f"layer_{layer}/weights"].T) * (kept[layer] > 0 if layer % 2 else 1)
        return found if of.is_training else {**found, "input_grad": d}

    def sgd(params, grads, state):
        return {name: params[name] - of.learning_rate * g for name, g in grads.items()}

    def adam(params, grads, state):
        (b1, b2), t = of.betas, state.setdefault("step", 0) + 1
        state["step"] = t
        for name, g in grads.items():
            m, v = state.get(name, (0 * g, 0 * g))
            state[name] = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        return {name: params[name] - of.learning_rate * (state[name][0] / (1 - b1**t)) /
                (np.sqrt(state[name][1] / (1 - b2**t)) + of.epsilon) for name in grads}
    f4 = [{name: np.asarray(t, "f4") for name, t in which.items()} for which in (of.params, of.batch)]
    more = {"optimizer": adam if of.kind == "adam" else sgd, "steps": of.steps, "clip": of.clip_norm or None} if of.is_training else {}
    return sb.case(program, *f4, **more)


def own_reference(case):
    pieces, (_, letters) = case.pieces
    layout = {name: {axis: {"sharded": letter.axis} for axis, letter in zip(("data", "tensor"), of) if letter.kind == "S"}
              for name, of in letters.items() if name in pieces[0]}
    given = [{name: t.values.astype("f4") for name, t in piece.items()} for piece in pieces]
    try:
        sb.check(given, own(case.problem), dict(zip(("data", "tensor"), case.mesh)), layout=layout)
    except sb.Differs:
        return True
    return False


CHECKERS = {
    "loss curves of 50 steps, 1 % apart": lambda case: losses_apart(case, 1e-2),
    "loss curves of 50 steps, 0.1 % apart": lambda case: losses_apart(case, 1e-3),
    "gradient norm, 0.1 % apart": lambda case: norms_apart(case, 1e-3),
    "numpy.allclose, its defaults": lambda case: allclose(case, 1e-5, 1e-8),
    "torch.testing.assert_close, its defaults": lambda case: allclose(case, 1.3e-6, 1e-5),
    "allclose, rtol = atol = 1e-3": lambda case: allclose(case, 1e-3, 1e-3),
    "allclose, rtol = atol = 1e-2": lambda case: allclose(case, 1e-2, 1e-2),
    "assert_close on two devices and even sizes": lambda case: allclose(case, 1.3e-6, 1e-5) if is_usual(case) else None,
    "finite differences of the sharded program": differences,
    **FOREIGN,
    "shardbook-check, its problems": problems,
    "shardbook-check, the program on one device": own_reference,
}
