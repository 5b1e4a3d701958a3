/// `train` with wrong engines: its exit code, its report, and the lines that explain what is wrong.

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "engine/files/safetensors/safetensors.hpp"
#include "engine/files/safetensors/writer.hpp"
#include "engine/program/report.hpp"
#include "engine/program/table/run_chapter.hpp"
#include "engine/workloads/mlp/layers.hpp"
#include "engine/workloads/mlp/mlp.hpp"
#include "tests/harness/refused.hpp"

namespace shard::testing {

RUNS_ON(.in_one_process = {}, .processes = {3});

namespace {

/// The variants, each named by its mistake.
const char* const mistakes[] = {
    "right",
    "without-forms",
    "reduced-if-wanted",      // weights' gradients are summed only where dL/dx is wanted, too
    "mask-if-wanted",         // so is the ReLU's derivative applied
    "averaged",               // gradients are means over the devices
    "one-device",             // device 1 alone adds 1 to a weight's gradient
    "no-input-grad",          // device 1 does not return dL/dx
    "no-layer",               // there is no gradient of layer 1
    "other-name",             // the gradient of layer 1 has another name
    "not-trained",            // the optimizer does not know layer 1
    "not-trained-on-1",       // the same on device 1 alone
    "later-steps",            // gradients are 0 from the third step on
    "last-step",              // the last update makes parameters of device 1 NaN
    "operations",             // device 1 computes a product too many, from step 2 on
    "message",                // device 1's closed form has a message too many
    "memory",                 // and four bytes too many
    "false-claim",            // a tensor that is not used is claimed to be equal on all devices, and is not
    "false-claim-then-call",  // and then the devices reduce tensors of different shapes
    "false-claim-of-part"     // as false-claim, by a group of devices 0 and 1
};

/// Data parallel, with plain tensors, and one mistake.
class Mistaken : public ShardedEngine {
 public:
  Mistaken(Communicator& group, std::string mistake) : ShardedEngine(group), mistake_(std::move(mistake)) {}

  void load_checkpoint(const Checkpoint& checkpoint) override {
    weights_ = load_all<Replicated>(checkpoint, layer_names(checkpoint));
  }
  Placed forward(Tensor input) override {
    Sharded<0> a = my_rows(std::move(input));
    inputs_.clear();
    for (std::size_t l = 0; l < weights_.size(); ++l) {
      if (relu_before(static_cast<Index>(l))) a = relu(std::move(a));
      Sharded<0> out = matmul(a, weights_[l]);
      inputs_.push_back(std::move(a));
      a = std::move(out);
    }
    return a;
  }
  Gradients backward(Tensor dout) override {
    ++steps_;
    Sharded<0> d = my_rows(std::move(dout), inputs_[0]);
    Gradients gradients;
    for (std::size_t l = weights_.size(); l-- > 0;) {
      const Tensor addend = matmul(transposed(inputs_[l].local()), d.local());
      Replicated sum(group(), sum_of(addend));
      if (l != 1 || !is("no-layer"))
        gradients.put(layer_name(static_cast<Index>(l == 1 && is("other-name") ? 7 : l)), std::move(sum));
      if (l > 0 || wants_input_grad()) d = matmul(d, transposed(weights_[l]));
      const bool has_mask = is("mask-if-wanted") ? wants_input_grad() : true;
      if (relu_before(static_cast<Index>(l)) && has_mask) d = relu_backward(std::move(d), inputs_[l]);
    }
    if (wants_input_grad() && (!is("no-input-grad") || device_id() != 1))
      gradients.put(Gradients::input_grad, std::move(d));
    if (is("operations") && device_id() == 1 && steps_ >= 2) matmul(Tensor({2, 2}), Tensor({2, 2}));
    const Shape other{device_id() == 1 ? 2 : 3};
    if (is("false-claim") || is("false-claim-then-call")) Replicated(group(), Tensor(other));
    if (is("false-claim-then-call")) group().all_reduce_async(Tensor(other), ReduceOp::sum).get();
    if (is("false-claim-of-part")) {
      const std::unique_ptr<Communicator> part = group().split(device_id() < 2 ? 0 : 1, device_id());
      Replicated(*part, Tensor({device_id() == 1 ? 2 : 3}));
    }
    return gradients;
  }
  Placement input_layout() const override { return Placement::sharded(0); }
  Trainables trainable() override {
    Trainables all = layers(weights_);
    if (is("not-trained") || (is("not-trained-on-1") && device_id() == 1)) all.pop_back();
    return all;
  }

 private:
  bool is(std::string_view mistake) const { return mistake_ == mistake; }
  Tensor sum_of(const Tensor& addend) {
    if (is("reduced-if-wanted") && !wants_input_grad()) return addend.clone();
    Tensor sum = all_reduce(addend.clone(), is("averaged") ? ReduceOp::avg : ReduceOp::sum);
    if (is("later-steps") && steps_ >= 3) return Tensor(sum.shape());
    if (is("last-step") && steps_ == 6 && device_id() == 1) return scale(std::move(sum), NAN);
    if (is("one-device") && device_id() == 1) {
      std::vector<float> values = sum.to_host();
      values.back() += 1;
      return Tensor::from_host(sum.shape(), values);
    }
    return sum;
  }

  std::string mistake_;
  Index steps_ = 0;
  std::vector<Replicated> weights_;
  std::vector<Sharded<0>> inputs_;
};

/// The costs of an engine without a mistake. The bytes held are taken from the ledger.
Costs costs_of(const MlpSetting& s, std::string_view mistake) {
  Costs costs;
  for (Index l = 0; l < s.model.num_layers; ++l)
    costs[Collective::all_reduce] += ring_all_reduce(s.model.weights(l), s.devices, s.device);
  if (mistake == "message" && s.device == 1) ++costs[Collective::all_reduce].messages;
  const Index rows = part(s.batch, s.devices, s.device).size();
  for (Index l = 0; l < s.model.num_layers; ++l)
    costs.flops += (l > 0 ? 3 : 2) * product_flops(rows, s.model.width(l), s.model.width(l + 1));
  costs.peak_bytes = ledger().peak() + (mistake == "memory" && s.device == 1 ? 4 : 0);
  return costs;
}

std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (const std::string mistake : mistakes) {
    Variant v;
    v.name = mistake;
    v.make = [=](Communicator& group, const Workload&, const Options&) {
      return std::make_unique<Mistaken>(group, mistake);
    };
    if (mistake != "without-forms")
      v.costs = [=](const Setting& s, const Options&) { return costs_of(s, mistake); };
    all.push_back(v);
  }
  return all;
}

const RegisteredChapter registered({.workload = &mlp(), .variants = variants()});

struct Ended {
  int code = 0;
  std::string printed;  // by this device
  Report report;        // on device 0
};

/// Redirects standard output to a file during its lifetime.
class Printed {
 public:
  explicit Printed(const std::string& path) : path_(path), before_(dup(STDOUT_FILENO)) {
    std::fflush(stdout);
    if (std::freopen(path.c_str(), "w", stdout) == nullptr) throw std::runtime_error("expected a file");
  }
  ~Printed() {
    std::fflush(stdout);
    dup2(before_, STDOUT_FILENO);
    close(before_);
  }
  std::string text() const {
    std::fflush(stdout);
    std::ifstream file(path_);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

 private:
  std::string path_;
  int before_;
};

Ended train(const std::string& variant, const std::string& optimizer = "adam",
            const std::vector<std::string>& more = {}) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("shardbook_train_" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  Ended ended;
  {
    const Printed printed(folder / "printed");
    std::istringstream always("train --steps 6 --batch 10 --hidden-dim 7");
    std::vector<std::string> words(std::istream_iterator<std::string>(always), {});
    words.insert(words.end(),
                 {"--variant", variant, "--optimizer", optimizer, "--report", folder / "report.json"});
    words.insert(words.end(), more.begin(), more.end());
    ended.code = run_chapter(group(), only_chapter(), words);
    ended.printed = printed.text();
  }
  if (group().device_id() == 0) ended.report = read_report(folder / "report.json");
  std::filesystem::remove_all(folder);
  return ended;
}

bool speaks() {
  return group().device_id() == 0;
}

}  // namespace

TEST_CASE("train: a right engine ends with code 0, and its losses follow the unsharded network's") {
  for (const char* name : {"right", "without-forms"}) {
    const Ended ended = train(name);
    CHECK(ended.code == 0);
    if (!speaks()) continue;
    CHECK(ended.report.is_good());
    CHECK(ended.report.max_ulp == 0);
    CHECK(ended.report.bytes.has_form() == (std::string(name) == "right"));
    REQUIRE(ended.report.curve.has_value());
    CHECK(ended.report.curve->steps == 6);
    CHECK(ended.report.curve->largest < 1e-6);
    CHECK_THAT(ended.printed, !contains("differs") && !contains("not what it should be") &&
                                  contains(ended.report.bytes.has_form() ? " = " : " – "));
  }
}

TEST_CASE(
    "train: what is wrong only where dL/dx is not wanted is noticed twice: exactly, and by the losses") {
  for (const char* name : {"reduced-if-wanted", "mask-if-wanted"}) {
    const Ended ended = train(name, "sgd");
    CHECK(ended.code == 86);
    if (!speaks()) continue;
    CAPTURE(ended.printed);
    CHECK(ended.report.max_ulp > 0);
    CHECK_THAT(ended.printed, contains("differs where dL/dx is not wanted: layer_0/weights on device 0") &&
                                  !contains("differs: "));
    const bool is_claim_false = std::string(name) == "reduced-if-wanted";
    CHECK(contains("a claim of layout is false: device 0: Replicated: expected the same values on every "
                   "device, given ")
              .match(ended.printed) == is_claim_false);
    REQUIRE(ended.report.curve.has_value());
    CHECK(ended.report.curve->wrong_step == 2);
    CHECK_THAT(ended.printed,
               contains("loss curve: step 2: expected ") && contains("is not what it should be"));
  }
}

TEST_CASE("train: a difference is explained, and the largest of all devices counts") {
  Ended ended = train("averaged");
  CHECK(ended.code == 86);
  if (speaks())
    for (const char* device : {"0", "1"})
      CHECK_THAT(ended.printed, contains(std::string("differs: layer_0/weights on device ") + device) &&
                                    contains(": 1/3 of it in every element: a mean where a sum is meant?"));
  if (speaks()) CHECK_THAT(ended.printed, contains("\n  and on other devices: 3 devices in all\n"));
  ended = train("one-device");
  CHECK(ended.code == 86);
  if (speaks()) {
    CHECK(ended.report.max_ulp > 0);
    CHECK_THAT(ended.printed, contains("differs: layer_0/weights on device 1 at (63, 6)") &&
                                  !contains("weights on device 0") && !contains("weights on device 2") &&
                                  contains(", at tests/equivalence/train_test.cpp:"));
  }
}

TEST_CASE("train: what an engine leaves out is a difference, and is named") {
  Ended ended = train("no-input-grad");
  CHECK(ended.code == 86);
  if (speaks())
    CHECK_THAT(ended.printed,
               contains("differs: input_grad on device 1: expected a result of this name, given none") &&
                   contains("the other devices' results are right"));
  const std::string of_optimizer =
      "gradient: expected one for every parameter, given none for layer_1/weights";
  for (const char* name : {"no-layer", "other-name"}) {
    CAPTURE(name);
    const Refusal refused = refusal([name] { train(name); });
    CHECK_THAT(refused.message, contains(of_optimizer));
  }
  for (const auto& [name, words] :
       {std::pair{"not-trained",
                  "layer_1/weights: expected 448 elements that an optimizer updates on some device, given 0"},
        {"not-trained-on-1", ": what comes out of layer_1/weights of the step before: not updated?"}}) {
    ended = train(name);
    CHECK(ended.code == 86);
    if (speaks()) CHECK_THAT(ended.printed, contains(words));
  }
}

TEST_CASE(
    "train: a false claim of layout is an error, also where all results are right, or where calls differ") {
  for (const char* name : {"false-claim", "false-claim-then-call"}) {
    const Refusal refused = refusal([&] { train(name); });
    CHECK(refused.code == 81);
    CHECK_THAT(
        refused.message,
        contains("given (2,) on device 1, and (3,) on device 0, at tests/equivalence/train_test.cpp:"));
  }
}

/// Device 2 does not notice the false claim. So there is no second attempt, and device 2 waits in the first one.
TEST_CASE("train: a false claim of some devices ends their run") {
  const Refusal refused = refusal([] { train("false-claim-of-part"); });
  CHECK(refused.code == 81);
  CHECK_THAT(refused.message, contains(me() == 2 ? "an exchange of \"exact mode\""
                                                 : "given (2,) on device 1, and (3,) on device 0"));
  if (me() != 2) CHECK(refusal([] { group().exchange("what device 2 waits in", 0); }).code == 81);
}

TEST_CASE("train: a mistake in later steps alone is noticed by the losses") {
  const Ended ended = train("later-steps");
  CHECK(ended.code == 86);
  if (!speaks()) return;
  CHECK(ended.report.max_ulp == 0);
  REQUIRE(ended.report.curve.has_value());
  CHECK(ended.report.curve->wrong_step == 4);  // a wrong update in step 3 changes the loss of step 4
  CHECK_FALSE(ended.report.is_good());
}

TEST_CASE("train: parameters that the last update made NaN are refused, which no loss shows") {
  check_refused([] { train("last-step"); }, "expected finite parameters, given layer_0/weights",
                Code::not_finite);
}

TEST_CASE(
    "train: a figure that misses its form on one device is named with device and step, and ends in 86") {
  Ended ended = train("operations");
  CHECK(ended.code == 86);
  if (speaks()) {
    CHECK_FALSE(ended.report.flops.is_met());
    CHECK(ended.report.messages.is_met());
    const Index form = ended.report.flops.formula[1];
    CHECK(ended.report.flops.measured[1] == form + 16);
    CHECK(ended.report.flops.measured[0] == ended.report.flops.formula[0]);
    CHECK_THAT(ended.printed, contains("  device 1, step 2: operations: measured 13,456, formula 13,440\n"));
  }
  ended = train("message");
  CHECK(ended.code == 86);
  if (!speaks()) return;
  CHECK_THAT(ended.printed,
             contains("  device 1, step 1: messages: measured 8, formula 9: all_reduce 8 and not 9\n") &&
                 contains("8 not 9"));
}

TEST_CASE("train: bytes held that miss their form are named, too") {
  const Ended ended = train("memory", "sgd");
  CHECK(ended.code == 86);
  if (speaks())
    CHECK_THAT(ended.printed, contains("  device 1, step 1: bytes held: measured ") &&
                                  contains(": most at tests/equivalence/train_test.cpp:"));
}

/// The unsharded network is trained by the same code, so its losses would not show clipping after the step.
TEST_CASE("train: gradients are clipped before the step: half the norm and twice the rate are the same") {
  const Ended clipped = train("right", "sgd", {"--clip-norm", "0.01", "--learning-rate", "0.5"});
  const Ended halved = train("right", "sgd", {"--clip-norm", "0.005", "--learning-rate", "1"});
  const Ended as_it_is = train("right", "sgd", {"--learning-rate", "0.5"});
  if (!speaks()) return;
  for (std::size_t step = 0; step < clipped.report.losses.size(); ++step)
    CHECK(std::abs(halved.report.losses[step] / clipped.report.losses[step] - 1) < 1e-5);
  CHECK(std::abs(as_it_is.report.losses.back() / clipped.report.losses.back() - 1) > 1e-3);
}

TEST_CASE("gradients: each device's piece of the output is written at its rows") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                       ("shardbook_gradients_" + std::to_string(group().members()[0]));
  std::filesystem::create_directory(folder);
  const ExactProblem problem = make_exact_problem({2, 5, 7}, 8, 2);
  if (speaks()) {
    write_safetensors(folder / "params", problem.weights);
    write_safetensors(folder / "batch", {{"input", problem.input}, {"output_grad", problem.output_grad}});
  }
  group().barrier();
  CHECK(run_chapter(group(), only_chapter(),
                    {"gradients", "--params", folder / "params", "--batch", folder / "batch", "--out",
                     folder / "out"}) == 0);
  for (const char* variant : {"no-layer", "other-name"})
    CHECK_THAT(refusal([&] {
                 run_chapter(group(), only_chapter(),
                             {"gradients", "--variant", variant, "--params", folder / "params", "--batch",
                              folder / "batch", "--out", folder / "none"});
               }).message,
               contains("gradients: expected one of each name, given none for layer_1/weights"));
  if (!speaks()) return;
  const SafetensorsFile written(folder / "out");
  for (const auto& [name, expected] : solve(problem, group())) {
    CAPTURE(name);
    CHECK(written.read(name, all_of(expected.shape)) == expected.values);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace shard::testing
