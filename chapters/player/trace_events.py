"""A record as a trace in Chrome's format: a process for each device, and in it a row for what the device computes, and one
for each stream of calls, which is a group's. Perfetto wants that spans of a row lie in or behind each other."""
from itertools import count


def trace_of(record):
    """The trace, as JSON's values. Times are in microseconds."""
    events = [event for device in range(len(record.devices)) for event in events_of(record, device)]
    events.sort(key=lambda event: (event["ph"] != "M", event.get("ts", 0), -event.get("dur", 0)))
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {**record.job, "end": record.end}}


def events_of(record, device):
    """The events of a device: names of rows, spans, and the bytes that it holds by purpose."""
    rows = Rows()
    for section in record.devices[device]:
        yield from ({"ph": "X", "pid": device, **span} for span in spans_of(record, section, rows))
        yield from ({"ph": "C", "pid": device, "name": "bytes held", **one} for one in memory_of(section))
    yield {"ph": "M", "pid": device, "name": "process_name", "args": {"name": f"device {device}"}}
    yield {"ph": "M", "pid": device, "name": "process_sort_index", "args": {"sort_index": device}}
    for row, name in rows.names():
        yield {"ph": "M", "pid": device, "tid": row, "name": "thread_name", "args": {"name": name}}
        yield {"ph": "M", "pid": device, "tid": row, "name": "thread_sort_index", "args": {"sort_index": row}}


class Rows:
    """The rows of a device. A stream has another row where two of its calls are in flight at once."""

    def __init__(self):
        self.numbers, self.ends, self.next = {}, {}, count()
        self.of("compute", 0, 0)

    def of(self, stream, begin, end):
        """The row of a span."""
        for lane in count():
            row = self.numbers.get((stream, lane))
            if row is None:
                row = self.numbers[stream, lane] = next(self.next)
            if self.ends.get(row, begin) <= begin:
                self.ends[row] = end
                return row

    def names(self):
        return [(row, f"{stream} {lane + 1}" if lane else stream) for (stream, lane), row in self.numbers.items()]


def spans_of(record, section, rows):
    """A span for each operation, each call, from when it is made until its result is there, and each wait."""
    ends = {event.of: event.ends for event in section.events if event.kind == "wait"}
    latest = max((event.ends for event in section.events if event.t is not None), default=0)
    for at, event in enumerate(section.events):
        if event.t is None:
            continue
        never_ends = event.took == -1 or event.took is None and at not in ends
        end = latest if never_ends else ends.get(at, event.ends)
        stream = "compute" if event.kind != "call" else record.group(event)[1]
        called = section.events[event.of] if event.of is not None else event
        name = called.function if event is called else f"wait for {called.function}"
        told = {"line": event.line is not None and record.place(event.line), **event.context, "call": called.number,
                "bytes": sum(row[2] for row in event.sends), "operations": event.what.get("flops"),
                "section": section.name, "never ends": never_ends}
        yield {"tid": rows.of(stream, event.t, end), "ts": section.began + event.t, "dur": end - event.t,
               "cat": event.context.get("phase", section.name), "name": name,
               "args": {key: value for key, value in told.items() if value or key in ("micro_batch", "stage")}}


def memory_of(section):
    """The bytes held, whenever they have changed. Memory has the time of the event before."""
    at, before = 0, None
    for event, held in zip([None, *section.events], section.bytes_held()):
        if event and event.t is not None:
            at = event.ends
        if held != before:
            before = held
            yield {"ts": section.began + at, "args": held}
