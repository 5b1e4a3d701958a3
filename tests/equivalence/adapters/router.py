"""The router of a mixture, as a problem describes it: where tokens go, and the gradient of that."""
import math

import numpy as np


def softmax(z):
    powers = np.exp(z - z.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def softmax_backward(d, p):
    return p * (d - (p * d).sum(1, keepdims=True))


def choose(logits, k):
    """Probabilities (b, E), chosen experts and gates (b, k). Of equal experts the first comes first."""
    p, chosen = softmax(logits), np.argsort(-logits, axis=1, kind="stable")[:, :k]
    gates = np.take_along_axis(p, chosen, 1)
    return p, chosen, gates / gates.sum(1, keepdims=True) if k > 1 else gates


def with_room(chosen, problem):
    """Which choices of all tokens, (B, k), their expert takes: first choices before second ones."""
    flat, factor = chosen.T.ravel(), problem["capacity_factor"]
    capacity = math.inf if factor == "none" else math.ceil(factor * flat.size / problem["experts"])
    place = np.eye(problem["experts"])[flat].cumsum(0)[range(flat.size), flat]
    return (place <= capacity).reshape(chosen.T.shape).T


def backward(problem, p, chosen, gates, dgates, all_chosen):
    """dL/dlogits (b, E), from dL/dgates (b, k) and the balancing loss, which counts all choices."""
    experts, of_gates, dp = problem["experts"], np.zeros_like(p), np.zeros_like(p)
    share = np.bincount(all_chosen.ravel(), minlength=experts) / all_chosen.size
    dp += problem["aux_weight"] * experts * share / len(all_chosen)
    np.put_along_axis(of_gates, chosen, softmax_backward(dgates, gates) if gates.shape[1] > 1 else dgates, 1)
    if gates.shape[1] > 1:  # then gates are the softmax of the chosen logits
        return of_gates + softmax_backward(dp, p)
    return softmax_backward(of_gates + dp, p)
