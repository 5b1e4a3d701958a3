#include "engine/program/commands/owns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "engine/basics/terminal.hpp"
#include "engine/device/books/memory.hpp"
#include "engine/program/command_options.hpp"
#include "engine/program/default_network.hpp"
#include "engine/program/step/memory_check.hpp"
#include "engine/workloads/initial_values.hpp"

namespace shard {

namespace {

/// A checkpoint that records which parts are read. Its values are 0.
class NotedCheckpoint : public Checkpoint {
 public:
  explicit NotedCheckpoint(const Checkpoint& read) : read_(read) {}

  std::vector<std::string> names() const override { return read_.names(); }
  bool contains(const std::string& name) const override { return read_.contains(name); }
  Shape shape(const std::string& name) const override { return read_.shape(name); }
  std::string source() const override { return read_.source(); }
  int outermost_axis(const std::string& name) const override { return read_.outermost_axis(name); }

  /// The part of each parameter that was read. Adjacent pieces are joined.
  const std::map<std::string, Ranges>& parts() const { return parts_; }

 private:
  std::vector<float> values(const std::string& name, const Ranges& piece) const override {
    pass_over(name, piece);
    return std::vector<float>(static_cast<std::size_t>(num_elements(shape_of(piece))));
  }
  void pass_over(const std::string& name, const Ranges& piece) const override {
    if (num_elements(shape_of(piece)) == 0) return;
    Ranges& part = parts_.try_emplace(name, piece).first->second;
    if (part != piece) part = joined(name, part, piece);
  }

  /// The union of two adjacent parts.
  static Ranges joined(const std::string& name, const Ranges& a, const Ranges& b) {
    Ranges both;
    for (std::size_t d = 0; d < a.size(); ++d)
      both.push_back({std::min(a[d].begin, b[d].begin), std::max(a[d].end, b[d].end)});
    if (num_elements(shape_of(both)) != num_elements(shape_of(a)) + num_elements(shape_of(b)))
      refuse(Code::internal, "owns", "pieces of " + name + " that adjoin", "others");
    return both;
  }

  const Checkpoint& read_;
  mutable std::map<std::string, Ranges> parts_;
};

/// "whole", "rows 0-3", "(0-3, 4-7)", or a dash for nothing.
std::string describe(const Ranges& part, const Shape& shape) {
  if (part.empty()) return "–";
  std::vector<std::size_t> cut;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (part[d] != Range{0, shape[d]}) cut.push_back(d);
  if (cut.empty()) return "whole";
  if (cut.size() > 1) return to_string(part);
  const char* what = shape.size() == 1 ? "elements" : cut[0] == 0 ? "rows" : "columns";
  return fmt::format("{} {}-{}", what, part[cut[0]].begin, part[cut[0]].end - 1);
}

using Cells = std::vector<std::string>;

/// Moves the word that all parts have, if they have one, in front of them: "rows", "0-3", "4-7".
Cells with_cut(const Cells& parts) {
  std::set<std::string> cuts;
  for (const std::string& part : parts)
    if (part != "whole" && part != "–")
      cuts.insert(part.front() == '(' ? "both" : part.substr(0, part.find(' ')));
  if (cuts.size() != 1) cuts = {"–"};
  Cells row = {*cuts.begin()};
  for (const std::string& part : parts)
    row.push_back(part.starts_with(row.front() + ' ') ? part.substr(row.front().size() + 1) : part);
  return row;
}

/// The table. Devices that have no room beside the others stand below them.
std::string table(const std::vector<Cells>& rows, int devices, int width) {
  constexpr std::size_t first = 3;  // the column of device 0
  auto text_with = [&](std::size_t at_a_time) {
    std::string text;
    for (std::size_t begin = 0; begin < static_cast<std::size_t>(devices); begin += at_a_time) {
      const std::size_t end = std::min(begin + at_a_time, static_cast<std::size_t>(devices));
      std::vector<Cells> some;
      for (const Cells& row : rows) {
        some.emplace_back(row.begin(), row.begin() + first);
        for (std::size_t d = begin; d < end; ++d) some.back().push_back(row[first + d]);
      }
      some.front()[first] = "device " + some.front()[first];
      text += (begin == 0 ? "" : "\n") + text_table(some, some.front().size());
    }
    return text;
  };
  for (int parts = 1; parts < devices; ++parts) {
    std::string text = text_with(static_cast<std::size_t>((devices + parts - 1) / parts));
    if (width_of_lines(text) <= width) return text;
  }
  return text_with(1);
}

/// A head, and a row for each parameter: the part of it that each device has. A collective.
std::vector<Cells> rows_of(Communicator& group, const Workload& network,
                           const std::map<std::string, Ranges>& parts_here) {
  std::vector<Cells> rows = {{"parameter", "shape", "cut by"}};
  for (int device = 0; device < group.num_devices(); ++device) rows.front().push_back(std::to_string(device));
  for (const Parameter& p : network.parameters()) {
    const auto mine = parts_here.find(p.name);
    const bool has_part = mine != parts_here.end() && num_elements(shape_of(mine->second)) > 0;
    const Cells parts = group.gather("parts", describe(has_part ? mine->second : Ranges(), p.shape));
    rows.push_back({p.name, to_string(p.shape)});
    if (group.device_id() == 0) std::ranges::copy(with_cut(parts), std::back_inserter(rows.back()));
  }
  return rows;
}

/// Where there are many rows, those of blocks that follow one another and lie alike are one: "block_0-31/query".
std::vector<Cells> folded(const std::vector<Cells>& rows) {
  constexpr std::size_t many = 100;
  if (rows.size() <= many) return rows;
  struct Alike {
    std::string before, after;  ///< the number
    std::string first, last;
    Cells cells;

    std::string name() const { return before + first + (first == last ? "" : "-" + last) + after; }
  };
  std::vector<Alike> all;
  for (const Cells& row : rows) {
    const std::string& name = row.front();
    const std::size_t begin = std::min(name.find_first_of("0123456789"), name.size());
    const std::size_t end = std::min(name.find_first_not_of("0123456789", begin), name.size());
    const Alike one{name.substr(0, begin), name.substr(end), name.substr(begin, end - begin),
                    name.substr(begin, end - begin), Cells(row.begin() + 1, row.end())};
    const auto same = std::ranges::find_if(all, [&](const Alike& a) {
      return !one.first.empty() && !a.last.empty() && a.before == one.before && a.after == one.after &&
             a.cells == one.cells && std::stoll(a.last) + 1 == std::stoll(one.first);
    });
    if (same == all.end())
      all.push_back(one);
    else
      same->last = one.last;
  }
  std::vector<Cells> fewer;
  for (const Alike& a : all) {
    fewer.push_back({a.name()});
    std::ranges::copy(a.cells, std::back_inserter(fewer.back()));
  }
  return fewer;
}

}  // namespace

void OwnsCommand::add_options(const CommandLine& line) {
  DeclaredOptions declared = add_engine_options(line, *this);
  add_config(line, config);
  declared.add_sizes();
}

void OwnsCommand::complete(const CommandLine& line) {
  Command::complete(line);
  const Variant& chosen = line.chapter.variant(variant);
  if (tensors_have_elements())
    require_room_for_parameters(line.group, *network_of(*chosen.workload, options, config), Training());
  if (config.empty()) options = with_default_network(line.group.num_devices(), line.chapter, chosen, options);
}

int OwnsCommand::run(Communicator& group, const Chapter& chapter) const {
  const Variant& chosen = chapter.variant(variant);
  const std::shared_ptr<Workload> network = network_of(*chosen.workload, options, config);
  if (chosen.require) chosen.require(group.num_devices(), *network, options);
  const std::unique_ptr<ShardedEngine> engine = chosen.make(group, *network, options);
  constexpr std::uint64_t seed = 0;
  const auto initial = generate_checkpoint(network->parameters(), seed);
  const NotedCheckpoint noted(*initial);
  engine->load_checkpoint(noted);
  std::map<std::string, Ranges> updated;
  for (const Trainable& t : engine->trainable()) updated.try_emplace(t.name, t.ranges);
  const std::vector<Cells> held = rows_of(group, *network, noted.parts());
  const std::vector<Cells> trained = rows_of(group, *network, updated);
  if (group.device_id() != 0) return 0;
  fmt::print("{}\n\n{}", for_reader(variant + ", " + network->describe()),
             table(folded(held), group.num_devices(), output_columns()));
  if (trained != held)
    fmt::print("\n{}\n\n{}",
               for_reader("Of these, a device updates the following, and keeps the optimizer's state of it:"),
               table(folded(trained), group.num_devices(), output_columns()));
  return 0;
}

}  // namespace shard
