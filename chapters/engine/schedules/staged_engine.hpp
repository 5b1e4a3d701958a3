#pragma once

#include <map>

#include "engine/basics/ranges.hpp"
#include "engine/engines/sharded_engine.hpp"
#include "engine/schedules/interpreter.hpp"
#include "engine/schedules/schedules.hpp"
#include "engine/schedules/timeline.hpp"

namespace shard {

/// The worker that carries out a pipeline's schedule on one device, for the engines of chapters 08 and 09: it
/// takes the micro-batches of a batch through the device's stages. (Chapter 04 explains a worker, and writes
/// its own, which also knows halves of a backward pass.)
///
/// `Part` computes a micro-batch m in the stages of this device. Stages send each other a `Part::Value`, one
/// tensor or several, and its gradient, another `Part::Value`. A stage keeps a `Part::Kept` for its backward pass.
///
///     Value input(Index m);                                            // what stage 0 reads
///     Value forward(Index m, int stage, Value x, Kept& kept);          // in the last stage: the output
///     Value backward(Index m, int stage, Value d, Kept kept);          // adds up gradients of weights
///     Value output_gradient(Index m, const Value& output, const LossGradient& of_rows);
///     std::vector<Shape> shapes(const Message& message);               // of the tensors that are sent
///     Tensor sent(Value& value, std::size_t i);                        // takes one of them
///     Value value(const Message& message, std::vector<Tensor> these);  // what has arrived
template <class Part>
class StageWorker : public Interpreter {
 public:
  using Value = typename Part::Value;

  /// `along`: the devices of the pipeline.
  StageWorker(Communicator& along, Part part) : part(std::move(part)), along_(along) {}

  /// Carries out this device's actions. The last stage calls `loss_gradient` or, without one, keeps the output.
  void run(const Schedule& schedule, const LossGradient& loss_gradient) {
    schedule_ = &schedule;
    last_ = schedule.stages - 1;
    loss_gradient_ = loss_gradient;
    interpret(schedule, along_.device_id(), *this);
  }
  /// The output of the only micro-batch, on the device of the last stage.
  Value take_output() { return take({Flow::activation, 0, last_ + 1}); }
  /// Passes the gradient of the output to the last stage.
  void give_output_grad(Value d) { put({Flow::gradient, 0, last_}, std::move(d)); }

  Part part;
  ForwardWork work;  ///< operations of each forward on this device

 protected:
  void forward(Index m, int s) override {
    typename Part::Kept kept;
    const Index before = operations_so_far();
    Value x = part.forward(m, s, s == 0 ? part.input(m) : take({Flow::activation, m, s}), kept);
    work[{m, s}] = operations_so_far() - before;
    if (!InferenceMode::is_on()) kept_.emplace(Piece{m, s}, std::move(kept));
    if (s < last_ || !loss_gradient_)
      put({Flow::activation, m, s + 1}, std::move(x));
    else
      put({Flow::gradient, m, s}, part.output_gradient(m, x, loss_gradient_));
  }
  void backward(Index m, int s) override {
    Value d = part.backward(m, s, take({Flow::gradient, m, s}), taken(kept_, {m, s}));
    if (s > 0) put({Flow::gradient, m, s - 1}, std::move(d));
  }

  void post_send(const Message& m) override {
    Value x = take(m);
    for (std::size_t i = 0; i < part.shapes(m).size(); ++i)
      sends_[m].push_back(along_.post_send(schedule_->receiver(m), part.sent(x, i)));
  }
  void post_receive(const Message& m) override {
    for (const Shape& shape : part.shapes(m))
      receives_[m].push_back(along_.post_receive(schedule_->sender(m), shape));
  }
  void wait_sent(const Message& m) override {
    auto sends = taken(sends_, m);
    for (Future<>& sent : sends) sent.wait();
  }
  void wait_received(const Message& m) override {
    auto receives = taken(receives_, m);
    std::vector<Tensor> tensors;
    for (Future<Tensor>& received : receives) tensors.push_back(received.get());
    put(m, part.value(m, std::move(tensors)));
  }

 private:
  using Piece = std::pair<Index, int>;  // micro-batch and stage

  void put(const Message& m, Value t) { values_.insert_or_assign(m, std::move(t)); }
  Value take(const Message& m) { return taken(values_, m); }

  Communicator& along_;
  const Schedule* schedule_ = nullptr;  // null before run()
  int last_ = 0;                        // the last stage
  LossGradient loss_gradient_;
  std::map<Message, Value> values_;
  std::map<Piece, typename Part::Kept> kept_;
  std::map<Message, std::vector<Future<>>> sends_;
  std::map<Message, std::vector<Future<Tensor>>> receives_;
};

/// A pipeline of chapters 08 and 09: its devices, or those along an axis of its mesh, have the network's stages.
/// Base is the class that engines of the workload derive from. `Part` computes a device's stages (StageWorker).
template <class Part, std::derived_from<ShardedEngine> Base>
class StagedEngine : public Base {
 public:
  using Base::Base;

  /// ## Forward
  /// The whole batch goes through the stages as one micro-batch.
  Placed forward(Tensor input) override {
    auto worker = std::make_unique<Worker>(begin(input, 1));
    worker->run(one_micro_batch(Action::Kind::forward, places(), num_stages()), {});
    Placed output = output_of(*worker);
    tape_.push(std::move(worker));
    return output;
  }

  /// ## Backward
  Gradients backward(Tensor dout) override {
    auto [worker] = tape_.pop();
    if (is_at_end()) worker->give_output_grad(output_gradient_of(worker->part, std::move(dout)));
    worker->run(one_micro_batch(Action::Kind::backward, places(), num_stages()), {});
    return gradients_of(worker->part);
  }

  /// ## A step by its schedule
  /// Training uses this: all devices work at the same time, on different micro-batches.
  Gradients forward_backward(Tensor input, const LossGradient& loss_gradient) override {
    Worker worker = begin(input, micro_batches_);
    before_step(worker.part);
    worker.run(schedule_, loss_gradient);
    work_ = std::move(worker.work);
    return gradients_of(worker.part);
  }
  std::string describe_step() override { return describe(schedule_, work_of_all(along(), work_)); }

 protected:
  using Worker = StageWorker<Part>;

  /// \name What an engine defines
  /// @{
  /// The devices of the pipeline.
  virtual Communicator& along() { return this->group(); }
  /// The number of stages on all devices together.
  virtual int num_stages() { return places(); }
  /// Makes the worker for a batch that is cut into micro-batches. May move the input.
  virtual Worker begin(Tensor& input, Index micro_batches) = 0;
  /// The output of a forward pass. The worker of the last stage has it. Called on all devices.
  virtual Placed output_of(Worker& worker) = 0;
  /// The gradient for the last stage, from dL/dout.
  virtual typename Part::Value output_gradient_of(Part& part, Tensor dout) = 0;
  virtual Gradients gradients_of(Part& part) = 0;
  /// Called before a step. May set another schedule for this batch.
  virtual void before_step(const Part&) {}
  /// @}

  int places() { return along().num_devices(); }
  bool is_at_end() { return along().device_id() == places() - 1; }
  /// Sets the schedule of the next steps. \throws Error internal for a wrong schedule
  void set_schedule(Index micro_batches, const Work& work) {
    schedule_ = proved(with_messages(num_stages(), micro_batches, work));
  }

  Index micro_batches_ = 1;  // in a step

 private:
  Schedule schedule_;
  ForwardWork work_;  // of the last step, on this device
  Tape<std::unique_ptr<Worker>> tape_;
};

}  // namespace shard
