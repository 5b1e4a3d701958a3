"""Programs of torch tensors: how each operation is seen, in both passes, and moved."""
from __future__ import annotations

import math

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .moves import Moves

# Operations that copy elements, or make them, and round nothing.
COPIES = set("""clone _to_copy copy_ cat stack index gather where embedding slice_backward select_backward detach
    zeros zeros_like ones ones_like full full_like empty empty_like new_zeros new_ones new_empty arange scalar_tensor
    fill_ zero_ constant_pad_nd index_select masked_fill masked_fill_ relu threshold_backward neg abs sign max min amax
    amin maximum minimum topk sort repeat triu tril roll flip lift_fresh set_ resize_ new_empty_strided empty_strided
    rand randn uniform_ normal_ bernoulli_ scatter index_fill unfold_backward _reshape_alias split_with_sizes_copy
    sum_to_size eq ne lt gt le ge isnan isfinite isinf item _local_scalar_dense""".split())
PRODUCTS = {"mm": 0, "bmm": 0, "mv": 0, "dot": 0, "linear": 0, "addmm": 1, "baddbmm": 1, "addmv": 1, "addbmm": 1,
            "matmul": 0}
# Operations with sums inside, over an axis of their operands.
SUMS = ("softmax", "norm", "attention", "convolution", "loss", "sum", "mean", "var", "std", "_backward", "scatter_add",
        "index_add", "index_put", "cumsum", "prod", "logsumexp", "einsum")


def is_mine(value):
    return isinstance(value, torch.Tensor)


def best(value):
    """A tensor as the reference is given it: float64 where it was a float, and its own."""
    value = torch.as_tensor(value).detach().cpu()
    return value.to(torch.float64).clone() if value.is_floating_point() else value.clone()


def plain(value):
    if not isinstance(value, torch.Tensor):
        return np.array(value, float)
    return value.detach().to("cpu", torch.float64).numpy().copy()


def run(program, params, batch, rounding=None, seed=0):
    """Results of a program in float64, {name: array}, and how many operations were moved."""
    generator = torch.Generator().manual_seed(seed)
    moves = rounding and Moves(rounding, lambda like: torch.randint(0, 2, like.shape, generator=generator).to(like) * 2 - 1)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        given = [{name: stored(value, moves) for name, value in of.items()} for of in (params, batch)]
        with Seen(moves):
            results = program(*given)
        return {name: plain(value) for name, value in results.items() if value is not None}, moves.seen if moves else 0
    finally:
        torch.set_default_dtype(before)


def stored(value, moves):
    """A value as the program has it: in a narrower type if float32 does not hold it, or if the precision is less."""
    if not is_mine(value):
        return value
    value = best(value)
    if not moves or not value.is_floating_point():
        return value
    is_held = moves.rounding.results <= 2.0**-24 and torch.equal(value, value.float().double())
    return value if is_held else moves.of_input(value)


class Seen(TorchDispatchMode):
    """Sees each operation of both passes. Keeps float64 where a program converts to float32, and moves results."""
    def __init__(self, moves):
        super().__init__()
        self.moves = moves

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), func._schema.name.split("::")[-1]
        if name == "_to_copy" and args[0].dtype == torch.float64 and getattr(kwargs.get("dtype"), "is_floating_point", False):
            kwargs["dtype"] = torch.float64
        if name in COPIES or func.is_view or not self.moves:
            return func(*(args if name in COPIES or func.is_view else of_one_type(args)), **kwargs)
        args = of_one_type(args)
        if length := length_of_sums(name, args):
            first = PRODUCTS.get(name.rstrip("_"), 0)
            args = [self.moves.of_addends(arg, length) if is_float(arg) and (k == first or name not in PRODUCTS) else arg
                    for k, arg in enumerate(args)] if not func._schema.is_mutable else args
        result = func(*args, **kwargs)
        if func._schema.is_mutable:
            for written in result if isinstance(result, (list, tuple)) else [result]:
                if is_float(written):
                    written.copy_(self.moves.of_result(written))
            return result
        if isinstance(result, (list, tuple)):
            return type(result)(self.moves.of_result(value) if is_float(value) else value for value in result)
        return self.moves.of_result(result) if is_float(result) else result


def is_float(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def of_one_type(args):
    """float32 tensors beside float64 ones, as float64."""
    kinds = {arg.dtype for arg in args if is_float(arg)}
    if kinds != {torch.float32, torch.float64}:
        return args
    return [arg.double() if is_float(arg) else arg for arg in args]


def length_of_sums(name, args):
    """How many addends an element of an operation's result can have; 0 if it is no sum."""
    operands = [arg for arg in args if is_float(arg)]
    bare = name.rstrip("_")
    if bare in PRODUCTS:
        return args[PRODUCTS[bare]].shape[-1]
    if not operands or not any(word in name for word in SUMS):
        return 0
    if bare in ("sum", "mean", "prod"):
        axes = args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) and args[1] else range(args[0].dim())
        return max(1, math.prod(args[0].shape[axis] for axis in axes))
    return max(max(operand.shape, default=1) for operand in operands)
