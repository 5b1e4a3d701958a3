#!/usr/bin/env python3
"""Tensor parallel in JAX by shard_map, on devices of the CPU: jax_tensor_parallel.py PROBLEM OUT DEVICES. The
hidden width is padded with zeros to a multiple of the devices, as shard_map wants it. One file of results."""
import json
import os
import sys
from functools import partial
from pathlib import Path

problem, out, n = json.loads(Path(sys.argv[1]).read_text()), sys.argv[2], int(sys.argv[3])
if problem["workload"] != "mlp" or problem["has_row_weights"]:
    sys.exit(77)
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={n}"
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec as P

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "chapters/suite"))
import shardbook_check as sb
from optimizer import Optimizer

jax.config.update("jax_default_matmul_precision", "highest")
folder = Path(sys.argv[1]).parent
read = {k: jnp.asarray(v.values, "f4") for f in ("params", "batch") for k, v in
        sb.read(folder / problem[f]).items()}
names = [f"layer_{layer}/weights" for layer in range(problem["layers"])]
padding = -problem["widths"][1] % n
params = [jnp.pad(read[name], [(0, 0), (0, padding)] if layer % 2 == 0 else [(0, padding), (0, 0)])
          for layer, name in enumerate(names)]
specs = [P(None, "tensor") if layer % 2 == 0 else P("tensor", None) for layer in range(len(params))]


@partial(jax.shard_map, mesh=Mesh(jax.devices(), "tensor"), in_specs=(specs, P()), out_specs=P())
def network(w, x):
    for layer in range(0, len(w), 2):
        h = jax.nn.relu(x @ w[layer])                       # (B, F/n)
        x = jax.lax.psum(h @ w[layer + 1], "tensor")        # (B, D)
    return x


def loss(w, x):
    y = network(w, x)
    return (y * read["output_grad"]).sum() if "output_grad" in read else ((y - read["target"])**2).mean()


optimizer = Optimizer(problem)
for _ in range(problem["steps"]):
    output = network(params, read["input"])
    g, input_grad = jax.jit(jax.grad(loss, (0, 1)))(params, read["input"])
    params = optimizer.step(params, g, sum((x * x).sum() for x in g) ** 0.5)
of = dict(zip(names, params if "target" in read else g))
of = {name: w[:read[name].shape[0], :read[name].shape[1]] for name, w in of.items()}
sb.write(out, of if "target" in read else {"output": output, "input_grad": input_grad, **of})
