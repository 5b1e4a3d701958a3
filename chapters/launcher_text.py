"""What a job writes goes through here: to tell the launcher's own words from those of its devices, and to
notice an output that takes no more."""
import errno, os, re, select, threading

class Copy:
    """Copies what comes to the pipe `end` to a file descriptor, whose reader may be slow. When that takes no
    more, `error` says why, and what comes is thrown away: whoever writes must not wait."""
    def __init__(self, target):
        self.target, self.error = target, None
        self.is_over, self.patience = False, None  # seconds for the reader at the end; None: for ever
        self.source, self.end = os.pipe()
        self.thread = threading.Thread(target=self.pass_on, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        os.close(self.end)
        self.is_over = True
        self.thread.join(self.patience)

    def pieces(self):
        """What comes, and b"" where nothing has come for a moment. A process that stays after the launcher
        may hold the pipe: it is not waited for."""
        while True:
            if select.select([self.source], [], [], 0.1)[0]:
                if not (piece := os.read(self.source, 1 << 16)):
                    return
                yield piece
            elif self.is_over:
                return
            else:
                yield b""

    def pass_on(self):
        for piece in self.pieces():
            self.write(piece)

    def write(self, text):
        while text and not self.error:
            try:
                text = text[os.write(self.target, text):]
            except OSError as error:
                self.error = error

    def is_closed(self):
        """Its reader has gone, as `head` does: that is no mistake."""
        return self.error and self.error.errno == errno.EPIPE

class LauncherText(Copy):
    """Standard error. Leaves out what Open MPI's launcher says of processes that end, and its remarks on its
    own work. All that comes before the first device has begun is held: it may say why none can begin."""
    block = re.compile(rb"^-{74}\n(.*?\n)-{74}\n", re.M | re.S)
    about_a_process = rb"\s*(MPI_ABORT was invoked|Primary job|Process name:|" \
                      rb"\S+ (noticed that process|detected that one|has exited due)|ORTE has lost comm)"
    remarks = re.compile(rb"^\[[^\]\n]+\] ([^\n]*(ORTE_ERROR_LOG|FORCE-TERMINATE|PMIX_ERR_UNREACH)|"
                         rb"plm:rsh: Warning|\d+ more process|Set MCA param|Epoll MOD|Read -1, expected).*\n", re.M)
    # What may be the beginning of a block or of a remark, at the end of what has come.
    begun = re.compile(rb"^(-(-{0,73}\Z|-{73}\n(?=\s*\Z|%s))|\[[^\n]*\Z)" % about_a_process, re.M)

    def __init__(self, has_begun):
        super().__init__(2)
        self.has_begun, self.about_processes, self.held = has_begun, "", b""

    def pass_on(self):
        for piece in self.pieces():
            self.held += piece.replace(b"\0", b"")  # Open MPI 5 has one behind each block
            if self.held and self.has_begun():
                self.release(is_open=True)
        self.held = self.without_blocks(self.held)

    def release(self, is_open=False):
        """Writes what is held; while more may come, not what may be the beginning of a block."""
        text = self.without_blocks(self.held)
        begun = self.begun.search(text) if is_open else None
        end = begun.start() if begun else len(text)
        self.write(text[:end])
        self.held = text[end:]

    def without_blocks(self, text):
        at = 0
        while block := self.block.search(text, at):
            at = block.start()
            if re.match(self.about_a_process, block[1]):
                self.about_processes += block[1].decode(errors="replace")
                text = text[:at] + text[block.end():]
            else:
                at += 75  # a device's own line of dashes
        return self.remarks.sub(b"", text)

    def take_first_words(self):
        """The first sentence of what is held, in one line. The rest is forgotten."""
        text = re.sub(r"^-{74}$|^\[\S+:\d+\] ", "\n", self.held.decode(errors="replace"), flags=re.M)
        self.held = b""
        first, *more = re.split(r"\n\s*\n|(?<=\.)\s", text.strip())
        words = f"{first} {more[0]}" if more and first.endswith(":") else first
        return " ".join(words.split())[:300]
