"""The processes of a test with @ranks: process.py all JOB COUNT starts them, process.py one JOB RANK is one of them."""
import functools
import importlib.util
import os
import pickle
import subprocess
import sys
import time
import traceback
from pathlib import Path

GRACE = 5  # seconds for the others after one fails


def start_all(job, count):
    """All processes of a job. When one fails, the others have a grace, and are ended."""
    started = [subprocess.Popen([sys.executable, __file__, "one", job, str(rank)],
                                env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(count)]
    until = None
    while any(child.poll() is None for child in started):
        if until is None and any(child.poll() not in (None, 0) for child in started):
            until = time.monotonic() + GRACE
        if until is not None and time.monotonic() > until:
            break
        time.sleep(0.02)
    for child in started:
        if child.poll() is None:
            child.kill()
    return 1 if any(child.wait() for child in started) else 0


def on_one(job_file, rank):
    """One process of a job."""
    job = pickle.loads(Path(job_file).read_bytes())
    sys.path[:] = job["path"]
    try:
        spec = importlib.util.spec_from_file_location(Path(job["file"]).stem, job["file"])
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        test = functools.reduce(getattr, job["name"].split("."), module)
        while hasattr(test, "on_one_rank"):
            test = test.on_one_rank
        test(mesh_of(job, rank), **job["more"])
        if job["backend"]:
            sys.modules["torch"].distributed.destroy_process_group()
    except BaseException as error:
        text = str(error).strip() if isinstance(error, AssertionError) else traceback.format_exc()
        Path(job_file).with_name(f"failed_{rank}").write_text(f"process {rank}: {text}")
        return 1
    return 0


def mesh_of(job, rank):
    if not job["backend"]:
        return dict(zip(job["names"], job["sizes"]))
    import torch
    torch.set_num_threads(1)
    torch.distributed.init_process_group(job["backend"])
    if job["device"] == "cuda":
        torch.cuda.set_device(rank % torch.cuda.device_count())
    return torch.distributed.device_mesh.init_device_mesh(job["device"], job["sizes"], mesh_dim_names=job["names"])


if __name__ == "__main__":
    _, what, job, number = sys.argv
    code = start_all(job, int(number)) if what == "all" else on_one(job, int(number))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a process group may wait for others in its destructor
