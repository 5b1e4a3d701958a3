"""Runs a program on devices: a process each, started by MPI's launcher."""
import os, re, resource, shlex, shutil, subprocess, sys, tempfile, threading
from pathlib import Path

import diagnosis
from setup import fail, run, say
from watch import Records, Watch, lost_device

most_devices = 4096
# Where all devices are on this host. Else a search for networks and cards takes half of a short job's time.
on_this_host = {"OMPI_MCA_pml": "ob1", "HWLOC_COMPONENTS": "-linuxio",
                "HWLOC_PLUGINS_BLACKLIST": "hwloc_pci.so,hwloc_opencl.so,hwloc_gl.so"}

def number_of_devices(name, text):
    """The number that a text is, which must be one of devices."""
    if not re.fullmatch("[0-9]{1,9}", text) or not 1 <= int(text) <= most_devices:
        fail(64, f"{name}: expected 1 to {most_devices} devices, given {text}")
    return int(text)

def on_devices(devices, command, flags=(), diagnosis_file=None):
    """The exit code of a program that runs as so many devices; see chapters/on_devices."""
    if diagnosis_file:
        diagnosis.require_replaceable(diagnosis_file)
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
        flags = [*flags, *shlex.split(os.environ.get("MPIRUN_FLAGS", ""))]
        for name, value in () if flags else on_this_host.items():
            os.environ.setdefault(name, value)
        # The launcher's connections to other hosts: it asks a silent one after 10 s, and gives it up 10 s later.
        for name, value in (("time", "10"), ("intvl", "2"), ("probes", "5")):
            os.environ.setdefault(f"OMPI_MCA_oob_tcp_keepalive_{name}", value)
        options = ["--bind-to", os.environ.get("BIND_TO", "none"), *several, *flags]
        watch, interrupted = Watch(launcher, records), None
        with LauncherText(watch) as text:
            try:
                # In a process group of its own, the launcher does not see Ctrl-C: it would leave its devices
                # no time for a last step.
                code = run([launcher, "-n", devices, *options, *command], 0.1, watch, watch.interrupt,
                           stderr=text.end, process_group=0)
            except SystemExit as exit_of_signal:  # see setup.main
                interrupted = exit_of_signal.code
        failed, words = records.last_words()
        if failed == 130:
            say(f"error: {words}")
        code = interrupted or failed or code
        if code == 255:  # ssh's, which has said more above
            fail(69, f"{launcher}: expected to start devices on every host, given a host that cannot be "
                     "reached")
        lost, lines = None, []
        if not failed and not interrupted:
            lost, lines = lost_device(records, watch.lost, text.about_processes, code, launcher)
        if lines:
            code = 83
            say("error: " + "\n".join(lines))
        if diagnosis_file:
            diagnosis.write(diagnosis_file, code, words or "\n".join(lines), records, lost)
        if interrupted:
            sys.exit(interrupted)
        return code

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
    # Once a device has failed, the launcher tells the others to end and waits so many seconds. They have
    # nothing left to do.
    os.environ.setdefault("OMPI_MCA_odls_base_sigkill_timeout", "0")
    if os.geteuid() == 0:
        os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    # Open MPI lets processes read each other's memory. In a container that forbids it (a system call filter,
    # and no right to trace) it would warn on every message. So it is told to copy through shared memory.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    if status.get("Seccomp", "").strip() == "2" and not int(status["CapEff"], 16) >> 19 & 1:
        os.environ.update(OMPI_MCA_btl_vader_single_copy_mechanism="none",
                          OMPI_MCA_btl_sm_single_copy_mechanism="none")
    return ["--oversubscribe"] if is_old else ["--map-by", ":oversubscribe"]

# ---- What the launcher says ------------------------------------------------------------------------------
class LauncherText:
    """Passes on what a job writes to standard error, but keeps what Open MPI's launcher says itself: blocks
    between lines of dashes, remarks on its own work when a job is aborted, and its own stack: Open MPI 4.1's
    crashes at times when it aborts a job."""
    remarks = re.compile(rb"^\[[^\]\n]+\] ([^\n]*(ORTE_ERROR_LOG|FORCE-TERMINATE)|\d+ more process|"
                         rb"Set MCA param|Epoll MOD).*\n", re.M)

    def __init__(self, watch):
        self.watch, self.about_processes = watch, ""
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
        stack = rb"^\[[^\]\n]+:0*%d\] ( ?\*\*\* |Signal|Failing at|\[ ?\d+\] ).*\n" % self.watch.process
        text = re.sub(stack, b"", text, flags=re.M)
        begun = re.search(rb"^(-(-{0,73}\Z|-{73}\n)|\[[^\n]*\Z)", text, re.M)
        self.write(text[:begun.start()] if begun else text)
        return text[begun.start():] if begun else b""

    @staticmethod
    def write(text):
        sys.stderr.buffer.write(text)
        sys.stderr.buffer.flush()
