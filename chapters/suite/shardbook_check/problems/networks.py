"""The mlp and the mixture, forward and backward, and steps of training: definitions, with a bound of each element's
error. With a mistake, they compute what a wrong version would."""
import math
from dataclasses import dataclass, field

import numpy as np

from .bounded import Bounded, Plain, Undecided, part, require_exact, unit_of


@dataclass(frozen=True)
class Mistake:
    """What a wrong version does differently. Its results may explain a result that differs."""
    forgets: str = ""  # "mask_forgotten", "gates", "capacity", "clipping" ...: see mistakes()
    rounds: str = ""  # "weights" or "products": what is rounded to `to`
    to: str = ""  # "BF16" or "F16"
    scale: float = 1.0  # of all gradients of a step of training
    rows: tuple = ()  # [begin, end): only these rows of the batch count
    layers: tuple = ()  # the order in which layers are applied
    taken: tuple = ()  # the layer whose weights the backward pass takes for each layer
    kept: tuple = ()  # the layer whose activations it takes
    misses_step: bool = False  # makes no last step of training
    stages: int = 1  # parts of the layers that each clip gradients by their own norm
    devices: int = 1  # that divide something
    device: int = 0  # the one whose share alone counts
    weights: tuple = ()  # of each row's loss, in training; of each token's
    in_last_step: bool = False  # these weights count in the last step alone
    norm: float = 1.0  # times the norm by which gradients are clipped
    groups: tuple = ()  # of slices {name: slices}, as pairs: each is clipped by its own norm; later ones count
    summed: tuple = ()  # (name, axis, parts): a gradient's parts along an axis are added up, and each is the sum
    chosen: tuple = ()  # the experts of each token
    read: tuple = ()  # (name, axis, order): the order in which a parameter's slices are read
    lost: tuple = ()  # (name, axis, begin, end): slices of parameters that are taken as 0, and so are their gradients
    point: str = ""  # where a network of tokens does something otherwise, and what
    fault: str = ""
    distances: tuple = ()  # around the ring of devices from the queries' part, of the parts of keys that count
    layer: int = -1  # of experts: the one that is another's; -1: all
    kept_choices: tuple = ()  # the choices that reach their expert, as (token, rank)
    balance: float = 1.0  # times the balancing loss


def counted(problem):
    """Whether each row counts, (B, 1): all do, unless a mistake says otherwise."""
    begin, end = problem.mistake.rows or (0, problem.batch_size)
    rows = np.arange(problem.batch_size)[:, None]
    return (begin <= rows) & (rows < end)


def layer_names(problem):
    """The parameters in the order in which they are applied."""
    return [f"layer_{layer}/weights" for layer in problem.mistake.layers or range(problem.layers)]


def gradients(problem, params, batch):
    batch = {**batch, "output_grad": batch["output_grad"].masked(counted(problem))}
    return (mixture_gradients if problem.workload == "mixture" else mlp_gradients)(problem, params, batch)


def mlp_gradients(problem, params, batch):
    names = layer_names(problem)
    weights = [params[name] for name in names]
    kept = forward(weights, batch["input"], problem.mistake)
    input_grad, of_weights = backward(problem, weights, kept, batch["output_grad"])
    return {"output": kept.inputs[-1], "input_grad": input_grad, **dict(zip(names, of_weights))}


@dataclass
class Kept:
    """For each layer, and behind the last one: the input, the same before a ReLU, and the ReLU's mask, if any."""
    inputs: list = field(default_factory=list)
    before: list = field(default_factory=list)
    masks: list = field(default_factory=list)


def has_relu(layer, layers, mistake):
    """Whether a ReLU comes before a layer, or behind the last one. Without a mistake: before each odd layer."""
    return {"relus_forgotten": False, "relu_before_each": layer < layers, "relu_behind_each": layer > 0,
            "relu_between": 0 < layer < layers}.get(mistake.forgets, layer % 2 == 1 and layer < layers)


def forward(weights, x, mistake=Mistake()):
    """x w0, ReLU, w1, w2, ReLU, w3 ... The output is the last input."""
    kept = Kept()
    for layer in range(len(weights) + 1):
        mask = x.is_positive() if has_relu(layer, len(weights), mistake) else None
        kept.before.append(x)
        kept.masks.append(mask)
        kept.inputs.append(x if mask is None else x.masked(*mask))
        if layer < len(weights):
            inner = weights[layer].value.shape[0]
            first = part(inner, mistake.devices, mistake.devices - 1)[0] if mistake.forgets == "panels before" else 0
            x = kept.inputs[layer].masked(np.arange(inner) >= first) @ weights[layer]
            if layer % 2 == 1 and mistake.forgets.startswith("sums of blocks"):
                x = x * (1 / mistake.devices)
    return kept


def backward(problem, weights, kept, d):
    """dL/dx and each dL/dw. The derivative of ReLU at 0 is 0."""
    mistake, layers, found = problem.mistake, len(weights), []
    other, of_block = mistake.kept or range(layers), d
    for layer in reversed(range(layers + 1)):
        if kept.masks[layer] is not None and mistake.forgets != "mask_forgotten":
            mask = kept.masks[other[layer - 1] + 1] if layer else None
            d = d.masked(*(mask or kept.masks[layer]))
        if layer == 0:
            break
        of_block = d if layer == 2 else of_block
        if layer % 2 == 0 and mistake.forgets == "sums of blocks, in both passes":
            d = d * (1 / mistake.devices)
        w = weights[mistake.taken[layer - 1] if mistake.taken else layer - 1]
        found.insert(0, input_kept(kept, other[layer - 1], mistake).T @ d)
        if mistake.forgets == "dx_not_reduced" and layer % 2 == 1:
            begin, end = part(w.value.shape[1], mistake.devices, mistake.device)
            d = d.masked((begin <= np.arange(w.value.shape[1])) & (np.arange(w.value.shape[1]) < end))
        d = d @ w.T
    return of_block if mistake.forgets == "block_left_out" else d, found


def input_kept(kept, layer, mistake):
    begins_block = layer % 2 == 0 and layer + 2 < len(kept.inputs)
    if mistake.forgets == "kept_before_relu":
        return kept.before[layer]
    if begins_block and mistake.forgets in ("kept_output", "kept_first"):
        return kept.inputs[layer + 2 if mistake.forgets == "kept_output" else 0]
    return kept.inputs[layer]


def softmax(z):
    """The softmax of each row. Bounds take a power at one end of its interval, and all others at the other end."""
    largest = z.value.max(axis=1, keepdims=True)
    low, middle, high = (np.exp(z.value - largest + sign * z.error) for sign in (-1, 0, 1))
    p = middle / middle.sum(axis=1, keepdims=True)
    require_exact(z.precision, p, unit_of(p))
    upper = high / (high + low.sum(axis=1, keepdims=True) - low)
    lower = low / (low + high.sum(axis=1, keepdims=True) - high)
    u = z.precision.sums * (z.value.shape[1] + 8)  # exp to 4 ulp, the sum, the division
    return Bounded(p, np.maximum(upper - p, p - lower) + u * upper, z.precision)


def mixture_gradients(problem, params, batch):
    """Each token goes to its top_k likeliest experts, with their softmax as gates: for top_k > 1 divided by
    their sum. An expert takes at most ceil(capacity_factor top_k B / E) choices. All tokens' first choices
    come before any second one, and the rest is dropped. The gradients have those of the balancing
    loss, aux_weight E sum_e f_e P_e: f_e is the share of choices that went to expert e, dropped ones too, and
    P_e the mean of its probability (Fedus et al. 2021, section 2.2)."""
    x, tokens, experts = batch["input"], problem.batch_size, problem.experts
    logits = x @ params["router/weights"]
    p = softmax(logits)
    chosen = np.array(problem.mistake.chosen) if problem.mistake.chosen else \
        likeliest(logits, problem.top_k, problem.mistake.forgets == "the first of equals")
    total = row_sums(p[np.arange(tokens)[:, None], chosen])
    is_divided = problem.top_k > 1 and problem.mistake.forgets != "sum of gates"
    gates = p / total[:, None] if is_divided else p
    if problem.mistake.forgets == "ranks of gates":  # each choice has the gate of the one before or behind it
        order = np.arange(tokens)[:, None]
        of_choices = [Bounded(*(np.zeros_like(p.value) for _ in range(2)), gates.precision)][0]
        of_choices.value[order, chosen], of_choices.error[order, chosen] = \
            (getattr(gates, part)[order, chosen[:, ::-1]] for part in ("value", "error"))
        gates = of_choices
    output, input_grads, d_gates, found = through_experts(problem, params, batch, gates, chosen)
    if problem.mistake.forgets == "gate gradients":
        d_gates = d_gates * 0
    if problem.mistake.forgets == "gates elsewhere":  # a device has the gradient by the gates of its own experts alone
        d_gates = d_gates.masked(devices_of(tokens, problem)[:, None] == devices_of(experts, problem))
    if problem.mistake.forgets == "first gates alone":
        d_gates = d_gates.masked(np.arange(experts) == chosen[:, :1])
    of_gates = d_gates
    if is_divided and problem.mistake.forgets != "quotient of gates":  # gate = p / total
        is_chosen = np.zeros((tokens, experts), bool)
        np.put_along_axis(is_chosen, chosen, True, axis=1)
        d_gates = ((d_gates - row_sums(d_gates * gates)[:, None]) / total[:, None]).masked(is_chosen)
    share = np.bincount(chosen.ravel(), minlength=experts) / chosen.size
    times = problem.mistake.balance * {"balance": 0, "balance n times": problem.mistake.devices}.get(problem.mistake.forgets, 1)
    weight = times * problem.aux_weight
    if problem.mistake.forgets == "second choices":
        share = np.bincount(chosen[:, 0], minlength=experts) / tokens
    share = np.tile(share / tokens, (tokens, 1))
    if "balance elsewhere" in problem.mistake.forgets:  # each device's loss of its own tokens
        for begin, end in (part(tokens, problem.mistake.devices, d) for d in range(problem.mistake.devices)):
            own = np.bincount(chosen[begin:end].ravel(), minlength=experts) / max(chosen[begin:end].size, 1)
            means = problem.mistake.devices if "mean" in problem.mistake.forgets else 1
            share[begin:end] = own / (max(end - begin, 1) * means)
    balance = counted(problem) * (weight * experts * share)
    d_p = d_gates + x.rounded_once(balance, 3 * x.precision.sums * balance)
    if problem.mistake.forgets == "softmax of gates" and problem.top_k > 1:
        d_p = Bounded.exact(balance, x.precision)
    d_logits = p * (d_p - row_sums(d_p * p)[:, None])
    if problem.mistake.forgets == "softmax of gates" and problem.top_k > 1:
        d_logits = d_logits + of_gates.masked(is_chosen)
    found["router/weights"] = x.T @ d_logits
    of_router = d_logits @ params["router/weights"].T
    input_grad = sum_of([*input_grads, of_router * (0 if problem.mistake.forgets == "dx of router" else 1)])
    return {"output": output, "input_grad": input_grad, **found}


def likeliest(logits, k, takes_last=False):
    """The k likeliest experts of each token, (tokens, k). Of equal ones the first comes first, or the last."""
    order = np.argsort(-logits.value, axis=1, kind="stable")
    if takes_last:
        order = logits.value.shape[1] - 1 - np.argsort(-logits.value[:, ::-1], axis=1, kind="stable")
    sorted_logits = logits[np.arange(len(order))[:, None], order]
    here, beside = sorted_logits[:, :-1][:, :k], sorted_logits[:, 1:][:, :k]
    errors = here.error + beside.error
    if ((here.value - beside.value <= errors) & (errors > 0)).any():
        raise Undecided("two experts of which either can come first")
    return order[:, :k]


def through_experts(problem, params, batch, gates, chosen):
    """Output, each expert's part of the gradient by the input, and gradients by each gate (tokens, experts)
    and by the experts' weights."""
    x, d_out = batch["input"], batch["output_grad"]
    kept, found = within_capacity(chosen, problem.experts, problem.capacity_factor, problem.mistake), {}
    outputs, input_grads, by_gate = [], [], []
    for expert in range(problem.experts):
        mine = np.nonzero(((chosen == expert) & kept).any(axis=1))[0]
        gate = 1 if problem.mistake.forgets == "gates" else gates[mine, expert][:, None]
        if problem.mistake.forgets in ("gates before", "gates behind") and len(mine):
            gate = gate[np.roll(np.arange(len(mine)), 1 if problem.mistake.forgets == "gates before" else -1)]
        out, back = (power_of(gate, count) for count in POWERS.get(problem.mistake.forgets, (1, 1)))
        names = [f"expert_{expert}/layer_{layer}/weights" for layer in range(problem.layers)]
        weights = [params[name.replace(f"expert_{expert}/", f"expert_{answering(problem, expert, layer)}/")]
                   for layer, name in enumerate(names)]
        trace = forward(weights, x[mine], problem.mistake)
        y = trace.inputs[-1]
        d, of_weights = backward(problem, weights, trace, d_out[mine] * back)
        if problem.mistake.forgets == "sums over tokens":
            of_weights = [g * (1 / max(len(mine), 1)) for g in of_weights]
        found.update(zip(names, of_weights))
        of_gate = row_sums(d_out[mine] * y)[:, None]
        if problem.mistake.forgets in ("dx elsewhere", "answers elsewhere"):
            is_here = devices_of(problem.batch_size, problem)[mine] == devices_of(problem.experts, problem)[expert]
            d, y = (d.masked(is_here[:, None]), y) if problem.mistake.forgets[0] == "d" else (d, y.masked(is_here[:, None]))
        for wholes, some in ((outputs, y * out), (input_grads, d), (by_gate, of_gate)):
            wholes.append(some.spread(mine, problem.batch_size))
    d_gates = Bounded(*(np.hstack([getattr(d, part) for d in by_gate]) for part in ("value", "error")),
                      x.precision)
    return sum_of(outputs), input_grads, d_gates, found


# How often gates are multiplied, by answers and by their gradients.
POWERS = {"gates forward": (0, 1), "gates backward": (1, 0), "gates once": (2, 1), "gates once, in both passes": (2, 2),
          "gates once, in the backward pass": (1, 2)}


def devices_of(size, problem):
    """The device of each of so many rows, or experts."""
    n = problem.mistake.devices
    return np.repeat(np.arange(n), [end - begin for begin, end in (part(size, n, d) for d in range(n))])


def power_of(gate, count):
    return gate * gate if count == 2 else gate if count else 1


def answering(problem, expert, layer):
    """The expert whose weights answer for another's: of a wrong version, experts lie in turn on the devices, or those of the
    next device answer."""
    count, n = problem.experts, problem.mistake.devices
    if problem.mistake.layer not in (-1, layer):
        return expert
    if problem.mistake.forgets == "experts behind":
        return (expert + 1) % count
    if problem.mistake.forgets == "experts before":
        return (expert - 1) % count
    if problem.mistake.forgets == "experts in turn":
        return [e for device in range(n) for e in range(device, count, n)][expert]
    if problem.mistake.forgets == "experts in ranges":  # read as ranges, numbered in turn
        return [e for device in range(n) for e in range(device, count, n)].index(expert)
    if problem.mistake.forgets == "experts of the next device":
        parts = [range(*part(count, n, device)) for device in range(n)]
        device = next(d for d, of in enumerate(parts) if expert in of)
        of, other = parts[device], parts[(device + 1) % n]
        return other[min(expert - of[0], len(other) - 1)] if other else expert
    return expert


def within_capacity(chosen, experts, factor, mistake=Mistake()):
    """Which choices, (tokens, k), find room in their expert."""
    if mistake.kept_choices:
        found = np.zeros(chosen.shape, bool)
        found[tuple(np.array(mistake.kept_choices).T)] = True
        return found
    if mistake.forgets in ("second answers", "first answers"):
        return np.ones(chosen.shape, bool) & ((np.arange(chosen.shape[1]) == 0) == (mistake.forgets == "second answers"))
    if factor == "none" and mistake.forgets.startswith("room"):
        factor = float(mistake.forgets.split()[1])
    if factor == "none" or mistake.forgets == "capacity":
        return np.ones(chosen.shape, bool)
    if mistake.forgets == "places elsewhere":
        found = np.ones(chosen.shape, bool)
        for begin, end in (part(len(chosen), mistake.devices, device) for device in range(mistake.devices)):
            found[begin:end] = within_capacity(chosen[begin:end], experts, factor)
        return found
    slots = math.ceil(factor * chosen.size / experts)
    slots += {"a slot": -1, "where slots end": 1}.get(mistake.forgets, 0)
    if mistake.forgets == "rows elsewhere":
        begin, end = part(len(chosen), mistake.devices, mistake.device)
        slots = math.ceil(factor * (end - begin) * chosen.shape[1] / experts)
    used, kept = np.zeros(experts, int), np.zeros(chosen.shape, bool)
    for token, rank in in_turn(chosen.shape, mistake):
        kept[token, rank] = used[chosen[token, rank]] < slots
        used[chosen[token, rank]] += 1
    return kept


def in_turn(shape, mistake):
    """(token, rank) of all choices: all tokens' first ones, in order, then the second ones."""
    tokens, ranks = range(shape[0]), range(shape[1])
    if mistake.forgets == "ranks":
        return [(token, rank) for token in tokens for rank in ranks]
    if mistake.forgets == "ranks elsewhere":
        return [(token, rank) for device in range(mistake.devices) for rank in ranks
                for token in range(*part(len(tokens), mistake.devices, device))]
    return [(token, rank) for rank in ranks for token in tokens]


def row_sums(t):
    return sum_of([t[:, column] for column in range(t.value.shape[1])])


def sum_of(addends):
    """Of tensors of one shape, added in any order."""
    precision = addends[0].precision
    values, errors = (np.array([getattr(a, part) for a in addends]) for part in ("value", "error"))
    sizes = np.abs(values) + errors
    require_exact(precision, sizes.sum(axis=0), unit_of(values))
    gamma = precision.gamma((sizes > 0).sum(axis=0))
    return Bounded(values.sum(axis=0), errors.sum(axis=0) + gamma * sizes.sum(axis=0), precision)


def train(problem, params, batch):
    """The parameters after each step's forward, backward, clipping and update."""
    mistake, names = problem.mistake, layer_names(problem)
    moments = {name: (w * 0.0, w * 0.0) for name, w in params.items()}
    before, late = {}, {}
    for step in range(1, problem.steps + 1 - mistake.misses_step):
        weights = [params[name] for name in names]
        kept = forward(weights, batch["input"], mistake)
        output = kept.inputs[-1]
        of_mean = 2.0 / (problem.row_weights.sum() * output.value.shape[1])  # of all squares
        d = (output - batch["target"]) * (of_mean * weights_of_rows(problem, step))
        _, found = backward(problem, weights, kept, d)
        of = dict(zip(names, found))
        if mistake.scale != 1 or before:
            of = {name: g * mistake.scale + before.get(name, 0.0) for name, g in of.items()}
        raw = of
        of = {**of, **{name: in_parts_summed(of[name], axis, parts) for name, axis, parts in mistake.summed}}
        if "this step" in mistake.forgets:  # a wrong version may have nothing before the first step, or the first's
            last = late or {name: g * ("after" in mistake.forgets) for name, g in of.items()}
            of, late = last, of
        if problem.clip_norm and mistake.groups:
            of = clipped_in_groups(of, problem.clip_norm, mistake.groups)
        elif problem.clip_norm and mistake.forgets != "clipping":
            stages = [part(len(names), mistake.stages, stage) for stage in range(mistake.stages)]
            groups = [{name: of[name] for name in names[begin:end]} for begin, end in stages if end > begin]
            of = {name: g for group in groups for name, g in clipped(group, problem.clip_norm, mistake.norm).items()}
        before = {"zeroing": of, "zeroing before clipping": raw}.get(mistake.forgets, {})
        for name in names:
            if problem.kind == "sgd":
                params[name] = params[name] - of[name] * problem.learning_rate
            else:
                params[name], moments[name] = adam(problem, params[name], of[name], *moments[name], step)
    return {name: params[name] for name in names}


def in_parts_summed(g, axis, parts):
    """A gradient whose parts along an axis, of one size, are added up as if they were addends."""
    return Plain.of(np.concatenate([sum(np.split(g.value, parts, axis))] * parts, axis))


def clipped_in_groups(of, most, groups):
    """Gradients of which each group of slices is clipped by its own norm."""
    found = {name: g * 1.0 for name, g in of.items()}
    for group in groups:
        def here(of, name, bounds):  # one pair of bounds: of the flat tensor
            return (of[name].value if len(bounds) > 1 else of[name].value.reshape(-1))[slices(bounds)]
        norm = math.sqrt(sum((here(of, *at)**2).sum() for at in group))
        for at in group:
            here(found, *at)[...] = here(of, *at) * min(1, most / (norm + 1e-6))
    return found


def slices(bounds):
    return tuple(slice(begin, end) for begin, end in bounds)


def weights_of_rows(problem, step):
    """Of each row's loss; of a wrong version, times others, as rows / (own rows), for each device's mean over its own."""
    weights = problem.row_weights
    if problem.mistake.weights and (step == problem.steps or not problem.mistake.in_last_step):
        return (weights * problem.mistake.weights)[:, None]
    if problem.mistake.forgets in ("own means", "means of own means"):
        n, found = problem.mistake.devices, weights.copy()
        for begin, end in (part(problem.batch_size, n, d) for d in range(n)):
            own = weights[begin:end].sum() * (n if problem.mistake.forgets == "means of own means" else 1)
            found[begin:end] *= weights.sum() / own if own else 1
        return found[:, None]
    if problem.mistake.forgets == "row weights":
        weights = np.full(len(weights), weights.sum() / len(weights))
    return weights[:, None]


def clipped(of, most, times=1.0):
    """All gradients times min(1, most / (norm + 1e-6)), as PyTorch's clip_grad_norm_. A wrong version has `times` the norm."""
    squares = [(g * g).sum() for g in of.values()]
    norm = sum(squares[1:], squares[0]).sqrt()
    norm = norm * times if times != 1 else norm
    if abs(norm.value - most) <= norm.error + 1e-5:
        raise Undecided("a norm that is clipped or not")
    if norm.value < most:
        return of
    factor = type(norm)(np.asarray(most, float), np.float64(0), norm.precision) / (norm + 1e-6)
    return {name: g * factor for name, g in of.items()}


def adam(problem, w, g, m, v, step):
    """Kingma and Ba 2015, algorithm 1; epsilon outside the root, as in PyTorch."""
    beta1, beta2 = problem.betas
    m = m * beta1 + g * (1 - beta1)
    v = v * beta2 + g * g * (1 - beta2)
    first, second = (1 if problem.mistake.forgets == "bias_not_corrected" else 1 / (1 - beta**step)
                     for beta in problem.betas)
    is_inside = problem.mistake.forgets == "epsilon_inside"
    root = (v * second + is_inside * problem.epsilon).sqrt() + (not is_inside) * problem.epsilon
    update = m * first / root
    return w - update * problem.learning_rate, (m, v)
