#!/usr/bin/env python3
"""Expert parallel in NumPy, a process for each device: numpy_expert_parallel.py PROBLEM OUT_DIR DEVICES.
Rows of the batch (tokens) and experts of two layers are divided over the devices."""
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "chapters/suite"))
import router
import shardbook_check as sb
from processes import main


def experts(read, mine, expert, a, d):
    """Answers to the tokens a (m, D) of my experts, gradients by tokens and by weights; d: by answers."""
    answer, da, gradients = np.zeros_like(d), np.zeros_like(a), {}
    for e in mine:
        names, of_e = [f"expert_{e}/layer_{layer}/weights" for layer in range(2)], expert == e
        w0, w1 = (read[name] for name in names)
        h = np.maximum(a[of_e] @ w0, 0)                           # (m_e, F)
        dh = (d[of_e] @ w1.T) * (h > 0)
        answer[of_e], da[of_e] = h @ w1, dh @ w0.T
        gradients |= zip(names, (a[of_e].T @ dh, h.T @ d[of_e]))
    return answer, da, gradients


def device_program(group, problem, folder, out):
    device, n = group.device, group.devices
    read = {name: t.values.astype("f4") for f in ("params", "batch") for name, t in
            sb.read(folder / problem[f]).items()}
    x, dy, w = *(np.array_split(read[t], n)[device] for t in ("input", "output_grad")), read["router/weights"]
    p, chosen, gates = router.choose(x @ w, problem["top_k"])     # (b, E), (b, k), (b, k)
    all_chosen = np.concatenate(group.all_gather(chosen))         # (B, k)
    kept = np.array_split(router.with_room(all_chosen, problem), n)[device]
    owner = np.array([d for d in range(n) for _ in range(*sb.part(problem["experts"], n, d))])
    to = [np.argwhere(kept & (owner[chosen] == d)) for d in range(n)]
    token, rank = np.concatenate(to).T                            # (m)      choices, in the order of devices
    def send(t, sizes):
        return group.all_to_all(np.split(t, np.cumsum(sizes)[:-1]))
    sizes, gate = [len(choices) for choices in to], gates[token, rank][:, None]
    back = [len(t) for t in send(token, sizes)]                   # to each device, of what it has sent
    at_experts = [np.concatenate(send(t, sizes)) for t in (chosen[token, rank], x[token], gate * dy[token])]
    answer, da, gradients = experts(read, np.flatnonzero(owner == device), *at_experts)
    y, dx = (np.concatenate(send(t, back)) for t in (answer, da))  # (m, D)
    output, input_grad, dgates = np.zeros_like(dy), np.zeros_like(x), np.zeros_like(gates)
    np.add.at(output, token, gate * y)
    np.add.at(input_grad, token, dx)
    dgates[token, rank] = (dy[token] * y).sum(1)
    dz = router.backward(problem, p, chosen, gates, dgates, all_chosen)
    sb.write(out / f"device_{device}.safetensors", gradients | {
        "output": output, "input_grad": input_grad + dz @ w.T, "router/weights": group.all_reduce(x.T @ dz)})


if __name__ == "__main__":
    main(device_program, lambda problem: problem["workload"] == "mixture")
