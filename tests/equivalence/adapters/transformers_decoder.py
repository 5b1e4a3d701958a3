#!/usr/bin/env python3
"""Mistral of Hugging Face's transformers on one device: transformers_decoder.py PROBLEM OUT. It says that the
network of the suite's decoders is that of a library which others have written."""
import json
import sys
from pathlib import Path

import torch
from transformers import MistralConfig, MistralForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "chapters/suite"))
import shardbook_check as sb

NAMES = {"embedding": "model.embed_tokens", "final_norm": "model.norm", "head": "lm_head",
         "attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm",
         "query": "self_attn.q_proj", "key": "self_attn.k_proj", "value": "self_attn.v_proj",
         "output": "self_attn.o_proj", "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}


def theirs(name):
    *block, last = name.split("/")
    prefix = f"model.layers.{block[0].removeprefix('block_')}." if block else ""
    return f"{prefix}{NAMES[last]}.weight"


def turned(name, t):
    """Their weights of products are (out, in)."""
    return t.T if "/" in name and t.ndim == 2 else t


def main(problem, folder, out):
    params, batch = ({name: torch.tensor(t.values) for name, t in sb.read(folder / problem[f]).items()}
                     for f in ("params", "batch"))
    model = MistralForCausalLM(MistralConfig(
        vocab_size=problem["vocabulary"], hidden_size=problem["model_dim"],
        intermediate_size=problem["hidden_dim"], num_hidden_layers=problem["blocks"],
        num_attention_heads=problem["heads"], num_key_value_heads=problem["key_heads"],
        head_dim=problem["head_dim"], rms_norm_eps=problem["norm_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": problem["rope_base"]},
        sliding_window=problem["window"] or None, tie_word_embeddings=problem["is_tied"],
        attn_implementation="eager"))
    weights = dict(model.named_parameters())
    for name, t in params.items():
        weights[theirs(name)].data.copy_(turned(name, t))
    z = model(batch["input_ids"].long()).logits
    loss = torch.nn.functional.cross_entropy(z.flatten(0, 1), batch["labels"].long().flatten())
    loss.backward()
    gradients = {name: turned(name, weights[theirs(name)].grad) for name in params}
    sb.write(out, {"logits": z.detach(), "loss": loss.detach(), **gradients})


if __name__ == "__main__":
    problem = json.loads(Path(sys.argv[1]).read_text())
    if problem["workload"] != "decoder" or problem["kind"] == "exact" or problem["experts"]:
        sys.exit(77)
    main(problem, Path(sys.argv[1]).parent, Path(sys.argv[2]))
