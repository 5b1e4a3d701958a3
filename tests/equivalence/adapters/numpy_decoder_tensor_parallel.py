#!/usr/bin/env python3
"""A decoder without experts by tensor parallelism in NumPy, a process for each device:
numpy_decoder_tensor_parallel.py PROBLEM OUT_DIR DEVICES. Heads, hidden units and the vocabulary are divided."""
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "chapters/suite"))
import shardbook_check as sb
from numpy_decoder import Decoder, read
from processes import main
from shardbook_check.problems.layers import turns


class Device(Decoder):
    def __init__(self, group, problem, read):
        heads, key_heads, n = problem["heads"], problem["key_heads"], group.devices
        self.shares_keys = key_heads < n  # then each device has all of them
        self.keys = (0, key_heads) if self.shares_keys else sb.part(key_heads, n, group.device)
        shared = heads // key_heads
        self.heads = sb.part(heads, n, group.device) if self.shares_keys else \
            tuple(shared * key for key in self.keys)
        self.key_of = np.arange(*self.heads) // shared - self.keys[0]
        self.part = lambda size: sb.part(size, n, group.device)
        super().__init__(group, problem, {name: self.mine(name, t, problem["head_dim"]) for name, t in read.items()})
        self.vocabulary = self.part(problem["vocabulary"])
        at = np.arange(problem["length"])
        self.at = turns(at, problem["head_dim"], problem["rope_base"])
        self.sees = (at <= at[:, None]) & (at > at[:, None] - (problem["window"] or len(at)))

    def mine(self, name, t, d):
        """This device's slice. `d`: the width of a head."""
        last = name.split("/")[-1]
        if last in ("query", "key", "value", "output"):
            begin, end = (d * at for at in (self.keys if last in ("key", "value") else self.heads))
            return t[begin:end] if last == "output" else t[:, begin:end]
        if last in ("gate", "up"):
            return t[:, slice(*self.part(t.shape[1]))]
        return t[slice(*self.part(len(t)))] if last in ("down", "embedding", "head") else t

    def summed(self, t):
        return self.group.all_reduce(t)

    def of_my_keys(self, t):
        return self.group.all_reduce(t) if self.shares_keys else t

    def summed_projections(self, of_queries, of_keys):
        if self.shares_keys:  # every device has the same keys
            return self.summed(of_queries) + of_keys
        return self.summed(of_queries + of_keys)


def device_program(group, problem, folder, out):
    params, batch = read(problem, folder)
    device, labels = Device(group, problem, params), batch["labels"]
    is_exact, mean = problem["kind"] == "exact", ((labels >= 0) / (labels >= 0).sum()).astype("f4")
    z, losses = device.step(batch["input_ids"], labels, batch["losses_grad"] if is_exact else mean)
    results = {"losses": losses.reshape(labels.shape)} if is_exact else \
        {"logits": z.reshape(*labels.shape, -1), "loss": (losses * mean.ravel()).sum()}
    sb.write(out / f"device_{group.device}.safetensors", results | device.g)


if __name__ == "__main__":
    main(device_program, lambda problem: problem["workload"] == "decoder" and not problem["experts"])
