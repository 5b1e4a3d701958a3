"""Layers of a decoder in float32, with the functions of layers.OnGrid."""
import numpy as np


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def softmax(z):
    powers = np.exp(z - z.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


class RealLayers:
    def __init__(self, problem):
        self.epsilon, self.scale = np.float32(problem["norm_epsilon"]), np.float32(problem["head_dim"]**-0.5)

    def norm(self, x, w):
        r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon)
        return x * r * w, (x * r, r)

    def norm_backward(self, dy, w, kept):
        x_hat, r = kept
        d = dy * w
        return (d - x_hat * (d * x_hat).mean(-1, keepdims=True)) * r, (dy * x_hat).sum(-2)

    def turned(self, t, at, direction=1):
        (x, y), (cos, sin) = np.split(t, 2, -1), (a.astype("f4") for a in at)
        return np.concatenate([x * cos - direction * y * sin, direction * x * sin + y * cos], -1)

    def attend(self, q, k, v, sees):
        p = softmax(np.where(sees, q @ k.swapaxes(-1, -2) * self.scale, -np.inf))
        return p @ v, p

    def attend_backward(self, dout, out, p, q, k, v):
        ds = (dout @ v.swapaxes(-1, -2) - (dout * out).sum(-1, keepdims=True)) * p
        scaled = ds * self.scale
        return scaled @ k, scaled.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ dout, ds

    def gated(self, g, u):
        return g * sigmoid(g) * u

    def gated_backward(self, dh, g, u):
        return dh * u * sigmoid(g) * (1 + g * sigmoid(-g)), dh * g * sigmoid(g)

    def order(self, z):
        return np.argsort(-z, axis=-1, kind="stable")

    def gates(self, z):
        return softmax(z)

    def gates_backward(self, dgates, gates):
        return gates * (dgates - (dgates * gates).sum(-1, keepdims=True))

    def gated_back(self, gate, d):
        return gate * d

    def scaled_logits(self, z):
        return z

    def losses(self, z, picks, dlosses, all_reduce=lambda t: t):
        sums, label = (all_reduce(t) for t in (np.exp(z).sum(-1), (z * picks).sum(-1)))
        return np.log(sums) - label, (np.exp(z) / sums[:, None] - picks) * dlosses[:, None]
