"""Reads a record (docs/record.md): its events with what their tables say."""
import json
from dataclasses import dataclass, field
from pathlib import Path

VERSION = 1
MEMORY = ("made", "freed", "moved")
PURPOSES = ("parameters", "gradients", "optimizer", "activations", "buffers")


@dataclass
class Event:
    """One event of a device. `what` says what happened, as in the record; `held` is the bytes held after it, by
    purpose."""
    what: dict
    context: dict = field(default_factory=dict)  # phase, block, micro_batch, stage
    line: str = ""              # "chapters/03_tensor_parallel/tensor_parallel.hpp:38"
    t: int | None = None        # microseconds since the section began on the first device
    took: int | None = None     # microseconds; -1: until the end; None: nobody waits at this event
    tensors: list = field(default_factory=list)  # that it reads, or that was made, freed or moved
    result: int | None = None   # the tensor that it writes
    sent: list = field(default_factory=list)     # [to, messages, bytes]
    number: int | None = None   # of a call
    of: int | None = None       # of a wait: the number of its call among the events
    held: dict = field(default_factory=dict)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return self.what.get(name)


@dataclass
class Section:
    """What one device did in one section: "step 1"."""
    name: str
    began: int      # microseconds since the first section of the record
    held: list      # the tensors at its beginning
    names: dict     # of tensors: parameters, and gradients of them
    events: list

    def sent(self):
        """Messages and bytes that the device has sent."""
        return [sum(s[i] for e in self.events for s in e.sent) for i in (1, 2)]

    def flops(self):
        return sum(e.flops or 0 for e in self.events)

    def peak(self):
        """The most bytes held at one time."""
        return max([sum(t["bytes"] for t in self.held), *(sum(e.held.values()) for e in self.events)])


class Record:
    """A record in memory. `devices[d]` is the list of device d's sections."""

    def __init__(self, path):
        self.raw = raw = json.loads(Path(path).read_text())
        if (raw.get("format"), raw.get("version")) != ("shardbook record", VERSION):
            raise ValueError(f"{path}: expected a record of version {VERSION}")
        self.job, self.end = raw["job"], raw["end"]
        self.lines = [f"{raw['files'][file]}:{line}" for file, line in raw["lines"]]
        self.devices = [[self._section(s) for s in device["sections"]] for device in raw["devices"]]

    def layout(self, number, device):
        """A layout as a device has it: letters, axes, whole and, if it is known, this device's part."""
        layout = self.raw["layouts"][number]
        return {**layout, "mine": layout["parts"].get(str(device))}

    def _section(self, raw):
        held = dict.fromkeys(PURPOSES, 0)
        tensors = {t["tensor"]: [t["purpose"], t["bytes"]] for t in raw["held"]}
        for purpose, size in tensors.values():
            held[purpose] += size
        events = []
        for row in raw["events"]:
            event = self._event(row)
            if event.what["is"] in MEMORY:
                [tensor] = event.tensors
                if event.what["is"] == "made":
                    tensors[tensor] = [event.purpose, event.bytes]
                    held[event.purpose] += event.bytes
                else:
                    purpose, size = tensors[tensor]
                    held[purpose] -= size
                    if event.what["is"] == "moved":
                        held[event.purpose] += size
                        tensors[tensor][0] = event.purpose
            event.held = dict(held)
            events.append(event)
        return Section(raw["name"], raw["began"], raw["held"], {int(t): n for t, n in raw["names"].items()}, events)

    def _event(self, row):
        what = self.raw["what"][row[0]]
        line = self.lines[what["line"]] if "line" in what else ""
        if what["is"] in MEMORY:
            return Event(what, line=line, tensors=[row[1]])
        event = Event(what, self.raw["contexts"][row[1]], line, row[2], row[3])
        if what["is"] == "operation":
            event.tensors, event.result = row[4:]
        elif what["is"] == "call":
            argument, event.result, event.number, sends = row[4:]
            event.tensors = [] if argument is None else [argument]
            event.sent = self.raw["sends"][sends]
        else:
            [event.of] = row[4:]
        return event
