"""Three questions on the files that a student's `split_by_size` fills. No run of it has a record, so the numbers of one
run are asked about: which tensors a file has, why one is not in the file before, and what more room would change."""
import json
import random
import shutil

from named_tests import sizes_that_fill
from problems import sb
from sandbox import Limits
from talk import number_of

RUN = Limits(seconds=60, cpu=10)
COUNT = 11  # tensors


def asked_of_files(tree, student):
    """(a line on the run, its questions with answers). Raises ValueError: why there are none."""
    if tree.make(["split"]):
        raise ValueError("it does not compile")
    chance = random.Random(f"{number_of(student)}/files")
    most = 4 * chance.randint(25, 75)
    sizes = sizes_that_fill(most, chance, COUNT)
    files = files_of(tree, sizes, most)
    asked = [what_is_in(chance, files), why_not_before(files, sizes, most), more_room(tree, files, sizes, most)]
    named = ", ".join(f"t{number} {size}" for number, size in enumerate(sizes))
    return f"`split_by_size` with `most` = {most} bytes, and these tensors, in bytes: {named}; exercise 10.1", asked


def files_of(tree, sizes, most):
    """The tensors of each file, by the student's function."""
    folder = tree.sandbox.scratch / "talk"
    for name in ("problem", "out"):
        (folder / name).mkdir(parents=True)
    try:
        (folder / "problem/job.json").write_text(json.dumps({"bytes": sizes, "most": most}))
        ended = tree.sandbox.run([tree.folder / "chapters/on_devices", 1, tree.program("split"), folder / "problem", folder / "out"],
                                 sees=[tree.folder, folder / "problem"], writes=[folder / "out"], limits=RUN)
        if ended.code or ended.broke:
            raise ValueError(f"its function ends with code {ended.code} {ended.broke}".strip())
        of = {name: t.values.astype(int).tolist() for name, t in sb.read(folder / "out/device_0.safetensors").items()}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    files = [[] for _ in range(of["files"][0])]
    for tensor in sorted(range(len(sizes)), key=lambda t: of["place"][t]):
        if of["file"][tensor] >= 0:
            files[of["file"][tensor]].append(tensor)
    return files


def names(tensors):
    return " ".join(f"t{number}" for number in tensors) or "none"


def what_is_in(chance, files):
    number = chance.choice([n for n, tensors in enumerate(files) if len(tensors) > 1] or range(len(files)))
    return (f"Which tensors has file {number + 1} of {len(files)}?", f"{names(files[number])}.")


def why_not_before(files, sizes, most):
    """The first tensor that did not fit, with its sum."""
    shared = [tensors for tensors in files if sum(sizes[t] for t in tensors) <= most]
    if len(shared) < 2:
        return ("How many files would one very large `most` give?", "One.")
    before, first = shared[0], shared[1][0]
    used = sum(sizes[t] for t in before)
    return (f"Why is t{first} not in the file that begins with t{before[0]}?",
            f"That file has {used} bytes. With t{first} it would have {used + sizes[first]}, and `most` is {most}.")


def more_room(tree, files, sizes, most):
    """What changes if the first tensor that did not fit does."""
    shared = [tensors for tensors in files if sum(sizes[t] for t in tensors) <= most]
    more = sum(sizes[t] for t in shared[0]) + sizes[shared[1][0]] if len(shared) > 1 else 2 * most
    now = files_of(tree, sizes, more)
    moved = next((number for number, (old, new) in enumerate(zip(files, now)) if old != new), None)
    if moved is None:
        return (f"With `most` = {more}, which is the first file that has other tensors?", "None.")
    return (f"With `most` = {more}, which is the first file that has other tensors, and which has it then?",
            f"File {moved + 1}: {names(now[moved])} in the place of {names(files[moved])}; {len(now)} files and not {len(files)}.")
