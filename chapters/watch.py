"""Looks after a job. What goes wrong with a process, which cannot say it itself, is found here: a device that
was lost, or that others wait for."""
import contextlib, os, re, signal, struct, time
from pathlib import Path

from setup import descendants, is_alive, say, state_of

# ---- What devices say ------------------------------------------------------------------------------------
class Record:
    """What a device was doing last: chapters/engine/device/runtime/watchdog/flight_record.hpp."""
    layout = struct.Struct("<5q80s168s")

    def __init__(self, device, content):
        self.device = device
        self.process, state, since, self.calls, line, call, file = self.layout.unpack(content)
        self.state = ("runs", "waits", "polls", "has ended")[state]
        self.seconds = time.time() - since / 1000  # in this state
        self.call, file = (text.split(b"\0")[0].decode(errors="replace") for text in (call, file))
        self.file, self.line = re.sub(".*/(?=(chapters|tests)/)", "", file), line
        place = f" at {self.file}:{line}" if line else ""
        self.last_call = f"call {self.calls} ({self.call}){place}" if self.call else "no call"
        self.doing = f"{'after' if self.state == 'runs' else 'in'} {self.last_call}"

    def is_lost(self):
        return self.process > 0 and self.state != "has ended" and not is_alive(self.process)

class Records:
    def __init__(self, folder):
        self.folder = Path(folder)

    def last_words(self):
        """Code and text of the error that ends the job, or (0, "")."""
        code, _, text = self.text_of("last_words").partition(" ")
        return int(code or 0), text.rstrip("\n")

    def text_of(self, name):
        path = self.folder / name
        return path.read_text(errors="replace") if path.exists() else ""

    def any(self):
        """Whether a device has begun, on this host."""
        return next(self.folder.glob("device_*"), None) is not None

    def all(self):
        found = []
        for path in self.folder.glob("device_*"):
            content = path.read_bytes()
            if len(content) == Record.layout.size:
                found.append(Record(int(path.name[7:]), content))
        return sorted(found, key=lambda record: record.device)

# ---- What goes wrong with a process ----------------------------------------------------------------------
def lost_device(records, lost, about_processes, code, launcher):
    """The device that was lost, or None, and what is to be said of that, a list of lines. `lost` are those
    whose processes were gone first; the text about processes is Open MPI's; the code is the launcher's, below
    0 where a signal killed that. Records of other hosts are not seen."""
    killed = re.search(r"process rank (\d+) .*exited\s+on\s+signal\s+(\d+)", about_processes)
    left = re.search(r"due to process rank (\d+)", about_processes)
    ended = re.search(r"Process name: \[\S*,(\d+)\]\s+Exit code:\s+(\d+)", about_processes)
    named = [int(found[1]) for found in (killed, left, ended) if found]
    device = next((d for d in named if d in lost), (named or lost or [None])[0])
    known = {record.device: record for record in records.all()}
    record = known.get(device)
    cut = re.search(r"lost communication with a remote daemon.*Remote daemon\s*:.* on node (\S+)",
                    about_processes, re.S)
    if cut:
        what = f"a host was lost: {cut[1]} does not answer any more (it has failed, or the link is cut)"
        return None, [what, *what_others_did(known, None)]
    if not named and (code < 0 or code == 1):  # what Open MPI's ends in when it is told to
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else "ended before its devices"
        return None, [f"the launcher was lost: {launcher} {how}", *what_others_did(known, None)]
    if device is None and code > 128 and code - 128 in set(signal.Signals):
        return device, [f"a device was lost: killed by {signal.Signals(code - 128).name}"]
    # A device without a record, on another host, may have ended as it should, with an exit code of its own.
    if not killed and (record.state == "has ended" if record else not left):
        return None, []
    host = re.search(r"on\s+node\s+(\S+)", about_processes)
    when = f"after {record.last_call}" if record else f"on {host[1] if host else 'another host'}"
    how = "ended"
    if device in named:
        how = (f"was killed by {signal.Signals(int(killed[2])).name}" if killed else
               f"left the program with exit code {ended[2] if ended else 0}")
    return device, [f"device {device} was lost: it {how} {when}", *what_others_did(known, device)]

def what_others_did(known, lost):
    """A line for each call in which devices were, but the lost one."""
    others = {}
    for other in known.values():
        if other.device != lost and other.state != "has ended":
            others.setdefault(other.doing, []).append(other.device)
    return [f"  {devices_text(devices)} {'was' if len(devices) == 1 else 'were'} {what}"
            for what, devices in others.items()]

def devices_text(devices):
    return f"device{'s' if len(devices) > 1 else ''} {', '.join(map(str, devices))}"

class Watch:
    """Looks after a job, ten times a second. Says once of each call for whom the others wait, after ten
    seconds in which neither that device nor they have made another call. When a device has failed or is lost,
    ends the other devices of this host: Open MPI's launcher would take seconds. Ends a launcher that stays
    without devices, as Open MPI's does at times, after five seconds. If the devices had ended together, the job has
    the code on which they agreed."""
    def __init__(self, launcher, records):
        self.launcher, self.records, self.has_devices, self.since = launcher, records, False, None
        self.looks, self.told, self.lost, self.stays = 0, set(), [], False
        self.is_of_another = False  # MPI; then its devices, which are alone, end by themselves
        self.seen = {}  # what each device was doing when it was looked at last, and since when

    def __call__(self, launcher):
        """The exit code where it stays too long, or writes to an output that takes no more; else None."""
        self.looks += 1
        if self.output.error:
            self.interrupt(launcher)
            return 128 + signal.SIGPIPE
        failed, _ = self.records.last_words()
        if not failed and not self.lost and self.looks % 5:  # to look at all processes costs more
            return None
        processes = descendants(launcher.pid)[1:]
        self.end_devices(failed, processes)
        are_there = any(map(is_alive, processes))
        self.has_devices |= are_there or self.records.any()
        if not failed and (are_there or not self.has_devices):
            self.since = None
            self.report_awaited_devices()
            return None
        self.since = self.since or time.monotonic()
        if time.monotonic() - self.since < 5:
            return None
        if not failed and not self.lost and (agreed := self.records.text_of("exit_codes").split()):
            return int(agreed[0])
        self.stays = True
        return failed or 70

    def end_devices(self, failed, processes):
        """Ends all devices once one has failed, or at the second look that finds one lost: by then the
        launcher knows how that one ended. Devices that were interrupted end by themselves."""
        if failed == 130 or failed and self.is_of_another:
            return
        records = self.records.all()
        if failed or self.lost:
            self.send(signal.SIGKILL, processes)
        self.lost = self.lost or [record.device for record in records if record.is_lost()]

    def interrupt(self, launcher):
        """Tells the devices of this host to end after their step, for which they have three seconds."""
        told = self.send(signal.SIGTERM, descendants(launcher.pid)[1:])
        deadline = time.monotonic() + 3
        while any(map(is_alive, told)) and time.monotonic() < deadline:
            time.sleep(0.01)

    def send(self, number, processes):
        """Sends a signal to those of these processes that are devices, and returns them."""
        devices = [record.process for record in self.records.all() if record.process in processes]
        for process in devices:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        return devices

    def report_awaited_devices(self):
        """A device that runs for long while another waits for long is named, and not accused. So are all
        where none runs, and some poll: those may do something else, which nobody can know."""
        records = [record for record in self.records.all() if record.state != "has ended"]
        still = [record for record in records if self.seconds_still(record) >= 10]
        running = [record for record in still if record.state == "runs"]
        for record in running if len(running) < len(still) else ():
            stopped = " (its process is stopped)" if state_of(record.process) in "Tt" else ""
            self.tell_once(record, f"for device {record.device}{stopped}, last heard of in "
                                   f"{record.last_call}")
        polling = [record for record in still if record.state == "polls"]
        if polling and len(still) == len(records) and not running:
            lines = [f"\n  device {record.device} {record.state} {record.doing}" for record in records]
            self.tell_once(polling[0], f"for devices that wait, or poll what is not done:{''.join(lines)}")

    def seconds_still(self, record):
        """For how long the device has made no call, as far as it was watched, and has been in its state."""
        now, doing = time.monotonic(), (record.calls, record.call, record.line)
        before, since = self.seen.get(record.device, (None, now))
        self.seen[record.device] = doing, since if before == doing else now
        return min(now - self.seen[record.device][1], record.seconds)

    def tell_once(self, record, text):
        """Once of each device and call."""
        if (record.device, record.calls) not in self.told:
            self.told.add((record.device, record.calls))
            say(f"waiting 10 s {text}")
