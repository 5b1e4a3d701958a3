"""The commands that pages, --help and the heads of programs tell a reader to type."""
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# How a line begins that is typed, behind the values of variables.
COMMAND = re.compile(r"([A-Z_]+=\S+ )*(\.{1,2}/|(mpirun|git|cd|cmake|ctest|docker|sbatch|mkdir|awk|python3|pip|sudo|apt|"
                     r"apt-get|ssh|script|gdb|tests|gpu|build)[ /])\S")
SPAN = re.compile(r"`((?:\./chapters/run|mpirun) [^`]*)`")
SHOWN = re.compile(r"<!-- output of: (.*?)(?: \(code (\d+)\))? -->")
# What stands for something that a reader puts there.
PLACEHOLDER = re.compile(r"\.\.\.|…|\[|<\w|\b(NN|NAME|WORDS|ARGUMENTS|EXERCISE_ID|my_program)\b")


@dataclass(frozen=True)
class Command:
    """What is typed, and where that is said."""
    words: str
    place: str
    code: int = 0  # that is told there


def command_of(line, place, code=None):
    """The command of a line that is typed, or None. A comment may tell its exit code."""
    words, _, comment = re.sub(r"\s#\s", "\0", line.strip(), count=1).partition("\0")
    words = words.strip().removeprefix("$ ")
    told = re.search(r"\bcode (\d+)", comment)
    is_typed = COMMAND.match(words) and not PLACEHOLDER.search(words)
    return Command(words, place, int(code or (told[1] if told else 0))) if is_typed else None


def parts_of(text):
    """(number, kind, line) for each line of a page: a line of commands, of prose, or of a comment."""
    fence, comment, before = None, False, ""
    for number, line in enumerate(text.splitlines(), 1):
        comment = comment or line.startswith("<!--")
        if line.startswith("```"):
            is_output = before.endswith("-->")
            fence = None if fence else line.strip("` ") or ("output" if is_output else "sh")
        elif comment:
            yield number, "comment", line
        elif fence:
            yield number, "commands" if fence in ("sh", "bash", "console") else "other", line
        else:
            yield number, "commands" if line.startswith("    ") else "prose", line
        comment = comment and "-->" not in line
        before = line.strip() or before


def of_page(path):
    """The commands of a page, each once, in their order: those of blocks, those that prose names whole, and those
    whose output it shows."""
    commands, name, goes_on, prose = {}, path.relative_to(ROOT), "", []

    def add(command):
        if command and (command.code or command.words not in commands):
            commands[command.words] = command

    def add_prose():
        text = " ".join(line.strip() for _, line in prose)
        for span in SPAN.finditer(text):
            told = re.match(r"[^`]*\bends? (?:in|with) (?:exit )?code (\d+)", text[span.end():])
            add(command_of(span[1], f"{name}:{prose[0][0]}", told and told[1]))
        prose.clear()

    for number, kind, line in parts_of(path.read_text("utf-8")):
        if kind != "prose" or not line.strip():
            add_prose()
        if kind == "commands":
            goes_on += line.strip()
            if goes_on.endswith("\\"):
                goes_on = goes_on[:-1].rstrip() + " "
                continue
            add(command_of(goes_on, f"{name}:{number}"))
            goes_on = ""
        elif kind == "comment" and (shown := SHOWN.match(line)):
            add(command_of(shown[1], f"{name}:{number}", shown[2]))
        elif kind == "prose" and line.strip():
            prose.append((number, line))
    add_prose()
    return list(commands.values())


def of_heads():
    """Those in the comments at the top of programs: `///     mpirun ...`."""
    for path in sorted(ROOT.glob("chapters/*/*.cpp")):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if not line.startswith("///"):
                break
            if command := line.startswith("///     ") and command_of(line[3:], f"{path.relative_to(ROOT)}:{number}"):
                yield command


def of_help(text, place):
    """The examples of a text of --help: lines that are typed as they stand."""
    for line in text:
        words = re.sub(r"\s{2,}\S.*", "", line.strip())
        command = command_of(words.rpartition(": ")[2] if ": ./" in words or ": mpirun" in words else words, place)
        if command and not re.search(r"\b[A-Z]{2,}\b", command.words):
            yield command
