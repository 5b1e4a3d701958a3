"""The record of a run, with the lines of the source that it names."""
import re
from pathlib import Path

import reader


class Record(reader.Record):
    """A record whose sources lie below `changed`, if that is given and has them, and else below `root`."""

    def __init__(self, text, root, changed=None):
        super().__init__(text)
        self.sources = {file: changed and source_of(changed, file) or source_of(root, file) for file in self.files}
        self.assigned = {number: name for number in range(len(self.lines)) if (name := self.name_at(number))}

    def name_at(self, line):
        """The name that the source gives to this line's result, if it does: h, for `Sharded<1> h = relu(...)`."""
        file, number = self.lines[line]
        text = (self.sources[self.files[file]][number - 1:number] or [""])[0]
        kind = r"(?:(?:const )?[\w:]+(?:<[\w<>:, ]*>)?&? )?"
        found = re.search(rf"(?:^|[;{{)])\s*{kind}([A-Za-z]\w*) =(?!=)", text)
        return found[1] if found else None

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
