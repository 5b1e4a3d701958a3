"""Joins the page that counts costs: its frame and program, the engine's module, and published networks."""
import json

import join
import whole

MODULES = ("drawing", "../run/engine", "../costs/table", "../costs/main")
COSTS = join.PAGE.parent / "costs"


def page(root, module):
    """The page. `module`: the path of the engine's JavaScript, beside which its WebAssembly lies."""
    worker = (whole.RUN / "worker.js").read_text("utf-8")
    texts = {"data": {"northanger.txt": (root / "chapters/data/northanger.txt").read_text("utf-8")},
             "program": module.read_text("utf-8") + "\n" + worker}
    return join.filled("../costs/page.html", {
        "style": join.style() + (whole.RUN / "page.css").read_text("utf-8") + (COSTS / "page.css").read_text("utf-8"),
        "networks": join.embedded(json.loads((COSTS / "networks.json").read_text("utf-8"))),
        "texts": whole.packed(json.dumps(texts, ensure_ascii=False).encode()),
        "module": whole.packed(module.with_suffix(".wasm").read_bytes()),
        "program": join.program(*MODULES)})
