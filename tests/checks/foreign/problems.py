"""A problem of the sizes that a test has, for programs that otherwise run problems of the suite."""
from dataclasses import replace

import numpy as np
import shardbook_check as sb


def problem_of(params, batch, **changes):
    """`params` are the layers' weights in order; `batch` has "input", with "target" or "output_grad"."""
    widths = (params[0].shape[0], *(w.shape[1] for w in params))
    of = replace(sb.problem("mlp-real-16x8x24x8"), widths=widths, batch_size=len(batch["input"]), clip_norm=0.0, **changes)
    of.__dict__.update(params={f"layer_{layer}/weights": w for layer, w in enumerate(params)}, batch=batch)
    return of


def linear(random, rows, columns):
    """The weights that torch.nn.Linear begins with, by their distribution."""
    return random.uniform(-1, 1, (rows, columns)) / np.sqrt(rows)
