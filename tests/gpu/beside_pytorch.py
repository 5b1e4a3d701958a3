#!/usr/bin/env python3
"""beside_pytorch.py FILE...: the same steps by PyTorch, on the same GPU. A FILE is what a benchmark of chapter 01 or 08
wrote with --json: forward, a loss gradient as cheap as a copy, and backward, of a network that torch_peer.py has, too.
Both sides wait for the GPU after each step. PyTorch computes eagerly; for bf16 it runs under autocast.

beside_pytorch.py --losses PROGRAM [DEVICES]: the losses of a few steps of gradient descent in float32, from the same weights
on the same batch, by PROGRAM, which has all chapters, and by PyTorch. 01 and 08 on one device; on DEVICES, 03 beside DTensor
and 06 beside FSDP2. They must agree to 1e-3 of the largest. Code 86: they do not. Without a GPU, PyTorch computes on the
CPU."""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import distributed, multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

marks = tempfile.NamedTemporaryFile()
marks.write(bytes(8))
marks.flush()
os.environ.update(RANK="0", WORLD_SIZE="1", MARKS=marks.name)
sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1] / "benchmarks")]
import torch_peer

STEPS = 10


def median_of(step):
    """The median time of a step, in microseconds."""
    times = []
    for _ in range(STEPS + 3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(1e6 * (time.perf_counter() - begin))
    return statistics.median(times[3:])


def step_of(case):
    """A step of PyTorch's, of the network and in the precision of this case of the benchmark."""
    torch.backends.cuda.matmul.allow_tf32 = case["precision"] == "tf32"
    torch.manual_seed(1)
    model, batch = torch_peer.network_of({"network": [int(n) for n in case["network"].split("x")],
                                          "layers": case["layers"], "is_decoder": case["chapter"] == "08"})
    for block in model.modules():  # not in the network's state, so that `to` leaves them
        if isinstance(block, torch_peer.Block):
            block.cos, block.sin = block.cos.cuda(), block.sin.cuda()
    model, batch = model.cuda(), batch.cuda()

    def step():
        model.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=case["precision"] == "bf16"):
            out = model(batch)
        out.backward(out.detach().clone())

    return step


def times_beside(files):
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}: milliseconds a step, forward and backward")
    print(f"{'':<12} {'network':<16} {'layers':>6} {'':<8} {'ours':>8} {'PyTorch':>8} {'ratio':>6} {'TFLOP/s':>8}")
    for file in files:
        for case in json.loads(Path(file).read_text())["chapters"]:
            ours, theirs = case["times"]["ours_us"]["median"], median_of(step_of(case))
            print(f"{case['chapter']} {case['variant']:<9} {case['network']:<16} {case['layers']:>6} "
                  f"{case['precision']:<8} {ours / 1e3:>8.2f} {theirs / 1e3:>8.2f} {ours / theirs:>6.2f} "
                  f"{case['flops'] / ours / 1e6:>8.1f}", flush=True)


def write_tensors(path, tensors):
    """A safetensors file of float32: the length of a header, the header, and the values."""
    header, values, end = {}, b"", 0
    for name, t in tensors.items():
        part = t.detach().float().cpu().contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [end, end + len(part)]}
        values, end = values + part, end + len(part)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    Path(path).write_bytes(len(text).to_bytes(8, "little") + text + values)


def read_tensors(path):
    file = Path(path).read_bytes()
    begin = 8 + int.from_bytes(file[:8], "little")
    tensors = {}
    for name, entry in json.loads(file[8:begin]).items():
        first, last = entry.get("data_offsets", (0, 0))
        if name != "__metadata__":
            tensors[name] = torch.frombuffer(bytearray(file[begin + first:begin + last]),
                                             dtype=torch.float32).reshape(entry["shape"])
    return tensors


class Problem:
    """A network of PyTorch's, its names here, a batch, and the sizes of the steps."""
    STEPS, RATE = 5, 0.05

    def __init__(self, chapter):
        torch.manual_seed(1)
        self.is_decoder = chapter == "08"
        width, hidden = (128, 256) if self.is_decoder else (64, 128)
        self.model, self.input = torch_peer.network_of({
            "network": [4 * torch_peer.LENGTH if self.is_decoder else 96, width, hidden], "layers": 2,
            "is_decoder": self.is_decoder})
        if self.is_decoder:
            self.other = torch.randint(8 * width, self.input.shape)
            self.config = {"model_type": "mistral", "vocab_size": 8 * width, "hidden_size": width,
                           "intermediate_size": hidden, "num_hidden_layers": 2, "num_attention_heads": 2,
                           "num_key_value_heads": 1, "head_dim": torch_peer.Block.HEAD,
                           "max_position_embeddings": torch_peer.LENGTH, "sliding_window": None, "rope_theta": 10000.0,
                           "rms_norm_eps": torch.finfo(torch.float32).eps, "tie_word_embeddings": False}
        else:
            self.other = torch.randn(96, width)

    def loss(self, output, other):
        """Of tokens: the mean loss. Of a plain network: a sum whose gradient by the output is `other`, for each row."""
        if self.is_decoder:
            return torch.nn.functional.cross_entropy(output.flatten(0, 1), other.flatten())
        return (output * other).sum()

    def name(self, theirs):
        """Of a parameter of the network, here."""
        if not self.is_decoder:
            return f"layer_{int(theirs.split('.')[0]) // 2}/weights"
        number, rest = theirs.split(".", 1)
        outer = {0: "model.embed_tokens.", 3: "model.norm.", 4: "lm_head."}
        if int(number) in outer:
            return outer[int(number)] + rest
        parts = {"before": "input_layernorm", "between": "post_attention_layernorm", "query": "self_attn.q_proj",
                 "key": "self_attn.k_proj", "value": "self_attn.v_proj", "output": "self_attn.o_proj",
                 "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}
        return f"model.layers.{int(number) - 1}.{parts[rest.split('.')[0]]}.weight"

    def losses_of(self, program, chapter, devices, folder):
        """The losses of the program. It computes gradients, and the steps are made here."""
        weights = {self.name(name): p.detach().clone() if self.is_decoder else p.detach().T.contiguous()
                   for name, p in self.model.named_parameters()}
        batch, out, losses = folder / "batch.safetensors", folder / "out.safetensors", []
        if self.is_decoder:
            params = folder / "network"
            params.mkdir()
            (params / "config.json").write_text(json.dumps(self.config))
            write_tensors(batch, {"input_ids": self.input, "labels": self.other})
        else:
            params = folder / "network.safetensors"
            write_tensors(batch, {"input": self.input, "output_grad": self.other})
        for _ in range(self.STEPS):
            write_tensors(params / "model.safetensors" if self.is_decoder else params, weights)
            variant = {"03": [], "06": ["--variant", "zero3"], "08": ["--variant", "single"]}.get(chapter, [])
            subprocess.run(["mpirun", "-n", str(devices), "--oversubscribe", "--bind-to", "none", program, chapter, "gradients",
                            *variant, "--params", params, "--batch", batch, "--out", out], check=True,
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            given = read_tensors(out)
            losses.append(given["loss"].item() if self.is_decoder else self.loss(given["output"], self.other).item())
            weights = {name: w - self.RATE / self.scale() * given[name] for name, w in weights.items()}
        return losses

    def scale(self):
        return 1 if self.is_decoder else len(self.input)

    def losses_of_pytorch(self, chapter, devices, device, rank=0):
        """The losses of PyTorch, on this device of so many."""
        model, of_rank = self.model.to(device), slice(None)
        for block in model.modules():
            if isinstance(block, torch_peer.Block):
                block.cos, block.sin = block.cos.to(device), block.sin.to(device)
        if devices > 1:
            mesh = init_device_mesh(device, (devices,))
            if chapter == "03":
                parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
            else:
                for layer in (model[0], model[2]):
                    fully_shard(layer, mesh=mesh)
                fully_shard(model, mesh=mesh)
                rows = len(self.input) // devices
                of_rank = slice(rank * rows, (rank + 1) * rows)
        is_divided = of_rank != slice(None)
        x, other, losses = self.input[of_rank].to(device), self.other[of_rank].to(device), []
        optimizer = torch.optim.SGD(model.parameters(), lr=self.RATE / self.scale())
        for _ in range(self.STEPS):
            optimizer.zero_grad()
            loss = self.loss(model(x), other)
            (loss * devices if is_divided else loss).backward()  # FSDP2 takes the mean of the devices' gradients
            optimizer.step()
            whole = loss.detach()
            if is_divided:
                distributed.all_reduce(whole)
            losses.append(whole.item())
        return losses


def on_device(rank, chapter, devices, meeting, results):
    """A process of PyTorch's. Device 0 writes the losses."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(rank)
    distributed.init_process_group("nccl" if device == "cuda" else "gloo", init_method=f"file://{meeting}", rank=rank,
                                   world_size=devices)
    losses = Problem(chapter).losses_of_pytorch(chapter, devices, device, rank)
    if rank == 0:
        Path(results).write_text(json.dumps(losses))
    distributed.destroy_process_group()


def losses_beside(program, devices):
    is_wrong = False
    print(f"{'':<20}", *(f"{f'step {step}':>10}" for step in range(1, Problem.STEPS + 1)), " largest difference")
    for chapter, n in [("01", 1), ("08", 1)] + ([("03", devices), ("06", devices)] if devices > 1 else []):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            ours = Problem(chapter).losses_of(program, chapter, n, folder)
            multiprocessing.spawn(on_device, (chapter, n, folder / "meeting", folder / "losses"), n)
            theirs = json.loads((folder / "losses").read_text())
        far = max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / max(map(abs, theirs))
        print(f"{chapter} on {n} device{'s' if n > 1 else ' '}".ljust(20), *(f"{loss:>10.5g}" for loss in ours), f"{far:>10.1e}")
        print("PyTorch".rjust(20), *(f"{loss:>10.5g}" for loss in theirs), flush=True)
        is_wrong |= not far < 1e-3
    return 86 if is_wrong else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--losses"]:
        sys.exit(losses_beside(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1))
    times_beside(sys.argv[1:])
