"""Problems in folders, the calls of a program that solves them, and verdicts as text, JSON and JUnit."""
import argparse
import fnmatch
import hashlib
import json
import math
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

if sys.version_info < (3, 9):
    print(f"error: Python: expected 3.9 or newer, given {sys.version.split()[0]}, {sys.executable}", file=sys.stderr)
    sys.exit(69)
try:
    import shardbook
except ModuleNotFoundError as missing:  # NumPy may be in another Python of the PATH
    print(f"error: missing: {missing.name} in {sys.executable} (Debian's package is python3-{missing.name})",
          file=sys.stderr)
    sys.exit(69)
from shardbook import Refused, Verdict

FORMAT = "shardbook-equivalence"
FILES = ("params", "batch", "expected")
REFUSES = (64, 69, 77)  # codes by which a program says that it cannot do this problem


# ---- Folders ---------------------------------------------------------------------------------------------
def export_problem(problem, folder, names):
    """Writes a problem's files, parameters under their names, and returns its entry of the manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    shardbook.write(folder / "params.safetensors", shardbook.to_theirs(problem.params, names))
    shardbook.write(folder / "batch.safetensors", problem.batch)
    shardbook.write(folder / "expected.safetensors", problem.expected, "F64")
    entry = {**shardbook.vars_of(problem), "layers": problem.layers, "results": sorted(problem.expected),
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
    manifest = f'{{"format": "{FORMAT}", "version": {shardbook.VERSION}, "problems": [\n{lines}\n]}}\n'
    (folder / "manifest.json").write_text(manifest)


def read_manifest(folder):
    """The problems of a folder, which must equal those of this version."""
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Refused(f"{path}: expected a manifest, given none that can be read: {error}") from None
    if (manifest.get("format"), manifest.get("version")) != (FORMAT, shardbook.VERSION):
        raise Refused(f"{path}: expected {FORMAT}, version {shardbook.VERSION}, given "
                      f"{manifest.get('format')}, version {manifest.get('version')}")
    known = shardbook.listed_by_name()
    for entry in manifest["problems"]:
        if entry["name"] not in known:
            raise Refused(f"{path}: expected a problem of this version, given {entry['name']}")
    return [shardbook.usable(known[entry["name"]]) for entry in manifest["problems"]]


def read_results(folder, devices, names):
    """The results of each device, and their layout, in a folder; None without results."""
    whole = folder / "results.safetensors"
    if whole.exists():
        return [shardbook.to_ours(shardbook.read(whole), names)], None
    files = [folder / f"device_{device}.safetensors" for device in range(devices)]
    if not any(file.exists() for file in files):
        return None, None
    if missing := [file.name for file in files if not file.exists()]:
        raise Refused(f"{folder}: expected a file of each of {devices} devices, given no "
                      f"{', '.join(missing)}")
    layout = folder / "layout.json"
    pieces = [shardbook.to_ours(shardbook.read(file), names) for file in files]
    if not layout.exists():
        return pieces, None
    return pieces, of_our_names(shardbook.read_layout(layout), names, layout, devices)


def of_our_names(layout, names, path, devices):
    """The layout of transposed tensors has the other axis."""
    sizes, tensors = layout
    if math.prod(sizes) != devices:
        raise Refused(f"{path}: expected a mesh of {devices} devices, given {math.prod(sizes)}")
    found = {}
    for name, letters in tensors.items():
        ours, is_transposed = names.get(name, (name, False))
        found[ours] = tuple(shardbook.Letter("S", 1 - letter.axis, letter.offsets)
                            if is_transposed and letter.kind == "S" else letter for letter in letters)
    return sizes, found


def held(problem, devices, folder, names, precision):
    """The verdict on the results in a folder; None without results."""
    try:
        pieces, layout = read_results(folder, devices, names)
    except (Refused, OSError) as error:
        return failed(problem, devices, "the results", str(error))
    if pieces is None:
        return None
    try:
        return shardbook.check_pieces(problem, devices, pieces, layout, precision)
    except shardbook.Undecided as doubt:
        raise Refused(f"{problem.name}: --precision {precision} decides nothing: {doubt}") from None


# ---- Calls -----------------------------------------------------------------------------------------------
def call(problem, devices, command, names, precision, seconds):
    """Runs a program on a problem. Returns a Verdict, or the reason for which the program refused it."""
    with tempfile.TemporaryDirectory(prefix="equivalence-") as name:
        folder, out = Path(name), Path(name, "out")
        out.mkdir()
        export_problem(problem, folder, names)
        values = words_of(problem, devices, folder)
        words = [filled(word, values) for word in command]
        try:
            ended = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False,
                                   stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return failed(problem, devices, "the program", f"expected an end within {seconds} s, given none")
        except OSError as error:
            raise Refused(f"{words[0]}: {error.strerror}") from None
        lines = ended.stderr.strip().splitlines() or ended.stdout.strip().splitlines() or ["it said nothing"]
        said = next((line for line in lines if line.startswith("error: ")), lines[-1])
        if ended.returncode in REFUSES:
            return said
        if ended.returncode != 0:
            return failed(problem, devices, "the program", f"ended with code {ended.returncode}: {said}")
        return held(problem, devices, out, names, precision) or \
            failed(problem, devices, "the program", "expected results, given none")


def failed(problem, devices, who, text):
    return Verdict(problem.name, devices, [shardbook.Difference(who, text)])


def words_of(problem, devices, folder):
    """The values of the words in braces, for a problem in a folder."""
    return {**shardbook.vars_of(problem), "layers": problem.layers, "devices": devices,
            "step": problem.steps, "mesh": f"devices={devices}", "problem": folder / "problem.json",
            "params": folder / "params.safetensors", "batch": folder / "batch.safetensors",
            "out": folder / "out/results.safetensors", "out_dir": folder / "out"}


def require_known(command):
    """Refuses unknown words in braces."""
    known = {word for problem in shardbook.listed() for word in words_of(problem, 1, Path())}
    if wrong := [name for word in command for name in re.findall(r"{(\w+)}", word) if name not in known]:
        sys.exit(refuse(64, f"{{{wrong[0]}}}: expected one of {', '.join(sorted(known))}"))


def filled(word, values):
    for name, value in values.items():
        word = word.replace("{" + name + "}", str(value))
    return word


# ---- Verdicts --------------------------------------------------------------------------------------------
class Report:
    """Prints each verdict at once, and a summary at the end."""
    def __init__(self):
        self.verdicts, self.refused = [], []

    def add(self, problem, devices, outcome):
        if isinstance(outcome, str):
            self.refused.append((problem.name, devices, outcome))
            print(f"{problem.name} on {devices}: refused: {outcome}", flush=True)
            return
        self.verdicts.append(outcome)
        share = f", at most {outcome.worst:.2g} of the bound" if outcome.worst else ""
        print(f"{outcome}{share if outcome.is_right else ''}", *sorted(set(outcome.notes)), sep="\n    ",
              flush=True)

    def end(self, json_file, junit_file):
        """Writes the files, prints the summary, and returns the exit code."""
        wrong = [verdict for verdict in self.verdicts if not verdict.is_right]
        print(f"{len(self.verdicts)} held: {len(self.verdicts) - len(wrong)} right, {len(wrong)} wrong; "
              f"{len(self.refused)} refused by the program")
        if json_file:
            Path(json_file).write_text(json.dumps(self.as_json(), indent=1) + "\n")
        if junit_file:
            xml.ElementTree(self.as_junit()).write(junit_file, encoding="utf-8", xml_declaration=True)
        if not self.verdicts:
            raise Refused("expected results to hold against a problem, given none")
        return 86 if wrong else 0

    def as_json(self):
        return {"format": FORMAT, "version": shardbook.VERSION,
                "verdicts": [{"problem": v.problem, "devices": v.devices, "right": v.is_right,
                              "share_of_bound": v.worst, "inferred": v.notes,
                              "differences": [vars(d) for d in v.differences]} for v in self.verdicts],
                "refused": [{"problem": name, "devices": devices, "says": text}
                            for name, devices, text in self.refused]}

    def as_junit(self):
        suite = xml.Element("testsuite", name="equivalence",
                            tests=str(len(self.verdicts) + len(self.refused)),
                            failures=str(sum(not v.is_right for v in self.verdicts)),
                            skipped=str(len(self.refused)))
        for v in self.verdicts:
            case = xml.SubElement(suite, "testcase", classname=v.problem, name=f"{v.devices} devices")
            if not v.is_right:
                xml.SubElement(case, "failure", message=str(v.differences[0])).text = str(v)
        for name, devices, text in self.refused:
            case = xml.SubElement(suite, "testcase", classname=name, name=f"{devices} devices")
            xml.SubElement(case, "skipped", message=text)
        return suite


# ---- Command lines ---------------------------------------------------------------------------------------
class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise SystemExit(refuse(64, f"{self.prog}: {message} (--help lists the options)"))


def refuse(code, message):
    print(f"error: {message}", file=sys.stderr)
    return code


def parser(name, text):
    made = Parser(prog=f"equivalence {name}", description=text, allow_abbrev=False,
                  formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--problems", default="*", help="names, with * and ?, separated by commas")
    made.add_argument("--map", action="append", default=[], metavar="THEIRS=OURS",
                      help="a name of yours, as in fc1.weight=layer_0/weights^T (^T: transposed), or a "
                           ".json file of such pairs")
    return made


def add_verdict_options(made):
    made.add_argument("--precision", default="float32", choices=shardbook.PRECISIONS,
                      help="how the program computes products: it decides the bounds of real-valued problems")
    made.add_argument("--json", help="a file for the verdicts")
    made.add_argument("--junit", help="the same as JUnit's XML")


def selected(patterns):
    found = [shardbook.usable(problem) for problem in shardbook.listed()
             if any(fnmatch.fnmatchcase(problem.name, pattern) for pattern in patterns.split(","))]
    if not found:
        known = ", ".join(shardbook.listed_by_name())
        raise SystemExit(refuse(64, f"--problems: expected one of {known}, given {patterns}"))
    return found


def main(script):
    try:
        sys.exit(script())
    except Refused as error:
        sys.exit(refuse(65, error))
    except OSError as error:
        sys.exit(refuse(65, f"{error.filename or 'standard output'}: {error.strerror}"))
