"""pytest's plugin: the decorators of shardbook_check, and what its mutants showed."""
from __future__ import annotations

import fnmatch
import functools
import inspect
import os
import tempfile

from ..problems.listed import listed, usable
from . import mutants as planted

SEEN = []  # (test, mutant, what came of it)


def problems(patterns, even=False, session=False):
    """Gives a test its argument `problem`: each of these, or, with `session`, all of them in one process group.
    `even`: only those whose sizes 8 divides."""
    import pytest
    chosen = [problem.name for problem in listed() if (not even or is_even(problem)) and
              any(fnmatch.fnmatchcase(problem.name, pattern) for pattern in patterns.split(","))]

    def decorated(test):
        if session:
            @functools.wraps(test)
            def of_all(*args, **more):
                wrong = []
                for name in chosen:
                    try:
                        test(*args, problem=usable_by_name(name), **more)
                    except AssertionError as error:
                        wrong.append(f"{name}: {error}")
                assert not wrong, f"{len(wrong)} of {len(chosen)} problems: " + "\n".join(wrong)
            return without_argument(of_all, "problem")

        @functools.wraps(test)
        def of_one(*args, problem, **more):
            test(*args, problem=usable_by_name(problem), **more)
        return pytest.mark.parametrize("problem", chosen)(of_one)
    return decorated


def usable_by_name(name):
    return usable(next(problem for problem in listed() if problem.name == name))


def is_even(problem):
    """Whether 8 divides the sizes; of decoders and of a t5, the name says it."""
    if not hasattr(problem, "widths"):
        return "even" in problem.name.split("-")
    return all(size % 8 == 0 for size in (problem.batch_size, *problem.widths))


def without_argument(function, name):
    """pytest looks at a function's arguments."""
    signature = inspect.signature(function)
    function.__signature__ = signature.replace(parameters=[p for p in signature.parameters.values() if p.name != name])
    return function


def mutants(names=tuple(planted.MUTANTS)):
    """Above a test with @ranks: runs it with each mistake, and fails if it notices nothing. A mistake that the test's
    program never makes, since it has no such collective, is skipped."""
    import pytest
    unknown = [name for name in names if name not in planted.MUTANTS]
    if unknown:
        raise ValueError(f"mutants: expected some of {', '.join(planted.MUTANTS)}, given {unknown[0]}")

    def decorated(test):
        @functools.wraps(test)
        def of_each(mutant, **more):
            with tempfile.TemporaryDirectory() as folder:
                before = dict(os.environ)
                os.environ.update(planted.environment(mutant, folder))
                try:
                    test(**more)
                    is_noticed = False
                except AssertionError:
                    is_noticed = True
                finally:
                    os.environ.clear()
                    os.environ.update(before)
                is_made = bool(os.listdir(folder))
            SEEN.append((test.__name__, mutant, "noticed" if is_noticed and is_made else "missed" if is_made else "never made"))
            if not is_made:
                pytest.skip(f"{mutant}: no collective of this program can make it")
            assert is_noticed, f"not noticed: {mutant}: {planted.MUTANTS[mutant]}"
        return pytest.mark.parametrize("mutant", names)(with_argument(of_each, "mutant"))
    return decorated


def with_argument(function, name):
    signature = inspect.signature(function)
    mine = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
    function.__signature__ = signature.replace(parameters=[*signature.parameters.values(), mine])
    return function


def pytest_terminal_summary(terminalreporter):
    """One line for each mutated test."""
    for test in dict.fromkeys(test for test, _, _ in SEEN):
        of = {what: [mutant for name, mutant, seen in SEEN if name == test and seen == what]
              for what in ("noticed", "missed", "never made")}
        said = ", ".join(f"{len(names)} {what}" + (f" ({', '.join(names)})" if what != "noticed" else "")
                         for what, names in of.items() if names)
        terminalreporter.write_line(f"mutants of {test}: {said}")
