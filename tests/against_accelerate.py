#!/usr/bin/env python3
"""against_accelerate.py [--programs FOLDER] [--settings N] [--seed S]

Compares the maps of chapter 10 with those of Hugging Face's Accelerate: random networks of seven families, random
memory, and random classes that stay whole. Each map must be the same, module for module, and so must each device's
memory after balancing. Needs torch, transformers and accelerate, in any Python; ./tests/run does without
them. No network has weights: its tensors are on torch's device `meta`, and its folder has config.json alone."""
import argparse
import collections
import json
import logging
import random
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINNED = {"torch": "2.15", "transformers": "5.24", "accelerate": "1.15"}

try:
    import accelerate
    import torch
    import transformers
    from accelerate.utils import modeling
except ImportError as missing:
    sys.exit(f"against_accelerate.py: expected a Python with {', '.join(PINNED)}, given none of "
             f"{missing.name}: pip install " + " ".join(f"{name}=={version}.*" for name, version in PINNED.items()))

DTYPES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
WAYS = ("auto", "balanced", "balanced_low_0", "sequential")


def random_config(draw):
    """A config class of transformers, its sizes, and whether the head is the embedding's table."""
    family = draw.choice(("llama", "mistral", "mixtral", "qwen2", "gemma", "t5", "gpt2"))
    heads, tied = draw.choice((2, 4, 6)), draw.random() < 0.5
    if family == "t5":
        ours = dict(vocab_size=draw.randint(5, 3000), d_model=draw.randint(4, 80), d_kv=draw.randint(2, 20),
                    d_ff=draw.randint(3, 300), num_layers=draw.randint(1, 8), num_decoder_layers=draw.randint(1, 8),
                    num_heads=heads, relative_attention_num_buckets=draw.choice((4, 8, 32)),
                    feed_forward_proj=draw.choice(("relu", "gated-gelu")))
        return transformers.T5Config, ours, tied
    if family == "gpt2":
        return transformers.GPT2Config, dict(vocab_size=draw.randint(5, 3000), n_positions=draw.randint(2, 300),
                                             n_embd=heads * draw.randint(2, 20), n_head=heads,
                                             n_layer=draw.randint(1, 14),
                                             n_inner=draw.choice((None, draw.randint(3, 300)))), True
    ours = dict(vocab_size=draw.randint(5, 3000), hidden_size=heads * draw.randint(2, 20),
                head_dim=2 * draw.randint(1, 12), intermediate_size=draw.randint(3, 300),
                num_hidden_layers=draw.randint(1, 14),
                num_attention_heads=heads, num_key_value_heads=draw.choice((1, 2, heads)), tie_word_embeddings=tied)
    if family == "mixtral":
        return transformers.MixtralConfig, dict(ours, num_local_experts=draw.randint(2, 9)), tied
    kinds = {"llama": transformers.LlamaConfig, "mistral": transformers.MistralConfig,
             "qwen2": transformers.Qwen2Config, "gemma": transformers.GemmaConfig}
    return kinds[family], ours, tied


def build(config_class, sizes, tied, dtype):
    """The network without memory, with its tied tensors tied."""
    config = config_class(**sizes)
    kind = transformers.AutoModelForSeq2SeqLM if config.model_type == "t5" else transformers.AutoModelForCausalLM
    with accelerate.init_empty_weights():
        model = kind.from_config(config, dtype=dtype)
    model.tie_weights()
    if config.model_type == "t5" and not tied:  # the config class always ties it
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))
    return model


def random_memory(draw, total):
    """Random memory, often too little for the network."""
    devices = draw.randint(0, 5)
    share = total / max(devices, 1) * draw.choice((0.2, 0.5, 0.9, 1.1, 1.5, 3))
    memory = {d: int(share * draw.uniform(0.3, 1.3)) * (draw.random() > 0.05) for d in range(devices)}
    if devices > 1 and draw.random() < 0.1:
        del memory[draw.randrange(devices)]
    if not memory or draw.random() < 0.7:
        memory["cpu"] = int(total * draw.uniform(0.05, 1.5))
    return memory


def random_classes(draw, model):
    """Classes that stay whole: the library's, one or two of any, or none."""
    choice = draw.random()
    if choice < 0.4:
        return sorted(model._no_split_modules)
    if choice < 0.55:
        return []
    return draw.sample(sorted({type(m).__name__ for m in model.modules()}), draw.randint(1, 2))


def random_setting(draw, folder):
    """A random network, written to the folder, and settings for its map."""
    config_class, sizes, tied = random_config(draw)
    own, asked = draw.choice(list(DTYPES)), draw.choice([None, *DTYPES])
    model = build(config_class, sizes, tied, DTYPES[own])
    said = dict(sizes, model_type=config_class.model_type, tie_word_embeddings=tied,
                dtype=str(DTYPES[own]).removeprefix("torch."))
    (folder / "config.json").write_text(json.dumps(said))
    total = modeling.compute_module_sizes(model, dtype=asked and DTYPES[asked])[""]
    memory = random_memory(draw, total)
    way = draw.choice(WAYS)
    devices = sorted(memory.keys() - {"cpu"})
    if devices != list(range(len(devices))) or 0 in memory.values():  # Accelerate ends in a KeyError
        way = way.removesuffix("_low_0")
    if way == "sequential" and draw.random() < 0.2:  # and here in a RuntimeError, if it is to balance
        memory["disk"] = draw.randint(0, 10)
    return model, dict(memory=memory, whole=random_classes(draw, model), dtype=asked, way=way)


def theirs(model, memory, whole, dtype, way):
    """Accelerate's map, and the memory that it was made with."""
    options = dict(no_split_module_classes=whole, dtype=dtype and DTYPES[dtype])
    shares = dict(memory)
    if way != "sequential":
        shares = modeling.get_balanced_memory(model, dict(memory), low_zero=way == "balanced_low_0", **options)
    return modeling.infer_auto_device_map(model, dict(shares), **options), shares


def ours(program, folder, memory, whole, dtype, way):
    """Chapter 10's map, and the memory that it prints."""
    command = [program, "map", "--params", str(folder), "--device-map", way, "--no-split", ",".join(whole) or "none",
               "--memory", ",".join(f"{place}={size}B" for place, size in memory.items()),
               "--json", str(folder / "map.json"), *(["--dtype", dtype] if dtype else [])]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}: expected code 0, given {run.returncode}: {run.stderr}")
    shares = {}
    for place, share in re.findall(r"^(\d+|cpu) +[\d,]+ +\S+ +([\d,]+) ", run.stdout, re.M):
        shares[int(place) if place.isdigit() else place] = int(share.replace(",", ""))
    return json.loads((folder / "map.json").read_text()), shares


def check_classes(program):
    """Whether the classes that chapter 10 keeps whole are the library's. In a T5 they are smaller: there, a network
    cut between the smaller ones must give the same logits."""
    wrong = 0
    for config_class in (transformers.MistralConfig, transformers.MixtralConfig, transformers.Qwen2Config,
                         transformers.GemmaConfig, transformers.GPT2Config, transformers.T5Config):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps({"model_type": config_class.model_type}))
            text = subprocess.check_output([program, "map", "--params", folder, "--memory", "0=1GB"], text=True)
        derived = set(re.findall(r"^  (\w+): behind", text, re.M))
        with accelerate.init_empty_weights():
            listed = set(build(config_class, {}, True, torch.bfloat16)._no_split_modules)
        print(f"{config_class.model_type}: derived {', '.join(sorted(derived))}; listed {', '.join(listed)}")
        is_t5 = config_class is transformers.T5Config
        wrong += derived != ({"T5LayerSelfAttention", "T5LayerCrossAttention", "T5LayerFF"} if is_t5 else listed)
    return wrong + (not runs_between_residual_blocks())


def runs_between_residual_blocks():
    """Whether Accelerate runs a T5 whose every second residual block is on the disk, as it runs one that is whole."""
    torch.manual_seed(1)
    config = transformers.T5Config(vocab_size=31, d_model=16, d_ff=24, d_kv=4, num_heads=4, num_layers=3)
    model = transformers.T5ForConditionalGeneration(config).eval()
    source, target = torch.arange(2, 9)[None], torch.arange(3, 8)[None]
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        expected = model(input_ids=source, decoder_input_ids=target).logits
        layers = [name for name, module in model.named_modules() if type(module).__name__.startswith("T5Layer")
                  and not name.endswith("norm")]
        places = {name: ("cpu", "disk")[i % 2] for i, name in enumerate(layers)}
        for stack in ("encoder", "decoder"):
            places |= {f"{stack}.{name}": "cpu" for name in ("embed_tokens", "final_layer_norm", "dropout")}
        places |= {"shared": "cpu", "lm_head": "cpu"}
        accelerate.dispatch_model(model, places, main_device="cpu", offload_dir=folder)
        given = model(input_ids=source, decoder_input_ids=target).logits
    print(f"a T5 cut at {len(layers)} residual blocks: largest difference {(given - expected).abs().max().item()}")
    return torch.equal(given, expected)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default=str(ROOT / "build/emu"))
    parser.add_argument("--settings", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # warns of missing GPUs
    warnings.simplefilter("ignore")
    draw = random.Random(arguments.seed)
    same, divided, seen = 0, 0, collections.Counter()
    for number in range(arguments.settings):
        with tempfile.TemporaryDirectory() as folder:
            model, asked = random_setting(draw, Path(folder))
            expected, shares = theirs(model, **asked)
            given, our_shares = ours(f"{arguments.programs}/10_checkpoints", Path(folder), **asked)
        shares.pop("disk", None)
        seen[model.config.model_type] += 1
        seen[asked["way"]] += 1
        divided += len(set(expected.values())) > 1
        if given == expected and our_shares == shares:
            same += 1
            continue
        different = {k: (expected.get(k), given.get(k)) for k in expected.keys() | given.keys()
                     if expected.get(k) != given.get(k)}
        print(f"setting {number}: {model.config.model_type} {asked}: expected shares {shares}, given {our_shares}; "
              f"expected and given {dict(sorted(different.items())[:6])}")
    print(f"{same} of {arguments.settings} maps are equal; {divided} name more than one place; "
          + ", ".join(f"{name}: {count}" for name, count in sorted(seen.items())))
    wrong_classes = check_classes(f"{arguments.programs}/10_checkpoints")
    return 0 if same == arguments.settings and not wrong_classes else 1


if __name__ == "__main__":
    sys.exit(main())
