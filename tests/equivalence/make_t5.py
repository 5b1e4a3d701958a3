#!/usr/bin/env python3
"""make_t5.py FOLDER: a small T5 of Hugging Face's transformers, as save_pretrained writes it, in many files.
For two of its feed-forward blocks, a NAME.batch, and a NAME.expected with output, dL/dx and the gradients of its
weights in float64, under the names of the T5."""
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import T5Config, T5ForConditionalGeneration

folder = Path(sys.argv[1])
torch.manual_seed(1)
config = T5Config(vocab_size=64, d_model=48, d_ff=101, num_layers=3, num_heads=4, d_kv=12)
T5ForConditionalGeneration(config).save_pretrained(folder, max_shard_size="20KB")
model = T5ForConditionalGeneration.from_pretrained(folder).double()
layers = {"encoder.1": model.encoder.block[1].layer[1], "decoder.0": model.decoder.block[0].layer[2]}
for name, layer in layers.items():
    model.zero_grad()
    x, dout = torch.randn(23, 48).double().requires_grad_(), torch.randn(23, 48).double()
    out = layer.DenseReluDense(x)
    out.backward(dout)
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    save_file({"input": x.detach(), "output_grad": dout}, folder / f"{name}.batch")
    save_file({"output": out.detach(), "input_grad": x.grad, **gradients}, folder / f"{name}.expected")
