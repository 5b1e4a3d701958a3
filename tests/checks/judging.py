"""The judge of all sets: what the suite says of sharded programs with a mistake, and how often that is true.

A set is a table of mistakes, with what is true of each; the functions of_... make its wrong versions: (mistake, where, what
is true, a function of its verdict). A set that is run prints its figures: WORDS choose mistakes, --all prints each verdict."""
import collections
import functools
import re
import sys

import own_models
import shardbook_check as sb
from decoders import pieces as of_decoder
from mixtures import Mixture, pieces as of_mixture

# Holds of the results, and does not say why. These two count as true only where the words of what is true say so.
BARE = ("different copies", "0 in every element")
FACT = r"different copies|device \d's slice|0 in every element|times it in every element: a wrong scale|rows of the batch count|" \
    r"addend of rows? .* of the batch|no larger than rounding to 16 bits"
# Of mlps, the first sets.
FACT_OF_MLPS = r"different copies|device \d's slice|0 in every element|rows of the batch count|missing from the sum|trained without rows"


@functools.cache
def problem(name):
    return sb.problem(name)


@functools.cache
def case(name):
    of = problem(name)
    return (own_models.decoder_case if of.workload == "decoder" else own_models.mixture_case)(of)


def of_mlps(table, program, training=(), names=()):
    """`training`: mistakes of training alone; `names`: of problems, or all."""
    for planted, meshes, true in table:
        for of in sb.problems():
            is_asked = of.workload == "mlp" and (of.name in names or not names)
            for mesh in meshes if is_asked and (of.is_training or planted not in training) else ():
                yield planted, f"{of.name} {mesh}", true, lambda of=of, mesh=mesh, planted=planted: \
                    verdict_of_mlp(program, of, mesh, planted)


def verdict_of_mlp(program, of, mesh, planted):
    """None where slices or rows do not fit together."""
    try:
        pieces, layout = program(of, *mesh, planted).pieces()
    except ValueError:
        return None
    return sb.check_pieces(of, mesh[0] * mesh[1], pieces, layout)


def of_problems(table):
    for planted, program, names, devices, true in table:
        for name, n in ((name, n) for name in names for n in devices):
            of = problem(name)
            yield planted, f"{name} on {n}", true, lambda of=of, n=n, program=program, planted=planted: sb.check_pieces(
                of, n, (of_mixture if issubclass(program, Mixture) else of_decoder)(of, program, n, planted))


def of_own(table, program=own_models.Own):
    for planted, meshes, steps, true in table:
        for mesh in meshes:
            yield planted, f"own {mesh}{' trained' * bool(steps)}", true, \
                lambda mesh=mesh, steps=steps, planted=planted: program(*mesh, planted, steps).verdict()


def of_own_networks(decoders, mixtures, program=Mixture):
    for planted, of, true in decoders:
        for name in ("decoder-real-even",) if "fused" in planted else ("decoder-real-plain", "decoder-real-window-tied"):
            for n in (2, 3):
                if not ("fused" in planted and n == 3):
                    yield planted, f"own {name} on {n}", true, lambda of=of, name=name, n=n, planted=planted: \
                        own_models.decoder_verdict(problem(name), of, n, planted, case(name))
    for planted, true in mixtures:
        for name, n in ((name, n) for name in ("mixture-real-11x5x7x5-5-top2", "mixture-real-13x5x7x5-3-top1") for n in (2, 3)):
            yield planted, f"own {name} on {n}", true, lambda name=name, n=n, planted=planted: \
                own_models.mixture_verdict(problem(name), program, n, planted, case(name))


def judged(versions, facts=FACT, bare=BARE):
    """Yields (mistake, where, verdict, what its cause is) of those that are wrong."""
    for planted, where, true, run in versions:
        verdict = run()
        if verdict and not verdict.is_right:
            yield planted, where, verdict, of_cause(verdict.cause, true, facts, bare)


def of_cause(cause, true, facts, bare):
    if not cause:
        return "none"
    if any(words in cause and words.split()[-1] not in true for words in bare):
        return "a fact"
    return "true" if re.search(true, cause) else "a fact" if re.search(facts, cause) else "wrong"


def measure(facts=FACT, bare=BARE, **groups):
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    total, kinds, places = (collections.defaultdict(collections.Counter) for _ in range(3))
    for group, versions in groups.items():
        versions = (version for version in versions if not words or any(word in version[0] for word in words))
        for planted, where, verdict, said in judged(versions, facts, bare):
            for of in (kinds[planted], places[planted, where.partition(" ")[2]], total[group], total["all"]):
                of[said] += 1
            for note in (note for note in verdict.notes if "rule failed" in note):
                print(f"  {planted:42} {where}: {note}", flush=True)
            if "--all" in sys.argv:
                print(f"  {planted:42} {where}: {said}: {verdict.cause}", flush=True)
    for planted, of in kinds.items():
        print(f"{planted:48} {dict(of)}")
    for what, found in (("kinds", kinds), ("wrong versions", places)):
        print(f"{len(found)} {what}, with the true cause in most: {sum(of['true'] * 2 > sum(of.values()) for of in found.values())}")
    for group, of in total.items():
        share = ", ".join(f"{of[said]} {said} ({100 * of[said] / sum(of.values()):.0f} %)" for said in ("true", "a fact", "none", "wrong"))
        print(f"{group}: {sum(of.values())} wrong verdicts: {share}")


def measure_mlps(*of):
    """`of`: as of_mlps takes it."""
    measure(FACT_OF_MLPS, (), mlps=of_mlps(*of))


def measure_networks(table, own, decoders, mixtures, of_own_model=own_models.Own, of_mixtures=Mixture):
    measure(decoders=[v for v in of_problems(table) if "decoder" in v[1]],
            mixtures=[v for v in of_problems(table) if "mixture" in v[1]],
            own=of_own(own, of_own_model), own_decoders_and_mixtures=of_own_networks(decoders, mixtures, of_mixtures))
