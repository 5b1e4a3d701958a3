"""Runs a submission's programs without a network, with only some files, within limits. All their processes end with
them.

A kernel that lets users make namespaces isolates best, by Debian's bubblewrap. A container often forbids that;
there root can at least run programs as another user."""
import contextlib
import fcntl
import math
import os
import pwd
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from setup import fail, run

SHARED = ("/tmp", "/dev/shm", "/var/tmp")  # every user may write here
TICKS = os.sysconf("SC_CLK_TCK")  # of the kernel's clock in a second
INSIDE = "SHARDBOOK_GRADER_IS_INSIDE"  # set if this process is in namespaces of its own


@dataclass(frozen=True)
class Limits:
    seconds: float = 30     # of wall-clock time
    cpu: float = math.inf   # seconds of processor time, of all processes together
    memory: int = 6 << 30   # resident, of all processes together
    processes: int = 150
    output: int = 1 << 20   # bytes of standard output and error together
    file: int = 512 << 20   # of one file; all files share the scratch space


@dataclass
class Process:
    """The kernel's data about a process of the job, as last read."""
    program: str
    peak: int = 0     # the most resident bytes
    written: int = 0  # bytes passed to write calls, sockets included
    cpu: float = 0    # seconds of processor time


@dataclass
class Ended:
    code: int
    output: str
    seconds: float
    broke: str = ""   # the limit that was exceeded
    processes: dict = field(default_factory=dict)  # by process id

    def devices(self, program):
        """The processes of a program, in the order of their start."""
        return [p for _, p in sorted(self.processes.items()) if p.program == str(program)]


# ---- Namespaces of the grader's own ----------------------------------------------------------------------
def enter(kind):
    """Starts this program again in namespaces of its own, unless it is in them already. Their end also ends what is
    left in them: processes, mounts, and a network with only the loopback."""
    if kind == "user":
        if os.geteuid() != 0:
            fail(69, "--sandbox user: expected to be root, who can become another user, given another user")
        return
    if os.environ.pop(INSIDE, ""):  # a container's first process also has number 1, but in the container's network
        return loopback_up()
    for program, package in (("unshare", "util-linux"), ("bwrap", "bubblewrap")):
        if not shutil.which(program):
            fail(69, f"{program}: expected a program, given none; Debian's package is {package}")
    flags = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        flags += ["--user", "--map-root-user"]
    tried = subprocess.run(["unshare", *flags, "true"], capture_output=True, text=True)
    if tried.returncode:
        fail(69, "--sandbox namespaces: expected a kernel that lets this user make them, given: "
                 f"{tried.stderr.strip()}; root can take --sandbox user, which isolates less")
    # unshare ignores TERM while it waits; its child ends with it
    sys.exit(run(["unshare", *flags, sys.executable, *sys.argv], at_signal=lambda child: child.kill(),
                 env={**os.environ, INSIDE: "1"}))


def memory():
    """The bytes that this process and those it starts may hold together: the machine's, or less in a control group."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    found = [next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemTotal:"))]
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, kinds, group = line.split(":", 2)
        if "memory" in kinds.split(",") or not kinds:  # of version 1, or of version 2, which has one tree for all kinds
            top, file = Path("/sys/fs/cgroup", kinds), "memory.limit_in_bytes" if kinds else "memory.max"
            path = top / group.strip("/")
            for folder in [path, *(above for above in path.parents if above.is_relative_to(top))]:
                with contextlib.suppress(OSError, ValueError):  # there is none, or it says "max"
                    found.append(int((folder / file).read_text()))
    return min(found)


def loopback_up():
    with socket.socket() as any_socket:
        request = struct.pack("16sh", b"lo", 1 | 64)  # IFF_UP, IFF_RUNNING
        fcntl.ioctl(any_socket, 0x8914, request)      # SIOCSIFFLAGS


def loopback_bytes():
    """The bytes sent through the loopback so far."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split(":")[1].split()[8]) for line in lines if line.strip().startswith("lo:"))


def mount_scratch(folder, size):
    """A file system in memory with a fixed size."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes=100k,mode=755", "tmpfs", folder],
                   check=True)


# ---- A job -----------------------------------------------------------------------------------------------
class Sandbox:
    """Runs jobs, isolated by "namespaces" or by another "user"."""
    def __init__(self, kind, scratch):
        self.kind, self.scratch = kind, Path(scratch)
        if kind == "namespaces":
            mount_scratch(self.scratch, "2g")
        elif not (account := next((name for name in ("student", "nobody") if has_account(name)), None)):
            fail(69, "--sandbox user: expected the user student or nobody, given neither")
        else:
            self.account = pwd.getpwnam(account)
            if mine := [*self.of_account(), *self.files_of_account()]:
                fail(69, f"--sandbox user: expected that {account}, as whom submissions run, has no other processes "
                         f"and no files in {', '.join(SHARED)}, since they would be ended and deleted; given "
                         f"{len(mine)}")

    def run(self, command, sees=(), writes=(), limits=Limits(), environment=None, watched=None):
        """Runs a command that can read these folders and the system's programs, and can write to `writes`. Calls
        `watched` with its output so far, now and then."""
        given = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", **(environment or {})}
        words = [*self.prefix(sees, writes, given), *map(str, command)]
        if self.kind == "namespaces":
            return Job(words, None, limits, self.end_all).watch(watched)
        # These folders belong to the other user during this job only. The next job must find them unchanged.
        give(writes, self.account.pw_uid)
        try:
            return Job(words, given, limits, self.end_all).watch(watched)
        finally:
            give(writes, os.geteuid())

    def prefix(self, sees, writes, given):
        limited = ["prlimit", "--core=0", f"--fsize={Limits.file}"]
        if self.kind == "user":
            account = self.account
            return [*limited, f"--nproc={Limits.processes}", "setpriv", f"--reuid={account.pw_uid}",
                    f"--regid={account.pw_gid}", "--clear-groups", "--no-new-privs"]
        words = ["bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
                 "--uid", "1000", "--gid", "1000", "--hostname", "grader", "--die-with-parent", "--new-session",
                 "--cap-drop", "ALL", "--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev"]
        for name in ("bin", "lib", "lib64", "sbin"):
            at = Path("/", name)
            if at.is_symlink():
                words += ["--symlink", os.readlink(at), at]
            elif at.exists():
                words += ["--ro-bind", at, at]
        for name in ("alternatives", "openmpi", "pmix", "ld.so.cache", "hosts", "nsswitch.conf", "passwd"):
            words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        for folder in ("/tmp", "/dev/shm"):
            words += ["--size", str(512 << 20), "--tmpfs", folder]
        for folder in sees:
            words += ["--ro-bind", folder, folder]
        for folder in writes:
            words += ["--bind", folder, folder]
        words += ["--clearenv", *(word for pair in given.items() for word in ("--setenv", *pair))]
        return list(map(str, [*words, *limited]))

    def end_all(self):
        """Kills processes of the other user that have left the job's group. (Namespaces need no kill.)"""
        if self.kind == "user":
            while mine := self.of_account():  # a killed process may just have started another one
                kill(mine)
                time.sleep(0.005)
            for path in self.files_of_account():
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()

    def files_of_account(self):
        return [path for folder in SHARED for path in Path(folder).iterdir() if is_of(path, self.account.pw_uid)]

    def of_account(self):
        """The other user's processes, without those that have ended."""
        found = []
        for number, _ in processes():
            try:
                folder = Path("/proc", str(number))
                if folder.stat().st_uid == self.account.pw_uid and (folder / "cmdline").read_bytes():
                    found.append(number)
            except OSError:
                pass  # it has just ended
        return found


def kill(numbers):
    for number in numbers:
        with contextlib.suppress(OSError):  # it has just ended
            os.kill(number, signal.SIGKILL)


def reap_orphans():
    """Waits for orphans, whose parent is this process if it is a namespace's first. The processes that a job leaves
    end with bubblewrap's namespace, a moment after bubblewrap."""
    deadline = time.monotonic() + 5
    try:
        while os.getpid() == 1 and time.monotonic() < deadline:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(0.001)
    except ChildProcessError:
        pass  # there are none


def is_of(path, user):
    """Whether a process belongs to this user and has not ended."""
    try:
        return path.lstat().st_uid == user
    except FileNotFoundError:
        return False


def give(folders, user):
    """Gives folders, with their contents, to a user. Does not follow links."""
    for folder in folders:
        subprocess.run(["chown", "-R", "-P", "-h", str(user), folder], check=True)


def has_account(name):
    try:
        return bool(pwd.getpwnam(name))
    except KeyError:
        return False


def processes():
    """Yields (number, parent's number) of each process."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError):  # it has just ended
                yield int(entry), int(Path("/proc", entry, "stat").read_text().rsplit(")", 1)[1].split()[1])


def descendants(root):
    """The processes below this one. (setup's takes twice as long, since it reads each thread. The more often a
    job is looked at, the more exact is what is counted.)"""
    children = {}
    for number, parent in processes():
        children.setdefault(parent, []).append(number)
    found, left = [], [root]
    while left:
        found += (more := children.get(left.pop(), []))
        left += more
    return found


class Job:
    """A running command and its use of resources."""
    def __init__(self, words, environment, limits, end_all):
        self.limits, self.end_all, self.begun = limits, end_all, time.monotonic()
        self.text, self.broke, self.processes = b"", "", {}
        self.child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, env=environment, start_new_session=True)

    def watch(self, watched=None):
        os.set_blocking(self.child.stdout.fileno(), False)
        with selectors.DefaultSelector() as selector:
            selector.register(self.child.stdout, selectors.EVENT_READ)
            looked, shown = 0.0, time.monotonic()
            while self.child.poll() is None and not self.broke:
                for _ in selector.select(0.01):
                    self.read()
                if time.monotonic() - looked > 0.015:
                    self.look()
                    looked = time.monotonic()
                if watched and looked - shown > 5:
                    watched(self.text.decode(errors="replace"), looked - self.begun)
                    shown = looked
        self.end()
        self.read()
        self.child.stdout.close()
        return Ended(self.child.returncode, self.text[:self.limits.output].decode(errors="replace"),
                     time.monotonic() - self.begun, self.broke, self.processes)

    def read(self):
        while piece := self.child.stdout.read(1 << 16):
            self.text += piece
            if len(self.text) > self.limits.output:
                self.broke = f"output: expected at most {self.limits.output >> 10} KiB"
                return

    def look(self):
        """Reads the use of the processes from the kernel."""
        numbers, resident = descendants(self.child.pid), 0
        for number in numbers:
            try:
                folder = Path("/proc", str(number))
                program = os.readlink(folder / "exe")
                said = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
                io = dict(line.split(": ") for line in (folder / "io").read_text().splitlines())
                seen = self.processes.setdefault(number, Process(program))
                seen.program, seen.written = program, int(io["wchar"])
                seen.cpu = sum(map(int, (folder / "stat").read_text().rsplit(")", 1)[1].split()[11:13])) / TICKS
                seen.peak = max(seen.peak, int(said["VmHWM"].split()[0]) << 10)
                resident += int(said["VmRSS"].split()[0]) << 10
            except (OSError, KeyError, ValueError):
                pass  # it has just ended, or has no memory of its own
        if len(numbers) > self.limits.processes:
            self.broke = f"processes: expected at most {self.limits.processes}, given {len(numbers)}"
        elif resident > self.limits.memory:
            self.broke = f"memory: expected at most {self.limits.memory >> 20} MiB"
        elif (cpu := sum(process.cpu for process in self.processes.values())) > self.limits.cpu:
            self.broke = f"time: expected an end within {self.limits.cpu:.0f} s of processor time"
        elif time.monotonic() - self.begun > self.limits.seconds:
            self.broke = f"time: expected an end within {self.limits.seconds:.0f} s, of which it had a processor for " \
                         f"{cpu:.0f} s"

    def end(self):
        """Kills the command with its group. bubblewrap's first process takes its namespace with it."""
        if self.child.poll() is None:
            kill([self.child.pid, *descendants(self.child.pid)])
        with contextlib.suppress(OSError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        self.end_all()
        reap_orphans()
