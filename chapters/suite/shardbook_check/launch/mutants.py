"""Usual mistakes in somebody's collectives: does their own test notice?

    shardbook-check mutants -- torchrun --nproc-per-node 2 my_test.py

runs the command once for each mistake, which the collectives of torch.distributed then make: all_reduce, reduce_scatter
and all_gather, the functional ones of DTensor, and the buckets of DistributedDataParallel. For other programs,
`planted(all_reduce, mutant, rank, size)` wraps a function of an array."""
from __future__ import annotations

import functools
import os
import sys
import tempfile
from pathlib import Path

MUTANTS = {
    "no reduction": "each device keeps its own addend",
    "mean for sum": "every sum is divided by the number of devices",
    "another slice": "a device has the next device's piece",
    "stale bucket": "a sum is that of the call before with the same shape",
    "dropped piece": "the last device's addend is not in the sum",
    "own means": "addends are weighted as if devices had the same number of rows: 5/4, 3/4, 5/4 ..."}
VARIABLE = "SHARDBOOK_MUTANT"


def planted(all_reduce, mutant, rank, size):
    """A function of an array (the sum over `size` processes) that makes a mistake."""
    kept = {}

    def wrong(array, *args, **more):
        if mutant == "no reduction":
            return array
        mine = before(mutant, array, rank, size)
        total = all_reduce(mine, *args, **more)
        total = array if total is None else total  # in place
        if mutant == "mean for sum":
            return total / size
        if mutant == "stale bucket":
            stale = kept.get(total.shape, total)
            kept[total.shape] = total.copy() if hasattr(total, "copy") else total.clone()
            return stale
        return total
    return wrong


def before(mutant, array, rank, size):
    """The addend that a device gives."""
    if mutant == "dropped piece" and rank == size - 1:
        return array * 0
    if mutant == "own means":
        return array * (1.25 if rank % 2 == 0 else 0.75)
    return array


def noticed(command, run):
    """Yields (mutant, code of the command with it, times it was made); first (None, code, 0) without one.
    `run(words, env)` gives the command's code."""
    for mutant in (None, *MUTANTS):
        with tempfile.TemporaryDirectory() as folder:
            code = run(command, {**os.environ, **environment(mutant, folder)})
            yield mutant, code, len(os.listdir(folder))


def environment(mutant, folder):
    """What a process must be told that makes a mistake, and leaves a trace of it in a folder."""
    path = [Path(__file__).with_name("site"), Path(__file__).resolve().parents[2], os.environ.get("PYTHONPATH", "")]
    told = {"PYTHONPATH": os.pathsep.join(map(str, path)), "SHARDBOOK_MUTANT_MADE": str(folder)}
    return {**told, VARIABLE: mutant} if mutant else told


def made():
    """Leaves a trace: this mistake was made in this process."""
    if folder := os.environ.get("SHARDBOOK_MUTANT_MADE"):
        Path(folder, str(os.getpid())).touch()


# ---- torch
def plant(mutant):
    """Lets the collectives of torch.distributed make a mistake in this process."""
    import torch
    dist = torch.distributed
    from torch.distributed import _functional_collectives as functional
    for module in (dist, dist.distributed_c10d):
        for name in ("all_reduce", "reduce_scatter_tensor", "all_gather_into_tensor"):
            setattr(module, name, of_torch(getattr(module, name), mutant))
    for name in ("all_reduce", "reduce_scatter_tensor", "all_gather_tensor"):
        setattr(functional, name, of_functional(getattr(functional, name), mutant))
    plant_ddp(mutant)


def place(group):
    import torch
    dist = torch.distributed
    try:
        return dist.get_rank(group), dist.get_world_size(group)
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return dist.get_rank(), dist.get_world_size()


def of_torch(function, mutant):
    """A collective that writes into its first argument."""
    kept = {}

    @functools.wraps(function)
    def wrong(out, *args, **more):
        name, group = function.__name__, more.get("group")
        rank, size = place(group)
        is_gather = "gather" in name
        if size == 1 or is_gather != (mutant == "another slice") and name != "reduce_scatter_tensor" or \
                not out.is_floating_point():
            return function(out, *args, **more)
        made()
        is_async, more["async_op"] = more.get("async_op", False), False
        given = args[0] if name != "all_reduce" and args else more.get("input", more.get("input_tensor", out))
        own = given.clone()
        if mutant in ("dropped piece", "own means"):
            changed = before(mutant, own, rank, size)
            if name == "all_reduce":
                out.copy_(changed)
            else:
                args = (changed, *args[1:]) if args else args
                more.update({key: changed for key in ("input", "input_tensor") if key in more})
        function(out, *args, **more)
        if mutant == "no reduction":
            out.copy_(own if name == "all_reduce" else own.reshape(size, *out.shape)[rank])
        elif mutant == "mean for sum":
            out.div_(size)
        elif mutant == "another slice":
            pieces = out.reshape(size, -1) if is_gather else None
            out.copy_(pieces.roll(1, 0).reshape(out.shape) if is_gather else next_piece(function, own, out, args, more, rank, size))
        elif mutant == "stale bucket":
            stale, kept[name, out.shape] = kept.get((name, out.shape)), out.clone()
            if stale is not None:
                out.copy_(stale)
        return Done(out) if is_async else None
    return wrong


def next_piece(function, own, out, args, more, rank, size):
    """What a reduce-scatter gives to the next device."""
    rolled = own.reshape(size, -1).roll(-1, 0).reshape(own.shape)
    result = out.clone()
    named = {key: value for key, value in more.items() if key not in ("input", "input_tensor")}
    function(result, rolled, *args[1:], **named)
    return result


class Done:
    """A collective's handle, of a call that has ended."""
    def __init__(self, out):
        self.out = out

    def wait(self, *_):
        return True

    def is_completed(self):
        return True

    def get_future(self):
        import torch
        future = torch.futures.Future()
        future.set_result([self.out])
        return future


def of_functional(function, mutant):
    """A collective that returns its result."""
    kept = {}

    @functools.wraps(function)
    def wrong(given, *args, **more):
        name = function.__name__
        group = more.get("group", args[-1] if args else None)
        rank, size = of_group(group)
        is_gather = "gather" in name
        if size == 1 or is_gather != (mutant == "another slice") or not given.is_floating_point():
            return function(given, *args, **more)
        made()
        result = function(before(mutant, given, rank, size), *args, **more)
        if mutant == "mean for sum":
            return result / size
        if mutant == "no reduction":
            return given.clone() if name == "all_reduce" else result / size
        if mutant == "another slice":
            return result.roll(result.shape[0] // size, 0)
        if mutant == "stale bucket":
            stale, kept[result.shape] = kept.get(result.shape), result
            return result if stale is None else stale
        return result
    return wrong


def of_group(group):
    if isinstance(group, tuple) and len(group) == 2 and hasattr(group[0], "get_group"):
        group = group[0].get_group(group[1])
    elif hasattr(group, "get_group"):
        group = group.get_group()
    return place(group)


def plant_ddp(mutant):
    """The buckets of DistributedDataParallel, which its C++ reduces: by a hook."""
    import torch
    ddp, kept = torch.nn.parallel.DistributedDataParallel, {}
    start = ddp.__init__

    def hook(group, bucket):
        dist = torch.distributed
        rank, size = place(group)
        made()
        own, buffer = bucket.buffer().clone(), before(mutant, bucket.buffer(), rank, size) / size
        if mutant != "no reduction":
            ORIGINAL(buffer, group=group)
        else:
            buffer = own
        if mutant == "mean for sum":
            buffer = buffer / size
        if mutant == "another slice":
            buffer = buffer.roll(max(1, buffer.numel() // size))
        if mutant == "stale bucket":
            stale, kept[bucket.index()] = kept.get(bucket.index(), buffer), buffer.clone()
            buffer = stale
        future = torch.futures.Future()
        future.set_result(buffer)
        return future
    ORIGINAL = torch.distributed.all_reduce.__wrapped__

    @functools.wraps(start)
    def __init__(self, *args, **more):
        start(self, *args, **more)
        self.register_comm_hook(self.process_group, hook)
    ddp.__init__ = __init__


def plant_as_told():
    """Plants what the environment says, if torch is there: site/sitecustomize.py calls it when torch is imported."""
    if (mutant := os.environ.get(VARIABLE)) and "torch" in sys.modules:
        plant(mutant)
