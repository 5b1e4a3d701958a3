"""Problems and results in folders: the manifest, what another program has written there, and its names for tensors."""
import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path

from .layouts import VERSION, Letters, read_layout
from .problems.bounded import Undecided
from .problems.files import Refused, Stored, read, write
from .problems.kinds import vars_of
from .problems.listed import listed_by_name, usable
from .verdicts import Difference, Verdict, check_pieces

FORMAT = "shardbook-equivalence"
FILES = ("params", "batch", "expected")


def export_problem(problem, folder, names):
    """Writes a problem's files, parameters under their names, and returns its entry of the manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "params.safetensors", to_theirs(problem.params, names))
    write(folder / "batch.safetensors", problem.batch)
    write(folder / "expected.safetensors", problem.expected, "F64")
    entry = {**vars_of(problem), "layers": problem.layers, "results": sorted(problem.expected),
             **{name: f"{name}.safetensors" for name in FILES},
             "sha256": {name: hashlib.sha256((folder / f"{name}.safetensors").read_bytes()).hexdigest()
                        for name in FILES}}
    (folder / "problem.json").write_text(json.dumps(entry, indent=1) + "\n")
    return entry


def export(folder, problems, names):
    entries = []
    for problem in problems:
        entry = export_problem(problem, folder / problem.name, names)
        entries.append({**entry, **{name: f"{problem.name}/{entry[name]}" for name in FILES}})
    lines = ",\n".join(json.dumps(entry) for entry in entries)
    manifest = f'{{"format": "{FORMAT}", "version": {VERSION}, "problems": [\n{lines}\n]}}\n'
    (folder / "manifest.json").write_text(manifest)


def read_manifest(folder):
    """The problems of a folder, which must equal those of this version."""
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Refused(f"{path}: expected a manifest, given none that can be read: {error}") from None
    if (manifest.get("format"), manifest.get("version")) != (FORMAT, VERSION):
        raise Refused(f"{path}: expected {FORMAT}, version {VERSION}, given "
                      f"{manifest.get('format')}, version {manifest.get('version')}")
    known = listed_by_name()
    for entry in manifest["problems"]:
        if entry["name"] not in known:
            raise Refused(f"{path}: expected a problem of this version, given {entry['name']}")
    return [usable(known[entry["name"]]) for entry in manifest["problems"]]


def read_results(folder, devices, names):
    """The results of each device, and their layout, in a folder; None without results."""
    whole = folder / "results.safetensors"
    files = [folder / f"device_{device}.safetensors" for device in range(devices)]
    given = sorted(folder.glob("device_*.safetensors"))
    if whole.exists() and given:
        raise Refused(f"{folder}: expected results.safetensors or files of devices, given both: which is of this run?")
    if others := [file.name for file in given if file not in files]:
        raise Refused(f"{folder}: expected files of {devices} devices, given {others[0]} too")
    if whole.exists():
        return [to_ours(read(whole), names)], None
    if not any(file.exists() for file in files):
        return None, None
    if missing := [file.name for file in files if not file.exists()]:
        raise Refused(f"{folder}: expected a file of each of {devices} devices, given no "
                      f"{', '.join(missing)}")
    layout = folder / "layout.json"
    pieces = [to_ours(read(file), names) for file in files]
    if not layout.exists():
        return pieces, None
    return pieces, of_our_names(read_layout(layout), names, layout, devices)


def of_our_names(layout, names, path, devices):
    """The layout of transposed tensors has the other axis."""
    sizes, tensors = layout
    if math.prod(sizes) != devices:
        raise Refused(f"{path}: expected a mesh of {devices} devices, given {math.prod(sizes)}")
    found = {}
    for name, letters in tensors.items():
        ours, is_transposed = names.get(name, (name, False))
        found[ours] = Letters(replace(letter, axis=1 - letter.axis) if is_transposed and letter.kind == "S" else
                              replace(letter, names=tuple(names.get(other, (other, False)) for other, _ in letter.names))
                              for letter in letters)
        found[ours].order = letters.order
    return sizes, found


def held(problem, devices, folder, names, precision):
    """The verdict on the results in a folder, or why this precision decides nothing; None without results."""
    try:
        pieces, layout = read_results(folder, devices, names)
    except (Refused, OSError) as error:
        return failed(problem, devices, "the results", str(error))
    if pieces is None:
        return None
    try:
        return in_their_names(check_pieces(problem, devices, pieces, layout, precision), names)
    except Refused as error:
        return failed(problem, devices, "the results", str(error))
    except Undecided as doubt:
        return Undecided(f"--precision {precision} decides nothing here: {doubt}")


def in_their_names(verdict, names):
    """The verdict with the program's names, and indices of its own tensors."""
    theirs = {ours: (name, is_transposed) for name, (ours, is_transposed) in names.items()}
    for d in verdict.differences:
        d.tensor, is_transposed = theirs.get(d.tensor, (d.tensor, False))
        if is_transposed and d.index:
            d.index = d.index[::-1]
    return verdict


def solved(folder, problem, devices, newer_than):
    """What lies in a folder of results: why there are none, or None; and what a program says that refuses the problem,
    in a file `refused` here or, for all numbers of devices, a folder above."""
    results = [folder / "results.safetensors", *folder.glob("device_*.safetensors")]
    results = [file for file in results if file.exists()]
    if not results:
        for refused in (folder / "refused", folder.parent / "refused"):
            if refused.exists():
                return None, refused.read_text(errors="replace").strip().splitlines()[:1] or ["it does not say why"]
        return f"expected results in {folder.parent}/N/, given none", None
    if newer_than is not None and min(file.stat().st_mtime for file in results) < newer_than:
        return f"expected results in {folder.parent}/N/ that are newer, given old ones", None
    return None, None


def failed(problem, devices, who, text):
    return Verdict(problem.name, devices, [Difference(who, text)])


def read_map(texts):
    """{theirs: (ours, is_transposed)} of 'fc1.weight=layer_0/weights^T', or of a JSON file of such pairs."""
    found = {}
    for text in texts:
        pairs = json.loads(Path(text).read_text()).items() if text.endswith(".json") else [text.split("=", 1)]
        for pair in pairs:
            if len(pair) != 2:
                raise Refused(f"--map: expected THEIRS=OURS, or a file that ends in .json, given {text}")
            theirs, ours = pair
            found[theirs] = (ours.removesuffix("^T"), ours.endswith("^T"))
    return found


def to_ours(tensors, names):
    """Results under our names: {name: Stored}."""
    found = {}
    for name, t in tensors.items():
        ours, is_transposed = names.get(name, (name, False))
        found[ours] = Stored(t.values.T, t.dtype) if is_transposed else t
    return found


def to_theirs(tensors, names):
    """Parameters under their names: {name: array}."""
    theirs = {ours: (name, is_transposed) for name, (ours, is_transposed) in names.items()}
    found = {}
    for name, t in tensors.items():
        other, is_transposed = theirs.get(name, (name, False))
        found[other] = t.T if is_transposed else t
    return found
