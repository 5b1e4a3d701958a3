"""The record of a run, as the page's makers read it."""
import json
import re
from pathlib import Path

VERSION = 1
MEMORY = ("made", "freed", "moved")
SENDS, RECEIVES = ("send", "send_async", "post_send"), ("receive", "post_receive")


class Event:
    """An event of a device: a row of the record with what its numbers stand for."""

    def __init__(self, record, row):
        self.what = record.what[row[0]]
        self.kind = self.what["is"]
        self.line = self.what.get("line")
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
        self.name, self.held = section["name"], section["held"]
        self.names = {int(tensor): name for tensor, name in section["names"].items() if tensor != "-1"}
        self.events = [Event(record, row) for row in section["events"]]


class Record:
    """A record that is read. \\throws ValueError what is wrong with it"""

    def __init__(self, text, root):
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
        self.sources = {file: source_of(root, file) for file in self.files}
        self.assigned = {number: name for number in range(len(self.lines)) if (name := self.name_at(number))}

    def place(self, line):
        """FILE:LINE of a line's number."""
        file, number = self.lines[line]
        return f"{self.files[file]}:{number}"

    def name_at(self, line):
        """The name that the source gives to this line's result, if it does: h, for `Sharded<1> h = relu(...)`."""
        file, number = self.lines[line]
        text = (self.sources[self.files[file]][number - 1:number] or [""])[0]
        kind = r"(?:(?:const )?[\w:]+(?:<[\w<>:, ]*>)?&? )?"
        found = re.search(rf"(?:^|[;{{)])\s*{kind}([A-Za-z]\w*) =(?!=)", text)
        return found[1] if found else None

    def group(self, event):
        """The members of a call's group, and its name."""
        group = self.groups[event.what["group"]]
        return group["members"] or list(range(len(self.devices))), group["name"]

    def letters(self, operand):
        """How a tensor lies: P; (S0, P) on a mesh; nothing if that is not known."""
        if "layout" not in operand:
            return ""
        letters = self.layouts[operand["layout"]]["letters"]
        letters = [letters] if isinstance(letters, str) else letters
        return letters[0] if len(letters) == 1 else f"({', '.join(letters)})"

    def whole(self, operand):
        """The shape of the whole tensor, or of the device's part if that is all that is known."""
        return self.layouts[operand["layout"]]["whole"] if "layout" in operand else operand["shape"]


def source_of(root, file):
    """The lines of a source file below `root`; none of another one, which a record from elsewhere may name."""
    path = (Path(root) / file).resolve()
    if not path.is_relative_to(Path(root).resolve()) or path.suffix not in (".hpp", ".cpp") or not path.is_file():
        return []
    return path.read_text("utf-8", "replace").splitlines()
