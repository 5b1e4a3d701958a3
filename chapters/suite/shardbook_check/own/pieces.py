"""What a device has of a tensor, and where it lies in the whole."""
from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass

import numpy as np

from ..layouts import Arrangement, Letter, Placement
from ..verdicts import dtype_of

WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


@dataclass
class Piece:
    """Values, and their places in the flattened whole; None: not said. Pieces of one `sum` and the same places are
    addends."""
    values: np.ndarray
    dtype: str
    at: np.ndarray | None = None
    sum: tuple | None = None


def results_of(given, trained=False, **more):
    """{name: value}: of a torch module its gradients, or its parameters after training; of a dict, itself."""
    if hasattr(given, "named_parameters"):
        of = [(name, value if trained else value.grad) for name, value in given.named_parameters()]
        given = {name: value for name, value in of if value is not None}
    return {**{without_wrappers(name): value for name, value in given.items()}, **more}


def without_wrappers(name):
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "") if name.startswith(wrapper) or f".{wrapper}" in name else name
    return name


def pieces_of(value):
    """[(device or None, Piece)]: more than one of a JAX array, which has those of all devices."""
    if hasattr(value, "addressable_shards"):
        shards = sorted(value.addressable_shards, key=lambda shard: shard.device.id)
        return [(k, Piece(np.array(shard.data, float), dtype_of(shard.data), places(value.shape)[shard.index]))
                for k, shard in enumerate(shards)]
    if hasattr(value, "placements") and hasattr(value, "device_mesh"):
        return [(None, of_dtensor(value))]
    if "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor):
        return [(None, Piece(value.detach().to("cpu").double().numpy(), dtype_of(value)))]
    return [(None, Piece(np.array(value, float), dtype_of(value)))]


def places(shape):
    return np.arange(int(np.prod(shape))).reshape(shape)


def of_dtensor(value):
    """A DTensor's local piece: placements from left to right, each a chunk of what the one before left."""
    local, mesh = value.to_local().detach(), value.device_mesh
    index, whole = mesh.get_coordinate(), tuple(value.shape)
    along, sum_of, share = [np.arange(size) for size in whole], [], 1
    for axis, placement in enumerate(value.placements):
        count, mine = mesh.size(axis), index[axis]
        if placement.is_partial():
            share *= count if getattr(placement, "reduce_op", "sum") == "avg" else 1
            continue
        sum_of.append(mine)
        if hasattr(placement, "dim"):  # Shard, _StridedShard
            strides = getattr(placement, "split_factor", 1)
            along[placement.dim] = np.concatenate([chunk(each, count, mine) for each in
                                                   chunks(along[placement.dim], strides)])
    is_partial = len(sum_of) < len(index)
    at = places(whole)[np.ix_(*along)] if whole else places(whole)
    return Piece(local.to("cpu").double().numpy() / share, dtype_of(local), at, tuple(sum_of) if is_partial else None)


def chunks(values, count):
    return [chunk(values, count, k) for k in range(count)]


def chunk(values, count, k):
    """torch.chunk: all pieces as long as the first, but the last ones."""
    length = -(-len(values) // count)
    return values[min(k * length, len(values)):min((k + 1) * length, len(values))]


def located(pieces, shape, sizes, letters=None):
    """Candidates of (a name, pieces with their places), for pieces without places: by `letters` for each axis of the
    mesh, or by all layouts whose pieces make this shape."""
    if all(piece is None or piece.at is not None for piece in pieces):
        return [("", pieces)]
    values = [None if piece is None else piece.values for piece in pieces]
    found = []
    for each in [letters] if letters else candidates(len(shape), sizes, values):
        lies = Placement(values, sizes, each)
        if lies.shape != list(shape) or not lies.is_whole or not letters and not uses_all(values, lies, each):
            continue
        arranged = Arrangement(each, shape)
        if not arranged.is_whole:
            continue
        at = [None if piece is None else
              Piece(piece.values, piece.dtype, arranged(places(shape))[lies.slices(device)], sum_key(device, sizes, each))
              for device, piece in enumerate(pieces)]
        found.append((", ".join(map(str, each)), at))
    total = sum(value.size for value in values if value is not None)
    if not found and all(value is None or value.ndim == 1 for value in values) and total == np.prod(shape):
        ends = np.cumsum([0] + [0 if value is None else value.size for value in values])
        found.append(("pieces of a flat buffer", [piece and Piece(piece.values, piece.dtype, np.arange(a, b)) for
                                                  piece, a, b in zip(pieces, ends, ends[1:])]))
    return found


def candidates(dims, sizes, values):
    """Letters for each axis. Where one of its devices alone has a piece, as of an expert or a layer, that one owns it."""
    have = np.array([value is not None for value in values]).reshape(sizes)
    letters = []
    for axis in range(len(sizes)):
        owners = np.flatnonzero(have.any(axis=tuple(other for other in range(len(sizes)) if other != axis)))
        letters.append([Letter("O", int(owners[0]))] if len(owners) == 1 < sizes[axis] else
                       [Letter("R"), *[Letter("S", dim) for dim in range(dims)]])
    return itertools.product(*letters)


def uses_all(values, lies, letters):
    """Whether devices that should have the same piece have pieces of one shape."""
    at = list(np.ndindex(*lies.mesh[0]))
    owning = [device for device in range(len(values))
              if all(letter.kind != "O" or letter.axis == index for letter, index in zip(letters, at[device]))]
    return all(values[twin] is not None and values[device] is not None and values[twin].shape == values[device].shape
               for device in owning for twin in lies.twins(device))


def sum_key(device, sizes, letters):
    if all(letter.kind != "P" for letter in letters):
        return None
    index = np.unravel_index(device, sizes)
    return tuple(int(i) for i, letter in zip(index, letters) if letter.kind != "P")
