/// What `train` says of engines that are wrong: the exit code, the report, and the lines that explain it.

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/files/safetensors/safetensors.hpp"
#include "engine/files/safetensors/writer.hpp"
#include "engine/program/commands.hpp"
#include "engine/program/report.hpp"
#include "engine/workloads/mlp/layers.hpp"
#include "engine/workloads/mlp/mlp.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

namespace shard::testing {

RUNS_ON(.in_one_process = {}, .processes = {3});

namespace {

enum class Mistake {
  none,
  reduced_if_wanted,  // weights' gradients are summed only where dL/dx is wanted, too
  mask_if_wanted,     // so is the ReLU's derivative applied
  averaged,           // gradients are means over the devices
  one_device,         // device 1 alone adds 1 to a weight's gradient
  no_input_grad,      // device 1 does not return dL/dx
  no_layer,           // there is no gradient of layer 1
  other_name,         // the gradient of layer 1 has another name
  not_trained,        // the optimizer does not know layer 1
  not_trained_on_1,   // the same on device 1 alone
  later_steps,        // gradients are 0 from the third step on
  operations,         // device 1 makes a product too many, from step 2 on
  message,            // device 1 is told of a message too many
  memory,             // and of four bytes more than it holds
  claim,              // what device 1 says is the same on all devices is not, and is not used
  claim_then_call,    // and then the devices reduce tensors of different shapes
  claim_of_part       // the same, said by devices 0 and 1 alone
};

/// Data parallel, with plain tensors, and one mistake.
class Mistaken : public ShardedEngine {
 public:
  Mistaken(Communicator& group, Mistake mistake) : ShardedEngine(group), mistake_(mistake) {}

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
      if (l != 1 || !is(Mistake::no_layer))
        gradients.put(layer_name(static_cast<Index>(l == 1 && is(Mistake::other_name) ? 7 : l)),
                      std::move(sum));
      if (l > 0 || wants_input_grad()) d = matmul(d, transposed(weights_[l]));
      const bool has_mask = is(Mistake::mask_if_wanted) ? wants_input_grad() : true;
      if (relu_before(static_cast<Index>(l)) && has_mask) d = relu_backward(std::move(d), inputs_[l]);
    }
    if (wants_input_grad() && (!is(Mistake::no_input_grad) || device_id() != 1))
      gradients.put(Gradients::input_grad, std::move(d));
    if (is(Mistake::operations) && device_id() == 1 && steps_ >= 2) matmul(Tensor({2, 2}), Tensor({2, 2}));
    const Shape other{device_id() == 1 ? 2 : 3};
    if (is(Mistake::claim) || is(Mistake::claim_then_call)) Replicated(group(), Tensor(other));
    if (is(Mistake::claim_then_call)) group().all_reduce_async(Tensor(other), ReduceOp::sum).get();
    if (is(Mistake::claim_of_part)) {
      const std::unique_ptr<Communicator> part = group().split(device_id() < 2 ? 0 : 1, device_id());
      Replicated(*part, Tensor({device_id() == 1 ? 2 : 3}));
    }
    return gradients;
  }
  Placement input_layout() const override { return Placement::sharded(0); }
  Trainables trainable() override {
    Trainables all = layers(weights_);
    if (is(Mistake::not_trained) || (is(Mistake::not_trained_on_1) && device_id() == 1)) all.pop_back();
    return all;
  }

 private:
  bool is(Mistake mistake) const { return mistake_ == mistake; }
  Tensor sum_of(const Tensor& addend) {
    if (is(Mistake::reduced_if_wanted) && !wants_input_grad()) return addend.clone();
    Tensor sum = all_reduce(addend.clone(), is(Mistake::averaged) ? ReduceOp::avg : ReduceOp::sum);
    if (is(Mistake::later_steps) && steps_ >= 3) return Tensor(sum.shape());
    if (is(Mistake::one_device) && device_id() == 1) {
      std::vector<float> values = sum.to_host();
      values.back() += 1;
      return Tensor::from_host(sum.shape(), values);
    }
    return sum;
  }

  Mistake mistake_;
  Index steps_ = 0;
  std::vector<Replicated> weights_;
  std::vector<Sharded<0>> inputs_;
};

/// What an engine without a mistake sends and computes; bytes held are what they are.
Costs costs_of(const MlpSetting& s, Mistake mistake) {
  Costs costs;
  for (Index l = 0; l < s.model.num_layers; ++l)
    costs[Collective::all_reduce] += ring_all_reduce(s.model.weights(l), s.devices, s.device);
  if (mistake == Mistake::message && s.device == 1) ++costs[Collective::all_reduce].messages;
  const Index rows = part(s.batch, s.devices, s.device).size();
  for (Index l = 0; l < s.model.num_layers; ++l)
    costs.flops += (l > 0 ? 3 : 2) * product_flops(rows, s.model.width(l), s.model.width(l + 1));
  costs.peak_bytes = ledger().peak() + (mistake == Mistake::memory && s.device == 1 ? 4 : 0);
  return costs;
}

Variant variant(const std::string& name, Mistake mistake, bool has_costs = true) {
  Variant v;
  v.name = name;
  v.make = [=](Communicator& group, const Workload&, const Options&) {
    return std::make_unique<Mistaken>(group, mistake);
  };
  if (has_costs) v.costs = [=](const Setting& s, const Options&) { return costs_of(s, mistake); };
  return v;
}

const RegisteredChapter registered(
    {.workload = &mlp(),
     .variants = {
         variant("right", Mistake::none), variant("without-forms", Mistake::none, false),
         variant("reduced-if-wanted", Mistake::reduced_if_wanted),
         variant("mask-if-wanted", Mistake::mask_if_wanted), variant("averaged", Mistake::averaged),
         variant("one-device", Mistake::one_device), variant("no-input-grad", Mistake::no_input_grad),
         variant("no-layer", Mistake::no_layer), variant("other-name", Mistake::other_name),
         variant("not-trained", Mistake::not_trained), variant("not-trained-on-1", Mistake::not_trained_on_1),
         variant("later-steps", Mistake::later_steps), variant("operations", Mistake::operations),
         variant("message", Mistake::message), variant("memory", Mistake::memory),
         variant("false-claim", Mistake::claim), variant("false-claim-then-call", Mistake::claim_then_call),
         variant("false-claim-of-part", Mistake::claim_of_part)}});

/// How a run ended.
struct Ended {
  int code = 0;
  std::string printed;  // by this device
  Report report;        // on device 0
};

/// What is printed while it lives goes to a file.
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
    std::vector<std::string> words = {"train",
                                      "--variant",
                                      variant,
                                      "--steps",
                                      "6",
                                      "--batch",
                                      "10",
                                      "--hidden-dim",
                                      "7",
                                      "--optimizer",
                                      optimizer,
                                      "--report",
                                      folder / "report.json"};
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
  if (speaks()) CHECK_THAT(ended.printed, contains("\n  and on others: 3 in all\n"));
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

/// The others have not heard of it: there is no second attempt, and they wait for the first one's end.
TEST_CASE("train: a false claim of some devices ends their run") {
  const Refusal refused = refusal([] { train("false-claim-of-part"); });
  CHECK(refused.code == 81);
  CHECK_THAT(refused.message, contains(me() == 2 ? "a gather of \"exact mode\""
                                                 : "given (2,) on device 1, and (3,) on device 0"));
  if (me() != 2) CHECK(refusal([] { group().gather("what device 2 waits in", ""); }).code == 81);
}

TEST_CASE("train: a mistake in later steps alone is noticed by the losses") {
  const Ended ended = train("later-steps");
  CHECK(ended.code == 86);
  if (!speaks()) return;
  CHECK(ended.report.max_ulp == 0);
  REQUIRE(ended.report.curve.has_value());
  CHECK(ended.report.curve->wrong_step == 4);  // the loss of a step is that of the weights before it
  CHECK_FALSE(ended.report.is_good());
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

/// The unsharded network is trained by the same step, so its losses would not show that clipping comes too late.
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
    CHECK(written.read(name, 0, 0, expected.shape[0]) == expected.values);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace shard::testing
