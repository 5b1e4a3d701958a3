"""Tests of other projects. `says(case)` of each: True where it notices something, False, or None where it cannot be asked."""
from importlib.util import find_spec

from . import cs336, picotron

FOREIGN = {
    "CS336's tests of assignment 2": cs336.says,
    "picotron's test of parallel layers": picotron.says,
    "the same, without its exact equality": picotron.says_close,
}
if find_spec("spmd_types"):
    from . import spmd
    FOREIGN["spmd_types 0.3.1, of the same programs in PyTorch"] = spmd.says
