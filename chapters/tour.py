"""./chapters/run without a chapter: all of them, one after the other."""
import json, re, sys

from job_folder import job_folder

class Tour:
    """Every chapter in every variant, a line each; then what their reports, in a folder, say together."""
    def __init__(self, program, devices, start, is_verbose):
        self.devices, self.start_job, self.is_verbose = devices, start, is_verbose
        self.codes, self.reports, self.rows, self.references = [], [], [], set()

    def take(self):
        with job_folder() as (self.folder, _):
            # On all devices: what is wrong with these is said once, and not by each variant.
            with open(self.folder / "list", "w+b") as listed:
                if code := self.start_job(self.devices, ["list"], listed.fileno()):
                    return code
                listed.seek(0)
                self.chapters = json.load(listed)
            self.width = max(len(variant["name"]) for chapter in self.chapters for variant in chapter["variants"])
            for chapter in self.chapters:
                if not chapter["variants"]:
                    self.show(chapter)
                for variant in chapter["variants"]:
                    self.show_variant(chapter, variant)
            print(*(self.rows if self.is_verbose else []), sep="", flush=True)
            self.codes.append(self.start_job(1, ["summary", *self.reports]))
        return max(self.codes)

    def show(self, chapter):
        self.start(min(self.devices, 8), [chapter["folder"]])  # more would not fit on a page
        if not self.is_verbose:
            print(f"{chapter['number']}  {chapter['title']:<16} ./chapters/run {chapter['number']} shows it",
                  flush=True)

    def show_variant(self, chapter, variant):
        folder, name = chapter["folder"], variant["name"]
        report, text = self.train(folder, f"{folder}-{name}", "--variant", name)
        if not report:
            return  # it has said why
        # A pipeline is deeper than the others: before it, the network on one device, as deep.
        layers = json.loads(report.read_text())["layers"]
        if chapter["number"] == "01":
            self.references.add(layers)
        elif layers not in self.references and variant["workload"] == "mlp":
            self.references.add(layers)
            self.add_row(*self.train("01_single_device", f"reference-{layers}", "--layers", str(layers)))
        self.add_row(report, text)

    def train(self, chapter, name, *words):
        report = self.folder / f"{name}.json"
        text = self.start(self.devices, [chapter, "train", *words, "--report", report])
        return report if report.exists() else None, text

    def add_row(self, report, text):
        """Prints the table that ends a text as a row of the tour's, whose column of names is as wide as any. A
        tour that shows all prints its rows in the end."""
        title, row = re.search(r"^(    chapter .*\n)(\d\d  .*\n)", text, re.M).groups()
        width = max(14, len(row[21:].split()[0]))
        if not self.rows:
            self.add_line(f"{title[:28]:<{21 + self.width}}{title[21 + width:]}")
        self.add_line(f"{row[:21]}{row[21:21 + width]:<{self.width}}{row[21 + width:]}")
        self.reports.append(report)

    def add_line(self, line):
        self.rows.append(line)
        if not self.is_verbose:
            print(line, end="", flush=True)

    def start(self, devices, words):
        """Runs a chapter. Returns what it prints, which is shown where that is wanted or something is wrong."""
        if sys.stderr.isatty():
            print(f"\r\033[K{words[0]} {' '.join(words[2:4])}", end="", file=sys.stderr, flush=True)
        with open(self.folder / "output", "w+b") as output:
            code = self.start_job(devices, words, output.fileno())
            output.seek(0)
            text = output.read()
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        self.codes.append(code)
        if self.is_verbose or code:
            sys.stdout.buffer.write(text)
            sys.stdout.flush()
        return text.decode(errors="replace")
