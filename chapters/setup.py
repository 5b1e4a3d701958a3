"""What the scripts share: processes, the packages this project needs, its chapters and its build."""
import signal, sys
if sys.version_info < (3, 11):
    print(f"error: Python: expected 3.11 or newer, given {sys.version.split()[0]}, {sys.executable}", file=sys.stderr)
    sys.exit(69)
signal.signal(signal.SIGINT, signal.SIG_DFL)  # until `main` begins: Ctrl-C ends a script without a traceback
import contextlib, fcntl, os, re, resource, shutil, subprocess, textwrap, threading, time
from pathlib import Path
import compiler

root = Path(__file__).resolve().parent.parent
packages = ("g++ cmake ninja-build openmpi-bin libopenmpi-dev libopenblas-dev libxtensor-dev libcli11-dev "
            "nlohmann-json3-dev libfmt-dev libxxhash-dev").split()
recommended = ["libdnnl-dev"]  # with it products are faster, and without it all is there: see emu/products/README.md

def say(text):
    """Says it on standard error. What a terminal would obey or turn around (ESC, say) is escaped."""
    text = "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
    is_behind_progress = sys.stdout.isatty() and sys.stderr.isatty()  # a line without an end, which is erased
    if sys.stderr.isatty():
        text = "\n".join(map(for_terminal, text.split("\n")))
    with contextlib.suppress(OSError):  # nobody reads it
        print("\r\033[K" * is_behind_progress + text, file=sys.stderr, flush=True)

def for_terminal(line):
    """A line in several where it is longer than the terminal's; no word is divided."""
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.fill(line, shutil.get_terminal_size().columns, subsequent_indent=indent + "  ",
                         break_long_words=False, break_on_hyphens=False, replace_whitespace=False) or line

def fail(code, message):
    say(f"error: {message}")
    sys.exit(code)

def take_options(words, expected):
    """Splits words into the values of these options, {name: value}, and the rest."""
    values, rest, words = {}, [], iter(words)
    for word in words:
        # A number may stand right behind a letter: -n4.
        option, number = (word[:2], word[2:]) if word[:2] in expected and word[2:].isdecimal() else (word, None)
        if option not in expected:
            rest.append(word)
        elif (value := number or next(words, None)) is not None:
            values[option] = value
        else:
            fail(64, f"{word}: expected {expected[word]}, given nothing")
    return values, rest

# The descriptor of a script's standard input. What the script starts finds none in its own, but for what reads it:
# else a loop over lines, which calls the script for each, would lose the lines that follow.
standard_input = 0

def player():
    """What makes pages of records."""
    for folder in ("chapters/player", "chapters/engine/record"):
        if str(root / folder) not in sys.path:
            sys.path.insert(0, str(root / folder))
    sys.dont_write_bytecode = True
    import command
    return command

# ---- Processes -------------------------------------------------------------------------------------------
def main(script, help=""):
    """Runs a script's function, or prints the help that is asked for. Ctrl-C, Ctrl-\\, TERM, HUP and USR1 end
    it with all it has started: code 128 + signal."""
    def stop(number, _):
        for other in signals:
            signal.signal(other, signal.SIG_IGN)
        sys.exit(128 + number)
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
    for number in signals:
        signal.signal(number, stop)
    for descriptor in range(3):  # one that is closed is open from here on: else a pipe would take its number
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))
    global standard_input
    standard_input = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        sys.exit(print(help.strip()) if help and {"-h", "--help"} & set(sys.argv) else script(sys.argv[1:]))
    except BrokenPipeError:  # the reader of standard output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(128 + signal.SIGPIPE)
    except (OSError, RuntimeError) as error:
        if isinstance(error, BlockingIOError) or "start new thread" in str(error):
            fail(69, "processes: expected room for another one, given a limit that is reached (ulimit -u, or the "
                     "container's)")
        if isinstance(error, RuntimeError):
            raise
        fail(65, f"{error.filename or 'standard output'}: {error.strerror}")

def run(command, seconds=None, each_time=None, at_signal=None, **options):
    """The exit code of a command. With `seconds`, calls `each_time` that often with the process, until that
    ends, or until the call returns the code itself. Calls `at_signal` with it when this script is to end."""
    child = subprocess.Popen([str(word) for word in command], **options)
    waiting = threading.Thread(target=child.wait, daemon=True)  # it wakes at once; wait(seconds) would poll
    waiting.start()
    try:
        while waiting.is_alive():
            waiting.join(seconds)
            if waiting.is_alive() and (code := each_time(child)) is not None:
                return code
        return child.returncode
    except SystemExit:
        if at_signal:
            at_signal(child)
        raise
    finally:
        end_tree(child)

def end_tree(child):
    """Ends a process with all it has started. Ctrl-C has reached it too, so it has 1.5 s before it is told,
    and then 5."""
    tree = descendants(child.pid) if child.poll() is None else []
    for seconds, number, ends in ((1.5, signal.SIGTERM, tree[:1]), (5, signal.SIGKILL, tree), (1, None, [])):
        deadline = time.monotonic() + seconds
        while any(map(is_alive, tree)) and time.monotonic() < deadline:
            child.poll()
            time.sleep(0.01)
        for pid in filter(is_alive, ends):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
    child.wait()

def descendants(pid):
    lists = []
    with contextlib.suppress(OSError):  # a process may end while it is asked
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            lists.append(path.read_text().split())
    return [pid] + [found for child in sum(lists, []) for found in descendants(int(child))]

def state_of(pid):
    """The kernel's letter for the state of a process; that of one that has ended, too, if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"

def is_alive(pid):
    return state_of(pid) not in "ZX"

# Limits of this shell, with the unit and the least value that is usual.
limits = {"s": ("stacks", resource.RLIMIT_STACK, "bytes", 8 << 20), "v": ("address space", resource.RLIMIT_AS, "bytes", None),
          "t": ("processor time", resource.RLIMIT_CPU, "s", None), "f": ("file size", resource.RLIMIT_FSIZE, "bytes", None)}

def unusual_limits():
    """Those that a program may have failed at, which is ended without words then."""
    found = []
    for letter, (name, number, unit, usual) in limits.items():
        given, _ = resource.getrlimit(number)
        if given != resource.RLIM_INFINITY and (usual is None or given < usual):
            found.append(f"a limit of {name} of {given} {unit} (ulimit -{letter})")
    return found

# ---- Packages --------------------------------------------------------------------------------------------
def install_packages(more=(), with_mpi=True):
    """Installs what is missing of `packages`, naming it first."""
    wanted = [name for name in [*packages, *more] if with_mpi or "openmpi" not in name]
    if not shutil.which("apt-get") or not shutil.which("dpkg-query"):
        needed = ("cmake", "ninja", "c++", *(["mpirun"] if with_mpi else []))
        tools = [tool for tool in needed if not shutil.which(tool)]
        if tools:
            fail(69, f"missing: {' '.join(tools)} (Debian's names of what is needed: {' '.join(wanted)})")
        return  # CMake names libraries that are missing
    query = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\\n", *wanted, *recommended]
    known = subprocess.run(query, capture_output=True, text=True).stdout.splitlines()
    missing, better = (" ".join(name for name in names if f"{name} installed" not in known)
                       for names in (wanted, recommended))
    if not missing:
        return install_recommended(better)
    if os.environ.get("NO_INSTALL"):
        fail(69, f"missing packages, and NO_INSTALL is set: {missing}")
    as_root = ["sudo"] if os.geteuid() != 0 else []
    if as_root and not (shutil.which("sudo") and os.isatty(standard_input) and sys.stderr.isatty()):
        fail(69, f"missing packages, and no right to install them: sudo apt-get install {missing}")
    if as_root:
        print(f"sudo apt-get install {missing}\nMay it run? [y/N] ", end="", file=sys.stderr, flush=True)
        if os.read(standard_input, 100).decode(errors="replace").strip().lower() not in ("y", "yes"):
            fail(69, f"missing packages: {missing}")
    say(f"installing {missing}")
    apt = [*as_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y"]
    install = ["install", "--no-install-recommends", *missing.split()]
    if run([*apt, "update"], stdout=sys.stderr) or run([*apt, *install], stdout=sys.stderr):
        fail(69, f"could not install {missing}")
    install_recommended(better)

def install_recommended(missing):
    """Installs them before the first build, where nobody must be asked; goes on where that fails, as without a network."""
    if not missing or os.environ.get("NO_INSTALL") or os.geteuid() != 0 or (root / "build/CMakeCache.txt").exists():
        return
    say(f"installing {missing}")
    apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y", "-o", "Acquire::Retries=0",
           "-o", "Acquire::http::Timeout=5"]
    hidden = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if run([*apt, "update"], **hidden) or run([*apt, "install", "--no-install-recommends", *missing.split()], **hidden):
        say(f"could not install {missing}: products are slower without it")

def set_here(found):
    return f" (set here: {', '.join(found)})" if found else ""

# ---- Chapters, and the build -----------------------------------------------------------------------------
def chapters():
    return sorted(path.parent.name for path in root.glob("chapters/*/chapter.cpp"))

def without_number(folder):
    return re.sub(r"^\d\d_", "", folder)

def find_chapter(name):
    """The folder of the chapter called "3", "03", "03_tensor_parallel" or "tensor_parallel"; or None."""
    name = name.zfill(2) if re.fullmatch("[0-9]", name) else name
    found = [folder for folder in chapters()
             if name in (folder, without_number(folder), *re.findall(r"^\d\d", folder))]
    if len(found) > 1 and name not in found:
        fail(64, f"expected one chapter, given {name}: {' '.join(found)}")
    return name if name in found else found[0] if found else None

def build(preset, targets, options=None, folder="build", explain=lambda said: ""):
    """Builds targets, configuring where options ask for it, and says how far it is. `explain` puts what the
    compiler says into other words."""
    folder = root / folder
    try:
        folder.mkdir(exist_ok=True)
        lock = open(folder / "lock", "w")
    except OSError as error:
        return require_built(folder, targets, error.strerror)
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another run, which builds in {folder.name}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        configure(preset, folder, options or {})
        run_ninja(folder, targets, explain)

def require_built(folder, targets, reason):
    """That all targets are built already, of these sources: nothing can be written here."""
    if (folder / "build.ninja").exists() and not why_anew(folder):
        # By this name of its rules, ninja does not ask CMake to write them again.
        looks = ["ninja", "-C", folder, "-f", folder / "build.ninja", "-n", *targets]
        if "ninja: no work to do." in subprocess.run(looks, capture_output=True, text=True).stdout:
            return
    fail(69, f"{folder}: expected a folder that can be written, since what is asked for is not built yet "
             f"({' '.join(targets)}), given: {reason}")

def cached(folder):
    """What CMake has noted in a build folder, {name: value}."""
    cache = folder / "CMakeCache.txt"
    return dict(re.findall(r"^(\w+):\w+=(.*)$", cache.read_text(errors="replace"), re.M)) if cache.exists() else {}

def why_anew(folder, sources=root):
    """Why the rules in a build folder cannot be used; "" if they can. Those of a copied folder would build the
    sources that it was copied from. (One folder may have two paths.)"""
    noted = cached(folder)
    for name, here in (("CMAKE_HOME_DIRECTORY", sources), ("CMAKE_CACHEFILE_DIR", folder)):
        there = Path(noted.get(name, here))
        if not there.exists() or not there.samefile(here):
            return f"it was made in {there}"
    for name, tool in noted.items():
        if tool and re.fullmatch("CMAKE_(COMMAND|MAKE_PROGRAM|CXX_COMPILER|CXX_COMPILER_LAUNCHER)|SHARDBOOK_CBLAS|"
                                 "MPI_mpi_LIBRARY", name) and not Path(tool).exists() and not shutil.which(tool):
            return f"it was made with {tool}, which is gone"
    return ""

def forget(folder, reason):
    """Removes what CMake has made in a build folder. Returns the options that were chosen for it."""
    say(f"{folder.name} is made anew: {reason}")
    chosen = {name: value for name, value in cached(folder).items()
              if name.startswith("SHARDBOOK_") and value in ("ON", "OFF")
              or name == "CMAKE_CXX_COMPILER" and shutil.which(value)}
    for name in ("build.ninja", "CMakeCache.txt", ".ninja_log", ".ninja_deps"):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / "CMakeFiles", ignore_errors=True)
    return chosen

def configure(preset, folder, options):
    """Runs CMake, but not where it has run with these options: ninja repeats it when a file asks for it."""
    log, rules = folder / "configure.log", folder / "build.ninja"
    def lacks_gpus():
        return preset == "cuda" and "chapters_cuda" not in rules.read_text()
    if reason := why_anew(folder):
        options = {**forget(folder, reason), **options}
    known = {"SHARDBOOK_MPI": "ON"} | cached(folder)
    if not rules.exists():
        say(f"building in {folder.name}, some minutes the first time")
    if not rules.exists() or lacks_gpus() or not options.items() <= known.items():
        words = [f"-D{name}={value}" for name, value in options.items()]
        with open(log, "w") as out:
            code = run(["cmake", "--preset", preset, "-G", "Ninja", *words], cwd=root, stdout=out, stderr=out)
        if code != 0:
            say("\n".join(log.read_text().splitlines()[-30:]))
            fail(69, f"could not configure: see {log}")
    if lacks_gpus():
        fail(69, "cuda: expected the CUDA Toolkit, 12 or later, and NCCL, given none that CMake finds")

def run_ninja(folder, targets, explain):
    """Builds. On a terminal a line changes, else there is one every 5 s. Prints the first error in full."""
    log, start, is_terminal = folder / "build.log", time.monotonic(), sys.stderr.isatty()
    def show(_):
        done = re.findall(r"^\[\d+/\d+\]", log.read_text(errors="replace"), re.M)
        # what changes stands before the names, which may fill the line
        text = " ".join(["building", *done[-1:], f"{time.monotonic() - start:.0f} s:", *targets])
        text = text[:shutil.get_terminal_size().columns - 1] if is_terminal else text  # a line that wraps would stay
        print(f"\r\033[K{text}" if is_terminal else f"{text}\n", end="", file=sys.stderr, flush=True)
    os.environ["NINJA_STATUS"] = "[%f/%t] "
    with open(log, "w") as out:
        seconds = 0.5 if is_terminal else 5
        code = run(["ninja", "-C", folder, *targets], seconds, show, stdout=out, stderr=out)
    if is_terminal:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    text = log.read_text(errors="replace")
    if explained := explain(text):
        say(explained)
    if code != 0:
        first = re.search(r"^FAILED: .*\n.*\n((?:(?!\[\d+/\d+\] |ninja: ).*\n)+)", text, re.M)
        say(first[1].rstrip() if first else text[-2000:])
        ended = f": ninja was ended by {signal.Signals(-code).name}" if code < 0 else ""
        of_chapters = compiler.errors_at(text, lambda file, _: not file.startswith("engine/") and
                                         (root / "chapters" / file).is_file())
        for file, line, sentence in of_chapters[:1]:
            ended = f": chapters/{file}:{line}: {compiler.short(sentence)}"
        fail(70, f"could not build{ended}: see {log}{set_here(unusual_limits())}")
