"""The tests of CS336's second assignment (tests/test_ddp_individual_parameters.py and test_sharded_optimizer.py), by their
protocol: two devices; five steps of SGD on 20 rows, of which each device has ten, rank 0 held against one device after each
step; and ten steps of Adam on 32 rows that every device has, each device held at the end.

Otherwise than there: the models are the nearest of two and four matrices, without the first's frozen bias and the second's
tied weights; the numbers are ours; and Adam decays no weights, since these programs do not."""
import numpy as np

from .problems import linear, problem_of

WIDTHS = ((10, 50, 5), (10, 50, 10, 50, 5))
# What the reader hands in. Model, loss, rows, clipping and the loop are the test's, so it says nothing of mistakes in them.
EXCHANGE = ("mean", "mean, divided first", "summed twice", "no reduction", "no reduction, own mean", "no reduction of layer 0",
            "no reduction in the last step", "the last device lost", "bf16 reduction", "one step late", "replicas drift",
            "own addend added once more", "device 0 left out of the sum", "maximum for the sum",
            "weights averaged, not gradients")
OPTIMIZER = ("no zero_grad", "no bias correction", "betas exchanged", "bias corrected by the step before", "moments forgotten",
             "only device 0 updates")


def trained(program, batches):
    """The weights of each device after each step."""
    own_step, seen = program.step, []

    def step():
        seen.append({device: list(w) for device, w in program.w.items()})
        program.batch.update(batches[len(seen) - 1])
        return own_step()
    program.step = step
    program.train()
    return [*seen[1:], program.w]


def is_exchange_wrong(case, widths, seed=0):
    random = np.random.default_rng(seed)
    x, target = random.normal(size=(20, widths[0])).astype("f4"), random.normal(size=(20, widths[-1])).astype("f4")
    orders = [np.arange(20), *(random.permutation(20) for _ in range(4))]
    of = problem_of([linear(random, *size) for size in zip(widths, widths[1:])], {"input": x, "target": target}, kind="sgd",
                    steps=5, learning_rate=0.1)
    batches = [{"input": x[order], "target": target[order]} for order in orders]
    single, sharded = trained(case.right_on(of, 1, 1), batches), trained(case.on(of, 2, 1), batches)
    return not all(np.allclose(a, b) for one, two in zip(single, sharded) for a, b in zip(one[0, 0], two[0, 0]))


def of_every_row(program, rows):
    """The program in the optimizer's test: each device has all rows, and the gradient of all; the loss is a sum."""
    program.rows = lambda d: np.arange(rows)
    program.reduced = lambda g, step: {d: [t * np.float32(rows * program.p.widths[-1]) for t in of] for d, of in g.items()}
    return program


def is_optimizer_wrong(case, widths, seed=0):
    random = np.random.default_rng(seed)
    params = [linear(random, *size) for size in zip(widths, widths[1:])]
    batches = [{"input": random.random((32, widths[0])).astype("f4"), "target": random.random((32, widths[-1])).astype("f4")}
               for _ in range(10)]
    of = problem_of(params, batches[0], kind="adam", steps=10, learning_rate=0.1, betas=(0.9, 0.999), epsilon=1e-8)
    single, sharded = (trained(of_every_row(program, 32), batches)[-1] for program in (case.right_on(of, 1, 1), case.on(of, 2, 1)))
    return not all(np.allclose(a, b, rtol=1e-7, atol=0) for of in sharded.values() for a, b in zip(single[0, 0], of))


def says(case):
    if case.mesh[1] > 1 or case.planted and case.planted not in EXCHANGE + OPTIMIZER:
        return None
    return any(test(case, widths) for test in (is_exchange_wrong, is_optimizer_wrong) for widths in WIDTHS)
