"""chapters/engine: loss, optimizer, gradient norm, layouts, and what every chapter is written in."""
from mistake import of

HERE = "chapters/engine/"
DATA = "02_data_parallel"
PIECES = DATA + " --micro-batches 3"
ZERO1 = "06_fully_sharded --variant zero1"
EXPERT = "05_expert --variant top-k"
loss = of("loss", HERE + "loss.cpp", PIECES, "engine_test")
optimizer = of("optimizer", HERE + "optimizer.cpp", ZERO1, "engine_test, 06_fully_sharded.equivalence")
norm = of("gradient norm", HERE + "gradient_norm.cpp", DATA + " --clip-norm 0.1",
          "02_data_parallel.equivalence")
pieces = of("accumulation", HERE + "gradient_accumulation.cpp", PIECES, "02_data_parallel.equivalence")
engine = of("engine", HERE + "sharded_engine.cpp", DATA, "02_data_parallel.equivalence, layouts_test")
layouts = of("layouts", HERE + "layouts.cpp", DATA + " --variant bucketed", "layouts_test")
steps = of("training step", HERE + "program/training_step.cpp", DATA, "train_test")

ALL = [
    loss("loss-without-its-factor", "static_cast<float>(2.0 / static_cast<double>(elements_))",
         "static_cast<float>(1.0 / static_cast<double>(elements_))",
         "Somebody forgets the 2 of a square's derivative.", "nothing to see under Adam"),
    loss("loss-of-my-rows", "static_cast<float>(2.0 / static_cast<double>(elements_))",
         "static_cast<float>(2.0 / static_cast<double>(output.size()))",
         "Somebody divides by the rows at hand, and gradients are N times too large.",
         "nothing to see under Adam"),
    loss("loss-of-the-first-targets", "target_({first_row, first_row + output.extent(0)})",
         "target_({0, output.extent(0)})",
         "Somebody tests on one device, whose first row is 0.", "stays high"),
    loss("loss-of-one-piece", "squares_.add(first_row, sum_of_squares(gradient)",
         "squares_.add(0 * first_row, sum_of_squares(gradient)",
         "Somebody keeps one sum, and each piece overwrites it.", "too low"),
    loss("loss-counted-twice", "for (const auto& [row, part] : all) sum += part;",
         "for (const auto& [row, part] : all) sum += 2 * part;",
         "Somebody adds the forward's and the backward's sum.", "twice as high"),

    optimizer("nothing-after-the-step", "  engine.after_step();\n", "",
              "Somebody writes an optimizer and forgets that the engine has to send new weights.",
              "the models drift apart"),
    optimizer("gathered-before-the-step",
              "  ++steps_;\n", "  ++steps_;\n  engine.after_step();\n",
              "Somebody gathers before the step, and once more after it.", "nothing to see: more bytes"),
    optimizer("moments-of-all-in-one", "state_.try_emplace(trainable.name);", "state_.try_emplace(\"\");",
              "Somebody keeps one pair of moments for all parameters.", "stops with an error"),
    optimizer("moments-forgotten", "for (Index i = 0; is_new && i < state_per_element(); ++i) {",
              "found->second.clear();\n  for (Index i = 0; (is_new || true) && i < state_per_element(); ++i) {",
              "Somebody makes new moments in each step.", "learns like the signs of gradients"),
    optimizer("moments-charged-to-activations", "    found->second.back().charge_to(Purpose::optimizer);\n", "",
              "Somebody forgets to charge the moments to the optimizer.",
              "nothing to see"),
    optimizer("rate-not-passed-on", "  settings.rate = rate;\n", "  (void)rate;\n",
              "Somebody adds a setting and leaves its initial value.", "learns more slowly"),

    norm("norm-counts-replicas", "(is_whole ? of_all : of_mine) += sum_of_squares(gradient.local());",
         "of_mine += sum_of_squares(gradient.local());\n    (void)is_whole;",
         "Somebody adds up the squares of all devices, and a gradient that each has counts N times.",
         "nothing to see"),
    norm("norm-with-dx", "    if (name == Gradients::input_grad) continue;\n", "",
         "Somebody takes dL/dx for one of the parameters' gradients.", "nothing to see"),
    norm("norm-of-my-slices", "of_all += std::bit_cast<double>(bits);",
         "of_all = std::max(of_all, std::bit_cast<double>(bits));",
         "Somebody takes the largest norm of a device for that of all.", "nothing to see",
         train="06_fully_sharded --variant zero3 --clip-norm 0.1", tests="06_fully_sharded.equivalence"),
    norm("clipping-without-a-condition", "  if (factor >= 1) return norm;\n", "",
         "Somebody forgets that small gradients are left alone.", "nothing to see"),
    norm("clipping-of-dx", "if (name != Gradients::input_grad) gradient.scale_by", "gradient.scale_by",
         "Somebody scales dL/dx, too.", "nothing to see"),
    norm("norm-not-a-root", "return std::sqrt(of_all);", "return of_all;",
         "Somebody compares the square of a norm with a norm.", "nothing to see"),

    pieces("pieces-of-the-first-row", "x.offset() + rows.begin}", "x.offset()}",
           "Somebody tests with one piece: each is held against the targets of the first.", "stays high"),
    pieces("pieces-without-dx", "if (wants_input_grad()) assign(Rows(dx.parameter()",
           "if (m == 0 && wants_input_grad()) assign(Rows(dx.parameter()",
           "Somebody keeps dL/dx of the first piece alone.", "nothing to see"),
    pieces("one-piece-too-few", "for (int m = 0; m < pieces; ++m) {",
           "for (int m = 0; m + 1 < pieces; ++m) {",
           "Somebody leaves out the last piece of the batch.", "nothing to see"),

    engine("rows-from-the-front", "if (d == device_id()) offset = global[0];",
           "if (d == 0) offset = global[0];",
           "Somebody tests on one device, whose offset is 0.", "stays high"),
    engine("input-of-equal-slices", "return part(batch, num_devices(), device_id());",
           "return {device_id() * (batch / num_devices()), (device_id() + 1) * (batch / num_devices())};",
           "Somebody divides the batch by the number of devices, and the rest of the rows is lost.",
           "nothing to see"),
    engine("whole-along-rows", "on.all_gather_async(std::move(local), placement.axis).get();",
           "on.all_gather_async(std::move(local), 0).get();",
           "Somebody joins slices of columns like slices of rows.", "nothing to see",
           train="03_tensor_parallel", tests="03_tensor_parallel.equivalence"),
    engine("counts-in-float-lost", "return {all.begin(), all.end()};",
           "return {all.begin(), all.begin() + count};",
           "Somebody returns the first device's numbers alone.", "stops with an error", train=EXPERT,
           tests="05_expert.equivalence exact*"),
    engine("inference-without-its-end", "if (batch.size() == 0) return;",
           "if (device_id() == 0 && !rows) return;",
           "Somebody ends the loop on the device that reads, and the others wait.", "hangs in inference"),

    layouts("pack-over-the-first", "    at += size;\n  }\n  addends.clear();",
            "  }\n  at = 0;\n  addends.clear();",
            "Somebody forgets to go on behind the addend that was copied.", "diverges"),
    layouts("unpack-the-first", "slice(row.local(), 0, at, at + num_elements(shape)).reshaped(shape)",
            "slice(row.local(), 0, 0, num_elements(shape)).reshaped(shape)",
            "Somebody tests with one gradient in a bucket.", "diverges"),
    layouts("slice-of-the-front",
            "slice(*uncut, d, begin, begin + size)", "slice(*uncut, d, 0 * begin, size)",
            "Somebody tests on one device, whose offset is 0.", "nothing to see"),

    steps("clipped-after-the-step",
          "  if (run.arguments.clip_norm) clip_gradients(run.group, gradients, *run.arguments.clip_norm);\n"
          "  optimizer.step(engine, gradients);\n",
          "  optimizer.step(engine, gradients);\n"
          "  if (run.arguments.clip_norm) clip_gradients(run.group, gradients, *run.arguments.clip_norm);\n",
          "Somebody clips gradients when they have been used.", "nothing to see",
          train=DATA + " --clip-norm 0.1", tests="train_test"),
    steps("first-row-forgotten", "return batch.loss_gradient(out, first_row);",
          "return batch.loss_gradient(out, 0 * first_row);",
          "Somebody tests on one device, whose first row is 0.", "stays high"),
]
