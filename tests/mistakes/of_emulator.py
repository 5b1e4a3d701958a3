"""emu/: the collectives and operations of the emulated device."""
from mistake import of

gather = of("emu all_gather", "emu/all_gather.cpp", "06_fully_sharded --variant zero3", "collectives_test")

ALL = [
    gather("gather-wrong-neighbour", "receive_values(call, call.left(), slice(call.me() - step - 1));",
           "receive_values(call, call.left(), slice(call.me() - step));",
           "Somebody counts the steps of the ring from 1, and a slice arrives in the place of the one before.",
           "diverges"),
]
