"""Mistakes in chapters 02 to 06."""
from mistake import of

C02 = "chapters/02_data_parallel/"
C04 = "chapters/04_pipeline/"
C05 = "chapters/05_expert/"
C06 = "chapters/06_fully_sharded/"
PIPELINE = "04_pipeline --layers 8 --micro-batches 5"
ZERO = "06_fully_sharded --layers 4 --variant"

PARTS = {}

PARTS["data_parallel"] = [
    *of("02 accumulated", C02 + "accumulated.hpp",
        "02_data_parallel --variant accumulated --layers 4 --micro-batches 3", "",
        ("dp-micro-batch-overwrites", "accumulate(dw[l], matmul(transposed(a), d))",
         "dw[l] = matmul(transposed(a), d)",
         "Somebody adds micro-batches to an engine, and the gradient of the last one overwrites the others.",
         "noisier"),
        ("dp-dx-of-nobody", "if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(dx))",
         "(void)dx", "Somebody cleans up what training does not use, and drops dL/dx.", "nothing to see")),
    *of("02 bucketed", C02 + "bucketed.hpp", "02_data_parallel --variant bucketed --hidden-dim 64", "",
        ("bucket-shapes-from-the-front", "weights_[l].global_shape", "weights_[shapes.size()].global_shape",
         "Somebody forgets that a bucket is filled from the last layer on. Square layers hide it.",
         "diverges, unless layers are square")),
    *of("02 bucketed", C02 + "bucketed.hpp", "02_data_parallel --variant bucketed --bucket-bytes 32768", "",
        ("bucket-later-than-full", "bytes >= bucket_bytes_", "bytes > bucket_bytes_",
         "Somebody writes “more than” for “at least”.", "nothing to see: fewer, larger messages")),
    *of("02 scatter-gather", C02 + "scatter_gather.hpp", "02_data_parallel --variant scatter-gather", "",
        ("scatter-equal-slices", "Range rows = part(whole.extent(0), num_devices(), k)",
         "const Index each = whole.extent(0) / num_devices(); const Range rows{k * each, (k + 1) * each}",
         "Somebody divides the batch by the number of devices, and the rest of the rows is lost.",
         "nothing to see"),
        ("scatter-answers-in-reverse", "push_back(receive(k))", "push_back(receive(num_devices() - k))",
         "Somebody collects the answers from the last device on. Two devices hide it.",
         "loss of wrong rows: stays high"),
        ("scatter-sum-from-the-back", "move(addend), receive(k)", "move(addend), receive(num_devices() - k)",
         "Somebody collects the addends from the last device on.", "nothing to see",
         "the same sum, in another order, within what rounding makes")),
    *of("02 closed forms", C02 + "costs.hpp", "02_data_parallel --variant accumulated", "",
        ("cost-without-the-ring-buffer", "peak.at({P, P, buffer", "peak.at({P, P, 0",
         "Somebody forgets that a ring holds a chunk beside its argument.",
         "nothing to see: the form is wrong")),
]

PARTS["tensor_parallel"] = [
    *of("03 row-column", "chapters/03_tensor_parallel/row_column.hpp",
        "03_tensor_parallel --layers 4 --variant row-column", "",
        ("rc-whole-dx", "input_grad, std::move(d)", "input_grad, all_gather(std::move(d))",
         "Somebody gathers dL/dx, which may stay divided.", "nothing to see: more bytes")),
]

PARTS["pipeline"] = [
    *of("04 worker", C04 + "worker.hpp", PIPELINE, "",
        ("pp-everything-to-the-next", "stages_.device_of(m.stage)",
         "(group_.device_id() + 1) % group_.num_devices()",
         "Somebody sends gradients to the device behind, too. Of two devices that is the right one.", "hangs")),
    *of("04 zero-bubble", C04 + "worker.hpp", PIPELINE + " --variant zero-bubble", "",
        ("zb-halves-kept", "a = Owned();\n      d = Owned();", "",
         "Somebody forgets to free what the second half has used.", "nothing to see: more memory")),
    *of("04 stages", C04 + "stages.cpp", PIPELINE, "",
        ("pp-rest-of-the-layers-lost",
         "for (int s = 0; s < stages; ++s) cut.push_back(part(model.num_layers, stages, s))",
         "const Index each = model.num_layers / stages; for (int s = 0; s < stages; ++s) cut.push_back({s * "
         "each, (s + 1) * each})",
         "Somebody divides the layers by the number of stages, and the rest has no stage.",
         "a smaller network: a little worse")),
    *of("04 stages", C04 + "stages.cpp", PIPELINE, "schedule_test",
        ("pp-flops-of-layer-0", "products = l > 0 ? 3 : 2", "products = 3",
         "Somebody forgets that layer 0 needs no dL/dx, when stages are cut by flops.",
         "nothing to see: more idle time")),
    *of("04 schedules", "chapters/engine/schedules/schedules.hpp",
        PIPELINE + " --variant interleaved", "schedule_test",
        ("pp-warm-up-too-long", "2 * (devices - d - 1) + (virtual", "2 * (devices - d) + (virtual",
         "Somebody counts the device itself among those behind it.", "nothing to see: more memory")),
    *of("04 schedules", "chapters/engine/schedules/schedules.hpp", PIPELINE, "schedule_test",
        ("pp-gpipe-first-in-first-out", "m = micro_batches; m-- > 0;", "m = 0; m < micro_batches; ++m",
         "Somebody takes the backward passes in the order of the forward passes.", "nothing to see")),
    *of("04 schedules", "chapters/engine/schedules/schedules.hpp",
        PIPELINE + " --variant zero-bubble", "schedule_test",
        ("zb-last-weights-forgotten", "std::max<Index>(micro_batches - d, 0)",
         "std::max<Index>(micro_batches - d + 1, 0)",
         "Somebody is off by one where the second halves are made up for.", "learns more slowly")),
    *of("04 inference", "chapters/engine/schedules/conveyor.hpp", PIPELINE, "04_pipeline.equivalence@1",
        ("pp-answers-last-in-first-out", "move(here_.front());\n    here_.pop_front",
         "move(here_.back()); here_.pop_back",
         "Somebody takes a stack for a sequence of requests. It needs one device, with several stages.",
         "nothing to see: answers to other requests")),
    *of("04 engine", C04 + "pipeline.hpp", PIPELINE, "",
        ("pp-answers-of-the-wrong-device", "take_from(last_device())",
         "take_from((device_id() + 1) % num_devices())",
         "Somebody takes the answers from the device behind. Of two devices that is the last one.",
         "nothing to see: inference hangs")),
]

PARTS["expert_parallel"] = [
    *of("05 expert parallel", C05 + "expert.hpp", "05_expert --variant top-k", "",
        ("ep-router-mean", "gradients.put(router_name(), all_reduce(matmul(transposed(x), dlogits)));",
         "{ Replicated sum = all_reduce(matmul(transposed(x), dlogits)); sum.parameter() = "
         "scale(std::move(sum.parameter()), 1.0F / static_cast<float>(num_devices())); "
         "gradients.put(router_name(), std::move(sum)); }", "Somebody averages the router's gradient.",
         "nothing to see under Adam"),
        ("ep-dx-without-the-router", "move(dx) + matmul(dlogits, transposed(router_))", "move(dx)",
         "Somebody forgets that the router reads the tokens, too.", "nothing to see")),
    *of("05 dispatch", C05 + "dispatch.hpp", "05_expert --variant top-k", "",
        ("ep-slots-never-taken", "free -= kept;", "",
         "Somebody forgets to take slots away: each device may fill the expert.",
         "nothing to see: an expert takes too many")),
    *of("05 router", C05 + "router.hpp", "05_expert --variant top-k --skew 0.5", "mixture_test the skew*",
        ("ep-skew-with-the-other-sign", "-rule.skew", "rule.skew",
         "Somebody raises a logit where it is to be lowered.", "nothing to see: other experts are busy")),
]

PARTS["fully_sharded"] = [
    *of("06 zero1", C06 + "zero1.hpp", ZERO + " zero1", "",
        ("z1-first-layer-alone-gathered", "for (Replicated& w : weights_) {",
         "{ Replicated& w = weights_.front();", "Somebody tests with one layer.", "the models drift apart")),
    *of("06 zero2", C06 + "zero2.hpp", ZERO + " zero2", "",
        ("z2-gathers-the-old-weights", "w = Replicated();", "",
         "Somebody gathers the new weights while the old ones are still there.", "nothing to see: more memory")),
    *of("06 zero3", C06 + "zero3.hpp", ZERO + " zero3", "",
        ("z3-gathered-although-unused", "if (l > 0 || wants_input_grad()) {", "{",
         "Somebody gathers layer 0 also where nobody wants dL/dx.", "nothing to see: more bytes")),
    *of("06 zero3-keep", C06 + "keep.hpp", ZERO + " zero3-keep", "fully_sharded_test",
        ("zk-old-weights-kept", "{ whole_ = std::vector<ReplicatedFactor>(shards_.size()); }", "{}",
         "Somebody counts on backward passes that free all weights before a step.", "nothing to see"),
        ("zk-freed-too-early", "if (tape_.empty()) whole_", "whole_",
         "Somebody frees weights that another backward pass still needs, and gathers them again.",
         "nothing to see: more bytes"),
        ("zk-kept-in-inference", "if (InferenceMode::is_on()) discard(l);", "",
         "Somebody forgets that in inference no backward pass frees the weights.",
         "nothing to see: more memory")),
    *of("06 zero3-keep", C06 + "keep.hpp", ZERO + " zero3-keep", "",
        ("zk-never-freed", "if (tape_.empty()) whole_[l] = ReplicatedFactor()", "(void)l",
         "Somebody forgets to free what was gathered.", "nothing to see: more memory")),
    *of("06 zero3-prefetch", C06 + "prefetch.hpp", ZERO + " zero3-prefetch", "",
        ("zp-last-gradient-not-waited-for", "layer_name(0), leaving.get", "layer_name(0), Sharded<0>",
         "Somebody ends the loop and forgets what is still in flight.", "stops with an error")),
]
