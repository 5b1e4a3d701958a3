"""Builds the pages that train and count costs in a browser: the engine by Emscripten, and what stands around it."""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import setup

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "build/web"
LIBCXX = Path("/usr/lib/llvm-16/include/wasm32-wasi/c++/v1")


def lacking():
    """What there must be to build the pages, in words; empty where all is there."""
    if not shutil.which("em++") or not shutil.which("node"):
        return "em++ is missing (package emscripten)"
    words = subprocess.run(["em++", "-dM", "-E", "-x", "c++", "/dev/null"], capture_output=True, text=True).stdout
    clang = re.search(r"__clang_major__ (\d+)", words)
    if clang and int(clang[1]) < 16 and not LIBCXX.is_dir():
        return f"headers of libc++ 16 are missing, as Clang {clang[1]} has older ones (package libc++-16-dev-wasm32)"
    return ""


def program():
    """What lists the chapters, as the page does."""
    return Path(os.environ.get("PROGRAMS", ROOT / "build/local"), "shardbook")


def build_modules():
    """The engine in WebAssembly, in build/web: the paths of the module that trains, and of that which counts costs."""
    WEB.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("NODE_PATH", "/usr/share/nodejs")  # Debian's Emscripten finds its parser of JavaScript there
    emscripten = subprocess.run(["em-config", "EMSCRIPTEN_ROOT"], capture_output=True, text=True).stdout.strip()
    toolchain = f"{emscripten}/cmake/Modules/Platform/Emscripten.cmake"
    if not (WEB / "build.ninja").exists():
        configured = subprocess.run(["cmake", "-S", ROOT / "emu/web", "-B", WEB, "-G", "Ninja",
                                     f"-DCMAKE_TOOLCHAIN_FILE={toolchain}"], capture_output=True, text=True)
        if configured.returncode:
            setup.say(configured.stderr)
            setup.fail(69, f"could not configure {os.path.relpath(WEB)}")
    setup.run_ninja(WEB, ["shardbook", "costs"], lambda said: "")
    return WEB / "shardbook.js", WEB / "costs.js"


def write(file):
    """Builds all, and writes the page that trains, and costs.html beside it. Returns their paths."""
    if not program().is_file():
        setup.build("release", ["local.shardbook"])
    trains, counts = build_modules()
    setup.player()
    sys.path += [str(ROOT / "chapters/player" / room) for room in ("run", "costs")]
    import whole
    import whole_costs
    listed = subprocess.run([program(), "list"], capture_output=True, text=True, check=True).stdout
    costs = file.with_name("costs.html")
    file.write_text(whole.page(ROOT, trains, listed), "utf-8")
    costs.write_text(whole_costs.page(ROOT, counts), "utf-8")
    return file, costs
