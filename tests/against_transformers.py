#!/usr/bin/env python3
"""against_transformers.py [--programs FOLDER] [--models NAMES] [--variants NAMES] [--devices 1,2,3]

Holds the engines of chapter 08 against Hugging Face's transformers: small networks with random weights, made with
its own config classes and saved by save_pretrained in many files. Logits, loss, and every gradient must be within
1e-5 of float64, relative to the largest element of each tensor. Needs torch, transformers and safetensors, in any
Python; ./tests/run does without them."""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINNED = {"torch": "2.15", "transformers": "5.23", "safetensors": "0.8"}
BOUND = 1e-5

try:
    import safetensors
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    sys.exit(f"against_transformers.py: expected a Python with {', '.join(PINNED)}, given none of "
             f"{missing.name}: pip install " + " ".join(f"{name}=={version}.*" for name, version in PINNED.items()))

SIZES = dict(vocab_size=101, hidden_size=48, intermediate_size=77, num_hidden_layers=5, num_attention_heads=6,
             num_key_value_heads=3, max_position_embeddings=64, initializer_range=0.1)
T5_SIZES = dict(vocab_size=101, d_model=48, d_kv=10, d_ff=77, num_layers=3, num_decoder_layers=2, num_heads=6,
                relative_attention_num_buckets=8, relative_attention_max_distance=12)
MODELS = {
    "mistral": (transformers.MistralConfig, dict(SIZES, sliding_window=None)),
    "mistral-window": (transformers.MistralConfig,
                       dict(SIZES, sliding_window=4, tie_word_embeddings=True, head_dim=10, rms_norm_eps=1e-3)),
    "mixtral": (transformers.MixtralConfig,
                dict(SIZES, num_local_experts=7, num_experts_per_tok=2, sliding_window=None)),
    "t5": (transformers.T5Config, dict(T5_SIZES, feed_forward_proj="relu")),
    "t5-own-head": (transformers.T5Config, dict(T5_SIZES, feed_forward_proj="relu", tie_word_embeddings=False)),
    "t5-gated": (transformers.T5Config, dict(T5_SIZES, feed_forward_proj="gated-gelu")),
    "t5-gated-own-head": (transformers.T5Config,
                          dict(T5_SIZES, feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
}


def made(name, folder):
    """The network of this name, in the folder, and as transformers reads it, in float64."""
    config_class, settings = MODELS[name]
    torch.manual_seed(11)
    config = config_class(**settings)
    auto = transformers.AutoModelForSeq2SeqLM if is_t5(name) else transformers.AutoModelForCausalLM
    model = auto.from_config(config, attn_implementation="eager")
    for parameter in model.parameters():  # norms, too, which begin with ones
        if parameter.dim() == 1:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    if name.endswith("own-head"):  # the config class says that it is tied, whatever it is told
        model.lm_head.weight = torch.nn.Parameter(torch.randn(101, 48) / 48**0.5)
    model.save_pretrained(folder, max_shard_size="20KB")
    if name == "mistral-window":
        spell_as_older(folder)
    options = {"experts_implementation": "eager"} if "mixtral" in name else {}
    return auto.from_pretrained(folder, attn_implementation="eager", dtype=torch.float64, **options).eval()


def is_t5(name):
    """Whether it is an encoder-decoder, which the variants t5-... read."""
    return name.startswith("t5")


def spell_as_older(folder):
    """config.json in the spelling before transformers 5: rope_theta, and rope_scaling."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config |= {"rope_theta": rope["rope_theta"], "rope_scaling": None}
    path.write_text(json.dumps(config))


def batch(path, name):
    """Sequences of 11 tokens, three of whose labels are missing. A T5 reads them, and says sequences of 7."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(0, 101, (3, 12), generator=generator)
    tensors = {"input_ids": ids[:, :-1].contiguous()}
    if is_t5(name):
        ids = torch.randint(0, 101, (3, 8), generator=generator)
        tensors["decoder_input_ids"] = ids[:, :-1].contiguous()
    labels = tensors["labels"] = ids[:, 1:].clone()
    labels[0, 3] = labels[2, -1] = labels[1, 0] = -100
    save_file(tensors, path)
    return tensors


def on_disk(name, gradient):
    """A gradient under the names of the files: transformers 5 holds a block's experts in two tensors."""
    if ".mlp.experts." not in name and ".mlp.gate." not in name:
        return {name: gradient}
    before = name[:name.index(".mlp.")] + ".block_sparse_moe."
    if ".mlp.gate." in name:
        return {before + "gate.weight": gradient}
    split = {}
    for expert, matrix in enumerate(gradient):
        if name.endswith("down_proj"):
            split[f"{before}experts.{expert}.w2.weight"] = matrix
        else:
            split[f"{before}experts.{expert}.w1.weight"], split[f"{before}experts.{expert}.w3.weight"] = \
                matrix.chunk(2)
    return split


def expected(model, tensors):
    """Logits, loss and gradients by transformers, and a loss of our own, as labels are aligned already."""
    model.zero_grad()
    logits = model(**{name: ids for name, ids in tensors.items() if name != "labels"}).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tensors["labels"].flatten())
    loss.backward()
    results = {"logits": logits.detach(), "loss": loss.detach()}
    for name, parameter in model.named_parameters():
        results |= on_disk(name, parameter.grad)
    return results


def variants(programs):
    """The variants of chapter 08, as its program lists them."""
    listed = json.loads(subprocess.run([programs / "shardbook", "list"], capture_output=True, check=True).stdout)
    return next(c["variants"] for c in listed if c["folder"] == "08_decoder")


def worst(given, want):
    """The largest difference of any tensor, relative to its largest element, and which tensor it is."""
    if given.keys() != want.keys():
        return float("inf"), f"names differ: {sorted(given.keys() ^ want.keys())[:4]}"
    differences = {name: ((given[name].double() - want[name]).abs().max() / want[name].abs().max()).item()
                   for name in want}
    name = max(differences, key=lambda n: differences[n])
    return differences[name], name


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[1])
    parser.add_argument("--programs", type=Path, default=ROOT / "build/emu")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--variants", default="")
    parser.add_argument("--devices", default="1,2,3,4,5")
    a = parser.parse_args()
    for module in (torch, transformers, safetensors):
        pinned = PINNED[module.__name__]
        if not module.__version__.startswith(pinned + "."):
            print(f"{module.__name__} {pinned} is what this was tried with; here it is {module.__version__}")
    transformers.utils.logging.disable_progress_bar()
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name in a.models.split(","):
            folder = Path(scratch) / name
            model = made(name, folder)
            tensors = batch(folder / "batch", name)
            want = expected(model, tensors)
            for variant in variants(a.programs):
                if is_t5(name) != is_t5(variant["name"]) or \
                        a.variants and variant["name"] not in a.variants.split(","):
                    continue
                for devices in map(int, a.devices.split(",")):
                    failed += not is_right(a.programs, folder, variant["name"], devices, want)
    print("every result is right" if not failed else f"{failed} results are not as they should be")
    return 86 if failed else 0


def is_right(programs, folder, variant, devices, want):
    """Runs one variant, and prints a line."""
    out = folder / "out"
    command = [ROOT / "chapters/on_devices", devices, programs / "08_decoder", "gradients", "--variant", variant,
               "--params", folder, "--batch", folder / "batch", "--out", out]
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if ended.returncode == 64:  # a network that the variant does not take
        print(f"{folder.name:16} {variant:12} on {devices}: refused: {ended.stderr.strip()}")
        return True
    if ended.returncode:
        print(f"{folder.name:16} {variant:12} on {devices}: code {ended.returncode}: {ended.stderr.strip()}")
        return False
    difference, name = worst(load_file(out), want)
    print(f"{folder.name:16} {variant:12} on {devices}: {difference:.1e} {name}")
    return difference <= BOUND


if __name__ == "__main__":
    sys.exit(main())
