"""Runs a program on devices: a process each, started by MPI's launcher. What goes wrong with a process, which
cannot say it itself, is said here: a device that was lost, or that others wait for."""
import os, re, resource, shlex, shutil, signal, struct, subprocess, sys, tempfile, threading, time
from pathlib import Path

from setup import descendants, fail, is_alive, run, say

most_devices = 4096

def number_of_devices(name, text):
    """The number that a text is, which must be one of devices."""
    if not re.fullmatch("[0-9]{1,9}", text) or not 1 <= int(text) <= most_devices:
        fail(64, f"{name}: expected 1 to {most_devices} devices, given {text}")
    return int(text)

def on_devices(devices, command, flags=()):
    """The exit code of a program that runs as so many devices; see chapters/on_devices."""
    launcher = os.environ.get("MPIRUN", "mpirun")
    for word, code, advice in ((str(command[0]), 64, "build it first (./chapters/run does)"),
                               (launcher, 69, "Debian's package is openmpi-bin")):
        if not shutil.which(word):
            fail(code, f"{word}: expected a program, given none; {advice}")
    require_memory()
    several = settle_launcher(launcher)
    with tempfile.TemporaryDirectory(prefix="shardbook-") as folder:
        os.environ["SHARDBOOK_RECORDS"] = folder  # where devices say what they do
        records = Records(folder)
        options = ["--bind-to", os.environ.get("BIND_TO", "none"), *several, *flags,
                   *shlex.split(os.environ.get("MPIRUN_FLAGS", ""))]
        with LauncherText() as text:
            try:
                code = run([launcher, "-n", devices, *options, *command], 0.5, Watch(launcher, records),
                           stderr=text.end)
            finally:
                if interrupted := re.match("130 (.*)", records.last_words()):
                    say(f"error: {interrupted[1]}")
        code = 128 - code if code < 0 else code
        if code == 255:  # ssh's, which has said more above
            fail(69, f"{launcher}: expected to start devices on every host, given a host that cannot be reached")
        return 83 if says_who_was_lost(records, text, code) else code

def require_memory():
    """Whether a device can start. OpenBLAS tries for ever to reserve more address space than there may be."""
    needed = 512 << 20  # a device of one BLAS thread takes 400 MiB of it
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < needed:
        fail(69, f"limit of address space: expected {needed >> 20} MiB or more for a device, given "
                 f"{limit >> 20} MiB (ulimit -v)")

def settle_launcher(launcher):
    """Sets what Open MPI reads from the environment; returns options that its version wants."""
    version = subprocess.run([launcher, "--version"], capture_output=True, text=True).stdout
    is_old = re.match(r".*\(Open(MPI| MPI|RTE)\) [1-4]\.", version)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # one device is one core's worth
    if sys.stdout.isatty():  # a device cannot tell: what mpirun reads looks like one
        os.environ["SHARDBOOK_TERMINAL"] = "1"
    if os.geteuid() == 0:
        os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    # Open MPI lets processes read each other's memory. In a container that forbids it (a system call filter,
    # and no right to trace) it would warn on every message. So it is told to copy through shared memory.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    if status.get("Seccomp", "").strip() == "2" and not int(status["CapEff"], 16) >> 19 & 1:
        os.environ.update(OMPI_MCA_btl_vader_single_copy_mechanism="none",
                          OMPI_MCA_btl_sm_single_copy_mechanism="none")
    return ["--oversubscribe"] if is_old else ["--map-by", ":oversubscribe"]

# ---- What devices say ------------------------------------------------------------------------------------
class Record:
    """What a device was doing last: chapters/engine/device/runtime/flight_record.hpp."""
    layout = struct.Struct("<5q80s168s")

    def __init__(self, device, content):
        self.device = device
        self.process, state, since, self.calls, line, call, file = self.layout.unpack(content)
        self.state = ("runs", "waits", "has ended")[state]
        self.seconds = time.time() - since / 1000  # in this state
        call, file = (text.split(b"\0")[0].decode(errors="replace") for text in (call, file))
        file = re.sub(".*/(?=(chapters|tests)/)", "", file)
        place = f" at {file}:{line}" if line else ""
        self.last_call = f"call {self.calls} ({call}){place}" if call else "no call"

class Records:
    def __init__(self, folder):
        self.folder = Path(folder)

    def last_words(self):
        """Code and line of the error that ends the job, or nothing."""
        path = self.folder / "last_words"
        return path.read_text() if path.exists() else ""

    def all(self):
        found = []
        for path in self.folder.glob("device_*"):
            content = path.read_bytes()
            if len(content) == Record.layout.size:
                found.append(Record(int(path.name[7:]), content))
        return sorted(found, key=lambda record: record.device)

class LauncherText:
    """Passes on what a job writes to standard error, but keeps what Open MPI's launcher says itself: blocks
    between lines of dashes, and remarks on its own work when a job is aborted."""
    remarks = re.compile(rb"^\[[^\]\n]+\] ([^\n]*(ORTE_ERROR_LOG|FORCE-TERMINATE)|\d+ more process|"
                         rb"Set MCA param|Epoll MOD).*\n", re.M)

    def __init__(self):
        self.about_processes = ""
        self.source, self.end = os.pipe()
        self.thread = threading.Thread(target=self.pass_on, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        os.close(self.end)
        self.thread.join(1)  # a process that stays may hold the other end

    def pass_on(self):
        text = b""
        while piece := os.read(self.source, 1 << 16):
            text = self.without_blocks(text + piece)
        self.write(text)

    def without_blocks(self, text):
        """Writes text, but no block between lines of dashes, and returns what may be the beginning of one."""
        while (block := re.search(rb"^-{74}\n(.*?\n)-{74}\n", text, re.M | re.S)):
            self.write(text[:block.start()])
            self.about_processes += block[1].decode(errors="replace")
            text = text[block.end():]
        text = re.sub(self.remarks, b"", text)
        begun = re.search(rb"^-(-{0,73}\Z|-{73}\n)", text, re.M)
        self.write(text[:begun.start()] if begun else text)
        return text[begun.start():] if begun else b""

    @staticmethod
    def write(text):
        sys.stderr.buffer.write(text)
        sys.stderr.buffer.flush()

# ---- What goes wrong with a process ----------------------------------------------------------------------
def says_who_was_lost(records, text, code):
    """Whether a device was lost; if it was, says which, how, and what the others were doing."""
    if records.last_words() or code in (0, 130, 143):
        return False
    killed = re.search(r"process rank (\d+) .*exited on signal (\d+)", text.about_processes)
    left = re.search(r"due to process rank (\d+)", text.about_processes)
    ended = re.search(r"Process name: \[\[\d+,\d+\],(\d+)\]\s+Exit code:\s+(\d+)", text.about_processes)
    found = killed or left or ended
    known = {record.device: record for record in records.all()}
    lost = known.get(int(found[1])) if found else None
    if lost is None and code > 128 and code - 128 in set(signal.Signals):
        say(f"error: a device was lost: killed by {signal.Signals(code - 128).name}")
        return True
    if lost is None or lost.state == "has ended":
        return False
    how = (f"was killed by {signal.Signals(int(killed[2])).name}" if killed else
           f"left the program with exit code {ended[2] if ended else 0}")
    say(f"error: device {lost.device} was lost: it {how} after {lost.last_call}")
    others = {}
    for record in known.values():
        if record.device != lost.device and record.state != "has ended":
            what = f"{'in' if record.state == 'waits' else 'after'} {record.last_call}"
            others.setdefault(what, []).append(record.device)
    for what, devices in others.items():
        say(f"  {devices_text(devices)} {'was' if len(devices) == 1 else 'were'} {what}")
    return True

def devices_text(devices):
    return f"device{'s' if len(devices) > 1 else ''} {', '.join(map(str, devices))}"

class Watch:
    """Looks after a job. Says once of each call for whom the others wait, after ten seconds. Ends a launcher
    that stays: Open MPI's does so at times when its devices are gone, or one has failed; it has five seconds
    then."""
    def __init__(self, launcher, records):
        self.launcher, self.records, self.has_devices, self.since = launcher, records, False, None
        self.told = set()

    def __call__(self, launcher):
        """The exit code where it stays too long, else None."""
        said = self.records.last_words().split()
        are_there = any(map(is_alive, descendants(launcher.pid)[1:]))
        self.has_devices |= are_there
        if not said and (are_there or not self.has_devices):
            self.since = None
            self.tell_who_is_awaited()
            return None
        self.since = self.since or time.monotonic()
        if time.monotonic() - self.since < 5:
            return None
        if not said:
            say(f"error: {self.launcher}: expected to end with its devices, given one that stays: ended")
        return int(said[0] if said else 70)

    def tell_who_is_awaited(self):
        """A device that runs for long while another waits for long is named, and not accused."""
        records = self.records.all()
        longest = max((record.seconds for record in records if record.state == "waits"), default=0)
        for record in records:
            key = (record.device, record.calls)
            if record.state == "runs" and min(longest, record.seconds) >= 10 and key not in self.told:
                self.told.add(key)
                stopped = " (its process is stopped)" if is_stopped(record.process) else ""
                say(f"waiting 10 s for device {record.device}{stopped}, last heard of in {record.last_call}")

def is_stopped(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False
