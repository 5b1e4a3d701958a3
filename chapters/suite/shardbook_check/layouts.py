"""Where a device's results belong: layouts on a mesh, as layout.json says them, as pieces show them, or as a strategy
has them."""
import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .problems.bounded import part
from .problems.files import Refused, Stored


VERSION = 1


@dataclass(frozen=True)
class Letter:
    """How a tensor lies on one axis of a mesh: replicated (R), sharded along an axis of its own (S), partial
    (P), owned by one device (O), or a piece of a flat buffer (F)."""
    kind: str
    axis: int = 0  # S: the tensor's axis; O: the owner's index on the mesh's axis
    offsets: tuple = ()  # where each slice begins; empty: where the one before ends
    ranges: tuple = ()  # of each index, the [begin, end) of which its slice is made; empty: one
    names: tuple = ()  # F: (tensor, whether it is transposed) of those in the buffer, one behind the other

    def __str__(self):
        return {"R": "replicated", "P": "partial", "S": f"sharded along axis {self.axis}",
                "O": f"owned by device {self.axis}", "F": "flat"}[self.kind]


REPLICATED = Letter("R")


class Letters(tuple):
    """The letter on each axis of a mesh. `order`: the axes in the order in which they cut; None: as in the mesh."""
    order = None


class Mesh(tuple):
    """The sizes of a mesh's axes, and their names."""
    names = ()


def read_layout(path):
    """Sizes of the mesh's axes, and {tensor: a Letter for each axis}, of a layout.json."""
    try:
        content = json.loads(Path(path).read_text())
        mesh, tensors = content["mesh"], content["tensors"]
        if content["version"] != VERSION:
            raise ValueError(f"version {content['version']}")
        sizes = Mesh(mesh.values())
        sizes.names = tuple(mesh)
        return sizes, {name: letters_of(on, mesh) for name, on in tensors.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused(f"{path}: expected a layout of version {VERSION}, given another: {error}") from None


def letters_of(on, mesh):
    """The letter on each axis of a mesh."""
    if unknown := [axis for axis in on if axis not in mesh]:
        raise ValueError(f"{unknown[0]}, which is no axis of the mesh {', '.join(mesh)}")
    letters, axes = Letters(letter_of(on.get(axis, "replicated")) for axis in mesh), list(mesh)
    letters.order = tuple(axes.index(axis) for axis in [*on, *(axis for axis in axes if axis not in on)])
    for (axis, size), letter in zip(mesh.items(), letters):
        for what in ("offsets", "ranges"):
            if (given := len(getattr(letter, what))) not in (0, size):
                raise ValueError(f"{given} {what} on the axis {axis} of size {size}")
        if letter.ranges and any(other.kind == "S" and other.axis == letter.axis
                                 for other in letters if other is not letter):
            raise ValueError(f"ranges on the axis {axis}, and another axis that cuts the same one")
    return letters


def letter_of(word):
    if word in ("replicated", "partial"):
        return Letter(word[0].upper())
    kind = next((kind for kind in ("sharded", "owned", "flat") if isinstance(word, dict) and kind in word), None)
    if kind is None:
        raise ValueError(f"{word}, which is not replicated, partial, sharded, owned or flat")
    if kind == "flat":
        return Letter("F", names=tuple((str(name), False) for name in word[kind]))
    ranges = tuple(tuple((int(begin), int(end)) for begin, end in of) for of in word.get("ranges", ()))
    return Letter(kind[0].upper(), int(word[kind]), tuple(word.get("offsets", ())), ranges)


class Placement:
    """The pieces of a tensor on a mesh: one for each device, or None."""
    def __init__(self, pieces, sizes, letters):
        self.order = getattr(letters, "order", None) or tuple(range(len(sizes)))
        self.mesh = sizes, letters
        self.pieces, self.sizes, self.letters = pieces, *([t[axis] for axis in self.order] for t in self.mesh)
        self.starts, self.is_whole = [None] * len(pieces), True
        self.shape = self.extent(())
        self.place((), [0] * len(self.shape or ()))

    def device(self, prefix):
        return int(np.ravel_multi_index([prefix[self.order.index(axis)] for axis in range(len(prefix))], self.mesh[0]))

    def children(self, prefix):
        letter = self.letters[len(prefix)]
        indices = [letter.axis] if letter.kind == "O" else range(self.sizes[len(prefix)])
        return letter, [(*prefix, index) for index in indices]

    def extent(self, prefix):
        """The shape of the joined pieces of the devices whose indices begin with `prefix`; None without pieces."""
        if len(prefix) == len(self.sizes):
            piece = self.pieces[self.device(prefix)]
            return None if piece is None else list(piece.shape)
        letter, children = self.children(prefix)
        shapes = [shape for shape in map(self.extent, children) if shape is not None]
        if not shapes:
            return None
        shape = list(shapes[0])
        if letter.kind == "S" and letter.axis < len(shape):
            shape[letter.axis] = sum(each[letter.axis] for each in shapes)
        return shape

    def place(self, prefix, start):
        if len(prefix) == len(self.sizes):
            self.starts[self.device(prefix)] = start
            return
        letter, children = self.children(prefix)
        begin, spans = list(start), []
        for index, child in enumerate(children):
            if letter.kind == "S" and letter.offsets:
                begin[letter.axis] = start[letter.axis] + letter.offsets[index]
            self.place(child, list(begin))
            shape = self.extent(child)
            if letter.kind == "S" and shape is not None and letter.axis < len(shape):
                spans.append((begin[letter.axis], shape[letter.axis]))
                begin[letter.axis] += shape[letter.axis]
        spans.sort()
        ends = [first + length for first, length in spans]
        self.is_whole &= all(first == end for (first, _), end in zip(spans[1:], ends))

    def slices(self, device):
        """Where this device's piece lies in the whole."""
        shape = self.pieces[device].shape
        return tuple(slice(begin, begin + size) for begin, size in zip(self.starts[device], shape))

    def twins(self, device):
        """The devices that hold the same, or an addend of the same sum."""
        indices = list(np.ndindex(*self.mesh[0]))
        return [other for other, at in enumerate(indices)
                if all(letter.kind in "RP" or a == b for letter, a, b in zip(self.mesh[1], at, indices[device]))]

    def group(self, device):
        """The devices whose addends make one sum with this one's; itself alone if nothing is partial."""
        indices = list(np.ndindex(*self.mesh[0]))
        mine = indices[device]
        return [other for other, at in enumerate(indices)
                if all(letter.kind == "P" or a == b for letter, a, b in zip(self.mesh[1], at, mine))]


class Arrangement:
    """A tensor with the elements of each axis in the order in which slices, made of several ranges, have them."""
    def __init__(self, letters, shape):
        self.orders = {letter.axis: np.array([i for of in letter.ranges for begin, end in of for i in range(begin, end)])
                       for letter in letters if letter.ranges and letter.axis < len(shape)}
        self.is_whole = all(np.array_equal(np.sort(order), range(shape[axis])) for axis, order in self.orders.items())

    def __call__(self, t):
        for axis, order in self.orders.items():
            t = np.take(t, order, axis)
        return t

    def index(self, index):
        """Of an element of the tensor as it is."""
        return tuple(int(self.orders[axis][i]) if axis in self.orders else i for axis, i in enumerate(index))


def unflattened(pieces, layout, expected):
    """Pieces and layout in which the tensors of flat buffers stand for these, whole, on the first device of the buffer's
    axis; and {tensor: (devices of each such axis, where the element after their last one lies)}. \throws Refused"""
    sizes, letters = layout
    pieces, found, owners = [dict(piece) for piece in pieces], dict(letters), {}
    for buffer, on in letters.items():
        axis = next((axis for axis, letter in enumerate(on) if letter.kind == "F"), None)
        if axis is None:
            continue
        names = on[axis].names
        if unknown := [name for name, _ in names if name not in expected]:
            raise Refused(f"layout.json: {buffer}: {unknown[0]} is no result; expected {', '.join(sorted(expected))}")
        found.pop(buffer)
        of = {name: list(letters.get(name, (REPLICATED,) * len(sizes))) for name, _ in names}
        for name, mine in of.items():
            mine[axis] = Letter("O", 0)
            found[name] = Letters(mine)
        for index in np.ndindex(*(1 if k == axis else size for k, size in enumerate(sizes))):
            devices = [int(np.ravel_multi_index((*index[:axis], i, *index[axis + 1:]), sizes)) for i in range(sizes[axis])]
            given = [pieces[device].pop(buffer, None) for device in devices]
            if all(piece is None for piece in given):
                continue
            ends = np.cumsum([0 if piece is None else piece.values.size for piece in given])
            flat = np.concatenate([piece.values.ravel() for piece in given if piece is not None])
            begin = 0
            for name, is_transposed in names:
                shape = [np.subtract(*part(size, *cut)[::-1]) if cut else size for size, cut in zip(expected[name].shape, [
                    next(((sizes[k], index[k]) for k, letter in enumerate(of[name]) if letter.kind == "S" and
                          letter.axis == a), None) for a in range(expected[name].ndim)])]
                size = int(np.prod(shape))
                if begin + size > len(flat):
                    raise Refused(f"layout.json: {buffer}: expected at least {begin + size} elements up to the end of {name}, "
                                  f"given {len(flat)}")
                values = flat[begin:begin + size].reshape(shape[::-1] if is_transposed else shape)
                values = values.T if is_transposed else values
                pieces[devices[0]][name] = Stored(values, next(p.dtype for p in given if p is not None))
                owners.setdefault(name, {})[devices[0]] = devices, ends - begin, is_transposed
                begin += size
    mesh = Mesh(sizes)
    mesh.names = getattr(sizes, "names", ())
    return pieces, (mesh, found), owners


def owner(device, index, shape, owners):
    """The device that has an element of a piece, an index of it, of a tensor in a flat buffer; else `device`."""
    if device not in owners:
        return device
    devices, ends, is_transposed = owners[device]
    at = np.ravel_multi_index(index[::-1], shape[::-1]) if is_transposed else np.ravel_multi_index(index, shape)
    return devices[int(np.searchsorted(ends, at, side="right"))]


def inferred(pieces, expected):
    """The letter that fits the pieces of devices on one axis."""
    have = [device for device, piece in enumerate(pieces) if piece is not None]
    shapes = {pieces[device].shape for device in have}
    if len(have) == 1 and len(pieces) > 1 and shapes == {expected.shape}:
        return Letter("O", have[0])
    if shapes == {expected.shape}:
        return REPLICATED
    axes = [axis for axis in range(expected.ndim)
            if all(len(shape) == expected.ndim and shape[:axis] + shape[axis + 1:] ==
                   expected.shape[:axis] + expected.shape[axis + 1:] for shape in shapes)]
    return Letter("S", axes[0]) if axes else REPLICATED


STRATEGIES = {"dp": "data", "ddp": "data", "data": "data", "fsdp": "zero3", "fsdp2": "zero3",
              "zero3": "zero3", "tp": "tensor", "tensor": "tensor", "ep": "data", "single": "single"}


# Of a decoder: heads, hidden units and the vocabulary are cut.
TENSOR_AXES = {**{name: Letter("S", 1) for name in ("query", "key", "value", "gate", "up")},
               **{name: Letter("S", 0) for name in ("output", "down", "embedding", "head")},
               **{name: REPLICATED for name in ("attention_norm", "feed_forward_norm", "final_norm", "norm",
                                                "router", "loss", "losses")},
               "position_bias": Letter("S", 1), "logits": Letter("S", 2)}


def letter_by_strategy(strategy, name):
    """The letter of a result in a strategy; None if the strategy does not determine it."""
    kind = STRATEGIES.get(strategy)
    is_whole = name in ("output", "input_grad") if kind == "tensor" else name not in OF_ROWS
    if kind == "single" or kind in ("data", "tensor") and is_whole:
        return REPLICATED
    if kind in ("data", "zero3"):
        return Letter("S", 0)
    if kind == "tensor":
        last = name.split("/")[-1].removeprefix("self_").removeprefix("cross_")
        if last in TENSOR_AXES:
            return TENSOR_AXES[last]
        if layer := re.search(r"layer_(\d+)/", name):
            return Letter("S", 1 - int(layer[1]) % 2)
    return None


OF_ROWS = ("output", "input_grad", "logits", "losses")  # results with a row for each row of the batch


def slices_by_rule(shape, letter, given, device, world, width=1):
    """A device's slice: as part() divides, or as torch.chunk does, if the given length is that one. `width`: of a
    head, if heads are divided. A device may have all key-value heads."""
    slices = [slice(0, size) for size in shape]
    if width > 1 and given == shape:
        return tuple(slices)
    if letter.kind == "S" and letter.axis < len(shape):
        size = shape[letter.axis]
        begin, end = (width * bound for bound in part(size // width, world, device))
        if len(given) == len(shape) and end - begin != given[letter.axis]:
            piece = -(-size // world)
            chunk = min(device * piece, size), min((device + 1) * piece, size)
            begin, end = chunk if chunk[1] - chunk[0] == given[letter.axis] else (begin, end)
        slices[letter.axis] = slice(begin, end)
    return tuple(slices)


def shape_text(shape):
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
