"""What all submissions of an assignment share, built before the image: built.tar.gz in the zip, the grader's folder
/autograder/work. It is used where the image has the packages that it was built with, and else built anew there."""
import os
import subprocess
import tempfile
from pathlib import Path

import setup

ARCHIVE, MADE_WITH, FOLDER = "built.tar.gz", "made_with", "work"


def system():
    """The machine and the packages that decide what a compiler writes: a line for each."""
    query = ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *setup.packages]
    try:
        return f"{os.uname().machine}\n{subprocess.run(query, capture_output=True, text=True, check=True).stdout}"
    except (OSError, subprocess.CalledProcessError):
        setup.fail(69, f"{ARCHIVE}: expected Debian's packages {' '.join(setup.packages)}, given some that are missing")


def as_autograder(folder):
    """The begin of a command that finds this folder as /autograder, and all else where it is: a build has paths in
    it."""
    words = ["bwrap", "--die-with-parent"]
    for path in sorted(Path("/").iterdir()):
        if path.name != "autograder":
            words += ["--symlink", os.readlink(path), path] if path.is_symlink() else ["--dev-bind", path, path]
    return list(map(str, [*words, "--bind", folder, "/autograder", "--chdir", "/"]))


def write(archive, ids):
    """Builds what the exercises with these ids share, and writes it into an archive."""
    setup.install_packages(["python3-numpy", "bubblewrap"])
    with tempfile.TemporaryDirectory() as folder:
        for name in (FOLDER, "nothing"):
            Path(folder, name).mkdir()
        grade = [setup.root / "chapters/course/grade", "--work", f"/autograder/{FOLDER}", "--exercises", ",".join(ids),
                 "/autograder/nothing"]
        if setup.run([*as_autograder(folder), *grade], stdout=subprocess.DEVNULL):
            setup.fail(70, f"could not build {ARCHIVE}")
        Path(folder, FOLDER, MADE_WITH).write_text(system())
        pack = ["tar", "-C", folder, "--owner=0", "--group=0", "--numeric-owner", "--mode=a+rX", "-czf", archive, FOLDER]
        subprocess.run(pack, check=True)


def unpack(archive, folder):
    """Puts the archive's content into the folder. Where it was built with other packages, says so and leaves it."""
    setup.install_packages(["python3-numpy"])
    made_with = subprocess.run(["tar", "-xzOf", archive, f"{FOLDER}/{MADE_WITH}"], capture_output=True, text=True,
                               check=True).stdout
    if other := sorted(set(made_with.split("\n")) ^ set(system().split("\n"))):
        return setup.say(f"{ARCHIVE}: expected the packages of this image, given others, such as {other[0]}: all is built "
                         "anew")
    # With the times of files: ninja builds again what is older than its sources.
    subprocess.run(["tar", "-C", folder, "--no-same-owner", "-xzf", archive], check=True)
