"""Calls of a program that solves problems."""
import tempfile
from contextlib import suppress
from pathlib import Path

from .folders import export_problem, failed, held
from .launch import children
from .problems.files import Refused
from .problems.kinds import vars_of
from .problems.listed import listed

REFUSES = (64, 69, 77)  # codes by which a program says that it cannot do this problem


def call(problem, devices, command, names, precision, seconds, logs):
    """Runs a program on a problem. Returns a Verdict, or the reason for which the program refused it. What a program says
    that fails is kept in the folder `logs`."""
    with tempfile.TemporaryDirectory(prefix="equivalence-") as name:
        folder, out = Path(name), Path(name, "out")
        out.mkdir()
        export_problem(problem, folder, names)
        values = words_of(problem, devices, folder)
        words = [filled(word, values) for word in command]
        ended = ended_of(words, seconds, logs / f"{problem.name}-on-{devices}.txt")
        if ended.code in REFUSES:
            return ended.line
        if ended.code != 0:
            return failed(problem, devices, "the program", why(ended, seconds))
        return held(problem, devices, out, names, precision) or \
            failed(problem, devices, "the program", "expected results, given none")


def ended_of(words, seconds, log):
    """A call's end. Its log is kept only if it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        ended = children.call(words, seconds, log)
    except OSError as error:
        raise Refused(f"{words[0]}: {error.strerror}") from None
    if ended.code == 0:
        log.unlink()
        with suppress(OSError):
            log.parent.rmdir()  # if it is empty
    return ended


def why(ended, seconds):
    """Why a call gave no results."""
    if ended.code is not None:
        return f"ended with code {ended.code}: {ended.reason}"
    killed = f", {ended.survivors} processes killed" * bool(ended.survivors)
    return f"expected an end within {seconds:g} s, given none{killed}: {ended.reason}"


def words_of(problem, devices, folder):
    """The values of the words in braces, for a problem in a folder."""
    return {**vars_of(problem), "layers": problem.layers, "devices": devices,
            "step": problem.steps, "mesh": f"devices={devices}", "problem": folder / "problem.json",
            "params": folder / "params.safetensors", "batch": folder / "batch.safetensors",
            "out": folder / "out/results.safetensors", "out_dir": folder / "out"}


def known_words():
    """All words that a command may have in braces."""
    return {word for problem in listed() for word in words_of(problem, 1, Path())}


def filled(word, values):
    for name, value in values.items():
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        word = word.replace("{" + name + "}", text)
    return word
