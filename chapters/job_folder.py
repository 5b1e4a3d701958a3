"""The folder of a job. What its devices and its launcher leave lies there, and goes with it."""
import contextlib, fcntl, os, re, shutil, tempfile
from pathlib import Path

from setup import fail

@contextlib.contextmanager
def job_folder(base=None):
    """Makes a folder, and removes it in the end. Gives its path and a descriptor with its lock: a folder
    that nobody locks is of a job that was killed, and the next job removes it."""
    base = Path(base or temporary_folder())
    for path in base.glob("shardbook-job-*"):
        remove_left_over(path)
    path, lock = locked_folder(base)
    try:
        yield path, lock
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)

def temporary_folder():
    try:
        return tempfile.gettempdir()
    except OSError as error:
        fail(69, f"a folder for temporary files (TMPDIR): expected one that can be written, given {error.strerror}")

def locked_folder(base):
    while True:
        path = Path(tempfile.mkdtemp(prefix="shardbook-job-", dir=base))
        # Another job may have taken it for a left-over: the next one, then.
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            lock = os.open(path, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.stat(path), os.fstat(lock)):
                return path, lock
            os.close(lock)

def remove_left_over(path):
    """Removes a folder of this user's whose job has ended."""
    if not re.fullmatch(r"shardbook-job-\w{8}", path.name):
        return
    with contextlib.suppress(OSError):  # another user's; or another job removes it, too
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)
