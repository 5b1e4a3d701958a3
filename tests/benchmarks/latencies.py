"""The time from a fatal mistake to its message, and to the end of the job. Each repetition is a job."""
import re
import subprocess
import time
from pathlib import Path

KINDS = {"mismatch": 0.05, "deadlock": 0.25, "loss": 2}  # the limit in seconds, of the 99th percentile
ON_DEVICES = Path(__file__).resolve().parents[2] / "chapters/on_devices"


def measure_all(program, devices, is_quick):
    """Measures every kind, prints the figures and returns them."""
    repetitions = 3 if is_quick else 100
    print(f"\nLatencies: from the moment at which nothing can save a job until its error is on the screen, and\n"
          f"until it has ended. Milliseconds, of {repetitions} jobs on {devices} devices each\n"
          f"{'':<10} {'told: median':>12} {'99 %':>8} {'most':>8} {'ended: median':>14} {'99 %':>8} {'most':>8}"
          "   bar", flush=True)
    return [figure(program, devices, kind, repetitions) for kind in KINDS]


def figure(program, devices, kind, repetitions):
    told, ended = zip(*(of_one_job(program, devices, kind) for _ in range(repetitions)))
    # For a lost device, the end of the job counts; for a wrong call, the message.
    decisive = percentile(ended if kind == "loss" else told, 99)
    bar = f"{'ended' if kind == 'loss' else 'told'} <= {KINDS[kind] * 1000:.0f}"
    bar += "" if decisive <= KINDS[kind] else ": missed"
    shown = [f"{1000 * value:.1f}" for times in (told, ended)
             for value in (percentile(times, 50), percentile(times, 99), max(times))]
    print("{:<10} {:>12} {:>8} {:>8} {:>14} {:>8} {:>8}   {}".format(kind, *shown, bar), flush=True)
    return {"kind": kind, "jobs": repetitions, "told_s": sorted(told), "ended_s": sorted(ended), "bar": bar}


def of_one_job(program, devices, kind):
    """Seconds until the error's first byte, and until the end."""
    job = subprocess.Popen([ON_DEVICES, str(devices), program, kind], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, bufsize=0)
    first = job.stderr.read(1)
    told = time.monotonic()
    rest = job.stderr.read()
    out, _ = job.communicate()
    ended = time.monotonic()
    at = re.fullmatch(r"at ([\d.]+)\n", out.decode())
    if not at or first + rest[:6] != b"error: ":
        raise SystemExit(f"latency {kind}: expected a moment and an error, given {out} and {first + rest}")
    return told - float(at[1]), ended - float(at[1])


def percentile(times, percent):
    """The least time that is at least as long as `percent` percent of all times."""
    return sorted(times)[-(-len(times) * percent // 100) - 1]
