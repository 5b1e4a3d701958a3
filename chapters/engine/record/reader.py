"""Reads a record (docs/record.md): its events with what their tables say."""
import json

VERSION = 1
MEMORY = ("made", "freed", "moved")
SENDS, RECEIVES = ("send", "send_async", "post_send"), ("receive", "post_receive")
PURPOSES = ("parameters", "gradients", "optimizer", "activations", "buffers")


class Event:
    """An event of a device: a row of the record with what its numbers stand for."""

    def __init__(self, record, row):
        self.what = record.what[row[0]]
        self.kind = self.what["is"]
        self.line = self.what.get("line")  # a number of `lines`
        self.context, self.t, self.took, self.tensors, self.to = {}, None, 0, [], None
        self.of, self.number, self.sends, self.context_number = None, None, [], None
        if self.kind in MEMORY:
            self.tensors = [row[1]]
            return
        self.context_number, self.t, self.took = row[1:4]
        self.context = record.contexts[row[1]]
        if self.kind == "wait":
            self.of = row[4]
        elif self.kind == "call":
            self.tensors, self.to, self.number = [] if row[4] is None else [row[4]], row[5], row[6]
            self.sends = record.sends[row[7]]
        else:
            self.tensors, self.to = row[4], row[5]

    @property
    def function(self):
        return self.what.get("function", "")

    @property
    def operands(self):
        """What is known of `tensors`: shape and layout."""
        given = self.what.get("from", [])
        return given if isinstance(given, list) else [given]

    @property
    def ends(self):
        return self.t + max(self.took or 0, 0)


class Section:
    """What a device did in one section: a step of training, for one."""

    def __init__(self, record, section):
        self.name, self.began, self.held = section["name"], section["began"], section["held"]
        self.names = {int(tensor): name for tensor, name in section["names"].items()}
        self.events = [Event(record, row) for row in section["events"]]

    def bytes_held(self):
        """By purpose, at the beginning and after each event."""
        held = dict.fromkeys(PURPOSES, 0)
        tensors = {one["tensor"]: (one["purpose"], one["bytes"]) for one in self.held}
        for purpose, size in tensors.values():
            held[purpose] += size
        yield dict(held)
        for event in self.events:
            if event.kind in MEMORY:
                [tensor] = event.tensors
                before, size = tensors.pop(tensor, (event.what.get("purpose"), 0))
                held[before] -= size
                if event.kind != "freed":
                    tensors[tensor] = event.what["purpose"], event.what.get("bytes", size)
                    held[event.what["purpose"]] += tensors[tensor][1]
            yield dict(held)

    def peak(self):
        """The most bytes held at one time."""
        return max(sum(held.values()) for held in self.bytes_held())

    def sent(self):
        """Messages and bytes that the device has sent."""
        return [sum(row[i] for event in self.events for row in event.sends) for i in (1, 2)]

    def flops(self):
        return sum(event.what.get("flops", 0) for event in self.events)


class Record:
    """A record that is read. `devices[d]` is the list of device d's sections. Raises ValueError: what is wrong with it."""

    def __init__(self, text):
        try:
            self.json = json.loads(text)
            if self.json.get("format") != "shardbook record":
                raise ValueError('expected "format": "shardbook record"')
            if self.json.get("version") != VERSION:
                raise ValueError(f"expected version {VERSION}, given {self.json.get('version')}")
            for name in ("job", "end", "files", "lines", "groups", "layouts", "contexts", "sends", "what"):
                setattr(self, name, self.json[name])
            self.devices = [[Section(self, section) for section in device["sections"]]
                            for device in self.json["devices"]]
        except json.JSONDecodeError as error:
            raise ValueError(f"expected JSON, given {error}") from error
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(f"expected the fields of docs/record.md, given none for {error}") from error

    def place(self, line):
        """FILE:LINE of a line's number."""
        file, number = self.lines[line]
        return f"{self.files[file]}:{number}"

    def group(self, event):
        """The members of a call's group, and its name."""
        group = self.groups[event.what["group"]]
        return group["members"] or list(range(len(self.devices))), group["name"]
