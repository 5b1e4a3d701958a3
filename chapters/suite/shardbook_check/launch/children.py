"""One call of a command: what it says is kept in a file, and none of its processes survives it."""
from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

GRACE = 5  # seconds between SIGTERM and SIGKILL
SUBREAPER = 36  # prctl's PR_SET_CHILD_SUBREAPER: orphans below this process become its children
LOOKS_LIKE_A_REASON = re.compile(
    r"(\[[\w\s:.]+\]:?\s*)*"  # [rank0]: and the like
    r"(error: |(\w+\.)*[A-Z]\w*(Error|Exception|Differs|Refused|Exit)\b(?!\w)|terminate called|what\(\): |"
    r"thread '.*' panicked|Segmentation fault|Fatal Python error|.*: command not found|Traceback of)")
LAST_LINES = 10


@dataclass
class Ended:
    code: int | None  # None: not within the time
    log: Path
    survivors: int = 0  # processes that had to be killed behind it

    @property
    def lines(self):
        return [line.rstrip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]

    @property
    def line(self):
        """The first line that looks like an exception, else the last one."""
        lines = self.lines
        found = next((line.strip() for line in lines if LOOKS_LIKE_A_REASON.match(line.strip())), None)
        return found or (lines[-1] if lines else "it said nothing")

    @property
    def reason(self):
        """The same, else the last ten lines, and where all of it is."""
        lines = self.lines
        if not lines:
            return "it said nothing"
        if LOOKS_LIKE_A_REASON.match(self.line):
            text = self.line
        else:
            text = "\n      ".join(lines[-LAST_LINES:])
        return f"{text}\n      (all that it said: {self.log})"


def call(words, seconds, log=None, env=None):
    """Runs a command, for at most so many seconds. \\throws OSError where it cannot be started"""
    if log is None:
        handle, name = tempfile.mkstemp(prefix="shardbook-check-", suffix=".txt")
        os.close(handle)
        log = Path(name)
    before = adopts_orphans(True)
    known = set(descendants())
    try:
        with open(log, "wb") as out:
            child = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env,
                                     start_new_session=True)
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        except BaseException:  # Ctrl-C reaches a new session only from here
            end(child, known)
            raise
        return Ended(code, Path(log), end(child, known))
    finally:
        if before is not None:
            adopts_orphans(before)


def end(child, known):
    """Ends what is left of a command: SIGTERM, a grace, then SIGKILL. How many processes it killed."""
    left = [pid for pid in descendants() if pid not in known]
    if not left and child.poll() is not None:
        return 0
    for pid in left or [child.pid]:
        tell(pid, signal.SIGTERM)
    until = time.monotonic() + GRACE
    while time.monotonic() < until and (child.poll() is None or any(pid not in known for pid in descendants())):
        reap({*known, child.pid})
        time.sleep(0.05)
    killed = [pid for pid in descendants() if pid not in known]
    if sys.platform != "linux" and child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
    while left := [pid for pid in descendants() if pid not in known]:  # a dying process may have started one more
        for pid in left:
            tell(pid, signal.SIGKILL)
        child.poll()
        reap({*known, child.pid})
        time.sleep(0.01)
    child.wait()
    return len(killed)


def tell(pid, what):
    try:
        os.kill(pid, what)
    except (ProcessLookupError, PermissionError):
        pass


def reap(known):
    """Takes the exit codes of orphans, which nobody else asks for."""
    for pid in children().get(os.getpid(), []):
        if pid not in known and is_dead(pid):
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass


def is_dead(pid):
    return state_and_parent(pid)[0] in ("Z", "X", None)


def state_and_parent(pid):
    """(state, parent) as /proc has them; (None, None) of a process that is gone."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
        return state, int(parent)
    except (OSError, ValueError):
        return None, None


def children():
    """{process: its children}, where /proc tells it."""
    found = {}
    for entry in os.listdir("/proc") if sys.platform == "linux" else ():
        if entry.isdigit():
            found.setdefault(state_and_parent(int(entry))[1], []).append(int(entry))
    return found


def descendants():
    """Living processes below this one."""
    below, found, left = children(), [], [os.getpid()]
    while left:
        left += (mine := below.get(left.pop(), []))
        found += mine
    return [pid for pid in found if not is_dead(pid)]


def adopts_orphans(is_on):
    """Whether orphans below this process become its children; returns what it was, None where there is no such thing."""
    if sys.platform != "linux":
        return None
    prctl, before = ctypes.CDLL(None).prctl, ctypes.c_int()
    if prctl(SUBREAPER + 1, ctypes.byref(before), 0, 0, 0) != 0:
        return None
    prctl(SUBREAPER, ctypes.c_ulong(bool(is_on)), 0, 0, 0)
    return bool(before.value)
