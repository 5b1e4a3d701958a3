"""SGD, and Adam after clipping, as a problem describes them: for the arrays of NumPy and of JAX."""


class Optimizer:
    def __init__(self, problem):
        self.problem, self.steps, self.moments = problem, 0, {}

    def step(self, weights, gradients, norm):
        """New weights. `norm` is that of all gradients together, which may be clipped."""
        self.steps += 1
        clip = self.problem["clip_norm"]
        factor = min(1.0, clip / (float(norm) + 1e-6)) if clip else 1.0
        return [self.updated(i, w, g * factor) for i, (w, g) in enumerate(zip(weights, gradients))]

    def updated(self, i, w, g):
        """Kingma and Ba 2015, algorithm 1."""
        rate, (beta1, beta2) = self.problem["learning_rate"], self.problem["betas"]
        if self.problem["kind"] != "adam":
            return w - rate * g
        m, v = self.moments.get(i, (0 * g, 0 * g))
        m, v = self.moments[i] = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        root = (v / (1 - beta2**self.steps)) ** 0.5
        return w - rate * (m / (1 - beta1**self.steps)) / (root + self.problem["epsilon"])
