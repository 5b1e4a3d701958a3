"""What ./tests/bench measures, part by part. Each part makes a table; docs/performance*.md show them.

Both sides of a comparison are called in turn. Where one is another process (PyTorch's), the sides take turns of half a
second, ROUNDS times, and a ratio is the median of the rounds' ratios."""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path.append(str(TESTS.parent / "chapters"))
import checkpoints, launch, latencies
from setup import fail, run

CALLS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send, receive"]
BYTES = {4: "4 B", 1 << 10: "1 kB", 16 << 10: "16 kB", 64 << 10: "64 kB", 1 << 20: "1 MB", 4 << 20: "4 MB"}
STRATEGIES = {"single": ("01_single_device", "single"), "data": ("02_data_parallel", "all-reduce"),
              "tensor": ("03_tensor_parallel", "column-row"), "zero3": ("06_fully_sharded", "zero3")}
NETWORKS = [(16, 64, 128), (64, 256, 1024), (256, 512, 2048), (1024, 1024, 4096)]
DECODERS = {"single": "single", "tensor": "tensor", "zero3": "fsdp"}
DECODER = (512, 512, 1408)


def median(numbers):
    """The middle one; of an even number, the lower one of the two."""
    return sorted(numbers)[(len(numbers) - 1) // 2]


class Table:
    """Rows of texts and numbers below the names of their columns. A column in which no row has anything is left out."""

    def __init__(self, says, columns):
        self.says, self.columns, self.rows = says, columns, []

    def add(self, *row):
        self.rows.append(row)
        return self

    def as_json(self):
        kept = [i for i, _ in enumerate(self.columns) if any(row[i] is not None for row in self.rows)]
        return {"says": self.says, "columns": [self.columns[i] for i in kept],
                "rows": [[row[i] for i in kept] for row in self.rows]}


class Bench:
    """The programs of this project and PyTorch's processes, with how long to measure."""

    def __init__(self, programs, torch, is_quick):
        self.programs, self.torch, self.is_quick = programs, torch, is_quick
        self.rounds, self.seconds = (1, 0) if is_quick else (3, 0.4)
        self.peers = {}  # by number of devices

    def ours(self, program, devices, *words, seconds=None):
        """The figures of one of our benchmark programs."""
        os.environ["BIND_TO"] = "core" if devices <= len(os.sched_getaffinity(0)) else "none"
        with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere:
            file = Path(folder, "figures.json")
            words = [*words, "--json", file, "--seconds", self.seconds if seconds is None else seconds]
            if code := launch.on_devices(devices, [self.programs / f"bench_{program}", *words], output=nowhere.fileno()):
                sys.exit(code)
            return json.loads(file.read_text())

    def torchs(self, devices, task):
        """Microseconds that a task takes PyTorch; None where there is none."""
        if not self.torch:
            return None
        if devices not in self.peers:
            self.peers[devices] = Peers(self.torch, devices)
        return self.peers[devices].measured({"seconds": self.seconds, **task})

    def step(self, strategy, network, devices, layers=2, is_decoder=False, rounds=None):
        """Rounds of a step's figures: ours, the floor's, PyTorch's, and the floor's library."""
        chapter, variant = ("08_decoder", DECODERS[strategy]) if is_decoder else STRATEGIES[strategy]
        words = ["--variant", variant, "--layers", layers, "--sizes", "x".join(map(str, network))]
        task = {"strategy": strategy, "network": network, "layers": layers, "is_decoder": is_decoder}
        for _ in range(rounds or self.rounds):
            [figure] = self.ours(chapter, devices, *words)["chapters"]
            yield (*sides(figure), self.torchs(devices, task), figure["floor_by"])

    def close(self):
        for peers in self.peers.values():
            peers.close()


class Peers:
    """PyTorch's processes, which wait for tasks without taking a core."""

    def __init__(self, python, devices):
        self.marks = tempfile.NamedTemporaryFile(prefix="shardbook-bench-")
        self.marks.write(bytes(8 * devices))
        self.marks.flush()
        places = {"WORLD_SIZE": str(devices), "MARKS": self.marks.name, "MASTER_ADDR": "127.0.0.1",
                  "MASTER_PORT": str(20000 + os.getpid() % 9000 + devices)}
        self.processes = [subprocess.Popen([python, TESTS / "benchmarks/torch_peer.py"], text=True,
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                           env={**os.environ, **places, "RANK": str(rank)})
                          for rank in range(devices)]

    def measured(self, task):
        for process in self.processes:
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
        if answer := self.processes[0].stdout.readline():
            return float(answer)
        said = self.processes[0].stderr.read().strip().splitlines()
        fail(70, f"PyTorch: expected a time for {json.dumps(task)}, given: {said[-1] if said else 'nothing'}")

    def close(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            process.wait()


def sides(figure):
    """The medians of ours and of the reference, in microseconds."""
    return tuple(figure["times"][side]["median"] for side in ("ours_us", "reference_us"))


def ratio(ours, others):
    """The median of the rounds' ratios; None where there is no other side."""
    return None if None in others else median([a / b for a, b in zip(ours, others)])


def lowest(times):
    return None if None in times else min(times)


def judged(bar, given):
    """"at most 1.05", with a mark where it is missed."""
    return None if given is None else f"at most {bar:.3g}" + (": missed" if given > bar else "")


def collectives(bench):
    """Each collective beside MPI's and Gloo's."""
    table = Table("Collectives on 2 devices. Bytes of the whole tensor; microseconds of a call, and ratios",
                  ["call", "bytes", "ours", "MPI", "Gloo", "ours − MPI", "ours / MPI", "ours / Gloo", "bar"])
    rounds = {}
    for _ in range(bench.rounds):
        figures = bench.ours("collectives", 2, "--sizes", ",".join(map(str, BYTES)), seconds=bench.seconds / 2)
        for figure in figures["collectives"]:
            at = (figure["call"], figure["bytes"])
            if figure["call"] not in CALLS:
                continue
            gloo = bench.torchs(2, {"call": at[0], "bytes": at[1], "seconds": bench.seconds / 2})
            rounds.setdefault(at, []).append((*sides(figure), gloo))
    for (call, size), times in rounds.items():
        ours, mpi, gloo = zip(*times)
        more, beside = median([a - b for a, b in zip(ours, mpi)]), ratio(ours, mpi)
        bar = judged(1.05, beside) if size >= 64 << 10 else \
            f"MPI + 1 µs{': missed' if more > 1 else ''}"
        table.add(call, BYTES[size], lowest(ours), lowest(mpi), lowest(gloo), more, beside, ratio(ours, gloo), bar)
    return table


STEP_COLUMNS = ["ours", "floor", "PyTorch", "ours / floor", "ours / PyTorch", "products of the floor"]


def row_of_step(rounds):
    ours, floor, torch, library = zip(*rounds)
    return [lowest(ours), lowest(floor), lowest(torch), ratio(ours, floor), ratio(ours, torch), library[-1]]


def steps(bench):
    """Forward and backward of a perceptron, beside the floor and PyTorch."""
    table = Table("Forward and backward of two layers, single on 1 device and the others on 2. Microseconds, and ratios",
                  ["strategy", "batch × width × hidden", *STEP_COLUMNS])
    for strategy in STRATEGIES:
        for network in NETWORKS:
            devices = 1 if strategy == "single" else 2
            table.add(strategy, "×".join(map(str, network)), *row_of_step(bench.step(strategy, network, devices)))
    ratios = [row[6] for row in table.rows]
    if None not in ratios:
        mean, most = 1.0, max(ratios)
        for each in ratios:
            mean *= each ** (1 / len(ratios))
        table.says += (f". ours / PyTorch: geometric mean {mean:.2f} ({judged(0.5, mean)}), "
                       f"largest {most:.2f} ({judged(1, most)})")
    return table


def decoder(bench):
    """The decoder, beside the floor and PyTorch."""
    table = Table("Forward and backward of chapter 08's decoder, 512 tokens, 4 blocks of 512 → 1408. Microseconds, and "
                  "ratios", ["strategy", *STEP_COLUMNS, "bars"])
    for strategy in DECODERS:
        row = row_of_step(bench.step(strategy, DECODER, 1 if strategy == "single" else 2, 4, is_decoder=True))
        bars = [judged(1 / 0.92, row[3]), judged(0.6, row[4])]
        table.add(strategy, *row, "; ".join(bar for bar in bars if bar))
    return table


def engines(bench):
    """Every variant of every chapter, beside its floor."""
    table = Table("Forward and backward of every variant on 2 devices: 256×512×2048, two layers (04 interleaved: four); "
                  "chapter 08: 512×512×1408, two blocks. Microseconds, and ratios",
                  ["chapter", "variant", "ours", "floor", "ours / floor", "products of the floor"])
    for program in sorted(bench.programs.glob("bench_[0-9]*")):
        chapter = program.name.removeprefix("bench_")
        is_decoder = chapter == "08_decoder"
        figures = bench.ours(chapter, 2, "--layers", 2, "--sizes",
                             "x".join(map(str, DECODER if is_decoder else NETWORKS[2])))
        if chapter == "04_pipeline":
            more = bench.ours(chapter, 2, "--layers", 4, "--variant", "interleaved", "--sizes", "256x512x2048")
            figures.setdefault("chapters", []).extend(more.get("chapters", []))
        for figure in figures.get("chapters", []):
            ours, floor = sides(figure)
            table.add(chapter[:2], figure["variant"], ours, floor, ours / floor, figure["floor_by"])
    return table


def many(bench):
    """Many devices on few cores."""
    table = Table("Fully sharded training (06 zero3) on many devices of this machine: milliseconds of a step with its "
                  "optimizer", ["devices", "a process each (MPI)", "all in one process (local)", "bars"])
    bars = {64: (40, 5), 128: (120, None)}
    for devices in (4, 8) if bench.is_quick else (4, 8, 16, 32, 64, 128):
        row = [trained(bench, devices, backend) for backend in ("emu", "local")]
        said = [judged(bar, given) for bar, given in zip(bars.get(devices, (None, None)), row) if bar]
        table.add(devices, *row, "; ".join(said) or None)
    return table


def trained(bench, devices, backend):
    """Milliseconds of a step, the median that a training's report has."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [TESTS.parent / "chapters/run", "06", "-n", devices, "--backend", backend, "train", "--variant", "zero3",
                   "--steps", 5 if bench.is_quick else 20, "--batch", max(64, devices), "--report", report]
        if code := run(command, stdout=subprocess.DEVNULL, env={**os.environ, "BIND_TO": "none"}):
            fail(code, f"many devices: expected a training on {devices}, given code {code}")
        return json.loads(report.read_text())["milliseconds"]


def scaling(bench):
    """How a step grows with the batch and with the devices."""
    table = Table("Forward and backward against the batch, and against the number of devices. Microseconds",
                  ["strategy", "devices", "batch × width × hidden", "ours", "floor", "PyTorch"])
    for strategy in ("data", "tensor", "zero3"):
        cases = [(2, (batch, 512, 2048)) for batch in (32, 64, 128, 256, 512)]
        cases += [(devices, (256, 256, 1024)) for devices in (1, 2, 4, 8)]
        for devices, network in cases[::4] if bench.is_quick else cases:
            ours, floor, torch, _, _, _ = row_of_step(bench.step(strategy, network, devices, rounds=1))
            table.add(strategy, devices, "×".join(map(str, network)), ours, floor, torch)
    return table


def optimizers(bench):
    """A step of each optimizer, beside a copy of memory."""
    table = Table("Optimizers on 2 devices, 4 Mi parameters: microseconds, 10⁹ bytes/s, and the share of the copy's "
                  "bandwidth", ["optimizer", "ours", "10⁹ bytes/s", "the copy's", "share", "bar"])
    for figure in bench.ours("optimizers", 2, *["--quick"] * bench.is_quick)["optimizers"]:
        table.add(figure["optimizer"], sides(figure)[0], figure["gigabytes_per_second"],
                  figure["copy_gigabytes_per_second"], figure["share"], figure["bar"] or None)
    return table


def mistakes(bench):
    """How long until a mistake is told."""
    table = Table("From the moment at which nothing can save a job until its error is on the screen, and until it has "
                  "ended, on 2 devices. Milliseconds", latencies.COLUMNS)
    for row in latencies.measure_all(bench.programs / "bench_latency", 3 if bench.is_quick else 40):
        table.add(*row)
    return table


def files(bench):
    """Checkpoints."""
    size, repetitions = (8, 2) if bench.is_quick else (512, 3)
    table = Table(f"Checkpoints of {size} MiB in one file, on 2 devices: seconds, medians of {repetitions} jobs, and the "
                  "share of the other's speed", checkpoints.COLUMNS)
    for row in checkpoints.measure_all(bench.programs / "bench_checkpoint_speed", size, repetitions):
        table.add(*row)
    return table


PARTS = {"collectives": collectives, "steps": steps, "decoder": decoder, "engines": engines, "many": many,
         "scaling": scaling, "optimizers": optimizers, "latencies": mistakes, "checkpoints": files}
