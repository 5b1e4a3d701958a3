"""Public tests that no run of a program is by itself: numbers go in, and the right ones must come out. And what a
schedule's line tells."""
import json
import math
import random
import re
import struct
import subprocess
import tempfile
from pathlib import Path

import setup


def infer(command, said, seed):
    """Lets rows, or tokens, go through a network. 0: all right."""
    is_decoder = Path(command[2]).name == "08_decoder"
    return infer_tokens(command, said, seed) if is_decoder else infer_rows(command, said, seed)


def infer_tokens(command, said, seed):
    """Lets tokens go through a decoder whose scores are far from zero: where those of a later piece of keys are smaller,
    exp(old - new) is too large for float32. One device, which has all keys in one piece, tells what is right."""
    numbers = random.Random(seed)
    def matrix(rows, columns, most=1.0):
        return [[numbers.uniform(-most, most) for _ in range(columns)] for _ in range(rows)]
    norm, squares = [1.0] * 8, {name: matrix(8, 8) for name in ("key", "value", "output", "gate", "up", "down")}
    block = {**squares, "query": matrix(8, 8, most=300), "attention_norm": norm, "feed_forward_norm": norm}
    ids = "".join(",".join(str(numbers.randrange(11)) for _ in range(12)) + "\n" for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        write_tensors(Path(folder, "params.safetensors"),
                      {"embedding": matrix(11, 8), "head": matrix(11, 8), "final_norm": norm,
                       **{f"block_0/{name}": w for name, w in block.items()}})
        words = ["--head-dim", "4", "--params", f"{folder}/params.safetensors"]
        on_one = [command[0], "1", command[2], "infer", "--variant", "single"]
        expected, job = (subprocess.run([*those, *words], input=ids, text=True, stdout=subprocess.PIPE,
                                        stderr=said.get("stderr")) for those in (on_one, command))
    if code := job.returncode or expected.returncode:
        return code
    wanted, given = ([list(map(float, line.split(","))) for line in run.stdout.splitlines()]
                     for run in (expected, job))
    for row, (mine, right) in enumerate(zip(given, wanted)):
        if len(mine) != len(right) or not all(math.isclose(a, b, rel_tol=0.01, abs_tol=0.01) for a, b in zip(mine, right)):
            if not said:
                print(f"token {row}, of large scores: expected {right}, as one device gives, given {mine}")
            return 86
    return 86 * (len(given) != len(wanted))


def infer_rows(command, said, seed):
    """A network of small integers, of which no product or sum is rounded."""
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
    """A safetensors file: the length of its header, the header, and the matrices, or vectors."""
    header, data = {}, b""
    for name, w in matrices.items():
        is_vector = isinstance(w[0], float)
        numbers = w if is_vector else sum(w, [])
        values = struct.pack(f"<{len(numbers)}f", *numbers)
        header[name] = {"dtype": "F32", "shape": [len(w)] if is_vector else [len(w), len(w[0])],
                        "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


NAMED = {"infer": infer, "reshard": reshard}
