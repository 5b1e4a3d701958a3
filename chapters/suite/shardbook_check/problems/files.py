"""Files of tensors: safetensors, as https://github.com/huggingface/safetensors#format says: 8 bytes, the header's
length; the header, JSON; values."""
import json
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np


class Refused(Exception):
    """A file or an argument that cannot be read: what, where, expected, given."""


# https://github.com/huggingface/safetensors#format: 8 bytes, the header's length; the header, JSON; values.
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4"}


@dataclass
class Stored:
    """A tensor of a file: its values as float64, and how it was stored."""
    values: np.ndarray
    dtype: str


def read(path):
    """{name: Stored} of a safetensors file."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None
    try:
        start = 8 + struct.unpack_from("<Q", raw)[0]
        header = json.loads(raw[8:start])
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        return {name: Stored(*values_of(raw[start:], entry)) for name, entry in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise Refused(f"{path}: expected a safetensors file of {', '.join(TYPES)}, given another: {error}") \
            from None


def values_of(data, entry):
    begin, end = entry["data_offsets"]
    values = np.frombuffer(data[begin:end], TYPES[entry["dtype"]])
    if entry["dtype"] == "BF16":
        values = (values.astype("<u4") << 16).view("<f4")
    return values.astype(float).reshape(entry["shape"]), entry["dtype"]


def write(path, tensors, dtype="F32"):
    """Writes {name: array} as float32, or as F64, F16 or BF16 (rounded to nearest, ties to even). Integers
    stay integers."""
    header, data = {}, []
    begin = 0
    for name in sorted(tensors):
        kind = "I64" if np.asarray(tensors[name]).dtype == np.int64 else dtype
        raw = stored(np.asarray(tensors[name]), kind).tobytes()
        header[name] = {"dtype": kind, "shape": np.shape(tensors[name]),
                        "data_offsets": [begin, begin + len(raw)]}
        data.append(raw)
        begin += len(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))


def stored(values, dtype):
    if dtype != "BF16":
        return np.ascontiguousarray(values, TYPES[dtype])
    bits = np.ascontiguousarray(values, "<f4").view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def rounded(values, dtype):
    """Values as a file of this type holds them."""
    if dtype == "BF16":
        return (stored(values, dtype).astype("<u4") << 16).view("<f4").astype(float).reshape(np.shape(values))
    return values.astype(TYPES[dtype]).astype(float) if dtype in ("F32", "F16") else values


UNITS = {"F16": 2.0**-11, "BF16": 2.0**-8}  # the largest relative error of a rounding to them


def is_within(given, want, limit, dtype):
    """Whether stored values may be of numbers within a limit. Rounding keeps their order: so the ends of what is allowed, as
    stored, say it. (One that lies beside the middle of two numbers may be stored as either.)"""
    if dtype not in UNITS:
        return np.abs(given - rounded(want, dtype)) <= limit
    least, most = (rounded(end, dtype) for end in (want - limit, want + limit))
    return (least <= given) & (given <= most)


def limit_as_stored(want, limit, dtype):
    """How far a stored value may be from the stored right one: for rules, which compare it with others, too."""
    return limit + 2 * UNITS[dtype] * (np.abs(want) + limit) + 2.0**-24 if dtype in UNITS and limit.any() else limit


def limit_of_sum(pieces, limit, dtype):
    """The same of a sum of stored addends: each was rounded."""
    return limit + UNITS.get(dtype, 0) * sum(map(np.abs, pieces))
