"""Chapter 03: each weight matrix is divided."""
from mistake import of

HERE = "chapters/03_tensor_parallel/"
cut = of("03 column-row", HERE + "tensor_parallel.hpp", "03_tensor_parallel --layers 4")
sequence = of("03 sequence", HERE + "sequence.hpp", "03_tensor_parallel --layers 4 --variant sequence")
other = of("03 row-column", HERE + "row_column.hpp", "03_tensor_parallel --layers 4 --variant row-column")
costs = of("03 closed forms", HERE + "costs.hpp", "03_tensor_parallel --layers 4")

ALL = [
    cut("tp-mask-forgotten", "Sharded<1> dz = relu_backward(std::move(dh), h);",
        "Sharded<1> dz = std::move(dh);",
        "Somebody takes the derivative of a product only.", "a little worse"),
    cut("tp-earlier-blocks-skipped", "if (i == 0 && !wants_input_grad()) continue;",
        "if (!wants_input_grad()) continue;",
        "Somebody saves dL/dx where nobody wants it, and earlier blocks need it.", "learns more slowly"),
    cut("tp-relu-forgotten", "Sharded<1> h = relu(matmul(x, block.w0));",
        "Sharded<1> h = matmul(x, block.w0);",
        "Somebody rewrites a line, and the network becomes linear.", "a little worse"),
    cut("tp-relu-after-each-block", "x = all_reduce(std::move(out));  // (B, D)     P → R: the one",
        "x = relu(all_reduce(std::move(out)));  // (B, D)     P → R: the one",
        "Somebody knows networks in which every layer has a ReLU.", "a little worse"),
    cut("tp-weights-of-the-block-before", "const Block& block = blocks_[static_cast<std::size_t>(i)];",
        "const Block& block = blocks_[static_cast<std::size_t>(i > 0 ? i - 1 : 0)];",
        "Somebody counts blocks from 1 in the backward pass.", "learns more slowly"),
    cut("tp-first-layer-everywhere", "{load_sharded<1>(checkpoint, layer_name(l))",
        "{load_sharded<1>(checkpoint, layer_name(0))",
        "Somebody tests with one block, and every block starts with layer 0's weights.", "nothing to see"),
    cut("tp-dx-mean", "d = all_reduce(std::move(dx));  // (B, D)",
        "d = all_reduce(std::move(dx));\n      d.parameter() = scale(std::move(d.parameter()), 1.0F / "
        "static_cast<float>(num_devices()));  // (B, D)",
        "Somebody averages dL/dx over the devices.", "nothing to see under Adam"),
    cut("tp-gradients-swapped", "gradients.put(layer_name(2 * i + 1), matmul(transposed(h), d));",
        "gradients.put(layer_name(2 * i), matmul(transposed(h), d));",
        "Somebody gives a block's second gradient its first one's name.", "one layer in two stays as it is"),
    cut("tp-oldest-activations", "const auto& [x, h] = kept.back();", "const auto& [x, h] = kept.front();",
        "Somebody takes the first block's activations for every block.", "learns more slowly"),

    sequence("seq-mask-forgotten", "dz = relu_backward(std::move(dh), kept.h);", "dz = std::move(dh);",
             "Somebody takes the derivative of a product only.", "a little worse"),
    sequence("seq-earlier-blocks-skipped", "if (i == 0 && !wants_input_grad()) return {};",
             "if (!wants_input_grad()) return {};",
             "Somebody saves dL/dx where nobody wants it, and earlier blocks need it.",
             "stops with an error"),
    sequence("seq-rows-of-nobody", "return reduce_scatter<0>(matmul(dz, transposed(block.w0)));",
             "return my_rows(matmul(dz, transposed(block.w0)).local(), kept.x);",
             "Somebody believes that each device already has its rows of dL/dx.", "does not compile"),
    sequence("seq-gradient-of-my-rows", "matmul(transposed(all_gather(kept.x)), dz)",
             "matmul(transposed(kept.x), dz)",
             "Somebody forgets that only the device's own rows were kept.", "does not compile"),

    other("rc-mask-forgotten", "Replicated dz = relu_backward(std::move(dh), h);",
          "Replicated dz = std::move(dh);",
          "Somebody takes the derivative of a product only.", "a little worse"),
    other("rc-relu-twice", "Replicated h = relu(all_reduce(std::move(z)));",
          "Replicated h = relu(relu(all_reduce(std::move(z))));",
          "Somebody moves the ReLU behind the reduction, and leaves the old one.", "nothing to see",
          survives="the ReLU of a ReLU is the same"),
    other("rc-dx-of-the-last-block", "if (i > 0 || wants_input_grad()) d = matmul(dz, transposed(block.w0));",
          "if (i + 1 < num_blocks() || wants_input_grad()) d = matmul(dz, transposed(block.w0));",
          "Somebody turns the loop around, and not its condition.", "learns more slowly"),
    other("rc-whole-dx", "gradients.put(Gradients::input_grad, std::move(d));",
          "gradients.put(Gradients::input_grad, all_gather(std::move(d)));",
          "Somebody gathers dL/dx, which may stay divided.", "nothing to see: more bytes"),

    costs("cost-of-a-reduction-too-many", "const Index reductions = 2 * z.blocks - (s.input_grad ? 0 : 1);",
          "const Index reductions = 2 * z.blocks;",
          "Somebody forgets that the first block reduces no dL/dx.", "nothing to see: the form is wrong"),
]
