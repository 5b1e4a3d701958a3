"""Mistakes of readers: what a reader of a chapter types wrongly, and what must be said of it. `./tests/diagnostics` runs all.

Those that have a number `of_student` are the fifteen that a student tried first; the rest are typical mistakes of every
strategy."""
import re

from mistake import DOES_NOT_COMPILE, Mistake, Said

CURVES = {DOES_NOT_COMPILE: "does not compile", 0: "nothing to see", 86: "may look fine"}


def typed(chapter, file, what, text, instead, words, code=DOES_NOT_COMPILE, run="", **more):
    """The mistake `what` in an engine, whose message has these words. `run`: options of `train`."""
    name = re.sub(r"\W+", "-", re.sub(r"[()=]", "", what)).strip("-").lower()
    who = "A student who tried it first" if "of_student" in more else "A reader of the chapter"
    return Mistake(f"{chapter[:2]} {file.removesuffix('.hpp')}", f"chapters/{chapter}/{file}", f"{chapter} {run}".strip(), "",
                   f"{chapter[:2]}-{name}", text, instead, f"{who}: {what}.", CURVES.get(code, "stops with an error"),
                   says=Said(what, words, code, **more))


DATA, TENSOR, PIPE, EXPERT, ZERO = ("02_data_parallel", "03_tensor_parallel", "04_pipeline", "05_expert",
                                    "06_fully_sharded")
CANNOT_LEAVE = ("a Partial cannot leave an engine: it is one addend of a sum over the devices, so reduce it "
                "first (all_reduce or reduce_scatter)")
COUNTED_ONCE = ("all_reduce sums a Partial; this tensor is no addend of a sum, and reducing it would count "
                "it once per device")
DIVIDED = "layer_0/weights: expected a gradient that is divided over the devices as its parameter is"
MASK = "a ReLU's mask forgotten?"


def differs(words, *, run="", **options):
    return {"words": words, "code": 86, "names_line": False, "run": run, **options}


FIFTEEN = [
    typed(TENSOR, "tensor_parallel.hpp", "the forward reduction forgotten",
            "      x = all_reduce(std::move(out));", "      x = std::move(out);",
            "a Partial is one addend of a sum: all_reduce(std::move(x)) makes the sum, Replicated",
            of_student=1),
    typed(TENSOR, "tensor_parallel.hpp", "the same, with auto",
            "      Partial out = matmul(h, block.w1);         // (B, D)     my addend:   S1·S0 = P\n"
            "      kept.push_back({std::move(x), std::move(h)});\n      x = all_reduce(std::move(out));",
            "      auto out = matmul(h, block.w1);\n      kept.push_back({std::move(x), std::move(h)});\n"
            "      x = std::move(out);",
            "a Partial is one addend of a sum: all_reduce(std::move(x)) makes the sum, Replicated",
            of_student=2),
    typed(DATA, "data_parallel.hpp", "one reduction too many",
            "Sharded<0> out = matmul(a, weights_[l]);     // (b, F) or (b, D)    S0·R = S0\n      inputs",
            "Sharded<0> out = all_reduce(matmul(a, weights_[l]));\n      inputs",
            COUNTED_ONCE, of_student=3),
    typed(DATA, "data_parallel.hpp", "a reduction along a wrong axis",
            "gradients.put(layer_name(l), all_reduce(std::move(dw)));",
            "gradients.put(layer_name(l), reduce_scatter<1>(std::move(dw)));",
            f"{DIVIDED}, here (64, 128), given (64, 32)", of_student=4, code=84),
    typed(DATA, "data_parallel.hpp", "transposed forgotten on weights",
            "if (l > 0 || wants_input_grad()) d = matmul(d, transposed(weights_[l]));",
            "if (l > 0 || wants_input_grad()) d = matmul(d, weights_[l]);",
            "given (13, 64) and (128, 64): transposed(b) would fit", code=84, of_student=5),
    typed(TENSOR, "tensor_parallel.hpp", "transposed forgotten on activations",
            "matmul(transposed(x), dz)", "matmul(x, dz)",
            "given (13, 64) and (13, 128): transposed(a) would fit", code=84, of_student=6),
    typed(DATA, "data_parallel.hpp", "a mean for a sum",
            "gradients.put(layer_name(l), all_reduce(std::move(dw)));",
            "{\n        Replicated sum = all_reduce(std::move(dw));\n"
            "        sum.parameter() = scale(std::move(sum.parameter()), 1.0F / "
            "static_cast<float>(num_devices()));\n"
            "        gradients.put(layer_name(l), std::move(sum));\n      }",
            of_student=7, **differs("1/4 of it in every element: a mean where a sum is meant?")),
    typed(TENSOR, "tensor_parallel.hpp", "dL/dx not reduced",
            "d = all_reduce(std::move(dx));", "d = std::move(dx);",
            "a Partial is one addend of a sum: all_reduce(std::move(x)) makes the sum, Replicated",
            of_student=8),
    typed(TENSOR, "tensor_parallel.hpp", "dL/dx reduced only if it is wanted",
            "d = all_reduce(std::move(dx));", "if (wants_input_grad()) d = all_reduce(std::move(dx));",
            of_student=9, **differs("a call that is made only if dL/dx is wanted?", run="--layers 4")),
    typed(TENSOR, "row_column.hpp", "a mask from a Partial",
            "      Replicated dh = all_reduce(matmul(d, transposed(block.w1)));",
            "      Partial dh = matmul(d, transposed(block.w1));",
            "the gradient is a Partial, and ReLU's derivative is taken of the sum: reduce the Partial first "
            "(all_reduce or reduce_scatter)", of_student=10),
    typed(DATA, "data_parallel.hpp", "the mask forgotten",
            "if (relu_before(l)) d = relu_backward(std::move(d), a);", "",
            of_student=11, **differs(MASK)),
    typed(DATA, "data_parallel.hpp", "a collective under device_id() == 0",
            "gradients.put(layer_name(l), all_reduce(std::move(dw)));",
            "if (device_id() == 0) gradients.put(layer_name(l), all_reduce(std::move(dw)));",
            "look at what device 0 alone does", code=81, of_student=12),
    typed(DATA, "accumulated.hpp", "another order on one device",
            "    for (std::size_t l = weights_.size(); l-- > 0;)\n      gradients.put(layer_name(l),",
            "    for (std::size_t i = 0; i < weights_.size(); ++i)\n"
            "      if (const std::size_t l = device_id() == 1 ? i : weights_.size() - 1 - i; true)\n"
            "        gradients.put(layer_name(l),",
            "see what device 1 passes", code=81, run="--variant accumulated", of_student=13),
    typed(TENSOR, "tensor_parallel.hpp", "a future assigned",
            "      x = all_reduce(std::move(out));", "      x = all_reduce_async(std::move(out));",
            "this is a future of the tensor, not the tensor: .get() waits for it", of_student=14),
    typed(TENSOR, "tensor_parallel.hpp", "a future dropped",
            "      x = all_reduce(std::move(out));", "      all_reduce_async(std::move(out));",
            "a future: .get() or .wait() waits for the call, and its memory is needed until then",
            of_student=15),
]

OF_DATA_PARALLEL = [
    typed(DATA, "data_parallel.hpp", "a gradient leaves without its reduction",
            "gradients.put(layer_name(l), all_reduce(std::move(dw)));",
            "gradients.put(layer_name(l), std::move(dw));", CANNOT_LEAVE),
    typed(DATA, "accumulated.hpp", "each piece of the batch reduced, and the sum again",
            "accumulate(dw[l], matmul(transposed(a), d));",
            "accumulate(dw[l], all_reduce(matmul(transposed(a), d)));",
            "the sum is a Partial and the addend reduced: it would count once per device"),
    typed(DATA, "data_parallel.hpp", "transposed forgotten on activations",
            "matmul(transposed(a), d);", "matmul(a, d);",
            "S0·S0 has no product: transposed(a) would make it S1·S0 = P, and all_gather(b) S0·R = S0"),
    typed(DATA, "bucketed.hpp", "the last bucket not sent",
            "if (filling.bytes >= bucket_bytes_ || l == 0)", "if (filling.bytes >= bucket_bytes_)",
            "gradient: expected one for every parameter, given none for layer_0/weights", code=84,
            run="--variant bucketed", names_line=False),
]

OF_TENSOR_PARALLEL = [
    typed(TENSOR, "tensor_parallel.hpp", "both matrices of a block cut by columns",
            "load_sharded<0>(checkpoint, layer_name(l + 1))",
            "load_sharded<1>(checkpoint, layer_name(l + 1))",
            "the slices are along another axis: all_to_all<From, To>(std::move(x)) moves the cut"),
    typed(TENSOR, "tensor_parallel.hpp", "addends gathered, not reduced",
            "x = all_reduce(std::move(out));", "x = all_gather(std::move(out));",
            "all_gather joins slices; a Partial is an addend: all_reduce(std::move(x)) makes the sum"),
    typed(TENSOR, "tensor_parallel.hpp", "slices of the activation reduced",
            "Sharded<1> h = relu(matmul(x, block.w0));",
            "Sharded<1> h = relu(all_reduce(matmul(x, block.w0)));",
            COUNTED_ONCE),
    typed(TENSOR, "tensor_parallel.hpp", "a weight gradient reduced",
            "gradients.put(layer_name(2 * i + 1), matmul(transposed(h), d));",
            "gradients.put(layer_name(2 * i + 1), all_reduce(matmul(transposed(h), d)));", COUNTED_ONCE),
    typed(TENSOR, "sequence.hpp", "the input not gathered",
            "relu(matmul(all_gather(x), block.w0))", "relu(matmul(x, block.w0))",
            "S0·S1 has no product: each device would hold one block; all_gather(b) makes it S0·R = S0"),
    typed(TENSOR, "sequence.hpp", "the sum cut along a wrong axis",
            "x = reduce_scatter<0>(std::move(out));", "x = reduce_scatter<1>(std::move(out));",
            "the slices are along another axis: all_to_all<From, To>(std::move(x)) moves the cut"),
    typed(TENSOR, "row_column.hpp", "the ReLU before the reduction",
            "relu(all_reduce(std::move(z)))", "all_reduce(relu(std::move(z)))",
            "ReLU is not linear, so f(a) + f(b) is not f(a + b): reduce the Partial first"),
]

OF_PIPELINE = [
    typed(PIPE, "worker.hpp", "nobody waits for a message that was sent",
            "taken(sends_, m).wait();", "sends_.erase(m);",
            # 86 where a tensor is held for longer than its closed form says, until a late device takes it
            "was dropped without waiting for it", code=0, or_code=86, run="--layers 4"),
    typed(PIPE, "worker.hpp", "receives from the device itself",
            "stages_.device_of(m.from_stage())", "group_.device_id()",
            "post_receive: expected a device of 0 to 3 but oneself, given device", code=84, run="--layers 4"),
    typed(PIPE, "worker.hpp", "expects an activation where a gradient comes",
            "stages_.width(m.flow == Flow::activation ? m.stage : m.stage + 1)", "stages_.width(m.stage)",
            "post_receive: expected (", code=81, run="--layers 4"),
    typed(PIPE, "worker.hpp", "the gradients of micro-batches not added up",
            "      accumulate(weight_grad(l), matmul(transposed(a), d));  // like the weights    O·O = O\n"
            "      d = d_input(l, d, a);",
            "      weight_grad(l) = matmul(transposed(a), d);\n      d = d_input(l, d, a);",
            **differs("what the last micro-batch adds: the others overwritten", run="--layers 4 --micro-batches 4")),
    typed(PIPE, "worker.hpp", "the mask forgotten",
            "return relu_before(l) ? relu_backward(std::move(da), a) : std::move(da);", "return da;",
            **differs(MASK, run="--layers 4")),
]

OF_EXPERT = [
    typed(EXPERT, "expert.hpp", "the router's gradient not reduced",
            "all_reduce(matmul(transposed(x), dlogits))", "matmul(transposed(x), dlogits)", CANNOT_LEAVE),
    typed(EXPERT, "expert.hpp", "answers sent as tokens were",
            "y = all_to_all(std::move(y), route.from);", "y = all_to_all(std::move(y), route.to);",
            "all_to_all: expected 4 counts that add up to", code=84),
    typed(EXPERT, "expert.hpp", "transposed forgotten on weights",
            "matmul(d, transposed(layer(e, l)))", "matmul(d, layer(e, l))", "transposed(b) would fit",
            code=84),
    typed(EXPERT, "expert.hpp", "the mask forgotten",
            "if (relu_before(l)) d = relu_backward(std::move(d), a);", "", **differs(MASK)),
]

OF_FULLY_SHARDED = [
    typed(ZERO, "zero1.hpp", "whole gradients for rows of the parameters",
            "reduce_scatter<0>(std::move(dw[l]))", "all_reduce(std::move(dw[l]))",
            DIVIDED, code=84, run="--variant zero1"),
    typed(ZERO, "zero1.hpp", "the optimizer gets all rows",
            "layers(weights_).slice(num_devices(), device_id())", "layers(weights_)",
            DIVIDED, code=84, run="--variant zero1"),
    typed(ZERO, "zero1.hpp", "weights not gathered after the step",
            "  void after_step() override {\n", "  void after_step() override {\n    return;\n",
            **differs("not gathered after the step?", run="--variant zero1")),
    typed(ZERO, "zero3.hpp", "weights not gathered",
            "Sharded<0> out = matmul(a, w);", "Sharded<0> out = matmul(a, shards_[l]);",
            "S0·S0 has no product: transposed(a) would make it S1·S0 = P, and all_gather(b) S0·R = S0"),
    typed(ZERO, "zero3.hpp", "a gradient not reduced",
            "accumulate(dw[l], reduce_scatter<0>(std::move(addend)));",
            "accumulate(dw[l], std::move(addend));",
            "the sum is reduced and the addend a Partial: reduce it first (all_reduce or reduce_scatter)"),
    typed(ZERO, "zero3.hpp", "a gradient reduced, but not cut",
            "accumulate(dw[l], reduce_scatter<0>(std::move(addend)));",
            "accumulate(dw[l], all_reduce(std::move(addend)));",
            "the sum and the addend have different layouts: gather or shard the addend first"),
    typed(ZERO, "zero3.hpp", "weights gathered on device 0 alone",
            "      if (l > 0 || wants_input_grad()) {", "      if (l > 0 || device_id() == 0) {",
            "device 0", code=81, run="--variant zero3"),
]

ALL = [*FIFTEEN, *OF_DATA_PARALLEL, *OF_TENSOR_PARALLEL, *OF_PIPELINE, *OF_EXPERT, *OF_FULLY_SHARDED]
# The first with each of the compiler's sentences, and with each exit code: those of ./tests/mistakes/run.
FIRST = {m.says.words if m.says.code == DOES_NOT_COMPILE else m.says.code: m for m in reversed(ALL)}
OF_EACH_KIND = [m for m in ALL if m in FIRST.values()]
