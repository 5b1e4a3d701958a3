#include "costs.hpp"

#include <map>

#include "engine/schedules/interpreter.hpp"

namespace shard::pipeline {

namespace {

/// What one device of a pipeline sends, computes and holds in a step.
class PipelineCosts : public Interpreter {
 public:
  PipelineCosts(const MlpSetting& s, const Schedule& schedule, std::vector<Range> stages)
      : s_(s), schedule_(schedule), stages_(std::move(stages)) {}

  Costs costs() {
    Costs costs;
    costs.parameter_bytes = my_weights() * bytes_per_element;
    // Each layer of mine sees every row of the batch, whatever the micro-batches: three products, but dL/dx
    // of layer 0 only when it is asked for.
    for (int st = s_.device; st < count(); st += s_.devices)
      for (Index l = of(st).begin; l < of(st).end; ++l)
        costs.flops += (l > 0 || s_.input_grad ? 3 : 2) * product_flops(s_.batch, width(l), width(l + 1));
    costs[Collective::send] = messages();
    costs.peak_bytes = peak().bytes();
    return costs;
  }

 private:
  /// Between two stages on different devices every row travels forward as an activation, and back as its
  /// gradient: a message for each micro-batch that has rows.
  Traffic messages() const {
    const Index full = std::min(s_.batch, schedule_.micro_batches);
    Traffic sent;
    for (int st = s_.device; s_.devices > 1 && st < count(); st += s_.devices) {
      if (st + 1 < count()) sent += {full, s_.batch * width(of(st).end) * bytes_per_element};
      if (st > 0) sent += {full, s_.batch * width(of(st).begin) * bytes_per_element};
    }
    return sent;
  }

  /// The schedule, action by action, with what each takes and gives back, in elements.
  Peak peak() {
    held_ = my_weights();
    if (s_.device == 0) take(s_.batch * width(0));  // the batch
    interpret(schedule_, s_.device, *this);
    return peak_;
  }

  void post_receive(const Message& m) override { take(elements(m)); }
  void wait_sent(const Message& m) override { give(elements(m)); }  // held until it has left

  /// The inputs of all layers stay; the output is passed on, at the end beside a gradient as large.
  void forward(Index m, int stage) override {
    if (stage == 0) take(rows(m) * width(0));  // a copy of these rows of the batch
    for (Index l = of(stage).begin; l < of(stage).end; ++l) take(rows(m) * width(l + 1));
    if (stage + 1 < count()) return;
    take(rows(m) * width(s_.model.num_layers));  // dL/dout
    give(rows(m) * width(s_.model.num_layers));  // the output
  }

  /// With both halves, an input and its layer's output gradient go as soon as they have been used; otherwise
  /// both stay.
  void backward(Index m, int stage) override { go_back(m, stage, true); }
  void backward_input(Index m, int stage) override { go_back(m, stage, false); }
  void go_back(Index m, int stage, bool both) {
    for (Index l = of(stage).end; l-- > of(stage).begin;) {
      if (both) add_weight_grad(l);
      const bool goes_on = l > 0 || s_.input_grad;
      if (goes_on) take(rows(m) * width(l));               // dL/da
      if (both && goes_on) give(rows(m) * width(l + 1));   // d
      if (both) give(rows(m) * width(l));                  // a
      if (both && !goes_on) give(rows(m) * width(l + 1));  // the last d
    }
    if (stage > 0 || !s_.input_grad) return;
    if (!has_dx_) take(s_.batch * width(0));  // dL/dx, whole, into which pieces are copied
    has_dx_ = true;
    give(rows(m) * width(0));
  }

  void backward_weights(Index m, int stage) override {
    for (Index l = of(stage).end; l-- > of(stage).begin;) {
      add_weight_grad(l);
      give(rows(m) * (width(l) + width(l + 1)));  // a and d
    }
  }

  /// The first addend becomes the sum; later ones lie beside it until they are added.
  void add_weight_grad(Index l) {
    take(s_.model.weights(l));
    if (has_dw_[l]) give(s_.model.weights(l));
    has_dw_[l] = true;
  }

  void take(Index elements) { peak_.at({held_ += elements}); }
  void give(Index elements) { held_ -= elements; }

  int count() const { return static_cast<int>(stages_.size()); }
  Range of(int stage) const { return stages_[static_cast<std::size_t>(stage)]; }
  Index width(Index layer) const { return s_.model.width(layer); }
  Index rows(Index m) const {
    return part(s_.batch, static_cast<int>(schedule_.micro_batches), static_cast<int>(m)).size();
  }
  Index elements(const Message& m) const {
    return rows(m.micro_batch) * width(m.flow == Flow::activation ? of(m.stage).begin : of(m.stage).end);
  }
  Index my_weights() const {
    Index sum = 0;
    for (int st = s_.device; st < count(); st += s_.devices)
      for (Index l = of(st).begin; l < of(st).end; ++l) sum += s_.model.weights(l);
    return sum;
  }

  const MlpSetting& s_;
  const Schedule& schedule_;
  std::vector<Range> stages_;
  Index held_ = 0;
  Peak peak_;
  bool has_dx_ = false;
  std::map<Index, bool> has_dw_;
};

}  // namespace

Costs pipeline_costs(const MlpSetting& s, const Schedule& schedule, const std::vector<Range>& stages) {
  return PipelineCosts(s, schedule, stages).costs();
}

}  // namespace shard::pipeline
