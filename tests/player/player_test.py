#!/usr/bin/python3
"""player_test.py BUILD [TESTS]: plays small records, which the program in BUILD makes, in a headless Chromium, and
compares what the page says with the record."""
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

if {"-h", "--help"} & set(sys.argv):
    sys.exit(print(__doc__.strip()))

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(sys.argv.pop(1)).resolve()
from browser import CHROMIUM, FIREFOX, Browser, Firefox
sys.path.insert(0, str(ROOT / "chapters"))
import setup
read = setup.player().read
import site_runs
from compare import difference_in_words, first_difference
from lesson import Lesson, answer_of, step_at, value_of

TOURS = sorted(ROOT.glob("chapters/*/tour.txt"))

def record_of(devices, *words):
    """The record of one step of training, as text."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "record.json")
        more = ["--steps", "1"] if "train" in words else []
        subprocess.run([BUILD / "local/shardbook", *words, *more, "--record", file], check=True,
                       env={**os.environ, "SHARDBOOK_DEVICES": str(devices)}, stdout=subprocess.DEVNULL)
        return file.read_text("utf-8")


def record_of_tour(path):
    """The record of the run that a chapter's tour is about: the command `run`, as its page has it."""
    devices, words = Lesson(path).words()
    return record_of(devices, *words)


RECORDS = {
    "column_row": record_of(4, "03", "train"),
    "one_f_one_b": record_of(4, "04", "train", "--micro-batches", "8"),
    "tiny": record_of(2, "03", "train", "--batch", "1", "--hidden-dim", "4"),
}


def events_of(record, device):
    """(what, row) of all events of a device."""
    return [(record["what"][row[0]], row) for section in record["devices"][device]["sections"]
            for row in section["events"]]


def sent_by(record, device):
    """The bytes that a device sends."""
    return sum(message[2] for what, row in events_of(record, device) if what["is"] == "call"
               for message in record["sends"][row[7]])


def bytes_after(record, device):
    """The bytes that a device holds at the end, and the most at once."""
    held = {one["tensor"]: one["bytes"] for one in record["devices"][device]["sections"][0]["held"]}
    most = sum(held.values())
    for what, row in events_of(record, device):
        if what["is"] == "made":
            held[row[1]] = what["bytes"]
        elif what["is"] == "freed":
            del held[row[1]]
        most = max(most, sum(held.values()))
    return sum(held.values()), most


def without_sum():
    """The record of column_row in which no device calls all_reduce."""
    record = json.loads(RECORDS["column_row"])
    for device in record["devices"]:
        events = device["sections"][0]["events"]
        is_call = [record["what"][row[0]]["is"] == "call" for row in events]
        del events[is_call.index(True)]
    return record


def numbers(text):
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", text)]


class Command(unittest.TestCase):
    def play(self, *words):
        done = subprocess.run([ROOT / "chapters/play", *words], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def run_chapters(self, *words, **environment):
        done = subprocess.run([ROOT / "chapters/run", *words], capture_output=True, text=True,
                              env={**os.environ, **environment})
        return done.returncode, done.stdout + done.stderr

    def refuses(self, text, expected):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "record.json")
            file.write_text(text, "utf-8")
            code, said = self.play(file)
            self.assertEqual((code, list(Path(folder).glob("*.html"))), (65, []), said)
            self.assertRegex(said, expected)

    def test_usage(self):
        for words in ([], ["a", "b", "c"], ["--fast"], ["a.html", "a.html"]):
            self.assertEqual(self.play(*words)[0], 64, words)
        self.assertRegex(self.play("--help")[1], r"RECORD\.json FILE\.html")

    def test_files_that_are_no_records(self):
        self.assertEqual(self.play("/nowhere/record.json")[0], 65)
        self.refuses("{", "expected JSON")
        self.refuses("[]", "expected the fields")
        self.refuses("{}", 'expected "format": "shardbook record"')
        record = json.loads(RECORDS["column_row"])
        self.refuses(json.dumps({**record, "version": 99}), "expected version 1, given 99")
        self.refuses(json.dumps({**record, "what": []}), "expected the fields")

    def test_pictures(self):
        """Of a record by docs/site/draw; of one device, too, which sends nothing."""
        for devices, words, text in ((4, ["03", "train"], " bytes"), (1, ["01", "train"], "no device sends anything")):
            with self.subTest(words), tempfile.TemporaryDirectory() as folder:
                record, picture = Path(folder, "record.json"), Path(folder, "bytes.svg")
                record.write_text(record_of(devices, *words), "utf-8")
                none = Path(folder, "none.json")
                for kind, file, code in (("bytes", record, 0), ("bytes", none, 65), ("area", record, 64)):
                    done = subprocess.run([ROOT / "docs/site/draw", kind, file, picture], capture_output=True,
                                          text=True)
                    self.assertEqual((done.returncode, done.stderr.count("\n")), (code, int(code > 0)), done.stderr)
                self.assertIn(text, picture.read_text("utf-8"))

    def test_two_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            right, wrong = Path(folder, "right.json"), Path(folder, "wrong.json")
            right.write_text(RECORDS["column_row"], "utf-8")
            wrong.write_text(json.dumps(without_sum()), "utf-8")
            code, said = self.play(wrong, "--right", right)
            self.assertEqual(code, 86)
            self.assertRegex(said, r"Step 2 is the first that differs\.\nright: Devices 0–3 reduce out .*hpp:38\)\n"
                             r"wrong: Devices 0–3 compute gradient ")
            self.assertEqual(self.run_chapters("compare", right, wrong), (code, said.split("wrote")[0]))
            self.assertEqual(self.run_chapters("compare", right, right)[0], 0)
            self.assertEqual(self.run_chapters("compare", right)[0], 64)
            said = self.play(right, "--right", right, wrong.with_suffix(".html"))[1]
            self.assertRegex(said, r"No step of 8 differs")
            self.assertEqual(self.play(wrong, "--right")[0], 64)
            self.assertEqual(self.play(wrong, "--right", Path(folder, "none.json"))[0], 65)

    def test_differences(self):
        """Each thing that may differ, alone, and where. What times and lines are does not count."""
        def changed(change):
            record = json.loads(RECORDS["tiny"])
            change(record, record["devices"][1]["sections"][0])
            return record
        def letter(record, _):
            next(what for what in record["what"] if what.get("function") == "all_reduce")["to"]["layout"] = 0
        def bytes_sent(record, _):
            record["sends"][-1][0][2] += 4
        def value(_, section):
            section["values"][-1][2][0] += 1
        def not_finite(_, section):
            section["values"][-1][2][0] = None
        def rounding(_, section):
            section["values"][-1][2] = [number * (1 + 1e-7) for number in section["values"][-1][2]]
        def sketch(_, section):
            section["sketches"][-1][2][0] += 1
        def rounding_of_many(_, section):
            section["sketches"][-1][2][0] += 1e-7
        def memory(record, section):
            row = next(row for row in section["events"] if record["what"][row[0]]["is"] == "made")
            record["what"].append({**record["what"][row[0]], "bytes": 4096})
            row[0] = len(record["what"]) - 1
        def end(record, _):
            record["end"] = {"code": 86, "report": "loss curve: step 3: expected 1, given 2"}
        def times_and_lines(record, section):
            record["lines"] = [[file, line + 1] for file, line in record["lines"]]
            for event in section["events"]:
                if len(event) > 3:
                    event[2] += 7
        with tempfile.TemporaryDirectory() as folder:
            def run(record):
                file = Path(folder, "record.json")
                file.write_text(record if isinstance(record, str) else json.dumps(record), "utf-8")
                return read(file)
            right = run(RECORDS["tiny"])
            for change, step, says in ((letter, 2, "becomes"), (bytes_sent, 2, "bytes"), (value, 4, "a number is"),
                                       (not_finite, 4, "not finite"), (rounding, None, "No step"),
                                       (sketch, 7, "other numbers"), (rounding_of_many, None, "No step"),
                                       (memory, 0, "Device 1 holds"), (end, None, "wrong: ends with code 86, loss curve"),
                                       (times_and_lines, None, "No step")):
                with self.subTest(change.__name__):
                    wrong = run(changed(change))
                    self.assertEqual(first_difference(right, wrong), step)
                    self.assertIn(says, " ".join(difference_in_words(right, wrong)))

    def test_a_corrupted_message(self):
        """One element of 4,096 is another one: the step is named by the tensors' sketches, and the device that did it."""
        words = ["03", "train", "--steps", "1", "--fault", "device=1,call=6,kind=corrupt", "--record"]
        with tempfile.TemporaryDirectory() as folder:
            right, wrong = Path(folder, "right.json"), Path(folder, "wrong.json")
            right.write_text(record_of(4, "03", "train"), "utf-8")
            subprocess.run([BUILD / "local/shardbook", *words, wrong], env={**os.environ, "SHARDBOOK_DEVICES": "4"},
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            code, said = self.run_chapters("compare", right, wrong)
            self.assertEqual(code, 86)
            self.assertRegex(said, "Step 2 is the first that differs.\nright: Devices 0–3 reduce out")
            self.assertIn("Device 1 sends, takes or makes something else.", said)

    def test_run_in_the_site(self):
        """Behind its first command a chapter's page has the run, or without programs what to type."""
        tour, body = Lesson(TOURS[3]), '<div class="fragment "><div class="line">./chapters/run 03</div></div>\n<p>'
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder)
            (output / "runs").mkdir()
            shown = site_runs.with_runs(body, "chapters_03", tour, output)
            self.assertIn("03 -n 4 train --play run.html</code>", shown)
            site_runs.write_run(ROOT, BUILD / "local/shardbook", tour, output / "runs/chapters_03.html")
            shown = site_runs.with_runs(body, "chapters_03", tour, output)
            self.assertRegex(shown, '</div></div>\n<p class="run"><a href="runs/chapters_03.html">.*\n'
                                    '<iframe .*loading="lazy" src="runs/chapters_03.html#light".*\n<p>')
            self.assertIn("P becomes R", (output / "runs/chapters_03.html").read_text("utf-8"))

    def test_play_of_a_run(self):
        """The page is written, also if the run fails, whose code is the script's."""
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder, "run.html")
            words = ["--backend", "local", "--strategy", "column-row", "-n", "3", "train", "--steps", "1"]
            for more, expected in (([], 0), (["--fault", "device=1,call=6,kind=skip"], 82)):
                code, said = self.run_chapters(*words, *more, "--play", page, PROGRAMS=BUILD / "local")
                self.assertEqual(code, expected)
                self.assertIn(f"wrote {page}\n", said)
                self.assertIn("exit code 82" if more else "P becomes R", page.read_text("utf-8"))
                page.unlink()
            self.assertEqual(self.run_chapters(*words, "--play", "/nowhere/x.html", PROGRAMS=BUILD / "local")[0], 65)
            self.assertEqual(self.run_chapters("--play", page)[0], 64)

    @unittest.skipUnless(shutil.which("tsc"), "no tsc: the package node-typescript has it")
    def test_types(self):
        of_run = ("choices", "engine", "results", "main")
        files = [*sorted((ROOT / "chapters/player/page").glob("*.js")),
                 *sorted((ROOT / "chapters/player/costs").glob("*.js")),
                 *(ROOT / f"chapters/player/run/{name}.js" for name in of_run)]
        options = "--checkJs --allowJs --noEmit --strict --target es2022 --module es2022".split()
        command = ["tsc", *options, "--lib", "es2022,dom,dom.iterable", *files]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)


class Tours(unittest.TestCase):
    """Each chapter's tour, with a fresh record."""

    def run_of(self, path):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "record.json")
            file.write_text(record_of_tour(path), "utf-8")
            return read(file)

    def test_each(self):
        self.assertEqual({path.parent.name[:2] for path in TOURS}, set("00 01 02 03 04 05 06 08 09".split()))
        for path in TOURS:
            lesson, run, readme = Lesson(path), self.run_of(path), path.with_name("README.md").read_text("utf-8")
            with self.subTest(path.parent.name):
                self.assertRegex(readme, rf"{re.escape(lesson.run)}( +#.*)?\n")
                self.assertEqual(run.record.job.get("variant", ""), lesson.variant)
                self.assertTrue(8 <= len(lesson.stops) <= 12 and 3 <= len(lesson.questions) <= 6)
                for stop in lesson.stops:
                    self.assertIsNotNone(step_at(run, stop["stop"]), stop)
                for block in lesson.questions:
                    at = step_at(run, block["at"])
                    self.assertIsNotNone(at, block)
                    answer, unit = answer_of(run, at, block["asks"])
                    shown = lesson.question(block, run)
                    self.assertIsNotNone(shown, f"{answer} {unit} is no choice of {block}")
                    self.assertGreater(len(shown["choices"]), 2, block)
                    number = numbers(shown["choices"][shown["answer"]])
                    if isinstance(answer, int):
                        self.assertEqual(number, [answer])
                        self.assertTrue(shown["formula"].endswith(shown["choices"][shown["answer"]]))
                played = run.play()["lesson"]
                self.assertEqual([len(played["questions"]), len(played["stops"])],
                                 [len(lesson.questions), len(lesson.stops)])

    def test_other_sizes(self):
        """A run on other numbers of devices has a page, with those questions that fit it, and no tour of other sizes."""
        for path in TOURS:
            _, words = Lesson(path).words()
            for devices in (1, 3, 5):
                with self.subTest(f"{path.parent.name} on {devices}"), tempfile.TemporaryDirectory() as folder:
                    file = Path(folder, "record.json")
                    file.write_text(record_of(devices, *words), "utf-8")
                    run = read(file)
                    for question in run.lesson["questions"]:
                        self.assertIn(question["answer"], range(len(question["choices"])))
                    self.assertEqual(bool(run.lesson["stops"]), path.parent.name == "01_single_device")

    def test_memory_is_made_in_the_step_that_it_is_for(self):
        """An optimizer's moments are made in its update, not in the message before it."""
        run = self.run_of(ROOT / "chapters/04_pipeline/tour.txt")
        for number, step in enumerate(run.steps):
            for item in step.items if step.kind == "call" else ():
                held = list(run.record.devices[item.device][item.section].bytes_held())
                self.assertEqual(held[item.begin].get("optimizer", 0), held[item.end].get("optimizer", 0), number)

    def test_another_command(self):
        """The tour is about training: the page of gradients, whose run has no batch of its own, has none."""
        record = json.loads(RECORDS["column_row"])
        record["job"]["command"] = "gradients"
        del record["job"]["batch"]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "record.json")
            file.write_text(json.dumps(record), "utf-8")
            self.assertEqual(read(file).lesson, {"questions": [], "stops": []})

    def test_answers(self):
        """What is asked, counted in the record by other means."""
        record = json.loads(RECORDS["column_row"])
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "record.json")
            file.write_text(RECORDS["column_row"], "utf-8")
            run = read(file)
        for asks, expected in (("bytes of device 1 in the run", sent_by(record, 1)),
                               ("most held by device 2", bytes_after(record, 2)[1]),
                               ("calls of all_reduce", 1), ("letter before", "P"), ("bytes of device 0", 24576)):
            self.assertEqual(answer_of(run, step_at(run, "all_reduce"), asks)[0], expected, asks)
        self.assertEqual(value_of("2*(N-1)*B/N", {"N": 4, "B": 64}), 96)

    def test_files_that_are_wrong(self):
        text = TOURS[1].read_text("utf-8")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "tour.txt")
            for old, new, expected in (
                    ("why:", "because:", "expected a block of"), ("stop:", "halt:", "expected a block"),
                    ("lights: source", "lights: sun", "given sun"), ("at: loss", "loss", "KEY: VALUE"),
                    ("sizes:", "sizes: N4", "sizes such as N=4, given N4")):
                path.write_text(text.replace(old, new, 1), "utf-8")
                with self.assertRaisesRegex(ValueError, expected):
                    Lesson(path)


@unittest.skipUnless(CHROMIUM, "no Chromium: the package chromium has it")
class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.browser.said.clear()
        self.browser.size(1280, 900)

    def tearDown(self):
        self.assertEqual(self.browser.said, [], "the console")

    def open(self, record, address=""):
        """Makes a record's page, and opens it."""
        file = self.folder / "record.json"
        file.write_text(record if isinstance(record, str) else json.dumps(record), "utf-8")
        done = subprocess.run([ROOT / "chapters/play", file], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.address = f"file://{file.with_suffix('.html')}"
        self.browser.open(self.address + address)
        self.browser.run("for (const id of ['play', 'record']) "
                         "window[`of_${id}`] = JSON.parse(document.getElementById(id).textContent)")
        return self.browser.run("of_play.steps.length")

    def run_js(self, script):
        return self.browser.run(script)

    def text(self, selector):
        return self.run_js(f"document.querySelector({json.dumps(selector)})?.textContent ?? ''")

    def texts(self, selector):
        return self.run_js(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent)")

    def go(self, address):
        self.run_js(f"new Promise((done) => {{ addEventListener('hashchange', done, {{once: true}}); "
                    f"if (location.hash === {json.dumps(address)}) done(); location.hash = {json.dumps(address)}; }})")

    def has_address(self, address):
        self.browser.wait_for(lambda: self.run_js("location.hash") == address)

    def visit(self, record):
        """Each step by its address: what the page says there."""
        steps = self.open(record, "#step=0")
        for step in range(steps):
            if step:
                self.go(f"#step={step}")
            self.browser.wait_for(lambda: re.match(rf"step {step} of {steps - 1}\b", self.text("#where")))
            yield step

    def test_numbers_are_the_records(self):
        for text in RECORDS.values():
            record, sent = json.loads(text), {}
            devices = range(len(record["devices"]))
            for step in self.visit(text):
                self.assertEqual(self.text("#sentence"), self.text(f"#step{step}"))
                row = json.loads(self.run_js(f"JSON.stringify(of_play.steps[{step}])"))
                sums = dict.fromkeys(devices, 0)
                for title in self.texts(".message:not(.old) title"):
                    source, _, size, _ = numbers(title)
                    sums[source] += size
                of_device = self.texts(".total strong")
                for device in devices:
                    sent[device] = sent.get(device, 0) + sums[device]
                if row["kind"] == "call" and any(sums.values()):
                    self.assertIn(max(sums.values()), numbers(self.text("#sentence")))
            ends = [bytes_after(record, device) for device in devices]
            self.assertEqual([numbers(text)[0] for text in of_device], [end for end, _ in ends])
            self.assertEqual(list(sent.values()), [sent_by(record, device) for device in devices])
            self.assertEqual(numbers(self.text("#peak"))[0], max(most for _, most in ends))

    def test_keys(self):
        steps = self.open(RECORDS["column_row"])
        where = lambda: numbers(self.text("#where"))[0]
        for key, expected in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", steps - 1),
                              ("ArrowRight", steps - 1), ("Home", 0), ("ArrowLeft", 0)):
            self.browser.press(key)
            self.assertEqual(where(), expected, key)
            self.has_address(f"#step={expected}")
        begins = self.run_js("of_play.groups.map(([begin]) => begin)")
        self.browser.press("ArrowDown")
        self.assertEqual(where(), begins[1])
        self.browser.press("ArrowUp")
        self.browser.press("?")
        self.assertTrue(self.run_js("document.querySelector('dialog').open"))
        self.browser.press("?")
        self.assertFalse(self.run_js("document.querySelector('dialog').open"))
        self.browser.press("p")
        most = self.run_js("of_play.peaks[0]")
        self.assertEqual(where(), most[1])
        self.assertIn(most[0], numbers(self.text(".total")))
        self.browser.press("Home")
        self.browser.press(" ")
        self.browser.wait_for(lambda: where() >= 1)  # a busy machine may see a later one
        self.browser.press(" ")
        self.assertIn("play", self.text("#play-button"))

    def test_a_pipeline(self):
        """What a reader asks of 1F1B stands on the page: micro-batches under way, idle time, what is sent, the peak."""
        self.open(RECORDS["one_f_one_b"])
        record = json.loads(RECORDS["one_f_one_b"])
        most = [0] * 4
        self.go("#step=0")
        for _ in range(192):
            self.browser.press("ArrowRight")
            if self.run_js("of_play.lesson.questions.some((one) => document.querySelector('#lesson button'))"):
                self.browser.press("Escape")
            for device, words in enumerate(self.texts(".under-way")):
                these = numbers(words.replace("–", " "))
                most[device] = max(most[device], these[-1] - these[0] + 1 if these else 0)
        self.assertEqual(most, [4, 3, 2, 1])
        sent = [sent_by(record, device) for device in range(4)]
        self.assertEqual(self.texts(".sent"), [f"sent {size:,} of {size:,}" for size in sent])
        # Devices 1 to 3 have 6 products for each of 8 micro-batches, device 0 has 5; the last product ends at 65.
        idle = [f"idle {100 * (65 - 8 * products) / 65:.1f} %" for products in (5, 6, 6, 6)]
        self.assertEqual([text[:len(one)] for text, one in zip(self.texts(".share"), idle)], idle)
        self.assertEqual(self.text("#peak"), f"peak: {bytes_after(record, 0)[1]:,} bytes on each device")

    def test_folded(self):
        self.open(RECORDS["one_f_one_b"])
        self.assertRegex(self.text("#where"), r"^steps 0–")
        self.browser.press("ArrowRight")
        groups = self.run_js("of_play.groups")
        self.assertEqual(numbers(self.text("#where"))[:2], [groups[1][0], groups[2][0] - 1])
        self.assertEqual(self.text("#sentence"), re.sub("<[^>]+>", "", groups[1][2]))
        self.browser.press("f")
        self.assertRegex(self.text("#where"), rf"^step {groups[1][0]} of")

    def test_links(self):
        """A step of the backward pass leads to the one that made what it uses."""
        self.open(RECORDS["column_row"])
        links = self.run_js("[...document.querySelectorAll('#all li a')].map(a => [a.closest('li').id, a.hash])")
        self.assertTrue(links)
        for step, to in links:
            self.assertLess(numbers(to)[0], numbers(step)[0])
            phases = [self.run_js(f"of_record.contexts[of_play.steps[{numbers(at)[0]}].context].phase")
                      for at in (step, to)]
            self.assertEqual(phases, ["backward", "forward"])
        step, to = links[-1]
        self.go(f"#step={numbers(step)[0]}")
        self.run_js("document.querySelector('#sentence a').click()")
        self.has_address(to)

    def test_lines_lead_to_their_next_call(self):
        steps, record = self.open(RECORDS["one_f_one_b"], "#step=2"), json.loads(RECORDS["one_f_one_b"])
        play = self.run_js("of_play")
        def lines(step):
            for device, begin, end, *_ in play["steps"][step]["items"]:
                for what, row in events_of(record, device)[begin:end]:
                    if what["is"] in ("operation", "call") and "line" in what:
                        yield what["line"]
        line = list(lines(2))[-1]
        self.assertIn(f"line {record['lines'][line][1]}", self.text("#source h3"))
        self.run_js("document.querySelector('#source .current a').click()")
        self.assertEqual(numbers(self.text("#where"))[0], next(at for at in range(3, steps) if line in lines(at)))

    def test_every_way_leads_to_the_same_picture(self):
        """Forward, backward and from far away."""
        steps = self.open(RECORDS["one_f_one_b"], "#step=0")
        pictures = self.run_js(f"""(() => {{
          const press = (key) => document.dispatchEvent(new KeyboardEvent("keydown", {{key, bubbles: true}}));
          const picture = () => document.querySelector("#devices").innerHTML;
          const forward = [picture()], backward = [], jumps = {{}};
          for (let i = 1; i < {steps}; ++i) {{ press("ArrowRight"); forward.push(picture()); }}
          for (let i = 1; i < {steps}; ++i) {{ backward.unshift(picture()); press("ArrowLeft"); }}
          backward.unshift(picture());
          const slider = document.querySelector("#slider");
          for (const to of [150, 20, 90, 91, 33, 32, 31, 5]) {{
            slider.value = to;
            slider.dispatchEvent(new Event("input"));
            jumps[to] = picture();
          }}
          return {{forward, backward, jumps}};
        }})()""")
        self.assertGreater(len(set(pictures["forward"])), steps // 2)
        for step, (there, back) in enumerate(zip(pictures["forward"], pictures["backward"], strict=True)):
            self.assertEqual(there, back, step)
        for step, picture in pictures["jumps"].items():
            self.assertEqual(picture, pictures["forward"][int(step)], step)

    def test_strings_are_text(self):
        """Whatever a record has as a name, a letter or a number, it is no element of the page."""
        record, element = json.loads(RECORDS["one_f_one_b"]), "<img alt=x>"
        for what in record["what"]:
            what.update({name: element for name in ("peer", "what") if name in what})
        record["job"].update(dict.fromkeys(("title", "variant", "network", "backend"), element))
        record["end"] = {"code": 70, "report": element}
        text = json.dumps(record).replace('"O"', f'"{element}"').replace("layer_", element).replace("matmul", element)
        self.open(text, "#step=9")
        self.assertIn(element, self.text("#devices") + self.text("#sentence"))
        self.assertIn(element, self.text("#all"))
        self.assertEqual(self.run_js("document.querySelectorAll('img').length"), 0)

    def test_values(self):
        """Addend + addend = sum, as numbers."""
        self.open(RECORDS["tiny"], "#step=1")
        def values(mark):
            return [[float(number) for number in text.split()] for text in self.texts(f".{mark} .values")]
        addends = values("made")
        self.go("#step=2")
        self.assertEqual([len(addend) for addend in addends], [8, 8])
        for total in values("changed"):
            for a, b, c in zip(*addends, total, strict=True):
                self.assertAlmostEqual(a + b, c, delta=0.02)

    def test_filters(self):
        self.open(RECORDS["column_row"], "#step=0&call=all_reduce&device=1")
        self.assertEqual(self.run_js("document.querySelectorAll('.device').length"), 1)
        self.browser.press("ArrowRight")
        self.assertRegex(self.text("#sentence"), "reduce")
        self.has_address(f"#step={numbers(self.text('#where'))[0]}&device=1&call=all_reduce")

    def test_every_width(self):
        for text in (*RECORDS.values(), record_of(8, "08", "train", "--variant", "tensor")):
            self.open(text)
            self.browser.press("p")
            for width in (1280, 800, 400):
                self.browser.size(width, 800)
                for scheme in ("light", "dark"):
                    self.browser.scheme(scheme)
                    page = "document.documentElement"
                    self.assertEqual(self.run_js(f"{page}.scrollWidth - {page}.clientWidth"), 0, width)
                    self.assertTrue(self.run_js("document.querySelectorAll('.tensor .slice').length"))

    def test_a_failed_run(self):
        record = json.loads(RECORDS["column_row"])
        for device in record["devices"]:
            events = device["sections"][0]["events"]
            call = next(number for number, row in enumerate(events) if record["what"][row[0]]["is"] == "call")
            del events[call + (device["device"] != 1):]
        record["end"] = {"code": 82, "report": "deadlock: device 0 waits <for> device 1"}
        steps = self.open(record, "#step=0")
        shown = "getComputedStyle(document.querySelector('#report')).display"
        self.assertEqual(self.run_js(shown), "none")
        self.browser.press("End")
        self.assertEqual(self.run_js(shown), "block")
        self.assertIn(record["end"]["report"], self.text("#report"))
        self.assertRegex(self.text(f"#step{steps - 1}"),
                         "^Devices 0, 2 and 3 call all_reduce of out .*, which the others of its group do not")

    def test_a_long_run(self):
        """The first 1,000 steps, and a line that says so."""
        record = json.loads(RECORDS["column_row"])
        for device in record["devices"]:
            section = device["sections"][0]
            calls = [row for row in section["events"] if record["what"][row[0]]["is"] == "call"]
            section["events"] += calls[:1] * 1200
        self.assertEqual(self.open(record), 1000)
        self.assertIn("first 1,000 steps", self.text("main"))
        self.assertEqual(self.run_js("document.querySelector('#fold').ariaPressed"), "true")

    def test_two_runs(self):
        right, wrong = self.folder / "right.json", self.folder / "wrong.json"
        right.write_text(RECORDS["column_row"], "utf-8")
        wrong.write_text(json.dumps(without_sum()), "utf-8")
        subprocess.run([ROOT / "chapters/play", wrong, "--right", right], capture_output=True)
        self.browser.open(f"file://{wrong.with_suffix('.html')}")
        def at(*steps):
            shown = ("[...document.querySelectorAll('iframe')]"
                     ".map((frame) => frame.contentDocument.querySelector('#where').textContent)")
            self.browser.wait_for(lambda: [numbers(text)[0] for text in self.run_js(shown) if text] == list(steps))
        at(2, 2)
        differs = "document.querySelector('#right').contentDocument.querySelector('#now').className === 'differs'"
        self.assertTrue(self.run_js(differs))
        for key, steps in (("ArrowRight", (3, 3)), ("End", (7, 6)), ("Home", (0, 0)), ("d", (2, 2))):
            self.browser.press(key)
            at(*steps)
        self.run_js("document.querySelector('#wrong').contentDocument.querySelector('.bar[data-step=\"4\"]')"
                    ".dispatchEvent(new MouseEvent('click', {bubbles: true}))")
        at(4, 4)
        self.assertFalse(self.run_js(differs))
        self.browser.size(400, 800)
        self.assertLessEqual(self.run_js("document.documentElement.scrollWidth - innerWidth"), 0)

    def test_questions(self):
        """A question hides the numbers of its step until it is answered or skipped, and nothing else."""
        self.open(RECORDS["column_row"], "#step=1")
        self.run_js("localStorage.clear()")
        self.browser.open(self.address + "#step=1")
        self.assertEqual(self.texts("#lesson button"), [])  # the first picture teaches
        self.browser.press("ArrowRight")
        hidden = "getComputedStyle(document.querySelector('.bytes')).visibility === 'hidden'"
        self.assertIn("How many bytes does device 2 send", self.text("#sentence"))
        self.assertTrue(self.run_js(hidden))
        choices = self.texts("#lesson button")
        right = f"{sent_by(json.loads(RECORDS['column_row']), 2):,} bytes"
        self.assertIn(right, choices)
        self.browser.press(str(choices.index(right) + 1))
        self.assertFalse(self.run_js(hidden))
        self.assertRegex(self.text("#sentence"), "^Devices 0–3 reduce")
        self.assertIn(f"= 2 · (4 − 1) · 64 · 64 · 4 / 4 = {right}", self.text("#lesson"))
        self.assertEqual(self.text("#right"), "1 of 1 right")
        self.browser.press("ArrowRight")   # no question
        self.browser.press("ArrowRight")
        self.browser.press("ArrowRight")   # the gradients
        wrong = next(choice for choice in self.texts("#lesson button") if choice != "16,384 bytes")
        self.run_js("[...document.querySelectorAll('#lesson button')]"
                    f".find((one) => one.textContent === '{wrong}').click()")
        self.assertIn(f"You guessed {wrong}. It is 16,384 bytes.", self.text("#lesson"))
        self.browser.press("ArrowRight")
        self.assertEqual(self.texts("#lesson button")[-1], "skip")
        self.browser.press("Escape")
        self.assertEqual(self.texts("#lesson button"), [])
        self.assertEqual(self.text("#right"), "1 of 2 right")
        self.assertRegex(self.text("#code"), r"^03\.column-row\.4\.__Bb-\.\d{3}$")
        code = self.text("#code")
        self.browser.open(self.address)
        self.assertEqual(self.text("#code"), code)  # the storage has it
        self.run_js("document.querySelector('#off').click()")
        self.browser.press("ArrowRight")
        self.assertEqual(self.texts("#lesson button"), [])
        self.browser.press("g")            # asked for
        self.assertIn("letter", self.text("#sentence"))

    def test_the_answer_is_not_needed_to_go_on(self):
        steps = self.open(RECORDS["column_row"], "#step=0")
        self.run_js("localStorage.clear()")
        self.browser.open(self.address + "#step=0")
        for step in range(1, steps):
            self.browser.press("ArrowRight")
            self.assertRegex(self.text("#where"), f"^step {step} of")
        self.assertEqual(self.text("#right"), "0 of 0 right")

    def test_without_storage(self):
        script = "Object.defineProperty(window, 'localStorage', {get() { throw new Error('no storage'); }});"
        added = self.browser.call("Page.addScriptToEvaluateOnNewDocument", source=script)["identifier"]
        self.addCleanup(self.browser.call, "Page.removeScriptToEvaluateOnNewDocument", identifier=added)
        self.open(RECORDS["column_row"], "#step=1")
        self.browser.press("ArrowRight")
        self.browser.press("1")
        self.assertRegex(self.text("#right"), "of 1 right")

    def test_tours(self):
        """Each stop shows its step and its sentence, and lights something up."""
        for path in TOURS:
            with self.subTest(path.parent.name):
                self.open(record_of_tour(path))
                stops = self.run_js("of_play.lesson.stops")
                self.browser.press("t")
                for number, stop in enumerate(stops):
                    place = rf"^tour {number + 1} of {len(stops)} · step {stop['step']} of"
                    self.assertRegex(self.text("#where"), place)
                    self.assertEqual(self.text("#sentence"), re.sub("<[^>]+>", "", stop["text"]).replace("&amp;", "&"))
                    lit = self.run_js("document.querySelectorAll('.lit').length")
                    self.assertGreaterEqual(lit, len(stop["lights"]), stop)
                    self.browser.press("ArrowRight")
                self.has_address(f"#tour={len(stops)}")
                self.browser.press("Escape")
                self.assertRegex(self.text("#where"), "^step")
                self.assertEqual(self.run_js("document.querySelectorAll('.lit').length"), 0)

    def test_in_a_frame_of_the_site(self):
        """It plays there, in light colours: the site itself turns its pages dark."""
        self.open(RECORDS["column_row"])
        (self.folder / "site.html").write_text('<iframe src="record.html#light" width="900"></iframe>', "utf-8")
        self.browser.scheme("dark")
        self.addCleanup(self.browser.scheme, "light")
        self.browser.open(f"file://{self.folder}/site.html")
        frames = self.browser.call("Page.getFrameTree")["frameTree"]["childFrames"]
        world = self.browser.call("Page.createIsolatedWorld", frameId=frames[0]["frame"]["id"])["executionContextId"]
        def in_frame(script):
            result = self.browser.call("Runtime.evaluate", expression=script, contextId=world, returnByValue=True)
            return result["result"].get("value")
        self.browser.wait_for(lambda: in_frame("document.querySelector('#where').textContent.startsWith('step 0')"))
        self.assertEqual(in_frame("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)")
        in_frame("document.querySelector('#next').click()")
        self.assertRegex(in_frame("document.querySelector('#where').textContent"), "^step 1 of")

    def test_keyboard_alone(self):
        """Tab comes to all that can be pressed, and shows where it is; Enter presses it."""
        self.open(RECORDS["one_f_one_b"], "#step=5")
        seen = []
        for _ in range(80):
            self.browser.press("Tab")
            seen.append(self.run_js("document.activeElement.id || document.activeElement.tagName"))
            if seen[-1] != "BODY":
                outline = self.run_js("getComputedStyle(document.activeElement).outlineStyle")
                self.assertNotEqual(outline, "none", seen[-1])
            if seen[-1] == "next" and seen.count("next") == 1:
                self.browser.press("Enter")
                self.assertRegex(self.text("#where"), "^step 6 of")
        wanted = self.run_js("[...document.querySelectorAll('button, input, select')]"
                             ".filter((one) => one.checkVisibility()).map((one) => one.id)")
        self.assertEqual(set(wanted) - set(seen), set())

    def test_reduced_motion(self):
        self.browser.scheme("light", "reduce")
        self.addCleanup(self.browser.scheme, "light")
        self.open(RECORDS["one_f_one_b"], "#step=5")
        for _ in range(3):
            self.browser.press("ArrowRight")
            self.assertEqual(self.run_js("document.getAnimations().length"), 0)

    def test_no_meaning_in_hue_alone(self):
        """Forward and backward stand at different heights, and each tensor says its letter."""
        self.open(RECORDS["one_f_one_b"], "#step=60")
        heights = self.run_js("""['forward', 'backward', 'call'].map((kind) => {
          const bars = [...document.querySelectorAll(`.bar.${kind}`)];
          return [...new Set(bars.map((bar) => `${bar.getAttribute('y') % 24} ${bar.getAttribute('height')}`))];
        })""")
        forward, backward, calls = map(set, heights)
        self.assertTrue(forward and backward and calls)
        self.assertFalse(forward & backward or (forward | backward) & calls)
        without = self.run_js("""[...document.querySelectorAll('.tensor')].filter((one) =>
          one.querySelector('.slice [class^=of]') && !one.querySelector('small b')).length""")
        self.assertEqual(without, 0)

    def test_without_a_script(self):
        steps = self.open(RECORDS["column_row"])
        self.browser.call("Emulation.setScriptExecutionDisabled", value=True)
        self.addCleanup(self.browser.call, "Emulation.setScriptExecutionDisabled", value=False)
        self.browser.open(self.address)
        self.assertEqual(self.run_js("document.querySelectorAll('#all li').length"), steps)
        self.assertTrue(self.run_js("document.querySelector('#all li').checkVisibility()"))
        self.assertEqual(self.run_js("getComputedStyle(document.querySelector('#player')).display"), "none")

    def test_speed_and_size(self):
        """A step takes less script than sixteen million multiplications, about 16 ms, folded or not. A pipeline's page has at
        most 300 kB, a decoder's 1 MB."""
        for record, most in ((RECORDS["one_f_one_b"], 300_000), (record_of(8, "08", "train", "--variant", "tensor"), 1_000_000)):
            for address in ("#step=0", "#step=0&fold"):
                self.open(record, address)
                self.assertLessEqual((self.folder / "record.html").stat().st_size, most)
                times, loops = self.run_js("""(() => {
                  const times = [], loops = [];
                  for (let at = ""; at !== document.querySelector("#where").textContent;) {
                    at = document.querySelector("#where").textContent;
                    const begin = performance.now();
                    document.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight", bubbles: true}));
                    times.push(performance.now() - begin);
                    if (times.length % 4 !== 1) continue;
                    const before = performance.now();
                    let product = 1;
                    for (let i = 0; i < 16e6; ++i) product = Math.imul(product, 31) + i | 0;
                    loops.push(performance.now() - before + 0 * product);
                  }
                  return [times, loops];
                })()""")
                each, loop = statistics.median(times), statistics.median(loops)
                print(f"{each:.1f} ms a step, {max(times):.1f} ms at most, {loop:.1f} ms a loop", file=sys.stderr)
                self.assertGreater(len(times), 10)
                self.assertLess(each, loop)

    def test_five_on_16_devices(self):
        """Opens folded, and its program has drawn within a second."""
        self.open(record_of(16, "09", "train", "--variant", "five"))
        self.assertRegex(self.text("#where"), "^steps 0–")
        drawn = self.run_js("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
        print(f"drawn after {drawn:.0f} ms", file=sys.stderr)
        self.assertEqual(self.run_js("document.querySelectorAll('.device').length"), 16)
        self.assertLess(drawn, 1000)

    def test_elements_are_kept(self):
        """A step changes what the columns of devices show, and puts in few elements."""
        self.open(RECORDS["one_f_one_b"])
        made, shown = self.run_js("""(() => {
          let made = 0, shown = 0;
          const place = document.querySelector("#devices"), observer = new MutationObserver(() => {});
          observer.observe(place, {childList: true, subtree: true});
          for (let at = ""; at !== document.querySelector("#where").textContent;) {
            at = document.querySelector("#where").textContent;
            document.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight", bubbles: true}));
            for (const { addedNodes } of observer.takeRecords())
              for (const node of addedNodes) made += node instanceof Element ? 1 + node.querySelectorAll("*").length : 0;
            shown += place.querySelectorAll("*").length;
          }
          return [made, shown];
        })()""")
        print(f"{made} elements put in, {shown} shown", file=sys.stderr)
        self.assertLess(made, shown / 3)


@unittest.skipUnless(FIREFOX, "no Firefox: the package firefox-esr has it")
class InFirefox(Page):
    """The same in another browser, but for what only DevTools can set (colours, motion, scripts, storage), and for the
    focus, which a Firefox without a window gives to no element."""
    test_every_width = test_in_a_frame_of_the_site = test_reduced_motion = test_without_a_script = None
    test_without_storage = test_keyboard_alone = None

    def go(self, address):
        """The page writes the address of its step a while later, and here it would be written over the new one."""
        self.browser.wait_for(lambda: super(InFirefox, self).go(address) or self.run_js("location.hash") == address)

    @classmethod
    def setUpClass(cls):
        cls.browser = Firefox()
        cls.addClassCleanup(cls.browser.close)


if __name__ == "__main__":
    unittest.main()
