#!/usr/bin/env python3
"""A decoder by context parallelism in NumPy, a process for each device:
numpy_decoder_context_parallel.py PROBLEM OUT_DIR DEVICES. Each device has some tokens of every sequence, and
all parameters. It gathers the keys and values of all tokens."""
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "chapters/suite"))
import shardbook_check as sb
from numpy_decoder import Decoder, read
from processes import main
from shardbook_check.problems.layers import turns


class Device(Decoder):
    def __init__(self, group, problem, w):
        super().__init__(group, problem, w)
        self.begin, self.end = sb.part(problem["length"], group.devices, group.device)
        self.tokens = self.end - self.begin
        mine, at = np.arange(self.begin, self.end)[:, None], np.arange(problem["length"])
        self.at = turns(mine[:, 0], problem["head_dim"], problem["rope_base"])
        self.sees = (at <= mine) & (at > mine - (problem["window"] or len(at)))
        self.key_of = np.arange(problem["heads"]) // (problem["heads"] // problem["key_heads"])

    def of_all_tokens(self, t):
        return np.concatenate(self.group.all_gather(t), 2)

    def of_my_keys(self, t):
        return self.group.all_reduce(t)[:, :, self.begin:self.end]

    def experts(self, b, n):
        if not self.p["experts"]:
            return self.expert(b, n)
        z = self.a.scaled_logits(self.product(n, b + "router"))
        chosen = self.a.order(z)[:, :self.p["top_k"]]
        gates = self.a.gates(np.take_along_axis(z, chosen, 1))
        y, kept = np.zeros_like(n), []
        for e in range(self.p["experts"]):
            token, rank = np.nonzero(chosen == e)
            answers, of_expert = self.expert(f"{b}expert_{e}/", n[token])
            np.add.at(y, token, gates[token, rank][:, None] * answers)
            kept.append((token, rank, answers, of_expert))
        return y, (n, chosen, gates, kept)

    def experts_backward(self, b, d, kept):
        if not self.p["experts"]:
            return self.expert_backward(b, d, kept)
        n, chosen, gates, of_experts = kept
        dn, dgates = np.zeros_like(d), np.zeros_like(gates)
        dz = np.zeros((len(d), len(of_experts)), d.dtype)
        for e, (token, rank, answers, of_expert) in enumerate(of_experts):
            dgates[token, rank] = (d[token] * answers).sum(1)
            dy = self.a.gated_back(gates[token, rank][:, None], d[token])
            np.add.at(dn, token, self.expert_backward(f"{b}expert_{e}/", dy, of_expert))
        np.put_along_axis(dz, chosen, self.a.gates_backward(dgates, gates), 1)
        return dn + self.product_backward(n, self.a.scaled_logits(dz), b + "router")


def device_program(group, problem, folder, out):
    params, batch = read(problem, folder)
    device = Device(group, problem, params)
    is_exact, mine = problem["kind"] == "exact", {k: t[:, device.begin:device.end] for k, t in batch.items()}
    labels = (batch["labels"] >= 0).sum()
    mean = ((mine["labels"] >= 0) / labels).astype("f4")
    z, losses = device.step(mine["input_ids"], mine["labels"], mine["losses_grad"] if is_exact else mean)
    losses = losses.reshape(mean.shape)
    results = {"losses": losses} if is_exact else {"logits": z.reshape(*mean.shape, z.shape[-1]),
                                                  "loss": group.all_reduce((losses * mean).sum())}
    gradients = {name: group.all_reduce(g) for name, g in device.g.items()}
    sb.write(out / f"device_{group.device}.safetensors", results | gradients)


if __name__ == "__main__":
    main(device_program, lambda problem: problem["workload"] == "decoder")
