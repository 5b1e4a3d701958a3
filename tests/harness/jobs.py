"""Runs a program on devices, with a time limit, and finds what it leaves behind. Checkers of tests/ use it."""
import contextlib
import os
import signal
import subprocess
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ON_DEVICES = ROOT / "chapters/on_devices"


@dataclass
class Ended:
    """The end of a job: its exit code (None: not in time), its output, and what it left behind."""
    code: int | None
    out: str
    err: str
    left: str  # "" if nothing is wrong
    at: float  # in seconds since the epoch, without the time to clean up

    def complaint(self, code, says=()):
        """The complaint, if the job was to end with `code`, and to print these words on standard error."""
        if self.left:
            return self.left
        if self.code != code:
            return f"exit code {self.code}, expected {code}"
        return next((f'standard error lacks "{words}"' for words in says if words not in self.err), "")


def processes_of(mark):
    """The processes with this variable in their environment, which they inherit from the job."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in environment.read_bytes().split(b"\0"):
                found.append(int(environment.parent.name))
        except OSError:  # it has ended, or belongs to another user
            pass
    return found


def stop_rest(mark):
    """Kills the processes that a job has left behind, and returns their number."""
    for _ in range(20):  # a killed process may take a moment to end
        if not (rest := processes_of(mark)):
            return ""
        time.sleep(0.1)
    for process in rest:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return f"left {len(rest)} processes behind"


def run(command, devices=0, seconds=180, environment=None, meanwhile=None, launcher=ON_DEVICES, **options):
    """Runs a command on this number of devices, or without a launcher on 0. `meanwhile` is called with the process
    and a mark in the environment of all processes of the job. Other options go to Popen."""
    job = f"SHARDBOOK_JOB={uuid.uuid4()}"
    environment = {**os.environ, **(environment or {}), **dict([job.split("=")])}
    command = [str(word) for word in ([launcher, devices] if devices else []) + list(command)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err, **options}
        process = subprocess.Popen(command, env=environment, **streams)
        try:
            if meanwhile:
                meanwhile(process, job.encode())
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
            process.terminate()
        at = time.time()
        left = stop_rest(job.encode())
        if code is None:
            process.wait()
            left = f"no end after {seconds} s"
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode(errors="backslashreplace"))
        return Ended(code, *texts, left, at)
