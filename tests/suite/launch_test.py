#!/usr/bin/python3
"""launch_test.py: what is said of programs that fail, that none of their processes survives, and sessions."""
import json
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

here = Path(__file__).resolve().parent
suite = here.parents[1] / "chapters/suite"
sys.path[:0] = [str(suite)]
from shardbook_check.launch import children

# What a launcher and its workers say, and what is shown of it.
SAID = (
    ("echo before; echo '[rank1]: ValueError: mine'; echo RuntimeError: later; echo =====; exit 1",
     "[rank1]: ValueError: mine"),
    ("echo starts >&2; echo 'torch.OutOfMemoryError: no memory' >&2; echo =====; exit 1", "torch.OutOfMemoryError: no memory"),
    ("echo 'error: a file'; echo bye; exit 3", "error: a file"),
    ("seq 1 30; exit 1", "\n      ".join(map(str, range(21, 31)))),
    ("echo NoErrors here; echo last; exit 1", "NoErrors here\n      last"),
    ("exit 1", "it said nothing"))
# Commands that leave processes behind: of a session of their own, deaf to SIGTERM, at the end and at the time limit.
LEAVE = ("setsid sleep 4711 & sleep 0.3; exit 1",
         "setsid sleep 4711 & sleep 4711",
         "(setsid bash -c 'trap \"\" TERM; while true; do sleep 4711; done' &) ; sleep 4711",
         "for i in 1 2 3; do (setsid sleep 4711 &); done; exit 0")


class Launch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="a folder ")
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)
        children.GRACE = 0.5

    def test_the_reason_is_not_the_last_line(self):
        for command, reason in SAID:
            ended = children.call(["bash", "-c", command], 20, self.scratch / "log")
            end = f"\n      (all that it said: {self.scratch / 'log'})" if ended.lines else ""
            self.assertEqual(ended.reason, reason + end)

    def test_no_process_survives(self):
        for command in LEAVE:
            with self.subTest(command):
                began = time.monotonic()
                children.call(["bash", "-c", command], 1, self.scratch / "log")
                self.assertLess(time.monotonic() - began, 20)
                left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
                self.assertEqual(left.splitlines().count("sleep 4711"), 0)

    def test_others_children_live_on(self):
        with subprocess.Popen(["sleep", "30"]) as mine:
            children.call(["bash", "-c", LEAVE[0]], 5, self.scratch / "log")
            self.assertIsNone(mine.poll())
            mine.kill()

    def call(self, code, *words):
        command = [sys.executable, suite / "shardbook-check", "run", "--logs", self.scratch / "logs", *words]
        ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        self.assertEqual(ended.returncode, code, ended.stdout + ended.stderr)
        return ended.stdout + ended.stderr

    def session(self, code, *mistake, devices="{devices}"):
        out = self.scratch / "v.json"
        said = self.call(code, "--session", "--problems", "mlp-*", "--devices", "2,3,6", "--json", out, "--", sys.executable,
                         here / "solves.py", "session", "{folder}", devices, *mistake)
        return said, json.loads(out.read_text()) if out.exists() else None

    def test_a_session_holds_all_problems(self):
        said, found = self.session(0)
        self.assertGreater(len(found["verdicts"]), 8)
        self.assertTrue(all(v["right"] for v in found["verdicts"]))
        self.assertIn("refused: it does not train", said)
        self.assertFalse((self.scratch / "logs").exists())

    def test_a_wrong_session_is_noticed(self):
        said, found = self.session(86, "mean")
        self.assertTrue(all(not v["right"] for v in found["verdicts"]))
        self.assertIn("a mean where a sum is meant?", said)
        said, found = self.session(86, "ends")
        self.assertIn("ValueError: no more of it", said)
        self.assertIn("no more of it", (self.scratch / "logs/session-on-2.txt").read_text())

    def test_one_call_for_all_numbers_of_devices(self):
        _, of_each = self.session(0)
        calls = self.scratch / "calls"
        command = f"echo {{most}} >> '{calls}'; '{sys.executable}' '{here}/solves.py' session {{folder}} all"
        for mistake, code, expected in (("", 0, "6"), ("ends on 3", 86, "6 6"), ("ends on 6", 86, "6")):
            with self.subTest(mistake):
                self.call(code, "--session", "--problems", "mlp-*", "--devices", "2,3,6", "--json", self.scratch / "v.json",
                          "--", "bash", "-c", f"{command} '{mistake}'")
                found = json.loads((self.scratch / "v.json").read_text())["verdicts"]
                right = {v["devices"] for v in found if v["right"]}
                self.assertEqual(right, {2, 3, 6} - {int(n) for n in mistake.split() if n.isdigit()})
                if not mistake:
                    self.assertEqual([v["problem"] for v in found], [v["problem"] for v in of_each["verdicts"]])
                self.assertEqual(calls.read_text().split(), expected.split())
                calls.unlink()


if __name__ == "__main__":
    unittest.main()
