#include "engine/workloads/mixture/mixture.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mlp/mlp.hpp"

namespace shard {

namespace {

/// A function makes the options at its first call, since kinds are made before other files' globals.
struct MixtureOptions {
  Option<Index> layers{"--layers", 2,
                       "Weight matrices of each expert; an even number, as the output is an image"};
  Option<Index> hidden_dim{"--hidden-dim", 128, "Width of the hidden activations"};
  // few numbers of devices divide it, so that cuts are uneven
  Option<Index> experts{"--experts", 7, "Experts, each a stack of these layers"};
  Option<std::string> capacity_factor{
      "--capacity-factor", "1.25",
      "An expert takes this many times its even share of the choices, and drops the rest; or none", "X"};
  Option<double> aux_weight{"--aux-weight", 0.01, "Of the loss that balances the load"};
  Option<double> skew{
      "--skew", 0,
      "Makes the router prefer low experts: lowers the logit of expert e by X e. Exact mode: by 0"};
  Option<Index> top_k{"--top-k", 2, "Experts for each token"};
  Option<Index> one_expert{"--top-k", 1, "Experts for each token"};

  MixtureOptions() {
    capacity_factor.expected = "a finite number above 0, or none";
    capacity_factor.accepts = [](const std::string& text) {
      return text == "none" || is_number(text, [](double x) { return x > 0 && std::isfinite(x); });
    };
    top_k.expected = "a whole number from 2 to 2^30 (1 is what the variants switch and switch-data do)";
    top_k.accepts = [](const std::string& text) {
      return is_number(text, [](Index n) { return n >= 2 && n <= Index{1} << 30; });
    };
    one_expert.expected = "1 (more is what the variants top-k and expert-data do)";
    one_expert.accepts = [](const std::string& text) { return text == "1"; };
  }
};
const MixtureOptions& option() {
  static const MixtureOptions options;
  return options;
}

class MixtureKind : public WorkloadKind {
 public:
  explicit MixtureKind(Index top_k) : top_k_(top_k) {}

  std::string name() const override { return "mixture"; }
  std::string parameters_help() const override {
    return "safetensors file with router/weights, expert_0/layer_0/weights, ...";
  }
  std::vector<OptionText> training_options() const override {
    return {option().layers, option().hidden_dim, option().experts, DenoisingWorkload::data_option()};
  }
  std::vector<OptionText> options() const override {
    return {top_k(), option().capacity_factor, option().aux_weight, option().skew};
  }
  std::shared_ptr<Workload> make(const Options& o) const override {
    const MixtureModel model{{o[option().layers], Digits::pixels, o[option().hidden_dim]},
                             o[option().experts]};
    return std::make_shared<Mixture>(model, rule(o), o[DenoisingWorkload::data_option()]);
  }
  bool deepen(Options& options, const Options& given) const override {
    if (given.has(option().layers.name)) return false;
    options = options.with(option().layers, options[option().layers] + 2);
    return true;
  }
  std::shared_ptr<Workload> read(const Checkpoint& checkpoint, const Options& o) const override {
    return std::make_shared<Mixture>(mixture_of(checkpoint), rule(o));
  }
  std::shared_ptr<Workload> sized(Index layers, Index model_dim, Index hidden_dim) const override {
    return std::make_shared<Mixture>(MixtureModel{{layers, model_dim, hidden_dim}, 4}, RoutingRule{top_k_});
  }

 private:
  const Option<Index>& top_k() const { return top_k_ == 1 ? option().one_expert : option().top_k; }
  RoutingRule rule(const Options& o) const {
    RoutingRule rule{o[top_k()], std::nullopt, o[option().aux_weight], o[option().skew]};
    const std::string factor = o[option().capacity_factor];
    if (factor != "none") rule.capacity_factor = std::strtod(factor.c_str(), nullptr);
    return rule;
  }

  Index top_k_;
};

}  // namespace

const WorkloadKind& mixture(Index top_k) {
  static const MixtureKind one(1), several(2);
  return top_k == 1 ? one : several;
}

Mixture::Mixture(const MixtureModel& model, const RoutingRule& rule, const std::string& data)
    : DenoisingWorkload(data), model_(model), rule_(rule) {
  require_experts(rule_, model_.num_experts);
}

const WorkloadKind& Mixture::kind() const {
  return mixture(rule_.top_k);
}

std::string Mixture::describe() const {
  return fmt::format("{} experts of {} layers {} -> {}", model_.num_experts, model_.num_layers,
                     model_.model_dim, model_.hidden_dim);
}

std::vector<Parameter> Mixture::parameters() const {
  std::vector<Parameter> all;
  for (Index e = 0; e < model_.num_experts; ++e)
    for (Parameter& p : stack_parameters(model_, fmt::format("expert_{}/", e))) all.push_back(std::move(p));
  all.push_back({router_name(),
                 {model_.model_dim, model_.num_experts},
                 std::sqrt(3.0F / static_cast<float>(model_.model_dim))});
  return all;
}

double Mixture::parameter_elements() const {
  return static_cast<double>(model_.num_experts) *
         (stack_elements(model_) + static_cast<double>(model_.model_dim));
}

std::string Mixture::input_hint(Index width) const {
  if (width != model_.num_experts || width == model_.model_dim) return "";
  return fmt::format("{} is {}: PyTorch stores (out, in)?", router_name(),
                     to_string({model_.model_dim, model_.num_experts}));
}

void Mixture::note(const ShardedEngine& engine, Journal& journal) const {
  const auto& router = dynamic_cast<const RoutesTokens&>(engine);
  const RoutedCounts& counts = router.routed();
  std::vector<Index> chosen;
  for (Index e = 0; e < counts.num_experts; ++e) chosen.push_back(counts.chosen_for(e));
  journal.add(counts, std::move(chosen), router.copies());
}

std::shared_ptr<const StepData> Mixture::choices(const ShardedEngine& engine) const {
  return std::make_shared<RoutedStep>(dynamic_cast<const RoutesTokens&>(engine).routed());
}

constexpr const char* order_of_slots =
    "up to the capacity, slots go to one rank after the other, and in each to one device after the other";

std::string RoutedStep::difference_from(const StepData& expected) const {
  const RoutedCounts& right = dynamic_cast<const RoutedStep&>(expected).counts;
  for (Index e = 0; e < right.num_experts; ++e)
    for (Index r = 0; r < right.top_k; ++r)
      for (int d = 0; d < right.devices; ++d) {
        const Index wanted = right.at(right.kept, d, r, e), given = counts.at(counts.kept, d, r, e);
        if (wanted != given)
          return fmt::format(
              "choices of device {}'s tokens for expert {}, of rank {}: expected {} with a slot, "
              "given {}: {}",
              d, e, r, wanted, given, order_of_slots);
      }
  return "";
}

const Mixture& as_mixture(const Workload& workload) {
  const auto* mixture = dynamic_cast<const Mixture*>(&workload);
  if (mixture == nullptr) refuse(Code::internal, "mixture", "the workload mixture", workload.kind().name());
  return *mixture;
}

MixtureSetting::MixtureSetting(const Setting& setting)
    : Setting(setting),
      model(as_mixture(*setting.workload).model()),
      rule(as_mixture(*setting.workload).rule()) {
  routed = dynamic_cast<const RoutedStep&>(*setting.data).counts;
}

}  // namespace shard
