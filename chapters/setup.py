"""What the scripts share: the packages this project needs, its build, its chapters, and how devices are started."""

import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

root = Path(__file__).resolve().parent.parent
packages = ("g++ cmake ninja-build openmpi-bin libopenmpi-dev libopenblas-dev libxtensor-dev libcli11-dev "
            "nlohmann-json3-dev libfmt-dev").split()


def say(text):
    print(text, file=sys.stderr, flush=True)


def fail(code, message):
    sys.stdout.flush()
    say(f"error: {message}")
    sys.exit(code)


def take_options(words, expected):
    """Splits words into the values of these options, {name: value}, and the rest."""
    values, rest, words = {}, [], iter(words)
    for word in words:
        if word not in expected:
            rest.append(word)
        elif (value := next(words, None)) is not None:
            values[word] = value
        else:
            fail(64, f"{word}: expected {expected[word]}, given nothing")
    return values, rest


# ---- Processes -------------------------------------------------------------------------------------------


def main(script):
    """Runs a script's function. Ctrl-C, TERM and HUP end it and all it has started, with code 128 + signal."""
    def stop(number, _):
        for other in signals:
            signal.signal(other, signal.SIG_IGN)
        sys.exit(128 + number)
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in signals:
        signal.signal(number, stop)
    try:
        sys.exit(script(sys.argv[1:]))
    except OSError as error:
        fail(65, f"{error.filename or 'standard output'}: {error.strerror}")


def run(command, seconds=None, each_time=None, **options):
    """The exit code of a command; with `seconds`, calls `each_time` that often until it ends."""
    child = subprocess.Popen([str(word) for word in command], **options)
    try:
        while True:
            try:
                return child.wait(seconds)
            except subprocess.TimeoutExpired:
                each_time()
    finally:
        end_tree(child)


def end_tree(child):
    """Ends a process and all that it has started, if it still runs: first kindly, after 5 s at once."""
    tree = descendants(child.pid) if child.poll() is None else []
    for wait, number in ((0.3, signal.SIGTERM), (5, signal.SIGKILL)):  # Ctrl-C has reached the child, too
        deadline = time.monotonic() + wait
        while any(map(is_alive, tree)) and time.monotonic() < deadline:
            child.poll()
            time.sleep(0.01)
        for pid in filter(is_alive, tree[:1] if number == signal.SIGTERM else tree):
            os.kill(pid, number)
    child.wait()


def descendants(pid):
    lists = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [pid] + [found for child in sum(lists, []) for found in descendants(int(child))]


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def on_devices(devices, command, flags=()):
    """The exit code of a program that runs as so many devices; see chapters/on_devices."""
    launcher = os.environ.get("MPIRUN", "mpirun")
    for word, advice in ((str(command[0]), "build it first (./chapters/run does)"), (launcher, "install Open MPI")):
        if not shutil.which(word):
            fail(64, f"{word}: expected a program, given none; {advice}")
    version = subprocess.run([launcher, "--version"], capture_output=True, text=True).stdout
    if re.match(r".*\(Open(MPI| MPI|RTE)\) [1-4]\.", version):
        several = ["--oversubscribe", "--quiet"]  # quiet: a program's error is one line
    else:
        several = ["--map-by", ":oversubscribe"]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # one device is one core's worth
    if os.geteuid() == 0:
        environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    if may_not_trace():
        environment.update(OMPI_MCA_btl_vader_single_copy_mechanism="none",
                           OMPI_MCA_btl_sm_single_copy_mechanism="none")
    code = run([launcher, "-n", devices, "--bind-to", os.environ.get("BIND_TO", "none"), *several, *flags,
                *shlex.split(os.environ.get("MPIRUN_FLAGS", "")), *command], env=environment)
    code = 128 - code if code < 0 else code
    if code > 128 and code != 130:
        say(f"error: a device was lost: killed by signal {code - 128}")
        return 83
    return code


def may_not_trace():
    """Whether a container (a system call filter, and no right to trace) forbids that processes read each other's
    memory. Open MPI would warn on every message, so it is told to copy through shared memory instead."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return status.get("Seccomp", "0").strip() == "2" and not int(status.get("CapEff", "0"), 16) >> 19 & 1


# ---- Packages --------------------------------------------------------------------------------------------


def install_packages(more=()):
    """Installs what is missing of `packages`, naming it first."""
    wanted = [*packages, *more]
    if not shutil.which("apt-get") or not shutil.which("dpkg-query"):
        tools = [tool for tool in ("cmake", "ninja", "mpirun", "c++") if not shutil.which(tool)]
        if tools:
            fail(69, f"missing: {' '.join(tools)} (Debian's names of all that is needed: {' '.join(wanted)})")
        return  # CMake names libraries that are missing
    query = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\\n", *wanted]
    known = subprocess.run(query, capture_output=True, text=True).stdout.splitlines()
    missing = " ".join(name for name in wanted if f"{name} installed" not in known)
    if not missing:
        return
    if os.environ.get("NO_INSTALL"):
        fail(69, f"missing packages, and NO_INSTALL is set: {missing}")
    may_ask = shutil.which("sudo") and sys.stdin.isatty() and sys.stderr.isatty()
    if os.geteuid() != 0 and not may_ask:
        fail(69, f"missing packages, and no right to install them: {missing}")
    if os.geteuid() != 0 and input(f"sudo apt-get install {missing}\nMay it run? [y/N] ").lower() not in ("y", "yes"):
        fail(69, f"missing packages: {missing}")
    say(f"installing {missing}")
    as_root = [] if os.geteuid() == 0 else ["sudo"]
    apt = [*as_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y", "--no-install-recommends"]
    if run([*apt, "update"], stdout=sys.stderr) or run([*apt, "install", *missing.split()], stdout=sys.stderr):
        fail(69, f"could not install {missing}")


# ---- Chapters, and the build -----------------------------------------------------------------------------


def chapters():
    return sorted(path.parent.name for path in root.glob("chapters/*/main.cpp"))


def without_number(folder):
    return re.sub(r"^\d\d_", "", folder)


def find_chapter(name):
    """The folder of a chapter that is given by its number, its folder or its folder without the number; or None."""
    found = [folder for folder in chapters() if name in (folder, without_number(folder), *re.findall(r"^\d\d", folder))]
    if len(found) > 1 and name not in found:
        fail(64, f"expected one chapter, given {name}: {' '.join(found)}")
    return name if name in found else found[0] if found else None


def build(preset, targets, options=None, folder="build"):
    """Builds targets, configuring where options ask for it, and says how far it is."""
    folder = root / folder
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another run, which builds in {folder.name}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        configure(preset, folder, options or {})
        run_ninja(folder, targets)


def configure(preset, folder, options):
    """Runs CMake, but not where it has run with these options: ninja repeats it when a file asks for it."""
    def has_gpus():
        return "chapters_cuda" in (folder / "build.ninja").read_text()
    cache = folder / "CMakeCache.txt"
    known = dict(re.findall(r"^(\w+):\w+=(.*)$", cache.read_text() if cache.exists() else "", re.M))
    is_new = not (folder / "build.ninja").exists()
    if is_new:
        say(f"building in {folder.name}, a minute or two the first time")
    if is_new or any(known.get(name) != value for name, value in options.items()) or \
            (preset == "cuda" and not has_gpus()):
        with open(folder / "configure.log", "w") as log:
            words = [f"-D{name}={value}" for name, value in options.items()]
            code = run(["cmake", "--preset", preset, "-G", "Ninja", *words], cwd=root, stdout=log, stderr=log)
        if code != 0:
            say("\n".join((folder / "configure.log").read_text().splitlines()[-30:]))
            fail(69, f"could not configure: see {folder / 'configure.log'}")
    if preset == "cuda" and not has_gpus():
        fail(69, "cuda: expected the CUDA Toolkit, 12 or later, and NCCL, given none that CMake finds")


def run_ninja(folder, targets):
    log = folder / "build.log"
    start = shown = time.monotonic()
    is_terminal = sys.stderr.isatty()

    def show():
        nonlocal shown
        now = time.monotonic()
        done = re.findall(r"^\[\d+/\d+\]", log.read_text(errors="replace"), re.M)
        if is_terminal or now > shown + 5:
            shown = now
            text = f"building {' '.join(targets)} {done[-1] if done else ''} {now - start:.0f} s"
            print(f"\r\033[K{text}" if is_terminal else f"{text}\n", end="", file=sys.stderr, flush=True)

    with open(log, "w") as out:
        jobs = ["-j", os.environ["CMAKE_BUILD_PARALLEL_LEVEL"]] if "CMAKE_BUILD_PARALLEL_LEVEL" in os.environ else []
        code = run(["ninja", "-C", folder, *jobs, *targets], 0.5, show, stdout=out, stderr=out,
                   env={**os.environ, "NINJA_STATUS": "[%f/%t] "})
    if is_terminal:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    if code != 0:
        text = log.read_text(errors="replace")
        first = re.search(r"^FAILED: .*\n.*\n((?:(?!\[\d+/\d+\] |ninja: ).*\n)+)", text, re.M)
        say(first[1].rstrip() if first else text[-2000:])
        fail(70, f"could not build: see {log}")
