#include "pipeline_costs.hpp"

#include "costs.hpp"
#include "engine/schedules/interpreter.hpp"

namespace shard::meshes {

namespace {

/// What one device sends, computes and holds in a step.
class ThreeAxesCosts : public Interpreter {
 public:
  ThreeAxesCosts(const MlpSetting& s, const MeshShape& mesh, const Schedule& schedule)
      : s_(s),
        schedule_(schedule),
        data_(mesh, "data", s.device),
        pipeline_(mesh, "pipeline", s.device),
        tensor_(mesh, "tensor", s.device),
        b_(data_.part_of(s.batch)),
        D_(s.model.model_dim),
        f_(tensor_.part_of(s.model.hidden_dim)) {}

  Costs costs() {
    Costs costs;
    costs.parameter_bytes = my_layers() * weights() * bytes_per_element;
    costs.flops = (3 * my_layers() - (has_first() && !s_.input_grad ? 1 : 0)) * product_flops(b_, D_, f_);
    costs.send_along("pipeline", Collective::send, messages());
    costs.send_along("data", Collective::all_reduce,
                     my_layers() * ring_all_reduce(weights(), data_.devices, data_.place));
    costs.send_along("tensor", Collective::all_reduce, reductions_of_activations());
    costs.peak_bytes = peak().bytes();
    return costs;
  }

 private:
  Traffic messages() const {
    const Traffic of_boundary = {std::min(b_, schedule_.micro_batches), b_ * D_ * bytes_per_element};
    Traffic sent;
    for (int st = pipeline_.place; pipeline_.devices > 1 && st < count(); st += pipeline_.devices) {
      if (st + 1 < count()) sent += of_boundary;
      if (st > 0) sent += of_boundary;
    }
    return sent;
  }

  Traffic reductions_of_activations() const {
    Traffic sent;
    const Index of_micro_batch = my_layers() - (has_first() && !s_.input_grad ? 1 : 0);
    for (Index m = 0; m < schedule_.micro_batches; ++m)
      sent += of_micro_batch * ring_all_reduce(rows(m) * D_, tensor_.devices, tensor_.place);
    return sent;
  }

  /// The schedule, action by action, with what each takes and gives back, in elements; then the reductions
  /// over data.
  Peak peak() {
    held_ = my_layers() * weights();
    if (has_first()) take(b_ * D_);  // my rows of the batch
    interpret(schedule_, pipeline_.place, *this);
    peak_.at({held_, ring_buffer(weights(), data_.devices)});
    return peak_;
  }

  void post_receive(const Message& m) override { take(rows(m.micro_batch) * D_); }
  void wait_sent(const Message& m) override { give(rows(m.micro_batch) * D_); }  // held until it has left

  /// Inputs and hidden activations of all blocks stay. The output is passed on, at the end beside a gradient
  /// as large.
  void forward(Index m, int stage) override {
    const Index x = rows(m) * D_;
    if (stage == 0) take(x);  // a copy of these rows
    for (Index i = of(stage).begin; i < of(stage).end; ++i) {
      take(rows(m) * f_);  // h
      take_reduced(x);     // the output
    }
    if (stage + 1 < count()) return;
    take(x);  // dL/dout
    give(x);  // the output
  }

  void backward(Index m, int stage) override {
    const Index x = rows(m) * D_, h = rows(m) * f_;
    for (Index i = of(stage).end; i-- > of(stage).begin;) {
      add_addend(has_dw1_, i);
      take(h);  // dh, then dz
      add_addend(has_dw0_, i);
      if (i > 0 || s_.input_grad) take_reduced(x);  // dx
      give(x + h + x + h);                          // d and dz, and what the forward pass kept: x and h
    }
    if (stage > 0 || !s_.input_grad) return;
    if (!has_dx_) take(b_ * D_);  // dL/dx of all my rows, into which pieces are copied
    has_dx_ = true;
    give(x);
  }

  /// An activation, and the buffer of its reduction over tensor.
  void take_reduced(Index elements) {
    take(elements);
    peak_.at({held_, ring_buffer(elements, tensor_.devices)});
  }
  /// The first addend becomes the sum; later ones lie beside it until they are added.
  void add_addend(std::vector<bool>& has, Index block) {
    has.resize(static_cast<std::size_t>(s_.model.num_layers / 2));
    take(weights());
    if (has[static_cast<std::size_t>(block)]) give(weights());
    has[static_cast<std::size_t>(block)] = true;
  }
  void take(Index elements) { peak_.at({held_ += elements}); }
  void give(Index elements) { held_ -= elements; }

  int count() const { return schedule_.stages; }
  Range of(int stage) const { return part(s_.model.num_layers / 2, count(), stage); }
  bool has_first() const { return pipeline_.place == 0; }
  Index weights() const { return D_ * f_; }  // of this device's part of a layer
  Index rows(Index m) const {
    return part(b_, static_cast<int>(schedule_.micro_batches), static_cast<int>(m)).size();
  }
  Index my_layers() const {
    Index blocks = 0;
    for (int st = pipeline_.place; st < count(); st += pipeline_.devices) blocks += of(st).size();
    return 2 * blocks;
  }

  const MlpSetting& s_;
  const Schedule& schedule_;
  Along data_, pipeline_, tensor_;
  Index b_, D_, f_;
  Index held_ = 0;
  Peak peak_;
  bool has_dx_ = false;
  std::vector<bool> has_dw0_, has_dw1_;
};

}  // namespace

Costs data_pipeline_tensor_costs(const MlpSetting& s, const MeshShape& mesh, const Schedule& schedule) {
  return ThreeAxesCosts(s, mesh, schedule).costs();
}

}  // namespace shard::meshes
