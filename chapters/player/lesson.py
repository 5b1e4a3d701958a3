"""What a chapter teaches with its run: stops of a tour, and questions whose answers the record has.

Both stand in a text file beside the chapter's page, tour.txt. Blocks are separated by empty lines; a line that begins
with a space goes on."""
import ast
import html
import operator
import re
from collections import defaultdict

from measures import ANSWERS, letters_of
from reader import SENDS

KINDS = {"run": {"run", "variant", "sizes"}, "stop": {"stop", "lights", "text"},
         "question": {"question", "at", "asks", "choices", "why"}}
LIGHTS = ("sentence", "source", "messages", "devices", "memory", "parameters", "optimizer", "gradients", "activations",
          "letters", "schedule")
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
SINGULAR = {"bytes": "byte", "messages": "message", "calls": "call", "micro-batches": "micro-batch"}
SHOWN = {"*": " · ", "-": " − ", "+": " + ", "/": " / "}


class Lesson:
    """A chapter's tour.txt. Raises ValueError: which line is wrong, and how."""

    def __init__(self, path):
        self.path, self.stops, self.questions, self.run, self.variant, self.sizes = path, [], [], "", "", {}
        for line, block in blocks(path):
            kind = next(iter(block))
            expected = KINDS.get(kind)
            if not expected or set(block) != expected:
                lacks = f"a block of {', '.join(sorted(expected or KINDS))}"
                raise ValueError(f"{path}:{line}: expected {lacks}, given {', '.join(sorted(block))}")
            block["line"] = line
            if kind == "run":
                self.run, self.variant = block["run"], block["variant"]
                if wrong := [one for one in block["sizes"].split() if not re.fullmatch(r"[A-Z]=\d+", one)]:
                    raise ValueError(f"{path}:{line}: expected sizes such as N=4, given {wrong[0]}")
                self.sizes = {one[0]: int(one[2:]) for one in block["sizes"].split()}
            elif kind == "stop":
                if wrong := set(block["lights"].split()) - {*LIGHTS}:
                    raise ValueError(f"{path}:{line}: expected of {', '.join(LIGHTS)}, given {min(wrong)}")
                self.stops.append(block)
            else:
                self.questions.append(block)

    def words(self):
        """The number of devices, and what the run's program is given."""
        words = self.run.split()
        at = words.index("-n")
        return int(words[at + 1]), [words[1], *(words[at + 2:] or (["train"] if self.variant else []))]

    def of(self, page):
        """What the page of a run shows of it: nothing of what does not fit the run."""
        asked = [self.question(block, page) for block in self.questions]
        letters = letters_of(page, 0) if page.steps else {}
        is_of_these_sizes = all(letters.get(letter) == size for letter, size in self.sizes.items())
        stops = [(step_at(page, block["stop"]), block) for block in self.stops if is_of_these_sizes]
        return {"questions": [one for one in asked if one],
                "stops": [{"step": at, "lights": block["lights"].split(), "text": marked(block["text"])}
                          for at, block in stops if at is not None]}

    def question(self, block, page):
        """A question with its answer, of the record. None if the run lacks the step, or the answer is no choice."""
        at = step_at(page, block["at"])
        answer = None if at is None else answer_of(page, at, block["asks"])
        if answer is None:
            return None
        value, unit = answer
        letters = letters_of(page, at)
        choices = {}
        for text in map(str.strip, block["choices"].split("|")):
            choice = text if isinstance(value, str) else value_of(text, letters)
            choices.setdefault(choice, text)
        if value not in choices:
            return None
        order = list(choices) if isinstance(value, str) else sorted(choices)
        return {"step": at, "question": marked(block["question"]), "why": marked(block["why"]),
                "choices": [written(choice, unit) for choice in order], "answer": order.index(value),
                "formula": "" if isinstance(value, str) else formula(choices[value], letters, written(value, unit))}


def blocks(path):
    """(line, {key: value}) of each block."""
    block, begins, key = {}, 0, None
    for number, line in enumerate([*path.read_text("utf-8").splitlines(), ""], 1):
        if line.startswith("#"):
            continue
        if not line.strip():
            if block:
                yield begins, block
            block = {}
            continue
        if line[0] == " " and block:
            block[key] += " " + line.strip()
            continue
        key, colon, value = line.partition(":")
        if not colon or key in block:
            raise ValueError(f"{path}:{number}: expected KEY: VALUE, given {line}")
        begins = begins if block else number
        block[key] = value.strip()


def lesson_of(page, root):
    """What a run's chapter teaches with it, if it trains the variant that the chapter's tour is about."""
    path = root / "chapters" / page.record.job.get("folder", "") / "tour.txt"
    if not path.is_file():
        return {"questions": [], "stops": []}
    lesson = Lesson(path)
    is_of_it = page.record.job.get("command") in ("train", "scenes") and page.record.job.get("variant", "") == lesson.variant
    return lesson.of(page) if is_of_it else {"questions": [], "stops": []}


def step_at(page, pattern):
    """The first step, or the last one, that has all words of a pattern: a function, phase, block, device=2, micro=0.
    `peak`: the step with the most memory. None: there is none."""
    words = pattern.split()
    if words == ["peak"]:
        return max(page.peaks.values())[1] if page.peaks else None
    wanted = [word for word in words if word != "last"]
    found = [at for at, step in enumerate(page.steps) if all(has(page, step, word) for word in wanted)]
    return found[-1 if "last" in words else 0] if found else None


def has(page, step, word):
    section = page.record.devices[step.items[0].device][step.items[0].section].name
    name, _, value = word.partition("=")
    if name == "device":
        return int(value) in step.devices
    if name == "micro":
        return step.context.get("micro_batch") == int(value)
    functions = {event.function for item in step.items for event in item.events}
    if word == "send":
        return bool(functions & set(SENDS))
    if word in ("update", "exchange"):  # adam_update, an exchange
        return any(re.search(rf"[_ ]{word}$", name) for name in functions)
    return word in {*functions, step.kind, step.context.get("phase"), step.context.get("block"), f"section={section}"}


def answer_of(page, at, asks):
    """(the value, its unit) of what a question asks. None if the run has none."""
    for pattern, find in ANSWERS.items():
        if found := re.fullmatch(pattern, asks):
            value = find(page, at, *found.groups())
            return None if value is None else value
    raise ValueError(f"expected a question of {', '.join(ANSWERS)}, given {asks}")


def value_of(text, letters):
    """The value of 2*(N-1)*B, where `letters` says what letters are."""
    def of(node):
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](of(node.left), of(node.right))
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return node.value
        if isinstance(node, ast.Name) and node.id in letters:
            return letters[node.id]
        raise ValueError(f"expected an expression of {' '.join(letters)}, given {text}")
    value = of(ast.parse(text, mode="eval").body)
    return int(value) if value == int(value) else round(value, 1)


def formula(text, letters, value):
    """2 · (N − 1) · B = 2 · (4 − 1) · 64 = 384 bytes"""
    def spaced(words):
        return re.sub(r"[-*+/]", lambda found: SHOWN[found[0]], words.replace(" ", ""))
    filled = re.sub(r"[A-Z]", lambda found: f"{letters[found[0]]:,}", text)
    parts = dict.fromkeys([spaced(text), spaced(filled)])
    return " = ".join([*(part for part in parts if part != value.split()[0]), value])


def written(value, unit):
    if isinstance(value, str):
        return value
    return f"{value:,} {unit}" if unit == "%" or value != 1 else f"1 {SINGULAR[unit]}"


def marked(text):
    """Text as HTML: `names` are code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))
