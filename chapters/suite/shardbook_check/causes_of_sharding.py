"""Rules about how tensors lie on the devices: another device's weights, sums of slices, norms, copies."""
import itertools
import math

import numpy as np

from .evidence import explains
from .problems.bounded import Undecided, part
from .wrong_versions import SAYS


def axis_names(e):
    return getattr(e.mesh, "names", ()) or tuple(f"axis {k}" for k in range(len(e.mesh)))


def axes_with_copies(e):
    """(size, names) of the mesh's axes, shorter than all devices, on which each device has this tensor."""
    names = {}
    for size, name, letter in zip(e.mesh, axis_names(e), e.letters):
        if 1 < size < e.devices and letter.kind == "R":
            names.setdefault(size, []).append(name)
    return [(size, " or ".join(of)) for size, of in names.items()]


def factors_in_training(e):
    """Gradients of training that are a mean, or a sum of sums, over an axis of the mesh."""
    for size, words in axes_with_copies(e) if e.problem.is_training else ():
        for cause, scale in (("averaged_over_axis", 1 / size), ("counted_over_axis", float(size))):
            if explains(e, e.after(scale=scale)):
                ending = (", or a wrong scale" * (size == 2),) * (scale > 1)
                return "of every gradient: " + SAYS[cause].format(size, words, *ending)
    return None


def cuts(e, name):
    """(axis, [begin, end) of each device): the ways in which a parameter may be cut: as it lies; or, where whole tensors
    were given, by tensor parallelism or by rows."""
    slices, shape = e.lies.get(name, ()), e.problem.expected[name].shape
    if len(slices) == e.devices > 1:
        return [(axis, [(here[axis].start, here[axis].stop) for here in slices]) for axis in range(len(shape))
                if len({here[axis].start for here in slices if len(here) > axis}) > 1]
    layer = next((int(word[6:]) for word in name.split("/") if word.startswith("layer_")), 0)
    axes = {1 - layer % 2, 0} if len(shape) == 2 and e.devices > 1 else ()
    return [(axis, [part(shape[axis], e.devices, d) for d in range(e.devices)]) for axis in sorted(axes, reverse=True)]


def other_weights(e):
    """Each device has the weights of another one, in one layer, or in each second one."""
    if e.problem.workload != "mlp" or e.devices == 1:
        return None
    names = [f"layer_{layer}/weights" for layer in range(e.problem.layers)]
    best, most = None, 0
    for of, shift in itertools.product([*([k] for k in range(len(names))), range(0, len(names), 2),
                                        range(1, len(names), 2), range(len(names))], (1, -1)):
        read = [order for k in of if (order := shifted_slices(e, names[k], shift))]
        if len(read) < len(of):
            continue
        if explains(e, e.after(read=tuple(read))) and (fits := sum(e.pieces_like(read=tuple(read)))) > most:
            layers = ", ".join(map(str, of))
            best, most = SAYS["other_weights"].format(f"layer{'s' * (len(of) > 1)} {layers}"), fits
    return best


def shifted_slices(e, name, shift):
    """(name, axis, order) of the parameter in which each slice is the next one."""
    for axis, bounds in cuts(e, name)[:1]:
        distinct, size = sorted(set(bounds)), e.problem.expected[name].shape[axis]
        others = [distinct[(k + shift) % len(distinct)] for k in range(len(distinct))]
        order = [(begin + i) % size for (begin, _), (first, end) in zip(others, distinct) for i in range(end - first)]
        return (name, axis, tuple(order)) if len(order) == size else None
    return None


def sums_of_slices(e):
    """The slices of all devices added up, as if they were addends of one sum."""
    if e.problem.is_training:
        names = [name for name in e.problem.expected if all_of_one_size(e, name)]
        summed = tuple((name, axis, count) for name in names for axis, count in [all_of_one_size(e, name)])
        return SAYS["slices_summed"] if summed and explains(e, e.after(summed=summed)) else None
    if found := all_of_one_size(e, e.name):
        axis, count = found
        whole = e.as_arranged(e.name, e.whole) if e.whole.shape == e.problem.expected[e.name].shape else e.whole
        total = sum(np.split(whole, count, axis))
        here = tuple(slice(None) if a == axis else s for a, s in enumerate(e.slices[e.device]))
        for times in {1, e.devices // count}:
            if e.given.shape == total[here].shape and explains(e, times * total[here]):
                return SAYS["slices_summed"]
    return None


def all_of_one_size(e, name):
    """(axis, number) of the slices of a tensor that is cut once, in slices of one size."""
    for axis, bounds in cuts(e, name)[:1]:
        distinct = set(bounds)
        if len({end - begin for begin, end in distinct}) == 1:
            return axis, len(distinct)
    return None


def norms_of_some(e):
    """Gradients clipped by the norm of a device's slices alone, or by the sum of squares over one axis of the mesh."""
    if not e.problem.is_training or not getattr(e.problem, "clip_norm", 0) or e.devices == 1:
        return None
    here = {}
    for name in e.problem.expected:
        shape = e.problem.expected[name].shape
        if len(e.lies.get(name, ())) == e.devices:
            here[name] = [tuple((s.start, s.stop) for s in at) or ((0, 0),) * len(shape) for at in e.lies[name]]
        elif found := cuts(e, name)[:1]:
            axis, bounds = found[0]
            here[name] = [tuple(b if a == axis else (0, size) for a, size in enumerate(shape)) for b in bounds]
    if here.keys() != e.problem.expected.keys():
        return None
    for copies in sorted({e.devices, *e.mesh} - {1}):
        if explains(e, e.after(norm=math.sqrt(copies))):
            return SAYS["norm_of_copies"].format(copies)
    def group(devices, here=here):
        return tuple(sorted({(name, at[d]) for name, at in here.items() for d in devices}))
    for count in sorted({e.devices, *e.mesh} - {1}):  # pieces of each tensor's rows, or of all tensors one behind the other
        for pieces in (rows_in_parts(e, count), flat_in_parts(e, count)):
            groups = tuple(group([d], pieces) for d in range(count))
            if explains(e, e.after(groups=groups)):
                return SAYS["norm_of_slices"]
    devices = range(e.devices)
    versions = [(SAYS["norm_of_slices"], [[d] for d in devices])]
    grid = np.arange(e.devices).reshape(e.mesh) if math.prod(e.mesh) == e.devices and len(e.mesh) > 1 else None
    for axis, name in enumerate(axis_names(e)) if grid is not None else ():
        versions.append((SAYS["norm_over_axis"].format(name), np.moveaxis(grid, axis, -1).reshape(-1, e.mesh[axis]).tolist()))
    for text, of in versions:
        own = [devices for devices in of if e.device in devices]
        groups = tuple(group(devices) for devices in [*of, *own])
        if len(set(groups)) > 1 and explains(e, e.after(groups=groups)):
            return text
    return None


def rows_in_parts(e, count):
    return {name: [(part(want.shape[0], count, d), *((0, size) for size in want.shape[1:])) for d in range(count)]
            for name, want in e.problem.expected.items()}


def flat_in_parts(e, count):
    """As ZeRO's buffers: pieces of one length of the tensors one behind the other."""
    sizes, found, start = {name: want.size for name, want in e.problem.expected.items()}, {}, 0
    length = -(-sum(sizes.values()) // count)
    for name, size in sizes.items():
        found[name] = [(tuple(min(max(edge - start, 0), size) for edge in (d * length, (d + 1) * length)),)
                       for d in range(count)]
        start += size
    return found


def different_copies(e):
    """Devices that should have the same have not."""
    for device, (piece, here) in enumerate(zip(e.pieces, e.slices)):
        if piece is not None and device != e.device and here == e.slices[e.device] and len(e.pieces) == e.devices:
            mine = e.pieces[e.device]
            if mine is not None and mine.shape == piece.shape == e.limit.shape and \
                    (np.abs(mine - piece) > 4 * e.limit + 2.0**-20 * np.abs(e.want)).any() and \
                    (np.abs(piece - e.want) > 4 * e.limit).any():
                return SAYS["different_copies"].format(*sorted((device, e.device)))
    return None


def not_reduced_along_an_axis(e):
    """Tensor parallelism over one axis of a mesh, or in whole files: dL/dx of a block behind was not reduced."""
    if e.problem.workload != "mlp" or e.problem.is_training or e.devices == 1:
        return None
    sizes = [(size, axis) for axis, size in enumerate(e.mesh) if 1 < size < e.devices] if len(e.mesh) > 1 else []
    at = np.unravel_index(e.device, e.mesh) if sizes else ()
    for size, index in [*((size, int(at[axis])) for size, axis in sizes), (e.devices, None)]:
        mine = {"forgets": "dx_not_reduced", "devices": size}
        versions = [e.after(**mine, device=d) for d in (range(size) if index is None else [index])]
        if e.name != "input_grad" and index is None:  # a whole file: each device has computed its own part
            for axis, bounds in cuts(e, e.name)[:1] if len(e.lies.get(e.name, ())) <= 1 else ():
                versions.append(np.concatenate([np.take(v, range(*b), axis) for v, b in zip(versions, bounds)], axis))
        if e.name == "input_grad":
            versions.append(sum(e.after(**mine, device=d) for d in range(size)))
        if any(explains(e, other) for other in versions if other is not None):
            return SAYS["dx_not_reduced"]
    return None


def would_be_right_in_16_bits(e):
    """Within the bounds of operands in bfloat16, and not within four times those of float32. Products in 16 bits show in
    outputs, too: where these are right, something else is wrong. (A reduction of gradients in 16 bits leaves such numbers.)"""
    are_outputs_right = "logits" in e.results or "output" in e.results
    are_outputs_right &= not {"logits", "output"} & {*e.wrong, e.name}
    if e.problem.kind != "real" or e.want.size < 4 or e.precision == "bf16" or are_outputs_right:
        return None
    try:
        bound = e.as_arranged(e.name, e.problem.bounds("bf16")[e.name])[e.slices[e.device]]
    except Undecided:
        return None
    off = np.abs(e.given - e.want)
    # Roundings have signs of their own: what they make is no multiple of the right numbers, up to 6 standard deviations.
    by, of = (e.given - e.want).ravel(), e.want.ravel()
    if abs(by @ of) * math.sqrt(by.size) > 6 * np.linalg.norm(by) * np.linalg.norm(of):
        return None
    if bound.shape == e.given.shape and (off <= bound).all():
        e.found["in 16 bits"] = e.found.get("in 16 bits", False) or bool((off > bound / 64).any())
        return SAYS["right_in_bf16"]
    return None


def reduced_in_16_bits(e):
    """All differences are roundings of the devices' addends to 8 bits, and every number has 8 bits."""
    addends = e.device_addends(may_be_gathered=True)
    if len(addends) < 2 or e.want.size < 4:
        return None
    size = sum(np.abs(addend) for _, _, addend in addends)
    scaled = np.frexp(e.given)[0] * 2.0**8
    has_8_bits = np.array_equal(scaled, np.rint(scaled))
    had_more = not np.array_equal(np.frexp(e.want)[0] * 2.0**8, np.rint(np.frexp(e.want)[0] * 2.0**8))
    if has_8_bits and had_more and (np.abs(e.given - e.want) <= 2.0**-8 * (size + np.abs(e.want))).all():
        return SAYS["reduced_in_bf16"]
    return None
