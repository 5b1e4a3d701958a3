#!/usr/bin/python3
"""Causes: the kinds of held_out.py and unseen.py, each on one mesh and in two problems; those of first_set.py and
second_set.py, each once; and no alarm on right decoders, mixtures and models of one's own."""
import collections
import unittest

import first_set
import held_out
import second_set
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


    def test_decoders_mixtures_and_own_models(self):
        said = collections.Counter()
        for of in (first_set, second_set):
            groups = (first_set.of_problems([(planted, program, names[:1], devices[:1], true)
                                              for planted, program, names, devices, true in of.OF_PROBLEMS]),
                      first_set.of_own([(planted, meshes[:1], steps, true) for planted, meshes, steps, true in of.OF_OWN]))
            for planted, where, verdict, is_said in first_set.judged(*groups):
                said[is_said] += 1
                self.assertFalse([note for note in verdict.notes if "rule failed" in note], (planted, where))
        print(dict(said))
        self.assertGreaterEqual(said["true"], 0.8 * sum(said.values()))
        self.assertLessEqual(said["wrong"], 0.02 * sum(said.values()))

    def test_right_programs_raise_no_alarm(self):
        right = [("", program, names, (1, 2, 3, 4), "") for program, names in (
            (first_set.TP, first_set.ALL), (first_set.TP, first_set.TIED), (first_set.CP, first_set.ALL), (first_set.EP, first_set.MIXED))]
        own = [("", (*first_set.DATA, *first_set.TENSOR, *first_set.MESH), steps, "") for steps in (0, 4)]
        networks = first_set.of_own_networks([("", first_set.TP, ""), ("", first_set.CP, "")], [("", "")])
        for _, where, _, run in (*first_set.of_problems(right), *first_set.of_own(own), *networks):
            self.assertTrue(run().is_right, where)


if __name__ == "__main__":
    unittest.main()
