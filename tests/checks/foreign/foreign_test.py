#!/usr/bin/python3
"""Tests of others: the rows of docs/checkers.md are what each says, but for the seconds. picotron's exact equality is not
held here, since it rests on the order in which a library adds."""
import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CHEAP = ("CS336's tests of assignment 2", "the same, without its exact equality")


def rows(text):
    """{name: what is said of it, without the seconds}"""
    cells = [re.split(r" *\| *", line.strip("| ")) for line in text.splitlines() if line.startswith("| ")]
    return {cell[0]: cell[1:-1] for cell in cells if len(cell) == 6}


class Foreign(unittest.TestCase):
    def test_rows_of_the_page(self):
        said = rows(subprocess.run([sys.executable, ROOT / "tests/checks/score", *CHEAP], capture_output=True, text=True,
                                   check=True).stdout)
        published = rows((ROOT / "docs/checkers.md").read_text())
        for name in CHEAP:
            self.assertEqual(published[name], said[name], name)


if __name__ == "__main__":
    unittest.main()
