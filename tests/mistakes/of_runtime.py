"""chapters/engine/device: what both backends share, how devices agree on a call, and who finds deadlocks."""
from mistake import of

DEVICE, HERE = "chapters/engine/device/", "chapters/engine/device/runtime/"
DATA, ZERO = "02_data_parallel", "06_fully_sharded --variant zero3"
header = of("runtime agreement", HERE + "header.cpp", DATA, "collectives_test, wrong_programs")
agreement = of("runtime agreement", HERE + "agreement.cpp", DATA, "collectives_test, wrong_programs")
report = of("runtime agreement", HERE + "disagreement.cpp", DATA, "collectives_test, wrong_programs")
search = of("runtime deadlocks", HERE + "processes/deadlock_search.cpp", DATA, "deadlock_test, wrong_programs")
shapes = of("runtime shapes", HERE + "agreed_shapes.cpp", "05_expert --variant top-k", "collectives_test")
calls = of("runtime calls", HERE + "call.cpp", "05_expert --variant top-k", "collectives_test")
cuts = of("runtime cuts", HERE + "axis_cuts.cpp", ZERO, "collectives_test, layouts_test")
stream = of("runtime stream", HERE + "stream.cpp", DATA, "collectives_test")
checks = of("runtime checks", HERE + "argument_checks.cpp", DATA,
            "operations_test, engine_test, collectives_test")
notes = of("runtime ledger", HERE + "notes.cpp", DATA, "collectives_test")
ledger = of("device ledger", DEVICE + "ledger.cpp", DATA, "collectives_test, 02_data_parallel.equivalence")
forms = of("device closed forms", DEVICE + "collective_costs.cpp", ZERO, "collectives_test")
checked = of("device claims", DEVICE + "checked_communicator.cpp", DATA, "layouts_test, train_test")
fault = of("device faults", DEVICE + "fault.cpp", DATA, "collectives_test")
tensor = of("device tensors", DEVICE + "tensor.cpp", DATA, "engine_test, collectives_test")

FIELDS = "{header.collective, header.op, header.axis, header.concat_axis, header.root}"

ALL = [
    header("fingerprint-without-operation", FIELDS, FIELDS.replace("header.op, ", ""),
           "Somebody adds an operation to a call and forgets it where calls are compared.",
           "nothing to see, while all devices agree"),
    header("fingerprint-without-axis", FIELDS, FIELDS.replace("header.axis, ", ""),
           "Somebody adds an axis to a call and forgets it where calls are compared.",
           "nothing to see, while all devices agree"),
    header("fingerprint-without-root", FIELDS, FIELDS.replace(", header.root", ""),
           "Somebody adds a root to a call and forgets it where calls are compared.",
           "nothing to see, while all devices agree"),
    header("fingerprint-without-second-axis", FIELDS, FIELDS.replace("header.concat_axis, ", ""),
           "Somebody compares an all-to-all by one of its axes.", "nothing to see, while all devices agree"),
    header("fingerprint-without-shape", "hash = mixed(hash, static_cast<std::uint64_t>(header.shape[i]));",
           "hash = mixed(hash, 0 * static_cast<std::uint64_t>(header.shape[i]));",
           "Somebody compares the number of axes and not their extents.",
           "nothing to see, while all devices agree"),
    header("fingerprint-without-subject", "hash = mixed(hash, std::hash<std::string>()(header.what));", "",
           "Somebody forgets what control messages are about.", "nothing to see, while all devices agree"),
    header("fingerprint-of-all-axes", "if (static_cast<int>(i) != difference.axis)", "if (true)",
           "Somebody compares the axis in which slices may differ, too.",
           "stops with an error where slices differ"),

    agreement("agreement-with-one-neighbour", "if (words_[i] != words_[0]) return false;",
              "if (i == word_size && words_[i] != words_[0]) return false;",
              "Somebody compares with the next device only.", "nothing to see, while all devices agree"),
    agreement("agreement-never-left-out", "is_left_out_ = !device().part<AgreementOption>().is_wanted &&",
              "is_left_out_ = false && !device().part<AgreementOption>().is_wanted &&",
              "Somebody agrees on reductions even with --unchecked.", "nothing to see"),
    agreement("agreement-left-out-for-all",
              "is_left_out_ = !device().part<AgreementOption>().is_wanted && difference.axis == MayDiffer::nothing().axis;",
              "is_left_out_ = !device().part<AgreementOption>().is_wanted;",
              "Somebody leaves agreement out for calls that need the other devices' extents.",
              "a crash with --unchecked"),
    report("smallest-party-first", "std::ranges::stable_sort(parties, std::ranges::greater(),",
           "std::ranges::stable_sort(parties, std::ranges::less(),",
           "Somebody sorts parties the other way round, and the many are accused.", "nothing to see"),
    report("claim-without-its-last-word", "text.resize(std::min(text.find('\\0'), text.size()));",
           "text.resize(std::min(text.find('\\0'), text.size()) - 1);",
           "Somebody takes the end of a text for its last letter.", "nothing to see"),

    search("deadlock-never-judged", "    judge();\n", "",
           "Somebody collects answers and forgets to look at them.", "hangs, where it would stop"),
    search("deadlock-of-old-answers", "known.first <= moment && moment < known.confirmed ? known.state",
           "moment <= moment && known.state ? known.state",
           "Somebody takes answers of different moments together, and accuses a device that has gone on.",
           "stops, seldom, without a reason"),
    search("deadlock-never-reported", "if (!found_ || now - proved_ < time_to_grow()) return std::nullopt;",
           "if (!found_ || now - proved_ < 1h) return std::nullopt;",
           "Somebody waits for more devices, and writes another unit.", "hangs, where it would stop"),
    search("deadlock-too-small",
           "  return is_urgent_ || std::ranges::any_of(known_, &Known::is_asked) ? for_more_devices : 0s;",
           "  return 0s * known_.size();",
           "Somebody reports as soon as two devices are proved to be stuck.",
           "stops, and names too few devices"),

    shapes("two-targets-allowed", "for (int e = 0; e < d; ++e)", "for (int e = 0; e + 1 < d; ++e)",
           "Somebody compares targets, and leaves out the neighbour.", "nothing to see"),
    shapes("arrivals-as-large-as-mine",
           "Shape from = with_extent(mine, concat_axis, call.agreement().extent_of(d));",
           "Shape from = with_extent(mine, concat_axis, call.agreement().extent_of(call.me()));",
           "Somebody believes that all tensors are as large as the device's own.",
           "nothing to see, or a crash"),
    calls("counts-of-mine", "group_->post_receive(posts_, Channel::counts, d, number(counts_, d));",
          "group_->post_receive(posts_, Channel::counts, d, number(counts_, 0));",
          "Somebody receives all counts in one place.", "stops with an error"),

    cuts("cut-with-gaps", "    begin += size;\n", "    begin += size + 1;\n",
         "Somebody counts a range's end as inside of it.", "a crash"),
    cuts("elements-after-with-the-axis", "return num_elements({shape.begin() + axis + 1, shape.end()});",
         "return num_elements({shape.begin() + axis, shape.end()});",
         "Somebody counts the axis itself among those behind it.", "a crash"),
    stream("operations-out-of-order", "advance(*queue_.front())) queue",
           "(advance(*queue_.front()) || (queue_.size() > 1 && (queue_.front()->done = true)))) queue",
           "Somebody lets a call pass another one that waits.", "nothing to see, or a crash"),
    checks("adam-step-from-zero", "auto t = static_cast<double>(step);",
           "auto t = static_cast<double>(step - 1);",
           "Somebody counts steps from 0, and the correction divides by 0.", "not finite"),
    checks("adam-step-from-two", "auto t = static_cast<double>(step);",
           "auto t = static_cast<double>(step + 1);",
           "Somebody counts the step that comes next.", "the first steps are shorter"),
    checks("variance-corrected-without-a-root",
           "static_cast<float>(1 / std::sqrt(1 - std::pow(static_cast<double>(s.beta2), t)))",
           "static_cast<float>(1 / (1 - std::pow(static_cast<double>(s.beta2), t)))",
           "Somebody corrects the variance's root as the variance.", "the first steps are too short"),
    checks("last-index-allowed", "if (index < 0 || index >= end)", "if (index < 0 || index > end)",
           "Somebody allows the index behind the last one.", "nothing to see"),
    checks("gradient-of-any-shape", "if (gradient.shape() != rows.shape())\n    refuse",
           "if (gradient.size() > num_elements(rows.shape()))\n    refuse",
           "Somebody lets a gradient of fewer rows pass.", "nothing to see"),
    checks("columns-before-rows", "return {rows.begin * per_row, rows.end * per_row};",
           "return {rows.begin, rows.end};",
           "Somebody takes rows for elements.", "learns more slowly"),

    ledger("peak-of-the-moment", "peak_total_ = std::max(peak_total_, live_total_);",
           "peak_total_ = live_total_;",
           "Somebody keeps the last value for the largest.", "nothing to see: wrong figures"),
    ledger("memory-never-released", "  live_total_ -= bytes;\n", "",
           "Somebody counts what is allocated, and not what is freed.", "nothing to see: wrong figures"),
    ledger("traffic-of-one-group", "for (const auto& [group, calls] : traffic_) total += traffic_in(group);",
           "total = traffic_in(0);",
           "Somebody tests with one group of devices.", "nothing to see: wrong figures"),
    ledger("flops-never-reset", "  flops_ = 0;\n", "",
           "Somebody forgets one counter where all begin again.", "nothing to see: wrong figures"),
    notes("moves-not-observed", "    o->released(from, bytes);\n", "",
          "Somebody tells an observer of the new purpose and not of the end of the old one.",
          "nothing to see"),

    forms("form-of-the-wrong-slice",
          "return all_but(slices, (device + 1) % static_cast<int>(slices.size()));",
          "return all_but(slices, device);",
          "Somebody takes all-gather for reduce-scatter: the device sends all slices but its own.",
          "nothing to see: the form is wrong", tests="collectives_test"),
    forms("form-with-empty-messages", "if (static_cast<int>(i) != k && elements[i] > 0)",
          "if (static_cast<int>(i) != k)",
          "Somebody counts a message of no bytes, which is not sent.", "nothing to see: the form is wrong"),
    forms("form-of-a-smaller-buffer", "part(elements, devices, 0).size();",
          "part(elements, devices, devices - 1).size();",
          "Somebody takes the last chunk, which may be smaller, for the largest, in the form and in the "
          "buffer.",
          "nothing to see, or anything", train=DATA, tests="02_data_parallel.equivalence@8"),

    checked("claim-of-a-shape-alone", "add(values.data(), values.size() * sizeof(float));",
            "add(values.data(), 0);",
            "Somebody compares what devices hold by its shape.", "nothing to see"),
    checked("claim-without-the-last-element", "add(values.data(), values.size() * sizeof(float));",
            "add(values.data(), values.empty() ? 0 : (values.size() - 1) * sizeof(float));",
            "Somebody leaves out the last element.", "nothing to see"),
    fault("fault-one-call-late", "return *calls_ == fault_.call && this_device() == fault_.device;",
          "return *calls_ == fault_.call + 1 && this_device() == fault_.device;",
          "Somebody counts calls from 0, and users count from 1.", "nothing to see"),
    tensor("place-in-columns", "for (std::size_t axis = shape.size(); axis-- > 0; element /= shape[axis])",
           "for (std::size_t axis = 0; axis < shape.size(); element /= shape[axis], ++axis)",
           "Somebody counts elements column by column.", "nothing to see: a wrong place is named",
           tests="engine_test, proof_test, layouts_test"),
    tensor("moved-from-keeps-its-shape",
           ": shape_(std::exchange(other.shape_, Shape{0})), storage_(std::move(other.storage_)) {}",
           ": shape_(other.shape_), storage_(std::move(other.storage_)) {}",
           "Somebody believes that a tensor that was moved from is never read.", "nothing to see",
           tests="engine_test, collectives_test, layouts_test"),
]
