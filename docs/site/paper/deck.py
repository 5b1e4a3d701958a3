"""The slides of a page: for each section its heading, its first sentences, and a picture, formulas, code or a table."""
import re
from dataclasses import dataclass, field
from itertools import groupby

from markdown_page import PARSER

MOST = 12
LEFT_OUT = r"What others call it|References|Try it|Exercises|Where things are|Read next|Why by hand"
MOVES = "/all_reduce.svg)"  # a picture that moves: its first moment says nothing
KINDS = ("picture", "formula", "code", "table", "output", "text")  # what a slide shows; the first ones are kept first
REMARK = re.compile(r"\s?(?<!\])\((?:[^()]|\([^()]*\))*\)")  # in brackets


@dataclass
class Slide:
    title: str
    lead: str                                 # Markdown, as what is shown
    kind: str = "text"
    shown: list = field(default_factory=list)


@dataclass
class Block:
    kind: str    # heading, one of KINDS, or another one
    text: str    # Markdown
    level: int = 0


def blocks(text):
    """The blocks of a page at its outermost level."""
    lines, inside = text.split("\n"), 0
    for token in PARSER.parse(text):
        inside -= token.nesting == -1
        if inside == 0 and token.map:
            yield block("\n".join(lines[token.map[0]:token.map[1]]).strip("\n"), token)
        inside += token.nesting == 1


def block(text, token):
    if token.type == "heading_open":
        return Block("heading", re.sub(r"^#+ +", "", text), int(token.tag[1]))
    if token.type == "fence":
        return Block("code" if token.info.strip() in ("cpp", "diff") else "output", text)
    kinds = {"code_block": "command", "table_open": "table", "math_block": "formula"}
    kind = kinds.get(token.type, "text" if token.type == "paragraph_open" else "")
    return Block("picture" if text.startswith("![") else "formula" if text.startswith("$$") else kind, text)


def fits(one):
    """Whether a slide has room for it."""
    lines = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", line) for line in one.text.split("\n")]
    most, wide = {"table": (10, 150), "code": (24, 104), "output": (40, 136)}.get(one.kind, (9, 999))
    return len(lines) <= most and max(map(len, lines)) <= wide


def shortened(one, most=17):
    """Output, without what a slide has no room for."""
    lines = one.text.split("\n")
    return one.text if len(lines) <= most + 2 else "\n".join([*lines[:most], "...", lines[-1]])


def lead_of(paragraph, most=240):
    """As many of a paragraph's first sentences as have room, at least one. A sentence that announces what follows it on
    the page is none."""
    paragraph = REMARK.sub(lambda found: "" if "](" in found[0] else found[0], paragraph)
    hidden = re.sub(r"`[^`]*`|\$[^$]*\$|\([^)]*\)", lambda found: "x" * len(found[0]), paragraph)
    ends = [found.end() for found in re.finditer(r"[.?!]\*{0,2}(?=\s|$)(?!\s+\d)", hidden)]
    lead = ""
    for begin, end in zip([0, *ends], ends):
        sentence = paragraph[begin:end].strip()
        if lead and len(lead) + len(sentence) > most:
            break
        lead += f" {sentence}"
    return lead.strip()


def sections(text):
    """(title, [block]) of the text before the first section, of each section and of each subsection."""
    title, found = None, []
    for one in blocks(text):
        if one.kind == "heading":
            if title:
                yield title, found
            title, found = re.sub(r"^\d+\. ", "", one.text), []
        else:
            found.append(one)
    yield title, found


def slides_of(title, found):
    """The slides of a section: its pictures, its formulas together, and its code; if it has none, a table, output, or
    text."""
    texts = [at for at, one in enumerate(found) if one.kind == "text"]
    lead, is_first = lead_of(found[texts[0]].text) if texts else "", True
    formulas = [one.text for one in found if one.kind == "formula"][:4]
    for at, one in enumerate(found):
        if one.kind in ("picture", "code") and fits(one) or one.kind == "formula" and one.text == formulas[0]:
            before = [found[text].text for text in texts if text < at]
            shown = formulas if one.kind == "formula" else [one.text]
            yield Slide(title, lead if is_first or not before else lead_of(before[-1]), one.kind, shown)
            is_first = False
    if is_first:
        outputs = [Block("output", shortened(one)) for one in found if one.kind == "output" and one.text.count("\n") > 5]
        rest = next((one for one in [*(one for one in found if one.kind == "table"), *outputs] if fits(one)), None)
        more = [lead_of(found[at].text, 0) for at in texts[1:5]]
        shown = [rest.text] if rest else [text for text in more if len(text) > 25]
        if rest or shown or len(lead) > 100:
            yield Slide(title, lead, rest.kind if rest else "text", shown)


def joined(slides):
    """Sections of text that follow one another are on one slide, four at most."""
    for is_text, some in groupby(slides, lambda slide: slide.kind == "text"):
        some = list(some)
        count = -(-len(some) // 4) if is_text else len(some)
        parts = [some[len(some) * part // count:len(some) * (part + 1) // count] for part in range(count)]
        for part in parts:
            if len(part) == 1:
                yield part[0]
                continue
            items = [f"**{slide.title}.** {lead_of(slide.lead, 480 // len(part))}" for slide in part]
            title = f"{part[0].title} … {part[-1].title}"
            yield Slide(title if len(title) < 50 else f"{part[0].title} …", "", "text", items)


def deck(text):
    """The slides of a chapter's page between its first and its last one, at most MOST - 2."""
    found = list(joined(slide for title, some in list(sections(text))[1:] if not re.match(LEFT_OUT, title)
                        for slide in slides_of(title, some) if MOVES not in "".join(slide.shown)))
    def rank(at):  # beyond two slides of a section, a table of another one says more
        before = sum(one.title == found[at].title for one in found[:at])
        return before > 1, KINDS.index(found[at].kind), at
    best = sorted(range(len(found)), key=rank)[:MOST - 2]
    return [found[at] for at in sorted(best)]
