"""Chapter 06: optimizer's state, gradients and parameters are divided."""
from mistake import of

HERE = "chapters/06_fully_sharded/"
def variant(name, file):
    return of(f"06 {name}", HERE + file, f"06_fully_sharded --layers 4 --variant {name}")
one, two, three = variant("zero1", "zero1.hpp"), variant("zero2", "zero2.hpp"), variant("zero3", "zero3.hpp")
keep, prefetch = variant("zero3-keep", "keep.hpp"), variant("zero3-prefetch", "prefetch.hpp")
costs = of("06 closed forms", HERE + "costs.hpp", "06_fully_sharded --layers 4 --variant zero1")
PIECES = " --micro-batches 3"
MASK = "if (relu_before(l)) d = relu_backward(std::move(d), a);"

ALL = [
    one("z1-rows-of-the-neighbour", "layers(weights_).part(num_devices(), device_id())",
        "layers(weights_).part(num_devices(), (device_id() + 1) % num_devices())",
        "Somebody updates the rows that another device will send.", "nothing is learnt"),
    one("z1-first-layer-alone-gathered", "for (Replicated& w : weights_) {",
        "{\n      Replicated& w = weights_.front();",
        "Somebody tests with one layer.", "the models drift apart"),
    one("z1-charged-to-activations", "      w.parameter().charge_to(Purpose::parameters);\n", "",
        "Somebody forgets to say that what was gathered is a parameter.", "nothing to see"),
    one("z1-gradients-of-device-0", "reduce_scatter<0>(std::move(dw[l])));  // (D/N, F)    P → S0",
        "shard<0>(all_reduce(std::move(dw[l]))));  // (D/N, F)    P → S0",
        "Somebody reduces whole gradients and then cuts them, which sends twice as much.",
        "nothing to see: more bytes"),
    one("z1-mask-forgotten", MASK, "", "Somebody writes the loop again, and forgets the mask.",
        "a little worse"),
    one("z1-whole-gradients-kept", "accumulate(dw[l], matmul(transposed(a), d));",
        "dw[l] = matmul(transposed(a), d);",
        "Somebody adds micro-batches, and the gradient of the last one overwrites the others.", "noisier",
        train="06_fully_sharded --variant zero1" + PIECES),

    two("z2-pieces-overwrite", "accumulate(dw[l], reduce_scatter<0>(std::move(addend)));",
        "dw[l] = reduce_scatter<0>(std::move(addend));",
        "Somebody adds micro-batches, and the gradient of the last one overwrites the others.", "noisier",
        train="06_fully_sharded --variant zero2" + PIECES),
    two("z2-not-gathered-after-the-step", "  void after_step() override {\n",
        "  void after_step() override {\n    if (num_devices() > 0) return;\n",
        "Somebody copies the third stage, which gathers before use.", "the models drift apart"),
    two("z2-mask-forgotten", MASK, "", "Somebody writes the loop again, and forgets the mask.",
        "a little worse"),
    two("z2-all-rows-updated", "layers(weights_).part(num_devices(), device_id())", "layers(weights_)",
        "Somebody gives the optimizer whole parameters, whose gradients are divided.", "stops with an error"),
    two("z2-gathers-the-old-weights",
        "Sharded<0> mine = shard<0>(w);  // (D/N, F)    R → S0: what I have updated\n"
        "      w = Replicated();\n      w = all_gather(std::move(mine));",
        "Replicated old(group(), w.local().clone());\n      Sharded<0> mine = shard<0>(old);\n"
        "      w = all_gather(std::move(mine));",
        "Somebody gathers from a copy, and holds it beside the parameters.", "nothing to see: more memory"),

    three("z3-weights-of-another-layer",
          "Replicated w = all_gather(shards_[l]);  // (D, F)    S0 → R: once more",
          "Replicated w = all_gather(shards_[l % 2]);",
          "Somebody tests with two layers, and takes weights by their place in the block.", "a little worse"),
    three("z3-pieces-overwrite", "accumulate(dw[l], reduce_scatter<0>(std::move(addend)));",
          "dw[l] = reduce_scatter<0>(std::move(addend));",
          "Somebody adds micro-batches, and the gradient of the last one overwrites the others.", "noisier",
          train="06_fully_sharded --variant zero3" + PIECES),
    three("z3-mask-forgotten", MASK, "", "Somebody writes the loop again, and forgets the mask.",
          "a little worse"),
    three("z3-gathered-although-unused", "if (l > 0 || wants_input_grad()) {\n", "{\n",
          "Somebody gathers layer 0 also where nobody wants dL/dx.", "nothing to see: more bytes"),
    three("z3-relu-forgotten", "if (relu_before(l)) a = relu(std::move(a));  // (b, F)", "",
          "Somebody rewrites the forward pass, and the network becomes linear.", "a little worse"),

    keep("zk-old-weights-kept",
         "void after_step() override { whole_ = std::vector<Replicated>(shards_.size()); }",
         "void after_step() override {}",
         "Somebody counts on backward passes that free all weights before a step.", "nothing to see",
         tests="fully_sharded_test"),
    keep("zk-never-freed", "    if (tape_.empty()) whole_[l] = Replicated();\n", "    (void)l;\n",
         "Somebody forgets to free what was gathered.", "nothing to see: more memory"),
    keep("zk-freed-too-early", "if (tape_.empty()) whole_[l] = Replicated();", "whole_[l] = Replicated();",
         "Somebody frees weights that another backward pass still needs, and gathers them again.",
         "nothing to see: more bytes", tests="fully_sharded_test"),
    keep("zk-kept-in-inference",
         "      if (InferenceMode::is_on()) discard(l);  // no backward pass will come\n", "",
         "Somebody forgets that in inference no backward pass frees the weights.",
         "nothing to see: more memory", tests="fully_sharded_test"),
    keep("zk-gathered-each-time", "if (whole_[l].is_empty()) whole_[l]", "whole_[l]",
         "Somebody forgets to look whether the weights are there.", "nothing to see: more bytes"),

    prefetch("zp-name-of-this-layer", "gradients.put(layer_name(l + 1), leaving.get());",
             "gradients.put(layer_name(l), leaving.get());",
             "Somebody names the gradient that arrives by the layer that is being computed.",
             "stops with an error"),
    prefetch("zp-weights-of-layer-before",
             "if (l > 0 && needs_weights(l - 1)) next = all_gather_async(shards_[l - 1]);",
             "if (l > 0 && needs_weights(l - 1)) next = all_gather_async(shards_[(l - 1) % 2]);",
             "Somebody tests with two layers, and takes weights by their place in the block.",
             "a little worse"),
    prefetch("zp-next-weights-too-early",
             "if (needs_weights(l)) da = matmul(d, transposed(w));  // like a    S0·R = S0\n"
             "      w = next.get();                                       // frees this layer's\n",
             "const bool needs = needs_weights(l);\n      w = next.get();\n"
             "      if (needs) da = matmul(d, transposed(w));\n",
             "Somebody takes the weights as soon as they are there, one layer too early.",
             "stops with an error"),
    prefetch("zp-last-gradient-not-waited-for", "    gradients.put(layer_name(0), leaving.get());\n",
             "    gradients.put(layer_name(0), Sharded<0>());\n",
             "Somebody ends the loop and forgets what is still in flight.", "stops with an error"),
    prefetch("zp-unused-gather", "return l > 0 || wants_input_grad();",
             "return l + 1 > 0 || wants_input_grad();",
             "Somebody gathers layer 0 also where nobody wants dL/dx.", "nothing to see: more bytes"),

    costs("cost-of-whole-state", "costs.trained_bytes = z.mine() * bytes_per_element;",
          "costs.trained_bytes = z.P * bytes_per_element;",
          "Somebody forgets that the optimizer's state is divided.", "nothing to see: the form is wrong"),
]
