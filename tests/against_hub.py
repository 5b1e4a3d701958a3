#!/usr/bin/env python3
"""against_hub.py [--programs FOLDER] [--models 20] [--seed 7] [--networks mistral,mixtral,t5]

Holds the files of chapter 10 against those of Hugging Face. Random models are divided by our `reshard` and by
huggingface_hub's save_torch_state_dict: files and index must be equal byte for byte. Small networks that
transformers saves, each tensor in a file of its own, must be read here. What `reshard` makes of them must be
read by transformers and safetensors, with equal tensors, and must give the same gradients as before, byte for
byte. Needs torch, transformers, safetensors and huggingface_hub, in any Python; ./tests/run does without
them."""
import argparse
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from against_transformers import MODELS, ROOT, auto_class, batch, enliven

import huggingface_hub
import torch
import transformers
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file, save_file
from transformers.core_model_loading import dot_natural_key

HUB = "2.4"
ELEMENTS = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8]


def contents(folder):
    """The files of a model by their names, without our manifest."""
    return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())
            if path.suffix != ".md" and path.name != "checkpoint.json"}


def random_model(rng):
    """Tensors in the order of chapter 10, which is that of transformers."""
    tensors, is_mixed = {}, rng.random() < 0.5
    for i in range(rng.randint(1, 40)):
        name = f"{rng.choice(['layer', 'a.b', 'blk_é', 'x'])}.{i}.weight"
        is_small = rng.random() < 0.9
        shape = [rng.randint(1, 9) for _ in range(rng.randint(0, 3))] if is_small else [64, 33]
        elements = rng.choice(ELEMENTS) if is_mixed else torch.float32
        tensors[name] = (torch.randn(shape) * 10).to(elements)
    return dict(sorted(tensors.items(), key=lambda item: dot_natural_key(item[0])))


class Programs:
    """Our programs, on one device."""

    def __init__(self, folder):
        self.folder = folder

    def run(self, name, *words):
        """What is wrong: empty where the program ends well."""
        command = [ROOT / "chapters/on_devices", 1, self.folder / name, *words]
        ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        return f"{words[0]}: code {ended.returncode}: {ended.stderr}" if ended.returncode else ""

    def reshard(self, start, end, *options):
        return self.run("10_checkpoints", "reshard", "--from", start, "--to", end, *options)


def divided_differently(programs, scratch, rng):
    """A random model divided by the library and by us."""
    tensors = random_model(rng)
    size = rng.choice([200, 500, 1000, 4000, 10**6])
    save_file(tensors, scratch / "in.safetensors", metadata={"format": "pt"})
    (scratch / "hub").mkdir()
    save_torch_state_dict(tensors, scratch / "hub", max_shard_size=size)
    if wrong := programs.reshard(scratch / "in.safetensors", scratch / "ours", "--max-shard-size", size):
        return wrong
    ours, hub = contents(scratch / "ours"), contents(scratch / "hub")
    different = sorted(name for name in ours.keys() | hub.keys() if ours.get(name) != hub.get(name))
    return f"{len(tensors)} tensors, at most {size} bytes: {', '.join(different)}" if different else ""


def saved(name, folder):
    """The network of this name, saved in files of one tensor each, and all tensors of these files."""
    config_class, settings = MODELS[name]
    torch.manual_seed(20)
    config = config_class(**settings)
    model = auto_class(config).from_config(config)
    if config.model_type == "t5":
        enliven(model)
    model.save_pretrained(folder, max_shard_size=1)
    files = sorted(folder.glob("*.safetensors"))
    tensors = {name: tensor for file in files for name, tensor in load_file(file).items()}
    return model, tensors, len(files)


def are_equal(one, other):
    """Whether two models have the same tensors: names, types, shapes and bytes."""
    return one.keys() == other.keys() and all(
        tensor.dtype == other[name].dtype and torch.equal(tensor, other[name])
        for name, tensor in one.items())


def changed_on_the_way(programs, scratch, name):
    """A network of transformers, there and back."""
    there, ours, one = scratch / "there", scratch / "ours", scratch / "one"
    model, tensors, files = saved(name, there)
    gradients = ["gradients", "--variant", "t5-single" if model.config.model_type == "t5" else "single",
                 "--batch", scratch / "batch"]
    batch(scratch / "batch", model.config)
    wrong = (programs.run("10_checkpoints", "show", there)
             or programs.reshard(there, ours, "--max-shard-size", "20KB")
             or programs.reshard(ours, one, "--format", "gathered")
             or programs.run("10_checkpoints", "diff", there, one))
    if wrong:
        return wrong
    if not are_equal(load_file(one / "model.safetensors"), tensors):
        return "safetensors reads other tensors than transformers saved"
    (ours / "config.json").write_bytes((there / "config.json").read_bytes())
    read = auto_class(model.config).from_pretrained(ours)
    if not are_equal(dict(read.state_dict()), dict(model.state_dict())):
        return "transformers reads other tensors than it saved"
    wrong = (programs.run("08_decoder", *gradients, "--params", there, "--out", scratch / "of_theirs")
             or programs.run("08_decoder", *gradients, "--params", ours, "--out", scratch / "of_ours"))
    if not wrong and (scratch / "of_theirs").read_bytes() != (scratch / "of_ours").read_bytes():
        wrong = "gradients differ"
    of_ours = len(list(ours.glob("*.safetensors")))
    print(f"{name}: {len(tensors)} tensors in {files} files, and in {of_ours} of ours")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[1])
    parser.add_argument("--programs", type=Path, default=ROOT / "build/emu")
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--networks", default="mistral,mixtral,t5")
    a = parser.parse_args()
    if not huggingface_hub.__version__.startswith(HUB + "."):
        print(f"huggingface_hub {HUB} is what this was tried with; here it is {huggingface_hub.__version__}")
    transformers.utils.logging.disable_progress_bar()
    rng, programs, failed = random.Random(a.seed), Programs(a.programs), 0
    torch.manual_seed(a.seed)
    cases = [(f"model {i}", divided_differently, rng) for i in range(a.models)]
    cases += [(name, changed_on_the_way, name) for name in a.networks.split(",") if name]
    for title, check, what in cases:
        with tempfile.TemporaryDirectory() as scratch:
            if wrong := check(programs, Path(scratch), what):
                failed += 1
                print(f"{title}: {wrong.strip()}")
    print(f"{len(cases)} models, " + (f"{failed} not as they should be" if failed else "each is right"))
    return 86 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
