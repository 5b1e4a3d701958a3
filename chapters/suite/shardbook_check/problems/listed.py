"""The list of problems."""
from dataclasses import replace
from functools import cache

from .bounded import Undecided
from .files import Refused
from .kinds import DecoderProblem, Problem, T5Problem


def mlp(kind, batch, *widths, which="", **more):
    name = f"mlp-{kind}-{batch}x{'x'.join(map(str, widths))}{which}"
    return Problem(name, "mlp", kind, batch, widths, **more)


def mixture(kind, batch, experts, top_k, *widths, **more):
    room = "-full" if "capacity_factor" in more else "-apart" * (not more.get("has_ties", True))
    name = f"mixture-{kind}-{batch}x{'x'.join(map(str, widths))}-{experts}-top{top_k}{room}"
    return Problem(name, "mixture", kind, batch, widths, experts=experts, top_k=top_k, **more)


def decoder(kind, text, batch_size, length, *sizes, **more):
    return DecoderProblem(f"decoder-{kind}-{text}", kind, batch_size, length, *sizes, **more)


def t5(text, *sizes, **more):
    return T5Problem(f"t5-real-{text}", "real", *sizes, **more)


@cache
def usable(problem):
    """The problem with the first seed for which rounding decides nothing; in an exact problem, at least half of each
    result is also not 0."""
    for seed in range(problem.seed, 1000):
        candidate = replace(problem, seed=seed)
        try:
            coarsest = "tf32" if problem.kind == "real" and problem.workload != "t5" else "float32"
            results = candidate.results(coarsest, if_unsure="refused")
        except Undecided:
            continue
        if problem.kind == "exact" and any((r.value != 0).mean() < 0.5 for name, r in results.items()
                                           if name != "router/weights" or candidate.has_ties):
            continue
        return candidate
    raise Refused(f"{problem.name}: no seed makes it decided")


def listed():
    """Every problem, with the seed at which `usable` begins. Few numbers of devices divide the shapes, and one shape
    has fewer rows and columns than devices."""
    training = {"steps": 5, "learning_rate": 2.0**-4}
    # Some steps are clipped and some are not, and epsilon matters: otherwise, Adam would hide a wrong scale.
    adam = {"steps": 5, "learning_rate": 2.0**-5, "epsilon": 2.0**-4}
    return [mlp("exact", 13, 7, 11, 7), mlp("exact", 13, 7, 11, 7, 11, 7), mlp("exact", 3, 5, 2, 5),
            mlp("exact", 16, 8, 24, 8, 24, 8), mlp("real", 13, 7, 11, 7), mlp("real", 16, 8, 24, 8),
            mlp("real", 5, 3, 2, 3, 2, 3), mlp("sgd", 13, 7, 11, 7, **training),
            mlp("sgd", 16, 8, 24, 8, **training),
            mlp("adam", 13, 7, 11, 7, **adam, clip_norm=1.0),
            mlp("adam", 16, 8, 24, 8, **adam, clip_norm=0.625),
            # Decided with coarse operands, too: norms are far from clip_norm.
            mlp("adam", 16, 8, 24, 8, which="-far", **{**adam, "steps": 2}, clip_norm=0.25),
            # Some rows count, and some do not: a mean of the devices' means is another number on even sizes, too.
            mlp("sgd", 16, 8, 24, 8, which="-weighted", **training, has_row_weights=True),
            mixture("exact", 23, 5, 1, 5, 7, 5), mixture("exact", 11, 3, 2, 5, 7, 5),
            # The balancing loss is divided by top_k and twice by the batch size, so these are powers of two.
            mixture("exact", 16, 7, 2, 5, 7, 5, aux_weight=128.0, capacity_factor=0.75),
            mixture("real", 13, 3, 1, 5, 7, 5, aux_weight=2.0**-6), mixture("real", 11, 5, 2, 5, 7, 5),
            mixture("real", 13, 7, 2, 5, 7, 5, aux_weight=2.0**-6, capacity_factor=1.25),
            mixture("exact", 16, 8, 1, 8, 16, 8, has_ties=False), mixture("exact", 16, 8, 2, 8, 16, 8, aux_weight=128.0),
            mixture("real", 16, 8, 2, 8, 16, 8, aux_weight=2.0**-6, seed=9),  # decided in bf16
            *decoders()]


def decoders():
    """Decoders with more key-value heads than devices, and with fewer; with a window, a tied head, and experts. Given
    seeds are the first usable ones."""
    plain, even = {"blocks": 2}, {"devices": (1, 2, 4, 8)}
    tied = {"window": 3, "is_tied": True, "blocks": 2, "rope_base": 100.0}
    experts = {"experts": 5, "top_k": 2, "blocks": 2}
    return [decoder("real", "plain", 3, 7, 7, 6, 3, 2, 5, 11, **plain),
            decoder("real", "even", 4, 8, 8, 8, 8, 2, 16, 16, **even),
            decoder("real", "window-tied", 2, 9, 6, 4, 2, 4, 7, 13, **tied),
            decoder("real", "experts", 3, 5, 5, 3, 1, 2, 5, 7, **experts, seed=158),
            # Sizes that 2, 4 and 8 divide, but for key-value heads; decided in bf16.
            decoder("real", "even-experts", 4, 4, 8, 8, 4, 2, 16, 16, experts=4, top_k=2, seed=553,
                    devices=(1, 2, 4)),
            decoder("real", "even-window-tied", 4, 8, 8, 8, 4, 2, 16, 16, window=3, is_tied=True, **even),
            t5("tied", 3, 7, 5, 6, 3, 2, 7, 11), t5("own-head", 2, 5, 6, 8, 4, 2, 8, 16, is_tied=False),
            t5("even", 4, 8, 8, 8, 8, 2, 16, 16, devices=(1, 2, 4, 8)),
            decoder("exact", "even", 4, 8, 8, 8, 4, 2, 16, 16, **even),
            decoder("exact", "plain", 3, 5, 6, 3, 3, 2, 5, 11),
            decoder("exact", "window-tied", 2, 7, 10, 6, 2, 2, 7, 13, **tied),
            decoder("exact", "experts", 5, 3, 8, 4, 2, 4, 5, 7, **experts, seed=64)]


def problems():
    """All problems. Finding their seeds takes a second."""
    return [usable(problem) for problem in listed()]


def listed_by_name():
    return {problem.name: problem for problem in listed()}


def problem(name):
    """A problem by its name. \\throws KeyError"""
    return usable(listed_by_name()[name])
