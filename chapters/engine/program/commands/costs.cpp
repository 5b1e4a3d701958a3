#include "engine/program/commands/costs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/basics/printable.hpp"
#include "engine/basics/terminal.hpp"
#include "engine/program/command_options.hpp"
#include "engine/program/commands/costs_of_step.hpp"
#include "engine/program/default_network.hpp"

namespace shard {

namespace {

/// The costs of a step on one device, or the largest of several devices.
struct Row {
  std::string name;
  CostsOfStep costs;
  std::optional<MeshShape> mesh = {};

  /// Activations and buffers at the moment of the most memory.
  Index rest() const { return costs.peak - costs.parameters - costs.gradients - costs.state; }
};

std::vector<Row> rows_of(const Run& run, int devices) {
  std::optional<MeshShape> mesh;
  if (run.variant.mesh) mesh = run.variant.mesh(devices, run.options);
  std::vector<Row> rows;
  for (const CostsOfStep& costs : costs_of_step(run, devices))
    rows.push_back({fmt::format("device {}", rows.size()), costs, mesh});
  return rows;
}

/// Neighbours whose costs are equal share a row: "devices 0-3".
std::vector<Row> joined(const std::vector<Row>& rows) {
  std::vector<Row> all;
  for (std::size_t first = 0, end = 0; first < rows.size(); first = end) {
    while (end < rows.size() && rows[end].costs == rows[first].costs) ++end;
    const bool is_alone = end == first + 1;
    all.push_back({is_alone ? rows[first].name : fmt::format("devices {}-{}", first, end - 1),
                   rows[first].costs, rows[first].mesh});
  }
  return all;
}

/// The first variant whose kind of network reads this config.json. \throws Error as the first variant does,
/// if none reads it
const Variant& reader_of(const Chapter& chapter, const CostsCommand& command) {
  if (!command.variant.empty()) return chapter.variant(command.variant);
  if (!command.config.empty())
    for (const Variant& v : chapter.variants) {
      try {
        network_of(*v.workload, command.options, command.config);
        return v;
      } catch (const Error&) {
        continue;
      }
    }
  return chapter.variants.front();
}

/// The memory of the device that holds most, and the most that any device sends and computes.
Row largest_of(const std::vector<Row>& rows) {
  Row row = *std::ranges::max_element(rows, {}, [](const Row& r) { return r.costs.peak; });
  auto most = [](Traffic& sent, const Traffic& other) {
    sent = {std::max(sent.messages, other.messages), std::max(sent.bytes, other.bytes)};
  };
  for (const Row& other : rows) {
    most(row.costs.sent, other.costs.sent);
    row.costs.operations = std::max(row.costs.operations, other.costs.operations);
    for (const auto& [axes, sent] : other.costs.along) most(row.costs.along[axes], sent);
  }
  return row;
}

/// Axes of a mesh, with the number of devices along them: "data,expert=4".
std::string axes_text(const std::optional<MeshShape>& mesh, const std::string& axes) {
  int devices = 1;
  std::istringstream names(axes);
  for (std::string name; std::getline(names, name, ',');)
    for (const MeshAxis& axis : mesh->axes())
      if (name == axis.name || name == "all") devices *= axis.size;
  return fmt::format("{}={}", axes, devices);
}

/// Bytes, or GiB if a device holds at least one.
class Unit {
 public:
  explicit Unit(const std::vector<Row>& rows)
      : is_large_(std::ranges::any_of(rows, [](const Row& r) { return r.costs.peak >= gibibyte; })) {}

  std::string name() const { return is_large_ ? "GiB" : "bytes"; }
  std::string operator()(Index bytes) const {
    return is_large_ ? fmt::format("{:.2f}", static_cast<double>(bytes) / gibibyte) : with_commas(bytes);
  }

 private:
  static constexpr Index gibibyte = Index{1} << 30;
  bool is_large_;
};

/// Two tables, since one would be too wide: what is held, and what is sent and computed.
std::string table(const std::vector<Row>& rows, const std::string& what) {
  const Unit unit(rows);
  std::vector<std::vector<std::string>> held = {
      {what, "parameters", "gradients", "state", "the rest", "at most"}};
  std::vector<std::vector<std::string>> sent = {{what, "sent", "messages", "operations"}};
  for (const Row& r : rows) {
    const CostsOfStep& c = r.costs;
    held.push_back(
        {r.name, unit(c.parameters), unit(c.gradients), unit(c.state), unit(r.rest()), unit(c.peak)});
    sent.push_back({r.name, unit(c.sent.bytes), with_commas(c.sent.messages),
                    fmt::format("{:.3g}", static_cast<double>(c.operations))});
    for (const auto& [axes, along] : c.along)
      if (along.messages > 0)
        sent.push_back(
            {"  along " + axes_text(r.mesh, axes), unit(along.bytes), with_commas(along.messages), ""});
  }
  const std::string notes = fmt::format(
      "In {}, of a step after the first, in float32, and nothing is recomputed. State is the optimizer's. "
      "\"The rest\" "
      "is activations and buffers, at the moment when most memory is used.",
      unit.name());
  return text_table(held) + '\n' + text_table(sent) + '\n' + wrapped(notes, output_columns()) + '\n';
}

/// The rows of each variant's devices, and why other variants cannot train this network.
struct AllRows {
  std::vector<std::pair<std::string, std::vector<Row>>> of_variants;
  std::string refused;
};

/// Says on a terminal which variant runs, while such an object lives: a large network takes a minute.
class SaysWhichRuns {
 public:
  SaysWhichRuns(const Communicator& group, const std::string& variant)
      : is_wanted_(group.device_id() == 0 && speaks_to_terminal()) {
    if (is_wanted_) fmt::print("{}a step of {}", erase_line, variant);
    std::fflush(stdout);
  }
  ~SaysWhichRuns() {
    if (is_wanted_) fmt::print("{}", erase_line);
  }
  SaysWhichRuns(const SaysWhichRuns&) = delete;
  SaysWhichRuns& operator=(const SaysWhichRuns&) = delete;

 private:
  static constexpr const char* erase_line = "\r\033[K";
  bool is_wanted_;
};

/// The rows of all variants that train such networks as `first` does, or of this one. `of`: the rows of one.
AllRows all_rows(const Chapter& chapter, const Variant& first, const Workload& network, bool is_one,
                 const std::function<std::vector<Row>(const Variant&)>& of) {
  AllRows all;
  if (is_one) return {{{first.name, of(first)}}, ""};
  for (const Variant& v : chapter.variants) {
    const std::string trained = v.workload->name();
    if (trained != first.workload->name() && trained != network.kind().name()) continue;
    try {
      all.of_variants.emplace_back(v.name, of(v));
    } catch (const Error& error) {
      if (error.code() != Code::usage) throw;
      all.refused += fmt::format("{}: {}\n", v.name, error.what());
    }
  }
  if (all.of_variants.empty()) throw Error(Code::usage, all.refused.substr(0, all.refused.find('\n')));
  return all;
}

/// One variant has a row for each device. Of several variants, each has a row for the device that holds most.
std::string table_of(const AllRows& all, bool is_one) {
  if (is_one) return table(joined(all.of_variants[0].second), all.of_variants[0].first);
  std::vector<Row> rows;
  for (const auto& [name, of_devices] : all.of_variants) {
    rows.push_back(largest_of(of_devices));
    rows.back().name = name;
  }
  const std::string notes =
      "Memory is that of the fullest device. The other columns are the largest of any device.";
  return table(rows, "variant") + wrapped(notes, output_columns()) + '\n' + all.refused;
}

nlohmann::ordered_json to_json(const CostsOfStep& c) {
  nlohmann::ordered_json along = nlohmann::ordered_json::object();
  for (const auto& [axes, sent] : c.along) along[axes] = {{"bytes", sent.bytes}, {"messages", sent.messages}};
  return {{"parameters", c.parameters},
          {"gradients", c.gradients},
          {"state", c.state},
          {"peak", c.peak},
          {"bytes", c.sent.bytes},
          {"messages", c.sent.messages},
          {"along", along},
          {"flops", c.operations}};
}

std::string title(const Chapter& chapter, const Workload& network, const Training& step, int devices) {
  const std::string words = fmt::format(
      "{} {} on {} device{}: {}, {} parameters, {}, {}. A step of each engine, on tensors without memory.",
      chapter.short_name(), chapter.title, devices, devices == 1 ? "" : "s", network.describe(),
      with_commas(static_cast<Index>(network.parameter_elements())), network.describe_batch(step.batch),
      step.optimizer);
  return wrapped(words, output_columns()) + "\n\n";
}

/// The costs as JSON, in bytes: a list for each variant, with each device.
std::string json_of(const AllRows& all) {
  nlohmann::ordered_json variants = nlohmann::ordered_json::object();
  for (const auto& [name, rows] : all.of_variants)
    for (const Row& row : rows) variants[name].push_back(to_json(row.costs));
  return variants.dump(1) + '\n';
}

}  // namespace

void CostsCommand::add_options(const CommandLine& line) {
  add(line.app, "--variant", "NAME", variant, "Only this one, on each device", name_of_variant(line.chapter));
  add_config(line, config);
  line.app.add_flag("--json", json, "As JSON, with each device's bytes");
  add_rows(line, batch, "Rows of the global batch");
  DeclaredOptions(line, options).add_sizes();
  add_optimizer_name(line, optimizer);
  devices = line.group.num_devices();
  add(line.app, "--devices", "N", devices, "Devices of the job that one device makes, without memory",
      positive());
  add_record(line, *this);
}

void CostsCommand::complete(const CommandLine& line) {
  take_usual(line, *this, "--batch", &TrainingDefaults::batch, batch);
  constexpr int most = 65536;  // fibres of one process
  if (devices > most) throw Error(Code::usage, "--devices: expected at most {}, given {}", most, devices);
  Command::complete(line);
}

/// The default network has enough layers for this number of devices.
int CostsCommand::run(Communicator& group, const Chapter& chapter) const {
  const Variant& first = reader_of(chapter, *this);
  const Options all_options =
      config.empty() ? with_default_network(devices, chapter, first, options) : options;
  const std::shared_ptr<Workload> network = network_of(*first.workload, all_options, config);
  const Training step{.batch = batch, .optimizer = optimizer};
  const bool is_one = !variant.empty();
  const AllRows all = all_rows(chapter, first, *network, is_one, [&](const Variant& v) {
    const SaysWhichRuns says(group, v.name);
    return rows_of({group, v, *network, all_options, step}, devices);
  });
  if (group.device_id() != 0) return 0;
  if (json)
    fmt::print("{}", json_of(all));
  else
    fmt::print("{}{}", title(chapter, *network, step, devices), table_of(all, is_one));
  if (!json && network->routed() != nullptr)
    fmt::print("Costs depend on the experts that tokens choose. Here they choose them in turn.\n");
  return 0;
}

}  // namespace shard
