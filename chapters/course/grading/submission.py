"""Takes from a submission the bodies of its exercises' functions, and additions to their files, such as a function of
its own."""
import functools
import re
from dataclasses import dataclass, field

from holes import HIDDEN, Misplaced, additions, outside, require_braces
from exercises import CHAPTERS, read_all, source

NOT_DONE = "engine/not_done.hpp"  # included by a starter's files
MOST_BYTES = 1 << 20  # of a file
GOES_ON = r"\\\n"
# What no exercise needs: ways around the compiler's view of a body, or out of the program. The sandbox holds without
# this list. The list gives a student a clear message, and spares an instructor from reading.
REFUSED = [
    (r"#", "the preprocessor"), (r"<%|%>|<:|:>|%:|\?\?.", "digraphs"),
    (GOES_ON, "a line that goes on in the next"),
    (r'\bu?8?[LU]?R"', "raw strings"), (r"\b(asm|__\w+|_[A-Z]\w*)\b", "what belongs to the compiler"),
    (r"\b(reinterpret_cast|const_cast|extern|friend|goto)\b", "it"),
    (r"\b(system|popen|fork|vfork|exec[lv]p?e?|kill|raise|abort|_?exit|quick_exit|at_quick_exit|atexit|signal|"
     r"ptrace|syscall|dlopen|dlsym|mmap|shm_open|socket|connect|open|fopen|freopen|creat|remove|unlink|rename|"
     r"getenv|setenv|putenv|u?sleep|nanosleep|sleep_for|async|longjmp|terminate)\s*\(|"
     r"\b(j?thread|[io]?fstream|filesystem|MPI_\w+)\b", "it: an exercise needs no system"),
    (r"\b(ledger|Ledger|open_checkpoint|parse_json_object|read_json_object|HostCheckpoint)\b",
     "it: the books, and files, are the grader's"),
]


@dataclass
class Answer:
    """A submission's answer to an exercise."""
    exercise: object
    bodies: dict = field(default_factory=dict)  # {hole: text}; empty if `refused` has the reason
    files: dict = field(default_factory=dict)   # {file: text with the solutions and the submission's additions}
    is_done: bool = True
    refused: str = ""


def answer_to(exercise, folder):
    """A submission's answer to an exercise."""
    answer = Answer(exercise)
    for hole in exercise.holes:
        try:
            text = text_of(folder, hole.file)
            begin, end = hole.body(text)
            body = text[begin:end]
            require_own_braces(hole, body)
        except (Misplaced, OSError) as error:
            return Answer(exercise, refused=str(error))
        if re.search(r"\b(not_done|left_out)\s*\(", visible(body)):
            answer.is_done = False
        if refused := refusal(hole, text, begin, body):
            return Answer(exercise, refused=refused)
        answer.bodies[hole] = body
        if not hole.is_file and (whole := with_solutions(hole, text)):
            answer.files[hole.file] = whole
    return answer


def repository_in(folder):
    """The starter repository in a folder, or in folders inside it. \\throws Misplaced where there is none, or more
    than one"""
    level = [folder]
    for _ in range(4):
        found = [path for path in level if (path / "chapters").is_dir() and not path.is_symlink()]
        if len(found) > 1:
            given = " and ".join(str(path.relative_to(folder)) for path in found)
            raise Misplaced(f"expected one folder with chapters/ in it, given {given}")
        if found:
            return found[0]
        level = sorted(inner for path in level for inner in path.iterdir()
                       if inner.is_dir() and not inner.is_symlink() and inner.name != "__MACOSX")
    given = ", ".join(sorted(path.name for path in folder.iterdir())[:10]) or "nothing"
    raise Misplaced(f"expected your repository, with the folder chapters/ in it, given {given}")


@functools.cache
def functions_of(file):
    """All functions of a file that may be cut in a starter."""
    return list(dict.fromkeys(h for e in read_all().values() for h in e.holes + e.also if h.file == file))


def with_solutions(hole, text):
    """A submission's file with the solutions in it, if it has all lines of the project's file, and more lines, all
    permitted. Otherwise nothing. The additions, a function or an include, then belong to the answer."""
    own, functions = source(hole.file).read_text(), functions_of(hole.file)
    text = text.replace(f'#include "{NOT_DONE}"\n', "")
    try:
        for function in functions:
            text = function.filled(text, function.body_in(own))
        require_braces(text, hole.file)
        added = additions(outside(text, functions), list(outside(own, functions).values()))
    except Misplaced:
        return None
    lines = text.split("\n")
    more = "\n".join(line if number in (added or ()) else "" for number, line in enumerate(lines, 1))
    return text if added and not refusal(hole, more, 0, more, True) else None


def require_own_braces(hole, body):
    """Checks the braces of a body. With one too few, the body would contain the next function."""
    text = source(hole.file).read_text()
    behind = text[hole.body(text)[1] + 1:].strip().split("\n")[0].strip()
    if not hole.is_file and behind in map(str.strip, body.split("\n")):
        raise Misplaced(f"chapters/{hole.file}: expected a closing brace of \"{hole.signature}\", given none before "
                        "the next function")


def text_of(folder, file):
    """A file of a submission: no link, and inside it. Bytes other than UTF-8 are legal in comments."""
    path = (folder / "chapters" / file)
    if not path.resolve().is_relative_to(folder.resolve()) or path.is_symlink() or not path.is_file():
        raise Misplaced(f"chapters/{file}: expected a file, given none")
    if path.stat().st_size > MOST_BYTES:
        raise Misplaced(f"chapters/{file}: expected at most 1 MiB, given {path.stat().st_size >> 20} MiB")
    return path.read_bytes().decode(errors="replace").replace("\r\n", "\n")


def visible(body):
    """The text without comments and the contents of strings."""
    return HIDDEN.sub(lambda found: found[0] if found[0][0] not in "/\"'" else
                      re.sub(r"[^\n]", " ", found[0]), body)


def refusal(hole, text, begin, body, may_include=False):
    """What an exercise must not use, and where; or nothing."""
    if hole.is_file or may_include:  # it may include the engine's headers
        body = re.sub(r'^#(pragma once|include ("engine/[\w./]+"|<[\w.]+>))[ \t]*(//.*)?$',
                      lambda found: " " * len(found[0]), body, flags=re.M)
    plain = visible(body)
    for pattern, what in [*REFUSED, (other_engines(hole), "it: write the step yourself")]:
        for searched in (body, plain) if pattern == GOES_ON else (plain,):
            if found := next((u for u in re.finditer(pattern, searched) if not is_of_lambda(u, plain)), None):
                line = text[:begin + found.start()].count("\n") + 1
                return f"chapters/{hole.file}:{line}: `{found[0].strip(' (')}`: an exercise must not use {what}"
    return ""


def is_of_lambda(use, text):
    """Whether a word calls a lambda that a line before has given this name. Behind `::` it is the system's."""
    declared = re.search(rf"\bauto\s+{re.escape(use[0].strip(' ('))}\s*=\s*\[", text)
    return declared and declared.end() <= use.start() and not text[:use.start()].rstrip().endswith("::")


def other_engines(hole):
    """The engines of all chapters, except for the hole's own file, and those that it includes."""
    mine = source(hole.file).read_text()
    folder = source(hole.file).parent
    for name in re.findall(r'#include "([^"]+)"', mine):
        for path in (folder / name, CHAPTERS / name):
            mine += path.read_text() if path.is_file() else ""
    names = set()
    for path in CHAPTERS.glob("[0-9]*/*.hpp"):
        names |= set(re.findall(r"^class (\w+)[^;{]*: public [^{]*(?:Engine|Layer)\b", path.read_text(), re.M))
    mine_too = set(re.findall(r"\bclass (\w+)", mine))
    return r"\b(" + "|".join(sorted(names - mine_too) or ["no_engine_at_all"]) + r")\b"
