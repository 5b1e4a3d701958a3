"""A process for each device, and collectives between them. Device 0 takes what all send, and hands it on."""
import json
import multiprocessing
import sys
from pathlib import Path


class Group:
    def __init__(self, device, devices, pipes):
        self.device, self.devices, self.pipes = device, devices, pipes

    def all_to_all(self, parts):
        """Sends parts[i] to device i. What each device has sent to this one."""
        if self.device > 0:
            self.pipes[self.device][1].send(parts)
            return self.pipes[self.device][1].recv()
        sent = [parts, *(mine.recv() for mine, _ in self.pipes[1:])]
        for device, (mine, _) in enumerate(self.pipes):
            if device > 0:
                mine.send([parts[device] for parts in sent])
        return [parts[0] for parts in sent]

    def all_gather(self, x):
        return self.all_to_all([x] * self.devices)

    def all_reduce(self, x):
        return sum(self.all_gather(x))


def run(program, devices, *arguments):
    """Calls program(group, *arguments) on `devices` devices, and returns an exit code."""
    pipes = [multiprocessing.Pipe() for _ in range(devices)]
    jobs = [multiprocessing.Process(target=program, args=(Group(device, devices, pipes), *arguments))
            for device in range(devices)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    return max(abs(job.exitcode) for job in jobs)


def main(program, does):
    """The command line PROBLEM OUT_DIR DEVICES: program(group, problem, folder, out) on so many devices, or 77 for a
    problem that it does not do."""
    path, out, devices = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    problem = json.loads(path.read_text())
    sys.exit(run(program, devices, problem, path.parent, out) if does(problem) else 77)
