"""Who resumes the calls of a device's stream, moment by moment."""
import re

from shapes import DEVICES, box, svg, text, width_of

STEP, ROW, LEFT = 54, 46, 92  # one moment, one row, and the names of rows


def turns(_, *words):
    """What a chapter does, and what its calls A and B do meanwhile: "start-A:A1 start-B:A. … get-B:A=,B1,B.". Of each word
    of the chapter, the moments: A1 is step 1 of A, A. says that its messages are there, A= that it is done, - is
    nothing."""
    doings = [(name.replace("-", " "), moments.split(",")) for name, _, moments in (word.partition(":") for word in words)]
    begun = {name.split()[-1]: sum(len(moments) for _, moments in doings[:n])
             for n, (name, _) in enumerate(doings) if name.startswith("start ")}
    parts, x = [text(14, 42, "the chapter", "start")], LEFT
    for name, moments in doings:
        width = STEP * len(moments)
        parts += [box(x + 1, 24, width - 2, 28), text(x + width / 2, 42, name, kind="on", size=11),
                  f'<path d="M{x} 20v{38 + ROW * len(begun)}" class="grid" stroke-dasharray="3 3"/>']
        x += width
    moments = [moment for _, some in doings for moment in some]
    gets = next(n for n, (name, _) in enumerate(doings) if name.startswith("get "))
    looks = sum(len(some) for _, some in doings[:gets])  # from then on, the device looks all the time
    for row, call in enumerate(begun):
        y = 76 + ROW * row
        parts += [text(14, y + 18, f"call {call}", "start"), *of_call(call, moments, begun[call], looks, y, DEVICES[row])]
    for n, moment in enumerate(moments):
        if n >= looks and moment.endswith("."):
            parts.append(text(LEFT + STEP * (n + 0.5), 16, "idle", kind="soft", size=11))
    y = 76 + ROW * len(begun) + 16
    return svg(x + 14, y + 10, parts + legend(y), "who resumes two calls, over time")


def of_call(call, moments, begins, looks, y, colour):
    """What one call does: it waits behind another one, runs a step, waits for messages, or has them and is not resumed."""
    parts, since, state = [], begins, "behind"
    def waits(end):
        if end > since:
            style = {"behind": 'stroke-dasharray="1 5"', "away": "", "there": 'stroke-width="5"'}[state]
            parts.append(f'<path d="M{LEFT + STEP * since:.0f} {y + 14}h{STEP * (end - since):.0f}" class="edge" {style}/>')
    for n, moment in enumerate(moments):
        found = re.fullmatch(rf"{call}([.=]|\d)", moment)
        if not found:
            continue
        if found[1] == ".":
            arrives = n + (1 if n >= looks else 0.5)
            waits(arrives)
            since, state = arrives, "there"
            continue
        waits(n)
        what = "done" if found[1] == "=" else f"step {found[1]}"
        parts += [box(LEFT + STEP * n + 2, y, STEP - 4, 28, colour),
                  text(LEFT + STEP * (n + 0.5), y + 18, what, kind="on", size=11)]
        since, state = n + 1, "away"
    return parts


def legend(y):
    """What the lines between steps say."""
    parts, x = [], 14
    for style, words in (('stroke-dasharray="1 5"', "behind A"), ("", "its messages are on their way"),
                         ('stroke-width="5"', "they are there, and nobody resumes it")):
        parts += [f'<path d="M{x} {y - 4}h26" class="edge" {style}/>', text(x + 32, y, words, "start", "soft", 11)]
        x += 32 + width_of(words, 11) + 22
    return parts
