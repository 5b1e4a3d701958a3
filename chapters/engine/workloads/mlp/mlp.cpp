#include "engine/workloads/mlp/mlp.hpp"

#include <fmt/format.h>

#include <cmath>

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"
#include "engine/workloads/mlp/t5_block.hpp"

namespace shard {

namespace {

const Option<Index>& layers_option() {
  static const Option<Index> layers("--layers", 2,
                                    "Weight matrices; an even number, as the output is an image again");
  return layers;
}
const Option<Index>& hidden_option() {
  static const Option<Index> hidden("--hidden-dim", 128, "Width of the hidden activations");
  return hidden;
}

class MlpKind : public WorkloadKind {
 public:
  std::string name() const override { return "mlp"; }
  std::string parameters_help() const override {
    return "safetensors file with layer_0/weights, layer_1/weights, ...; or, with --block, the folder of a "
           "T5\n"
           "as Hugging Face's save_pretrained writes it";
  }
  std::vector<OptionText> training_options() const override {
    return {layers_option(), hidden_option(), DenoisingWorkload::data_option()};
  }
  std::shared_ptr<Workload> make(const Options& o) const override {
    return std::make_shared<Mlp>(Model{o[layers_option()], Digits::pixels, o[hidden_option()]},
                                 o[DenoisingWorkload::data_option()]);
  }
  bool deepen(Options& options, const Options& given) const override {
    if (given.has(layers_option().name)) return false;
    options = options.with(layers_option(), options[layers_option()] + 2);
    return true;
  }
  std::shared_ptr<Workload> read(const Checkpoint& checkpoint, const Options&) const override {
    return std::make_shared<Mlp>(model_of(checkpoint));
  }
  ForeignNames block_of(const ForeignModel& model, const std::string& block) const override {
    return t5_block(model, block);
  }
  std::shared_ptr<Workload> sized(Index layers, Index model_dim, Index hidden_dim) const override {
    return std::make_shared<Mlp>(Model{layers, model_dim, hidden_dim});
  }
};

}  // namespace

const WorkloadKind& mlp() {
  static const MlpKind kind;
  return kind;
}

MlpSetting::MlpSetting(const Setting& setting) : Setting(setting) {
  const auto* mlp = dynamic_cast<const Mlp*>(setting.workload);
  if (mlp == nullptr) refuse(Code::internal, "closed form", "the workload mlp", "another");
  model = mlp->model();
}

const WorkloadKind& Mlp::kind() const {
  return mlp();
}

std::string Mlp::describe() const {
  return fmt::format("{} layers {} -> {}", model_.num_layers, model_.model_dim, model_.hidden_dim);
}

std::vector<Parameter> stack_parameters(const Model& model, const std::string& before_name) {
  std::vector<Parameter> all;
  for (Index l = 0; l < model.num_layers; ++l) {
    const float gain = relu_before(l) ? 6.0F : 3.0F;
    all.push_back(
        {before_name + layer_name(l), model.shape(l), std::sqrt(gain / static_cast<float>(model.width(l)))});
  }
  return all;
}

std::vector<Parameter> Mlp::parameters() const {
  return stack_parameters(model_, "");
}

namespace {

/// An engine of these networks on one device, with whole tensors. It has no strategy, and shares no code with the
/// chapters. Weights are Replicated, since optimizers need layouts.
class UnshardedMlp : public ShardedEngine {
 public:
  using ShardedEngine::ShardedEngine;

  void load_checkpoint(const Checkpoint& checkpoint) override {
    weights_ = load_all<Replicated>(checkpoint, layer_names(checkpoint));
  }

  Placed forward(Tensor x) override {  // (B, D)
    inputs_.clear();
    for (Index l = 0; l < num_layers(); ++l) {
      if (relu_before(l)) x = relu(std::move(x));
      Tensor out = matmul(x, weights(l));
      inputs_.push_back(std::move(x));
      x = std::move(out);
    }
    return Replicated(group(), std::move(x));
  }

  Gradients backward(Tensor d) override {  // like the output
    Gradients gradients;
    for (Index l = num_layers() - 1; l >= 0; --l) {
      const Tensor& a = inputs_[static_cast<std::size_t>(l)];
      gradients.put(layer_name(l), Replicated(group(), matmul(transposed(a), d)));
      d = matmul(d, transposed(weights(l)));
      if (relu_before(l)) d = relu_backward(std::move(d), a);
    }
    if (wants_input_grad()) gradients.put(Gradients::input_grad, Replicated(group(), std::move(d)));
    return gradients;
  }

  Placement input_layout() const override { return Placement::replicated(); }
  Trainables trainable() override { return layers(weights_); }

 private:
  Index num_layers() const { return static_cast<Index>(weights_.size()); }
  const Tensor& weights(Index l) const { return weights_[static_cast<std::size_t>(l)].local(); }

  std::vector<Replicated> weights_;  // (D, F), (F, D), ...
  std::vector<Tensor> inputs_;       // each layer's input
};

}  // namespace

/// `train` compares a strategy's losses with its losses.
std::unique_ptr<ShardedEngine> Mlp::unsharded(Communicator& alone) const {
  return std::make_unique<UnshardedMlp>(alone);
}

std::string Mlp::input_hint(Index width) const {
  if (width != model_.hidden_dim || width == model_.model_dim) return "";
  return fmt::format("{} is {}: PyTorch stores (out, in)?", layer_name(0), to_string(model_.shape(0)));
}

void require_blocks(const Workload& network) {
  if (network.num_layers() % 2 != 0)
    throw Error(Code::usage,
                "tensor parallel cuts blocks of two layers: expected an even number of layers, given {}",
                network.num_layers());
}

}  // namespace shard
