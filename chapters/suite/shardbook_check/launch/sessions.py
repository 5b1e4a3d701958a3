"""All problems in one call for each number of devices, or in a single one: a launcher's seconds, and imports, count once."""
from __future__ import annotations

import json
import os
import tempfile
from datetime import timedelta
from pathlib import Path

from ..calls import REFUSES, ended_of, filled, why
from ..folders import export, failed, held, read_manifest, solved
from ..problems.files import Refused

ASKED = "session.json"  # {problem: numbers of devices}
LONG = timedelta(hours=4)  # a process waits for the groups that it is not in; the launcher's time limit ends it


def run(problems, asked, command, names, precision, seconds, logs):
    """Yields (problem, devices, outcome) of a command for problems on the numbers of devices that `asked` has for each.
    {folder} has the problems as `export` writes them, and results go to {folder}/PROBLEM/results/N/. A command with {most}
    is called once for all numbers; where it dies, again for those that come after."""
    left = sorted({n for numbers in asked.values() for n in numbers})
    is_one_call = any("{most}" in word for word in command)
    while left:
        of = list(left) if is_one_call else left[:1]
        now = {problem: [n for n in of if n in asked[problem.name]] for problem in problems}
        with tempfile.TemporaryDirectory(prefix="equivalence-") as name:
            folder = Path(name, "problems")
            export(folder, [problem for problem in now if now[problem]], names)
            (folder / ASKED).write_text(json.dumps({problem.name: numbers for problem, numbers in now.items() if numbers}))
            words = [filled(word, {"folder": folder, "devices": of[-1], "most": of[-1]}) for word in command]
            ended = ended_of(words, seconds, logs / f"session-on-{of[-1]}.txt")
            for devices in of:
                left.remove(devices)
                found = [(problem, outcome_of(problem, devices, folder, ended, names, precision, seconds))
                         for problem in now if devices in now[problem]]
                yield from ((problem, devices, outcome) for problem, (_, outcome) in found)
                if ended.code != 0 and not all(has_results for _, (has_results, _) in found):
                    break


def outcome_of(problem, devices, folder, ended, names, precision, seconds):
    """Whether the command has left something for a problem on so many devices, and what came of it."""
    results = folder / problem.name / "results" / str(devices)
    missing, refused = solved(results, problem, devices, None)
    if refused:
        return True, refused[0]
    if not missing:
        return True, held(problem, devices, results, names, precision)
    if ended.code in REFUSES:
        return False, ended.line
    return False, failed(problem, devices, "the program", why(ended, seconds) if ended.code != 0 else
                         "expected results, given none")


def session(folder, devices=None, backend=None):
    """Yields (problem, folder for its results) of a folder that `run --session` gives: for your program.

        for problem, results in sb.session(folder, world):
            ...                         # problem.params, problem.batch
            sb.write(results / f"device_{rank}.safetensors", found)

    Without `devices`, on all numbers of devices that are asked for, one after the other; N is int(results.name). With a
    `backend` of torch.distributed, the first N processes are its process group meanwhile, which is made here."""
    folder = Path(folder)
    problems = read_manifest(folder)
    asked = {problem.name: problem.devices for problem in problems}
    if (folder / ASKED).exists():
        asked = json.loads((folder / ASKED).read_text())
    numbers = [devices] if devices else sorted({n for of in asked.values() for n in of})
    for n in groups(numbers, backend) if backend else numbers:
        for problem in problems:
            if n in asked[problem.name]:
                results = folder / problem.name / "results" / str(n)
                results.mkdir(parents=True, exist_ok=True)
                yield problem, results


def groups(numbers, backend):
    """Yields each number of devices whose process group this process is in, while the group is torch's default one."""
    import torch.distributed as dist
    if dist.is_initialized():
        raise Refused("session: expected no process group with `backend`, given one: it is made here")
    if missing := [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]:
        raise Refused(f"session: expected the variables of torchrun, given no {missing[0]}")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    is_server = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"  # else torchrun has it
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, is_server, LONG)
    for n in numbers:
        if rank < n <= world:
            where = dist.PrefixStore(f"{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)} of {n}", store)
            dist.init_process_group(backend, store=where, rank=rank, world_size=n)
            yield n
            dist.barrier()
            dist.destroy_process_group()
    store.set(f"{rank} has ended", "")
    if is_server:  # others may still ask it
        store.wait([f"{other} has ended" for other in range(world)], LONG)
