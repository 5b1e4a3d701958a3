"""Parameter files and batches for `check`, valid and invalid ones of all kinds."""
import json
import math
import re
import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2] / "chapters/suite"))
import shardbook_check as sb
from shardbook_check.problems import decoder


def tensor(*shape):
    """Multiples of 1/2 from -1 to 1, without a pattern that a cut along an axis could fit."""
    i = np.arange(math.prod(shape))
    return ((i * i * 7 % 5 - 2) / 2).reshape(shape)


def with_last(tensors, name, value):
    """Replaces the last value, which lies on the last of several devices."""
    t = tensors[name].copy()
    t.flat[-1] = value
    return tensors | {name: t}


def without(tensors, *names):
    return {name: t for name, t in tensors.items() if name not in names}


# Four layers, so that each of three devices of a pipeline has a layer.
PARAMS = {f"layer_{i}/weights": tensor(*((6, 4) if i % 2 else (4, 6))) for i in range(4)}
BATCH = {"input": tensor(5, 4), "output_grad": tensor(5, 4)}
PARAMETER_FILES = {
    "params": PARAMS, "odd_depth": PARAMS | {"layer_4/weights": tensor(4, 6)}, "no_parameter": {},
    "layer_missing": without(PARAMS, "layer_1/weights"), "unknown_name": PARAMS | {"bias": tensor(4)},
    "rank_1": PARAMS | {"layer_0/weights": tensor(4)}, "rank_3": PARAMS | {"layer_1/weights": tensor(6, 4, 1)},
    "unchained": PARAMS | {"layer_1/weights": tensor(7, 4)},
    "two_layers": without(PARAMS, "layer_2/weights", "layer_3/weights"),
    "zero_hidden": {"layer_0/weights": tensor(4, 0), "layer_1/weights": tensor(0, 4)},
    "zero_width": {"layer_0/weights": tensor(0, 6), "layer_1/weights": tensor(6, 0)}}
BATCH_FILES = {
    "batch": BATCH, "no_input": without(BATCH, "input"), "no_output_grad": without(BATCH, "output_grad"),
    "input_width": BATCH | {"input": tensor(5, 3)}, "output_grad_width": BATCH | {"output_grad": tensor(5, 6)},
    "row_counts": BATCH | {"output_grad": tensor(4, 4)}, "input_scalar": BATCH | {"input": tensor()},
    "input_nan": with_last(BATCH, "input", np.nan), "input_inf": with_last(BATCH, "input", np.inf),
    "output_grad_nan": with_last(BATCH, "output_grad", np.nan),
    "output_grad_inf": with_last(BATCH, "output_grad", -np.inf),
    "no_rows": {"input": tensor(0, 4), "output_grad": tensor(0, 4)}}
# Sequences of tokens with labels, for the network in the folder mistral.
IDS, LABELS = np.array([[1.0, 6, 0]]), np.array([[6.0, -100, 2]])
TOKENS = {"input_ids": IDS, "labels": LABELS}
TOKEN_FILES = {
    "tokens": TOKENS, "tokens_outside": TOKENS | {"input_ids": np.array([[1.0, 7, 0]])},
    "tokens_long": {"input_ids": np.zeros((1, 10)), "labels": np.zeros((1, 10))}, "tokens_bare": {"input_ids": IDS},
    "tokens_seen": TOKENS | {"attention_mask": np.array([[1.0, 1, 1]])},
    "tokens_masked": TOKENS | {"attention_mask": np.array([[1.0, 1, 0]])},
    "tokens_placed": TOKENS | {"position_ids": np.array([[1.0, 2, 3]])},
    "tokens_unlabelled": TOKENS | {"labels": np.full((1, 3), -100.0)}}


def files_of_networks():
    """The files for each variant of each chapter: a folder for the stack, and one for each number of experts."""
    def of(folder, params, last):
        no_rows = {"output": tensor(0, 4), "input_grad": tensor(0, 4),
                   **{name: np.zeros_like(t) for name, t in params.items()}}
        return {f"{folder}/params": params, f"{folder}/gradients_of_no_rows": no_rows,  # every sum is empty
                f"{folder}/params_nan": with_last(params, f"{last}layer_3/weights", np.nan),
                f"{folder}/params_inf": with_last(params, f"{last}layer_0/weights", -np.inf)}
    files = of("stack", PARAMS, "")
    for count in (1, 2):  # copies of the stack, behind a router with equal logits: they give the stack's result
        experts = {f"expert_{e}/{name}": t for e in range(count) for name, t in PARAMS.items()}
        files |= of(f"experts_{count}", {"router/weights": np.zeros((4, count)), **experts}, f"expert_{count - 1}/")
    return files


def foreign_files():
    """The tensors of a T5's block, of a small Mistral and of a small T5. `check` writes their config.json."""
    block = "encoder.block.0.layer.1.DenseReluDense."
    files = {f"t5/model-0000{i + 1}-of-00002.safetensors": {f"{block}{name}.weight": PARAMS[f"layer_{i}/weights"].T}
             for i, name in enumerate(("wi", "wo"))}
    of_block = {"input_layernorm": (4,), "post_attention_layernorm": (4,), "self_attn.q_proj": (4, 4),
                "self_attn.k_proj": (2, 4), "self_attn.v_proj": (2, 4), "self_attn.o_proj": (4, 4),
                "mlp.gate_proj": (3, 4), "mlp.up_proj": (3, 4), "mlp.down_proj": (4, 3)}
    files["mistral/model.safetensors"] = {
        "model.embed_tokens.weight": tensor(7, 4), "model.norm.weight": tensor(4), "lm_head.weight": tensor(7, 4),
        **{f"model.layers.{b}.{name}.weight": tensor(*shape) for b in (0, 1) for name, shape in of_block.items()}}
    sizes = SimpleNamespace(model_dim=4, heads=2, head_dim=2, hidden_dim=3, vocabulary=7, buckets=8, blocks=2,
                            is_tied=True)
    files["t5_network/model.safetensors"] = {
        t5_name(name): tensor(*shape).T if re.search("block_.*[^m]$", name) else tensor(*shape)
        for name, shape in decoder.t5_shapes_of(sizes).items() if not name.startswith("encoder/block_1")}
    network = files["t5_network/model.safetensors"]
    files["t5_one_name/model.safetensors"] = without(network, "shared.weight") | {
        "decoder.embed_tokens.weight": network["shared.weight"]}
    files["t5_two_tables/model.safetensors"] = network | {"encoder.embed_tokens.weight": 2 * network["shared.weight"]}
    return files


def t5_name(name):
    """The name in Hugging Face's library: "decoder.block.1.layer.1.EncDecAttention.q.weight"."""
    if name == "embedding":
        return "shared.weight"
    side, *block, part = name.replace("block_", "").split("/")
    if part in ("final_norm", "position_bias"):
        return f"{side}." + {"final_norm": "final_layer_norm.weight", "position_bias":
                             "block.0.layer.0.SelfAttention.relative_attention_bias.weight"}[part]
    of, _, what = part.partition("_") if part.startswith(("self_", "cross_")) else ("", "", part)
    layer = {"self": 0, "cross": 1}.get(of, 2 if side == "decoder" else 1)
    module = {"self": "SelfAttention.", "cross": "EncDecAttention.", "": "DenseReluDense."}[of]
    end = "layer_norm" if what.endswith("norm") else module + {"up": "wi", "down": "wo"}.get(what, what[0])
    return f"{side}.block.{block[0]}.layer.{layer}.{end}.weight"


def write_malformed(folder):
    """Files that no writer writes."""
    good = (folder / "params").read_bytes()
    header = json.dumps({f"layer_{i}/weights": {"dtype": "U64", "shape": [4, 4],
                                                "data_offsets": [128 * i, 128 * i + 128]} for i in (0, 1)})
    for name, content in {"truncated": good[:-1], "header_truncated": good[:20], "empty": b"",
                          "text": b"1,2,3,4\n1,2,3,4\n",
                          "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n",
                          "integers": struct.pack("<Q", len(header)) + header.encode() + b"\1" * 256}.items():
        (folder / name).write_bytes(content)


def make_files(folder):
    for files in (PARAMETER_FILES, files_of_networks(), BATCH_FILES, TOKEN_FILES, foreign_files()):
        for name, tensors in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            sb.write(folder / name, tensors)
    write_malformed(folder)
