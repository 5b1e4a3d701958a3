"""A test function on several processes: @ranks starts them, ends them, and brings the first failure back."""
from __future__ import annotations

import functools
import inspect
import os
import pickle
import socket
import sys
import tempfile
from pathlib import Path

import numpy as np

from . import children


def ranks(meshes, axes=None, backend=None, seconds=60, device="cpu"):
    """Runs a test on a process for each device of each mesh: 2, or (2, 2) with `axes` ("data", "tensor"). Its argument
    `mesh` is {axis: size}; with a `backend` of torch.distributed, its DeviceMesh, and the process group exists. Whatever
    its other arguments are, they must be what pickle takes. A process that hangs fails after `seconds`."""
    import pytest

    def decorated(test):
        @functools.wraps(test)
        def of_all(mesh, **more):
            __tracebackhide__ = True
            run(test, mesh, axes, backend, seconds, device, more)
        of_all.on_one_rank = test
        names = ["x".join(map(str, np.atleast_1d(mesh))) for mesh in meshes]
        return pytest.mark.parametrize("mesh", meshes, ids=names)(of_all)
    return decorated


def run(test, mesh, axes, backend, seconds, device, more):
    """Runs a function of a file on the processes of a mesh. \\throws AssertionError what the first failing one says"""
    __tracebackhide__ = True  # of pytest: what a process says is the failure
    sizes = tuple(int(size) for size in np.atleast_1d(mesh))
    if axes is not None and len(axes) < len(sizes):
        raise ValueError(f"ranks: expected a name for each axis of {sizes}, given {axes}")
    names = tuple(axes[:len(sizes)]) if axes else ("devices",) if len(sizes) == 1 else \
        tuple(f"axis {k}" for k in range(len(sizes)))
    with tempfile.TemporaryDirectory(prefix="shardbook-ranks-") as folder:
        folder = Path(folder)
        job = {"file": inspect.unwrap(test).__code__.co_filename, "name": test.__qualname__, "sizes": sizes, "names": names,
               "backend": backend, "device": device, "more": more, "path": sys.path}
        (folder / "job").write_bytes(pickle.dumps(job))
        count = int(np.prod(sizes))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        env = {**os.environ, "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
               "PYTHONPATH": os.pathsep.join([str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")])}
        env.setdefault("OMP_NUM_THREADS", "1")
        words = [sys.executable, str(Path(__file__).with_name("process.py")), "all", str(folder / "job"), str(count)]
        ended = children.call(words, seconds, folder / "log", env)
        said = [folder / f"failed_{rank}" for rank in range(count) if (folder / f"failed_{rank}").exists()]
        if ended.code == 0 and not said:
            return
        first = min(said, key=lambda file: file.stat().st_mtime_ns).read_text() if said else "\n".join(ended.lines[-20:])
        hung = "" if ended.code is not None else f"expected an end within {seconds} s, given none\n"
    raise AssertionError(f"on {' x '.join(map(str, sizes))} devices: {hung}{first}")
