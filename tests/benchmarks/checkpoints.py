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


COLUMNS = ["what", "ours", "beside it", "the other's", "share", "bar"]


def measure_all(program, mebibytes, repetitions):
    """Measures every row, in seconds; `read`: the same bytes into new memory."""
    with tempfile.TemporaryDirectory(prefix="shardbook-bench-") as folder:
        jobs = Jobs([ON_DEVICES, "2", program], Path(folder), mebibytes)
        jobs.seconds("save")
        for what, reference, least in ROWS:
            other = jobs.seconds_of_copy if reference.startswith("cp") else jobs.seconds
            ours, others = zip(*((jobs.seconds(what), other(reference)) for _ in range(repetitions)))
            share = statistics.median(others) / statistics.median(ours)
            name = {COPY: "cp", FLUSHED: "cp and sync"}.get(reference, reference)
            yield (what, statistics.median(ours), name, statistics.median(others), share,
                   f"share at least {least}{'' if share >= least else ': missed'}" if least else None)


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
