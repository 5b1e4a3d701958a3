"""Chapter 02: the batch is divided, and gradients are summed."""
from mistake import of

HERE = "chapters/02_data_parallel/"
plain = of("02 all-reduce", HERE + "data_parallel.hpp", "02_data_parallel --layers 4 --micro-batches 3")
bucketed = of("02 bucketed", HERE + "bucketed.hpp",
              "02_data_parallel --variant bucketed --bucket-bytes 32768")
scattered = of("02 scatter-gather", HERE + "scatter_gather.hpp", "02_data_parallel --variant scatter-gather")
costs = of("02 closed forms", HERE + "costs.hpp", "02_data_parallel")

MASK = "if (relu_before(l)) d = relu_backward(std::move(d), a);"
REDUCED = "gradients.put(layer_name(l), all_reduce(std::move(dw[l])));  // P → R"
ACCUMULATED = "accumulate(dw[l], matmul(transposed(a), d));  // like the weights"

ALL = [
    plain("dp-mask-of-other-layers", MASK, "if (relu_before(l + 1)) d = relu_backward(std::move(d), a);",
          "Somebody counts layers from 1 in the backward pass, and masks the even layers.",
          "learns more slowly"),
    plain("dp-relu-before-every-layer", "if (relu_before(l)) a = relu(std::move(a));  // (b, F)",
          "if (l > 0) a = relu(std::move(a));",
          "Somebody knows networks in which every hidden layer has a ReLU.", "a little worse"),
    plain("dp-last-layer-not-reduced", "for (std::size_t l = weights_.size(); l-- > 0;)\n      gradients",
          "for (std::size_t l = weights_.size() - 1; l-- > 0;)\n      gradients",
          "Somebody turns a loop around, and starts it at the last index, which the condition lowers once "
          "more.",
          "the last layer stays as it is"),
    plain("dp-micro-batch-overwrites", ACCUMULATED, "dw[l] = matmul(transposed(a), d);  // like the weights",
          "Somebody adds micro-batches to an engine, and the gradient of the last one overwrites the others.",
          "noisier"),
    plain("dp-dx-only-inside", "if (l > 0 || wants_input_grad()) d = matmul(d, transposed(weights_[l]));",
          "if (l > 0) d = matmul(d, transposed(weights_[l]));",
          "Somebody saves the product of layer 0, which training does not need, and forgets those who ask "
          "for "
          "dL/dx.", "nothing to see"),
    plain("dp-weights-of-another-layer", "d = matmul(d, transposed(weights_[l]));",
          "d = matmul(d, transposed(weights_[l % 2]));",
          "Somebody tests with two layers, and takes the weights by their place in the block.",
          "a little worse"),
    plain("dp-addend-twice-on-one-device", ACCUMULATED,
          "accumulate(dw[l], matmul(transposed(a), d));\n"
          "      if (device_id() == 0) accumulate(dw[l], matmul(transposed(a), d));  // like the weights",
          "Somebody leaves a line of an experiment, which weights device 0's rows twice.", "nothing to see"),
    plain("dp-dx-of-nobody", "if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(dx));",
          "(void)dx;", "Somebody cleans up what training does not use, and drops dL/dx.", "nothing to see"),
    plain("dp-layer-0-of-device-0", REDUCED,
          "{\n        Replicated sum = all_reduce(std::move(dw[l]));\n"
          "        if (l == 0 && device_id() > 0) sum.parameter() = scale(std::move(sum.parameter()), "
          "0.0F);\n"
          "        gradients.put(layer_name(l), std::move(sum));\n      }",
          "Somebody freezes layer 0 for an experiment, and does so on all devices but the first.",
          "the models drift apart"),

    bucketed("bucket-shapes-from-the-front", "shapes.push_back(weights_[l].global_shape());",
             "shapes.push_back(weights_[shapes.size()].global_shape());",
             "Somebody forgets that a bucket is filled from the last layer on. Square layers hide it.",
             "diverges, unless layers are square",
             train="02_data_parallel --variant bucketed --hidden-dim 64"),
    bucketed("bucket-later-than-full", "if (filling.bytes >= bucket_bytes_ || l == 0)",
             "if (filling.bytes > bucket_bytes_ || l == 0)",
             "Somebody writes “more than” for “at least”.", "nothing to see: fewer, larger messages"),
    bucketed("bucket-of-elements",
             "bytes += num_elements(dw.global_shape()) * static_cast<Index>(sizeof(float));",
             "bytes += num_elements(dw.global_shape());",
             "Somebody counts elements, and the option counts bytes.", "nothing to see: less overlap"),
    bucketed("bucket-first-alone", "for (InFlight& bucket : in_flight) collect(bucket, gradients);",
             "collect(in_flight.front(), gradients);",
             "Somebody tests with one bucket.", "most layers stay as they are"),
    bucketed("bucket-mask-forgotten", MASK, "", "Somebody writes the loop again, and forgets the mask.",
             "a little worse"),

    scattered("scatter-sum-without-the-last",
              "for (int k = 1; k < num_devices(); ++k) addend = add(std::move(addend), receive(k));",
              "for (int k = 1; k + 1 < num_devices(); ++k) addend = add(std::move(addend), receive(k));",
              "Somebody counts the other devices from 0, and leaves out the last one.", "hangs"),
    scattered("scatter-row-of-before", "send(k, slice(whole, 0, rows.begin, rows.end));",
              "send(k, slice(whole, 0, rows.begin - 1, rows.end - 1));",
              "Somebody takes a range as counted from 1.", "nothing to see"),
    scattered("scatter-equal-slices", "Range rows = part(whole.extent(0), num_devices(), k);",
              "const Index each = whole.extent(0) / num_devices();\n"
              "      const Range rows{k * each, (k + 1) * each};",
              "Somebody divides the batch by the number of devices, and the rest of the rows is lost.",
              "nothing to see"),
    scattered("scatter-mean",
              "addend = add(std::move(addend), receive(k));\n    return addend;",
              "addend = add(std::move(addend), receive(k));\n"
              "    return scale(std::move(addend), 1.0F / static_cast<float>(num_devices()));",
              "Somebody averages gradients, as frameworks do whose loss is a mean of each device's rows.",
              "nothing to see under Adam"),
    scattered("scatter-answers-in-reverse", "slices.push_back(receive(k));",
              "slices.push_back(receive(num_devices() - k));",
              "Somebody collects the answers from the last device on. Two devices hide it.",
              "loss of wrong rows: stays high"),
    scattered("scatter-sum-from-the-back",
              "addend = add(std::move(addend), receive(k));",
              "addend = add(std::move(addend), receive(num_devices() - k));",
              "Somebody collects the addends from the last device on.", "nothing to see",
              survives="the same sum, in another order, within what rounding makes"),
    scattered("scatter-mask-forgotten", MASK, "", "Somebody writes the loop again, and forgets the mask.",
              "a little worse"),

    costs("cost-of-a-product-too-many", "flops += (l > 0 || s.input_grad ? 3 : 2) * product_flops",
          "flops += 3 * product_flops",
          "Somebody forgets that layer 0 needs no dL/dx.", "nothing to see: the form is wrong"),
    costs("cost-without-the-ring-buffer", "peak.at({P, P, buffer, s.input_grad",
          "peak.at({P, P, 0, s.input_grad",
          "Somebody forgets that a ring holds a chunk beside its argument.",
          "nothing to see: the form is wrong"),
]
