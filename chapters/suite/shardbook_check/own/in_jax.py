"""Programs of JAX arrays: how each operation of their jaxpr is seen, and moved."""
from __future__ import annotations

import math

import jax
import numpy as np

from .moves import Moves

COPIES = set("""reshape transpose broadcast_in_dim slice dynamic_slice dynamic_update_slice gather concatenate squeeze
    select_n convert_element_type copy stop_gradient iota max min neg sign abs rev pad expand_dims argmax argmin
    reduce_max reduce_min sort split optimization_barrier""".split())
CALLS = {"pjit": "jaxpr", "jit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr",
         "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr", "remat": "jaxpr", "checkpoint": "jaxpr",
         "remat2": "jaxpr"}


where = jax.numpy.where


def is_mine(value):
    return isinstance(value, jax.Array)


def plain(value):
    return np.array(value, float)


def run(program, params, batch, rounding=None, seed=0):
    """Results of a program in float64, {name: array}, and how many operations were moved."""
    random = np.random.default_rng(seed)
    moves = rounding and Moves(rounding, lambda like: random.integers(0, 2, np.shape(like)) * 2.0 - 1)
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        given = [{name: stored(value, moves) for name, value in of.items()} for of in (params, batch)]
        if not moves:
            results = program(*given)
        else:
            closed, shape = jax.make_jaxpr(program, return_shape=True)(*given)
            values = evaluated(closed, jax.tree_util.tree_leaves(given), moves)
            results = jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(shape), values)
        return {name: plain(value) for name, value in results.items()}, moves.seen if moves else 0


def stored(value, moves):
    """A value as the program has it: in a narrower type if float32 does not hold it, or if the precision is less."""
    array = np.asarray(value)
    if not np.issubdtype(array.dtype, np.floating) and array.dtype.name != "bfloat16":
        return jax.numpy.asarray(array)
    array = array.astype(float)
    is_held = not moves or moves.rounding.results <= 2.0**-24 and np.array_equal(array, array.astype("f4"))
    return jax.numpy.asarray(array if is_held else moves.of_input(array))


def evaluated(closed, values, moves):
    """The results of a jaxpr, equation by equation."""
    known = dict(zip(closed.jaxpr.constvars, closed.consts))
    known.update(zip(closed.jaxpr.invars, values))

    def value_of(variable):
        return variable.val if hasattr(variable, "val") else known[variable]
    for equation in closed.jaxpr.eqns:
        given = [value_of(variable) for variable in equation.invars]
        name, more = equation.primitive.name, equation.params
        if name in CALLS and CALLS[name] in more:
            inner = more[CALLS[name]]
            inner = inner if hasattr(inner, "consts") else jax.extend.core.ClosedJaxpr(inner, ())
            results = evaluated(inner, given, moves)
        else:
            if length := length_of_sums(name, more, given):
                given = [moves.of_addends(value, length) if is_float(value) and k == 0 else value
                         for k, value in enumerate(given)]
            if name == "convert_element_type" and given[0].dtype == float and is_narrow(more["new_dtype"]):
                more = {**more, "new_dtype": np.dtype(float)}
            if name == "dot_general" and given[0].dtype == float and given[1].dtype == float:
                more = {**more, "preferred_element_type": np.dtype(float)}
            bound = equation.primitive.get_bind_params(more)
            functions, more = bound if isinstance(bound, tuple) else ((), bound)  # before JAX 0.10
            results = equation.primitive.bind(*functions, *given, **more)
            results = list(results) if equation.primitive.multiple_results else [results]
            if name not in COPIES:
                results = [moves.of_result(value) if is_float(value) else value for value in results]
        known.update(zip(equation.outvars, results))
    return [value_of(variable) for variable in closed.jaxpr.outvars]


def is_float(value):
    return hasattr(value, "dtype") and jax.numpy.issubdtype(value.dtype, np.floating)


def is_narrow(dtype):
    return jax.numpy.issubdtype(dtype, np.floating)


def length_of_sums(name, more, given):
    """How many addends an element of an operation's result can have; 0 if it is no sum."""
    if name == "dot_general":
        return max(1, math.prod(given[0].shape[axis] for axis in more["dimension_numbers"][0][0]))
    if name == "reduce_sum":
        return max(1, math.prod(given[0].shape[axis] for axis in more["axes"]))
    if name in ("conv_general_dilated", "scatter-add", "scan", "while", "cumsum", "cumlogsumexp"):
        return max(max(np.shape(value), default=1) for value in given)
    return 0
