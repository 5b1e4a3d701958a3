"""What wrong versions do otherwise, and the sentence that is said of each."""
import itertools
import re
from pathlib import Path

import numpy as np

from .problems import other_functions
from .problems.bounded import part
from .problems.kinds import TOKENS


# The sentence of each cause: the same that the chapters' programs say.
SAYS = dict(re.findall(r'^CAUSE\((\w+), "(.*)"\)$', Path(__file__).with_name("causes.inc").read_text("utf-8"), re.M))


OF_RELUS = ("mask_forgotten", "relus_forgotten", "relu_between", "relu_before_each", "relu_behind_each",
            "kept_before_relu", "kept_output", "kept_first", "block_left_out")


def mistakes(problem, devices):
    """Yields (cause, fields of a Mistake) of possible wrong versions."""
    if problem.workload in TOKENS:
        yield from mistakes_with_tokens(problem, devices)
        return
    for cause in OF_RELUS:
        yield SAYS[cause], {"forgets": cause}
    for forgets in ("sums of blocks", "sums of blocks, in both passes") if devices > 1 and problem.workload == "mlp" else ():
        yield SAYS["blocks_averaged"], {"forgets": forgets, "devices": devices}
    for rounds in ("weights", "products") if problem.kind != "exact" else ():
        for to, name in (("BF16", "bfloat16"), ("F16", "float16")):
            yield SAYS[f"{rounds}_rounded"].format(name), {"rounds": rounds, "to": to}
    if problem.workload == "mixture":
        if problem.capacity_factor != "none":
            yield "choices that an expert has no room for not dropped?", {"forgets": "capacity"}
            yield "an expert's capacity one less than it is?", {"forgets": "a slot"}
            yield "an expert's capacity one more than it is?", {"forgets": "where slots end"}
            yield "slots given to all choices of a device before those of the next?", \
                {"forgets": "ranks elsewhere", "devices": devices}
            yield "slots given to all choices of a token before those of the next?", {"forgets": "ranks"}
            yield "a capacity that counts a device's own rows alone?", \
                {"forgets": "rows elsewhere", "devices": devices}
            yield "a capacity of each device's own tokens, and their own slots?", {"forgets": "places elsewhere", "devices": devices}
        else:
            yield "tokens dropped beyond a capacity, where none should be?", {"forgets": "room 1.0"}
            yield "tokens dropped beyond a capacity, where none should be?", {"forgets": "room 1.25"}
        yield SAYS["gates_forgotten"], {"forgets": "gates"}
        yield "answers not multiplied by their gates, in the forward pass alone?", {"forgets": "gates forward"}
        yield "gradients of answers not multiplied by their gates?", {"forgets": "gates backward"}
        for passes in ("", ", in both passes", ", in the backward pass"):
            yield f"answers multiplied by their gates twice{passes}?", {"forgets": "gates once" + passes}
        if problem.top_k > 1:
            yield "gates of a token's experts not divided by their sum?", {"forgets": "sum of gates"}
            yield "gates divided by their sum, but not in the backward pass?", {"forgets": "quotient of gates"}
            yield "answers of a token's first choice alone: the second ones lost?", {"forgets": "second answers"}
            yield "answers of a token's last choices alone: the first ones lost?", {"forgets": "first answers"}
            yield "the gradient of the first choice's gate alone?", {"forgets": "first gates alone"}
        yield "dL/dx without what the router adds?", {"forgets": "dx of router"}
        yield "each token with the gate of the one before at its expert?", {"forgets": "gates before"}
        yield "each token with the gate of the one behind at its expert?", {"forgets": "gates behind"}
        yield "experts' gradients a mean over their tokens, where a sum is meant?", {"forgets": "sums over tokens"}
        if devices > 1:
            yield "dL/dx of own experts alone: that of the others not sent back?", {"forgets": "dx elsewhere", "devices": devices}
            yield "the gates' gradient of own experts alone: that of the others not sent back to the router?", \
                {"forgets": "gates elsewhere", "devices": devices}
            yield "answers of own experts alone: those of the others not sent back?", \
                {"forgets": "answers elsewhere", "devices": devices}
        if 1 < devices <= problem.experts:
            yield "experts in turn on the devices, where each has a range: another expert for each?", \
                {"forgets": "experts in turn", "devices": devices}
            yield "experts in ranges on the devices, numbered in turn: another expert for each?", \
                {"forgets": "experts in ranges", "devices": devices}
            yield "the next device's expert for each?", {"forgets": "experts of the next device", "devices": devices}
        for forgets, words in (("experts behind", "next one"), ("experts before", "one before")):
            for layer in (-1, *range(problem.layers)):
                yield f"another expert's weights, those of the {words}{f', in layer {layer}' * (layer >= 0)}?", \
                    {"forgets": forgets, "layer": layer}
        if problem.top_k > 1:
            yield "a token's gates in each other's place: another order of choices?", {"forgets": "ranks of gates"}
        yield "the gates' gradient forgotten?", {"forgets": "gate gradients"}
        yield SAYS["balance_forgotten"], {"forgets": "balance"}
        if devices > 1 and problem.aux_weight:
            yield SAYS["balance_n_times"].format(devices), {"forgets": "balance n times", "devices": devices}
        if devices > 1 and problem.aux_weight:
            for words, forgets in (("their mean", "balance elsewhere, mean"), ("their sum", "balance elsewhere")):
                yield SAYS["balance_of_own"].format(words), {"forgets": forgets, "devices": devices}
        if problem.aux_weight and problem.top_k > 1:
            yield SAYS["balance_of_first"], {"forgets": "second choices"}
        if problem.kind == "exact":
            yield SAYS["other_of_equals"], {"forgets": "the first of equals"}
        if problem.top_k > 1:
            yield "the gates' gradient taken for the logits': without the softmax?", \
                {"forgets": "softmax of gates"}
        return
    for words, taken in other_layers(problem):
        yield f"a backward pass with {words.format('weights')}?", {"taken": taken}
        yield f"a backward pass with {words.format('activations')}?", {"kept": taken}
    for first in range(devices):
        for other in range(first + 1, devices):
            if layers := with_swapped_stages(problem, devices, first, other):
                yield f"the layers of devices {first} and {other} in each other's place?", {"layers": layers}
    for panels in range(2, devices + 1):
        yield "products of the last panel alone, written over those of the panels before?", \
            {"forgets": "panels before", "devices": panels}
    if problem.kind == "adam":
        for cause in ("bias_not_corrected", "epsilon_inside"):
            yield SAYS[cause], {"forgets": cause}
    if problem.is_training:
        yield SAYS["late_gradients"], {"forgets": "this step"}
        yield SAYS["late_gradients"], {"forgets": "this step, after the first"}
        yield "gradients of all steps added up: not set to 0?", {"forgets": "zeroing"}
        if getattr(problem, "has_row_weights", False):  # (problems of a course have fewer fields)
            yield SAYS["row_weights_forgotten"], {"forgets": "row weights"}
        yield "gradients not clipped, or by the norm of a few of them?", {"forgets": "clipping"}
        yield "gradients of all steps added up: not set to 0?", {"forgets": "zeroing before clipping"}
        if devices > 1:
            yield "clipped by the norm of a device's layers alone?", {"stages": devices}
            yield f"every gradient 1/{devices} of it: a mean where a sum is meant?", {"scale": 1 / devices}
            yield f"every gradient {devices} times it: summed where every device has the sum?", \
                {"scale": float(devices)}
        yield from mistakes_with_rows(problem, devices)


def mistakes_with_rows(problem, devices, has_ranges=True):
    """Of training: rows of the batch that count otherwise."""
    rows, most = np.arange(problem.batch_size), problem.batch_size
    def counted(of, times):
        return {"weights": tuple(np.where(of, times, 1.0) if times != 1 else np.where(of, 1.0, 0.0))}
    parts = [(rows >= begin) & (rows < end) for begin, end in (part(most, devices, d) for d in range(devices))]
    parts = [of for of in parts if of.any()] if devices > 1 else []
    for words, forgets in (("their mean", "means of own means"), ("their sum", "own means")) if devices > 1 else ():
        if most % devices or getattr(problem, "has_row_weights", False):
            yield SAYS["own_means"].format(words), {"forgets": forgets, "devices": devices}
    for device, of in enumerate(parts):
        for times in (1, devices, 1 / devices):
            alone = {"weights": tuple(of * float(times))}
            said = f"1/{devices}" if times < 1 else times
            yield SAYS["own_rows_alone"].format(said, device), alone
            yield SAYS["last_rows_alone"].format(said, device), {**alone, "in_last_step": True}
        for cause, times in (("rows_of_missing", 0.0), ("rows_of_twice", 2.0)):
            yield SAYS[cause].format(f"the rows of device {device}"), counted(of, times)
    for count in (2, 3, 4):
        rest = np.zeros(most, bool)
        for begin, end in (part(most, devices, d) for d in range(devices)):
            rest[end - (end - begin) % count:end] = True
        if rest.any() and not rest.all():
            yield SAYS["rest_missing"].format(count), counted(rest, 0.0)
    if padding := -most % devices:
        for times in (1.0, most / (most + padding)):
            yield SAYS["padding_trained"].format(padding), {"weights": tuple(np.where(rows < padding, 2, 1) * times)}
        yield SAYS["padding_counts"].format(most, most + padding), {"scale": most / (most + padding)}
    ranges = itertools.combinations(range(most + 1), 2) if has_ranges else ()
    for begin, end in sorted(ranges, key=lambda pair: pair[1] - pair[0]):
        if end - begin < most:
            of, words = (rows >= begin) & (rows < end), f"rows {begin} to {end - 1}" if end > begin + 1 else f"row {begin}"
            for cause, times in (("rows_of_missing", 0.0), ("rows_of_twice", 2.0), ("rows_of_alone", 1)):
                yield SAYS[cause].format(words), counted(of, times)


ON_ONE_DEVICE = {
    "causality": "tokens that see later ones: no causal mask?",
    "window": "tokens that see beyond their window?",
    "the next token": "a causal mask one token too late: each token sees the next one?",
    "itself": "a causal mask one token too early: a token does not see itself?",
    "labels of the token before": "labels one token late: shifted once too often?",
    "labels of the token behind": "labels one token early: shifted once too often?",
    "where windows end": "a window one token wider than it is?",
    "a token of windows": "a window one token narrower than it is?",
    "halves": "rotary pairs of neighbours, 2j and 2j + 1, where j and j + d/2 are meant?",
    "rope base": "rotary angles with the base 10000?",
    "scale": "scores not divided by the root of a head's width?",
    "neighbours": "query heads h, h + G, ... share key-value head h, where neighbours are meant?",
    "epsilon": "norms without their epsilon?",
    "gate or up": "gate and up in each other's place?",
    "the head": "a tied table with the gradient of the embedding alone?",
    "the table": "a tied table with the gradient of the head alone?",
    "that the head is one of two": "a tied table that has its gradient through the head twice?",
    "that the table is one of two": "a tied table that has its gradient through the embedding twice?",
    "gates": "answers not multiplied by their gates?",
    "gate gradients": "the gates' gradient forgotten?",
    "no label": "tokens without a label trained on label 0: the number for none lost?",
    "turning key": "keys turned twice by their rotary positions?",
    "turning query": "queries turned twice by their rotary positions?",
    "keys of the sequence before": "keys and values of the sequence before?",
    "keys of the sequence behind": "keys and values of the sequence behind?",
    **other_functions.CAUSES,
    "chosen alone": "gates that are a softmax over all experts, not over the chosen ones?",
}


ON_SOME_DEVICES = {
    "positions": "rotary positions that begin at 0 on each device?",
    "rotary of next": "rotary positions of the next device's part?",
    "rotary of before": "rotary positions of the part of the device before?",
    "rotary of reversed": "rotary positions of parts from the last device to the first?",
    "rotary and zigzag: tokens in ranges": "rotary positions of a zigzag, where the devices' tokens are ranges?",
    "rotary and zigzag: tokens in a zigzag": "rotary positions of ranges, where the devices' tokens are a zigzag?",
    "keys elsewhere": "tokens that see the keys of their own device alone?",
    "queries elsewhere": "keys and values with the gradient of their own device's queries alone?",
    "places before": "a causal mask that compares places within a device, not positions?",
    "offset of ids": "ids looked up in each slice of the embedding without the slice's offset?",
    "offset of labels": "labels looked up in each slice of the logits without the slice's offset?",
    "sequences elsewhere": "a mean over the labels of each device's sequences, and then over devices?",
    "positions elsewhere":
        "a mean over the labels of each device's part of sequences, and then over devices?",
    "sum of sequences elsewhere": "a mean over the labels of each device's sequences, and then their sum?",
    "sum of positions elsewhere": "a mean over the labels of each device's part of sequences, and then their sum?",
    "places of queries": "a causal mask in which the queries of each device begin at 0?",
    "neighbours on each device": "query heads of each device share its key-value heads in another order: a tile, not repeated?",
    "begins of ids": "ids looked up in slices that begin at device x V // N, where they are cut otherwise: another offset?",
    "begins of labels": "labels looked up in slices that begin at device x V // N, where they are cut otherwise: another offset?",
    "two pieces": "gate and up fused, and cut in one piece: a device has parts of one of them, not of both?",
    "softmax elsewhere, maximum": "a softmax that adds up powers relative to each slice's own maximum, not to the largest?",
    "softmax elsewhere": "a softmax of each device's own slice of the logits: its sum not reduced?",
    "softmax elsewhere, backward": "a backward pass with the softmax of each device's own slice of the logits?",
    "labels at ends": "the label of the last token of each device's part left out: shifted within the part?",
    "labels at ends, of all": "the label of the last token of each device's part left out, but counted in the mean?",
    **{f"residual of {of}{passes}": f"the residual before {words} added on each device, and so counted {{n}} times?"
       for of, words in (("attention", "attention's sum"), ("feed-forward", "the feed-forward's sum"), ("every block", "each sum"))
       for passes in ("", ", both passes")},
    "rescaling": "values of pieces of keys around a ring, added up without rescaling to the largest score?",
    "rescaling of sums": "sums of exponentials around a ring, added up without rescaling to the largest score?",
    "rescaling of all": "pieces of keys around a ring, added up without rescaling to the largest score?",
    "rescaling the other way": "pieces of keys around a ring, rescaled by exp(new - old) for exp(old - new)?",
    "values elsewhere": "a device's own values for those that come around the ring?",
    "the ring's direction": "a backward pass with the positions of the keys of another piece on the ring?",
    "values' sums": "the gradient of values from the last device of the ring alone: sums overwritten?",
}
ON_SOME_DEVICES |= {f"in the loss alone: {means}": f"of the loss alone: {ON_SOME_DEVICES[means]}"
                    for means in ("sequences elsewhere", "positions elsewhere")}


OF_T5 = {
    "causality": "tokens that see later ones: no causal mask?",
    "no scale": "scores divided by the root of a head's width, which T5 does not do?",
    "logit scale": "logits of a tied table not divided by the root of the model's width?",
    "direction": "an encoder's buckets of distances that do not tell keys behind from keys before?",
    "other blocks": "a position table with the gradient of the first block alone?",
    "other readers": "the encoder's gradient from the last block of the decoder alone?",
    "epsilon": "norms without their epsilon?",
    **{use: ON_ONE_DEVICE[use] for use in ("the head", "the table", "that the head is one of two")},
}


def mistakes_with_tokens(problem, devices):
    is_t5 = problem.workload == "t5"
    for forgets, text in (OF_T5 if is_t5 else ON_ONE_DEVICE).items():
        yield text, {"forgets": forgets}
    for forgets, text in ON_SOME_DEVICES.items() if devices > 1 else ():
        if forgets == "two pieces" and problem.hidden_dim % devices or problem.kind == "exact" and "softmax" in forgets:
            continue
        if "zigzag" in forgets and not is_t5 and problem.length % (2 * devices):
            continue
        if not is_t5 or "offset" in forgets or "sequences" in forgets:
            for device in range(devices) if forgets.startswith("softmax") else (0,):
                yield text.format(n=devices), {"forgets": forgets, "devices": devices, "device": device}
    if not is_t5 and problem.kind == "real":
        for width, words in widths_of_scores(problem, devices).items():
            yield f"scores divided by the root of {width:g}, {words}, where a head's width is meant?", {"forgets": f"root of {width}"}


def widths_of_scores(problem, devices):
    """Numbers that a wrong version takes for the width of a head."""
    found = {problem.model_dim / problem.heads: "the model's width over its heads", problem.model_dim: "the model's width",
             problem.head_dim * problem.heads: "the width of all heads"}
    if devices > 1:
        found |= {problem.model_dim * devices / problem.heads: "the model's width over a device's heads",
                  problem.head_dim * devices: "a head's width times the devices",
                  problem.head_dim / devices: "a head's width over the devices"}
    return {width: words for width, words in found.items() if width not in (1, problem.head_dim)}


def other_layers(problem):
    """Yields (words, layers): for each layer, a layer of the same shape whose weights or activations are taken."""
    if not problem.layers:
        return
    shapes, layers = list(zip(problem.widths, problem.widths[1:])), range(problem.layers)

    def fitting(wanted):
        return tuple(other if 0 <= other < len(layers) and shapes[other] == shapes[layer] else layer
                     for layer, other in zip(layers, wanted))
    for words, wanted in (("the {} of the block before", [layer - 2 for layer in layers]),
                          ("the {} of the block behind", [layer + 2 for layer in layers]),
                          ("the first block's {} in every block", [layer % 2 for layer in layers]),
                          ("the last block's {} in every block",
                           [len(layers) - 2 + layer % 2 for layer in layers]),
                          ("the layers' {} from the other end", list(reversed(layers)))):
        if (taken := fitting(wanted)) != tuple(layers):
            yield words, taken
    for layer, other in itertools.permutations(layers, 2):
        if shapes[layer] == shapes[other]:
            yield f"layer {other}'s {{}} for layer {layer}", tuple(other if k == layer else k for k in layers)


def with_swapped_stages(problem, devices, first, other):
    """The layers in the order of stages, if two devices exchange their stages; empty if widths do not fit."""
    stages = [range(*part(problem.layers, devices, device)) for device in range(devices)]
    stages[first], stages[other] = stages[other], stages[first]
    layers = tuple(layer for stage in stages for layer in stage)
    if not layers:
        return ()
    widths = problem.widths
    fits = [widths[a + 1] == widths[b] for a, b in zip(layers, layers[1:])]
    is_whole = widths[layers[0]] == widths[0] and widths[layers[-1] + 1] == widths[-1]
    return layers if all(fits) and is_whole and list(layers) != sorted(layers) else ()
