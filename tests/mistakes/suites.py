"""Runs the tests that should notice a mistake, the smallest suite first, and reports which did.

A chapter's suites are a run of `train` (exact mode, the closed forms and the loss curve) and, if that
notices nothing, its equivalence suite. For other parts, the mistake names the tests.
Two more figures follow: what a comparison of loss curves alone would notice, and what a test on two devices would."""
import json
import math
import os
import re
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import jobs
import shardbook_check as sb
from shardbook_check.problems import decoder
from workshop import NOTHING, ROOT

DEVICES = 3   # divides no size of the networks
SECONDS = 60  # after that, a job counts as hanging
CODES = {None: "no end", 65: "a file is refused (65)", 69: "the machine's limits (69)",
         70: "an internal check (70)", 81: "devices disagree (81)", 82: "deadlock (82)",
         83: "a device is lost (83)", 84: "a bad argument (84)", 85: "not finite (85)"}
LINES = {"exact mode": r"  differs|  exact mode: .* by (?!0 ulp)", "loss curve": "  loss curve: step",
         "a false claim": "  a claim of layout is false"}
OF_TRAINING = {"--batch", "--layers", "--hidden-dim", "--clip-norm", "--optimizer", "--learning-rate",
               "--blocks", "--model-dim", "--heads", "--key-heads", "--experts", "--length",
               "--encoder-blocks", "--source-length", "--feed-forward", "--pieces"}
SAME = 1e-5  # relative to the largest element; larger than float32's rounding


@dataclass
class Verdict:
    """Which test noticed a mistake, and two figures; None where there is nothing to measure."""
    mistake: object
    noticed: list = field(default_factory=list)
    curve: float | None = None  # the largest relative difference of losses in 50 steps
    on_two: str | None = None   # what a test on two devices notices; "" if nothing


class Suites:
    """Runs mistakes in a workshop. The results of right programs are measured once."""

    def __init__(self, workshop):
        self.workshop, self.right, self.lock = workshop, {}, threading.RLock()

    def verdict(self, mistake):
        made, verdict = self.workshop.with_mistake(mistake), Verdict(mistake)
        chapter, options = mistake.chapter, mistake.options
        tests = [Test(text) for text in mistake.tests.split(", ") if text]
        backend = "emu" if "/processes/" in mistake.file else "local"
        trains = [(f"{backend}/{chapter}", NOTHING)] if chapter else []
        for program in [*(test.program for test in tests), *trains]:
            if said := made.compile(*program):
                verdict.noticed.append(f"compiler: `{sentence(said)}`")
                return verdict
        for test in tests:
            verdict.noticed = verdict.noticed or test.failed(made, test.name)
        if chapter:
            self.train(verdict, made, f"{backend}/{chapter}", options, is_judge=not verdict.noticed)
        if chapter and not verdict.noticed and not tests:
            suite = Test(f"{chapter}.equivalence")
            if made.compile(*suite.program):
                raise SystemExit(f"{mistake.name}: {suite.name} does not compile")
            verdict.noticed += suite.failed(made, "equivalence")
        return verdict

    def train(self, verdict, made, name, options, is_judge):
        """Trains. If this run is the suite, its own messages count."""
        program = made.program(name)
        ended, losses = trained(program, options, DEVICES, 50)
        if is_judge:
            verdict.noticed += said_of_run(ended)
        with self.lock:
            key = (name, *options)
            if key not in self.right:
                right = self.workshop.build / name
                self.right[key] = (trained(right, options, DEVICES, 50)[1], self.on_two(right, options))
                if isinstance(self.right[key][1], str):
                    raise SystemExit(f"{verdict.mistake.train}: on two devices: {self.right[key][1]}")
            right_losses, right_on_two = self.right[key]
        if losses:
            verdict.curve = farthest(losses, right_losses)
        verdict.on_two = difference(self.on_two(program, options), right_on_two)

    def on_two(self, program, options):
        """Results of two devices with even sizes: the losses of two steps, and `gradients`, by name."""
        ended, losses = trained(program, options, 2, 2)
        results = {"losses": losses}
        if ended.code not in (0, 86):
            return ended_in(ended)
        with tempfile.TemporaryDirectory() as folder:
            write_problem(Path(folder), Path(program).name, options)
            files = ["--params", f"{folder}/params", "--batch", f"{folder}/batch", "--out", f"{folder}/out"]
            ended = on_devices([program, "gradients", *without_sizes(options), *files], 2)
            if ended.code != 0:
                return ended_in(ended)
            return results | read_values(Path(folder) / "out")


# Tests in several files with other names, and the numbers of devices of tests whose devices are processes.
SUBJECTS = {"collectives_test": ["collectives/*"], "layouts_test": ["layouts/*"], "operations_test": ["operations/*"],
            "safetensors_test": ["files/*"], "engine_test": ["*/engine_test", "*/optimizer_test"],
            "proof_test": ["*/proof_test", "*/loss_curve_test", "*/report_test"],
            "equivalence": ["*/equivalence_test", "*/generation_test", "*/resume_test"]}
PROGRAMS = {"deadlock_test": "emu_tests", "train_test": "train_test"}
PROCESSES = {"deadlock_test": 1, "train_test": 3}


class Test:
    """The test cases that a mistake names: "proof_test", all of a file or a subject; "proof_test@1", on one device;
    "mixture_test slots*", with such a name; "02_data_parallel.equivalence", the suite on a chapter."""

    def __init__(self, text):
        self.name, _, self.cases = text.partition(" ")
        self.subject, _, self.devices = self.name.partition("@")
        self.chapter, _, suite = self.subject.rpartition(".")
        patterns = SUBJECTS.get(suite, [f"*/{suite}"])
        paths = [path for pattern in patterns for path in ROOT.glob(f"tests/{pattern}.cpp")]
        self.files = [path.stem for path in paths]
        self.is_of_files = any(path.parent.name == "files" for path in paths)
        if not self.files and suite != "wrong_programs":
            raise SystemExit(f"{text}: expected a name of tests")
        if self.chapter:
            self.devices = self.devices or DEVICES

    @property
    def program(self):
        """The program of these tests, and the objects that it can do without: other tests, or chapters."""
        if self.subject == "wrong_programs":
            return "tests/wrong_programs", NOTHING
        others = rf"/(?!({'|'.join(self.files)})\.)\w+_test\.cpp\.o$"
        if self.chapter:
            others += rf"|/(?!{self.chapter}\.)\d\d_\w+\.objects\.dir/"
        program = "files_test" if self.is_of_files else PROGRAMS.get(self.subject, "local_tests")
        return f"tests/{program}", others

    def command(self):
        """The arguments of the program."""
        if self.chapter:
            return ["--brief", "--chapter", self.chapter, "--devices", self.devices, f"[suite]{self.cases}"]
        chosen = ["-#", ",".join(f"[#{file}]{self.cases}" for file in self.files)]
        return chosen + (["--devices", self.devices] if self.devices else [])

    def failed(self, made, name):
        """The names of the test cases that fail, or the end of the program."""
        program = made.program(*self.program)
        if self.subject == "wrong_programs":
            return of_catalogue(program)
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)  # tests that act as another user need it
            environment = {"OMPI_MCA_pml": "ob1", "TMPDIR": folder}
            ended = jobs.run([program, *self.command()], PROCESSES.get(self.subject, 0), SECONDS, environment)
        if "No tests ran" in ended.out:
            raise SystemExit(f"{self.name} {self.cases}: expected test cases, given none")
        if ended.code == 0 and not ended.left:
            return []
        cases = re.findall(r"^    in    (.*?)(?: / .*)?$|^device \d+: .*; ([^;]+); \S+:\d+$|"
                           r"after test case \"(.*?)\"", ended.err, re.M)
        names = list(dict.fromkeys(text for case in cases for text in case if text))
        if not names:
            return [f"{name}: {ended_in(ended)}"]
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        return [f"{name}: “{names[0]}”{more}"]


def on_devices(command, devices):
    """Runs a program of emu/, whose devices are processes, or of local/, where they are in one process."""
    launched = devices if command[0].parent.name == "emu" else 0
    return jobs.run(command, launched, SECONDS, {"SHARDBOOK_DEVICES": str(devices)})


def trained(program, options, devices, steps):
    """The end of a run, and its losses if it was complete."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        ended = on_devices([program, "train", "--steps", steps, "--report", report, *options], devices)
        return ended, json.loads(report.read_text())["losses"] if report.exists() else []


def without_sizes(options):
    """Those options of `train` that `gradients` also has."""
    pairs = zip(options[::2], options[1::2])
    return [word for pair in pairs if pair[0] not in OF_TRAINING for word in pair]


def said_of_run(ended):
    """The complaint of a run of `train`."""
    if ended.code == 0 and not ended.left:
        return ["a dropped future"] if "was dropped without waiting for it" in ended.err else []
    if ended.code != 86:
        return [ended_in(ended)]
    found = [name for name, pattern in LINES.items() if re.search(f"^{pattern}", ended.out, re.M)]
    figures = re.findall(r"^  device \d+, step \d+: (.*?): measured", ended.out, re.M)
    if figures:
        found.append(f"closed form: {', '.join(dict.fromkeys(figures))}")
    return found or ["train (86)"]


def ended_in(ended):
    if ended.code is not None and (ended.code < 0 or ended.code > 128):
        return "a crash"
    return CODES.get(ended.code, f"exit code {ended.code}")


def of_catalogue(program):
    import catalogue
    wrong = [v for v in catalogue.run(program) if not v.is_right]
    if not wrong:
        return []
    return [f"diagnostics: {len(wrong)} of the programs, first “{wrong[0].program['class']}”"]


def sentence(said):
    """The compiler's first error: our sentence if there is one, else its own."""
    said = re.sub(r"[‘’`]", "'", said)
    ours = re.search(r"static assertion failed: (.*)|is unavailable: (.*)|'nodiscard': '(.*?)'? \[-W", said)
    found = ours or re.search(r"error: (.*)", said)
    return next((text for text in found.groups() if text), "")[:160] if found else "an error"


def farthest(losses, right):
    """The largest relative difference of two loss curves."""
    pairs = list(zip(losses, right))
    return max((abs(a - b) / abs(b) if math.isfinite(a - b) else math.inf for a, b in pairs), default=math.inf)


def difference(given, right):
    """What differs by more than rounding, relative to the largest element; or the end of a program."""
    if isinstance(given, str):
        return given
    for name, values in right.items():
        if len(given.get(name, ())) != len(values):
            return name
        largest = max(map(abs, values)) or 1.0  # NaN if the first one is; then nothing is near
        if not all(abs(a - b) <= SAME * largest for a, b in zip(given[name], values)):
            return name
    return ""


def write_problem(folder, chapter, options):
    """Parameters and a batch with even sizes: four layers, six experts of two layers, a decoder of four blocks, or an
    encoder-decoder of two and two."""
    rows, width, hidden = 16, 8, 12
    random = np.random.default_rng(7)
    def values(shapes):
        return {name: random.uniform(-1, 1, shape) for name, shape in shapes.items()}
    def tokens(**lengths):
        return {name: random.integers(16, size=(rows, length)) for name, length in lengths.items()}
    def stack(before, layers):
        return {f"{before}layer_{i}/weights": (hidden, width) if i % 2 else (width, hidden) for i in range(layers)}
    sizes = dict(vocabulary=16, model_dim=width, heads=4, key_heads=2, head_dim=4, hidden_dim=hidden, experts=0)
    batch = values({"input": (rows, width), "output_grad": (rows, width)})
    if "t5-tensor" in options:
        shapes = decoder.t5_shapes_of(SimpleNamespace(**sizes, blocks=2, buckets=8, is_tied=True))
        batch = tokens(input_ids=8, decoder_input_ids=6, labels=6)
    elif chapter == "08_decoder" or any(option.startswith("decoder-") for option in options):
        shapes = decoder.shapes_of(SimpleNamespace(**sizes, blocks=4, is_tied=False))
        batch = tokens(input_ids=6, labels=6)
    elif chapter == "05_expert" or "expert-data" in options:
        experts = [stack(f"expert_{e}/", 2) for e in range(6)]
        shapes = {"router/weights": (width, 6), **{name: shape for e in experts for name, shape in e.items()}}
    else:
        shapes = stack("", 4)
    sb.write(folder / "params", values(shapes))
    sb.write(folder / "batch", batch)


def read_values(path):
    """The tensors of a file, as flat arrays."""
    return {name: stored.values.ravel() for name, stored in sb.read(path).items()}
