"""The time from a fatal mistake to its message, and to the end of the job. Each repetition is a job."""
import re
import subprocess
import time
from pathlib import Path

KINDS = {"mismatch": 50, "deadlock": 250, "loss": 2000}  # the limit in milliseconds, of the 99th percentile
ON_DEVICES = Path(__file__).resolve().parents[2] / "chapters/on_devices"
COLUMNS = ["mistake", "told: median", "told: 99 %", "ended: median", "ended: 99 %", "bar"]


def measure_all(program, repetitions):
    """Measures every kind; a row for each."""
    for kind, limit in KINDS.items():
        told, ended = zip(*(of_one_job(program, kind) for _ in range(repetitions)))
        # For a lost device, the end of the job counts; for a wrong call, the message.
        what, times = ("ended", ended) if kind == "loss" else ("told", told)
        missed = ": missed" if percentile(times, 99) > limit else ""
        yield (kind, *(percentile(each, percent) for each in (told, ended) for percent in (50, 99)),
               f"{what} within {limit}{missed}")


def of_one_job(program, kind):
    """Milliseconds until the error's first byte, and until the end."""
    job = subprocess.Popen([ON_DEVICES, "2", program, kind], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    first = job.stderr.read(1)
    told = time.monotonic()
    rest = job.stderr.read()
    out, _ = job.communicate()
    ended = time.monotonic()
    at = re.fullmatch(r"at ([\d.]+)\n", out.decode())
    if not at or first + rest[:6] != b"error: ":
        raise SystemExit(f"latency {kind}: expected a moment and an error, given {out} and {first + rest}")
    return 1000 * (told - float(at[1])), 1000 * (ended - float(at[1]))


def percentile(times, percent):
    """The least time that is at least as long as `percent` percent of all times."""
    return sorted(times)[-(-len(times) * percent // 100) - 1]
