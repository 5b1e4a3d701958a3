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
from .problems.listed import problem, problems
from .verdicts import Difference, Verdict, check, check_pieces
