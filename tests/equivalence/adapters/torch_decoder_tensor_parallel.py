#!/usr/bin/env python3
"""A decoder by tensor parallelism in PyTorch over Gloo, with autograd:
torch_decoder_tensor_parallel.py PROBLEM OUT_DIR DEVICES. Heads, hidden units (of each expert, too) and the
vocabulary are divided, evenly or not."""
import json
import sys
from pathlib import Path

import torch
from torch import distributed
from torch.nn.functional import embedding, silu

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "chapters/suite"))
import shardbook_check as sb
from shardbook_check.problems.layers import turns


def all_reduced(t, **how):
    t = t.clone()
    distributed.all_reduce(t, **how)
    return t


class Copy(torch.autograd.Function):
    """What every device has, as the input of what each device does by itself: gradients are added up."""
    @staticmethod
    def forward(_, t):
        return t.clone()

    @staticmethod
    def backward(_, d):
        return all_reduced(d)


class Sum(torch.autograd.Function):
    """Of all devices' addends, as every device has it."""
    @staticmethod
    def forward(_, t):
        return all_reduced(t)

    @staticmethod
    def backward(_, d):
        return d


copy, summed = Copy.apply, Sum.apply


class Decoder:
    def __init__(self, problem, params, device, n):
        self.p = problem
        heads, key_heads, d = problem["heads"], problem["key_heads"], problem["head_dim"]
        self.shares_keys = key_heads < n  # then every device has all key-value heads
        keys = (0, key_heads) if self.shares_keys else sb.part(key_heads, n, device)
        queries = sb.part(heads, n, device) if self.shares_keys else \
            tuple(heads // key_heads * key for key in keys)
        self.key_of = torch.arange(*queries) // (heads // key_heads) - keys[0]
        self.rows = sb.part(problem["vocabulary"], n, device)
        hidden = sb.part(problem["hidden_dim"], n, device)
        q, k = (slice(d * begin, d * end) for begin, end in (queries, keys))
        h, v = slice(*hidden), slice(*self.rows)
        cuts = {"query": (1, q), "key": (1, k), "value": (1, k), "output": (0, q), "gate": (1, h),
                "up": (1, h), "down": (0, h), "embedding": (0, v), "head": (0, v)}
        self.w = {}
        for name, t in params.items():
            axis, mine = cuts.get(name.split("/")[-1], (0, slice(None)))
            self.w[name] = (t[:, mine] if axis else t[mine]).clone().requires_grad_()
        at = torch.arange(problem["length"])
        self.turns = [torch.tensor(t, dtype=torch.float32) for t in turns(at, d, problem["rope_base"])]
        self.sees = (at <= at[:, None]) & (at > at[:, None] - (problem["window"] or len(at)))

    def norm(self, x, name):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.p["norm_epsilon"]) * self.w[name]

    def turned(self, t):
        (x, y), (cos, sin) = t.chunk(2, -1), self.turns
        return torch.cat([x * cos - y * sin, x * sin + y * cos], -1)

    def attend(self, b, x):
        n, d = copy(self.norm(x, b + "attention_norm")), self.p["head_dim"]
        q, k, v = (t.reshape(*n.shape[:2], t.shape[2] // d, d).transpose(1, 2)
                   for t in (n @ self.w[b + name] for name in ("query", "key", "value")))
        q, k, v = self.turned(q), self.turned(k)[:, self.key_of], v[:, self.key_of]
        p = (q @ k.transpose(2, 3) / d**0.5).masked_fill(~self.sees, -torch.inf).softmax(-1)
        return summed((p @ v).transpose(1, 2).flatten(2) @ self.w[b + "output"])

    def feed_forward(self, b, n):
        return (silu(n @ self.w[b + "gate"]) * (n @ self.w[b + "up"])) @ self.w[b + "down"]

    def mixture(self, b, n):
        """Every device computes all gates, and each expert's addend."""
        z = n @ self.w[b + "router"]
        chosen = z.topk(self.p["top_k"], -1)
        gates = torch.zeros_like(z).scatter(-1, chosen.indices, copy(chosen.values.softmax(-1)))
        n = copy(n)
        return summed(sum(gates[..., e:e + 1] * self.feed_forward(f"{b}expert_{e}/", n)
                          for e in range(self.p["experts"])))

    def in_slice(self, tokens):
        """Tokens as rows of this device's slice of the vocabulary, and which are in it."""
        begin, end = self.rows
        is_mine = (tokens >= begin) & (tokens < end)
        return torch.where(is_mine, tokens - begin, 0), is_mine

    def logits(self, ids):
        rows, is_mine = self.in_slice(ids)
        x = summed(embedding(rows, self.w["embedding"]) * is_mine[..., None])
        for b in (f"block_{b}/" for b in range(self.p["blocks"])):
            x = x + self.attend(b, x)
            n = self.norm(x, b + "feed_forward_norm")
            x = x + (self.mixture(b, n) if self.p["experts"] else summed(self.feed_forward(b, copy(n))))
        head = self.w["embedding" if self.p["is_tied"] else "head"]
        return copy(self.norm(x, "final_norm")) @ head.T

    def loss(self, z, labels):
        """The mean over the tokens that have a label. No device has all logits of a token."""
        largest = all_reduced(z.detach().amax(-1), op=distributed.ReduceOp.MAX)
        logarithm = summed((z - largest[..., None]).exp().sum(-1)).log() + largest
        columns, is_mine = self.in_slice(labels)
        of_label = summed(z.gather(-1, columns[..., None])[..., 0] * is_mine)
        return ((logarithm - of_label) * (labels >= 0)).sum() / (labels >= 0).sum()


def device_program(device, problem, folder, out, n):
    distributed.init_process_group("gloo", init_method=f"file://{out}/meeting", rank=device, world_size=n)
    params, batch = ({name: torch.tensor(t.values) for name, t in sb.read(folder / problem[f]).items()}
                     for f in ("params", "batch"))
    model = Decoder(problem, {name: t.float() for name, t in params.items()}, device, n)
    z = model.logits(batch["input_ids"].long())
    loss = model.loss(z, batch["labels"].long())
    loss.backward()
    gradients = {name: w.grad for name, w in model.w.items()}
    for name in gradients:
        if model.shares_keys and name.endswith(("/key", "/value")):
            distributed.all_reduce(gradients[name])
    sb.write(out / f"device_{device}.safetensors",
                    {"logits": z.detach(), "loss": loss.detach(), **gradients})
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    problem, n = json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[3])
    if problem["workload"] != "decoder" or problem["kind"] == "exact" or n > problem["vocabulary"]:
        sys.exit(77)
    torch.multiprocessing.spawn(device_program, (problem, Path(sys.argv[1]).parent, Path(sys.argv[2]), n), n)
