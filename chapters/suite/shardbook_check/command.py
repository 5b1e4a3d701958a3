"""The command shardbook-check: its options, and what each of its commands does."""
import argparse
import fnmatch
import re
import sys
from pathlib import Path

import numpy as np

from . import calls, folders
from .problems.bounded import PRECISIONS
from .problems.files import Refused
from .problems.kinds import Problem
from .problems.listed import listed, listed_by_name, usable
from .reports import Report


def run(parser, words):
    """runs a program on every problem and every number of devices, and compares its results with the expected ones

    These words of the command are replaced:

        {params} {batch}    safetensors files to read: the parameters; input, and output_grad or target
        {out}               the file to write: every result under its name. Or, in the folder {out_dir}, a file
                            for each device, device_0.safetensors and so on, and a layout.json: how they lie
        {devices} {mesh}    how many devices; the same as a mesh, devices=4
        {step}              the step whose results are compared: the last of a training, 1 for gradients
        {problem}           a JSON file that says all of it: kind, widths, steps, optimizer
        {steps}, {kind}, {top_k} ...   fields of that file

        shardbook-check run --problems 'mlp-exact-*,mlp-real-*' -- torchrun --nproc-per-node {devices} mine.py {problem}

    A program that cannot do a problem says so by exit code 64, 69 or 77. Exit code of this: 0; 86 where a result
    differs or there is none; 64 for wrong words, 65 for a file that cannot be read."""
    add_problem_options(parser)
    add_verdict_options(parser)
    parser.add_argument("--devices", help="numbers of devices, separated by commas (default: each problem's)")
    parser.add_argument("--seconds", type=float, default=60, help="a call's time limit (default 60)")
    split = words.index("--") if "--" in words else len(words)
    args, command = parser.parse_args(words[:split]), words[split + 1:]
    if not command:
        parser.error("expected -- and a command, given none")
    known = calls.known_words()
    if wrong := [name for word in command for name in re.findall(r"{(\w+)}", word) if name not in known]:
        parser.error(f"{{{wrong[0]}}}: expected one of {', '.join(sorted(known))}")
    names, report = folders.read_map(args.map), Report()
    for problem in selected(parser, args.problems):
        for devices in map(int, args.devices.split(",")) if args.devices else problem.devices:
            outcome = calls.call(problem, devices, command, names, args.precision, args.seconds)
            report.add(problem, devices, outcome)
    return report.end(args.json, args.junit)


def export(parser, words):
    """writes every problem into a folder, where another program, on another machine for example, solves them

    `check` compares its results; its --help says where these go."""
    add_problem_options(parser)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args(words)
    if args.folder.exists() and any(args.folder.iterdir()):
        parser.error(f"expected a new folder, given {args.folder}, which is not empty")
    folders.export(args.folder, selected(parser, args.problems), folders.read_map(args.map))
    return 0


def check(parser, words):
    """compares the results in a folder of `export` with the expected ones

    They lie in PROBLEM/results/N/, for N devices: as results.safetensors, or as a file for each device,
    device_0.safetensors and so on, with a layout.json. Exit code: 0, or 86 where a result differs."""
    add_problem_options(parser)
    add_verdict_options(parser)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args(words)
    names, report, chosen = folders.read_map(args.map), Report(), selected(parser, args.problems)
    for problem in folders.read_manifest(args.folder):
        if problem not in chosen:
            continue
        results = (args.folder / problem.name / "results").glob("[0-9]*")
        for folder in sorted(results, key=lambda folder: int(folder.name)):
            if verdict := folders.held(problem, int(folder.name), folder, names, args.precision):
                report.add(problem, verdict.devices, verdict)
    return report.end(args.json, args.junit)


def bound(parser, words):
    """prints bounds of the difference between results in real arithmetic and results with float32 sums, in any order

        shardbook-check bound --batch 256 --widths 512,2048,512 --precision bf16

    For each result it prints the bound's largest element, divided by the result's largest element: if rounding errors
    are independent; in any case; and if a ReLU's sign may change."""
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--widths", default="64,128,64", help="of the input and of each layer's output")
    parser.add_argument("--precision", default="float32", choices=PRECISIONS)
    args = parser.parse_args(words)
    problem = Problem("bound", "mlp", "real", args.batch, tuple(map(int, args.widths.split(","))))
    columns = [problem.results(args.precision, **how) for how in
               ({"if_unsure": "ignored", "is_probable": True}, {"if_unsure": "ignored"}, {})]
    print(f"batch {args.batch}, widths {args.widths}, {args.precision}\n"
          f"{'':<18} {'probable':>12} {'at most':>12} {'with ReLUs':>12}")
    for name, value in problem.expected.items():
        shares = [results[name].error.max() / np.abs(value).max() for results in columns]
        print(f"{name:<18}", *(f"{share:>12.1e}" for share in shares))
    return 0


# Each is given its parser and the words behind its name, and returns an exit code.
COMMANDS = {command.__name__: command for command in (run, export, check, bound)}


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise SystemExit(refuse(64, f"{self.prog}: {message} (--help lists the options)"))


def refuse(code, message):
    print(f"error: {message}", file=sys.stderr)
    return code


def add_problem_options(parser):
    parser.add_argument("--problems", default="*", help="names, with * and ?, separated by commas")
    parser.add_argument("--map", action="append", default=[], metavar="THEIRS=OURS",
                        help="a name of yours, as in fc1.weight=layer_0/weights^T (^T: transposed), or a "
                             ".json file of such pairs")


def add_verdict_options(parser):
    parser.add_argument("--precision", default="float32", choices=PRECISIONS,
                        help="how the program computes products: it decides the bounds of real-valued problems")
    parser.add_argument("--json", help="a file for the verdicts")
    parser.add_argument("--junit", help="the same as JUnit's XML")


def selected(parser, patterns):
    found = [usable(problem) for problem in listed()
             if any(fnmatch.fnmatchcase(problem.name, pattern) for pattern in patterns.split(","))]
    if not found:
        parser.error(f"--problems: expected one of {', '.join(listed_by_name())}, given {patterns}")
    return found


def summary_of(command):
    return command.__doc__.split("\n")[0]


def main(words=None):
    """Carries out a command line, and returns its exit code."""
    words = sys.argv[1:] if words is None else words
    if words[:1] in ([], ["--help"], ["-h"]):
        print("shardbook-check COMMAND ...: holds a sharded implementation against the same network on one device\n")
        for name, command in COMMANDS.items():
            print(f"  {name:<8} {summary_of(command)}")
        print("\nshardbook-check COMMAND --help says more of each.")
        return 0 if words else 64
    command = COMMANDS.get(words[0])
    if not command:
        return refuse(64, f"shardbook-check: expected one of {', '.join(COMMANDS)}, given {words[0]}")
    parser = Parser(prog=f"shardbook-check {words[0]}", description=re.sub("(?m)^    ", "", command.__doc__),
                    allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)
    try:
        return command(parser, words[1:])
    except Refused as error:
        return refuse(65, error)
    except OSError as error:
        return refuse(65, f"{error.filename or 'standard output'}: {error.strerror}")
