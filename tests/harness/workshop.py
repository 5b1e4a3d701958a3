"""Compiles changed sources, and links them with the objects of a build: all that is planted in sources is built here.

ninja lists the build's commands, and the objects that depend on a file. Only optimization is left out."""
import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
READ_IN_ADVANCE = ["engine/engines/sharded_engine.hpp", "engine/program/registry.hpp",
                   "engine/workloads/mlp/layers.hpp"]
NOTHING = "$^"  # matches no name


def replaced(file, text, instead):
    """The contents of the file with `instead` in the place of `text`, which must occur exactly once."""
    contents = (ROOT / file).read_text()
    if contents.count(text) != 1:
        raise SystemExit(f"expected once in {file}, found {contents.count(text)} times: {text}")
    return contents.replace(text, instead)


class Workshop:
    """A build folder, and a folder for what is built from its objects and changed files."""

    def __init__(self, build, folder):
        self.build, self.folder = Path(build).resolve(), Path(folder)
        self.steps = {step["output"]: step for step in json.loads(self.ninja("compdb"))}
        self.users = self.users_of_files()
        self.in_advance = self.read_in_advance()

    def made(self, file, contents):
        """The programs with other contents of a file."""
        return Made(self, file, contents, Path(tempfile.mkdtemp(dir=self.folder)))

    def with_mistake(self, mistake):
        return self.made(mistake.file, replaced(mistake.file, mistake.text, mistake.instead))

    def ninja(self, tool):
        return subprocess.run(["ninja", "-C", self.build, "-t", tool], check=True, capture_output=True,
                              text=True).stdout

    def users_of_files(self):
        """{file of the project: the objects that include it, also through a precompiled header}."""
        files, users = {}, {}
        for line in self.ninja("deps").splitlines():
            if line.startswith("    "):
                files[target].append(os.path.normpath(self.build / line.strip()))
            elif target := line.split(": #deps")[0]:
                files[target] = []
        for target, step in self.steps.items():
            in_advance = re.search(rf"-include {self.build}/(\S+)", step["command"])
            for path in files.get(target, []) + (files.get(f"{in_advance[1]}.gch", []) if in_advance else []):
                if path.startswith(f"{ROOT}/"):
                    users.setdefault(os.path.relpath(path, ROOT), set()).add(target)
        return users

    def compiler_of(self, target, pattern="-[DIWfs]|-iquote"):
        """The compiler with the options of this object that match the pattern, with -O0 and without -Werror."""
        words = shlex.split(self.steps[target]["command"])
        compiler = next(word for word in words if re.search(r"(\+\+|clang.*)$", word))
        options = []
        for before, word in zip(words, words[1:]):
            if before == "-isystem":
                options += [before, word]
            elif re.match(pattern, word) and word not in ("-Werror", "-isystem"):
                options.append(word)
        return [compiler, *options, "-O0"]

    def read_in_advance(self):
        """The option for a precompiled header of the engine, which all chapters share."""
        header = self.folder / "engine.hpp"
        header.write_text("".join(f'#include "{name}"\n' for name in READ_IN_ADVANCE))
        target = next(t for t in self.steps if re.match(r"CMakeFiles/02_data_parallel\.objects\.dir/.*\.o$", t))
        made = subprocess.run([*self.compiler_of(target), "-x", "c++-header", header, "-o",
                               f"{header}.gch"], capture_output=True)
        return ["-include", header] if made.returncode == 0 else []

    def link_words(self, program, without):
        """The link command of a program, without the objects whose names match."""
        words = shlex.split(self.steps[program]["command"].split(" && ")[1])
        return [word for word in words if not all(re.search(without, name) for name in self.names_of(word))]

    def names_of(self, target):
        """An object's name; of tests that are compiled together, those that each would have."""
        if not re.match("tests/.*/Unity/", target):
            return [target]
        return [f"{path}.o" for path in re.findall('#include "(.*)"', Path(self.steps[target]["file"]).read_text())]

    def objects(self, program, without, file):
        """The objects of a program that depend on a file."""
        return [word for word in self.link_words(program, without) if word in self.users.get(str(file), ())]

    def source(self, target, made, folder):
        """The changed source of an object. A source that includes the sources of a folder is rewritten."""
        source = self.build / self.steps[target]["file"]
        if not source.is_relative_to(self.build):
            return made.source(source)
        changed = folder / source.name
        changed.write_text(re.sub(r'(?<=#include ")/.*(?=")', lambda path: str(made.source(path[0])),
                                  source.read_text()))
        return changed

    def compile(self, target, made, to):
        """Compiles the changed source of an object. Returns the compiler's messages."""
        is_of_chapter = re.match(r"chapters/(?!engine)", str(made.file))
        compiler, *options = self.compiler_of(target)
        command = [compiler, "-iquote", made.tree / "chapters", "-iquote", made.tree, *options,
                   *(self.in_advance if is_of_chapter else []),
                   "-c", self.source(target, made, to.parent), "-o", to]
        return subprocess.run(command, cwd=self.build, env={**os.environ, "LC_ALL": "C"},
                              capture_output=True, text=True)

    def link(self, program, without, objects, to):
        """Links a program with these objects instead of the build's."""
        words = [str(objects.get(word, word)) for word in self.link_words(program, without)]
        words[words.index("-o") + 1] = str(to)
        subprocess.run(words, cwd=self.build, check=True)


@contextlib.contextmanager
def opened(build):
    """A workshop in a folder that is deleted behind it."""
    with tempfile.TemporaryDirectory() as folder:
        yield Workshop(build, folder)


def each(call, mistakes):
    """What the call returns of each, as many at a time as there are cores."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(call, mistakes))


class Made:
    """The programs with one changed file, in a tree that also has unchanged copies of the other files of its folder. Each
    object is compiled once. Objects whose names match `without` are left out of a program."""

    def __init__(self, workshop, file, contents, folder):
        self.workshop, self.folder, self.file, self.tree = workshop, folder, Path(file), folder / "tree"
        self.objects, self.programs = {}, {}
        (self.tree / file).parent.mkdir(parents=True)
        for other in (ROOT / file).parent.glob("*.[ch]pp"):
            shutil.copy(other, (self.tree / file).parent)
        (self.tree / file).write_text(contents)

    def source(self, path):
        """The path of a source in the tree, if it is in the changed file's folder; else its own path."""
        here = self.tree / Path(path).relative_to(ROOT)
        return here if here.is_file() else path

    def compile(self, program, without=NOTHING):
        """Compiles the objects of this program. Returns the compiler's message about an error."""
        for target in self.workshop.objects(program, without, self.file):
            if target in self.objects:
                continue
            to = self.folder / f"{len(self.objects)}.o"
            compiled = self.workshop.compile(target, self, to)
            if compiled.returncode != 0:
                return compiled.stderr
            self.objects[target] = to
        return ""

    def program(self, name, without=NOTHING):
        if (name, without) not in self.programs:
            if not self.workshop.objects(name, without, self.file):
                raise SystemExit(f"{self.file}: no part of {name}")
            to = self.folder / str(len(self.programs)) / name
            to.parent.mkdir(parents=True)
            self.workshop.link(name, without, self.objects, to)
            self.programs[name, without] = to
        return self.programs[name, without]
