"""The tree in which submissions are built: the project with a submission's bodies. It is kept, so that the next
submission builds only what differs."""
import hashlib
import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import exercises
import setup
import starters
from compiler import errors_at
from holes import with_include
from sandbox import Limits, Sandbox, memory
from setup import fail, root
from submission import NOT_DONE

NEEDED = ("chapters", "emu", "CMakeLists.txt", "CMakePresets.json")
# Of the course, submissions need the programs only: neither the hidden tests nor the grader.
LEFT_OUT = re.compile(r"chapters/course/(?!programs/|\d\d_)|.*/__pycache__/|"
                      r".*(\.md|skeleton\.hpp)$")
COMPILE = Limits(seconds=3600, cpu=600, memory=8 << 30, output=8 << 20)
COMPILE_FIRST = replace(COMPILE, cpu=3600)  # the staff's programs: all of the project
A_COMPILER = 1 << 30  # bytes, at most


class NoRoom(Exception):
    """The kernel ended a compiler for lack of memory: no mistake of a student."""


KILLED = r"(?m)^\S+: (?:fatal error|internal compiler error): Killed"  # a compiler's words, and no line's of a student


def show(said, seconds):
    """Says how far a build is: on a terminal in a line that changes."""
    text = f"building {''.join(re.findall(r'^.([0-9]+/[0-9]+). ', said, re.M)[-1:])} {seconds:.0f} s"
    is_terminal = sys.stderr.isatty()
    print(f"\r\033[K{text}" if is_terminal else text, end="" if is_terminal else "\n", file=sys.stderr, flush=True)


class Tree:
    """In a folder that keeps it. What runs here is isolated by "namespaces" or by another "user"."""
    def __init__(self, folder, kind):
        self.folder, self.staff, self.build = folder / "tree", folder / "staff", folder / "tree/build"
        (folder / "scratch").mkdir(parents=True, exist_ok=True)
        self.sandbox = Sandbox(kind, folder / "scratch")

    def refresh(self, bodies=None, files=None):
        """Makes the sources those of the project, with `files`, {file: text}, instead of its own, and with `bodies`,
        {hole: text}. Writes only files that differ."""
        wanted = self.wanted(bodies or {}, files or {})
        for path in self.sources():
            if str(path.relative_to(self.folder)) not in wanted:
                path.unlink()
        for name, content in wanted.items():
            path = self.folder / name
            if not path.is_file() or path.read_bytes() != content:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                shutil.copymode(root / name, path) if (root / name).exists() else None

    def wanted(self, bodies, files):
        """{name: content} of the sources."""
        wanted = {f"chapters/{NOT_DONE}": (exercises.here / "starter/not_done.hpp").read_bytes()}
        with_holes = {f"chapters/{hole.file}" for e in exercises.read_all().values() for hole in e.holes}
        for name in names():
            content = (root / name).read_bytes()
            name = re.sub(starters.OWN_CHAPTER, r"chapters/\1/", name)
            if name in with_holes:  # the include is always there, so that the staff's body compiles nothing again
                text = files.get(name.removeprefix("chapters/"), content.decode())
                for hole, body in bodies.items():
                    if f"chapters/{hole.file}" == name:
                        text = hole.filled(text, body)
                content = (text if NOT_DONE in text else with_include(text, NOT_DONE)).encode()
            wanted[name] = content
        return wanted

    def sources(self):
        if self.folder.exists():
            yield from (path for top in NEEDED for path in [self.folder / top, *(self.folder / top).rglob("*")]
                        if path.is_file() and "__pycache__" not in path.parts)

    def configure(self):
        """Runs CMake, but not where it has run with these options."""
        if (self.build / "build.ninja").exists() and setup.why_anew(self.build, self.folder):
            shutil.rmtree(self.build)  # of a copied project, say
        self.build.mkdir(exist_ok=True)
        # In the sandbox no compiler's cache outlives its job.
        options = {"SHARDBOOK_TESTS": "OFF", "SHARDBOOK_CCACHE": "", "SHARDBOOK_ALONE": ";".join(compiled_alone())}
        if not (self.build / "build.ninja").exists() or not options.items() <= setup.cached(self.build).items():
            ended = self.in_sandbox(["cmake", "-G", "Ninja", "--preset", "release", "-S", self.folder,
                                     *(f"-D{name}={value}" for name, value in options.items())])
            if ended.code:
                shutil.rmtree(self.build)
                fail(69, f"could not configure what submissions are built in:\n{ended.output[-2000:]}")

    def make(self, programs, limits=COMPILE, targets=()):
        """Builds programs of the course, and other targets. Returns the compiler's messages if it fails, or nothing."""
        self.configure()
        targets = [*(f"course.{name}" for name in programs), *targets]
        most = max(1, min(len(os.sched_getaffinity(0)), memory() // A_COMPILER))
        for jobs in dict.fromkeys((most, 1)):
            ended = self.in_sandbox(["ninja", "-C", self.build, "-k", "0", "-j", jobs, *targets], limits,
                                    watched=show if limits is COMPILE_FIRST else None)
            if not re.search(KILLED, ended.output):
                return "" if ended.code == 0 else f"{ended.broke}\n{ended.output}"
        raise NoRoom(f"memory: expected {A_COMPILER >> 20} MiB for a compiler, given {memory() >> 20} MiB for all here: "
                     "the kernel ended one")

    def in_sandbox(self, command, limits=COMPILE, watched=None):
        return self.sandbox.run(["sh", "-c", 'cd "$0" && exec "$@"', self.folder, *command], sees=[self.folder],
                                writes=[self.build], limits=limits, watched=watched)

    def make_staff(self, programs):
        """The staff's own programs, in their own folder. Built if they are missing, or of other sources."""
        stamp, sources = self.staff / "stamp", hashlib.sha256(f"{self.folder}\n".encode())
        for name, content in sorted(self.wanted({}, {}).items()):
            sources.update(f"{name} {len(content)}\n".encode() + content)
        is_of_these = stamp.exists() and stamp.read_text() == sources.hexdigest()
        if is_of_these and all((self.staff / name).exists() for name in programs):
            return
        self.refresh()
        if said := self.make(programs, COMPILE_FIRST):
            fail(70, f"could not build the solutions:\n{said[-3000:]}")
        if not is_of_these:
            shutil.rmtree(self.staff, ignore_errors=True)
        self.staff.mkdir(exist_ok=True)
        for name in programs:
            shutil.copy2(self.program(name), self.staff / name)
        stamp.write_text(sources.hexdigest())

    def program(self, name):
        return self.build / "course" / name


def names():
    """Yields the project's own files that a build needs."""
    for top in NEEDED:
        for path in [root / top, *sorted((root / top).rglob("*"))]:
            name = str(path.relative_to(root))
            if path.is_file() and not path.is_symlink() and not LEFT_OUT.match(name):
                yield name


def compiled_alone():
    """The sources that a submission has the grader compile: an exercise's own file, and those beside its header. Each is
    compiled by itself, so that a small container has the memory and the time."""
    files = {hole.file for e in exercises.read_all().values() for hole in e.holes}
    yield from sorted({re.sub(starters.OWN_CHAPTER, r"chapters/\1/", str(path.relative_to(root))) for file in files
                       for path in exercises.source(file).parent.glob(Path(file).name if file.endswith(".cpp") else "*.cpp")})


def in_bodies(said, tree, bodies):
    """The compiler's messages about each body: {hole: [sentence]}. Other messages may quote a solution."""
    places = {}
    for hole in bodies:
        text = (tree.folder / "chapters" / hole.file).read_text()
        begin, end = (text[:at].count("\n") + 1 for at in hole.body(text))
        places |= {(hole.file, line): (hole, text.split("\n")[line - 1].strip()) for line in range(begin, end + 1)}
    found = {}
    for file, line, sentence in errors_at(said, lambda *place: place in places):
        hole, inside = places[file, line]
        found.setdefault(hole, []).append(f"{sentence} (at `{inside}`)")
    return found
