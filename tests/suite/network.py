"""A network of two layers in NumPy, on one device and sharded. The devices of a sharded run are a loop."""
import numpy as np

import shardbook_check as sb

ROWS, MESH = 10, {"data": 2, "tensor": 2}


def numbers(seed=0, width=11):
    """Parameters and a batch, in float32."""
    random = np.random.default_rng(seed)
    params = {"up": random.normal(size=(7, width)), "shift": random.normal(size=width), "down": random.normal(size=(width, 5))}
    batch = {"x": random.normal(size=(ROWS, 7)), "y": random.normal(size=(ROWS, 5))}
    return tuple({name: value.astype("f4") for name, value in of.items()} for of in (params, batch))


def step(params, batch, keep=lambda name, value: value):
    """The program on one device. `keep` sees what a tensor parallel program reduces."""
    h = np.maximum(batch["x"] @ params["up"] + params["shift"], 0)
    out = keep("out", h @ params["down"])
    d = out - batch["y"]
    dout = 2 * d / d.size
    dh = (dout @ params["down"].T) * (h > 0)
    return {"hidden": h, "out": out, "loss": (d * d).mean(), "down": h.T @ dout, "shift": dh.sum(axis=0),
            "up": batch["x"].T @ dh}


def momentum(params, grads, state):
    """An optimizer in the words of sb.case."""
    before = state.get("momentum", {name: 0 * grad for name, grad in grads.items()})
    state["momentum"] = {name: before[name] * 0.5 + grad for name, grad in grads.items()}
    return {name: params[name] - np.float32(0.125) * state["momentum"][name] for name in grads}


def rows_of(devices, how=sb.part):
    return [list(range(*how(ROWS, devices, d))) for d in range(devices)]


def of_rows(batch, rows):
    return {name: value[rows] for name, value in batch.items()}


def addends(params, batch, devices, mistake=""):
    """What each device's rows add to the gradients."""
    blocks = [list(range(d, ROWS, devices)) for d in range(devices)] if mistake == "strided" else rows_of(devices)
    if mistake == "a row twice":
        blocks[-1] = [*blocks[-1], 0]
    if mistake == "rest dropped":
        blocks = [rows[:ROWS // devices] for rows in blocks]
    found = []
    for rows in blocks:
        mine = step(params, of_rows(batch, rows))
        share = np.float32(1 / devices if mistake in ("own means", "strided") else len(rows) / ROWS)
        found.append({**mine, **{name: mine[name] * share for name in params}})
    return found


def data_parallel(params, batch, devices, mistake=""):
    """A {name: array} for each device: gradients, and the outputs of its rows."""
    mine = addends(params, batch, devices, mistake)
    for each in mine:
        del each["loss"]  # of the device's own rows
        if mistake in ("strided", "a row twice", "rest dropped"):
            del each["hidden"], each["out"]  # not slices of rows
    if mistake == "no reduction":
        return mine
    of_sum = mine[:-1] if mistake == "dropped" else [*mine, mine[0]] if mistake == "twice" else mine
    total = {name: sum(each[name] for each in of_sum) for name in params}
    if mistake == "mean":
        total = {name: value / np.float32(devices) for name, value in total.items()}
    if mistake == "16 bits":
        total = {name: sb.rounded(value, "BF16").astype("f4") for name, value in total.items()}
    found = [{**each, **{name: value.copy() for name, value in total.items()}} for each in mine]
    if mistake == "drift":
        found[1]["up"] += np.float32(1e-3)
    if mistake == "sign":
        for each in found:
            each["down"] = -each["down"]
    return found


def trained(params, batch, devices, steps, mistake=""):
    """Data parallel training: parameters and momentum of each device."""
    params, state, before, total = dict(params), {}, None, None
    for _ in range(steps):
        grads = {name: data_parallel(params, batch, devices, mistake)[0][name] for name in params}
        total = grads if total is None else {name: total[name] + grads[name] for name in grads}
        used = before if mistake == "stale" and before else total if mistake == "zero_grad" else grads
        before = grads
        params = momentum(params, used, state)
    return [{**params, **{f"{name}/momentum": value for name, value in state["momentum"].items()}}] * devices


def on_mesh(params, batch, mistake=""):
    """Data parallel over tensor parallel, (2, 2), device = 2 * data + tensor. A device has the columns of `up` and the
    rows of `down` of its tensor rank."""
    found = [{} for _ in range(4)]
    for data, rows in enumerate(rows_of(2)):
        cuts = [slice(*sb.part(len(params["shift"]), 2, t)) for t in range(2)]
        if mistake == "swapped":
            cuts = cuts[:1] * 2
        parts = [{"up": params["up"][:, cut], "shift": params["shift"][cut], "down": params["down"][cut]} for cut in cuts]
        mine = of_rows(batch, rows)
        out = sum(step(part, mine)["out"] for part in parts)
        for tensor, part in enumerate(parts):
            of = step(part, mine, lambda name, value: value if mistake == "out not reduced" else out)
            found[2 * data + tensor] = {name: of[name] * np.float32(0.5) if name in params else of[name] for name in of}
    for name in params:
        for tensor in range(2):
            total = sum(found[2 * data + tensor][name] for data in range(2)) / np.float32(1 + (mistake == "mean"))
            for data in range(2):
                if mistake != "no reduction":
                    found[2 * data + tensor][name] = total
    for each in found:
        del each["loss"]
    return found


LAYOUT = {"up": {"tensor": {"sharded": 1}}, "shift": {"tensor": {"sharded": 0}}, "down": {"tensor": {"sharded": 0}},
          "hidden": {"data": {"sharded": 0}, "tensor": {"sharded": 1}}, "out": {"data": {"sharded": 0}}}
