"""Prints an HTML file as PDF, with Chromium."""
import shutil
import subprocess
import tempfile

import setup

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def require():
    if not PROGRAM:
        setup.fail(69, "missing: chromium (package chromium)")


def run(address, *options):
    """What Chromium writes to standard output of a page, after its scripts have run."""
    require()
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run([PROGRAM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}",
                               "--virtual-time-budget=120000", *options, address], check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def print_to(pdf, page):
    run(page.as_uri(), "--no-pdf-header-footer", f"--print-to-pdf={pdf}")
