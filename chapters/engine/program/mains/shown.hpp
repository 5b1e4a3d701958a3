#pragma once

/// What the chapters' short mains print: own, equal, sent. Each function is a collective; device 0 prints.

#include <string>
#include <vector>

#include "engine/device/books/collective_costs.hpp"
#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/workload.hpp"

namespace shard {

/// A number of the command line, and its value without one: {"layers", 2}.
struct Number {
  const char* name;
  Index value;
};
/// The numbers behind the program's name. \throws Error usage for more of them, and for other texts
std::vector<Index> numbers_of(int argc, char** argv, std::vector<Number> numbers);

/// These rows of a matrix on the host.
Tensor rows_on_device(const HostTensor& matrix, Range rows);
/// The gradients of one step with the problem's input and dL/dout.
Gradients step_of(ShardedEngine& engine, const ExactProblem& problem);
/// The gradients of one step of training.
Gradients step_of(ShardedEngine& engine, TrainingBatch& batch, Index rows);
/// The loss over the whole batch: of step 1, and of each fifth of all steps.
void show_loss(Communicator& group, Index step, Index steps, const TrainingBatch& batch);

/// 1. Own: which indices of each parameter each device has, and its bytes.
void show_owned(ShardedEngine& engine);
/// 2. Equal: each device compares its part of each gradient with the whole one. \throws Error differs
/// @{
void show_equal(Communicator& group, const Gradients& given, const Solution& expected);
void show_equal(Communicator& group, const Gradients& given, const Gradients& unsharded);
/// @}
/// 3. Sent: what this device has sent since the last such line, and the formula's bytes. \throws Error differs
void show_sent(Communicator& group, const std::string& line, const Traffic& formula);

}  // namespace shard
