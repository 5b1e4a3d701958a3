"""Compares a sharded implementation, in any framework, with the same network on one device. Needs NumPy.

Inside your own test, on every process:

    import shardbook_check as sb
    problem = sb.problem("mlp-exact-13x7x11x7")
    ...                                 # load problem.params, run problem.batch through your network
    verdict = sb.check(grads, problem, strategy="tp", rank=rank, world=world)
    assert verdict.is_right, verdict    # says which tensor, which device, where, and the likely cause

Or without a line of Python: shardbook-check run -- COMMAND..., or export and check.
"""
from .layouts import Letter, read_layout
from .problems.bounded import Undecided, part
from .problems.files import Refused, Stored, read, rounded, write
from .problems import listed
from .problems.listed import problem
from .launch import pytest_plugin
from .launch.mutants import MUTANTS, planted
from .launch.pytest_plugin import mutants
from .launch.ranks import ranks
from .launch.sessions import session
from .own import held
from .own.cases import Case, case
from .own.held import Differs
from . import verdicts
from .verdicts import Difference, Verdict, check_pieces


def check(results, against, *args, **more):
    """Holds one process's results against a problem (see verdicts.check) or a case of one's own (own/held.py)."""
    return (held.check if isinstance(against, Case) else verdicts.check)(results, against, *args, **more)


def problems(patterns=None, **how):
    """All problems; with patterns, a decorator that gives a test its argument `problem` (launch/pytest_plugin.py)."""
    return pytest_plugin.problems(patterns, **how) if patterns else listed.problems()
