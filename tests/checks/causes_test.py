#!/usr/bin/python3
"""What a simulated program shows: the kinds of held_out.py and unseen.py, each on one mesh and in two problems."""
import collections
import unittest

import held_out
import unseen


class Causes(unittest.TestCase):
    def test_the_true_cause_is_named_or_none(self):
        said = collections.Counter()
        for module, program in ((held_out, held_out.HeldOut), (unseen, unseen.Unseen)):
            table = [(planted, meshes[:1], true) for planted, meshes, true in module.TABLE]
            problems = ("mlp-exact-13x7x11x7", "mlp-adam-13x7x11x7")
            for planted, problem, mesh, verdict, of in held_out.judged(table, program, module.TRAINING, problems):
                said[of] += 1
                self.assertFalse([note for note in verdict.notes if "rule failed" in note], (planted, problem.name, mesh))
        print(dict(said))
        self.assertGreaterEqual(said["true"], 0.85 * sum(said.values()))
        self.assertLessEqual(said["wrong"], 0.02 * sum(said.values()))


if __name__ == "__main__":
    unittest.main()
