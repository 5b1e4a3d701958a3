"""What a job's end says on standard error, as JSON: the file of --diagnosis."""
import json, os, stat, tempfile
from pathlib import Path

from setup import fail

# chapters/engine/device/error.hpp
kinds = {0: "none", 64: "usage", 65: "file", 69: "missing", 70: "internal", 81: "mismatch", 82: "deadlock",
         83: "lost", 84: "argument", 85: "not_finite", 86: "differs", 130: "interrupted", 143: "interrupted"}

def require_replaceable(path):
    """The file is written when the job has ended: whether it can be is found out before."""
    path = Path(path)
    if path.is_symlink() or path.exists() and not stat.S_ISREG(path.stat().st_mode):
        fail(65, f"{path}: expected a regular file, given another kind of file")
    if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        fail(65, f"{path}: expected a folder that can be written, given {path.absolute().parent}")

def write(path, code, text, records, lost):
    """Writes the file. `text` is the error's paragraph, "" if there was none; `lost` is the
    device that was lost, if one was."""
    message, *details = text.splitlines() or [""]
    differences = records.text_of("differences").splitlines()
    content = {
        "code": code,
        "kind": kinds.get(code, "of the program"),
        "message": message or (differences[0] if code == 86 and differences else None),
        "details": [line.strip() for line in details],
        "differences": differences,
        "devices": [{"device": record.device, "state": record.state, "calls": record.calls,
                     "last_call": record.call or None, "file": record.file or None,
                     "line": record.line or None, "lost": record.device == lost}
                    for record in records.all()]}
    replace_json(path, content)

def replace_json(path, content):
    """All of the file or none of it."""
    with tempfile.NamedTemporaryFile("w", dir=Path(path).absolute().parent, delete=False) as part:
        json.dump(content, part, indent=2)
        part.write("\n")
        part.flush()
        os.fsync(part.fileno())
    os.replace(part.name, path)
