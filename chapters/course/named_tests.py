"""Public tests that no run of a program is by itself: numbers go in, and the right ones must come out. And what a
schedule's line tells."""
import json
import random
import re
import struct
import subprocess
import tempfile
from pathlib import Path

import setup


def infer(command, said, seed):
    """Lets rows go through a network of small integers, of which no product or sum is rounded. 0: all right."""
    numbers = random.Random(seed)
    def matrix(rows, columns):
        return [[numbers.randint(-3, 3) for _ in range(columns)] for _ in range(rows)]
    weights, rows = [matrix(5, 7), matrix(7, 5), matrix(5, 7), matrix(7, 5)], matrix(6, 5)
    expected = rows
    for layer, w in enumerate(weights):
        if layer % 2:  # a ReLU stands before it
            expected = [[max(0, value) for value in row] for row in expected]
        expected = [[sum(a * b for a, b in zip(row, column)) for column in zip(*w)] for row in expected]
    with tempfile.TemporaryDirectory() as folder:
        write_tensors(Path(folder, "params.safetensors"),
                      {f"layer_{layer}/weights": w for layer, w in enumerate(weights)})
        text = "".join(",".join(map(str, row)) + "\n" for row in rows)
        job = subprocess.run([*command, "--params", f"{folder}/params.safetensors"], input=text, text=True,
                             stdout=subprocess.PIPE, stderr=said.get("stderr"))
    given = [[float(word) for word in line.split(",")] for line in job.stdout.splitlines()]
    if job.returncode == 0 and given != expected and not said:
        print(f"expected the rows {expected}, given {given}")
    return job.returncode or 86 * (given != expected)


def sizes_that_fill(most, numbers, count):
    """Random sizes of tensors, in bytes. Every fourth one fills a file to its last byte. Of two that stand between small
    ones, the first is larger than a file, and the second as large. All are whole elements if `most` is. If that is very
    small, all are larger."""
    if most < 32:
        return [4 * numbers.randint(most // 4 + 1, 100) for _ in range(count)]
    sizes, used = [], 0
    for i in range(count):
        small = i % 4 == 2 or i in (4, 8)
        size = 4 * numbers.randint(1, most // 32 if small else 100)
        if i % 4 == 3:  # what is left of the file that is being filled
            size = most - used or most
        sizes.append({5: most + size, 9: most}.get(i, size))
        if sizes[-1] <= most:
            used = sizes[-1] + (used if used + sizes[-1] <= most else 0)
    return sizes


def reshard(command, said, seed):
    """Divides tensors of random sizes among files, and looks at the files. 0: all right."""
    numbers, most = random.Random(seed), int(command[-1])
    names = [f"t{i:02}" for i in range(20)]
    sizes = dict(zip(names, sizes_that_fill(most, numbers, len(names))))
    with tempfile.TemporaryDirectory() as folder:
        write_tensors(Path(folder, "all.safetensors"), {name: [[1.0] * (sizes[name] // 4)] for name in names})
        code = setup.run([*command, "--from", f"{folder}/all.safetensors", "--to", f"{folder}/out"], **said)
        files = {path.name: names_in(path) for path in sorted(Path(folder, "out").glob("*.safetensors"))}
    wrong = what_is_wrong(files, sizes, most)
    if code == 0 and wrong and not said:
        print(wrong)
    return code or 86 * bool(wrong)


def names_in(path):
    raw = path.read_bytes()
    header = json.loads(raw[8:8 + struct.unpack("<Q", raw[:8])[0]])
    return [name for name in header if name != "__metadata__"]


def what_is_wrong(files, sizes, most):
    """A sentence, or nothing."""
    if empty := [file for file, names in files.items() if not names]:
        return f"{empty[0]}: expected a file with tensors, given an empty one"
    there = sorted(sum(files.values(), []))
    if there != sorted(sizes):
        return f"expected each tensor in one file, given {' '.join(there)}"
    bytes_of = {file: sum(map(sizes.get, names)) for file, names in files.items()}
    shared = [file for file, names in files.items() if len(names) > 1 or bytes_of[file] <= most]
    for file, names in files.items():
        if bytes_of[file] > most and len(names) > 1:
            return f"{file}: expected at most {most} bytes, given {bytes_of[file]}"
    in_order = sum((files[file] for file in shared), [])
    if in_order != sorted(in_order):
        return f"expected the tensors in order, given {' '.join(in_order)}"
    for file, following in zip(shared, shared[1:]):
        if bytes_of[file] + sizes[files[following][0]] <= most:
            return f"{file}: expected {files[following][0]} too, as it would fit, given {bytes_of[file]} bytes"
    return ""


def held_otherwise(line, given):
    """What a schedule does otherwise, if a device holds another number of micro-batches than the line says."""
    wanted, found = ([int(word) for word in re.findall(r"\d+", text.partition("held, by device:")[2])] for text in (line, given))
    for device, (most, now) in enumerate(zip(wanted, found)):
        if now != most:
            return f"\n  device {device} holds {now} micro-batches and not {most}: too {'many' if now > most else 'few'} " \
                   "forwards before a backward?"
    return ""


def write_tensors(path, matrices):
    """A safetensors file: the length of its header, the header, and the matrices."""
    header, data = {}, b""
    for name, w in matrices.items():
        values = struct.pack(f"<{len(w) * len(w[0])}f", *sum(w, []))
        header[name] = {"dtype": "F32", "shape": [len(w), len(w[0])],
                        "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


NAMED = {"infer": infer, "reshard": reshard}
