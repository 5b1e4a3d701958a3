"""The speed of saving and loading a checkpoint. Each repetition is a job, in turn with cp of the same file, from the
page cache to a new file, and on to the disk if a save goes there. Before each job, as much memory as it needs is used
and freed: a virtual machine may get memory slowly, at its first use."""
import os
import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

ON_DEVICES = Path(__file__).resolve().parents[2] / "chapters/on_devices"
COPY, FLUSHED = "cp {0} {1}", "cp {0} {1} && sync {1}"
ROWS = [  # the program's arguments; the other side, a shell command or arguments; the least part of its speed
    ("load", COPY, 0.7),
    ("load-unverified", COPY, 0.7),
    ("load-unverified", "read", None),
    ("save", FLUSHED, 0.7),
    ("save", COPY, None),
]


def measure_all(program, devices, is_quick):
    """Measures every row, prints the figures and returns them."""
    mebibytes, repetitions = (8, 2) if is_quick else (2048, 5)
    print(f"\nCheckpoints of {mebibytes} MiB in one file. Median seconds and distance of the quartiles of "
          f"{repetitions} jobs on {devices} devices.\n`read`: the same bytes into new memory\n"
          f"{'':<16} {'ours':>12} {'beside it':>12} {'share':>7}   of, and bar", flush=True)
    with tempfile.TemporaryDirectory(prefix="shardbook-bench-") as folder:
        jobs = Jobs([ON_DEVICES, str(devices), program], Path(folder), mebibytes)
        jobs.seconds("save")
        return [figure(jobs, *row, repetitions) for row in ROWS]


def figure(jobs, what, reference, least, repetitions):
    other = jobs.seconds_of_copy if reference.startswith("cp") else jobs.seconds
    ours, others = zip(*((jobs.seconds(what), other(reference)) for _ in range(repetitions)))
    share = statistics.median(others) / statistics.median(ours)
    bar = f"share >= {least}{'' if share >= least else ': missed'}" if least else ""
    name = {COPY: "cp", FLUSHED: "cp and sync"}.get(reference, reference)
    print(f"{what:<16} {text(ours):>12} {text(others):>12} {share:>7.2f}   {name}{': ' * bool(bar)}{bar}",
          flush=True)
    return {"what": what, "beside": name, "ours_s": sorted(ours), "other_s": sorted(others), "share": share,
            "bar": bar}


def text(times):
    low, median, high = statistics.quantiles(times, n=4, method="inclusive")
    return f"{median:.3f} {100 * (high - low) / median:>3.0f}%"


class Jobs:
    """The commands to measure, on a checkpoint in a folder."""

    def __init__(self, job, folder, mebibytes):
        self.job, self.folder, self.mebibytes = job, folder, mebibytes

    def seconds(self, words):
        self.settle()
        out = subprocess.run([*self.job, words, self.folder / "saved", str(self.mebibytes)], check=True,
                             capture_output=True, text=True).stdout
        if not re.fullmatch(r"\d+\.\d+\n", out):
            raise SystemExit(f"checkpoints: expected a time, given {out}")
        return float(out)

    def seconds_of_copy(self, command):
        copy = self.folder / "copy"
        copy.unlink(missing_ok=True)
        self.settle()
        start = time.monotonic()
        subprocess.run(command.format(self.folder / "saved/model.safetensors", copy), shell=True, check=True)
        return time.monotonic() - start

    def settle(self):
        """Waits until earlier writes are on the disk, and makes memory available."""
        os.sync()
        bytearray(b"1") * (3 * self.mebibytes << 20)
