"""The layers of transformers, of which one computes another function: what a program does that was written for another
network, or that converts its weights wrongly."""
import math

import numpy as np

from .layers import sigmoid

erf = np.vectorize(math.erf, otypes=[float])


def gelu(z):
    cdf = (1 + erf(z / math.sqrt(2))) / 2
    return z * cdf, cdf + z * np.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def gelu_by_tanh(z):
    t = np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))
    return z * (1 + t) / 2, (1 + t) / 2 + z * (1 - t * t) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * z * z) / 2


def gelu_by_sigmoid(z):
    s = sigmoid(1.702 * z)
    return z * s, s * (1 + 1.702 * z * (1 - s))


# name: (the cause, a function that gives the values and their derivatives)
FOR_SILU = {
    "gelu": ("gelu for silu?", gelu),
    "gelu by tanh": ("gelu, by its formula with tanh, for silu?", gelu_by_tanh),
    "gelu by sigmoid": ("gelu, as z sigmoid(1.702 z), for silu?", gelu_by_sigmoid),
    "relu": ("relu for silu?", lambda z: (np.maximum(z, 0), (z > 0) * 1.0)),
    "sigmoid": ("the gate's sigmoid for its silu?", lambda z: (sigmoid(z), sigmoid(z) * (1 - sigmoid(z)))),
}
OF_NORMS = {
    "weights of norms plus 1": "norms' weights plus 1, which another network's have?",
    "epsilon outside the root": "norms' epsilon outside the root?",
}
CAUSES = {**OF_NORMS, **{f"{name} for silu": cause for name, (cause, _) in FOR_SILU.items()}}


def of_mistake(layers, forgets):
    """The layers themselves, or those of a wrong version."""
    return OtherFunctions(layers, forgets) if forgets in CAUSES else layers


class OtherFunctions:
    """Backward functions are the derivatives of the forward ones."""
    def __init__(self, layers, forgets):
        self.layers, self.forgets = layers, forgets
        self.of_gate = FOR_SILU.get(forgets.removesuffix(" for silu"), ("", None))[1]

    def __getattr__(self, name):
        return getattr(self.layers, name)

    def norm(self, x, w):
        if self.forgets == "weights of norms plus 1":
            return self.layers.norm(x, 1 + w)
        if self.forgets == "epsilon outside the root":
            r = 1 / (np.sqrt((x * x).mean(axis=-1, keepdims=True)) + self.layers.epsilon)
            x_hat = self.layers.rounded(x * r)
            return self.layers.rounded(x_hat * w), (x_hat, r)
        return self.layers.norm(x, w)

    def norm_backward_of_rows(self, dy, w, kept):
        if self.forgets == "epsilon outside the root":  # r = 1 / (s + epsilon) depends on the row by s
            (x_hat, r), d = kept, dy * w
            mean = (d * x_hat).mean(axis=-1, keepdims=True) / (1 - r * self.layers.epsilon)
            return self.layers.rounded((d - x_hat * mean) * r)
        return self.layers.norm_backward_of_rows(dy, w + (self.forgets == "weights of norms plus 1"), kept)

    def gated(self, g, u):
        return self.layers.rounded(self.of_gate(g)[0] * u) if self.of_gate else self.layers.gated(g, u)

    def gated_backward(self, dh, g, u):
        if not self.of_gate:
            return self.layers.gated_backward(dh, g, u)
        value, slope = self.of_gate(g)
        return self.layers.rounded(dh * u * slope), self.layers.rounded(dh * value)
