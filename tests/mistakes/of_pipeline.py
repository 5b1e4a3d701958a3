"""Chapter 04: the layers are divided."""
from mistake import of

HERE = "chapters/04_pipeline/"
TRAIN = "04_pipeline --layers 8 --micro-batches 5"
worker = of("04 worker", HERE + "worker.hpp", TRAIN)
bubble = of("04 zero-bubble", HERE + "worker.hpp", TRAIN + " --variant zero-bubble")
cuts = of("04 stages", "chapters/engine/schedules/cuts.cpp", TRAIN)
stages = of("04 stages", HERE + "stages.cpp", TRAIN)
schedule = of("04 schedules", "chapters/engine/schedules/schedules.hpp", TRAIN, "schedule_test")
conveyor = of("04 inference", HERE + "conveyor.hpp", TRAIN)
engine = of("04 engine", HERE + "pipeline.hpp", TRAIN)
costs = of("04 closed forms", HERE + "costs.cpp", TRAIN)

AHEAD = "const Index ahead = std::min<Index>(micro_batches, devices - d - 1);\n"
FORWARDS = "    for (Index m = 0; m < ahead; ++m) mine.push_back({Action::Kind::forward, m, d});\n"
TURNS = ("    for (Index m = 0; m < micro_batches; ++m) {\n"
         "      if (m + ahead < micro_batches) mine.push_back({Action::Kind::forward, m + ahead, d});\n")

ALL = [
    worker("pp-equal-micro-batches",
           "return part(rows_, static_cast<int>(micro_batches_), static_cast<int>(m)); }",
           "return {m * (rows_ / micro_batches_), (m + 1) * (rows_ / micro_batches_)}; }",
           "Somebody divides the batch by the number of micro-batches, and the rest of the rows is lost.",
           "nothing to see"),
    worker("pp-targets-of-the-first", "loss_gradient_(out.local(), rows_of(m).begin)",
           "loss_gradient_(out.local(), 0)",
           "Somebody tests with one micro-batch: each is held against the targets of the first.",
           "stays high"),
    worker("pp-inputs-in-reverse", "slice(input_, 0, rows_of(m).begin, rows_of(m).end)",
           "slice(input_, 0, rows_of(micro_batches_ - 1 - m).begin, rows_of(micro_batches_ - 1 - m).end)",
           "Somebody reads GPipe's figure, where the backward passes go from the last micro-batch to the "
           "first.",
           "stays high"),
    worker("pp-dx-in-the-first-rows", "assign(Rows(dx_, rows_of(m).begin, rows_of(m).end), d.local());",
           "assign(Rows(dx_, 0, rows_of(m).size()), d.local());",
           "Somebody tests with one micro-batch, whose dL/dx is the whole.", "nothing to see"),
    worker("pp-no-dx-between-stages", "if (l == 0 && !wants_input_grad_) return {};",
           "if (!wants_input_grad_) return {};",
           "Somebody saves dL/dx where nobody wants it, and earlier stages need it.", "stops with an error"),
    worker("pp-everything-to-the-next", "group_.post_send(stages_.device_of(m.stage), take(m).local())",
           "group_.post_send((group_.device_id() + 1) % group_.num_devices(), take(m).local())",
           "Somebody sends gradients to the device behind, too. Of two devices that is the right one.",
           "hangs"),
    worker("pp-weights-of-the-first-layer", "Owned da = matmul(d, transposed(stages_.weight(l)));",
           "Owned da = matmul(d, transposed(stages_.weight(l % 2 + l / 4 * 4)));",
           "Somebody counts a stage's layers in a wrong stride.", "learns more slowly"),
    worker("pp-loss-of-every-stage", "if (s == stages_.count() - 1 && loss_gradient_)",
           "if (loss_gradient_)", "Somebody forgets that only the last stage has an output to judge.",
           "stops with an error"),
    worker("pp-inputs-from-the-front", "const Owned& a = inputs.back();", "const Owned& a = inputs.front();",
           "Somebody takes a stage's input for every layer of it.", "stops with an error"),
    bubble("zb-halves-overwrite",
           "for (auto& [l, a, d] : halves) {\n      accumulate(weight_grad(l), matmul(transposed(a), d));",
           "for (auto& [l, a, d] : halves) {\n      weight_grad(l) = matmul(transposed(a), d);",
           "Somebody splits the backward pass, and the gradient of the last micro-batch overwrites the "
           "others.",
           "noisier"),
    bubble("zb-halves-kept", "      a = Owned();\n      d = Owned();\n", "",
           "Somebody forgets to free what the second half has used.", "nothing to see: more memory"),

    stages("pp-rest-of-the-layers-lost",
           "for (int s = 0; s < stages; ++s) cut.push_back(part(model.num_layers, stages, s));",
           "const Index each = model.num_layers / stages;\n"
           "    for (int s = 0; s < stages; ++s) cut.push_back({s * each, (s + 1) * each});",
           "Somebody divides the layers by the number of stages, and the rest has no stage.",
           "a smaller network: a little worse"),
    stages("pp-flops-of-layer-0", "const Index products = l > 0 ? 3 : 2;", "const Index products = 3;",
           "Somebody forgets that layer 0 needs no dL/dx, when stages are cut by flops.",
           "nothing to see: more idle time", tests="schedule_test"),
    cuts("pp-cut-below-the-limit", "if (sum > most) break;", "if (sum >= most) break;",
         "Somebody takes the limit of a stage's costs for a limit below it.",
         "nothing to see: more idle time",
         tests="schedule_test"),

    schedule("pp-warm-up-too-long",
             AHEAD + FORWARDS + TURNS + "      mine.push_back({Action::Kind::backward, m",
             AHEAD.replace("devices - d - 1", "devices - d") + FORWARDS + TURNS +
             "      mine.push_back({Action::Kind::backward, m",
             "Somebody counts the device itself among those behind it.", "nothing to see: more memory"),
    schedule("pp-no-warm-up", AHEAD + FORWARDS + TURNS + "      mine.push_back({Action::Kind::backward, m",
             "const Index ahead = 0 * d;\n" + FORWARDS + TURNS +
             "      mine.push_back({Action::Kind::backward, m",
             "Somebody takes 1F1B by its name: one forward, one backward, on every device.",
             "nothing to see: idle devices"),
    schedule("pp-gpipe-first-in-first-out", "for (Index m = micro_batches; m-- > 0;) mine.push_back",
             "for (Index m = 0; m < micro_batches; ++m) mine.push_back",
             "Somebody takes the backward passes in the order of the forward passes.", "nothing to see"),
    schedule("zb-last-weights-forgotten", "for (Index m = std::max<Index>(micro_batches - d, 0);",
             "for (Index m = std::max<Index>(micro_batches - d + 1, 0);",
             "Somebody is off by one where the second halves are made up for.", "learns more slowly",
             train=TRAIN + " --variant zero-bubble"),
    schedule("zb-weights-at-once", "if (m >= 0) mine.push_back({Action::Kind::backward_weights, m, d});",
             "mine.push_back({Action::Kind::backward_weights, m + d, d});",
             "Somebody computes the second half at once, and then again.", "stops with an error",
             train=TRAIN + " --variant zero-bubble"),
    schedule("pp-groups-overlap", "group * devices + i % devices,", "group + i % devices,",
             "Somebody forgets that a group has as many micro-batches as there are devices.",
             "stops with an error",
             train=TRAIN + " --variant interleaved"),

    conveyor("pp-answers-last-in-first-out",
             "Tensor t = std::move(here_.front());\n    here_.pop_front();",
             "Tensor t = std::move(here_.back());\n    here_.pop_back();",
             "Somebody takes a stack for a sequence of requests. It needs one device, with several stages.",
             "nothing to see: answers to other requests", tests="04_pipeline.equivalence@1"),
    engine("pp-answers-of-the-wrong-device", "output.write(conveyor.take_from(last_device())), --due;",
           "output.write(conveyor.take_from((device_id() + 1) % num_devices())), --due;",
           "Somebody takes the answers from the device behind. Of two devices that is the last one.",
           "nothing to see: inference hangs"),
    engine("pp-stages-in-blocks", "load_owned(checkpoint, layer_name(l), s % num_devices())",
           "load_owned(checkpoint, layer_name(l), s / plan_.virtual_stages)",
           "Somebody gives a device neighbouring stages, and the schedule counts on every N-th.",
           "stops with an error", train=TRAIN + " --variant interleaved"),

    costs("cost-of-activations-alone", "if (st > 0) sent += {full, s_.batch * width(of(st).begin)",
          "if (st > 1) sent += {full, s_.batch * width(of(st).begin)",
          "Somebody forgets that gradients go back to stage 0.", "nothing to see: the form is wrong"),
]
