"""What the scripts say of records: makes pages of them, and compares two."""
import json
import sys
from pathlib import Path

import setup
sys.path.append(str(setup.root / "chapters/engine/record"))
from compare import difference_in_words, difference_of_ends, first_difference
from join import page_of_two, run_of
from record import Record
from trace_events import trace_of


def read(file, changed=None):
    """The run whose record a file has. `changed`: a folder whose sources come before the project's."""
    return read_by(lambda text, root: run_of(text, root, changed), file)


def record_in(file):
    """The record that a file has."""
    return read_by(Record, file)


def read_by(reads, file):
    try:
        return reads(Path(file).read_text("utf-8"), setup.root)
    except UnicodeDecodeError:
        setup.fail(65, f"{file}: expected a record, given no text")
    except ValueError as error:
        setup.fail(65, f"{file}: {error}")


def play(page, file, right=None, changed=None):
    """Writes the page of a record, or of two, the right one above the other one. `changed`: a folder of sources that
    the other one is of. Returns a script's exit code."""
    run, right_run = read(file, changed), right and read(right)
    Path(page).write_text(page_of_two(right_run, run) if right else run.text(), "utf-8")
    setup.say(f"wrote {page}")
    return compare(right_run, run) if right else 0


def trace(file, record):
    """Writes a record as a trace."""
    Path(file).write_text(json.dumps(trace_of(record_in(record))), "utf-8")
    setup.say(f"wrote {file}")


def compare(right, wrong):
    """Says where two runs differ first. Returns 86 if they do."""
    print("\n".join(difference_in_words(right, wrong)))
    is_same = first_difference(right, wrong) is None and not difference_of_ends(right, wrong)
    return 0 if is_same else 86
