"""Runs a program on devices: a process each, started by MPI's launcher."""
import contextlib, os, re, resource, shlex, shutil, signal, subprocess, sys, threading
from pathlib import Path

import diagnosis, setup
from job_folder import job_folder
from launcher_text import Copy, LauncherText
from setup import fail, run, say
from watch import Records, Watch, lost_device, what_others_did

most_devices = 4096
# Settings of the user's that the launcher reads; what is set below comes later.
set_by_user = sorted(name for name in os.environ if re.match("(OMPI|PMIX|PRTE)_MCA_", name))
# Where all devices are on this host, a search for networks and cards takes half of a short job's time.
on_this_host = {"OMPI_MCA_pml": "ob1", "HWLOC_COMPONENTS": "-linuxio",
                "HWLOC_PLUGINS_BLACKLIST": "hwloc_pci.so,hwloc_opencl.so,hwloc_gl.so"}
# The launcher asks a host that is silent after 10 s, and gives it up 10 s later.
on_several_hosts = {"OMPI_MCA_reachable": "weighted", "OMPI_MCA_oob_tcp_keepalive_time": "10",
                    "OMPI_MCA_oob_tcp_keepalive_intvl": "2", "OMPI_MCA_oob_tcp_keepalive_probes": "5"}
# Once a device has failed, the others have nothing left to do: they are ended at once. A device that crashes
# prints no addresses of its stack: our sentence says where it was.
everywhere = {"OMPI_MCA_odls_base_sigkill_timeout": "0", "OMPI_MCA_opal_signal": "", "UCX_HANDLE_ERRORS": "none"}

def number_of_devices(name, text):
    """The number that a text is, which must be one of devices."""
    if not re.fullmatch("[0-9]{1,9}", text) or not 1 <= int(text) <= most_devices:
        fail(64, f"{name}: expected 1 to {most_devices} devices, given {text}")
    return int(text)

def number_of_gpus():
    """How many a device of this host sees; 0 where nothing says so."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return len(list(filter(None, visible.split(","))))
    with contextlib.suppress(OSError):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
        return len(re.findall("^GPU ", listed, re.M))
    return 0

def reads_input(command):
    """Whether a command reads its input: of the chapters' programs, `infer` does. Others may."""
    program, *words = [Path(command[0]).name, *map(str, command[1:])]
    if program == "shardbook":
        words = words[2:] if words[:1] == ["--strategy"] else words[1:]
    elif program not in setup.chapters():
        return True
    return words[:1] == ["infer"] and not {"-h", "--help"} & set(words)

@contextlib.contextmanager
def input_of(command):
    """What the launcher has as standard input. It reads all that it is given, also for devices that read nothing. It
    is in the background of a terminal, and may not read there: this script does."""
    if not reads_input(command):
        yield subprocess.DEVNULL
    elif not os.isatty(setup.standard_input):
        yield setup.standard_input
    else:
        given, typed = os.pipe()
        def pass_on():
            with contextlib.suppress(OSError):  # nobody reads any more
                while piece := os.read(setup.standard_input, 1 << 16):
                    os.write(typed, piece)
            os.close(typed)
        threading.Thread(target=pass_on, daemon=True).start()
        yield given
        os.close(given)

def on_devices(devices, command, host_file=None, diagnosis_file=None, output=1):
    """The exit code of a program that runs on `devices` devices; see chapters/on_devices. It writes to the descriptor
    `output`."""
    if diagnosis_file:
        diagnosis.require_replaceable(diagnosis_file)
    launcher = os.environ.get("MPIRUN", "mpirun")
    for word, code, advice in ((str(command[0]), 64, "build it first (./chapters/run does)"),
                               (launcher, 69, "Debian's package is openmpi-bin")):
        if not shutil.which(word):
            fail(code, f"{word}: expected a program, given none; {advice}")
    require_memory()
    require_descriptors(devices)
    flags = ["--hostfile", os.path.realpath(host_file)] if host_file else []
    flags += shlex.split(os.environ.get("MPIRUN_FLAGS", ""))
    options = ["-n", devices, *flags]
    with contextlib.ExitStack() as stack:
        leave_outer_job()
        kind = settle_words(launcher, devices, options)
        is_here = not flags and os.environ.get("SLURM_JOB_NUM_NODES", "1") == "1"  # Slurm's allocation may have several
        folder, locks = settle_launcher(stack, devices, kind, is_here)
        options += [] if is_here else for_other_hosts()
        watch, interrupted = Watch(launcher, Records(folder)), None
        watch.is_of_another = kind == "another"
        has_begun = (lambda: False) if watch.is_of_another else watch.records.any
        with input_of(command) as given, Copy(output) as watch.output, LauncherText(has_begun) as watch.text:
            try:
                # In a process group of its own, the launcher does not see Ctrl-C: it would leave its devices
                # no time for a last step.
                code = run([*ends_with_this_script(), launcher, *options, *command], 0.1, watch,
                           watch.interrupt, stdin=given, stdout=watch.output.end, stderr=watch.text.end,
                           process_group=0, pass_fds=locks)
            except SystemExit as exit_of_signal:  # see setup.main
                interrupted = code = exit_of_signal.code
                watch.output.patience = watch.text.patience = 1
        code, words, lost = end_of_job(watch, code, interrupted, host_file or launcher)
        if code and (watch.records.folder / "recorded_job").exists():  # --record: devices have left what they did
            subprocess.run([*command[:1], "--join-record", watch.records.folder, str(code), words or ""])
        if diagnosis_file:
            diagnosis.write(diagnosis_file, code, words, watch.records, lost)
        if interrupted:
            sys.exit(interrupted)
        return code

def end_of_job(watch, code, interrupted, launched_by):
    """The job's code, what is said of its end, and the device that was lost, if one was."""
    records, text, error = watch.records, watch.text, watch.output.error
    failed, words = records.last_words()
    if not (code or failed or error):
        text.release()
        return 0, "", None
    lost, lines = None, []
    if watch.output.is_closed():
        code = 128 + signal.SIGPIPE
    elif error:
        code, lines = 65, [f"standard output: {error.strerror}"]
    elif failed:
        code, lines = interrupted or failed, [words] if failed == 130 else []
    elif interrupted:
        lines = [f"interrupted by {signal.Signals(interrupted - 128).name}",
                 *what_others_did({record.device: record for record in records.all()}, None)]
    elif code == 255 and launched_by != watch.launcher:  # ssh's, which says more
        text.held = text.block.sub(b"", text.held)
        code, lines = 69, [f"{watch.launcher}: expected to start devices on every host, given a host that "
                           "cannot be reached"]
    elif watch.stays:
        lines = [f"{watch.launcher}: expected to end with its devices, given one that stays: ended"]
    elif not records.any() and (b"MPI_Init" in text.held or not text.about_processes):
        given = text.take_first_words() or (
            f"a launcher that ended by {signal.Signals(-code).name}" if code < 0 else f"code {code}, and no reason")
        code = 65 if "hostfile" in given else 69
        lines = [f"{launched_by}: expected devices to start, given: {given}{what_can_be_changed()}"]
    else:
        lost, lines = lost_device(records, watch.lost, text.about_processes, code, watch.launcher)
        code = 83 if lines else code
        if lines and "killed by SIG" in lines[0]:
            lines[0] += setup.set_here(setup.unusual_limits())
    if failed and watch.is_of_another:  # whose own words, which follow the error, are not known
        text.held, lines = b"", [words]
    text.release()
    if lines:
        say("error: " + "\n".join(lines))
    return code, words or "\n".join(lines), lost

def what_can_be_changed():
    """What the user has set that a launcher may fail at: its words name none of it."""
    return setup.set_here([f"{name}={os.environ.get(name)}" for name in set_by_user] + setup.unusual_limits())

def ends_with_this_script():
    """The launcher is told to end when this script is killed, and does not begin when it was killed before
    that was arranged. It ends its devices then."""
    begin = f'[ $PPID = {os.getpid()} ] && exec "$@"'
    return ["setpriv", "--pdeathsig", "TERM", "--", "/bin/sh", "-c", begin, "sh"] if shutil.which("setpriv") else []

def for_other_hosts():
    """The options by which the launcher sets on every host what devices and their libraries read here."""
    names = [name for name in os.environ if re.match("(BLIS|CUDA|DNNL|NCCL|OPENBLAS|SHARDBOOK|UCX)_", name)]
    of_this_host = {"CUDA_VISIBLE_DEVICES", "NCCL_HOSTID", "SHARDBOOK_RECORDS"}
    return [word for name in sorted(set(names) - of_this_host) for word in ("-x", name)]

def require_memory():
    """Whether a device can start. OpenBLAS tries for ever to reserve more address space than there may be."""
    needed = 512 << 20  # a device of one BLAS thread takes 400 MiB of it
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < needed:
        fail(69, f"limit of address space: expected {needed >> 20} MiB or more for a device, given "
                 f"{limit >> 20} MiB (ulimit -v)")

def require_descriptors(devices):
    """The launcher holds some for itself and four for each device. With fewer it would wait for ever."""
    needed = 60 + 4 * devices
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < needed:
        fail(69, f"limit of open files: expected {needed} or more for {devices} devices, given {hard} (ulimit -n)")
    if 0 <= soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))

# What a launcher tells the processes of its job. A launcher that one of them starts would take it for its own.
of_outer_job = re.compile("(PMIX|PRTE|PMI|HYDI|HYDRA)_|MPI_LOCAL|OMPI_(?!MCA_|ALLOW_)|"
                          "OMPI_MCA_(ess|orte|pmix|initial_wdir|mpi_oversubscribe|shmem_RUNTIME)")

def leave_outer_job():
    """A job that is started from within another one, of whatever launcher, is none of its devices."""
    if {"PMIX_NAMESPACE", "OMPI_COMM_WORLD_SIZE", "PMI_RANK"} & os.environ.keys():
        for name in filter(of_outer_job.match, list(os.environ)):
            del os.environ[name]

def own_launcher(launcher):
    """How to take the launcher of the MPI that programs are built with, if that is another one."""
    own = setup.cached(setup.root / "build").get("MPIEXEC_EXECUTABLE", "")
    is_another = os.path.exists(own) and not os.path.samefile(own, shutil.which(launcher))
    return f"; MPIRUN={own} takes the one that programs here are built with" if is_another else ""

def settle_words(launcher, devices, options):
    """Adds the options that the launcher's version wants, and tells devices how many were asked for. Returns "old" for
    Open MPI to 4, "new", or "another" for that of another MPI: it knows other words, and its devices are alone, which
    they find out, and say."""
    version = subprocess.run([launcher, "--version"], capture_output=True, text=True, errors="replace").stdout
    os.environ["SHARDBOOK_LAUNCHED"] = f"{devices}\n{shutil.which(launcher)}\n{own_launcher(launcher)}"
    if version and not re.search("Open ?MPI|OpenRTE|PRRTE|PMIx", version):
        return "another"
    options += ["--bind-to", os.environ.get("BIND_TO", "none")]
    is_old = re.match(r".*\(Open(MPI| MPI|RTE)\) [1-4]\.", version)
    options += ["--oversubscribe"] if is_old else ["--map-by", ":oversubscribe"]
    return "old" if is_old else "new"

def settle_launcher(stack, devices, kind, is_here):
    """Sets what Open MPI reads from the environment. Makes the job's folders, which end with the stack; returns that
    of the devices' records, and the locks of both."""
    environment = os.environ
    environment["OPENBLAS_NUM_THREADS"] = "1"  # one device is one core's worth
    if sys.stdout.isatty():  # a device cannot tell, nor how many columns there are
        environment["SHARDBOOK_TERMINAL"] = str(shutil.get_terminal_size().columns)
    for name, value in (on_this_host if is_here else on_several_hosts).items():
        environment.setdefault(name, value)
    for name, value in everywhere.items():
        environment.setdefault(name, value)
    if os.geteuid() == 0:
        environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    # Open MPI lets processes read each other's memory. In a container that forbids it (a system call filter,
    # and no right to trace) it would warn on every message. So it is told to copy through shared memory.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    if status.get("Seccomp", "").strip() == "2" and not int(status["CapEff"], 16) >> 19 & 1:
        environment.update(OMPI_MCA_btl_vader_single_copy_mechanism="none",
                           OMPI_MCA_btl_sm_single_copy_mechanism="none")
    folder, lock = stack.enter_context(job_folder())
    environment["SHARDBOOK_RECORDS"] = str(folder)
    environment.setdefault("HOME", str(folder))  # Open MPI crashes where neither this nor the user's entry names one
    if not is_here:
        return folder, [lock]
    # Jobs that start at the same time would race for the launcher's own folder.
    environment.update(OMPI_MCA_orte_tmpdir_base=str(folder), PRTE_MCA_prte_tmpdir_base=str(folder))
    shared, locks = folder, [lock]
    with contextlib.suppress(OSError):  # there is no /dev/shm, or it cannot be written
        if shutil.disk_usage("/dev/shm").free > devices * 5 << 20:  # a segment each, of 4 MiB and more
            shared, lock_of_shared = stack.enter_context(job_folder("/dev/shm"))
            locks.append(lock_of_shared)
    needed = 4 + (5 * devices if shared is folder else 0)
    if (free := shutil.disk_usage(folder).free >> 20) < needed:  # the launcher would wait for ever
        fail(69, f"{folder.parent}: expected {needed} MiB or more for temporary files of {devices} devices, given {free} "
                 f"MiB (TMPDIR names another folder{', or give /dev/shm room' if shared is folder else ''})")
    environment.update(OMPI_MCA_btl_vader_backing_directory=str(shared),
                       OMPI_MCA_btl_sm_backing_directory=str(shared))
    if kind == "new":  # 5.0 complains of networks that it does not need
        environment["OMPI_MCA_btl"] = "^tcp"
    return folder, locks
