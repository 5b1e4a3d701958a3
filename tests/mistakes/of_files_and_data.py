"""chapters/engine: files of parameters, data, initial values, and the proof itself."""
from mistake import of

HERE = "chapters/engine/"
DATA, EXPERT = "02_data_parallel", "05_expert --variant top-k"
reading = of("files", HERE + "files/safetensors.cpp", "", "safetensors_test")
header = of("files", HERE + "files/safetensors_header.cpp", "", "safetensors_test")
place = of("files", HERE + "files/regular_file.cpp", "", "safetensors_test")
checkpoint = of("files", HERE + "files/file_checkpoint.cpp", "", "safetensors_test")
host = of("files", HERE + "host_checkpoint.cpp", "", "engine_test, 03_tensor_parallel.equivalence")
chance = of("random numbers", HERE + "workloads/random.cpp", DATA, "engine_test")
digits = of("data", HERE + "workloads/digits.cpp", DATA, "engine_test")
initial = of("initial values", HERE + "workloads/initial_values.cpp", "03_tensor_parallel", "engine_test")
mlp = of("networks", HERE + "workloads/mlp.cpp", DATA, "engine_test, train_test")
problem = of("exact problems", HERE + "workloads/mlp_problem.cpp", DATA, "engine_test, 02_data_parallel.equivalence")
integer = of("exact problems", HERE + "workloads/workload.cpp", DATA, "02_data_parallel.equivalence")
solution = of("exact problems", HERE + "workloads/mixture_solution.cpp", EXPERT, "mixture_test, 05_expert.equivalence exact*")
choices = of("exact problems", HERE + "workloads/mixture_choices.cpp", EXPERT, "mixture_test, 05_expert.equivalence exact*")
rule = of("networks", HERE + "workloads/routing_rule.cpp", EXPERT, "mixture_test")
compare = of("proof", HERE + "proof/compare.cpp", "", "proof_test")
exact = of("proof", HERE + "proof/exact.cpp", "", "engine_test, proof_test")
curves = of("proof", HERE + "proof/loss_curve.cpp", "", "proof_test, train_test")
causes = of("proof", HERE + "proof/diagnosis.cpp", "", "proof_test")
forms = of("proof", HERE + "proof/costs.cpp", DATA, "02_data_parallel.equivalence")
figures = of("proof", HERE + "program/step_figures.cpp", "", "train_test")
check = of("proof", HERE + "program/exact_check.cpp", "", "train_test")

ALL = [
    reading("slice-of-the-first-run", "return {runs.offset, 1, runs.count * runs.bytes, runs.count * runs.bytes};",
            "return {0, 1, runs.count * runs.bytes, runs.count * runs.bytes};",
            "Somebody takes what lies in one piece for the whole tensor.", "nothing to see",
            survives="runs without gaps along an axis are that whole axis, which begins at 0"),
    reading("run-of-the-wrong-place", "read_run(runs.offset + i * runs.stride, runs.bytes,",
            "read_run(runs.offset + i * runs.bytes, runs.bytes,",
            "Somebody goes on by a slice's width, not by that of the whole.", "other weights"),
    reading("window-over-window", "to_float(window.data(), now / element_bytes, out + done / element_bytes);",
            "to_float(window.data(), now / element_bytes, out + 0 * done);",
            "Somebody tests with small files, which one window holds.", "other weights"),
    reading("gaps-in-the-stride-of-runs", "to_float(window.data() + i * runs.stride, elements, out",
            "to_float(window.data() + i * runs.bytes, elements, out",
            "Somebody forgets the gaps between the runs.", "other weights"),
    reading("half-without-its-bias", "exponent - 25)", "exponent - 15)",
            "Somebody knows the bias of float16, 15, and forgets the ten bits of the fraction.", "diverges"),
    reading("half-without-subnormals", "exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)",
            "exponent == 0 ? 0 * static_cast<float>(fraction)",
            "Somebody takes small float16 numbers for 0.", "nothing to see"),
    reading("bfloat16-in-the-lower-half", "static_cast<std::uint32_t>(upper) << 16", "static_cast<std::uint32_t>(upper)",
            "Somebody puts the 16 bits into the wrong half.", "nothing is learnt"),
    reading("bytes-of-the-other-end", "std::memcpy(&element, in + i * sizeof element, sizeof element);",
            "std::reverse_copy(in + i * sizeof element, in + (i + 1) * sizeof element,\n"
            "                      reinterpret_cast<std::byte*>(&element));",
            "Somebody turns bytes around, as a format of the other endianness would need.", "diverges"),
    reading("header-not-aligned", "text.resize((text.size() + 7) / 8 * 8, ' ');", "",
            "Somebody forgets that values begin at a multiple of 8 bytes.", "nothing to see"),
    reading("read-once", "    done += static_cast<std::uint64_t>(got);\n  }\n}\n\n/// Git LFS",
            "    done = bytes;\n  }\n}\n\n/// Git LFS",
            "Somebody believes that a read gives all bytes that it asks for.", "nothing to see"),
    reading("pointer-not-recognised", "if (length > limit) refuse_git_lfs_pointer(file, path, size);", "",
            "Somebody takes a Git LFS pointer for a damaged file.", "nothing to see: a wrong advice"),

    header("gaps-allowed", "if (entry.begin != covered)", "if (entry.begin < covered)",
           "Somebody refuses overlaps, and not bytes that belong to nothing.", "nothing to see"),
    header("bytes-behind-the-last", "if (covered != data_bytes)", "if (covered > data_bytes)",
           "Somebody allows bytes behind the last tensor.", "nothing to see"),
    header("offsets-beyond-the-file", "if (entry_.end > data_bytes_)", "if (entry_.begin > data_bytes_)",
           "Somebody looks where a tensor begins, not where it ends.", "a file is refused later"),
    header("size-not-compared", "if (*bytes != entry_.end - entry_.begin)", "if (*bytes > entry_.end - entry_.begin)",
           "Somebody allows more bytes than a shape needs.", "nothing to see"),
    header("overflow-allowed", "} else if (size > int64_max / bytes) {", "} else if (size > int64_max) {",
           "Somebody multiplies a shape without a look at its size.", "nothing to see"),
    header("names-twice", "if (name == \"__metadata__\" ? has_metadata_ : is_entry)", "if (has_metadata_ && is_entry)",
           "Somebody lets the last tensor of a name win.", "nothing to see"),
    header("bfloat16-of-four-bytes", "{\"BF16\", 2}", "{\"BF16\", 4}",
           "Somebody copies a line of the table.", "a file is refused"),

    place("written-in-place", "O_TMPFILE | O_WRONLY | O_CLOEXEC", "O_WRONLY | O_CLOEXEC",
          "Somebody replaces a flag and loses the file without a name.", "nothing to see"),
    place("not-on-the-disk", "if (::fsync(file_.get()) != 0) system_error(path_, \"cannot write to the disk\");", "",
          "Somebody saves the time of fsync, and a power failure leaves an empty file.", "nothing to see"),
    place("folder-not-on-the-disk", "if (::fsync(folder_.get()) != 0 && errno != EINVAL)", "if (false)",
          "Somebody forgets that a name is on the disk only when its folder is.", "nothing to see"),
    place("short-writes-believed", "done += static_cast<std::uint64_t>(now);", "done = bytes;",
          "Somebody believes that a write takes all bytes.", "nothing to see, until the disk is full"),
    place("interrupted-write-fails", "if (now < 0 && errno == EINTR) continue;", "",
          "Somebody forgets that a signal ends a write.", "nothing to see",
          survives="a write to a regular file is not ended by a signal on Linux"),
    place("devices-replaced", "(exists && !S_ISREG(status.st_mode))", "(exists && S_ISDIR(status.st_mode))",
          "Somebody refuses folders, and replaces /dev/null by a file.", "nothing to see"),
    place("left-behind", "  if (!temporary_.empty()) ::unlinkat(folder_.get(), temporary_.c_str(), 0);\n", "",
          "Somebody forgets the temporary file of a write that fails.", "nothing to see"),

    checkpoint("nan-is-read", "    require_finite(source() + \": \" + name, shape(name), axis, begin, end, values);\n", "",
               "Somebody reads files without a look at their numbers.", "not finite",
               tests="safetensors_test, engine_test"),
    host("host-slice-along-rows", "for_each_in_slice(whole, axis, begin, end,", "for_each_in_slice(whole, 0 * axis, begin, end,",
         "Somebody tests with slices of rows.", "a crash"),

    chance("nine-rounds", "for (int round = 0; round < 10; ++round) {", "for (int round = 0; round < 9; ++round) {",
           "Somebody is off by one in the rounds of Philox.", "nothing to see: other random numbers"),
    chance("one-number-for-four", "key_)[index % 4];", "key_)[0];",
           "Somebody takes the first of four numbers each time.", "nothing to see"),
    chance("noise-without-a-tail", "std::sqrt(-2 * std::log(u)) * std::cos(angle)",
           "std::sqrt(-std::log(u)) * std::cos(angle)",
           "Somebody forgets the 2 in Box and Muller's formula.", "lower: less noise"),
    chance("integers-without-the-last", "static_cast<std::uint64_t>(high - low + 1)",
           "static_cast<std::uint64_t>(high - low)",
           "Somebody leaves out the highest number.", "nothing to see"),
    chance("seed-forgotten", "14695981039346656037ULL ^ (seed * 0x9E3779B97F4A7C15ULL)",
           "14695981039346656037ULL ^ (0 * seed)",
           "Somebody forgets the seed: every run is the same.", "nothing to see"),

    digits("noise-of-each-device", "static_cast<std::uint64_t>(row * Digits::pixels + p)",
           "static_cast<std::uint64_t>((row - rows.begin) * Digits::pixels + p)",
           "Somebody counts rows from the device's first one: all devices have the same noise.",
           "nothing to see"),
    digits("digits-of-each-device", "    Index digit = digit_of(row);\n    for (Index p = 0; p < Digits::pixels; ++p)\n"
           "      values.push_back(static_cast<float>(digits_->pixel(digit, p)) / 16 +",
           "    Index digit = digit_of(row - rows.begin);\n    for (Index p = 0; p < Digits::pixels; ++p)\n"
           "      values.push_back(static_cast<float>(digits_->pixel(digit, p)) / 16 +",
           "Somebody counts rows from the device's first one: inputs no longer fit their targets.",
           "stays high"),
    digits("same-batch-each-step", "fmt::format(\"digits of step {}\", step_)", "fmt::format(\"digits of step {}\", 1)",
           "Somebody seeds the batch with the seed alone.", "lower: the batch is learnt by heart"),
    digits("label-as-a-pixel", "    row.pop_back();  // the label\n", "    row.erase(row.begin());\n",
           "Somebody takes the label from the front.", "nothing to see"),
    digits("noise-of-twice-the-size", "constexpr float noise_sigma = 0.3F;", "constexpr float noise_sigma = 0.6F;",
           "Somebody changes a constant for an experiment, and forgets it.", "higher"),

    initial("slice-from-its-own-start", "values.push_back(bound * (2 * random.uniform(static_cast<std::uint64_t>(i)) - 1));",
            "(void)i;\n      values.push_back(bound * (2 * random.uniform(values.size()) - 1));",
            "Somebody counts from the slice's first element: every device has the same slice.",
            "a little worse"),
    initial("positive-weights-alone", "bound * (2 * random.uniform(static_cast<std::uint64_t>(i)) - 1)",
            "bound * random.uniform(static_cast<std::uint64_t>(i))",
            "Somebody forgets to centre the weights.", "starts higher"),
    initial("one-stream-for-all-parameters", "CounterRandom random(seed_, name);", "CounterRandom random(seed_, \"\");",
            "Somebody seeds each parameter alike.", "nothing to see"),
    mlp("gain-of-the-next-layer", "const float gain = relu_before(l) ? 6.0F : 3.0F;",
        "const float gain = relu_before(l) ? 3.0F : 6.0F;",
        "Somebody gives the gain of the ReLU to the layer before it.", "starts a little higher"),
    mlp("bound-by-the-output", "static_cast<float>(model.width(l)))});", "static_cast<float>(model.width(l + 1)))});",
        "Somebody divides by the outputs where the inputs count.", "starts higher"),

    problem("problem-without-a-kink", "if (batch > 1) std::fill_n(problem.input.values.rbegin(), model_.model_dim, 0.0F);", "",
            "Somebody removes the row of zeros, which meets the ReLU at 0.", "nothing to see"),
    problem("solution-with-another-kink", "if (inputs[i].values[k] <= 0) d.values[k] = 0;",
            "if (inputs[i].values[k] < 0) d.values[k] = 0;",
            "Somebody takes the ReLU's derivative at 0 for 1, in the solution.", "nothing to see"),
    integer("integer-step-of-another-remainder", "((difference % 5) + 5) % 5 - 2", "difference % 5",
            "Somebody forgets that C++ gives remainders the sign of their argument.", "nothing to see"),
    solution("solution-without-gates", "const Matrix weighted = rows_of(dout, slots, &tokens);",
             "const Matrix weighted = rows_of(dout, slots);",
             "Somebody forgets the gates in the solution's backward pass.", "nothing to see"),
    choices("solution-of-one-slot-more", "token.chosen[r])]++ <", "token.chosen[r])]++ <=",
            "Somebody allows one slot too many in the solution.", "nothing to see"),
    rule("capacity-rounded-down", "std::ceil(*capacity_factor", "std::floor(*capacity_factor",
         "Somebody rounds the capacity down.", "nothing to see: more tokens are dropped"),
    rule("capacity-without-top-k", "const Index all = top_k * batch;", "const Index all = batch;",
         "Somebody counts tokens, not choices.", "nothing to see: more tokens are dropped"),

    compare("compare-without-the-last", "for (std::size_t i = 0; i < given.values.size(); ++i) {\n    const std::int64_t distance",
            "for (std::size_t i = 0; i + 1 < given.values.size(); ++i) {\n    const std::int64_t distance",
            "Somebody leaves out the last element of a comparison.", "nothing to see"),
    compare("compare-with-one-ulp", "if (result.max_ulp == 0) return result;", "if (result.max_ulp <= 1) return result;",
            "Somebody allows a last bit, to make a test pass.", "nothing to see"),
    compare("nan-equals-everything", "return std::isnan(a) && std::isnan(b) ? 0 : farthest;", "return 0;",
            "Somebody writes a comparison that NaN passes.", "nothing to see"),
    compare("minus-zero-differs", "std::int64_t{std::numeric_limits<std::int32_t>::min()} - bits;", "-std::int64_t{bits};",
            "Somebody orders negative numbers by their bits.", "nothing to see"),
    compare("compare-of-other-devices", "if (!actual.is_here()) return {};", "if (true) return {};",
            "Somebody compares nothing on any device.", "nothing to see",
            tests="proof_test, train_test"),
    exact("magnitude-not-summed", "magnitude += std::abs(term);", "magnitude = std::abs(term);",
          "Somebody looks at the largest term, not at the sum.", "nothing to see"),
    exact("limit-of-another-format", "constexpr double largest_exact = 0x1p24;", "constexpr double largest_exact = 0x1p53;",
          "Somebody takes float64's limit for float32's.", "nothing to see"),
    curves("curve-of-the-last-step", "  for (std::size_t step = 0; step < steps; ++step) {",
           "  for (std::size_t step = steps - 1; step < steps; ++step) {",
           "Somebody compares the last loss alone.", "nothing to see"),
    curves("curve-within-a-percent", "constexpr double standard_deviations = 4;", "constexpr double standard_deviations = 1e6;",
           "Somebody widens a tolerance until a test passes.", "nothing to see"),
    curves("curve-of-any-length", "const std::size_t steps = std::min({run.losses.size(), reference.losses.size(), moved.losses.size()});",
           "const std::size_t steps = std::min<std::size_t>(1, run.losses.size());",
           "Somebody compares the first loss, which no gradient has changed.", "nothing to see"),
    causes("cause-of-nothing", "return e.num_devices > 1 && is_each(e, 1.0 / e.num_devices)",
           "return is_each(e, 1.0 / e.num_devices)",
           "Somebody calls a right result of one device a mean.", "nothing to see",
           survives="a result that differs is not 1 times what is expected, so the rule never fits on one device"),
    causes("cause-of-another-sign", "return is_each(e, -1) ?", "return is_each(e, -2) ?",
           "Somebody tests a rule with one example.", "nothing to see"),
    forms("peak-without-state", "const Index state = state_per_element * trained();", "const Index state = 0 * state_per_element;",
          "Somebody forgets what the optimizer holds.", "nothing to see: the form is wrong"),
    figures("figures-of-the-last-step", "  if (measured != formula) return;\n", "",
            "Somebody lets a later step, whose figures are right, hide an earlier one.", "nothing to see"),
    figures("bytes-held-not-compared", "  add(\"bytes held\", peak_);\n", "",
            "Somebody forgets one of four figures.", "nothing to see"),
    check("exact-mode-of-device-0", "return std::ranges::max(group.exchange(\"exact mode\", worst));",
          "return group.exchange(\"exact mode\", worst)[0];",
          "Somebody reports what the first device found.", "nothing to see"),
    check("exact-mode-with-dx-alone", "  if (with > 0) return with;\n", "  if (with >= 0) return with;\n",
          "Somebody leaves out the step in which nobody wants dL/dx.", "nothing to see"),
]
