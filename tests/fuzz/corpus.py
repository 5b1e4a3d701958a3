"""The inputs that the fuzzer begins with."""
import json
import re
import struct

FILES = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
MISTRAL = {"model_type": "mistral", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 12,
           "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
           "sliding_window": None,
           "rms_norm_eps": 1e-6, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
           "tie_word_embeddings": False, "architectures": ["MistralForCausalLM"]}
MIXTRAL = {"model_type": "mixtral", "hidden_size": 8, "num_attention_heads": 4, "head_dim": 2,
           "rope_theta": 5, "num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": 7,
           "rope_scaling": None}
LLAMA = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 4, "num_hidden_layers": 2,
         "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "partial_rotary_factor": 1.0}, "pretraining_tp": 1,
         "layer_types": ["full_attention", "full_attention"], "is_llama_config": True, "rope_interleaved": False,
         "pruned_heads": {}, "unsloth_version": "1", "max_length": 20, "pad_token_id": -1, "auto_map": {"a": ""}}
QWEN2 = {"model_type": "qwen2", "hidden_size": 8, "num_attention_heads": 4, "num_hidden_layers": 2, "head_dim": "2",
         "num_key_value_heads": 4, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 0}
GEMMA = {"model_type": "gemma", "hidden_activation": "gelu_pytorch_tanh", "num_hidden_layers": 1, "hidden_size": 8,
         "attention_bias": False, "quantization_config": None}
T5 = {"model_type": "t5", "vocab_size": 11, "d_model": 8, "d_kv": 2, "d_ff": 12, "num_layers": 2,
      "num_decoder_layers": 1, "num_heads": 4, "relative_attention_num_buckets": 8,
      "feed_forward_proj": "gated-gelu", "layer_norm_epsilon": 1e-6, "decoder_start_token_id": 0,
      "is_encoder_decoder": True, "task_specific_params": {"summarization": {"prefix": "summarize: "}}}


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


HEADERS = {
    "empty": (0, {}),
    "one": (4, {"a": entry("F32", [1], 0, 4)}),
    "out-of-order": (14, {"b": entry("BF16", [1, 3], 8, 14), "a": entry("F64", [], 0, 8)}),
    "zeros": (8, {"__metadata__": {"format": "pt"}, "a\n\u00e9": entry("I64", [0, 7], 0, 0),
                  "b": entry("I64", [1, 1, 1], 0, 8), "c": entry("U8", [0], 8, 8)}),
    "overlap": (8, {"a": entry("F32", [1], 0, 4), "b": entry("F32", [1], 2, 6)}),
    "overflow": (4, {"a": entry("F32", [2**32, 2**32, 0], 0, 4)}),
}
INDEXES = {
    "two": {"metadata": {"total_size": 8}, "weight_map": dict(zip("ab", FILES))},
    "no-metadata": {"weight_map": {"a": "sub/" + FILES[0], "b": FILES[1]}},
    "leads-out": {"metadata": None, "weight_map": {"a": "sub/../../" + FILES[0]}},
    "deep": {"metadata": {"a": [[[[{"b": [{"c": [1, -2.5, True]}]}]]]]}, "weight_map": {}},
}
TRAINING = {"step": 7, "workload": "mlp", "options": {"--seed": "0"}}
PARTS = [{"file": FILES[0], "ranges": [[0, 3], [0, 2]]}, {"file": FILES[1], "ranges": [[0, 3], [2, 4]]}]
MANIFESTS = {
    "gathered": {"format": "gathered", "training": TRAINING, "digests": {FILES[0]: "ab"}},
    "distributed": {"format": "distributed", "digests": {}, "tensors": {"w": {"shape": [3, 4], "parts": PARTS}}},
    "overlap": {"format": "distributed", "digests": {},
                "tensors": {"w": {"shape": [3, 4], "parts": [*PARTS, PARTS[0]]}}},
    "overflow": {"format": "distributed", "digests": {},
                 "tensors": {"w": {"shape": [2**62, 2**62], "parts": []}, "s": {"shape": [], "parts": []}}},
}
CONFIGS = {"mistral": MISTRAL, "mixtral": MIXTRAL, "t5": T5, "llama": LLAMA, "qwen2": QWEN2, "gemma": GEMMA}
RAW = [  # texts that json.dumps does not write
    ("header", "escaped",
     struct.pack("<Q", 4) + b'{"\\u0061":{"dt\\u0079pe":"F32","shape":[1],"data_offsets":[0,4]}}  '),
    ("index", "twice", b'{"weight_map":{"a":"x","\\u0061":"y"}}'),
    ("index", "mark", b'\xef\xbb\xbf{"weight_map":{}}'),
    ("config", "sizes", b'{"model_type":"mistral","num_hidden_layers":1000000000000,"hidden_size":4294967296}'),
]

ODD_WORDS = [b"\\u0000", b"\\ud800", b"-0", b"1e999", b"../", b"/", b"\xef\xbb\xbf",
             b"version https://git-lfs.github.com/spec/",
             *(b"%d" % number for number in (2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64))]


def write_all(folder):
    """Writes each parser's inputs into a folder of its name, and the words of all inputs, with odd ones, into
    words.dict: the fuzzer makes inputs of these, too."""
    inputs = [("header", name, struct.pack("<Q", data_bytes) + json.dumps(header).encode())
              for name, (data_bytes, header) in HEADERS.items()]
    for parser, table in ("index", INDEXES), ("manifest", MANIFESTS), ("config", CONFIGS):
        inputs += [(parser, name, json.dumps(value).encode()) for name, value in table.items()]
    for parser, name, data in inputs + RAW:
        (folder / parser).mkdir(parents=True, exist_ok=True)
        (folder / parser / name).write_bytes(data)
    words = {word for _, _, data in inputs + RAW for kind in (rb'"[^"]+":?|\d+|null|true', rb"[{[][^][{}]{,60}[]}]")
             for word in re.findall(kind, data)}
    lines = ("".join(f"\\x{byte:02x}" for byte in word) for word in sorted(words.union(ODD_WORDS)))
    (folder / "words.dict").write_text("".join(f'"{line}"\n' for line in lines))
