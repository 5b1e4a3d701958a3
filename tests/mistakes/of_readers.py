"""The mistakes of readers, from the catalogue: `tests/wrong_programs/engine_mistakes.py`."""
import re

from engine_mistakes import ALL as OF_READERS
from engine_mistakes import DOES_NOT_COMPILE
from mistake import Mistake

CURVES = {DOES_NOT_COMPILE: "does not compile", 0: "nothing to see", 86: "may look fine"}


def mistake(m):
    words = re.sub(r"\W+", "-", re.sub(r"[()=]", "", m.what)).strip("-").lower()
    who = "A student who tried it first" if m.of_student else "A reader of the chapter"
    return Mistake(f"{m.chapter[:2]} {m.file.removesuffix('.hpp')}", f"chapters/{m.chapter}/{m.file}",
                   f"{m.chapter} {m.run}".strip(), "", f"{m.chapter[:2]}-{words}", m.text, m.instead,
                   f"{who}: {m.what}.", CURVES.get(m.code, "stops with an error"))


EVERY = [mistake(m) for m in OF_READERS]
# The first mistake with each of the compiler's sentences, and with each exit code.
FIRST = {m.says if m.code == DOES_NOT_COMPILE else m.code: mistake(m) for m in reversed(OF_READERS)}
ALL = [m for m in EVERY if m in FIRST.values()]
