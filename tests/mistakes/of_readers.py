"""The mistakes of readers, from the catalogue of wrong programs: `tests/wrong_programs/engine_mistakes.py`."""
import re

from engine_mistakes import ALL as OF_READERS
from engine_mistakes import DOES_NOT_COMPILE
from mistake import Mistake

CURVES = {DOES_NOT_COMPILE: "does not compile", 0: "nothing to see", 86: "another curve"}


def mistake(m):
    words = re.sub(r"\W+", "-", re.sub(r"[()=]", "", m.what)).strip("-").lower()
    who = f"A student who tried it first: {m.what}." if m.of_student else f"A reader of the chapter: {m.what}."
    return Mistake(f"{m.chapter[:2]}-{words}", f"{m.chapter[:2]} {m.file.removesuffix('.hpp')}",
                   f"chapters/{m.chapter}/{m.file}", m.text, m.instead, who,
                   CURVES.get(m.code, "stops with an error"), f"{m.chapter} {m.run}".strip())


ALL = [mistake(m) for m in OF_READERS]
