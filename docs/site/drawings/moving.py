"""A drawing that moves: the ring of an all-reduce on four devices, as a recorded run of chapter 00 made it.

Only the places are chosen: who sends which chunk to whom, which addends are in it, and how many bytes have been sent, is
read from the record."""
from records import recorded
from shapes import DEVICES, svg, text

PLACES = ((56, 42), (344, 42), (344, 226), (56, 226))  # of devices 0 to 3, in a ring
WIDTH, HEIGHT, STRIPE, CHUNK = 480, 370, 20, 24
BEFORE, MOVES, RESTS, AFTER = 1.2, 0.9, 0.5, 2.4  # seconds: at the start, of a message, behind it, at the end


def moving(_, devices):
    """The picture `moving 4`: chunks that go round, and a stripe for each addend that they have."""
    run = recorded(int(devices), ("00", "--only", "ring"), "")
    states = [[addends(values) for values in states_of(run, device)] for device in range(int(devices))]
    sends = sends_of(run)
    if len(PLACES) != len(states) or {len(sends) + 1} != {len(of_device) for of_device in states}:
        raise ValueError(f"moving: expected {len(PLACES)} devices with a state before and behind each message, "
                         f"given {len(states)}, {len(sends)} messages and {len(states[0])} states")
    total = BEFORE + len(sends) * (MOVES + RESTS) + AFTER
    begins = [BEFORE + k * (MOVES + RESTS) for k in range(len(sends))]
    parts = [style(begins, total), *arrows()]
    for device, (x, y) in enumerate(PLACES):
        parts.append(text(x + 2 * STRIPE, y - 9, f"device {device}"))
        parts += chunks_of(states[device], x, y)
    told = ["Each device has four numbers. All want the four sums."]
    sent = 0
    for k, to in enumerate(sends):
        for device, (receiver, size) in enumerate(to):
            before, after = (states[receiver][at] for at in (k, k + 1))
            chunk = next(chunk for chunk in range(len(before)) if before[chunk] != after[chunk])
            has = states[device][k][chunk]
            parts.append(message(k, has, chunk, PLACES[device], PLACES[receiver]))
        sent += size
        told.append(f"{'Send on, and add' if len(after[chunk]) > len(has) else 'Send a sum on'}: message {k + 1} of "
                    f"{len(sends)}. Each device has sent {sent} bytes.")
    told.append(f"All devices have all sums. Each has sent {sent} bytes.")
    for k, words in enumerate(told):
        parts.append(text(WIDTH / 2, HEIGHT - 14, words, kind=f"soft w{k}"))
    return svg(WIDTH, HEIGHT, parts, "an all-reduce: four devices add up what each of them has, in a ring")


def states_of(run, device):
    """The numbers of a device before the first message, and behind each."""
    count = len(run.record.devices)
    whole = [numbers for _, _, numbers in run.values(device, 0) if len(numbers) == count]
    return whole[-2 * count + 1:]


def addends(values):
    """Of each chunk, whose addends are in it: 2022 is of devices 0, 2 and 3."""
    told = [f"{int(value):0{len(values)}}" for value in values]
    return [[device for device, digit in enumerate(digits) if digit != "0"] for digits in told]


def sends_of(run):
    """Of each message, to whom each device sends how many bytes."""
    calls = [step for step in run.steps if step.kind == "call"]
    return [[next((to, size) for event in item.events for to, _, size in event.sends) for item in step.items]
            for step in calls]


def chunks_of(states, x, y):
    """A device's chunks, one below the other. A stripe shows itself when its addend is there."""
    parts = []
    for chunk in range(len(states[0])):
        top = y + chunk * CHUNK
        for addend, colour in enumerate(DEVICES[:len(states[0])]):
            since = next(k for k, state in enumerate(states) if addend in state[chunk])
            shown = f' class="a{since}"' if since else ""
            parts.append(f'<rect x="{x + addend * STRIPE}" y="{top}" width="{STRIPE}" height="{CHUNK}" '
                         f'fill="{colour}"{shown}/>')
        parts.append(frame_at(x, top, 0.8))
    return parts


def frame_at(x, y, width):
    """The frame of a chunk."""
    return (f'<rect x="{x}" y="{y}" width="{STRIPE * len(PLACES)}" height="{CHUNK}" fill="none" class="edge" '
            f'stroke-width="{width}"/>')


def message(k, has, chunk, start, end):
    """A chunk on its way."""
    (x, y), y_of = start, start[1] + chunk * CHUNK
    stripes = "".join(f'<rect x="{x + addend * STRIPE}" y="{y_of}" width="{STRIPE}" height="{CHUNK}" '
                      f'fill="{DEVICES[addend]}"/>' for addend in has)
    return f'<g class="m{k}" style="--x:{end[0] - x}px;--y:{end[1] - y}px">{stripes}{frame_at(x, y_of, 1.6)}</g>'


def arrows():
    """The ring, between devices."""
    edge = 'fill="none" class="grid" stroke-width="1.5"'
    return [f'<path d="M150 90H330m-7 -5l7 5l-7 5" {edge}/>', f'<path d="M384 150V198m-5 -7l5 7l5 -7" {edge}/>',
            f'<path d="M330 274H150m7 -5l-7 5l7 5" {edge}/>', f'<path d="M96 198V150m-5 7l5 -7l5 7" {edge}/>']


def style(begins, total):
    """What shows itself when. Who wants no motion sees the end."""
    def at(seconds):
        return f"{100 * seconds / total:.2f}%"
    rules, last = [], len(begins)
    for k, begin in enumerate(begins):
        there, gone = begin + MOVES, total - 0.3
        rules.append(f"@keyframes a{k + 1}{{0%,{at(there - 0.05)}{{opacity:0}}{at(there)},{at(gone)}{{opacity:1}}"
                     "100%{opacity:0}}")
        rules.append(f"@keyframes m{k}{{0%,{at(begin - 0.01)}{{opacity:0;transform:none}}{at(begin)}"
                     f"{{opacity:1;transform:none;animation-timing-function:ease-in-out}}{at(there)}"
                     f"{{opacity:1;transform:translate(var(--x),var(--y))}}{at(there + 0.05)},100%"
                     "{opacity:0;transform:translate(var(--x),var(--y))}}")
        rules.append(f".sb .a{k + 1}{{animation:a{k + 1} {total:.1f}s infinite}}"
                     f".sb .m{k}{{opacity:0;animation:m{k} {total:.1f}s infinite}}")
    ends = [*begins, begins[-1] + MOVES + RESTS, total]
    for k in range(last + 2):
        since, until = 0 if k == 0 else ends[k - 1], ends[k]
        shown = f"{at(since)},{at(until - 0.01)}{{opacity:1}}" if k else f"0%,{at(until - 0.01)}{{opacity:1}}"
        before = f"0%,{at(since - 0.01)}{{opacity:0}}" if k else ""
        after = f"{at(until)},100%{{opacity:0}}" if k < last + 1 else ""
        rules.append(f"@keyframes w{k}{{{before}{shown}{after}}}"
                     f".sb .w{k}{{{'' if k == last + 1 else 'opacity:0;'}animation:w{k} {total:.1f}s infinite}}")
    rules.append("@media(prefers-reduced-motion:reduce){.sb *{animation:none!important}}"
                 ".sb:hover *{animation-play-state:paused}")
    return f"<style>{''.join(rules)}</style>"
