#!/usr/bin/env python3
"""against_transformers.py [--programs FOLDER] [--models NAMES] [--variants NAMES] [--devices 1,2,3]

Compares the engines of chapter 08 with Hugging Face's transformers: small networks with random weights, made with
its own config classes and saved by save_pretrained in many files; or a network in a folder of yours, whose path
stands among the names. Logits, loss, and every gradient must be within 1e-5 of float64, relative to the largest
element of each tensor. The tokens that follow a prompt must be the same, up to one that ends a sequence, and so
must the files that `save` makes of bfloat16. "odd" among the names stands for folders with tied, untied, equal,
other, missing and unknown tensors: the same results, or a refusal that names the key. Needs torch, transformers
and safetensors, in any Python; ./tests/run does without them."""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINNED = {"torch": "2.15", "transformers": "5.24", "safetensors": "0.8"}
BOUND = 1e-5
PROMPT, NEW_TOKENS = 6, 32

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
T5_SIZES = dict(vocab_size=101, d_model=48, d_kv=10, d_ff=77, num_layers=5, num_decoder_layers=4, num_heads=6,
                relative_attention_num_buckets=8, relative_attention_max_distance=12, decoder_start_token_id=0)
MODELS = {
    "llama": (transformers.LlamaConfig, dict(SIZES)),
    "mistral": (transformers.MistralConfig, dict(SIZES, sliding_window=None)),
    "mistral-window": (transformers.MistralConfig,
                       dict(SIZES, sliding_window=4, tie_word_embeddings=True, head_dim=10, rms_norm_eps=1e-3)),
    "mixtral": (transformers.MixtralConfig,
                dict(SIZES, num_local_experts=7, num_experts_per_tok=2, sliding_window=None)),
    "qwen2": (transformers.Qwen2Config, dict(SIZES)),
    "qwen2-window": (transformers.Qwen2Config, dict(SIZES, use_sliding_window=True, sliding_window=4,
                                                    max_window_layers=0, tie_word_embeddings=True)),
    "t5": (transformers.T5Config, dict(T5_SIZES, feed_forward_proj="relu")),
    "t5-own-head": (transformers.T5Config, dict(T5_SIZES, feed_forward_proj="relu", tie_word_embeddings=False)),
    "t5-gated": (transformers.T5Config, dict(T5_SIZES, feed_forward_proj="gated-gelu", decoder_start_token_id=7)),
    "t5-gated-own-head": (transformers.T5Config,
                          dict(T5_SIZES, feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
}
# Folders: of which network, whether config.json ties the head, which head the files have, and what is refused. For
# another table than the head: the only one, "equal" to the embedding beside it, or "other" than it.
ODD = [("mistral", True, "no", ""), ("mistral", True, "equal", ""), ("mistral", True, "other", ""),
       ("mistral", False, "equal", ""), ("mistral", False, "no", "lm_head.weight"),
       ("mistral", True, "no", "model.layers.1.self_attn.q_proj.bias"),
       ("mistral", False, "other", "attention_mask"), ("mistral", True, "only lm_head", ""),
       ("qwen2", True, "only lm_head", ""), ("mistral", False, "only lm_head", "model.embed_tokens.weight"),
       ("t5", True, "only lm_head", ""), ("t5", True, "only encoder.embed_tokens", ""),
       ("t5", False, "only decoder.embed_tokens", ""), ("t5", True, "equal decoder.embed_tokens", ""),
       ("t5", True, "other encoder.embed_tokens", "encoder.embed_tokens.weight"),
       ("t5", None, "other decoder.embed_tokens", "decoder.embed_tokens.weight"),
       ("mixtral", True, "equal", ""), ("mixtral", True, "other", ""), ("mixtral", None, "other", ""),
       ("t5", True, "equal", ""), ("t5", False, "equal", ""), ("t5", None, "no", ""), ("t5", True, "other", ""),
       ("t5", True, "no", "decoder.final_layer_norm.bias"), ("t5", True, "no", "attention_mask")]


def make(name, folder):
    """Writes the network of this name to the folder."""
    config_class, settings = MODELS[name]
    torch.manual_seed(20)
    config = config_class(**settings)
    model = auto_class(config).from_config(config, attn_implementation="eager")
    for parameter_name, parameter in model.named_parameters():  # norms begin with ones, and biases with zeros
        if parameter_name.endswith(".bias"):
            torch.nn.init.normal_(parameter, std=0.1)
        elif parameter.dim() == 1:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    if config.model_type == "t5":
        enliven(model)
    if name.endswith("own-head"):  # the config class always ties it
        model.lm_head.weight = torch.nn.Parameter(torch.randn(101, 48) / 48**0.5)
    model.save_pretrained(folder, max_shard_size="20KB")
    if name == "mistral-window":
        spell_as_older(folder)


def make_odd(folder, name, ties, head, refused):
    """Writes a folder of this row, with one file."""
    make(name, folder)
    tensors = {}
    for path in folder.glob("model*"):
        tensors |= load_file(path) if path.suffix == ".safetensors" else {}
        path.unlink()
    embedding = tensors[table_of(name)]
    tensors.pop("lm_head.weight", None)
    how, _, table = head.partition(" ")
    if how == "only":
        del tensors[table_of(name)]
    if how != "no":
        other = torch.randn(embedding.shape) / 7 if how == "other" else embedding.clone()
        tensors[f"{table or 'lm_head'}.weight"] = other
    if refused.endswith(".bias"):
        tensors[refused] = torch.ones(48)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text()) | {"tie_word_embeddings": ties}
    if ties is None:
        del config["tie_word_embeddings"]
    (folder / "config.json").write_text(json.dumps(config))


def table_of(name):
    """The name of the embedding in transformers."""
    return "shared.weight" if name == "t5" else "model.embed_tokens.weight"


def enliven(model):
    """Changes a T5's random weights so that it generates different tokens: positions count for more, and the token
    itself and the source, which is always the same, for less."""
    model.shared.weight.data *= 0.1
    for name, parameter in model.named_parameters():
        if "relative_attention_bias" in name:
            parameter.data *= 10
        if "EncDecAttention.o." in name:
            parameter.data *= 0.2


def opened(folder):
    """The network in the folder, as transformers reads it, in float64."""
    config = transformers.AutoConfig.from_pretrained(folder)
    options = {"experts_implementation": "eager"} if config.model_type == "mixtral" else {}
    return auto_class(config).from_pretrained(folder, attn_implementation="eager", dtype=torch.float64,
                                              **options).eval()


def auto_class(config):
    """The class of transformers that reads such a network."""
    return transformers.AutoModelForSeq2SeqLM if config.model_type == "t5" else transformers.AutoModelForCausalLM


def spell_as_older(folder):
    """config.json in the spelling before transformers 5: rope_theta, and rope_scaling."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config |= {"rope_theta": rope["rope_theta"], "rope_scaling": None}
    path.write_text(json.dumps(config))


def batch(path, config):
    """Sequences of 11 tokens, without three labels. For a T5 they are sources, and targets have 7 tokens."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(0, config.vocab_size, (3, 12), generator=generator)
    tensors = {"input_ids": ids[:, :-1].contiguous()}
    if config.model_type == "t5":
        ids = torch.randint(0, config.vocab_size, (3, 8), generator=generator)
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
    """Logits and gradients by transformers. The loss is computed here, since labels are aligned already."""
    model.zero_grad()
    logits = model(**{name: ids for name, ids in tensors.items() if name != "labels"}).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tensors["labels"].flatten())
    loss.backward()
    results = {"logits": logits.detach(), "loss": loss.detach()}
    for name, parameter in model.named_parameters():
        results |= on_disk(name, parameter.grad)
    return results


def generated(model, prompt):
    """The tokens that transformers generates after a prompt."""
    ids = model.generate(prompt[None], max_new_tokens=NEW_TOKENS, do_sample=False)[0].tolist()
    return ids[1 if model.config.is_encoder_decoder else len(prompt):]


def let_one_end(model, prompt, folder):
    """Lets the generated token that first occurs latest end a sequence, in generation_config.json."""
    model.generation_config.eos_token_id = None
    ids = generated(model, prompt)
    path = folder / "generation_config.json"
    ends = {"eos_token_id": [max(ids, key=ids.index), model.config.vocab_size]}
    path.write_text(json.dumps(json.loads(path.read_text()) | ends))
    model.generation_config = transformers.GenerationConfig.from_pretrained(folder)


def variants(programs, config):
    """The variants of chapter 08 that read such a network, as its program lists them."""
    listed = json.loads(subprocess.run([programs / "shardbook", "list"], capture_output=True, check=True).stdout)
    names = [v["name"] for v in next(c["variants"] for c in listed if c["folder"] == "08_decoder")]
    return [name for name in names if name.startswith("t5-") == (config.model_type == "t5")]


def worst(given, want):
    """The largest difference of any tensor, relative to its largest element, and which tensor it is."""
    if given.keys() != want.keys():
        return float("inf"), f"names differ: {sorted(given.keys() ^ want.keys())[:4]}"
    differences = {name: ((given[name].double() - want[name]).abs().max() / want[name].abs().max()).item()
                   for name in want}
    name = max(differences, key=lambda n: (differences[n] != differences[n], differences[n]))  # a NaN is the largest
    return differences[name], name


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[1])
    parser.add_argument("--programs", type=Path, default=ROOT / "build/emu")
    parser.add_argument("--models", default=",".join([*MODELS, "odd"]))
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
            if name == "odd":
                failed += sum(not is_read_right(a.programs, Path(scratch), *row) for row in ODD)
                continue
            folder = Path(name if "/" in name else f"{scratch}/{name}")
            if "/" not in name:
                make(name, folder)
            model = opened(folder)
            tensors = batch(f"{scratch}/batch", model.config)
            if "/" not in name:
                let_one_end(model, tensors["input_ids"][0, :PROMPT], folder)
                failed += not is_saved_right(a.programs, Path(scratch), folder)
            want = expected(model, tensors), generated(model, tensors["input_ids"][0, :PROMPT])
            for variant in variants(a.programs, model.config):
                if a.variants and variant not in a.variants.split(","):
                    continue
                for devices in map(int, a.devices.split(",")):
                    failed += not is_right(Run(a.programs, Path(scratch), folder, variant, devices), tensors, *want)
    print("every result is right" if not failed else f"{failed} results are not as they should be")
    return 86 if failed else 0


class Run:
    """One variant on some devices."""

    def __init__(self, programs, scratch, folder, variant, devices):
        self.title = f"{folder.name:17} {variant:9} on {devices}:"
        self.scratch, self.variant, self.folder = scratch, variant, folder
        self.program = [ROOT / "chapters/on_devices", devices, programs / "08_decoder"]

    def command(self, name, *options):
        """Carries out a command. Returns its exit code, and what it says."""
        words = [*self.program, name, "--variant", self.variant, "--params", self.folder, *options]
        ended = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
        return ended.returncode, ended.stdout.strip() or ended.stderr.strip()


def is_saved_right(programs, scratch, folder):
    """Lets transformers save the network in bfloat16, and `save` that. A Mixtral comes in one file: transformers
    keeps the experts' matrices of a block together."""
    size = "1GB" if folder.name == "mixtral" else "20KB"
    theirs, ours = scratch / f"{folder.name}-bf16", scratch / f"{folder.name}-ours"
    config = transformers.AutoConfig.from_pretrained(folder)
    auto_class(config).from_pretrained(folder, dtype=torch.bfloat16).save_pretrained(theirs, max_shard_size=size)
    run = Run(programs, scratch, theirs, variants(programs, config)[0], 1)
    code, said = run.command("save", "--out", ours, "--format", "sharded", "--max-shard-size", size)
    files = {path.name for path in theirs.glob("*.safetensors")}
    is_same = code == 0 and files == {path.name for path in ours.glob("*.safetensors")} and all(
        (theirs / name).read_bytes() == (ours / name).read_bytes() for name in files)
    print(f"{run.title} save: {len(files)} files, " + ("the same bytes" if is_same else f"not the same: {said}"))
    return is_same


def is_read_right(programs, scratch, name, ties, head, refused):
    """Holds a row of ODD against transformers, or looks for the refusal, and prints a line."""
    folder = scratch / "-".join(["odd", name, str(ties), head, *refused.split(".")[-2:]])
    make_odd(folder, name, ties, head, refused)
    tensors = batch(scratch / "batch", transformers.AutoConfig.from_pretrained(folder))
    if refused == "attention_mask":
        mask = (tensors["input_ids"] != tensors["input_ids"][0, 0]).long()
        save_file(tensors | {refused: mask}, scratch / "batch")
    run = Run(programs, scratch, folder, "t5-tensor" if name == "t5" else "tensor", 2)
    code, said = run.command("gradients", "--batch", scratch / "batch", "--out", scratch / "out")
    title = f"{name}, tied {ties}, {head} head:"
    if code or refused:
        print(f"{title} code {code}: {said}")
        return code == 65 and refused != "" and refused in said
    want = expected(opened(folder), tensors)
    if head.startswith("only "):
        want[head.removeprefix("only ") + ".weight"] = want.pop(table_of(name))
    difference, worst_one = worst(load_file(scratch / "out"), want)
    print(f"{title} {difference:.1e} {worst_one}; {said.partition(': ')[2] or 'nothing is said'}")
    return difference <= BOUND


def is_right(run, tensors, want, want_tokens):
    """Holds gradients and generated tokens against those of transformers, and prints a line."""
    code, said = run.command("gradients", "--batch", run.scratch / "batch", "--out", run.scratch / "out")
    if code == 64:  # a network that the variant does not take
        print(f"{run.title} refused: {said}")
        return True
    if code:
        print(f"{run.title} gradients: code {code}: {said}")
        return False
    difference, name = worst(load_file(run.scratch / "out"), want)
    prompt = ",".join(map(str, tensors["input_ids"][0, :PROMPT].tolist()))
    code, said = run.command("generate", "--ids", prompt, "--tokens", NEW_TOKENS)
    is_same = code == 0 and said == ",".join(map(str, want_tokens))
    print(f"{run.title} {difference:.1e} {name}; generated: "
          + (f"the same, {len(set(want_tokens))} different tokens" if is_same else f"code {code}: {said}, "
             f"not {want_tokens}"))
    return difference <= BOUND and is_same


if __name__ == "__main__":
    sys.exit(main())
