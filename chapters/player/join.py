"""Joins the page's parts, a record and its steps to one HTML file, which needs no other one."""
import html
import json
import re
from itertools import groupby
from pathlib import Path

from compare import difference_in_words, first_difference
from lesson import lesson_of
from measures import idle_of, is_pipeline, under_way
from reader import MEMORY
from record import Record
from sentences import Sentences, number
from steps import MOST, groups_of, peak_of, steps_of, words_of

PAGE = Path(__file__).resolve().parent / "page"
MODULES = ("drawing", "record", "state", "devices", "messages", "timeline", "source", "lesson", "main")


def run_of(text, root, changed=None):
    """The run of the record in `text`, whose files lie below `changed`, if that is given, and else below `root`.
    \\throws ValueError what is wrong with the record"""
    record = Record(text, root, changed)
    try:
        return Page(record, root)
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"expected the fields of docs/record.md, given none for {error!r}") from error


def page_of_two(right, wrong):
    """The page of two runs, the right one above the wrong one."""
    at = first_difference(right, wrong)
    words = "".join(f"<p>{html.escape(line)}</p>" for line in difference_in_words(right, wrong))
    return filled("beside.html", {
        "title": html.escape(wrong.title()), "style": style(), "difference": words, "at": embedded(at),
        "right": in_quotes(right.text(" beside")), "wrong": in_quotes(wrong.text(" beside")),
        "program": program("drawing", "beside")})


class Page:
    """The page of one run."""

    def __init__(self, record, root):
        self.record = record
        all_steps = steps_of(record)
        self.steps, self.has_more = all_steps[:MOST], len(all_steps) > MOST
        self.groups, self.peaks = groups_of(self.steps), peak_of(record, self.steps)
        self.sentences = Sentences(record, self.steps)
        self.lesson = lesson_of(self, root)

    def text(self, kind=""):
        """The HTML. `kind`: " beside" for one of two runs, " framed" for a part of another page."""
        return filled("page.html", {
            "kind": kind, "title": html.escape(self.title()), "style": style(), "facts": html.escape(self.facts()),
            "end": self.end(), "sentences": self.list(), "record": embedded(self.trimmed()),
            "play": embedded(self.play()), "program": program(*MODULES)})

    def title(self):
        job = self.record.job
        words = [job.get("title") or job.get("folder", "a run"), job.get("variant", "")]
        return ", ".join(filter(None, words))

    def facts(self):
        """What ran, in a line."""
        job = self.record.job
        devices = len(self.record.devices)
        micro = job.get("options", {}).get("--micro-batches", "")
        facts = [job.get("command", ""), f"{devices} device{'' if devices == 1 else 's'}", job.get("network", ""),
                 f"batch {job['batch']}" if "batch" in job else "", f"{micro} micro-batches" if micro else "",
                 job.get("optimizer", ""), job.get("backend", "")]
        return " · ".join(map(str, filter(None, facts)))

    def end(self):
        """How a failed run ended, and that there are more steps."""
        code, report = self.record.json["end"]["code"], self.record.json["end"].get("report", "")
        parts = []
        if code:
            at_once = "" if self.steps else ' class="reached"'
            parts.append(f'<div id="report"{at_once}><strong>The run failed with exit code {code}.</strong>'
                         f"<pre>{self.with_links(report)}</pre></div>")
        if self.has_more:
            parts.append(f'<p id="more" class="soft">'
                         f"These are the first {number(MOST)} steps of the run.</p>")
        return "".join(parts)

    def with_links(self, report):
        """The text of an error. Each FILE:LINE in it leads to the last step that is there."""
        steps = {self.record.place(event.line): at for at, step in enumerate(self.steps) for item in step.items
                 for event in item.waits + item.events if event.line is not None}
        def linked(found):
            at = steps.get(found[0])
            return found[0] if at is None else f'<a href="#step={at}">{found[0]}</a>'
        return re.sub(r"[\w./]+:\d+", linked, html.escape(report))

    def list(self):
        """All sentences, below the words of their group."""
        starts, parts = dict(self.groups), []
        for at in range(len(self.steps)):
            if at in starts:
                parts.append(("</ol>" if parts else "") + f"<h3>{html.escape(starts[at] or 'other')}</h3>"
                             f'<ol start="{at}">')
            parts.append(f'<li id="step{at}">{self.sentences.of(at)}</li>')
        return "".join(parts) + ("</ol>" if parts else "")

    def play(self):
        """What the page's program needs besides the record."""
        record = self.record
        ends = [begin for begin, _ in self.groups[1:]] + [len(self.steps)]
        groups = [[begin, words, self.sentences.of_group(begin, end)]
                  for (begin, words), end in zip(self.groups, ends)]
        return {"steps": [self.row(step) for step in self.steps],
                "words": [words_of(context) for context in record.contexts],
                "groups": groups,
                "peaks": self.peaks,
                "idle": idle_of(record) if is_pipeline(record) and not self.has_more else [],
                "underWay": under_way(self),
                "lesson": self.lesson,
                "assigned": record.assigned,
                "sources": {file: shown(lines, [n for f, n in record.lines if record.files[f] == file])
                            for file, lines in record.sources.items() if lines}}

    def row(self, step):
        event = step.items[0].last
        row = {"kind": step.kind, "section": step.items[0].section, "context": event.context_number,
               "items": [[item.device, item.begin, item.end, *step.slots[item.device]] for item in step.items]}
        if step.kind == "call":
            row |= {"group": event.what["group"], "call": event.function}
        if step.is_open:
            row["open"] = True
        return row

    def trimmed(self):
        """The record as far as the page shows it: no events behind the last step, no numbers of calls, times since
        the first event of the section, values with three figures."""
        last = {}
        for step in self.steps:
            for item in step.items:
                last[item.device, item.section] = item.end
        whole = dict(self.record.json)
        whole["devices"] = [
            {**device, "sections": [self.shown_of(section, last.get((d, s), 0), self.first_time(s))
                                    for s, section in enumerate(device["sections"])]}
            for d, device in enumerate(whole["devices"])]
        return whole

    def values(self, device, section, kind="values"):
        """[event, tensor, numbers] of small tensors; of larger ones, with kind "sketches"."""
        return self.record.json["devices"][device]["sections"][section].get(kind, [])

    def first_time(self, number):
        """Of the events of a section, on any device."""
        times = [event.t for sections in self.record.devices if number < len(sections)
                 for event in sections[number].events if event.t is not None]
        return min(times, default=0)

    def shown_of(self, section, end, first):
        """A section's events before `end`, and the values after them."""
        events = []
        for what, *row in section["events"][:end]:
            kind = self.record.what[what]["is"]
            if kind not in MEMORY:
                row[1] -= first
            if kind == "call":
                row[5] = 0
            events.append([what, *row])
        values = [[event, tensor, [number and float(f"{number:.3g}") for number in numbers]]
                  for event, tensor, numbers in section.get("values", []) if event < end]
        shown = {name: field for name, field in section.items() if name != "sketches"}
        return {**shown, "events": events, "values": values}


def shown(lines, numbers, around=8):
    """The parts of a file within `around` lines of those with these numbers: (number of the first, text)."""
    wanted = sorted({near for n in numbers for near in range(max(1, n - around), min(len(lines), n + around) + 1)})
    parts = []
    for _, run in groupby(enumerate(wanted), lambda pair: pair[1] - pair[0]):
        run = [n for _, n in run]
        parts.append([run[0], "\n".join(lines[n - 1] for n in run)])
    return parts


def filled(frame, parts):
    """A frame with its parts in their places."""
    return re.sub(r"<!-- (\w+) -->", lambda found: parts[found[1]], (PAGE / frame).read_text("utf-8"))


def style():
    return (PAGE / "page.css").read_text("utf-8")


def in_quotes(text):
    """HTML as the value of an attribute in single quotes."""
    return text.replace("&", "&amp;").replace("'", "&#39;")


def embedded(value):
    """JSON that may stand in a script element."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def program(*modules):
    """The modules as one, each in a function of its own: what it imports stands before it."""
    texts = []
    for name in modules:
        text = (PAGE / f"{name}.js").read_text("utf-8")
        text = re.sub(r'^import [^;]*? from "[^"]+";\n', "", text, flags=re.MULTILINE)
        names = ", ".join(re.findall(r"^export (?:const|(?:async )?function) (\w+)", text, re.MULTILINE))
        text = re.sub(r"^export ", "", text, flags=re.MULTILINE)
        texts.append(f"const {{ {names} }} = (() => {{\n{text}return {{ {names} }};\n}})();\n")
    return "".join(texts).replace("</script", "<\\/script")
