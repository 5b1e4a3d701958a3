"""The command shardbook-check: its options, and what each of its commands does."""
import argparse
import fnmatch
import os
import re
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from . import calls, folders
from .launch import children, mutants as planted, sessions
from .own import moves, two_folders
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

    With --session the command is called once for each number of devices, with {folder} and {devices} alone: it solves all
    problems in that folder, as `export` writes them, and writes results into {folder}/PROBLEM/results/{devices}/.

        shardbook-check run --session -- torchrun --nproc-per-node {devices} mine.py {folder}

    With {most} in its place, the largest of these numbers, it is called once for all of them. Most of the time of small
    problems is the import of a framework, in each process: sb.session(folder, backend="gloo") keeps the processes.

        shardbook-check run --session -- torchrun --nproc-per-node {most} mine.py {folder}

    A program that cannot do a problem says so by exit code 64, 69 or 77. Exit code of this: 0; 86 where a result
    differs or there is none; 64 for wrong words, 65 for a file that cannot be read."""
    add_problem_options(parser)
    add_verdict_options(parser)
    parser.add_argument("--seconds", type=float, help="a call's time limit (default 60; of a session 600)")
    parser.add_argument("--session", action="store_true", help="one call for each number of devices")
    parser.add_argument("--logs", type=Path, default=Path(tempfile.gettempdir(), f"shardbook-check-{os.getpid()}"),
                        help="a folder for what a program says that fails (default: a new one)")
    split = words.index("--") if "--" in words else len(words)
    args, command = parser.parse_args(words[:split]), words[split + 1:]
    if not command:
        parser.error("expected -- and a command, given none")
    known = {"folder", "devices", "most"} if args.session else calls.known_words()
    seconds = args.seconds or (600 if args.session else 60)
    if wrong := [name for word in command for name in re.findall(r"{(\w+)}", word) if name not in known]:
        parser.error(f"{{{wrong[0]}}}: expected one of {', '.join(sorted(known))}")
    names, report = folders.read_map(args.map), Report(args.precision)
    chosen = selected(parser, args.problems)
    asked = {problem.name: args.devices or problem.devices for problem in chosen}
    if args.session:
        for found in sessions.run(chosen, asked, command, names, args.precision, seconds, args.logs):
            report.add(*found)
    else:
        for problem in chosen:
            for devices in asked[problem.name]:
                report.add(problem, devices, calls.call(problem, devices, command, names, args.precision, seconds, args.logs))
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
    device_0.safetensors and so on, with a layout.json. Where there are none for one of the problem's numbers of devices,
    it was not solved. A program that cannot do a problem leaves a file `refused` there, with the reason.
    Exit code: 0, or 86 where a result differs or a problem was not solved."""
    add_problem_options(parser)
    add_verdict_options(parser)
    parser.add_argument("--newer-than", metavar="FILE", type=Path, help="results older than this file are not solved: "
                        "make it before your program starts")
    parser.add_argument("folder", type=Path)
    args = parser.parse_args(words)
    names, report, chosen = folders.read_map(args.map), Report(args.precision), selected(parser, args.problems)
    newest = args.newer_than.stat().st_mtime if args.newer_than else None
    for problem in folders.read_manifest(args.folder):
        if problem not in chosen:
            continue
        results, missing = args.folder / problem.name / "results", {}
        others = [int(folder.name) for folder in results.glob("[0-9]*") if folder.name.isdecimal()]
        for devices in args.devices or sorted({*problem.devices, *others}):
            folder = results / str(devices)
            why_not, refused = folders.solved(folder, problem, devices, newest)
            if why_not:
                missing[devices] = why_not
            else:
                report.add(problem, devices, refused[0] if refused else
                           folders.held(problem, devices, folder, names, args.precision))
        report.add_unsolved(problem, missing)
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


def diff(parser, words):
    """compares the results of your own two programs, on one device and sharded, in folders of safetensors

        shardbook-check diff single/ sharded/ --precision bf16

    single/ has results.safetensors, in the best precision; sharded/ the same, or device_0.safetensors and so on with a
    layout.json. Bounds are derived where single/ also has moved_0.safetensors to moved_15.safetensors: the results of the
    program on one device with the parameters that `move` writes. Exit code: 0, or 86 where a result differs."""
    parser.add_argument("single", type=Path)
    parser.add_argument("sharded", type=Path)
    parser.add_argument("--layout", type=Path, help="instead of sharded/layout.json")
    add_verdict_options(parser, moves.PRECISIONS)
    args = parser.parse_args(words)
    report = Report(args.precision)
    verdict = two_folders.diff(args.single, args.sharded, args.layout, args.precision)
    report.add(SimpleNamespace(name=verdict.problem), verdict.devices, verdict)
    return report.end(args.json, args.junit)


def move(parser, words):
    """writes 16 versions of a program's parameters, moved by roundings, for the bounds of `diff`

        shardbook-check move params.safetensors moved/

    Run your program on one device on moved/params_0.safetensors and so on, in float64, and let it write the results into
    single/moved_0.safetensors and so on."""
    parser.add_argument("params", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--length", type=int, help="addends of the longest sum (default: the longest axis)")
    parser.add_argument("--precision", default="float32", choices=moves.PRECISIONS)
    args = parser.parse_args(words)
    two_folders.move(args.params, args.folder, args.precision, args.length)
    return 0


def mutants(parser, words):
    """plants usual mistakes in the collectives of your own test, and says which it notices

        shardbook-check mutants -- torchrun --nproc-per-node 2 my_test.py

    Your command is called once as it is, and once for each mistake, which torch.distributed's collectives then make. It
    notices by any exit code but 0. Exit code: 0; 86 where it misses a mistake; 65 where it fails without one."""
    parser.add_argument("--seconds", type=float, default=120, help="a call's time limit (default 120)")
    split = words.index("--") if "--" in words else len(words)
    args, command = parser.parse_args(words[:split]), words[split + 1:]
    if not command:
        parser.error("expected -- and a command, given none")
    missed, made_any = [], False
    for mutant, code, made in planted.noticed(command, lambda of, env: children.call(of, args.seconds, None, env).code):
        if mutant is None:
            if code != 0:
                raise Refused(f"{command[0]}: expected code 0 without a mistake, given {code}")
            continue
        outcome = "never made: no such collective" if not made else "missed" if code == 0 else "noticed"
        missed += [mutant] * (outcome == "missed")
        made_any |= bool(made)
        print(f"{mutant:<14} {outcome:<8} ({planted.MUTANTS[mutant]})", flush=True)
    if not made_any:
        raise Refused(f"{command[0]}: expected a program that calls torch.distributed, given one in which no mistake was made")
    print(f"missed: {', '.join(missed)}" if missed else "all that were made are noticed")
    return 86 if missed else 0


# Each is given its parser and the words behind its name, and returns an exit code.
COMMANDS = {command.__name__: command for command in (run, export, check, bound, diff, move, mutants)}


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise SystemExit(refuse(64, f"{self.prog}: {message} (--help lists the options)"))


def refuse(code, message):
    print(f"error: {message}", file=sys.stderr)
    return code


def add_problem_options(parser):
    parser.add_argument("--problems", default="*", help="names, with * and ?, separated by commas; with !, all "
                                                         "but these: mlp-*,!mlp-adam-*")
    parser.add_argument("--map", action="append", default=[], metavar="THEIRS=OURS",
                        help="a name of yours, as in fc1.weight=layer_0/weights^T (^T: transposed), or a "
                             ".json file of such pairs")


def add_verdict_options(parser, precisions=PRECISIONS):
    parser.add_argument("--precision", default="float32", choices=precisions,
                        help="how the program computes products: it decides the bounds of real-valued problems")
    parser.add_argument("--devices", type=numbers, help="numbers of devices, separated by commas (default: each "
                                                        "problem's)")
    parser.add_argument("--json", help="a file for the verdicts")
    parser.add_argument("--junit", help="the same as JUnit's XML")


def numbers(text):
    """Numbers of devices, of '2,3,8'."""
    if not re.fullmatch("[1-9][0-9]*(,[1-9][0-9]*)*", text):
        raise argparse.ArgumentTypeError(f"expected numbers as in 2,3,8, given {text}")
    return [int(number) for number in text.split(",")]


def selected(parser, patterns):
    wanted = [pattern for pattern in patterns.split(",") if pattern[:1] != "!"] or ["*"]
    unwanted = [pattern[1:] for pattern in patterns.split(",") if pattern[:1] == "!"]
    def is_one(problem, of):
        return any(fnmatch.fnmatchcase(problem.name, pattern) for pattern in of)
    found = [usable(problem) for problem in listed() if is_one(problem, wanted) and not is_one(problem, unwanted)]
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
