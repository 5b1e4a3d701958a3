"""Programs of NumPy arrays: how each operation is seen, and moved."""
from __future__ import annotations

import math

import numpy as np

from .moves import Moves

# Functions that copy elements, and compute nothing.
COPIES = {"reshape", "transpose", "concatenate", "stack", "where", "take", "take_along_axis", "repeat", "tile", "split",
          "array_split", "moveaxis", "swapaxes", "broadcast_to", "zeros_like", "ones_like", "full_like", "empty_like",
          "copy", "squeeze", "expand_dims", "ravel", "flip", "roll", "pad", "max", "amax", "min", "amin", "sort", "shape",
          "ndim", "size", "copyto", "may_share_memory", "vstack", "hstack", "atleast_1d", "atleast_2d", "diagonal",
          "argsort", "argmax", "argmin", "put_along_axis", "put", "place", "putmask", "fill_diagonal"}


def is_mine(value):
    return isinstance(value, (np.ndarray, np.generic, float, int))


def best(value):
    """An array as the reference is given it: float64 where it was a float."""
    value = np.array(value)
    return value.astype(float) if value.dtype.kind == "f" else value


def plain(value):
    return np.array(np.asarray(value), float)


def run(program, params, batch, rounding=None, seed=0):
    """Results of a program in float64, {name: array}, and how many operations were moved."""
    random = np.random.default_rng(seed)
    moves = rounding and Moves(rounding, lambda like: random.integers(0, 2, np.shape(like)) * 2.0 - 1)
    results = program(*({name: stored(value, moves) for name, value in of.items()} for of in (params, batch)))
    return {name: plain(value) for name, value in results.items()}, moves.seen if moves else 0


def stored(value, moves):
    """A value as the program has it: in a narrower type if float32 does not hold it, or if the precision is less."""
    if not isinstance(value, (np.ndarray, float)):
        return value
    value = best(value)
    if not moves or value.dtype.kind != "f":
        return value
    is_held = moves.rounding.results <= 2.0**-24 and np.array_equal(value, value.astype("f4"))
    found = np.asarray(value if is_held else moves.of_input(value)).view(Moving)
    found.moves = moves
    return found


class Moving(np.ndarray):
    """An array whose operations are moved by its `moves`."""
    moves = None

    def __array_finalize__(self, other):
        self.moves = getattr(other, "moves", None)

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **more):
        moves = moves_of(inputs)
        given = [bare(value) for value in inputs]
        if method == "at":
            getattr(ufunc, method)(*given)
            return None
        is_product = ufunc.__name__ in ("matmul", "vecdot", "matvec", "vecmat")
        if (is_product or method in ("reduce", "accumulate", "reduceat")) and ufunc.__name__ not in ("maximum", "minimum"):
            length = given[0].shape[-1] if is_product else length_of_sums(given[0], more.get("axis", 0))
            given = [moved(moves, value, length) for value in given]
        if out is not None:
            more["out"] = tuple(bare(value) for value in out)
        result = getattr(ufunc, method)(*given, **more)
        result = wrapped(moves, result, ufunc.__name__ not in ("maximum", "minimum", "negative", "absolute", "sign"))
        if out is None:
            return result
        more["out"][0][...] = bare(result)
        return out[0]

    def __array_function__(self, function, types, args, kwargs):
        moves = moves_of(flat((args, tuple(kwargs.values()))))
        is_copy = function.__name__ in COPIES

        def mapped(value):
            if isinstance(value, (list, tuple)):
                return type(value)(map(mapped, value))
            if not isinstance(value, Moving) or is_copy:
                return bare(value)
            return moved(moves, bare(value), max(value.shape, default=1))
        result = function(*map(mapped, args), **{name: mapped(value) for name, value in kwargs.items()})
        if isinstance(result, (list, tuple)):
            return type(result)(wrapped(moves, value, not is_copy) for value in result)
        return wrapped(moves, result, not is_copy)

    def dot(self, other):
        return np.dot(self, other)


def flat(values):
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from flat(value)
        else:
            yield value


def moves_of(values):
    return next((value.moves for value in values if isinstance(value, Moving) and value.moves), None)


def bare(value):
    return value.view(np.ndarray) if isinstance(value, Moving) else value


def moved(moves, value, length):
    is_float = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    return moves.of_addends(value, length) if moves and is_float else value


def length_of_sums(array, axis):
    axes = range(array.ndim) if axis is None else np.atleast_1d(axis)
    return max(1, math.prod(array.shape[a] for a in axes))


def wrapped(moves, result, is_rounded):
    if not isinstance(result, (np.ndarray, np.floating)) or np.asarray(result).dtype.kind != "f" or moves is None:
        return result
    array = np.asarray(result)
    found = np.asarray(moves.of_result(array) if is_rounded else array).view(Moving)
    found.moves = moves
    return found
