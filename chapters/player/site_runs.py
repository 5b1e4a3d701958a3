"""The runs that the site plays: each chapter's with a tour, and pairs of a right and a wrong run.

They are made by programs that are built, and so are not there in a clean copy."""
import html
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from join import run_of
from lesson import Lesson

SHOWN = ('<p class="run"><a href="runs/{name}.html">This run, played step by step</a></p>\n'
         '<iframe class="run" loading="lazy" src="runs/{name}.html#light" title="a run of this chapter"></iframe>\n')
TYPED = '<p class="run">To see this run step by step, type <code>{command} --play run.html</code>.</p>\n'
PAIR = '<p class="run"><a href="runs/{name}.html">Both runs, the right one above the wrong one</a></p>\n'
PLAYED = '<p class="run"><a class="train" href="play.html#{address}">▶ Run this in the browser</a></p>\n'
COMMAND = re.compile(r'\./chapters/run (\d\d)((?: [^<\n#&]*?)?)\s*(?:&|#|<)')
FAULT = re.compile(r'\$ \./chapters/run (\d\d) [^<\n]*--fault (\S+?)</div>')
EDIT = re.compile(r"<!-- edit of: (\S+)\n(.*?)-->", re.S)
EXHIBIT = re.compile(r"<p><code[^>]*>\./tests/mistakes/museum ([\w-]+)</code>")


def tour_of(root, page):
    """The tour of a chapter's page, if it has one."""
    path = (root / page.path).with_name("tour.txt")
    return Lesson(path) if path.is_file() else None


def write_runs(root, output, tours):
    """Writes the page of each tour's run, and takes the pairs that ./tests/mistakes/pairs has made."""
    program = Path(os.environ.get("PROGRAMS", root / "build/local"), "shardbook")
    (output / "runs").mkdir()
    for name, tour in tours.items() if program.is_file() else ():
        write_run(root, program, tour, output / f"runs/{name}.html")
    for pair in (root / "build/pairs").glob("*.html"):
        shutil.copy(pair, output / "runs")


def write_run(root, program, tour, file):
    """One step of a tour's run, as a page."""
    devices, words = tour.words()
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder, "record.json")
        more = ["--steps", "1"] if "train" in words else []
        subprocess.run([program, *words, *more, "--record", record], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "SHARDBOOK_DEVICES": str(devices)})
        file.write_text(run_of(record.read_text("utf-8"), root).text(), "utf-8")


def with_runs(body, name, tour, output):
    """A page's body with its run behind its first command, and with the pairs that there are."""
    places = []
    if tour:
        is_there = (output / f"runs/{name}.html").is_file()
        is_complete = "train" in tour.run or "train" not in tour.words()[1]
        command = tour.run if is_complete else f"{tour.run} train"
        shown = SHOWN.format(name=name) if is_there else TYPED.format(command=html.escape(command))
        places.append((end_of_block(body, body.index("./chapters/run")), shown))
    for found in FAULT.finditer(body):
        pair = f"fault-{found[1]}-{re.sub('[=,]', '-', found[2])}"
        places.append((end_of_block(body, found.start()), pair_of(pair, output)))
    for found in EXHIBIT.finditer(body):
        places.append((found.start(), pair_of(found[1], output)))
    for place, shown in sorted(places, reverse=True):
        body = body[:place] + shown + body[place:]
    return body


def edits_of(page, text):
    """(the name of its pair, the file, what is edited and what runs then) of each edit of a page's "Try it"."""
    return [(f"edit-{page}-{number}", *edit) for number, edit in enumerate(EDIT.findall(text), 1)]


def with_edits(text, page, output):
    """A page's Markdown, with the pairs that there are in the places of edits."""
    names = iter([name for name, *_ in edits_of(page, text)])
    return EDIT.sub(lambda _: pair_of(next(names), output).rstrip(), text)


def with_play(body):
    """A page's body with a link behind its first command, to the page that carries it out in the browser."""
    if not (found := COMMAND.search(body)):
        return body
    words = found[2].split()
    if "--save" in words:  # a page saves nothing
        return body
    if "-n" in words and not words[words.index("-n") + 2:] and found[1] not in ("00", "07", "10"):
        words.append("train")
    place = end_of_block(body, found.start())
    return body[:place] + PLAYED.format(address="+".join([found[1], *words])) + body[place:]


def pair_of(name, output):
    return PAIR.format(name=name) if (output / f"runs/{name}.html").is_file() else ""


def end_of_block(body, place):
    """Where the block of code ends that a place is in."""
    return body.index("</div></div>\n", place) + len("</div></div>\n")
