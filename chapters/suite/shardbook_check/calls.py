"""Calls of a program that solves problems."""
import subprocess
import tempfile
from pathlib import Path

from .folders import export_problem, failed, held
from .problems.files import Refused
from .problems.kinds import vars_of
from .problems.listed import listed

REFUSES = (64, 69, 77)  # codes by which a program says that it cannot do this problem


def call(problem, devices, command, names, precision, seconds):
    """Runs a program on a problem. Returns a Verdict, or the reason for which the program refused it."""
    with tempfile.TemporaryDirectory(prefix="equivalence-") as name:
        folder, out = Path(name), Path(name, "out")
        out.mkdir()
        export_problem(problem, folder, names)
        values = words_of(problem, devices, folder)
        words = [filled(word, values) for word in command]
        try:
            ended = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False,
                                   stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return failed(problem, devices, "the program", f"expected an end within {seconds} s, given none")
        except OSError as error:
            raise Refused(f"{words[0]}: {error.strerror}") from None
        lines = ended.stderr.strip().splitlines() or ended.stdout.strip().splitlines() or ["it said nothing"]
        said = next((line for line in lines if line.startswith("error: ")), lines[-1])
        if ended.returncode in REFUSES:
            return said
        if ended.returncode != 0:
            return failed(problem, devices, "the program", f"ended with code {ended.returncode}: {said}")
        return held(problem, devices, out, names, precision) or \
            failed(problem, devices, "the program", "expected results, given none")


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
        word = word.replace("{" + name + "}", str(value))
    return word
