"""The steps of a run's page: the events of all devices, in an order in which they can have happened.

A step is one call of one group, or a run of operations between calls, which devices that do the same share."""
from collections import defaultdict

from reader import MEMORY, RECEIVES, SENDS

MOST = 1000  # steps of a page
FOLDED = 60  # more of them open folded


class Item:
    """What one device does in a step: its events from `begin` to before `end`. It begins with calls that the device
    waits for, and messages that it is ready to receive: a step of their own would say little."""

    def __init__(self, section, device, begin, kind):
        self.section, self.device, self.begin, self.end, self.kind = section, device, begin, begin, kind
        self.waits = []   # the events of the calls that it waits for
        self.events = []  # its own, without those of memory
        self.key = None   # of a call: what it meets
        self.needs = []   # the keys of messages that it waits for

    @property
    def main(self):
        """Its own events, or where it has none, those that it waits for."""
        return self.events or self.waits

    @property
    def last(self):
        return self.main[-1]

    @property
    def context(self):
        return self.last.context

    def goes_on_with(self, event):
        """Whether an operation belongs to it, too: to the same block, or to the first that it names."""
        missing = {"block"} - set(self.context)
        known = {name: value for name, value in event.context.items() if name not in missing}
        return self.kind == "compute" and self.context == known

    @property
    def signature(self):
        """Devices whose items have the same one do the same."""
        did = tuple((event.function, event.line) for event in self.waits + self.events)
        return self.kind, tuple(self.context.items()), did


class Step:
    """One step: items of different devices."""

    def __init__(self, items, is_open=False):
        self.items = sorted(items, key=lambda item: (item.last.function in RECEIVES, item.device))
        self.is_open = is_open  # a call that not all of its devices have made
        self.slots = {}         # device: (begin, end), in units of the order
        self.uses = {}          # name: the step that made it, in the forward pass

    @property
    def kind(self):
        return self.items[0].kind

    @property
    def first(self):
        return self.items[0].main[0]

    @property
    def context(self):
        return self.items[0].context

    @property
    def is_of_one(self):
        """Whether one device does it. One that receives in the step of a send does not count."""
        return len({item.last.function in RECEIVES for item in self.items}) == len(self.items)

    @property
    def devices(self):
        return [item.device for item in self.items]


def items_of(record, number, device):
    """The items of a device's section, in order."""
    section, items, calls, keys = record.devices[device][number], [], defaultdict(int), {}
    is_open = False  # whether the last item has waits alone
    for at, event in enumerate(section.events):
        if event.kind in MEMORY:
            continue
        key = meeting(record, event, device, calls) if event.kind == "call" else None
        is_quiet = event.kind == "wait" or event.function == "post_receive"
        kind = "wait" if is_quiet else "compute" if event.kind == "operation" else "call"
        last = items[-1] if items else None
        goes_on = is_open or (kind == "compute" and last and last.goes_on_with(event))
        if not goes_on:
            last = Item(number, device, at, kind)
            items.append(last)
        is_open = is_quiet
        if not is_quiet:
            last.kind, last.key = kind, key
            last.events.append(event)
            continue
        if event.kind == "call":
            keys[at] = key
        if event.took is not None:  # the device waits here
            call = event.of if event.kind == "wait" else at
            last.waits.append(section.events[call])
            last.needs += [keys[call]] if call in keys else []
    for before, item in zip(items, items[1:]):
        before.end = item.begin = boundary(section.events, before, item.begin)
    if items:
        items[0].begin, items[-1].end = 0, len(section.events)
    return [item for item in items if item.main]


def boundary(events, before, begin):
    """Memory that is made for an item belongs to it, with the purpose that it gets; what is freed after one, to that one."""
    at, first, written = begin, begin, before.last.to if before.main else None
    while first > before.begin + 1 and events[first - 1].kind in ("made", "moved") and events[first - 1].tensors[0] != written:
        first -= 1
        if events[first].kind == "made":
            at = first
    return at


def meeting(record, event, device, calls):
    """What a call has in common with those that it meets: the group and the order in it, or both ends."""
    ends = ()
    if event.function in SENDS + RECEIVES:
        peer = event.what.get("peer", device)
        ends = (device, peer) if event.function in SENDS else (peer, device)
    key = (event.what["group"], *ends)
    calls[key, event.function in RECEIVES] += 1
    return (*key, calls[key, event.function in RECEIVES])


class Order:
    """Takes the items of all devices one after the other: the next one is the one that can begin first."""

    def __init__(self, record, number, ends, length):
        self.record, self.ends, self.length, self.steps = record, ends, length, []
        self.queues = {device: items_of(record, number, device) for device, sections in enumerate(record.devices)
                       if number < len(sections)}
        self.sent = {}  # key: when its message is there

    def heads(self, *kinds):
        """The next items of devices, without those that wait for a message that nobody has sent."""
        return [queue[0] for queue in self.queues.values() if queue and queue[0].kind in kinds and
                all(key in self.sent for key in queue[0].needs)]

    def begin(self, item):
        """When a device can begin an item: after its own work, and when the messages are there that it receives."""
        needs = item.needs + ([item.key] if item.key and item.last.function in RECEIVES else [])
        return max([self.ends[item.device], *(self.sent.get(key, 0) for key in needs)])

    def take(self, items, is_open=False):
        step = Step(items, is_open)
        meets = max(map(self.begin, items)) if step.kind == "call" else 0
        for item in step.items:
            is_message = item.key and item.last.function in SENDS + RECEIVES
            begin = self.begin(item) if is_message else max(self.begin(item), meets)
            ends = begin + self.length(item)
            if is_message and item.last.function in SENDS:
                self.sent[item.key] = begin
            self.queues[item.device].pop(0)
            self.ends[item.device] = ends
            step.slots[item.device] = (round(begin, 2), round(ends, 2))
        self.steps.append(step)

    def alone(self):
        """What devices can do without others: compute, wait for a call. Those that do the same do it in one step."""
        heads = self.heads("compute", "wait")
        for head in heads:
            yield [item for item in heads if item.signature == head.signature]

    def met(self):
        """Calls that can happen now: all of a group make it, or both ends do, or a message is on its way."""
        heads = self.heads("call")
        for head in heads:
            is_message = head.last.function in SENDS + RECEIVES
            if is_message and head.key in self.sent:
                yield [head]
                continue
            if head.last.function in ("post_send", "send_async"):
                yield [item for item in heads if item.signature == head.signature]
                continue
            same = [item for item in heads if item.key == head.key]
            devices = set(head.key[1:3]) if is_message else set(self.record.group(head.last)[0])
            is_one = is_message or len({item.last.function for item in same}) == 1
            if is_one and {item.device for item in same} == devices:
                yield same
            elif is_message and head.last.function in SENDS:
                yield [head]

    def all(self):
        """The steps, until all is done or there are enough."""
        while any(self.queues.values()) and len(self.steps) <= MOST:
            context = self.steps[-1].context if self.steps else None
            able = min([*self.alone(), *self.met()], default=None, key=lambda items: (
                max(map(self.begin, items)), -len(items), items[0].context != context))
            if able:
                self.take(able)
                continue
            heads = [queue[0] for queue in self.queues.values() if queue]
            first = min(heads, key=lambda item: item.last.t)
            self.take([item for item in heads if item.signature == first.signature], is_open=True)
        return self.steps


def length(item):
    """How long an item is in the order: a product is a unit."""
    if item.kind == "call":
        return 0.12 if item.last.function in SENDS + RECEIVES else 0.3
    return sum("flops" in event.what for event in item.events) or 0.2


def steps_of(record, length=length):
    """All steps, at most one more than MOST. `length`: how long an item is."""
    sections = max(map(len, record.devices), default=0)
    steps, ends = [], defaultdict(float)
    for number in range(sections):
        steps += Order(record, number, ends, length).all()
        ends.update(dict.fromkeys(range(len(record.devices)), max(ends.values(), default=0)))
    steps = steps[:MOST + 1]
    link(record, steps)
    return steps


def link(record, steps):
    """Which steps of the forward pass made what a step of the backward pass uses."""
    written = {}
    for number, step in enumerate(steps):
        for item in step.items:
            section = record.devices[item.device][item.section]
            for event in item.waits + item.events:
                for tensor in event.tensors:
                    made = written.get((item.section, item.device, tensor))
                    is_saved = made and is_in("forward", steps[made[0]]) and tensor not in section.names
                    if is_saved and is_in("backward", step) and item is step.items[0]:
                        step.uses.setdefault(made[1], made[0])
                if event.to is not None:
                    name = section.names.get(event.to) or record.assigned.get(event.line)
                    written[item.section, item.device, event.to] = (number, (name, event.function))


def is_in(phase, step):
    return step.context.get("phase") == phase


def groups_of(steps):
    """Runs of steps that belong together, as (begin, words): in a run, a device does one block of one phase and
    micro-batch, or all blocks where that makes too many runs. Devices of a pipeline do different ones at once."""
    for level in (("phase", "stage", "micro_batch", "block"), ("phase", "stage", "micro_batch"), ("phase",)):
        begins, doing = [], {}
        for number, step in enumerate(steps):
            context = {name: step.context[name] for name in level if name in step.context}
            if context.get("phase") == "loss" and "micro_batch" in context:
                context["phase"] = "forward"
            if context.get("phase") == "optimizer":
                context = {"phase": "optimizer"}
            is_new = step.kind == "compute" and context not in doing.values()
            is_other = is_new and any(device in doing for device in step.devices)
            if not begins or is_other:
                begins.append((number, doing := {}))
            if step.kind == "compute":
                doing.update(dict.fromkeys(step.devices, context))
        if len(begins) <= FOLDED:
            break
    return [(begin, words_of_all(doing)) for begin, doing in begins]


def words_of_all(doing):
    """What devices do, {device: context}, in words."""
    if not doing:
        return ""
    different = {tuple(context.items()): context for context in doing.values()}
    if len(different) == 1:
        return words_of(next(iter(doing.values())))
    words = {}
    for device, context in sorted(doing.items()):
        words.setdefault(words_of({name: value for name, value in context.items() if name != "stage"}), []).append(device)
    return "; ".join(f"{'devices' if len(on) > 1 else 'device'} {', '.join(map(str, on))}: {what}" for what, on in words.items())


def words_of(context):
    """A context in words: forward, layer_0, micro-batch 2."""
    named = {"phase": "{}", "block": "{}", "stage": "stage {}", "micro_batch": "micro-batch {}"}
    return " · ".join(form.format(context[name]) for name, form in named.items() if name in context)


def peak_of(record, steps):
    """The most bytes that a device has at once: (device, bytes, step), and (bytes, step) for each device."""
    peaks, held = {}, {}
    for number, step in enumerate(steps):
        for item in step.items:
            place = item.section, item.device
            if place not in held:
                section = record.devices[item.device][item.section]
                held[place] = [sum(by_purpose.values()) for by_purpose in section.bytes_held()]
            most = max(held[place][item.begin:item.end + 1])
            if most > peaks.get(item.device, (-1, 0))[0]:
                peaks[item.device] = (most, number)
    return peaks
