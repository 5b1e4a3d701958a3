"""Joins the page that trains: its frame and program, the engine's module, data, sources, and the player."""
import base64
import gzip
import json

import join
from translate import javascript

MODULES = ("drawing", "../run/choices", "../run/engine", "../run/results", "../run/main")
# What the player needs, in the order of imports, and what the page has instead of files.
TRANSLATED = ("reader", "record", "steps", "sentences", "measures", "join")
ROOTS = ("record.Record", "join.Page")
GIVEN = {"join.filled", "join.style", "join.program", "lesson.lesson_of", "record.source_of"}
RUN = join.PAGE.parent / "run"


def page(root, module, chapters):
    """The page. `module`: the path of the engine's JavaScript, beside which its WebAssembly lies. `chapters`: what
    `shardbook list` prints."""
    listed = json.loads(chapters)
    for variant in (variant for chapter in listed for variant in chapter["variants"]):
        variant["network_options"].pop("--data", None)
    return join.filled("../run/page.html", {
        "style": join.style() + (RUN / "page.css").read_text("utf-8"),
        "picture": (root / "docs/pictures/readme.svg").read_text("utf-8"),
        "chapters": join.embedded(listed),
        "texts": packed(json.dumps(texts(root, module), ensure_ascii=False).encode()),
        "module": packed(module.with_suffix(".wasm").read_bytes()),
        "program": join.program(*MODULES)})


def packed(data):
    """To be inflated in the page. Base 85 (RFC 1924) is 6 % shorter than base 64; a comma stands for its "<", which could
    end a script."""
    return base64.b85encode(gzip.compress(data, 9, mtime=0)).decode().replace("<", ",")


def texts(root, module):
    """What a worker needs besides the module."""
    data = root / "chapters/data"
    return {
        "frame": (join.PAGE / "page.html").read_text("utf-8"), "style": join.style(), "player": join.program(*join.MODULES),
        "sources": sources(root),
        "data": {name: (data / name).read_text("utf-8") for name in ("digits.csv", "northanger.txt")},
        "program": module.read_text("utf-8") + "\n" + program(root)}


def program(root):
    """The worker's program, with the player's Python in JavaScript."""
    player, engine = root / "chapters/player", root / "chapters/engine/record"
    modules = {name: (engine if name == "reader" else player).joinpath(f"{name}.py").read_text("utf-8")
               for name in TRANSLATED}
    parts = [(RUN / f"{name}.js").read_text("utf-8") for name in ("python", "given", "worker")]
    return f"{parts[0]}{parts[1]}{javascript(modules, ROOTS, GIVEN)}{parts[2]}"


def sources(root):
    """The sources whose lines a record names: those of chapters, and of rooms that call for them."""
    places = ("[0-9]*/*.hpp", "engine/engines/*.?pp", "engine/layers/**/*.?pp", "engine/schedules/*.hpp",
              "engine/weights/*.?pp", "engine/workloads/*/*.?pp")
    files = sorted({file for place in places for file in (root / "chapters").glob(place)})
    return {file.relative_to(root).as_posix(): "\n".join(file.read_text("utf-8").splitlines()) for file in files}
