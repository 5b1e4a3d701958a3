#include "engine/program/mains/shown.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/basics/options.hpp"
#include "engine/basics/printable.hpp"
#include "engine/proof/compare.hpp"

namespace shard {

std::vector<Index> numbers_of(int argc, char** argv, std::vector<Number> numbers) {
  std::vector<Index> values;
  for (const Number& number : numbers) values.push_back(number.value);
  for (int i = 1; i < argc; ++i) {
    const auto at = static_cast<std::size_t>(i - 1);
    const bool is_known = at < numbers.size();
    if (!is_known || !is_number(argv[i], [](Index n) { return n >= 1 && n <= 4096; }))
      throw Error(Code::usage, "{}: expected {}, given {}", is_known ? numbers[at].name : "arguments",
                  is_known ? "a whole number from 1 to 4096" : fmt::format("at most {}", numbers.size()),
                  printable(argv[i], 60));
    values[at] = std::stoll(argv[i]);
  }
  return values;
}

Tensor rows_on_device(const HostTensor& matrix, Range rows) {
  return slice(Tensor::from_host(matrix.shape, matrix.values), 0, rows.begin, rows.end);
}

Gradients step_of(ShardedEngine& engine, const ExactProblem& problem) {
  return engine.forward_backward(
      rows_on_device(problem.input, engine.input_rows(problem.input.shape[0])),
      [&](const Tensor& output, Index first) {
        return rows_on_device(problem.output_grad, {first, first + output.extent(0)});
      });
}

Gradients step_of(ShardedEngine& engine, TrainingBatch& batch, Index rows) {
  return engine.forward_backward(
      batch.input(engine.input_rows(rows)),
      [&](const Tensor& output, Index first) { return batch.loss_gradient(output, first); });
}

void show_loss(Communicator& group, Index step, Index steps, const TrainingBatch& batch) {
  const double loss = batch.loss(group);
  if (group.device_id() == 0 && (step == 1 || step % (steps / 5) == 0))
    fmt::print("step {:3}   loss {:.5f}\n", step, loss);
}

void show_owned(ShardedEngine& engine) {
  std::vector<std::string> parts;
  Index bytes = 0;
  for (const Trainable& t : engine.trainable()) {
    const bool is_whole = shape_of(t.ranges) == t.whole;
    parts.push_back(fmt::format("{} {}", t.name, is_whole ? "whole" : to_string(t.ranges)));
    bytes += bytes_per_element * num_elements(t.parameter.shape());
  }
  const std::string mine = fmt::format("{:6} bytes: {}", bytes, fmt::join(parts, "; "));
  const std::vector<std::string> all = engine.group().gather("what each device owns", mine);
  for (std::size_t device = 0; device < all.size(); ++device)
    fmt::print("{} device {}   {}\n", device == 0 ? "own  " : "     ", device, all[device]);
}

void show_equal(Communicator& group, const Gradients& given, const Solution& expected) {
  Index count = 0;
  for (const auto& [name, whole] : expected) {
    if (name == "output" || name == Gradients::input_grad) continue;
    const auto found = given.find(name);
    if (found == given.end()) throw Error(Code::differs, "{}: expected a gradient, given none", name);
    const Comparison compared = compare(name, found->second, whole);
    if (!compared.is_equal()) throw Error(Code::differs, "{}", compared.first_difference);
    ++count;
  }
  group.barrier();
  if (group.device_id() == 0) fmt::print("equal in every bit: {} gradients, on each device\n", count);
}

void show_equal(Communicator& group, const Gradients& given, const Gradients& unsharded) {
  Solution expected;
  for (const auto& [name, whole] : unsharded)
    expected[name] = {whole.global_shape(), whole.local().to_host()};
  show_equal(group, given, expected);
}

void show_sent(Communicator& group, const std::string& line, const Traffic& formula) {
  const Traffic sent = ledger().traffic();
  if (sent != formula)
    throw Error(Code::differs, "device {}: {}: expected {} bytes in {} messages, given {} in {}",
                group.device_id(), line, formula.bytes, formula.messages, sent.bytes, sent.messages);
  const std::vector<Index> all = group.exchange("bytes sent", sent.bytes);
  if (group.device_id() == 0)
    fmt::print("sent  {}: {} bytes, as the formula says\n", line, fmt::join(all, ", "));
  ledger().reset();
}

}  // namespace shard
