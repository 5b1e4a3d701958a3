#!/usr/bin/python3
"""first_set.py [--all] [WORDS...]: mistakes in sharded decoders, mixtures and models of one's own, and how often their true
cause is named. What is true of each was written beside it before it was judged."""
from decoders import ContextParallel, TensorParallel
from judging import measure_networks
from mixtures import Mixture

TP, CP, EP = TensorParallel, ContextParallel, Mixture
EVEN = ("decoder-real-even", "decoder-exact-even", "decoder-real-even-window-tied")
ALL = ("decoder-real-plain", "decoder-exact-plain", "decoder-real-even", "decoder-exact-even")
REAL = ("decoder-real-plain", "decoder-real-even", "decoder-real-window-tied")
TIED = ("decoder-real-window-tied", "decoder-exact-window-tied", "decoder-real-even-window-tied")
SHARED = ("decoder-exact-even", "decoder-real-even-window-tied", "decoder-real-plain", "decoder-real-window-tied")
TOP2 = ("mixture-exact-11x5x7x5-3-top2", "mixture-real-11x5x7x5-5-top2", "mixture-real-16x8x16x8-8-top2")
MIXED = (*TOP2, "mixture-exact-16x8x16x8-8-top1-apart", "mixture-real-13x5x7x5-3-top1", "mixture-real-13x5x7x5-7-top2-full")
FULL = ("mixture-exact-16x5x7x5-7-top2-full", "mixture-real-13x5x7x5-7-top2-full")
BALANCED = (*FULL, "mixture-real-13x5x7x5-3-top1", "mixture-real-16x8x16x8-8-top2", "mixture-exact-16x8x16x8-8-top2")
# a mistake, the program, the problems, the numbers of devices, what is true of it
OF_PROBLEMS = [
    ("kv heads repeated as a tile", TP, SHARED, (2, 3), r"share key-value heads?|another order"),
    ("rotary positions restart", CP, ALL, (2, 3), r"positions that begin at 0"),
    ("norms not summed", CP, ALL, (2, 3), r"not summed|left out|addend"),
    ("embedding not summed", CP, ALL, (2, 3), r"not summed|left out|addend"),
    ("maximum of own slice", TP, REAL, (2, 3), r"maxim|largest"),
    ("softmax of own slice alone", TP, REAL, (2, 3), r"softmax.*(own|slice|sum)|not (summed|reduced)"),
    ("sum of own slice forgotten in the backward pass", TP, REAL, (2, 3), r"softmax.*(own|slice|sum)|sum.*backward"),
    ("embedding begins at device x V // N", TP, ALL[:2], (2, 3), r"offset|begin|ids|row"),
    ("gate and up fused, cut in one piece", TP, EVEN, (2, 4), r"gate.*up|fused"),
    ("causal mask by places", CP, ALL, (2, 3), r"causal mask"),
    ("tied table counted once", TP, TIED, (2, 3), r"tied table|embedding alone|head's gradient"),
    ("window one token wider", TP, TIED, (2, 3), r"window"),
    ("scale by the width over own heads", TP, REAL, (2, 4), r"scores|scale of|root"),
    ("epsilon of another default", TP, REAL, (2, 3), r"epsilon"),
    ("residual added before the sum", TP, ALL, (2, 3), r"residual|input.*(times|added)|counted \d times"),
    ("dx of attention not reduced", TP, ALL, (2, 3), r"not reduced|left out|not summed"),
    ("mean over own tokens", CP, REAL, (2, 3), r"a mean over the labels of each device|own (tokens|rows)"),
    ("last label of each slice lost", CP, REAL, (2, 3), r"label|last token|tokens?.*(missing|left out|never)"),
    ("keys' gradient of own queries", CP, ALL, (2, 3), r"own device's queries|gradient of .*keys"),
    ("gates not multiplied backward", EP, MIXED, (2, 3), r"gate"),
    ("gates multiplied at both ends", EP, MIXED, (2, 3), r"gate"),
    ("gates detached", EP, MIXED, (2, 3), r"gate"),
    ("gates of two not divided by their sum", EP, TOP2, (2, 3), r"gate|softmax over all|divided by their sum"),
    ("second choices lost", EP, TOP2, (2, 3), r"second|first choice|choices"),
    ("capacity of own tokens", EP, FULL, (2, 3), r"capacity"),
    ("experts' gradients divided by N", EP, MIXED, (2, 4), r"a mean where a sum|mean over"),
    ("experts' gradients of own tokens", EP, MIXED, (2, 3), r"own (tokens|rows)|tokens of .*(alone|device)|addend"),
    ("experts dealt out in turn", EP, MIXED[:5], (2, 4), r"expert.*(place|order|another|other|for)"),
    ("answers in the order of devices", EP, MIXED, (2, 3), r"order|another token|place"),
    ("balancing loss of each device, added up", EP, BALANCED, (2, 3), r"balancing loss"),
    ("balancing loss of own tokens", EP, BALANCED, (2, 3), r"balancing loss"),
    ("router's gradient not summed", EP, MIXED, (2, 3), r"left out|addend|not (summed|reduced)"),
    ("router's dx forgotten", EP, MIXED, (2, 3), r"router|gate"),
]
DATA, TENSOR, MESH = ((2, 1), (3, 1), (4, 1)), ((1, 2), (1, 3), (1, 4)), ((2, 2),)
# a mistake, the meshes of data x tensor, steps of training or 0, what is true of it
OF_OWN = [
    ("mean of means", (*DATA, *MESH), 0, r"own rows"),
    ("mean of means", DATA, 4, r"own rows"),
    ("mean", (*DATA, *MESH), 0, r"a mean.* where a sum"),
    ("one mask on all data ranks", DATA, 0, r"keep|mask"),
    ("one mask on all tensor ranks", (*TENSOR, *MESH), 0, r"keep|mask"),
    ("decay applied twice", (*DATA[:1], *TENSOR[:1]), 4, r"decay"),
    ("norm of own slices", (*TENSOR, *MESH), 4, r"norm"),
    ("norm of each tensor", (*DATA[:1], *TENSOR[:1]), 4, r"norm"),
    ("not clipped", (*DATA[:1], *TENSOR[:1]), 4, r"clip|norm"),
    ("stale bucket", (*DATA, *MESH), 4, r"step before|stale|one step late"),
    ("state of the next piece", DATA, 4, r"state|moment"),
    ("replica 1 misses the last step", DATA, 4, r"different copies.*|step before|not updated|last step"),
    ("not reduced in the last step", DATA, 4, r"last step|not reduced|left out"),
    ("last bucket not reduced", (*DATA, *MESH), 0, r"left out|not reduced|addend"),
    ("last bucket not reduced", DATA, 4, r"left out|not reduced|addend"),
    ("labels of the next device's rows", DATA, 0, r"labels?|\by\b.*rows|order of rows"),
    ("bias added on each device", (*TENSOR, *MESH), 0, r"bias.*(times|each|added)"),
    ("dx not reduced", (*TENSOR, *MESH), 0, r"left out|not reduced|addend"),
    ("out not reduced", (*TENSOR, *MESH), 0, r"left out|not reduced|addend"),
    ("bias reduced over tensor, too", (*TENSOR, *MESH), 0, r"summed"),
    ("next rank's slice of down", (*TENSOR, *MESH), 0, r"slice"),
    ("last micro-batch of 3 dropped", DATA, 0, r"rows? .*(missing|alone)|micro-batch|left over"),
    ("mean over rows, not counts", DATA[:1], 0, r"count|weights of rows|wrong scale|mean over the rows"),
    ("head drawn anew on each device", DATA, 0, r"head.*(other|not the same|begin|weights)|weights of"),
    ("head drawn anew on each device", DATA, 4, r"different copies|head|weights"),
    ("pieces of up not gathered", DATA, 4, r"gathered|not updated|different copies|begin"),
    ("rate times N", DATA, 4, r"rate|times"),
]
# Of the first table, held against the same program on one device, which is all that is known.
OF_DECODERS = [(planted, program, true) for planted, program, _, _, true in OF_PROBLEMS if program is not EP and planted in (
    "kv heads repeated as a tile", "norms not summed", "embedding not summed", "gate and up fused, cut in one piece",
    "embedding begins at device x V // N", "mean over own tokens", "last label of each slice lost",
    "dx of attention not reduced")]
OF_MIXTURES = [(planted, true) for planted, program, _, _, true in OF_PROBLEMS if program is EP and planted in (
    "experts' gradients divided by N", "experts' gradients of own tokens", "experts dealt out in turn",
    "router's gradient not summed", "second choices lost")]

if __name__ == "__main__":
    measure_networks(OF_PROBLEMS, OF_OWN, OF_DECODERS, OF_MIXTURES)
