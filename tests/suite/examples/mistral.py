"""torchrun --nproc-per-node 2 mistral.py [mean|own]: Mistral of transformers under FSDP2; some labels are missing."""
import sys

import torch
import transformers
from torch import distributed
from torch.distributed.fsdp import fully_shard


def make_model():
    torch.manual_seed(0)
    return transformers.MistralForCausalLM(transformers.MistralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, sliding_window=5, max_position_embeddings=64))


def summed_loss(model, ids, labels):
    logits = model(ids).logits[:, :-1].flatten(0, 1)
    return torch.nn.functional.cross_entropy(logits, labels[:, 1:].flatten(), reduction="sum")


def count(labels):
    return (labels[:, 1:] != -100).sum()


distributed.init_process_group("gloo")
rank, devices = distributed.get_rank(), distributed.get_world_size()
ids = torch.randint(0, 64, (6, 12), generator=torch.Generator().manual_seed(1))
batch = {"ids": ids, "labels": ids.clone()}
batch["labels"][0, :7] = batch["labels"][3, 2:] = -100
model = make_model()
for layer in model.model.layers:
    fully_shard(layer)
fully_shard(model)
ids, labels = (whole.tensor_split(devices)[rank] for whole in (batch["ids"], batch["labels"]))
by = count(labels) if "own" in sys.argv else count(batch["labels"]) / (1 if "mean" in sys.argv else devices)
(summed_loss(model, ids, labels) / by).backward()

# ----
import shardbook_check as sb
def reference(params, batch):
    one = make_model()
    one.load_state_dict(params)
    (summed_loss(one, batch["ids"], batch["labels"]) / count(batch["labels"])).backward()
    return {name: p.grad for name, p in one.named_parameters()}
case = sb.case(reference, make_model().state_dict(), batch)
print(sb.check(model, case))
# ----
distributed.destroy_process_group()
