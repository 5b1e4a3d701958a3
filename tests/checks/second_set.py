#!/usr/bin/python3
"""second_set.py [--all] [WORDS...]: more kinds than first_set.py has, written after rules were made with those, with what is
true of each, and judged once before any rule was made with them."""
from first_set import ALL, BALANCED, CP, DATA, EP, EVEN, FULL, MESH, MIXED, REAL, TENSOR, TIED, TOP2, TP
from judging import measure_networks

OF_PROBLEMS = [
    ("value heads of the next device", TP, EVEN, (2, 4), r"value.*(slice|device)|slice|place of|another device"),
    ("mask sees one token too many", TP, ALL, (2, 3), r"causal|later|mask"),
    ("sums of blocks in bfloat16", TP, REAL, (2, 3), r"16 bits|bfloat16|bf16"),
    ("shared heads summed twice", TP, TIED, (3, 4), r"summed|twice|times it"),
    ("attention's output not reduced", TP, ALL, (2, 3), r"left out|not (reduced|summed)|addend|own heads"),
    ("keys not turned back", TP, ALL, (2, 3), r"turned|rotat|rotary"),
    ("last slice of the embedding not looked up", TP, ALL, (2, 3), r"embedding|ids|looked up|slice"),
    ("final norm's weight forgotten in the forward pass", TP, ALL, (2, 3), r"norm"),
    ("keys gathered in another order", CP, ("decoder-real-even", "decoder-exact-even"), (2, 4), r"order|place|keys"),
    ("gradients a mean over devices", CP, ALL, (2, 3), r"a mean"),
    ("the last device's gradients left out", CP, ALL, (2, 3), r"missing|left out|without|alone"),
    ("gates of two exchanged", EP, TOP2, (2, 3), r"gate"),
    ("capacity rounded down", EP, FULL, (2, 3), r"capacity"),
    ("router's logits in bfloat16", EP, ("mixture-real-11x5x7x5-5-top2", "mixture-real-13x5x7x5-3-top1"), (2, 3), r"16 bits|bfloat16|bf16"),
    ("second layers of the next expert", EP, MIXED[:5], (2, 4), r"expert.*(another|next|other|place)|another one|layer"),
    ("balancing loss without the number of experts", EP, BALANCED, (2, 3), r"balancing loss"),
    ("an expert's first token lost", EP, MIXED, (2, 3), r"token|row|capacity|room|lost|slot"),
    ("experts' masks forgotten", EP, MIXED, (2, 3), r"mask"),
]
OF_OWN = [
    ("labels strided, rows contiguous", DATA, 0, r"\by\b"),
    ("counts of the device before", DATA, 0, r"count"),
    ("slice 0 of shift on each device", (*TENSOR, *MESH), 0, r"shift"),
    ("another mask in the backward pass", (*DATA, *TENSOR), 0, r"keep|mask"),
    ("first a mean over tensor", (*TENSOR, *MESH), 0, r"a mean"),
    ("gradients of the first step in every step", DATA, 4, r"first step|stale|step before"),
    ("clipped before the sum", (*DATA, *MESH), 4, r"clip|norm"),
    ("betas exchanged", (*DATA[:1], *TENSOR[:1]), 4, r"beta"),
    ("epsilon of another default", (*DATA[:1], *TENSOR[:1]), 4, r"epsilon"),
    ("steps counted twice", (*DATA[:1], *TENSOR[:1]), 4, r"bias correction|count"),
    ("no decay of biases", (*DATA[:1], *TENSOR[:1]), 4, r"decay"),
    ("state of up lost", (*DATA, *TENSOR), 4, r"state|moment"),
    ("replica 1 misses the second step", DATA, 4, r"copies|step"),
]
OF_DECODERS = [(planted, program, true) for planted, program, _, _, true in OF_PROBLEMS if program is not EP and planted in (
    "last slice of the embedding not looked up", "attention's output not reduced", "gradients a mean over devices",
    "the last device's gradients left out", "final norm's weight forgotten in the forward pass")]
OF_MIXTURES = [(planted, true) for planted, program, _, _, true in OF_PROBLEMS if program is EP and planted in (
    "second layers of the next expert", "experts' masks forgotten", "an expert's first token lost")]

if __name__ == "__main__":
    measure_networks(OF_PROBLEMS, OF_OWN, OF_DECODERS, OF_MIXTURES)
