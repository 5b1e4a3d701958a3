#!/usr/bin/python3
"""scripts_test.py BUILD: tests the scripts that a user calls, in a copy of the project whose path has a space. Small
scripts replace package managers and ninja. Chapters made by chapters/new are compiled, and linked with the objects in
the folder BUILD."""
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

root = Path(__file__).resolve().parents[2]
sys.path.append(str(root / "tests/harness"))
import terminal

build = Path(sys.argv.pop(1)).resolve()
python = Path("/usr/bin/python3")
os.environ.pop("MPIRUN", None)  # as a user has it: tests play launchers by their name
for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OPENBLAS_NUM_THREADS"):  # of the machine that tests
    os.environ.pop(name, None)


class Scripts(unittest.TestCase):
    train = ("chapters/run", "03", "-n", "2", "--steps", "2")

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="a folder ")
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)
        self.project = self.scratch / "project"
        no_bytecode = shutil.ignore_patterns("__pycache__")
        shutil.copytree(root / "chapters", self.project / "chapters", ignore=no_bytecode)
        shutil.copy(root / "CMakeLists.txt", self.project)
        (self.project / "tests").mkdir()
        shutil.copy(root / "tests/run", self.project / "tests")
        (self.project / "build").mkdir()
        (self.project / "build/build.ninja").touch()
        self.make_cache()
        (self.project / "build/emu").symlink_to(build / "emu")
        (self.scratch / "elsewhere").mkdir()
        self.play("dpkg-query", 'shift 3; for name; do echo "$name installed"; done')
        self.play("ninja")
        self.play("apt-get", "echo apt-get was called; exit 1")

    def make_cache(self, more="", home=None):
        """What CMake would have noted in the build folder, had it made that for the project in the folder `home`."""
        home = home or self.project
        (self.project / "build/CMakeCache.txt").write_text(
            f"CMAKE_HOME_DIRECTORY:INTERNAL={home}\nCMAKE_CACHEFILE_DIR:INTERNAL={home}/build\n{more}")

    def play(self, name, text="", folder="bin"):
        """A command of this name that does what the shell text says."""
        (self.scratch / folder).mkdir(exist_ok=True)
        path = self.scratch / folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def start(self, script, *words, new_session=False, **environment):
        paths = {"PATH": f"{self.scratch / 'bin'}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}
        job = subprocess.Popen([self.project / script, *words], cwd=self.scratch / "elsewhere", text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env={**os.environ, **paths, **environment}, start_new_session=new_session)
        self.addCleanup(job.kill)
        return job

    def run_script(self, *words, **environment):
        job = self.start(*words, **environment)
        out, err = job.communicate(timeout=120)
        return job.returncode, out, err

    def shardbook_with(self, *folders):
        """The program of all chapters, with more: linked as BUILD has linked it, and from its objects."""
        rules = (build / "build.ninja").read_text()
        rule = re.search(r"^build emu/shardbook: \S+ (.*?) \|.*\n((?:  .*\n)*)", rules, re.M)
        objects, variables = rule[1].split(), dict(re.findall(r"(\w+) = (.*)", rule[2]))
        flags = [*variables.get("FLAGS", "").split(), "-O0"]
        compile_one = ["c++", "-std=c++20", *flags, f"-iquote{root / 'chapters'}", f"-I{root}", "-c"]
        made = []
        for folder in folders:
            sources = set((self.project / "chapters" / folder).glob("*.cpp"))
            for source in sources - {self.project / "chapters" / folder / "main.cpp"}:
                made.append(self.scratch / f"{folder}_{source.stem}.o")
                subprocess.run([*compile_one, source, "-o", made[-1]], check=True)
        program = self.scratch / "shardbook"
        link = ["c++", *flags, *objects, *made, *variables["LINK_LIBRARIES"].split(), "-o", program]
        subprocess.run(link, cwd=build, check=True)
        return program

    def refused(self, code, text, *words, more="", **environment):
        """Checks the exit code, and that standard error has this line, and only `more` after it."""
        given, out, err = self.run_script(*words, **environment)
        self.assertEqual((given, out), (code, ""), err)
        self.assertRegex(err, f"^error: [^\n]*{text}[^\n]*\n{more}$")


class Packages(Scripts):
    def test_no_install_names_what_is_missing(self):
        self.play("dpkg-query", "echo cmake installed; exit 1")
        self.refused(69, "NO_INSTALL.* g\\+\\+ ninja-build", "chapters/run", "03", NO_INSTALL="1")

    def test_no_right_to_install(self):
        self.play("dpkg-query", "exit 1")
        self.play("sudo", "echo sudo was called; exit 1")
        for path in (self.scratch, *self.scratch.glob("**/*")):
            path.is_symlink() or path.chmod(path.stat().st_mode | 0o055)
        if os.geteuid() == 0:
            nobody = ["setpriv", "--reuid=65534", "--clear-groups", self.project / "chapters/run", "03"]
            path = f"{self.scratch / 'bin'}:{os.environ['PATH']}"
            job = subprocess.run(nobody, env={**os.environ, "PATH": path}, stdin=subprocess.DEVNULL,
                                 capture_output=True, text=True)
            self.assertEqual((job.returncode, job.stdout), (69, ""))
            self.assertRegex(job.stderr, "^error: .* no right to install them: sudo apt-get install g\\+\\+.*\n$")
        else:
            self.refused(69, "no right to install them: sudo apt-get install g\\+\\+", "chapters/run", "03")

    def test_old_python(self):
        """An old Python is refused before a script imports modules that it lacks, or installs packages."""
        as_old = ("import runpy, sys; del sys.argv[0]; sys.path[0], script, minor, *_ = sys.argv; "
                  "sys.version_info = (3, int(minor)); sys.modules['tomllib'] = None; "
                  "runpy.run_path(script, run_name='__main__')")
        course = [f"chapters/course/{name}" for name in ("make", "grade", "pages", "solutions", "gradescope/make")]
        for expected, scripts in ((11, ["chapters/run", "chapters/new", "tests/run", *course]),
                                  (9, ["chapters/suite/shardbook-check"])):
            for script in scripts:
                words = [(root / script).parent, root / script, str(expected - 1)]
                job = subprocess.run([python, "-c", as_old, *words], capture_output=True, text=True)
                self.assertEqual((job.returncode, job.stdout), (69, ""), f"{script}: {job.stderr}")
                self.assertRegex(job.stderr, rf"\Aerror: Python: expected 3\.{expected} or newer, [^\n]*\n\Z")

    def test_no_apt(self):
        self.play("mpirun", folder="tools")
        path = str(self.scratch / "tools")
        self.refused(69, "missing: cmake ninja c\\+\\+ ", "chapters/run", "03", PATH=path)


class Building(Scripts):
    def test_builds_only_what_is_asked_for(self):
        self.play("ninja", 'echo "$@" >>"$0.calls"')
        self.assertEqual(self.run_script("chapters/run", "03", "--steps", "2")[0], 0)
        self.assertTrue((self.scratch / "bin/ninja.calls").read_text().endswith(" 03_tensor_parallel\n"))

    def test_a_build_folder_of_other_sources(self):
        """A copied or moved checkout, or one whose tools are gone, is configured anew, with the options that it had, and
        nothing is written elsewhere. Another path to the same folder is no other folder."""
        self.play("cmake", 'echo "$PWD $*" >>"$0.calls"; touch build/build.ninja')
        (self.scratch / "original/build").mkdir(parents=True)
        (self.scratch / "link").symlink_to(self.project)
        options = "SHARDBOOK_TESTS:BOOL=OFF\nSHARDBOOK_WERROR:BOOL=ON\nCMAKE_CXX_COMPILER:FILEPATH=/bin/sh\n"
        for home, more, said in ((self.scratch / "original", "", f"made in {self.scratch}/original"),
                                 (self.scratch / "moved away", "", f"made in {self.scratch}/moved away"),
                                 (None, "CMAKE_COMMAND:INTERNAL=/gone/cmake\n", "made with /gone/cmake, which is gone"),
                                 (self.project, "", ""), (self.scratch / "link", "", "")):
            for script in ("chapters/run", "tests/run"):
                with self.subTest(home=home, script=script):
                    self.make_cache(options + more, home)
                    (self.project / "build/CMakeFiles").mkdir(exist_ok=True)
                    (self.scratch / "bin/cmake.calls").write_text("")
                    code, _, err = self.run_script(script, "03", CI="1" if script == "tests/run" else "")
                    calls = (self.scratch / "bin/cmake.calls").read_text()
                    if script == "chapters/run":
                        self.assertEqual(code, 0, err)
                        self.assertEqual(bool(calls), bool(said))
                    self.assertEqual("build is made anew: it was " + said in err, bool(said), err)
                    if said:
                        self.assertRegex(calls, f"^{self.project} --preset release -G Ninja .*-DSHARDBOOK_WERROR=ON")
                        self.assertIn("-DCMAKE_CXX_COMPILER=/bin/sh", calls)
                        self.assertFalse((self.project / "build/CMakeFiles").exists())
        self.assertEqual(sorted(path.name for path in self.scratch.iterdir()),
                         ["bin", "elsewhere", "link", "original", "project"])
        self.assertEqual(list((self.scratch / "original").glob("**/*")), [self.scratch / "original/build"])

    def test_a_folder_that_cannot_be_written(self):
        """What is built there runs; what is not, is said in one line."""
        (self.project / "build/lock").mkdir()  # root may write to any folder, but not to this file
        self.play("ninja", 'case "$*" in *-n*03_*) echo "ninja: no work to do.";; *) echo "[1/2] Building";; esac')
        self.assertEqual(self.run_script("chapters/run", "03", "-n", "2", "--steps", "2")[0], 0)
        self.refused(69, r"build: expected a folder that can be written, .* \(02_data_parallel\), given: Is a dir",
                     "chapters/run", "02")

    def test_tests_that_are_not_there(self):
        self.make_cache("SHARDBOOK_TESTS:BOOL=ON\n")
        self.play("ctest", """echo '{"tests": []}'""")
        self.play("ninja", 'echo "$@" >>"$0.calls"')
        self.refused(64, "expected a name that a test has, given -R nothing", "tests/run", "-R", "nothing", CI="")
        self.assertRegex((self.scratch / "bin/ninja.calls").read_text(), r"\A\S.* build.ninja\n\Z")

    def test_all_leaves_out_what_takes_longest_only_for_ci(self):
        self.make_cache("SHARDBOOK_TESTS:BOOL=ON\nSHARDBOOK_MPI:BOOL=ON\nSHARDBOOK_WERROR:BOOL=ON\n")
        for tool in ("cmake", "ninja", "ctest"):
            self.play(tool, 'echo "$@" >>"$0.calls"')
        for ci, without in (("", "-LE ^repeated$"), ("1", "-LE ^(repeated|not_in_ci)$")):
            self.run_script("tests/run", "--all", CI=ci)
            self.assertTrue((self.scratch / "bin/ctest.calls").read_text().endswith(f"{without}\n"))

    def test_first_error_in_full(self):
        self.play("ninja", """echo '[1/4] Building A'
            printf 'FAILED: b.o\\nc++ long\\nb.cpp:1: error: first\\n  more\\n[2/4] Building C\\n'
            printf 'FAILED: c.o\\nc++\\nother\\n'
            exit 1""")
        code, out, err = self.run_script("chapters/run", "03")
        self.assertEqual((code, out), (70, ""))
        self.assertRegex(err, r"\Ab.cpp:1: error: first\n  more\nerror: could not build: see .*\n\Z")

    def test_says_how_far_it_is(self):
        self.play("ninja", "echo '[1/4] Building A'; sleep 7; echo '[4/4] Linking'")
        code, _, err = self.run_script("chapters/run", "03", "--steps", "1")
        self.assertEqual(code, 0)
        self.assertRegex(err, r"^building \[1/4\] [56] s: 03_tensor_parallel\n$")

    def test_two_at_once(self):
        with open(self.project / "build/lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            job = self.start("chapters/run", "03", "--steps", "1")
            with self.assertRaises(subprocess.TimeoutExpired):
                job.wait(2)
        _, err = job.communicate(timeout=60)
        self.assertEqual((job.returncode, err), (0, "waiting for another run, which builds in build\n"))


class Launching(Scripts):
    """The launcher between a script and its devices: what they are given."""
    def host_file(self, text, name="a host file"):
        (self.scratch / name).write_text(text)
        return "--host-file", self.scratch / name

    def test_words_for_a_chapter(self):
        """A number without its zero, a strategy's name, and what else one types first; a near word is a question."""
        for words, code, said in ((("3", "-n", "2", "owns"), 0, "column-row, 2 layers"),
                                  (("tp", "-n2", "owns"), 0, "device 0  1\n"), (("3", "-n"), 64, "given nothing\n"),
                                  (("fsdp", "-n", "2", "train", "--steps", "2"), 0, "06 fully sharded, zero3"),
                                  (("help",), 0, "--host-file FILE"), (("list",), 0, "03_tensor_parallel\n"),
                                  (("strategies",), 0, "ddp, dp, data, all-reduce: 02 --variant all-reduce\n"),
                                  (("lst",), 64, "given lst: list?\n"), (("8", "--nonsense"), 64, "08_decoder"),
                                  (("tensor-paralel", "train"), 64, "given tensor-paralel: tensor_parallel?\n"),
                                  (("train",), 64, "given train\n"), (("xyzzy",), 64, "given xyzzy\n")):
            with self.subTest(words=words):
                given, out, err = self.run_script("chapters/run", *words, PROGRAMS=str(build / "emu"))
                self.assertEqual((given, bool(err)), (code, code != 0), err)
                self.assertIn(said, out + err)

    @unittest.skipUnless(os.geteuid() == 0, "another user is needed")
    def test_a_user_without_a_name_and_without_home(self):
        """Services and containers start programs so, and Open MPI's launcher and library crash."""
        self.scratch.chmod(0o755)
        user = ["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups", "env", "-u", "HOME", "TMPDIR=/tmp"]
        program = [build / "emu/03_tensor_parallel", "train", "--steps", "2"]
        for command in ([self.project / "chapters/on_devices", "2", *program], program):
            job = subprocess.run([*user, *command], capture_output=True, text=True, timeout=60)
            self.assertEqual((job.returncode, job.stderr), (0, ""))
            self.assertIn("step     2", job.stdout)

    def test_standard_input_is_left_to_who_calls(self):
        """A loop over lines runs once for each, whatever it starts, unless that reads its input."""
        self.make_cache("SHARDBOOK_TESTS:BOOL=ON\n")
        for tool in ("ninja", "cmake", "ctest"):
            self.play(tool, "cat")
        run, path = f"'{self.project}/chapters/run'", f"{self.scratch / 'bin'}:{os.environ['PATH']}"
        loop = 'while read -r line; do {} >>said 2>&1; n=$((n + 1)); done; echo "$n"'
        for command in (f"{run} 03 -n 2 train --steps $line", f"{run} 03 -n 2 owns", f"{run} --strategy tp -n 2 owns",
                        f"{run} 03 -n 2 infer --help", f"{run} 10 show none", f"{run} 03 -n 2 gradients --help",
                        f"{run} --backend local 03 -n 2 owns", f"{run} 03 costs", f"{run} nonsense",
                        f"'{self.project}/tests/run' -R nothing", f"'{self.project}/chapters/new' own --bare",
                        f"'{self.project}/chapters/on_devices' 2 '{build}/emu/03_tensor_parallel' variants"):
            with self.subTest(command=command):
                job = subprocess.run(["bash", "-c", loop.format(command)], cwd=self.scratch, text=True, timeout=60,
                                     input="1\n2\n3\n", stdout=subprocess.PIPE,
                                     env={**os.environ, "PATH": path, "PROGRAMS": str(build / "emu")})
                self.assertEqual(job.stdout, "3\n", (self.scratch / "said").read_text()[-500:])

    def test_standard_input_of_what_reads(self):
        """`infer` reads rows from a file, a pipe or a terminal, and so may a program that is not ours."""
        rows = "".join("0.5,2" + ",1" * 62 + "\n" for _ in range(3))
        (self.scratch / "rows").write_text(rows)
        program, devices = build / "emu/03_tensor_parallel", f"'{self.project}/chapters/on_devices' 2 "
        subprocess.run(["bash", "-c", f"{devices}'{program}' train --steps 1 --save '{self.scratch}/saved'"], check=True,
                       capture_output=True)
        infer = f"{devices}'{program}' infer --params '{self.scratch}/saved'"
        for given in (f"{infer} <rows", f"cat rows | {infer}", f"{infer} <<< $(cat rows)", f"{devices} cat <rows"):
            job = subprocess.run(["bash", "-c", given], cwd=self.scratch, capture_output=True, text=True, timeout=60)
            self.assertEqual((job.returncode, job.stdout.count("\n"), job.stderr), (0, 3, ""), given)
        for backend in ("emu", "local"):
            words = [self.project / "chapters/run", "--backend", backend, "03", "-n", "2", "infer", "--params",
                     self.scratch / "saved", "--batch", "1"]
            code, lines = terminal.run(words, 300, typed=rows.encode() + b"\x04",
                                       env={**os.environ, "PROGRAMS": str(build / backend)})
            self.assertEqual((code, sum(line.count(",") == 63 for line in lines)), (0, 6), lines)

    def test_host_files(self):
        self.assertEqual(self.run_script(*self.train, *self.host_file("localhost slots=2\n"))[0], 0)
        for text in ("", "\n \n", "# localhost\n"):
            self.refused(65, "a host file: expected a host on each line, given none", *self.train,
                         *self.host_file(text))

        self.refused(65, "a host file: expected devices to start, given: .*(slots|bad) parameter", *self.train,
                     *self.host_file("localhost slots=many\n"))

    def test_the_environment_of_other_hosts(self):
        """Other hosts get the variables of libraries and devices, but not this host's folder of records and GPUs."""
        self.play("mpirun", 'echo "$*"')
        out = self.run_script(*self.train, *self.host_file("10.9.0.2 slots=4\n"), NCCL_SOCKET_IFNAME="eth1",
                              CUDA_VISIBLE_DEVICES="0,1", SHARDBOOK_GPU_PATIENCE="60")[1]
        for name in ("NCCL_SOCKET_IFNAME", "OPENBLAS_NUM_THREADS", "SHARDBOOK_GPU_PATIENCE"):
            self.assertIn(f"-x {name} ", out)
        for name in ("CUDA_VISIBLE_DEVICES", "SHARDBOOK_RECORDS"):
            self.assertNotIn(name, out)
        self.assertNotIn("-x NCCL", self.run_script(*self.train, NCCL_DEBUG="INFO")[1])
        # An allocation of Slurm's with two hosts needs no host file. They do not have this host's folders.
        self.play("mpirun", 'echo "$*"; env | grep ORTE_ -i')
        for hosts, has_folders in (("1", True), ("2", False)):
            out = self.run_script(*self.train, SLURM_JOB_NUM_NODES=hosts, NCCL_DEBUG="INFO")[1]
            self.assertEqual("tmpdir_base" in out, has_folders, out)
            self.assertEqual("-x NCCL_DEBUG" in out, not has_folders, out)

    def test_on_machines_that_lack_something(self):
        """As a subsystem of another system, or a small container, may be."""
        if subprocess.run(["unshare", "--uts", "--mount", "true"], capture_output=True).returncode:
            self.skipTest("expected the right to make namespaces, given none")
        for lacks in ("hostname a-name-without-an-address", "umount -l /dev/shm; mount -t tmpfs -o ro tmpfs /dev/shm",
                      "mount -t tmpfs -o size=64k tmpfs /dev/shm", "mount -t tmpfs -o ro tmpfs /sys/fs/cgroup",
                      'export PATH="/mnt/c/Program Files (x86)/a b:$PATH"', "unset HOME USER TERM LANG"):
            with self.subTest(lacks=lacks):
                self.play("in_namespaces", f"exec unshare --uts --mount sh -c '{lacks}; exec \"$@\"' sh \"$@\"")
                code, _, err = self.run_script(self.scratch / "bin/in_namespaces", self.project / self.train[0],
                                               *self.train[1:], PROGRAMS=str(build / "emu"))
                self.assertEqual((code, err), (0, ""))

    def test_as_many_devices_as_gpus(self):
        """Each command starts devices once. The program is the emulator's: only the number of devices matters."""
        self.play("nvidia-smi", 'printf "GPU 0: H100\\n  MIG 1g.10gb\\nGPU 1: H100\\n"')
        self.play("mpirun", 'echo "$*" >>"$0.calls"; exit 64')
        words = ["chapters/run", "--backend", "cuda"]
        for more, devices, environment in (([], 2, {}), (["-n", "3"], 3, {}), ([], 1, {"CUDA_VISIBLE_DEVICES": "1"})):
            code, _, err = self.run_script(*words, *more, PROGRAMS=str(build / "emu"), **environment)
            self.assertEqual((code, err.count("\n")), (69, 1), err)
            calls = (self.scratch / "bin/mpirun.calls").read_text().splitlines()
            self.assertRegex(calls[-1], f"^-n {devices} .*shardbook list$")
        self.assertEqual(len([call for call in calls if call != "--version"]), 3)

    def test_a_host_that_cannot_be_reached(self):
        # Open MPI's remark on a race with this process, which at times it makes itself.
        remark = "[vm:1] plm:rsh: Warning: setpgid(2,2) failed in parent with errno=Permission denied(13)"
        self.play("ssh", f"echo 'ssh: no such host' >&2; echo '{remark}' >&2; exit 255")
        code, out, err = self.run_script(*self.train, *self.host_file("nowhere.invalid slots=2\n"))
        self.assertEqual((code, out), (69, ""))
        self.assertRegex(err, "^ssh: no such host\nerror: mpirun: [^\n]*a host that cannot be reached\n$")

    def test_a_device_or_a_host_far_away_is_lost(self):
        """Open MPI 4.1.4's words, as two hosts had them. There are no records of devices of another host."""
        bar = "-" * 74
        version = 'case "$*" in --version) echo "mpirun (Open MPI) 4.1.4"; exit;; esac'
        for words, code, said in (
                ("mpirun noticed that process rank 3 with PID 0 on node 10.9.0.2 exited on signal 9 (Killed).",
                 137, "device 3 was lost: it was killed by SIGKILL on 10.9.0.2"),
                ("mpirun has exited due to process rank 3 with PID 0 on\nnode 10.9.0.2 exiting improperly.", 1,
                 "device 3 was lost: it left the program with exit code 0 on 10.9.0.2"),
                ("ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[1,0],0] on node vm\n"
                 "  Remote daemon: [[1,0],1] on node 10.9.0.2\n", 205,
                 r"a host was lost: 10.9.0.2 does not answer any more \(it has failed, or the link is cut\)")):
            (self.scratch / "words").write_text(f"{bar}\n{words}\n{bar}\n")
            self.play("mpirun", f"{version}\ncat '{self.scratch}/words' >&2; exit {code}")
            self.refused(83, said, *self.train, *self.host_file("10.9.0.2 slots=4\n"))
        (self.scratch / "words").write_text(f"{bar}\n  Process name: [[1,1],3]\n  Exit code:    86\n{bar}\n")
        self.play("mpirun", f"{version}\ncat '{self.scratch}/words' >&2; exit 86")  # a result differs there
        self.assertEqual(self.run_script(*self.train, *self.host_file("10.9.0.2 slots=4\n")), (86, "", ""))

    def test_a_device_draws_lines(self):
        """The launcher draws such lines around its own words. Only these words are left out."""
        bar, version = "-" * 74, 'case "$*" in --version) echo "mpirun (Open MPI) 4.1.4"; exit;; esac'
        own, said = f"{bar}\nlayer 1\n", f"{bar}\n  loss\n{bar}\nerror: device 1: no\n"
        about = f"{bar}\nMPI_ABORT was invoked on rank 1\n{bar}\n"
        for words in (own, said, own + about + said, said + about, about + own + about):
            (self.scratch / "words").write_text(words)
            for ends in ("", "\\0"):  # Open MPI 5 ends its words with a NUL byte
                self.play("mpirun", f"{version}\ncat '{self.scratch}/words' >&2; printf '{ends}' >&2; exit 7")
                job = self.run_script(*self.train)
                rest = words.replace(about, "")
                code, more = (7, "") if about in words else (69, r"error: mpirun: expected devices to start.*\n")
                self.assertEqual(job[:2], (code, ""))
                self.assertRegex(job[2], f"^{re.escape(rest) if code == 7 else ''}{more}$")


class Limits(Scripts):
    """What this machine lets a launcher and its devices have."""
    def test_what_the_launcher_cannot_do(self):
        """One line has the launcher's first words, or says that it gave no reason."""
        starts = "mpirun: expected devices to start, given: "
        in_init = '[ "$1" = --version ] || { echo "[vm:1] PMIX ERROR: no room in a.c\n[vm:1] MPI_Init"; exit 1; } >&2'
        self.play("launcher", in_init)  # as with a full folder for temporary files
        launcher = str(self.scratch / "bin/launcher")
        rows = [("BIND_TO", "nonsense", starts + "[A-Z].*nonsense"),
                ("MPIRUN", launcher, ".*given: PMIX ERROR: no room in a.c$"),
                ("MPIRUN", "false", "false: .* given: code 1, and no reason")]
        version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
        if ") 4." in version:  # 5 has no such setting
            rows.append(("OMPI_MCA_plm", "nonsense",
                         starts + r"A requested component was not found, .* opened\. \(set here: OMPI_MCA_plm=nonsense\)$"))
        for name, value, words in rows:
            self.refused(69, words, *self.train, **{name: value})
        for limit, words in (("-n 40", "limit of open files: expected 68 or more for 2 devices, given 40"),
                             ("-f 0", r"a folder for temporary files \(TMPDIR\): expected one that can be written")):
            limited = ["bash", "-c", f'ulimit {limit}; exec "$@"', "bash", self.project / "chapters/on_devices",
                       "2", build / "emu/03_tensor_parallel"]
            job = subprocess.run(limited, capture_output=True, text=True, timeout=60)
            self.assertEqual(job.returncode, 69)
            self.assertRegex(job.stderr, f"^error: {words}.*\n$")

    @unittest.skipUnless(os.geteuid() == 0, "another user and file systems are needed")
    def test_what_this_machine_has_no_room_for(self):
        """Where the launcher would wait for ever, or name no cause."""
        words = f"'{self.project}/chapters/on_devices' 4 '{build}/emu/03_tensor_parallel' owns"
        self.scratch.chmod(0o755)
        small, here = "mount -t tmpfs -o size={} none {}", self.scratch / "elsewhere"
        for limit, said in (
                (f"{small.format('1m', here)}; TMPDIR='{here}'",
                 r"elsewhere: expected 4 MiB or more for .* given 1 MiB .*TMPDIR"),
                (f"{small.format('1m', '/dev/shm')}; {small.format('9m', here)}; TMPDIR='{here}'",
                 r"elsewhere: expected 24 MiB or more for temporary files of 4 devices.*/dev/shm"),
                ("ulimit -f 1;", r"start, given: .* \(set here: a limit of file size of 1024 bytes \(ulimit -f\)\)"),
                ("ulimit -u 2; exec setpriv --reuid 54321 --regid 54321 --clear-groups",
                 r"processes: expected room for another one.*ulimit -u")):
            script = f"{limit} {words}".replace(f"none {here}", f"none '{here}'")
            job = subprocess.run(["unshare", "--mount", "bash", "-c", script], capture_output=True, text=True, timeout=60)
            self.assertEqual(job.returncode, 69, f"{limit}: {job.stderr}")
            self.assertRegex(job.stderr, f"^error: .*{said}.*\n$")

    def test_a_limit_that_ends_a_device(self):
        """The kernel ends it without words."""
        command = [self.project / "chapters/on_devices", "2", build / "emu/03_tensor_parallel", "train", "--steps",
                   "100000"]
        job = subprocess.run(["bash", "-c", 'ulimit -t 1; exec "$@"', "bash", *command], capture_output=True,
                             text=True, timeout=110)
        self.assertEqual(job.returncode, 83, job.stderr)
        self.assertRegex(job.stderr, r"^error: device \d was lost: it was killed by SIG(KILL|XCPU) .*"
                                     r" \(set here: a limit of processor time of 1 s \(ulimit -t\)\)\n")

    def test_a_limit_of_address_space(self):
        program = build / "emu/03_tensor_parallel"
        for command in ([self.project / "chapters/on_devices", "2", program], [program]):
            self.refused_with_limit(300000, "limit of address space: expected 512 MiB or more", *command)
            room = "sizes that need at most 977 MiB on a device"
            self.refused_with_limit(1000000, f"{room}.* need 4.0 GiB", *command, "--hidden-dim", "4194304")
            self.refused_with_limit(1000000, f"{room}.* need [0-9]", *command, "--batch", "8388608")

    def refused_with_limit(self, kibibytes, text, *command):
        limited = ["bash", "-c", f'ulimit -v {kibibytes}; exec "$@"', "bash", *command]
        job = subprocess.run(limited, capture_output=True, text=True, timeout=60)
        self.assertEqual((job.returncode, job.stdout), (69, ""), job.stderr)
        self.assertRegex(job.stderr, rf"^error: [^\n]*{text}[^\n]*\n$")

    def test_a_soft_limit_of_open_files(self):
        """The script raises the limit to what the launcher needs, which would otherwise wait for ever."""
        command = [self.project / "chapters/on_devices", "16", build / "emu/03_tensor_parallel", "train", "--steps",
                   "1"]
        job = subprocess.run(["bash", "-c", 'ulimit -Sn 64; exec "$@"', "bash", *command], capture_output=True,
                             text=True, timeout=110)
        self.assertEqual((job.returncode, job.stderr), (0, ""))


class Launchers(Scripts):
    """Launchers that do strange things, and what is said of their ends."""
    def test_what_a_terminal_would_obey(self):
        self.refused(64, r"given \\x1b\[31m jürgen \\u202e", "chapters/run", "\x1b[31m jürgen \u202e")
        self.play("mpirun", r"""[ "$1" = --version ] || { printf 'no \033[2J room\n' >&2; exit 1; }""")
        self.refused(69, r"given: no \\x1b\[2J room", *self.train)

    def test_outputs_that_take_no_more(self):
        command = f"'{self.project}/chapters/on_devices' 2 '{build}/emu/03_tensor_parallel' train --steps"
        for words, code, says in (("3 >/dev/full", 65, "^error: standard output: No space left on device\n$"),
                                  ("3 >&-", 0, "^$"),
                                  ("100000000 | head -1 >&2; exit ${PIPESTATUS[0]}", 141, "^\n$")):
            job = subprocess.run(["bash", "-c", f"{command} {words}"], capture_output=True, text=True, timeout=60)
            self.assertEqual(job.returncode, code, job.stderr)
            self.assertRegex(job.stderr, says)
        run = f"'{self.project}/chapters/run' 03 -n 2 train --steps 3"  # which also builds
        path = f"{self.scratch / 'bin'}:{os.environ['PATH']}"
        for closed in (">&-", "2>&-", "<&- >&- 2>&-"):
            job = subprocess.run(["bash", "-c", f"{run} {closed}"], env={**os.environ, "PATH": path},
                                 capture_output=True, text=True, timeout=60)
            self.assertEqual((job.returncode, bool(job.stdout), job.stderr), (0, closed == "2>&-", ""), closed)
        slow = f"'{self.project}/chapters/on_devices' 1 /bin/sh -c 'seq 20000' | (sleep 4; wc -l)"
        self.assertEqual(subprocess.run(["bash", "-c", slow], capture_output=True, text=True).stdout, "20000\n")
        self.play("mpirun", 'case "$1" in --version) exit;; esac; seq 100000 >&2')
        job = subprocess.run(["bash", "-c", f"{command} 3 2>&1 | head -1"], capture_output=True, text=True,
                             timeout=60, env={**os.environ, "MPIRUN": self.scratch / "bin/mpirun"})
        self.assertEqual(job.stdout, "1\n")

    def test_the_launcher_of_another_mpi(self):
        """It starts processes that are alone, each for all of the network. One line says so, before anything is saved,
        and no word of the launcher's own follows. A job of one device is what was asked for."""
        self.play("mpiexec")
        self.make_cache(f"MPIEXEC_EXECUTABLE:FILEPATH={self.scratch}/bin/mpiexec\n")
        starts = 'case "$1" in --version) echo "HYDRA build 4.0";; -n) shift 2; "$@" & "$@"; wait; echo BAD >&2;; esac'
        self.play("mpirun", starts)
        save = ["--save", self.scratch / "saved"]
        helps = f"; MPIRUN={self.scratch}/bin/mpiexec takes the one that programs here are built with"
        for words in (self.train, (*self.train, *save), ("chapters/run", "03", "-n", "2", "owns"),
                      ("chapters/run", "--strategy", "tp", "-n", "2"), ("chapters/run", "-n", "2"),
                      ("chapters/on_devices", "2", build / "emu/05_expert", "train")):
            self.refused(69, f"{self.scratch}/bin/mpirun: expected 2 devices, .*, given 1: .*{re.escape(helps)}$", *words,
                         PROGRAMS=str(build / "emu"))
        self.assertFalse((self.scratch / "saved").exists())
        self.play("mpirun", starts.replace('"$@" & ', "").replace("echo BAD >&2", ""))
        self.assertEqual(self.run_script("chapters/run", "03", "-n", "1", "--steps", "2")[::2], (0, ""))

    def test_a_launcher_without_this_script(self):
        """Processes that another MPI's launcher has started know it from its variables. An allocation of Slurm, where
        nothing was launched, is none, nor is a job within which a script starts devices of its own."""
        program = [build / "emu/03_tensor_parallel", "train", "--steps", "2"]
        run = [root / "chapters/on_devices"]
        hydra = {"PMI_SIZE": "3", "PMI_RANK": "0", "MPI_LOCALNRANKS": "3", "MPI_LOCALRANKID": "0"}
        batch = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "3", "SLURM_NPROCS": "3", "SLURM_PROCID": "0"}
        root_may = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        alone = "^error: the launcher, of .*: expected 3 devices, as asked for, given 1: each process is alone.*\n$"
        for variables, command, code, says in (
                (hydra, program, 69, alone), ({"PMI_SIZE": "3", "PMI_RANK": "2"}, program, 69, "^$"),
                ({"SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "0"}, program, 69, alone),
                (hydra | {"PMI_SIZE": "1", "MPI_LOCALNRANKS": "1"}, program, 0, "^$"), (batch, program, 0, "^$"),
                (hydra, [build / "local/03_tensor_parallel", *program[1:]], 0, "^$"),
                (hydra, [*run, "1", *program], 0, "^$"), (hydra, [*run, "2", *program], 0, "^$"),
                (root_may, ["mpirun", "-n", "1", *run, "2", *program], 0, "^$"), (batch, [*run, "1", *program], 0, "^$")):
            with self.subTest(variables=variables, command=command):
                job = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=60)
                self.assertEqual(job.returncode, code, job.stderr)
                self.assertRegex(job.stderr, says)

    def test_no_launcher(self):
        self.play("python3", folder="tools")
        self.play("ninja", folder="tools")
        self.play("dpkg-query", 'shift 3; for name; do echo "$name installed"; done', "tools")
        self.play("apt-get", "exit 1", "tools")
        for words in (self.train, ("chapters/on_devices", "2", build / "emu/03_tensor_parallel")):
            self.refused(69, "mpirun: expected a program, given none; .*openmpi-bin", *words,
                         PATH=str(self.scratch / "tools"))

    def test_a_diagnosis(self):
        """The diagnosis has the error, each device's last call, and what differs. A good run has none."""
        path = self.scratch / "diagnosis.json"
        train = ["chapters/on_devices", "--diagnosis", path, "3", build / "emu/03_tensor_parallel", "train",
                 "--steps", "2"]
        line = r"chapters/03_tensor_parallel/tensor_parallel.hpp:\d+"
        for kind, code, name, message in (
                ("skip", 82, "deadlock", "^deadlock: devices 0 to 2 can never go on$"),
                ("kill", 83, "lost", rf"^device 1 was lost: it was killed by SIGKILL after call 5 .* at {line}$"),
                ("throw", 70, "internal", "^device 1: the planted fault of --fault$"),
                ("corrupt", 86, "differs", "^loss curve: step 1: expected 0.63"),
                ("delay", 0, "none", None)):
            with self.subTest(kind=kind):
                path.write_text("of an earlier job")
                given, _, err = self.run_script(*train, "--fault", f"device=1,call=6,kind={kind}")
                said = json.loads(path.read_text())
                self.assertEqual((given, said["code"], said["kind"]), (code, code, name), err)
                self.assertRegex(said["message"] or "", message or "^$")
                self.assertEqual([said["message"], *said["details"]] if code in (70, 82, 83) else [],
                                 [text.removeprefix("error: ").strip() for text in err.splitlines()])
                self.assertEqual([bool(said["differences"])], [code == 86])
                self.assertEqual([d["lost"] for d in said["devices"]], [False, code == 83, False])
                if code == 82:
                    self.assertEqual([(d["state"], d["calls"], d["last_call"]) for d in said["devices"]],
                                     [("waits", 6, "all_reduce"), ("waits", 5, 'a gather of "the loss"'),
                                      ("waits", 6, "all_reduce")])
                    self.assertRegex(f'{said["devices"][0]["file"]}:{said["devices"][0]["line"]}', f"^{line}$")
        for place, text in (("/dev/full", "expected a regular file"), ("none/d.json", "expected a folder that")):
            self.refused(65, text, "chapters/on_devices", "--diagnosis", place, *train[3:])
        self.refused(64, "--diagnosis: expected one chapter", "chapters/run", "--diagnosis", path)
        self.refused(64, "--diagnosis: expected a file", "chapters/on_devices", "--diagnosis")
        self.assertEqual(sorted(p.name for p in self.scratch.iterdir()),
                         ["bin", "diagnosis.json", "elsewhere", "project"])

    def test_a_launcher_that_stays(self):
        """The launcher stays after its devices have ended, or after one has failed and another one stays."""
        program = f"'{build}/emu/03_tensor_parallel'"
        for text, code, says in ((f"{program} --steps 0; exec sleep 1000", 64, "--steps: expected"),
                                 (f"{program} --steps 0; sleep 1000", 64, "--steps: expected"),
                                 ("sleep 2; exec sleep 1000", 70, "given one that stays: ended"),
                                 # The device ended before the script looked.
                                 ('touch "$SHARDBOOK_RECORDS/device_0"; exec sleep 1000', 70,
                                  "given one that stays: ended")):
            with self.subTest(launcher=text):
                self.play("launcher", f'[ "$1" = --version ] && exit\n{text}')
                start = time.monotonic()
                # The shell prints "Killed" for its program.
                self.refused(code, says, "chapters/on_devices", "1", build / "emu/03_tensor_parallel",
                             more="(Killed\n)?", MPIRUN=str(self.scratch / "bin/launcher"))
                self.assertLess(time.monotonic() - start, 20)
        # All devices had agreed on this code.
        self.play("launcher", f'[ "$1" = --version ] && exit\n{program} variants; exec sleep 1000')
        code, out, err = self.run_script("chapters/on_devices", "1", build / "emu/03_tensor_parallel",
                                         MPIRUN=str(self.scratch / "bin/launcher"))
        self.assertEqual((code, err), (0, ""), out)

    def test_a_launcher_that_crashes(self):
        """The launcher crashes alone, or after a device has failed: then the device's error counts."""
        program = f"'{build}/emu/03_tensor_parallel'"
        for first, code, says in (("", 69, "launcher: expected devices to start, given: a launcher that ended by SIGSEGV"),
                                  (f"{program} --steps 0", 64, "--steps: expected")):
            with self.subTest(first=first):
                self.play("launcher", f'[ "$1" = --version ] && exit\n{first}\nsleep 0.5; kill -SEGV $$')
                self.refused(code, says, "chapters/on_devices", "1", build / "emu/03_tensor_parallel",
                             more="(Killed\n)?", MPIRUN=str(self.scratch / "bin/launcher"))


class Ending(Scripts):
    def tearDown(self):
        for process in self.devices():
            os.kill(int(process.parent.name), signal.SIGKILL)

    def end_each_way(self, script, *words):
        """Sends a signal in the first step: to all processes, as Ctrl-C does, or to the script alone. Returns the
        output from then on."""
        said = []
        for number, of_all in ((signal.SIGINT, True), (signal.SIGQUIT, False), (signal.SIGTERM, False)):
            with self.subTest(script=script, signal=number, of_all=of_all):
                job = self.start(script, *words, new_session=True, CI="")
                if "train" in words or script == "tests/run":
                    next((line for line in job.stdout if "step     1" in line), None)
                while len(self.devices()) < 3 and job.poll() is None:  # the tour shows no steps
                    time.sleep(0.05)
                self.assertEqual(len(self.devices()), 3)
                os.killpg(job.pid, number) if of_all else job.send_signal(number)
                said.append(job.communicate(timeout=30))
                self.assertEqual((job.returncode, self.devices()), (128 + number, []))
        self.assertEqual(len(said), 3)
        return said

    def test_a_signal_ends_training(self):
        train = ["train", "--steps", "100000000", "--seed", str(os.getpid())]
        for words in (["chapters/run", "03", "-n", "3", *train],
                      ["chapters/on_devices", "3", build / "emu/03_tensor_parallel", *train]):
            for _, err in self.end_each_way(*words):
                self.assertRegex(err, r"^error: interrupted at step \d+\n$")

    def test_a_script_that_is_killed(self):
        """The devices of a killed script end, too. The next script removes its files."""
        temporary = self.scratch / "temporary"
        temporary.mkdir()
        train = [3, build / "emu/03_tensor_parallel", "train", "--seed", str(os.getpid()), "--steps"]
        job = self.start("chapters/on_devices", *map(str, train), "100000000", TMPDIR=str(temporary))
        next(line for line in job.stdout if "step     1" in line)
        job.kill()
        deadline = time.monotonic() + 20
        while self.devices() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(self.devices(), [])
        self.assertTrue(list(temporary.glob("shardbook-job-*")))
        self.assertEqual(self.run_script("chapters/on_devices", *map(str, train), "1", TMPDIR=str(temporary))[0], 0)
        self.assertEqual(list(temporary.iterdir()), [])

    def test_a_script_that_is_killed_at_once(self):
        """If the script is killed before the launcher is tied to it, the launcher does not start."""
        self.play("setpriv", f'touch "$0.called"; sleep 0.5; exec {shutil.which("setpriv")} "$@"')
        self.play("mpirun", '[ "$1" = --version ] || touch "$0.called"')
        job = self.start("chapters/on_devices", "2", build / "emu/03_tensor_parallel")
        while not (self.scratch / "bin/setpriv.called").exists():
            time.sleep(0.01)
        job.kill()
        time.sleep(2)
        self.assertFalse((self.scratch / "bin/mpirun.called").exists())

    def test_a_diagnosis_of_an_interrupted_job(self):
        path = self.scratch / "diagnosis.json"
        train = ["train", "--steps", "100000000", "--seed", str(os.getpid())]
        self.end_each_way("chapters/run", "03", "-n", "3", "--diagnosis", path, *train)
        said = json.loads(path.read_text())
        self.assertEqual((said["code"], said["kind"]), (143, "interrupted"))  # the last signal is SIGTERM
        self.assertRegex(said["message"], r"^interrupted at step \d+$")

    def test_a_stopped_device_is_named(self):
        """A stopped device is named once, after ten seconds. When it continues, the run ends without an error."""
        job = self.start("chapters/on_devices", "2", build / "emu/03_tensor_parallel", "train", "--steps", "3",
                         "--seed", str(os.getpid()), "--fault", "device=1,call=6,kind=stop")
        self.assertRegex(job.stderr.readline(), r"^waiting 10 s for device 1 \(its process is stopped\), last "
                                                r"heard of in call 5 \(all_reduce\) at chapters/03_tensor")
        for process in self.devices():
            os.kill(int(process.parent.name), signal.SIGCONT)
        _, err = job.communicate(timeout=30)
        self.assertEqual((job.returncode, err), (0, ""))

    def test_a_signal_ends_one_device(self):
        """Without a launcher."""
        command = [build / "emu/03_tensor_parallel", "--steps", "100000000", "--seed", str(os.getpid())]
        job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        next(line for line in job.stdout if "step     1" in line)
        job.terminate()
        _, err = job.communicate(timeout=30)
        self.assertEqual(job.returncode, 130)
        self.assertRegex(err, r"^error: interrupted at step \d+\n$")

    def test_a_signal_ends_the_tour(self):
        """No chapter starts after the signal. Here each takes for ever, so the first one gets it."""
        self.play("mpirun", f"""case "$*" in
            *' train '*) exec {shutil.which("mpirun")} "$@" --steps 100000000 --seed {os.getpid()};;
            *) exec {shutil.which("mpirun")} "$@";;
            esac""")
        for out, _ in self.end_each_way("chapters/run", "-n", "3"):
            self.assertNotIn("data parallel", out)

    def test_a_signal_ends_tests(self):
        self.make_cache("SHARDBOOK_TESTS:BOOL=ON\n")
        job = f"'{root}/chapters/on_devices' 3 '{build}/emu/03_tensor_parallel'"
        self.play("ctest", f"{job} train --steps 100000000 --seed {os.getpid()}")
        self.end_each_way("tests/run")

    def devices(self):
        """The processes of this test's devices, found by their seed."""
        found = []
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = process.read_bytes().split(b"\0")
            except OSError:
                continue  # it has ended
            is_program = words[0].endswith((b"emu/03_tensor_parallel", b"emu/shardbook"))
            if is_program and str(os.getpid()).encode() in words:
                found.append(process)
        return found


class OnTerminal(Scripts):
    """What a person sees, who has no pipe."""
    def test_the_tour(self):
        """Of four chapters. Each line is written once its chapter has ended, over the line that says what runs."""
        real, listed = shutil.which("mpirun"), self.scratch / "listed"
        everything = subprocess.run([build / "emu/shardbook", "list"], check=True, capture_output=True).stdout
        few = [{**chapter, "variants": chapter["variants"][:1]} for chapter in json.loads(everything)]
        listed.write_text(json.dumps([c for c in few if c["number"] in ("00", "01", "04", "05")]))
        self.play("mpirun", f"""case "$*" in *' list') cat '{listed}';; *) exec {real} "$@";; esac""")
        path = f"{self.scratch / 'bin'}:{os.environ['PATH']}"
        for columns in (80, 120):
            code, lines = terminal.run([self.project / "chapters/run", "-n", "2"], columns, cwd=self.scratch,
                                       env={**os.environ, "PATH": path})
            self.assertEqual(code, 0, lines)
            rows = [line[:2] for line in lines if re.match("[0-9]{2} ", line)]
            self.assertEqual(rows, ["00", "01", "01", "04", "05"], lines)  # 01 also as deep as 04
            self.assertNotIn("Traceback", "".join(lines))
            self.assertLessEqual(max(map(len, lines)), columns, lines)
            heading = next(line for line in lines if "variant" in line)
            self.assertEqual(["chapter" in heading, "layers" in heading], [columns == 120] * 2)

    def test_a_training(self):
        """As many digits, columns and words in a line as there is room for; COLUMNS counts more than the terminal."""
        train = [self.project / "chapters/run", "03", "-n", "2", "train", "--steps", "2"]
        path = f"{self.scratch / 'bin'}:{os.environ['PATH']}"
        for columns, said, digits in ((80, None, 2), (120, None, 3), (120, "60", 1), (50, "80", 2)):
            environment = {**os.environ, "PATH": path, **({"COLUMNS": said} if said else {})}
            code, lines = terminal.run(train, columns, cwd=self.scratch, env=environment)
            self.assertEqual(code, 0, lines)
            self.assertLessEqual(max(map(len, lines)), int(said or columns), lines)
            self.assertEqual([line.count("noisy            | mended") for line in lines if "| mended" in line], [digits] * 2)
        code, out, _ = self.run_script("chapters/run", *train[1:], "--times")
        self.assertEqual((code, out.count("| mended"), out.count("ms/step")), (0, 4, 1), out)
        self.assertRegex(out, r"\n  loss curve: [^\n]{90,}\n")  # whole where a program reads it


class Watching(unittest.TestCase):
    def test_only_devices_that_stand_still_are_named(self):
        """Device 0 waits. Device 1 makes calls for 20 s, and then none for 20 s. Then both poll."""
        sys.path.append(str(root / "chapters"))
        import watch
        clock = [1e6]
        def record(device, state, calls):
            content = watch.Record.layout.pack(0, state, int(1e3 * (clock[0] - 30)), calls, 0, b"send", b"")
            return watch.Record(device, content)
        seen, said, looks = watch.Watch("", mock.Mock()), [], []
        with mock.patch.object(watch.time, "time", lambda: clock[0]), \
             mock.patch.object(watch.time, "monotonic", lambda: clock[0]), \
             mock.patch.object(watch, "say", said.append):
            for second in range(60):
                clock[0] += 1
                states = (1, 0) if second < 40 else (2, 2)
                seen.records.all = lambda: [record(0, states[0], 1), record(1, states[1], min(second, 20) + 2)]
                seen.report_awaited_devices()
                looks += [(second, line.partition(":")[0]) for line in said]
                said.clear()
        self.assertEqual(looks, [(30, "waiting 10 s for device 1, last heard of in call 22 (send)"),
                                 (40, "waiting 10 s for devices that wait, or poll what is not done")])


class New(Scripts):
    def test_refusals(self):
        before = sorted(self.project.glob("**/*"))
        for text, *words in (("given nothing",), ("--from CHAPTER or --bare, given mine", "mine"),
                             ("--from: expected a chapter of .*, given 77", "mine", "--from", "77"),
                             ("--from: expected a chapter, given nothing", "mine", "--from"),
                             ("given mine --from 03 --bare", "mine", "--from", "03", "--bare"),
                             ("given 03_mine", "03_mine", "--bare"), ("given data", "data", "--bare"),
                             ("given tensor_parallel", "tensor_parallel", "--bare"),
                             ("given 03_tensor_parallel", "03_tensor_parallel", "--from", "03"),
                             ("such as mine .*given int", "int", "--bare"), ("given Mine", "Mine", "--bare"),
                             ("given my-own", "my-own", "--bare"),
                             ("given a/b", "a/b", "--bare"), ("given 7_mine", "7_mine", "--bare"),
                             ("does not use itself, given relu", "relu", "--bare"),
                             ("given engine", "engine", "--bare"),
                             ("does not use itself, given emu", "emu", "--bare"),
                             # a function, another chapter's namespace, a macro, a library, a word of C++
                             ("does not use itself, given device", "device", "--from", "03"),
                             ("does not use itself, given decoders", "decoders", "--from", "03"),
                             ("such as mine .*given errno", "errno", "--bare"),
                             ("does not use itself, given 20_fmt", "20_fmt", "--from", "08"),
                             ("such as mine .*given requires", "requires", "--from", "03"),
                             *(("a chapter that trains with engines of its own, such as 03, given " + folder, "mine",
                                "--from", folder[:2])
                               for folder in ("00_collectives", "07_layers", "10_checkpoints"))):
            self.refused(64, text, "chapters/new", *words)
        self.assertEqual(sorted(self.project.glob("**/*")), before)

    def test_a_copied_folder_is_refused(self):
        chapters = self.project / "chapters"
        self.assertEqual(self.run_script("chapters/namespaces", *chapters.glob("*/*.?pp")), (0, "", ""))
        shutil.copytree(chapters / "02_data_parallel", chapters / "20_mine")
        code, _, err = self.run_script("chapters/namespaces", *sorted(chapters.glob("*/*.?pp")))
        self.assertEqual(code, 1)
        self.assertRegex(err, "^chapters/20_mine: expected .* given shard::data_parallel as in .*/02_data")

    def test_chapters_of_ones_own(self):
        """New chapters train in one program with all others, as chapter 01 does. No other file changes."""
        before = {path: path.read_bytes() for path in self.project.glob("**/*") if path.is_file()}
        for words in (("mine", "--from", "03"), ("20_bare_bones", "--bare"), ("copied", "--from", "05")):
            self.assertEqual(self.run_script("chapters/new", *words)[0], 0)
        self.assertEqual({path: path.read_bytes() for path in before}, before)
        program = self.shardbook_with("mine", "20_bare_bones", "copied")
        chapters = json.loads(subprocess.run([program, "list"], check=True, capture_output=True).stdout)
        own = {chapter["folder"]: chapter for chapter in chapters}
        self.assertEqual((own["mine"]["number"], own["mine"]["title"]), ("", "mine"))
        bare = own["20_bare_bones"]
        self.assertEqual((bare["number"], bare["title"]), ("20", "bare bones"))
        self.assertEqual([v["has_closed_forms"] for v in bare["variants"]], [False])
        names = [v["name"] for c in chapters if c["folder"] in ("mine", "20_bare_bones", "copied") for v in c["variants"]]
        others = [v["name"] for c in chapters if c["folder"] not in ("mine", "20_bare_bones", "copied")
                  for v in c["variants"]]
        self.assertEqual((len(names), set(names) & set(others)), (len(set(names)), set()))
        for devices, *words in (("3", "mine"), ("2", "20"), ("1", "bare_bones"), ("2", "--strategy", "mine"),
                                ("2", "--strategy", "copied", "train"), ("2", "tensor_parallel")):
            job = subprocess.run([root / "chapters/on_devices", devices, program, *words, "--steps", "2"],
                                 capture_output=True, text=True)
            self.assertEqual((job.returncode, job.stderr), (0, ""), words)
            self.assertIn("equal the unsharded network's in every bit", job.stdout)


class NewFromEach(Scripts):
    """A test of --all, since it compiles all chapters."""
    def test_a_chapter_from_each(self):
        """A chapter from each that has engines, and from one of one's own, trains with every variant; and no name of a
        variant, which is a strategy, too, is another chapter's."""
        sources = [path.parent.name for path in sorted((self.project / "chapters").glob("*/chapter.cpp"))
                   if ".variants" in path.read_text()]
        own = {f"own{source[:2]}_copy": source[:2] for source in sources} | {"30_again": "own08_copy"}
        for folder, source in own.items():
            self.assertEqual(self.run_script("chapters/new", folder, "--from", source)[0], 0)
        program = self.shardbook_with(*own)
        chapters = json.loads(subprocess.run([program, "list"], check=True, capture_output=True).stdout)
        trained = [(chapter["folder"], variant["name"]) for chapter in chapters if chapter["folder"] in own
                   for variant in chapter["variants"]]
        names = [variant for _, variant in trained]
        others = {variant["name"] for chapter in chapters if chapter["folder"] not in own for variant in chapter["variants"]}
        self.assertEqual((len(names), set(names) & others), (len(set(names)), set()))
        for folder, variant in trained:
            with self.subTest(folder=folder, variant=variant):
                job = subprocess.run([root / "chapters/on_devices", "1" if "single" in variant else "4", program, folder,
                                      "train", "--steps", "2", "--variant", variant], capture_output=True, text=True)
                self.assertEqual((job.returncode, job.stderr), (0, ""))
                self.assertIn("equal the unsharded network's in every bit", job.stdout)
        self.assertGreater(len(trained), 50)


if __name__ == "__main__":
    unittest.main()
