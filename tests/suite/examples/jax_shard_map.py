"""jax_shard_map.py [mean|twice]: rows over one axis of a mesh, hidden units over the other, on four devices of the CPU."""
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import jax
import numpy as np
from jax import numpy as jnp
from jax.sharding import Mesh, PartitionSpec as P

random = np.random.default_rng(0)
params = {"up": jnp.asarray(random.normal(size=(8, 16)), "float32"), "down": jnp.asarray(random.normal(size=(16, 4)), "float32")}
batch = {"x": jnp.asarray(random.normal(size=(8, 8)), "float32"), "y": jnp.asarray(random.normal(size=(8, 4)), "float32")}


def loss_of(params, batch):
    return jnp.mean((jax.nn.gelu(batch["x"] @ params["up"]) @ params["down"] - batch["y"]) ** 2)


def step(params, batch):
    def local(params):
        out = jax.lax.psum(jax.nn.gelu(batch["x"] @ params["up"]) @ params["down"], "tensor")
        mine = ((out - batch["y"]) ** 2).sum() / 32 * (2 if "twice" in sys.argv else 1)
        return (jax.lax.pmean if "mean" in sys.argv else jax.lax.psum)(mine, "data")
    return jax.value_and_grad(local)(params)


mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "tensor"))
cuts = {"up": P(None, "tensor"), "down": P("tensor", None)}
loss, grads = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(cuts, P("data")), out_specs=(P(), cuts)))(params, batch)

# ----
import shardbook_check as sb
def reference(params, batch):
    loss, grads = jax.value_and_grad(loss_of)(params, batch)
    return {"loss": loss, **grads}
case = sb.case(reference, params, batch)
print(sb.check({"loss": loss, **grads}, case, mesh))
# ----
