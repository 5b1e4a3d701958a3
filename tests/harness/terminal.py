"""Runs a command on a terminal, as a person does, and returns what is then to be seen there."""
import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time


def run(command, columns, seconds=120, interrupted=None, typed=b"", **options):
    """The exit code of a command (None: not in time), and the lines that it leaves on a terminal of its own that has
    this many columns. `typed` is typed at once, and Ctrl-C after so many seconds, if there is a number. Other options
    go to Popen."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    process = subprocess.Popen([str(word) for word in command], stdin=its, stdout=its, stderr=its,
                               start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY), **options)
    os.close(its)
    os.write(ours, typed)
    text, start = b"", time.monotonic()
    deadline = start + seconds
    with contextlib.suppress(OSError):  # what a terminal ends in when nobody has it open any more
        while time.monotonic() < deadline:
            if interrupted is not None and time.monotonic() > start + interrupted:
                os.write(ours, b"\x03")
                interrupted = None
            if select.select([ours], [], [], 0.1)[0]:
                text += os.read(ours, 1 << 16)
            elif process.poll() is not None:
                break
    code = process.poll() if time.monotonic() >= deadline else process.wait()
    if code is None:
        process.terminate()
        process.wait()
    os.close(ours)
    return code if code is None or code >= 0 else 128 - code, lines_of(text.decode(errors="backslashreplace"))


def lines_of(text):
    """The lines that stay of what was written to a terminal: some are written again from their beginning."""
    lines = []
    for line in text.split("\n"):
        shown = ""
        for piece in line.split("\r"):
            piece = re.sub(r"\x1b\[[\d;]*m", "", piece)
            before, erased, piece = piece.rpartition("\x1b[K")
            shown = before + piece if erased else piece + shown[len(piece):]
        lines.append(shown.rstrip())
    return lines
