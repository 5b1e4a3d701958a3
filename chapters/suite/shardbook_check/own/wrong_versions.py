"""What wrong versions of one's own program give: the reference on other inputs. A rule knows tensors by their role alone: how
they are cut, which rows a device has. A version counts if it explains every result, those that are right, too."""
from __future__ import annotations

import functools
import itertools
import re
import time

import numpy as np

from .. import evidence
from ..problems.bounded import part
from ..problems.files import rounded
from ..wrong_versions import SAYS
from . import wrong_trainings

SECONDS = 20  # that all versions may take
MOST_PAIRS = 40


def explain(found, case, wrong, placed, mesh):
    """Names the version that explains all results, where rules have found no cause. `wrong`: pairs of a Difference and its
    Facts; `placed`: {name: pieces} of all results."""
    unsure = [d for d, _ in wrong if is_weak(d.cause)]
    if not unsure or len(unsure) < len(wrong) / 2:
        return
    right = [(name, device, piece) for name in found.right for device, piece in enumerate(placed[name]) if piece is not None]
    versions = wrong_trainings.versions(case, placed, mesh, wrong) if case.optimizer else of_inputs(case, placed, mesh, wrong)
    texts, end = [], time.monotonic() + SECONDS
    for text, results, is_rough in versions:
        try:
            if text not in texts and fits(case, results, wrong, right, is_rough):
                texts.append(text)
        except (ValueError, IndexError, TypeError, KeyError, RuntimeError):  # the reference takes no such inputs
            continue
        if len(texts) == 2 or time.monotonic() > end:
            break
    if texts:
        for d in unsure:
            d.cause = texts[0] if len(texts) == 1 else f"{texts[0].rstrip('?')}; or {texts[1]}"


def is_weak(cause):
    """Whether it holds of the results, and does not say why."""
    return cause in (SAYS["unknown"], SAYS["zero"], SAYS["times_zero"], "") or "different copies" in cause or "'s slice, not device" in cause or "a wrong scale" in cause or "in another order" in cause


def fits(case, results, wrong, right, is_rough):
    """Whether results, {name: array} by device, are the given ones. Rough ones explain seven eighths of what is off."""
    seen, strong, off, left = {}, 0, 0.0, 0.0
    for _, f in wrong:
        other = seen.setdefault(f.device, results(f.device)).get(f.name)
        if other is None:
            return False
        other = other.ravel()[f.pieces[f.device].at]
        if is_rough:
            off += float(((f.given - f.want) ** 2).sum() / max((f.want**2).sum(), 1e-300))
            left += float(((f.given - other) ** 2).sum() / max((f.want**2).sum(), 1e-300))
            strong += f.given.size
        elif not is_same(f.given, other, f.limit, f.want):
            return False
        else:
            strong += evidence.explains(f.as_evidence, other) * np.count_nonzero(np.abs(other - f.want) > 4 * f.limit)
    if is_rough:
        return strong > 16 and left <= off / 64
    for name, device, piece in right if strong > 3 else ():
        other = seen.setdefault(device, results(device)).get(name)
        if other is None:
            return False
        limit, want = (of.ravel()[piece.at] for of in (case.limits[name], case.results[name]))
        if piece.sum is None and not is_same(want, other.ravel()[piece.at], limit, want):
            return False
    return strong > 3


def is_same(given, other, limit, want):
    growth = max(1, np.abs(other).max(initial=0) / (np.abs(want).max(initial=0) or 1))
    return bool((np.abs(given - other) <= 4 * growth * limit + 2.0**-21 * np.abs(other).max(initial=0)).all())


# ---- Other inputs
def of_inputs(case, placed, mesh, wrong):
    """Yields (cause, results by device, False)."""
    yield from of_one_device(case, mesh)
    for text, *changes in itertools.chain(of_batch(case, mesh), of_counts(case, wrong), of_params(case, placed, mesh), of_labels(case, mesh)):
        @functools.cache
        def run(changes=tuple(changes)):
            results = sum_of([(factor, ran(case, params, batch)) for factor, params, batch in changes[0]], case)
            return {**results, **{name: back(results) for name, back in (changes[1:] or [{}])[0].items()}}
        yield text, lambda device, run=run: run(), False


def of_one_device(case, mesh):
    """Every device has the rows of one: their outputs everywhere, and their addend so often."""
    for count in sizes_of(mesh):
        for of in (blocks(case.batch_size, count) if 1 < count <= case.batch_size and case.batch_size % count == 0 else [])[:1]:
            addend = case.addend(of)
            if addend is not None:
                def run(of=of, addend=addend, count=count):
                    every = {name: taken(value, of * count) if name in case.rows else value for name, value in case.batch.items()}
                    found = ran(case, case.params, every)
                    numbers = {name: count * case.weight(of) * value for name, value in case.on_rows(of).items() if not np.ndim(value)}
                    return {**found, **numbers, **{name: count * value for name, value in addend.items()}}
                yield "rows of device 0 on every device?", lambda device, run=functools.cache(run): run(), False


def ran(case, params, batch):
    with np.errstate(all="ignore"):
        return case.framework.run(case.reference, params, batch)[0]


def sum_of(parts, case):
    """Gradients and numbers added up; of the rest, the first."""
    if len(parts) == 1:
        return dict(parts[0][1])
    return {name: sum(factor * of[name] for factor, of in parts) if name in case.params or not np.ndim(value) else value
            for name, value in parts[0][1].items()}


def taken(value, order, axis=0):
    return value[(slice(None),) * axis + (np.asarray(order),)]


def sizes_of(mesh):
    sizes = [size for size in mesh.values() if size > 1]
    return list(dict.fromkeys([*sizes, int(np.prod(sizes or [1]))]))


def blocks(size, count):
    return [list(range(*part(size, count, k))) for k in range(count)]


def orders(of):
    """(words, order): blocks read for others."""
    count = len(of)
    ways = [("of the next device's {}", lambda k: (k + 1) % count), ("of the {} of the device before", lambda k: k - 1),
            ("of device 0's {} on every device", lambda k: 0), ("of the {} of the devices from the last to the first", lambda k: -1 - k)]
    for words, other in ways[:1 + (count > 2)] + ways[2:3 + (count > 2)]:
        if all(of):
            yield words, [of[other(k)][min(i, len(of[other(k)]) - 1)] for k in range(count) for i in range(len(of[k]))]


def of_batch(case, mesh):
    """One entry of the batch is another device's, or is forgotten."""
    for name, value in case.batch.items():
        def changed(other, name=name):
            return [(1, case.params, {**case.batch, name: other})]
        if name in case.rows and len(case.rows) > 1:
            for count in sizes_of(mesh):
                for words, order in orders(blocks(case.batch_size, count)) if 1 < count <= case.batch_size else ():
                    yield f"{name} {words.format('rows')}, where the rest is of its own?", changed(taken(value, order))
                strided = [row for device in range(count) for row in range(device, case.batch_size, count)]
                for words, order in (("device, device + N, ... on each device", strided),
                                     ("in the order of a sampler that deals them out", np.argsort(strided))) if count > 1 else ():
                    yield f"{name} of rows {words}, where the rest is in ranges: another order of rows?", changed(taken(value, order))
        for axis in range(getattr(value, "ndim", 0)):
            size = value.shape[axis]
            for words, by in (("before", -1), ("behind", 1)) if size > 1 else ():
                order = (np.arange(size) + by) % size
                where = "row" if axis == 0 and name in case.rows else f"place along axis {axis}"
                yield f"{name} of the {where} {words}: shifted by one?", changed(taken(value, order, axis))
                if isinstance(value, np.ndarray) and not is_float(value) and (value < 0).any():
                    other = taken(value, order, axis).copy()
                    np.moveaxis(other, axis, 0)[0 if by < 0 else -1] = -100
                    yield f"{name} of the {where} {words}: shifted by one?", changed(other)
        for axis, count in itertools.product(range(name in case.rows, getattr(value, "ndim", 0)), sizes_of(mesh)):
            if 1 < count <= value.shape[axis]:
                for words, order in orders(blocks(value.shape[axis], count)):
                    yield f"{name} {words.format('slice')}, along axis {axis}?", changed(taken(value, order, axis))
        if getattr(value, "ndim", 0) and is_float(value):
            yield f"{name} forgotten: taken as 1 everywhere?", changed(value * 0 + 1)
            yield f"{name} forgotten: taken as 0 everywhere?", changed(value * 0)
            for to, words in (("BF16", "bfloat16"), ("F16", "float16")) if isinstance(value, np.ndarray) else ():
                yield f"{name} in {words}?", changed(rounded(value, to).astype(value.dtype))


def is_float(value):
    return "float" in str(getattr(value, "dtype", ""))


def of_labels(case, mesh):
    """Integers in parts of an axis of the batch: those of which -100 is none, and positions."""
    for name, value in case.batch.items():
        if is_float(value) or getattr(value, "ndim", 0) < 1 or not isinstance(value, np.ndarray):
            continue
        for axis, count in itertools.product(range(value.ndim), sizes_of(mesh)):
            size = value.shape[axis]
            if not 1 < count <= size:
                continue
            parts, along = blocks(size, count), np.moveaxis(value, axis, -1)

            def without(places, value=value, axis=axis):
                found = np.moveaxis(value.copy(), axis, -1)
                found[..., places] = -100
                return np.moveaxis(found, -1, axis)
            where = "device's rows" if axis == 0 and name in case.rows else f"device's part of axis {axis}"
            if (along == np.arange(size)).all():
                restart = np.concatenate([np.arange(len(of)) for of in parts])
                yield f"{name} that begin at 0 on each device, along axis {axis}?", [(1, case.params, {**case.batch, name: np.moveaxis(
                    np.broadcast_to(restart, along.shape).copy(), -1, axis)})]
            if (value < 0).any() or "label" in name or "target" in name:
                for words, at in (("last", -1), ("first", 0)):
                    yield f"the {words} of the {name} of each {where} left out: shifted within the part?", \
                        [(1, case.params, {**case.batch, name: without([of[at] for of in parts])})]
                own = [(case.params, {**case.batch, name: without([k for k in range(size) if k not in of])}) for of in parts]
                for words, factor in (("over devices", 1 / count), ("their sum", 1)):
                    yield f"a mean over the {name} of each {where}, and then {words}: of own tokens?", [(factor, *of) for of in own]


def of_counts(case, wrong):
    """How often labels count, by their place along an axis: numbers that are fitted to the largest gradient that is wrong."""
    facts = max((f for _, f in wrong if f.name in case.params), key=lambda f: f.given.size, default=None)
    for name, value in case.batch.items() if facts else ():
        if is_float(value) or not isinstance(value, np.ndarray) or not ((value < 0).any() or "label" in name or "target" in name):
            continue
        for axis, size in enumerate(value.shape):
            if not 1 < size <= 16 or facts.given.size < size + 8:
                continue
            alone = []
            for k in range(size):
                labels = np.full_like(value, -100)
                np.moveaxis(labels, axis, 0)[k] = np.moveaxis(value, axis, 0)[k]
                alone += [(case.params, {**case.batch, name: labels})] * bool((labels >= 0).any())
            of = np.stack([facts.here(ran(case, *each)).ravel() for each in alone], 1)
            fits = [np.linalg.lstsq(of, t.ravel(), rcond=1e-7) for t in (facts.want, facts.given)] if np.isfinite(of).all() else []
            if not fits or fits[0][2] < of.shape[1] or np.abs(of @ fits[0][0] - facts.want.ravel()).max() > 1e-6 * np.abs(facts.want).max():
                continue
            right, found = fits[0][0], fits[1][0]
            place = "row" if axis == 0 and name in case.rows else f"place along axis {axis}"
            shown = ", ".join(f"{ratio:.4g}" for ratio in found / right)
            text = f"a mean over the {name} of each {place}, and then over these?" if np.ptp(found) < 1e-3 * np.abs(found).max() else \
                f"{name} by their {place} count {shown} times: a mean over other ones, or a part that is left out?"
            changes = [(float(count), *each) for count, each in zip(found, alone)]
            yield text, changes
            yield text, changes, {number: lambda results, number=number: case.results[number]  # a loss that is added up otherwise
                                  for number, value in case.results.items() if number not in case.params and not np.ndim(value)}


# ---- Other parameters
def cuts(pieces, shape):
    """(axis, [indices by device]) along which pieces of a tensor lie apart; None if each device has all."""
    have = [piece for piece in pieces if piece is not None and piece.at is not None]
    for axis, size in enumerate(shape):
        along = [sorted(set(np.unravel_index(piece.at.ravel(), shape)[axis].tolist())) for piece in have]
        apart = [list(of) for of in dict.fromkeys(map(tuple, along))]
        if len(apart) > 1 and sorted(i for of in apart for i in of) == list(range(size)):
            return axis, sorted(apart)
    return None


def of_params(case, placed, mesh):
    """A parameter's slices are others, or a parameter counts once on each device."""
    shapes = {name: tuple(value.shape) for name, value in case.params.items()}
    cut = {name: cuts(placed[name], shapes[name]) if name in placed else None for name in shapes}

    def changed(**others):
        return [(1, {**case.params, **others}, case.batch)]
    for name, value in case.params.items():
        if not is_float(value):
            continue
        if cut[name]:
            axis, parts = cut[name]
            for words, order in orders(parts):
                places = np.argsort([i for of in parts for i in of])
                yield f"{name} {words.format('slice')}: read by a wrong rank?", \
                    changed(**{name: taken(value, np.asarray(order)[places], axis)})
            yield from begun_elsewhere(case, name, axis, parts)
            for device, of in enumerate(parts):
                mask = np.ones(value.shape[axis])
                mask[of] = 0
                mask = mask.reshape((-1,) + (1,) * (value.ndim - axis - 1)).astype("f4")
                for words, used in ((f"device {device}'s slice of {name} not used", mask), (f"device {device}'s slice of {name} alone used", 1 - mask))[
                        :1 + (len(parts) > 2)]:
                    yield f"{words}: the rest taken as 0?" if "alone" in words else f"{words}: taken as 0?", changed(**{name: value * used}), \
                        {name: lambda results, name=name, used=used: results[name] * used}
        elif any(cut.values()):
            for count in sizes_of(mesh):
                yield f"{name} added on each of {count} devices before a sum, and so counted {count} times?", \
                    changed(**{name: value * count})
    for name, value in case.params.items():
        for number in (1, 0) if is_float(value) else ():
            yield f"{name} forgotten: taken as {number} everywhere?", changed(**{name: value * 0 + number})
    yield from of_pairs(case, cut, shapes)
    yield from of_families(case, mesh)
    if all(isinstance(value, np.ndarray) for value in case.params.values()):
        for to, words in (("BF16", "bfloat16"), ("F16", "float16")):
            yield SAYS["weights_rounded"].format(words), changed(**{
                name: rounded(value, to).astype(value.dtype) for name, value in case.params.items() if is_float(value)})


def begun_elsewhere(case, name, axis, parts):
    """Ids looked up in slices that begin at device x size // N, where a slice begins elsewhere."""
    size, count, value = sum(map(len, parts)), len(parts), case.params[name]
    if axis or size % count == 0 or not isinstance(value, np.ndarray):
        return
    read = np.zeros((size, size))
    for device, of in enumerate(parts):
        for i, row in enumerate(of):
            if device * (size // count) + i < size:
                read[device * (size // count) + i, row] = 1
    yield f"rows of {name} looked up in slices that begin at device x {size} // {count}, where they are cut otherwise: another offset?", \
        [(1, {**case.params, name: (read @ value).astype(value.dtype)}, case.batch)], \
        {name: lambda results: (read.T @ results[name].reshape(size, -1)).reshape(results[name].shape)}


def of_pairs(case, cut, shapes):
    """Two parameters of one shape: fused and cut in one piece, or in each other's place."""
    names = list(shapes)
    pairs = [(a, b) for a, b in itertools.combinations(names, 2) if shapes[a] == shapes[b] and len(shapes[a]) > 1]
    for kind in sorted({(last_of(a), last_of(b)) for a, b in pairs if cut[a] and cut[b] and cut[a][0] == cut[b][0]}):
        mine = [(a, b) for a, b in pairs if (last_of(a), last_of(b)) == kind and a[:-len(kind[0])] == b[:-len(kind[1])]]
        mine = [(a, b) for a, b in mine if cut[a] and cut[b] and shapes[a][cut[a][0]] % len(cut[a][1]) == 0]
        if not mine or not all(isinstance(case.params[name], np.ndarray) for pair in mine for name in pair):
            continue
        params, backs = dict(case.params), {}
        for a, b in mine:
            axis, parts = cut[a]
            size, count = shapes[a][axis], len(parts)
            order = np.arange(2 * size).reshape(count, 2, size // count).swapaxes(0, 1).ravel()
            both = np.concatenate([params[a], params[b]], axis)
            params[a], params[b] = np.split(np.take(both, order, axis), 2, axis)

            def back(results, k, a=a, b=b, order=order, axis=axis):
                return np.split(np.take(np.concatenate([results[a], results[b]], axis), np.argsort(order), axis), 2, axis)[k]
            backs |= {a: lambda results, back=back: back(results, 0), b: lambda results, back=back: back(results, 1)}
        text = f"{kind[0]} and {kind[1]} fused, and cut in one piece: a device has parts of one of them, not of both?"
        yield text, [(1, params, case.batch)], backs
        yield text, [(1, params, case.batch)]
    for a, b in pairs[:MOST_PAIRS]:
        yield f"{a} and {b} in each other's place?", [(1, {**case.params, a: case.params[b], b: case.params[a]}, case.batch)]


def last_of(name):
    return re.split(r"[/.]", name.removesuffix(".weight"))[-1] + ".weight" * name.endswith(".weight")


def of_families(case, mesh):
    """Parameters whose names differ in one number, as experts': another one's for each."""
    families = {}
    for name in case.params:
        for found in re.finditer(r"(?<![0-9])[0-9]+(?![0-9])", name):
            families.setdefault((name[:found.start()], name[found.end():]), {})[int(found[0])] = name
    of_prefix = {}
    for (before, after), members in families.items():
        if len(members) > 1 and sorted(members) == list(range(len(members))) and \
                len({tuple(case.params[name].shape) for name in members.values()}) == 1:
            of_prefix.setdefault((before, len(members)), []).append((after, members))
    for (before, size), of in of_prefix.items():
        for count in sizes_of(mesh):
            if not 1 < count <= size:
                continue
            turn = [e for device in range(count) for e in range(device, size, count)]
            ways = [("in turn on the devices, where each has a range", turn),
                    ("in ranges on the devices, numbered in turn", np.argsort(turn).tolist()),
                    *[(words.format("own"), order) for words, order in orders(blocks(size, count))]]
            if count == sizes_of(mesh)[0]:
                ways += [("each by the next one", [(e + 1) % size for e in range(size)]),
                         ("each by the one before", [(e - 1) % size for e in range(size)])]
            for words, order in ways:
                for after, members in of if len(of) > 1 else ():
                    others = {members[e]: case.params[members[order[e]]] for e in range(size)}
                    yield f"{before}0{after} to {before}{size - 1}{after} {words}: another one for each?", \
                        [(1, {**case.params, **others}, case.batch)]
                others = {members[e]: case.params[members[order[e]]] for _, members in of for e in range(size)}
                yield f"{before}0 to {before}{size - 1} {words}: another one for each?", [(1, {**case.params, **others}, case.batch)]
