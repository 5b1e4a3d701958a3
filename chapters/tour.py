"""./chapters/run without a chapter: all of them, one after the other."""
import json, shutil, sys

from job_folder import job_folder

class Table:
    """Rows that come one after the other, so columns have a width in advance. What a narrow terminal has no room for is
    left out."""
    columns = {"": 2, "chapter": -15, "variant": 0, "layers": 6, "loss": 6, "to": 6, "ulp": 3, "bytes sent": 11,
               "messages": 8, "bytes held": 12}
    left_out_first = ["chapter", "layers", "messages"]

    def __init__(self, width_of_names):
        self.widths = {**self.columns, "variant": -width_of_names}  # below 0: flush left
        room, left_out = shutil.get_terminal_size().columns, iter(self.left_out_first)
        while len(self.heading().rstrip()) > room and (name := next(left_out, None)):
            del self.widths[name]

    def heading(self):
        return self.line({name: name for name in self.columns})

    def row(self, report):
        ulp = report["max_ulp"]
        return self.line({"": report["chapter"], "chapter": report["title"], "variant": report["variant"],
                          "layers": report["layers"], "loss": f"{report['losses'][0]:.4f}",
                          "to": f"{report['losses'][-1]:.4f}", "ulp": ulp if ulp < 2**63 - 1 else "all",
                          "bytes sent": self.cell(report["bytes"]), "messages": self.cell(report["messages"]),
                          "bytes held": self.cell(report["peak"])})

    def line(self, cells):
        texts = (f"{cells[name]!s:{'<' if width < 0 else '>'}{abs(width)}}" for name, width in self.widths.items())
        return "  ".join(texts).rstrip() + "\n"

    def cell(self, figure):
        """The largest of any device, and how it compares with the closed form."""
        largest, form = max(figure["measured"]), figure["formula"]
        if form is None:
            return f"{largest:,} –"
        if form != figure["measured"]:
            return f"{largest:,} not {max(form):,}"
        return f"{largest:,} booked" if figure.get("booked") else f"{largest:,} ="

class Tour:
    """Every chapter in every variant, a line each; then what their reports, in a folder, say together."""
    def __init__(self, program, devices, start, is_verbose):
        self.devices, self.start_job, self.is_verbose = devices, start, is_verbose
        self.codes, self.reports, self.rows, self.references, self.table = [], [], [], set(), None

    def take(self):
        with job_folder() as (self.folder, _):
            # On all devices: what is wrong with these is said once, and not by each variant.
            with open(self.folder / "list", "w+b") as listed:
                if code := self.start_job(self.devices, ["list"], listed.fileno()):
                    return code
                listed.seek(0)
                self.chapters = json.load(listed)
            names = [variant["name"] for chapter in self.chapters for variant in chapter["variants"]]
            self.width = max(map(len, [*names, "single, 8 layers"]))  # see show_variant
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
        report = self.train(folder, f"{folder}-{name}", "--variant", name)
        if not report:
            return  # it has said why
        # A pipeline is deeper than the others: before it, the network on one device, as deep.
        layers = json.loads(report.read_text())["layers"]
        if chapter["number"] == "01":
            self.references.add(layers)
        elif layers not in self.references and variant["workload"] == "mlp":
            self.references.add(layers)
            self.add_row(self.train("01_single_device", f"reference-{layers}", "--layers", str(layers)),
                         f"single, {layers} layers")
        self.add_row(report)

    def train(self, chapter, name, *words):
        report = self.folder / f"{name}.json"
        self.start(self.devices, [chapter, "train", *words, "--report", report])
        return report if report.exists() else None

    def add_row(self, report, name=None):
        """Prints a row of the tour's table. A tour that shows all prints its rows in the end."""
        self.table = self.table or Table(self.width)
        row = json.loads(report.read_text())
        row["variant"] = name or row["variant"]
        for line in ([] if self.rows else [self.table.heading()]) + [self.table.row(row)]:
            self.add_line(line)
        self.reports.append(report)

    def add_line(self, line):
        self.rows.append(line)
        if not self.is_verbose:
            print(line, end="", flush=True)

    def start(self, devices, words):
        """Runs a chapter. What it prints is shown where that is wanted or something is wrong."""
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
