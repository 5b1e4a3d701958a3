#!/usr/bin/env python3
"""Holds the chapters against numpy and, where installed, torch, jax or autograd: a check from outside.

    tests/equivalence/against_numpy.py --batch 13 --width 37 --hidden 91 --layers 6 --devices 1 2 3 4 5
    tests/equivalence/against_numpy.py --chapters 02 --devices 4 -- --micro-batches 3
    tests/equivalence/against_numpy.py --chapters 05 --layers 2 --experts 7 --top-k 2 --devices 5

Makes random parameters and a random batch, lets `gradients` of each chapter, variant and number of devices
compute output, input gradient and weight gradients, and prints max|a - b| / max|b| of each against float64.
Build first (./chapters/run 01). Ends with 1 when a figure exceeds 1e-5 or a program fails.

A hidden value that is zero but for rounding may lie on the other side of the ReLU in float32, and a token of
a mixture may choose another expert: then a figure is large, and with another --seed it is not.
"""

import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy as np

try:
    import torch
except ImportError:
    torch = None
try:
    import jax
    jax.config.update("jax_enable_x64", True)
except ImportError:
    jax = None

try:
    import autograd
    import autograd.numpy as anp
except ImportError:
    autograd = None

ROOT = pathlib.Path(__file__).resolve().parent.parent
BOUND = 1e-5  # float32 carries 6e-8; sums over a few hundred terms and a few layers stay well below


def write_safetensors(path, tensors):
    """8 bytes: the header's length. The header: JSON. Then the values."""
    header, data = {}, b""
    for name, values in tensors.items():
        raw = np.ascontiguousarray(values, "<f4").tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": "F32", "shape": values.shape, "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    raw = path.read_bytes()
    start = 8 + struct.unpack_from("<Q", raw)[0]
    tensors = {}
    for name, entry in json.loads(raw[8:start]).items():
        begin, end = (start + offset for offset in entry["data_offsets"])
        tensors[name] = np.frombuffer(raw[begin:end], {"F32": "<f4"}[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def make_problem(args):
    """Parameters and batch in float32; activations keep a variance of about 1."""
    random = np.random.default_rng(args.seed)
    widths = [args.hidden if layer % 2 else args.width for layer in range(args.layers + 1)]
    params = {}
    for layer in range(args.layers):
        scale = np.sqrt((1 + layer % 2) / max(widths[layer], 1))
        values = scale * random.standard_normal(widths[layer:layer + 2])
        params[f"layer_{layer}/weights"] = values.astype("f4")
    batch = {"input": random.standard_normal((args.batch, widths[0])).astype("f4"),
             "output_grad": random.standard_normal((args.batch, widths[-1])).astype("f4")}
    return params, batch


def solve_with_numpy(params, batch):
    """The chain rule by hand, in float64."""
    weights = [params[f"layer_{layer}/weights"].astype(float) for layer in range(len(params))]
    inputs = [batch["input"].astype(float)]  # of each layer, after the ReLU before each odd one
    for layer, w in enumerate(weights):
        out = inputs[layer] @ w
        inputs.append(np.maximum(out, 0) if layer % 2 == 0 and layer + 1 < len(weights) else out)
    result = {"output": inputs.pop()}
    d = batch["output_grad"].astype(float)
    for layer in reversed(range(len(weights))):
        result[f"layer_{layer}/weights"] = inputs[layer].T @ d
        d = d @ weights[layer].T
        if layer % 2 == 1:
            d *= inputs[layer] > 0
    result["input_grad"] = d
    return result


def solve_with_torch(params, batch):
    """The same by automatic differentiation, in float64."""
    leaves = {name: torch.tensor(w, dtype=torch.float64, requires_grad=True) for name, w in params.items()}
    x = torch.tensor(batch["input"], dtype=torch.float64, requires_grad=True)
    out = x
    for layer in range(len(params)):
        if layer % 2 == 1:
            out = torch.relu(out)
        out = out @ leaves[f"layer_{layer}/weights"]
    out.backward(torch.tensor(batch["output_grad"], dtype=torch.float64))
    result = {name: leaf.grad.numpy() for name, leaf in leaves.items()}
    return {"output": out.detach().numpy(), "input_grad": x.grad.numpy()} | result


def solve_with_jax(params, batch):
    """The same by jax's automatic differentiation, in float64."""
    def network(weights, x):
        for layer in range(len(weights)):
            x = (jax.nn.relu(x) if layer % 2 == 1 else x) @ weights[f"layer_{layer}/weights"]
        return x

    weights = {name: w.astype(float) for name, w in params.items()}
    out, pull_back = jax.vjp(network, weights, batch["input"].astype(float))
    gradients, input_grad = pull_back(batch["output_grad"].astype(float))
    result = {name: np.asarray(gradient) for name, gradient in gradients.items()}
    return {"output": np.asarray(out), "input_grad": np.asarray(input_grad)} | result


def make_mixture(args):
    """The same for a mixture of experts, each a stack of these layers."""
    random = np.random.default_rng(args.seed)
    params = {"router/weights": random.standard_normal((args.width, args.experts)) / np.sqrt(args.width)}
    for expert in range(args.experts):
        args_of_expert = argparse.Namespace(**(vars(args) | {"seed": [args.seed, expert]}))
        stack, batch = make_problem(args_of_expert)
        params |= {f"expert_{expert}/{name}": w for name, w in stack.items()}
    params["router/weights"] = params["router/weights"].astype("f4")
    return params, batch


def choose_experts(logits, top_k, factor):
    """Of each token its experts, most likely first, and whether it has a slot in each: (B, k) both."""
    batch, experts = logits.shape
    chosen = np.argsort(-logits, axis=1, kind="stable")[:, :top_k]  # ties: the lower expert
    capacity = top_k * batch if factor is None else int(np.ceil(factor * (top_k * batch) / experts))
    kept = np.zeros((batch, top_k), bool)
    used = np.zeros(experts, int)
    for rank in range(top_k):
        for token in range(batch):
            expert = chosen[token, rank]
            kept[token, rank] = used[expert] < capacity
            used[expert] += 1
    return chosen, kept


def softmax(z):
    power = np.exp(z - z.max(axis=1, keepdims=True))
    return power / power.sum(axis=1, keepdims=True)


def solve_mixture_with_numpy(params, batch, top_k, factor, aux_weight):
    """The chain rule by hand, token by token, in float64."""
    w = {name: values.astype(float) for name, values in params.items()}
    x, dout = batch["input"].astype(float), batch["output_grad"].astype(float)
    tokens, experts = len(x), w["router/weights"].shape[1]
    layers = (len(w) - 1) // experts
    logits = x @ w["router/weights"]
    p = softmax(logits)
    chosen, kept = choose_experts(logits, top_k, factor)
    share = np.bincount(chosen.ravel(), minlength=experts) / chosen.size
    result = {name: np.zeros_like(values) for name, values in w.items()}
    out, dx = np.zeros_like(dout), np.zeros_like(x)
    dp = np.tile(aux_weight * experts * share / tokens, (tokens, 1))
    for token in range(tokens):
        gates = p[token, chosen[token]]
        total = gates.sum() if top_k > 1 else 1.0
        dgates = np.zeros(top_k)  # by the gates after their division
        for rank in np.flatnonzero(kept[token]):
            names = [f"expert_{chosen[token, rank]}/layer_{layer}/weights" for layer in range(layers)]
            inputs = [x[token]]
            for layer, name in enumerate(names):
                a = inputs[layer] @ w[name]
                inputs.append(np.maximum(a, 0) if layer % 2 == 0 and layer + 1 < layers else a)
            y = inputs.pop()
            out[token] += gates[rank] / total * y
            dgates[rank] = dout[token] @ y
            d = gates[rank] / total * dout[token]
            for layer in reversed(range(layers)):
                result[names[layer]] += np.outer(inputs[layer], d)
                d = w[names[layer]] @ d
                if layer % 2 == 1:
                    d *= inputs[layer] > 0
            dx[token] += d
        if top_k > 1:
            dgates = (dgates - dgates @ gates / total) / total
        dp[token, chosen[token]] += dgates
    dlogits = p * (dp - (p * dp).sum(axis=1, keepdims=True))
    result["router/weights"] = x.T @ dlogits
    return result | {"output": out, "input_grad": dx + dlogits @ w["router/weights"].T}


def solve_mixture_with_autograd(params, batch, top_k, factor, aux_weight):
    """The same by automatic differentiation of one number, Σ output · output_grad + the balancing loss."""
    x, dout = batch["input"].astype(float), batch["output_grad"].astype(float)
    w = {name: values.astype(float) for name, values in params.items()}
    experts = w["router/weights"].shape[1]
    layers = (len(w) - 1) // experts
    chosen, kept = choose_experts(x @ w["router/weights"], top_k, factor)
    share = np.bincount(chosen.ravel(), minlength=experts) / chosen.size

    def forward(x, w):
        power = anp.exp(anp.dot(x, w["router/weights"]))
        p = power / anp.sum(power, axis=1, keepdims=True)
        out = 0.0
        chosen_p = [p[np.arange(len(chosen)), chosen[:, rank]] for rank in range(top_k)]
        total = sum(chosen_p) if top_k > 1 else 1.0
        for expert in range(experts):
            y = x  # every token through every expert; gates of those not sent there are 0
            for layer in range(layers):
                if layer % 2 == 1:
                    y = anp.maximum(y, 0)
                y = anp.dot(y, w[f"expert_{expert}/layer_{layer}/weights"])
            is_here = kept & (chosen == expert)  # (B, k)
            gate = sum(chosen_p[rank] / total * is_here[:, rank] for rank in range(top_k))
            out = out + gate[:, None] * y
        return out, aux_weight * experts * anp.sum(share * anp.mean(p, axis=0))

    def loss(x, w):
        out, aux = forward(x, w)
        return anp.sum(out * dout) + aux

    result = autograd.grad(loss, 1)(x, w)
    return result | {"output": forward(x, w)[0], "input_grad": autograd.grad(loss, 0)(x, w)}


def distance(a, b):
    """max|a - b| / max|b|; infinite when one is missing, shapes differ or something is not finite."""
    if a is None or b is None or a.shape != b.shape or not np.isfinite(a).all():
        return np.inf
    largest = np.abs(b).max(initial=0)
    return np.abs(a - b).max(initial=0) / (largest or 1)


def call(args, devices, program, *arguments):
    command = [str(word) for word in (args.on_devices, devices, program, *arguments)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def programs(args):
    """(program, variant) of the chapters and variants asked for."""
    for chapter in args.chapters:
        found = sorted(args.programs.glob(f"{chapter}_*"))
        if not found:
            sys.exit(f"error: {args.programs}: expected a program {chapter}_NAME, given none; build first")
        listed = call(args, 1, found[0], "variants")
        if listed.returncode != 0:
            sys.exit(f"error: {found[0]} variants: {listed.stderr.strip()}")
        wanted = listed.stdout.split() if args.variants == ["all"] else args.variants
        for variant in wanted:
            if variant in listed.stdout.split():
                yield found[0], variant


def is_mixture(program):
    return program.name.startswith("05_")


def routing_options(args, program):
    if not is_mixture(program):
        return []
    return ["--capacity-factor", args.capacity_factor, "--aux-weight", args.aux_weight]


def solve(args, program, variant, params, batch):
    """The references' results for this variant, by name."""
    if not is_mixture(program):
        references = {"numpy": solve_with_numpy(params, batch)}
        if torch:
            references["torch"] = solve_with_torch(params, batch)
        if jax:
            references["jax"] = solve_with_jax(params, batch)
        return references
    factor = None if args.capacity_factor == "none" else float(args.capacity_factor)
    routing = (1 if variant.startswith("switch") else args.top_k, factor, args.aux_weight)
    references = {"numpy": solve_mixture_with_numpy(params, batch, *routing)}
    if autograd:
        references["autograd"] = solve_mixture_with_autograd(params, batch, *routing)
    return references


def compare(args, folder, program, variant, devices, references):
    """Runs one program and prints its lines; returns the largest figure."""
    title = f"{program.name} {variant} on {devices}"
    if is_mixture(program) and variant.startswith("top-k"):
        variant_options = ["--variant", variant, "--top-k", args.top_k]
    else:
        variant_options = ["--variant", variant]
    out = folder / "gradients.safetensors"
    out.unlink(missing_ok=True)
    ran = call(args, devices, program, "gradients", *variant_options, *routing_options(args, program),
               *args.arguments, "--out", out,
               "--params", folder / "params.safetensors", "--batch", folder / "batch.safetensors")
    if ran.returncode != 0:
        print(f"{title:<40} failed with code {ran.returncode}: {ran.stderr.strip()}")
        return np.inf
    given = read_safetensors(out)
    worst = 0
    for name in sorted(given.keys() | references["numpy"].keys()):
        figures = {by: distance(given.get(name), right.get(name)) for by, right in references.items()}
        worst = max(worst, *figures.values())
        print(f"{title:<40} {name:<26}", *(f" {by} {figure:.1e}" for by, figure in figures.items()))
    return worst


def parse():
    as_it_stands = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_it_stands)
    for name, default in {"batch": 13, "width": 37, "hidden": 91, "layers": 6, "seed": 0,
                          "experts": 7, "top-k": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--capacity-factor", default="1.25", help="of a mixture; or none")
    parser.add_argument("--aux-weight", type=float, default=0.01, help="of a mixture's balancing loss")
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--chapters", nargs="+", default=["01", "02", "03", "05"])
    parser.add_argument("--variants", nargs="+", default=["all"])
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build" / "emu",
                        help="the folder of the programs")
    parser.add_argument("--on-devices", type=pathlib.Path, default=ROOT / "chapters" / "on_devices",
                        help="the script that runs a program on a number of devices")
    parser.add_argument("arguments", nargs="*", help="after --: further arguments of the programs")
    return parser.parse_args()


def main():
    args = parse()
    worst = runs = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for program, variant in programs(args):
            params, batch = make_mixture(args) if is_mixture(program) else make_problem(args)
            write_safetensors(folder / "params.safetensors", params)
            write_safetensors(folder / "batch.safetensors", batch)
            references = solve(args, program, variant, params, batch)
            for devices in args.devices:
                worst = max(worst, compare(args, folder, program, variant, devices, references))
                runs += 1
    if runs == 0:
        sys.exit(f"error: --variants: expected one that a chapter has, given {' '.join(args.variants)}")
    print(f"batch {args.batch}, widths {args.width} and {args.hidden}, {args.layers} layers, {runs} runs:",
          f"the largest is {worst:.1e}, {'within' if worst <= BOUND else 'ABOVE'} {BOUND:.0e}",
          f"(against {', '.join(references)})")
    return 0 if worst <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
