#!/usr/bin/python3
"""third_set.py [--all] [WORDS...]: kinds that no rule was made with: written after those of first_set.py and second_set.py
were used, with what is true of each, and judged once."""
from first_set import ALL, CP, DATA, EP, MESH, MIXED, REAL, TENSOR, TOP2, TP
from judging import measure_networks

OF_PROBLEMS = [
    ("output weights of the next device", TP, ("decoder-real-even", "decoder-exact-even"), (2, 4), r"slice|next device|other device"),
    ("gradients of gate and up exchanged", TP, ALL, (2, 3), r"gate.*up|up.*gate"),
    ("silu's second addend forgotten", TP, REAL, (2, 3), r"silu|derivative|gates"),
    ("softmax's backward without its sum", TP, ALL, (2, 3), r"softmax|scores"),
    ("norm's backward without its mean", TP, REAL, (2, 3), r"norm"),
    ("labels one token late", TP, REAL, (2, 3), r"label"),
    ("rotary positions of the next device", CP, ("decoder-real-even", "decoder-exact-even"), (2, 4), r"rotary|position"),
    ("values gathered from the next device on", CP, ("decoder-real-even", "decoder-exact-even"), (2, 4), r"value"),
    ("experts' gradients a mean over their tokens", EP, MIXED, (2, 3), r"mean|tokens|divided"),
    ("dL/dx of own experts alone", EP, MIXED, (2, 3), r"dL/dx|own|sent back"),
    ("gates of the token before", EP, TOP2, (2, 3), r"gate"),
]
OF_OWN = [
    ("bias not added", (*TENSOR, *MESH), 0, r"bias"),
    ("accumulated, and divided by 2 once too often", (*DATA, *TENSOR), 0, r"1/2|mean|0\.5 times"),
    ("mask not applied backward", (*DATA, *TENSOR), 0, r"keep|mask"),
    ("rows of device 0 on every device", DATA, 0, r"rows"),
    ("norm without biases", (*DATA[:1], *TENSOR[:1]), 4, r"norm|clip"),
    ("rate warmed up", DATA, 4, r"rate|steps"),
    ("weights kept in bfloat16", DATA, 4, r"16 bits|bfloat16"),
    ("first one step late", DATA, 4, r"first.*(late|updated|before|gathered)|step before"),
]
OF_DECODERS = [(planted, program, true) for planted, program, _, _, true in OF_PROBLEMS if planted in (
    "labels one token late", "gradients of gate and up exchanged")]
OF_MIXTURES = [(planted, true) for planted, program, _, _, true in OF_PROBLEMS if planted in (
    "experts' gradients a mean over their tokens", "gates of the token before")]

if __name__ == "__main__":
    measure_networks(OF_PROBLEMS, OF_OWN, OF_DECODERS, OF_MIXTURES)
