#include "engine/proof/costs.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/files/model_folder.hpp"
#include "engine/printable.hpp"
#include "engine/program/commands.hpp"
#include "engine/program/training_step.hpp"

namespace shard {

namespace {

/// A step on one device, by the closed forms.
struct Row {
  std::string name;
  Costs costs;
  Index state_per_element;
  Traffic sent = costs.total();

  Index gradients() const { return costs.trained(); }
  Index state() const { return state_per_element * costs.trained(); }
  Index most() const { return costs.step_peak_bytes(state_per_element, false); }
  /// What the fullest moment has beside parameters, gradients and state: activations and buffers.
  Index rest() const { return most() - costs.parameter_bytes - gradients() - state(); }
};

/// \throws Error usage for an option of the network that a config.json says itself
std::shared_ptr<Workload> network_of(const WorkloadKind& kind, const Arguments& arguments) {
  if (arguments.config.empty()) return kind.make(arguments.options);
  const std::vector<std::string> read = kind.options_beside_config();
  for (const std::vector<OptionText>& options : {kind.options(), kind.training_options()})
    for (const OptionText& o : options)
      if (arguments.options.has(o.name) && std::ranges::find(read, o.name) == read.end())
        throw Error(Code::usage, fmt::format("{}: expected without --config, which says it, given {}", o.name,
                                             arguments.options.given(o.name)));
  return kind.described_by(read_model_config(arguments.config), arguments.options);
}

Row row_of(const Variant& variant, const Workload& network, const Arguments& arguments, int device) {
  Setting setting{
      .workload = &network, .batch = arguments.batch, .devices = arguments.devices, .device = device};
  setting.data = network.even_step_data(arguments.batch, arguments.devices);
  return {fmt::format("device {}", device), variant.costs(setting, arguments.options),
          state_per_element(arguments)};
}

/// On each device. \throws Error usage when the variant cannot train this network on so many
std::vector<Row> rows_of(const Variant& variant, const Workload& network, const Arguments& arguments) {
  if (variant.require) variant.require(arguments.devices, network, arguments.options);
  std::vector<Row> rows;
  for (int device = 0; device < arguments.devices; ++device)
    rows.push_back(row_of(variant, network, arguments, device));
  return rows;
}

/// The memory of the fullest device, and the most that any device sends and computes.
Row largest_of(const std::vector<Row>& rows) {
  Row row = *std::ranges::max_element(rows, {}, &Row::most);
  for (const Row& other : rows) {
    row.sent.bytes = std::max(row.sent.bytes, other.sent.bytes);
    row.sent.messages = std::max(row.sent.messages, other.sent.messages);
    row.costs.flops = std::max(row.costs.flops, other.costs.flops);
    for (const auto& [axes, sent] : other.costs.sent_along) {
      Traffic& along = row.costs.sent_along[axes];
      along = {std::max(along.messages, sent.messages), std::max(along.bytes, sent.bytes)};
    }
  }
  return row;
}

/// Bytes, or GiB where some are many.
class Unit {
 public:
  explicit Unit(const std::vector<Row>& rows)
      : is_large_(std::ranges::any_of(rows, [](const Row& r) { return r.most() >= gibibyte; })) {}

  std::string name() const { return is_large_ ? "GiB" : "bytes"; }
  std::string operator()(Index bytes) const {
    return is_large_ ? fmt::format("{:.2f}", static_cast<double>(bytes) / gibibyte) : with_commas(bytes);
  }

 private:
  static constexpr Index gibibyte = Index{1} << 30;
  bool is_large_;
};

std::string table(const std::vector<Row>& rows, const std::string& what) {
  const Unit unit(rows);
  std::size_t width = 14;
  for (const Row& r : rows) width = std::max(width, r.name.size());
  constexpr auto line = "{:<{}} {:>13} {:>13} {:>13} {:>13} {:>13} {:>13} {:>9} {:>14}\n";
  std::string text = fmt::format(line, what, width, "parameters", "gradients", "state", "the rest", "at most",
                                 "sent", "messages", "operations");
  for (const Row& r : rows) {
    text +=
        fmt::format(line, r.name, width, unit(r.costs.parameter_bytes), unit(r.gradients()), unit(r.state()),
                    unit(r.rest()), unit(r.most()), unit(r.sent.bytes), with_commas(r.sent.messages),
                    fmt::format("{:.3g}", static_cast<double>(r.costs.flops)));
    for (const auto& [axes, sent] : r.costs.sent_along)
      if (sent.messages > 0)
        text += fmt::format("{:<{}} {:>13} {:>9}\n", "  along " + axes, width + 70, unit(sent.bytes),
                            with_commas(sent.messages));
  }
  return text +
         fmt::format(
             "\nIn {}, of a step after the first. State is the optimizer's. The rest is what the fullest\n"
             "moment has beside the three columns before it: activations and buffers.\n",
             unit.name());
}

/// The variants that train such networks, each on its fullest device. Those that cannot train this one are
/// named with the reason.
std::string table_of_variants(const Chapter& chapter, const WorkloadKind& kind, const Workload& network,
                              const Arguments& arguments) {
  std::vector<Row> rows;
  std::string refused;
  for (const Variant& v : chapter.variants) {
    const std::string trained = v.workload->name();
    if (!v.costs || (trained != kind.name() && trained != network.kind().name())) continue;
    try {
      rows.push_back(largest_of(rows_of(v, network, arguments)));
      rows.back().name = v.name;
    } catch (const Error& error) {
      if (error.code() != Code::usage) throw;
      refused += fmt::format("{}: {}\n", v.name, error.what());
    }
  }
  if (rows.empty()) throw Error(Code::usage, refused.substr(0, refused.find('\n')));
  return table(rows, "variant") +
         "Memory is that of the fullest device. The other columns are the largest of any device.\n" + refused;
}

std::string title(const Chapter& chapter, const Workload& network, const Arguments& arguments) {
  return fmt::format("{} {} on {} device{}: {}, batch {}, {}. Computed from closed forms; nothing runs.\n\n",
                     chapter.short_name(), chapter.title, arguments.devices,
                     arguments.devices == 1 ? "" : "s", network.describe(), arguments.batch,
                     arguments.optimizer);
}

}  // namespace

int costs(Communicator& group, const Chapter& chapter, const Variant& variant, const Arguments& arguments) {
  if (arguments.only_variant && !variant.costs)
    throw Error(Code::usage,
                fmt::format("costs: expected a variant that has closed forms, given {}", variant.name));
  const std::shared_ptr<Workload> network = network_of(*variant.workload, arguments);
  std::string text = title(chapter, *network, arguments);
  text += arguments.only_variant ? table(rows_of(variant, *network, arguments), variant.name)
                                 : table_of_variants(chapter, *variant.workload, *network, arguments);
  if (network->even_step_data(arguments.batch, arguments.devices))
    text += "Costs depend on the experts that tokens choose. Here they choose them in turn.\n";
  if (group.device_id() == 0) fmt::print("{}", text);
  return 0;
}

}  // namespace shard
