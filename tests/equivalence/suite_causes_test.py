#!/usr/bin/python3
"""suite_causes_test.py [--table]: what the suite says of sharded mlps in which a mistake is planted (sharded_mlp.py), on
meshes of data and tensor. Each mistake must be noticed, and no cause may be wrong. --table prints how often each is named."""
import re
import sys
import unittest
from pathlib import Path


here = Path(__file__).resolve().parent
sys.path.insert(0, str(here.parents[1] / "chapters/suite"))
import shardbook_check as sb
from sharded_mlp import Mlp

DATA, TENSOR, MESH, BOTH = [(2, 1), (3, 1), (4, 1)], [(1, 2), (1, 3), (1, 4)], [(2, 2), (2, 3), (3, 2)], [(2, 1), (1, 3), (2, 2)]
OWN = "own rows"
NO_SUM = r"left out|addend .* alone|different copies|rows? .*alone|[12/34]+ times the addend"
# a mistake, the meshes on which it is made, and what is true of it
TABLE = [
    ("mean", DATA, r"a mean where a sum is meant"),
    ("mean", MESH, r"a mean over data"),
    ("mean, divided first", DATA, r"a mean where a sum is meant"),
    ("mean over all", MESH, r"a mean where a sum is meant"),
    ("summed twice", DATA, r"times it: summed|times it in every element: summed|a wrong scale"),
    ("summed twice", MESH, r"summed over data"),
    ("no reduction", DATA, NO_SUM),
    ("no reduction", MESH, NO_SUM),
    ("no reduction, own mean", DATA, NO_SUM),
    ("no reduction of layer 0", DATA, NO_SUM),
    ("no reduction in the last step", DATA, r"last step with|" + NO_SUM),
    ("the last device lost", DATA, r"addend is missing|without the rows? |addend of rows? .* missing|addend alone|rows? .* alone|addend of device 0's"),
    ("rest in pieces of 2", DATA, r"pieces of 2 leave over|micro-batch|without rows?|is missing|0 in every element|row \d of the batch alone|rows? [\d, and]+ never"),
    ("sampler pads", DATA, r"a sampler that pads|in the sum twice|counted twice"),
    ("own means", DATA, OWN),
    ("sum of own means", DATA, OWN + "|summed where every device"),  # the same, where the devices divide the rows
    ("own means", MESH, OWN),
    ("bf16 reduction", DATA, r"bfloat16|16 bits"),
    ("one step late", DATA, r"one step late"),
    ("one step late", TENSOR, r"one step late"),
    ("no zero_grad", DATA, r"not set to 0"),
    ("no last step", DATA, r"the step before"),
    ("not clipped", BOTH, r"not clipped"),
    ("no bias correction", BOTH, r"bias correction"),
    ("norm of own slices", TENSOR, r"own slices|norm of a device's"),
    ("norm of own slices", MESH, r"own slices|norm over data|norm of a device's"),
    ("norm over all, replicas counted", MESH, r"counts each gradient \d times"),
    ("norm of own rows", DATA, r"own slices|norm of"),
    ("replicas drift", DATA, r"different copies"),
    ("next rank's layer 1", TENSOR, r"another device's slice|device \d's slice"),
    ("next rank's layer 1", [(2, 2)], r"another device's slice|device \d's slice"),
    ("next rank's odd layers", TENSOR, r"another device's slice|device \d's slice"),
    ("shards under the next rank's number", TENSOR, r"device \d's slice|another device's slice|next device's hidden"),
    ("mask forgotten", BOTH, r"ReLU's mask"),
    ("no relu in layer 0", BOTH, r"ReLU"),
    ("output a mean", TENSOR, r"where a sum is meant"),
    ("dx not reduced", TENSOR, r"a reduction left out|not reduced"),
    ("dx not reduced", MESH, r"a reduction left out|not reduced"),
    ("dx of behind not reduced", TENSOR, r"not reduced"),
    ("dx of behind not reduced", MESH, r"not reduced"),
    ("dx reduced twice", TENSOR, r"summed where every device has the sum|a wrong scale"),
    ("over all devices", [(2, 2)], r"slices of different places"),
]
NAMES = [p.name for p in sb.problems() if p.workload == "mlp"]


class Causes(unittest.TestCase):
    def verdict(self, name, mesh, planted):
        problem = sb.problem(name)
        pieces, layout = Mlp(problem, *mesh, planted).pieces()
        return sb.check_pieces(problem, mesh[0] * mesh[1], pieces, layout)

    def test_right_programs_are_right(self):
        for name in NAMES:
            for mesh in (*DATA, *TENSOR, *MESH, (1, 1), (5, 1), (1, 5), (2, 4)):
                self.assertTrue(self.verdict(name, mesh, "").is_right, (name, mesh))

    def test_mistakes_are_named_or_nothing_is_said(self):
        total = {"wrong": 0, "right": 0, "other": 0, "none": 0}
        for planted, meshes, true in TABLE:
            of, others = {"wrong": 0, "right": 0, "other": 0, "none": 0}, []
            for name in NAMES:
                if planted in ("sampler pads", "one step late") and not sb.problem(name).is_training:
                    continue
                for mesh in meshes:
                    if planted.startswith("next rank's") and any(w % mesh[1] for w in sb.problem(name).widths[1::2]):
                        continue  # slices of other sizes do not fit
                    verdict = self.verdict(name, mesh, planted)
                    self.assertFalse([note for note in verdict.notes if "rule failed" in note], (planted, name, mesh, verdict.notes))
                    if verdict.is_right:
                        continue
                    said = "none" if not verdict.cause else "right" if re.search(true, verdict.cause) else "other"
                    of["wrong"] += 1
                    of[said] += 1
                    if said != "right":
                        others.append((name, mesh, verdict.cause))
            if "--table" in sys.argv or VERBOSE:
                print(f"{planted:34} {str(meshes[0]):7} {of}", flush=True)
                for other in others if VERBOSE else ():
                    print("     ", *other, flush=True)
            with self.subTest(planted):
                self.assertGreater(of["wrong"], 0, planted)
            for key, count in of.items():
                total[key] += count
        print(total)
        self.assertGreaterEqual(total["right"], 0.85 * total["wrong"])
        self.assertLessEqual(total["other"], 0.02 * total["wrong"])


VERBOSE = "--verbose-table" in sys.argv
if __name__ == "__main__":
    sys.argv = [word for word in sys.argv if "table" not in word]
    unittest.main()
