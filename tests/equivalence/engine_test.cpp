/// What all chapters use: cuts, random numbers, checkpoints, operations, optimizers, loss and data.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

#include "engine/engines/loss.hpp"
#include "engine/engines/tape.hpp"
#include "engine/files/safetensors/safetensors.hpp"
#include "engine/files/safetensors/writer.hpp"
#include "engine/proof/exact.hpp"
#include "engine/weights/checkpoint.hpp"
#include "engine/workloads/mlp/layers.hpp"
#include "engine/workloads/mlp/mlp.hpp"
#include "engine/workloads/random.hpp"
#include "tests/harness/refused.hpp"
#include "tests/harness/text_file.hpp"

namespace shard::testing {

namespace {

std::vector<float> counting(Index n, float first = 0) {
  std::vector<float> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), first);
  return values;
}

}  // namespace

TEST_CASE("part: contiguous, complete, the first ones get one more") {
  for (Index size : {0, 1, 4, 5, 7, 64})
    for (int parts : {1, 2, 3, 5, 8}) {
      Index begin = 0;
      for (int k = 0; k < parts; ++k) {
        Range r = part(size, parts, k);
        CHECK(r.begin == begin);
        CHECK(r.size() == size / parts + (k < size % parts ? 1 : 0));
        begin = r.end;
      }
      CHECK(begin == size);
    }
}

TEST_CASE("CounterRandom is Philox4x32-10: the known answers of its authors") {
  using Four = std::array<std::uint32_t, 4>;
  constexpr std::uint32_t ones = 0xffffffff;
  CHECK(CounterRandom::philox({0, 0, 0, 0}, {0, 0}) == Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(CounterRandom::philox({ones, ones, ones, ones}, {ones, ones}) ==
        Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(CounterRandom::philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("CounterRandom: the range and the moments of what it gives") {
  CounterRandom random(1, "moments");
  constexpr int n = 100000;
  double mean = 0, square = 0, uniform = 0;
  std::array<int, 5> counts{};
  for (std::uint64_t i = 0; i < n; ++i) {
    double z = random.normal(i);
    mean += z / n;
    square += z * z / n;
    float u = random.uniform(i);
    CHECK((u >= 0 && u < 1));
    uniform += double{u} / n;
    ++counts.at(static_cast<std::size_t>(random.integer(i, -2, 2) + 2));
  }
  // Five standard deviations of each estimate.
  CHECK(std::abs(mean) < 5 / std::sqrt(n));
  CHECK(std::abs(square - 1) < 5 * std::sqrt(2.0 / n));
  CHECK(std::abs(uniform - 0.5) < 5 * std::sqrt(1.0 / 12 / n));
  for (int c : counts) CHECK(std::abs(c - n / 5) < 5 * std::sqrt(n * 0.2 * 0.8));
  for (std::uint64_t i = 1; i < 8; ++i) CHECK(random.bits(i) != random.bits(i - 1));
  CHECK(CounterRandom(1, "a").bits(0) != CounterRandom(1, "b").bits(0));
  CHECK(CounterRandom(1, "a").bits(0) != CounterRandom(2, "a").bits(0));
}

TEST_CASE("a generated checkpoint's slice is that slice of the whole, along either axis") {
  std::unique_ptr<Checkpoint> checkpoint = generate_checkpoint(Mlp({3, 5, 7}).parameters(), 42);
  CHECK(checkpoint->names() ==
        std::vector<std::string>{"layer_0/weights", "layer_1/weights", "layer_2/weights"});
  Tensor whole = checkpoint->whole("layer_1/weights");
  CHECK(whole.shape() == Shape{7, 5});
  for (float w : whole.to_host()) CHECK(std::abs(w) <= std::sqrt(6.0F / 7));
  for (int axis : {0, 1})
    CHECK(checkpoint->slice("layer_1/weights", axis, 2, 4).to_host() == slice(whole, axis, 2, 4).to_host());
  CHECK(refusal([&] { checkpoint->shape("layer_3/weights"); }).code == 65);
  check_refused([&] { checkpoint->slice("layer_0/weights", 0, 3, 6); }, "");
}

TEST_CASE("initial values fill ±bound evenly, in each parameter with numbers of its own") {
  const Model model{4, 40, 50};
  std::unique_ptr<Checkpoint> checkpoint = generate_checkpoint(Mlp(model).parameters(), 42);
  for (Index l = 0; l < model.num_layers; ++l) {
    CAPTURE(l);
    const float gain = relu_before(l) ? 6 : 3;  // a ReLU halves the mean square
    const float bound = std::sqrt(gain / static_cast<float>(model.width(l)));
    const std::vector<float> weights = checkpoint->whole(layer_name(l)).to_host();
    const auto [least, most] = std::ranges::minmax(weights);
    CHECK((-bound <= least && least < -0.99F * bound));
    CHECK((0.99F * bound < most && most <= bound));
    const double mean = std::accumulate(weights.begin(), weights.end(), 0.0) / 2000;
    CHECK(std::abs(mean) < 5 * bound / std::sqrt(3.0 * 2000));  // five standard deviations
  }
  CHECK(checkpoint->whole(layer_name(0)).to_host() != checkpoint->whole(layer_name(2)).to_host());
}

TEST_CASE("a number in a file that is not finite is refused where it is read, with its place") {
  const TextFile file("");
  write_safetensors(file.path(), {{"w", {{2, 2}, {1, 2, NAN, 4}}}});
  const std::unique_ptr<Checkpoint> checkpoint = open_checkpoint(file.path());
  CHECK(checkpoint->slice("w", 0, 0, 1).to_host() == std::vector<float>{1, 2});
  const Refusal refused = refusal([&] { checkpoint->slice("w", 0, 1, 2); });
  CHECK(refused.code == 85);
  CHECK_THAT(refused.message, contains("w: expected finite numbers, given nan at (1, 0)"));
}

TEST_CASE("loading a slice charges just that slice to parameters") {
  std::unique_ptr<Checkpoint> checkpoint = generate_checkpoint(Mlp({2, 5, 7}).parameters(), 42);
  Index before = ledger().live(Purpose::parameters);
  ledger().reset();
  Tensor slice = checkpoint->slice("layer_0/weights", 1, 2, 4);
  CHECK(ledger().live(Purpose::parameters) - before == 5 * 2 * 4);
  CHECK(ledger().peak() == ledger().live());
  const Tensor copy = slice.clone();  // booked under the same purpose
  CHECK(ledger().live(Purpose::parameters) - before == 2 * 5 * 2 * 4);
}

TEST_CASE("a model is read from names and shapes, and what does not fit is named") {
  auto model_from = [](std::map<std::string, Shape> shapes) {
    std::map<std::string, HostTensor> tensors;
    for (const auto& [name, shape] : shapes)
      tensors[name] = {shape, std::vector<float>(static_cast<std::size_t>(num_elements(shape)))};
    return model_of(*host_checkpoint(tensors, "some file"));
  };
  CHECK(model_from({{"layer_0/weights", {5, 7}}, {"layer_1/weights", {7, 5}}, {"layer_2/weights", {5, 7}}}) ==
        Model{3, 5, 7});
  CHECK(model_from({{"layer_0/weights", {5, 7}}}) == Model{1, 5, 7});
  auto complaint = [&](std::map<std::string, Shape> shapes) {
    Refusal o = refusal([&] { model_from(shapes); });
    CHECK(o.code == 65);
    return o.message;
  };
  CHECK_THAT(complaint({{"layer_0/weights", {5, 7}}, {"layer_1/weights", {5, 7}}}),
             contains("layer_1/weights: expected (7, 5), given (5, 7): PyTorch stores (out, in)?"));
  CHECK_THAT(
      complaint({{"fc1.weight", {5, 7}}}),
      contains("expected layer_0/weights, layer_1/weights, ... without a gap, and no other (layers have "
               "no biases), given 1, one of them named fc1.weight, which is unknown"));
  CHECK(Mlp({2, 7, 5}).input_hint(5) == "layer_0/weights is (7, 5): PyTorch stores (out, in)?");
  CHECK(Mlp({2, 7, 5}).input_hint(7).empty());
  CHECK(Mlp({2, 7, 5}).input_hint(6).empty());
}

TEST_CASE("a tensor that was moved from is empty") {
  Tensor t({2, 3});
  const Tensor made(std::move(t));
  CHECK(t.shape() == Shape{0});
  t = Tensor({2, 3});
  Tensor assigned;
  assigned = std::move(t);
  CHECK(t.shape() == Shape{0});
  CHECK(t.to_host().empty());
  Tensor kept = Tensor::from_host({2}, std::vector<float>{1, 2});
  Tensor& same = kept;
  kept = std::move(same);  // to itself
  CHECK(difference(kept, {{2}, {1, 2}}) == "");
}

TEST_CASE("tensors print with their shape, long axes shortened") {
  auto print = [](Shape shape) {
    std::ostringstream out;
    out << Tensor::from_host(shape, counting(num_elements(shape)));
    return out.str();
  };
  CHECK(print({}) == "() 0");
  CHECK(print({3}) == "(3,) [0, 1, 2]");
  CHECK(print({2, 2}) == "(2, 2) [[0, 1]\n [2, 3]]");
  CHECK(print({2, 0}) == "(2, 0) [[]\n []]");
  CHECK(print({20}) == "(20,) [0, 1, 2, 3, ..., 16, 17, 18, 19]");
}

TEST_CASE("operations on tensors of any rank") {
  Tensor t = Tensor::from_host({2, 3, 2}, counting(12));
  CHECK(slice(t, 1, 1, 3).to_host() == std::vector<float>{2, 3, 4, 5, 8, 9, 10, 11});
  CHECK(slice(t, 2, 1, 1).shape() == Shape{2, 3, 0});
  Tensor left = slice(t, 1, 0, 1), right = slice(t, 1, 1, 3);
  std::array<const Tensor*, 2> parts = {&left, &right};
  CHECK(concatenate(parts, 1).to_host() == t.to_host());
  assign(Rows(t, 1, 2), Tensor({1, 3, 2}));
  CHECK(t.to_host() == std::vector<float>{0, 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0});
  REFUSED("", slice(t, 3, 0, 1));
  REFUSED("", slice(t, 1, 2, 4));
  REFUSED("", concatenate(parts, 0));
  REFUSED("", Tensor({2, -1}));
  REFUSED("", Tensor::from_host({3}, counting(2)));
  REFUSED("", std::move(t).reshaped({5}));
}

TEST_CASE("products in tf32 round their operands to 11 bits, of two as near to the even one") {
  const std::vector<float> values = {1 + 0x1p-10F, 1 + 0x1p-11F, 1 + 0x3p-11F, -1 - 0x1p-12F, 2049, 2051};
  set_precision(Precision::tf32);
  const Tensor read =
      matmul(Tensor::from_host({6, 1}, values), Tensor::from_host({1, 1}, std::vector<float>{1}));
  set_precision(Precision::float32);
  CHECK(read.to_host() == std::vector<float>{1 + 0x1p-10F, 1, 1 + 0x1p-9F, -1, 2048, 2052});
}

TEST_CASE("mean squared error: over the global batch, each row once") {
  MeanSquaredError loss(4, 2, [](Range rows) { return Tensor({rows.size(), 2}); });  // targets of 0
  Tensor first = loss.gradient(Tensor::from_host({1, 2}, std::vector<float>{1, 2}), 0);
  CHECK(first.to_host() == std::vector<float>{0.25F, 0.5F});  // 2 out / (4 · 2)
  loss.gradient(Tensor::from_host({3, 2}, std::vector<float>{0, 0, 0, 0, 1, 1}), 1);
  CHECK(loss.value(group()) == 7.0 / 8);
  CHECK(loss.gradient(Tensor({0, 2}), 4).shape() == Shape{0, 2});
}

TEST_CASE("the digits are all there") {
  Digits digits(Digits::default_path());
  CHECK(digits.size() == 1797);
  CHECK(digits.pixel(0, 2) == 5);
}

TEST_CASE("a batch's rows do not depend on who asks for them") {
  Digits digits(Digits::default_path());
  DenoisingBatch batch(digits, 1, 3);
  Tensor whole = batch.noisy({0, 8});
  CHECK(batch.noisy({3, 5}).to_host() == slice(whole, 0, 3, 5).to_host());
  CHECK(DenoisingBatch(digits, 1, 4).noisy({0, 8}).to_host() != whole.to_host());
  CHECK(DenoisingBatch(digits, 1, 4).clean({0, 8}).to_host() != batch.clean({0, 8}).to_host());
}

TEST_CASE("a batch's noise is normal, with a standard deviation of 0.3") {
  Digits digits(Digits::default_path());
  DenoisingBatch batch(digits, 1, 3);
  const double n = 200 * 64;
  const double square = sum_of_squares(subtract(batch.noisy({0, 200}), batch.clean({0, 200}))) / n;
  CHECK(std::abs(square - 0.09) < 5 * 0.09 * std::sqrt(2 / n));  // five standard deviations
}

TEST_CASE("exact problems are exact, have their kink, and refuse to overflow") {
  ExactProblem problem = make_exact_problem({6, 5, 7}, 9, 1);
  CHECK(std::all_of(problem.input.values.end() - 5, problem.input.values.end(),
                    [](float v) { return v == 0; }));
  CHECK(solve(problem, group()).size() == 8);
  for (auto& [name, weights] : problem.weights) std::ranges::fill(weights.values, 3.0F);
  Refusal o = refusal([&] { solve(problem, group()); });
  CHECK_THAT(o.message, contains("2^24"));
  // Each product is exact, and their sum, 2^24 + 1, is not.
  exact::Matrix row(1, 3), column(3, 1);
  row.values = {0x1p23, 0x1p23, 1};
  column.values = {1, 1, 1};
  CHECK(refusal([&] { exact::product(row, column); }).code == 64);
  row.values[2] = 0;
  CHECK(exact::product(row, column).at(0, 0) == 0x1p24);
}

TEST_CASE("a tape gives back the oldest first, and keeps nothing in inference mode") {
  Tape<int> tape;
  tape.push(1);
  tape.push(2);
  {
    InferenceMode no_tape;
    tape.push(3);
  }
  CHECK(std::get<0>(tape.pop()) == 1);
  CHECK(std::get<0>(tape.pop()) == 2);
  REFUSED("", tape.pop());
}

}  // namespace shard::testing
