"""picotron's tests/test_tensor_parallel.py, by its protocol: four devices, an input of 2 × 4 × 8 numbers, an output of 16
columns, whose gradient is 1. A column-parallel layer that gathers its output equals a layer on one device; all else is close,
as torch.testing.assert_close has it. Each device is held.

Otherwise than there: no bias, and positive numbers. A program here has both layers with a ReLU between, and of one at a time
the other is the identity, so ReLU and its mask must change nothing."""
import numpy as np

from .problems import linear, problem_of

DEVICES = 4
# What lies in the layers. The test cuts weights itself, and has no optimizer, no other layers, and no second axis.
LAYERS = ("output a mean", "output not reduced", "output reduced twice", "dx not reduced", "dx reduced twice",
          "activations sent as bf16", "rows of the last product reversed", "last column of each slice lost")


def is_close(a, b):
    return np.allclose(a, b, rtol=1.3e-6, atol=1e-5)


def is_layer_wrong(case, layer, is_same):
    """Layer 0 is column-parallel, layer 1 row-parallel."""
    random = np.random.default_rng(42)
    x, w = abs(random.normal(size=(8, 8))).astype("f4"), abs(linear(random, 8, 16)).astype("f4")
    dy = np.ones((8, 16), "f4")
    of = problem_of([w, np.eye(16)] if layer == 0 else [np.eye(8), w], {"input": x, "output_grad": dy})
    program = case.on(of, 1, DEVICES)
    y, dx, g = program.train()
    for device in program.devices():
        cut = program.slice_of(layer, device[1])
        own = cut[0] if layer else slice(None)  # the columns of x that a device has
        pairs = (g[device][layer], (x.T @ dy)[cut]), (dx[device][:, own], (dy @ w.T)[:, own])
        if not is_same(y[device], x @ w) or not all(is_close(*pair) for pair in pairs):
            return True
    return False


def says(case, of_columns=np.array_equal):
    if case.mesh[1] == 1 or case.planted and case.planted not in LAYERS:
        return None
    return is_layer_wrong(case, 0, of_columns) or is_layer_wrong(case, 1, is_close)


def says_close(case):
    return says(case, is_close)
