#!/usr/bin/python3
"""web_test.py BUILD [TESTS]: builds play.html, opens it from the disk in a headless Chromium and, where it is installed, in
a Firefox, and compares its runs with those of the programs in BUILD, whose products are made by the same loops: every bit
of a loss, every byte."""
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from urllib.parse import quote

if {"-h", "--help"} & set(sys.argv):
    sys.exit(print(__doc__.strip()))

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(sys.argv.pop(1)).resolve()
sys.path[:0] = [str(ROOT / "tests/player"), str(ROOT / "chapters")]
from browser import CHROMIUM, FIREFOX, Browser, Firefox
import setup
setup.player()
import join

PROGRAM, PRODUCTS, PAGE = BUILD / "local/shardbook", BUILD / "tests/libplain_blas.so", BUILD / "play.html"
COSTS, META = BUILD / "costs.html", BUILD / "meta/shardbook"
NETWORKS = json.loads((ROOT / "chapters/player/costs/networks.json").read_text())
ENVIRONMENT = {**os.environ, "SHARDBOOK_PRODUCTS": str(PRODUCTS)}
OF_THIS_MACHINE = ("milliseconds", "products")
MOST_BYTES = 2_300_000
CHAPTERS = json.loads(subprocess.run([PROGRAM, "list"], capture_output=True, text=True, check=True).stdout)


def native(devices, words):
    """(exit code, standard output, standard error, report) of a command."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        more = ["--report", report] if "train" in words else []
        ran = subprocess.run([PROGRAM, *words, *more], capture_output=True, text=True,
                             env={**ENVIRONMENT, "SHARDBOOK_DEVICES": str(devices)})
        figures = json.loads(report.read_text("utf-8")) if report.exists() else None
        return ran.returncode, ran.stdout, ran.stderr, figures


def without_times(report):
    return report and {name: value for name, value in report.items() if name not in OF_THIS_MACHINE}


class Pages(unittest.TestCase):
    browser = None

    def run_in_page(self, devices, words):
        """Opens the page with a choice, and waits for its end. Returns what `native` does."""
        chapter, *rest = words
        address = "+".join(quote(str(word), safe=",=") for word in [chapter, "-n", devices, *rest])
        self.browser.open(f"{PAGE.as_uri()}#{address}")
        self.browser.wait_for(lambda: self.browser.run("document.documentElement.dataset.ended !== undefined"))
        report = json.loads(self.saved("report-file")) if self.browser.run(
            "document.getElementById('report-file').href") else None
        return (int(self.browser.run("document.documentElement.dataset.code") or -1),
                self.browser.run("document.getElementById('printed').textContent"),
                self.browser.run("document.getElementById('error').textContent"), report)

    def saved(self, name):
        """The text of a file that the page offers."""
        return self.browser.run(f"document.getElementById('{name}').file.text()")

    def compare(self, devices, words):
        """Holds a run of the page against one of this machine."""
        with self.subTest(words=words, devices=devices):
            expected, given = native(devices, words), self.run_in_page(devices, words)
            self.assertEqual(given[0], expected[0])
            self.assertEqual(without_times(given[3]), without_times(expected[3]))
            if expected[0]:
                self.assertEqual(given[2].strip(), expected[2].strip())


class Web(Pages):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser(120)
        cls.addClassCleanup(cls.browser.close)

    def test_size(self):
        self.assertLess(PAGE.stat().st_size, MOST_BYTES)

    def test_every_variant_has_the_bits_of_a_native_run(self):
        self.browser.said.clear()
        for chapter in CHAPTERS:
            for variant in chapter["variants"]:
                words = [chapter["number"], "train", "--variant", variant["name"], "--steps", "3"]
                counts = (4, 3) if chapter["number"] < "07" else (4,)
                for devices in (1,) if variant["name"].endswith("single") else counts:
                    self.compare(devices, words)
        self.assertEqual(self.browser.said, [])

    def test_chapters_without_variants_print_the_same(self):
        for words in (["00"], ["07"]):
            with self.subTest(words=words):
                expected, given = native(4, words), self.run_in_page(4, words)
                def words_of(text):  # without times; a page wraps other lines than a pipe
                    return re.sub(r"\d+ ms", "- ms", text).split()
                self.assertEqual((given[0], words_of(given[1])), (expected[0], words_of(expected[1])))

    def test_a_planted_fault_is_told_with_its_lines(self):
        """A deadlock, a mismatch, a difference, an exception."""
        for devices, fault in ((3, "device=1,call=6,kind=skip"), (4, "device=2,call=9,kind=corrupt"),
                               (4, "device=0,call=7,kind=throw")):
            with self.subTest(fault=fault):
                words = ["03", "train", "--variant", "column-row", "--steps", "50", "--fault", fault]
                expected, given = native(devices, words), self.run_in_page(devices, words)
                self.assertNotEqual(expected[0], 0)
                self.assertEqual(given[0], expected[0])
                self.assertEqual(without_times(given[3]), without_times(expected[3]))
                if given[3] is None:
                    self.assertEqual(given[2].strip(), expected[2].strip())
                if given[0] in (81, 82):
                    self.assertIn("chapters/03_tensor_parallel/tensor_parallel.hpp:", given[2])
        words = ["00", "--mistake", "disagree"]
        expected, given = native(4, words), self.run_in_page(4, words)
        self.assertEqual((given[0], given[2].strip()), (expected[0], expected[2].strip()))

    def test_the_page_of_a_run_is_the_player_s(self):
        """Its steps and sentences are made by the same program, in JavaScript."""
        for devices, words in ((4, ["03"]), (4, ["04", "--variant", "interleaved", "--layers", "16"]), (3, ["05"]),
                               (4, ["06", "--variant", "zero3"]), (2, ["08"]),
                               (3, ["03", "--fault", "device=1,call=6,kind=skip"])):
            with self.subTest(words=words):
                self.run_in_page(devices, [words[0], "train", *words[1:], "--steps", "2"])
                expected = join.run_of(self.saved("record-file"), ROOT)
                expected.lesson = {"questions": [], "stops": []}
                given = self.saved("page-file")
                for name in ("record", "play"):
                    begin = given.index(f'<script type="application/json" id="{name}">')
                    text = given[given.index(">", begin) + 1:given.index("</script>", begin)]
                    self.assertEqual(json.loads(text), json.loads(json.dumps(
                        expected.trimmed() if name == "record" else expected.play())))
                self.assertIn(expected.list(), given)
                self.assertIn(expected.end(), given)

    def test_costs_are_those_of_a_shell(self):
        """Memory, bytes, messages and operations of each variant, and the number of parameters."""
        self.browser.said.clear()
        self.assertLess(COSTS.stat().st_size, MOST_BYTES)
        for network, way, mesh, devices in (
                ("Mistral 7B", "08", "", 4), ("Mixtral 8x7B", "five", "pipeline=2,expert=2", 4), ("T5 large", "08", "", 3),
                ("Llama 2 7B", "decoder-data-tensor", "data=2,tensor=3", 6), ("Llama 2 70B", "decoder-fsdp-tensor", "", 8)):
            with self.subTest(network=network, way=way), tempfile.TemporaryDirectory() as folder:
                config = Path(folder, "config.json")
                config.write_text(json.dumps(NETWORKS[network]))
                words = ["08"] if way == "08" else ["09", "--variant", way, *(["--mesh", mesh] if mesh else [])]
                source = ["--source-length", "64"] if network.startswith("T5") else []
                printed = subprocess.run([META, words[0], "costs", *words[1:], "--config", config, "--batch", "8", "--length",
                                          "64", *source, "--json"], capture_output=True, text=True, check=True,
                                         env={**os.environ, "SHARDBOOK_DEVICES": str(devices)}).stdout
                self.browser.open(f"{COSTS.as_uri()}#network={quote(network)}&way={way}&mesh={quote(mesh)}&devices={devices}"
                                  "&batch=8&length=64")
                self.browser.wait_for(lambda: self.browser.run("document.documentElement.dataset.ended !== undefined"))
                self.assertEqual(self.browser.run("document.getElementById('error').textContent"), "")
                shown = dict(self.browser.run("[...document.querySelectorAll('.way')].map((one) => "
                                              "[one.querySelector('h2').firstChild.data, one.querySelector('dl').textContent])"))
                expected = json.loads(printed)
                self.assertEqual(set(shown), set(expected))
                for name, rows in expected.items():
                    fullest = max(rows, key=lambda row: row["peak"])
                    for figure in (*(f"{fullest[key]:,} bytes" for key in ("parameters", "gradients", "state", "peak")),
                                   f"{max(row['flops'] for row in rows):,} operations",
                                   f"{max(row['bytes'] for row in rows):,} bytes in {max(row['messages'] for row in rows):,} "):
                        self.assertIn(figure, shown[name])
                said = self.browser.run("document.getElementById('formula').textContent")
                if way == "08" and not source:
                    self.assertIn(", as counted", said)
        self.assertEqual(self.browser.said, [])

    def test_what_cannot_be_counted_is_told(self):
        for choice, says in (("config=nonsense", "config.json: "), ("config=%7B%22model_type%22%3A%22bert%22%7D", "config.json"),
                             ("way=decoder-data-tensor&mesh=data%3D3%2Ctensor%3D3", "mesh: expected sizes")):
            self.browser.open(f"{COSTS.as_uri()}#devices=4&length=64&{choice}")
            self.browser.wait_for(lambda: self.browser.run("document.documentElement.dataset.ended !== undefined"))
            self.assertIn(says, self.browser.run("document.getElementById('error').textContent"))

    def test_a_run_is_stopped_and_the_page_is_alive_meanwhile(self):
        self.browser.open(f"{PAGE.as_uri()}")
        self.browser.run("""location.hash = '03+-n+4+train+--steps+1000000'""")
        self.browser.wait_for(lambda: self.browser.run("document.querySelector('#curve svg') !== null"))
        began = time.monotonic()
        self.assertEqual(self.browser.run("new Promise((done) => setTimeout(() => done(1), 50))"), 1)
        self.assertLess(time.monotonic() - began, 5)
        self.browser.run("document.getElementById('stop').click()")
        self.assertEqual(self.browser.run("document.getElementById('state').textContent"), "stopped")

    def test_the_form_says_what_the_address_says(self):
        words = "train --variant summa --steps 2 --hidden-dim 32 --mesh rows=2,columns=1"
        self.run_in_page(2, ["09", *words.split()])
        self.assertEqual(self.browser.run("document.getElementById('command').textContent"),
                         f"./chapters/run 09 -n 2 {words}")
        self.browser.run("""document.querySelector('[data-option="--steps"]').value = 3""")
        self.browser.run("document.getElementById('choice').requestSubmit()")
        self.assertIn("--steps+3", self.browser.run("location.hash"))

    def test_a_browser_without_what_it_needs_is_told_so(self):
        for missing in ("delete WebAssembly.Suspending", "delete window.DecompressionStream"):
            added = self.browser.call("Page.addScriptToEvaluateOnNewDocument", source=missing)
            for page in (PAGE, COSTS):
                self.browser.open(page.as_uri())
                self.assertIn("This browser lacks", self.browser.run("document.getElementById('lacks').textContent"))
            self.browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=added["identifier"])


@unittest.skipUnless(FIREFOX, "no Firefox: the package firefox-esr has it")
class InFirefox(Pages):
    def test_each_chapter_has_the_bits_of_a_native_run(self):
        self.browser = Firefox(120)
        self.addCleanup(self.browser.close)
        for chapter in filter(lambda chapter: chapter["variants"], CHAPTERS):
            self.compare(4, [chapter["number"], "train", "--steps", "3"])
        self.compare(3, ["03", "train", "--fault", "device=1,call=6,kind=skip"])
        self.assertEqual(self.browser.said, [])


built = CHROMIUM and subprocess.run([ROOT / "docs/site/play", PAGE], capture_output=True, text=True,
                                    env={**os.environ, "PROGRAMS": str(BUILD / "local")})
if not CHROMIUM or built.returncode == 69:  # this machine lacks something
    print(f"web: left out: {built.stderr if built else 'Chromium is missing'}")
    sys.exit(77)
if built.returncode:
    sys.exit(built.stderr)
unittest.main()
