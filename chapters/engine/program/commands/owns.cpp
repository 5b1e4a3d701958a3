#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/program/commands.hpp"
#include "engine/workloads/initial_values.hpp"

namespace shard {

namespace {

/// A checkpoint that records which parts are read.
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
    if (num_elements(shape_of(piece)) > 0) {
      Ranges& part = parts_.try_emplace(name, piece).first->second;
      if (part != piece) part = joined(name, part, piece);
    }
    return read_.read(name, piece);
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

std::string row(const std::string& name, const std::string& shape, const std::vector<std::string>& cells) {
  std::string text = fmt::format("{:<28} {:<10}", name, shape);
  for (const std::string& cell : cells) text += fmt::format("  {:<14}", cell);
  return text.substr(0, text.find_last_not_of(' ') + 1) + '\n';
}

}  // namespace

int owns(Communicator& group, const Variant& variant, const Arguments& arguments) {
  const std::shared_ptr<Workload> network = variant.workload->make(arguments.options);
  if (variant.require) variant.require(group.num_devices(), *network, arguments.options);
  const std::unique_ptr<ShardedEngine> engine = variant.make(group, *network, arguments.options);
  const auto initial = generate_checkpoint(network->parameters(), arguments.seed);
  const NotedCheckpoint noted(*initial);
  engine->load_checkpoint(noted);
  std::vector<std::string> cells;
  for (int device = 0; device < group.num_devices(); ++device)
    cells.push_back(fmt::format("device {}", device));
  std::string text =
      fmt::format("{}, {}\n\n{}", variant.name, network->describe(), row("parameter", "shape", cells));
  for (const Parameter& p : network->parameters()) {
    const auto mine = noted.parts().find(p.name);
    cells = group.gather("parts", describe(mine == noted.parts().end() ? Ranges() : mine->second, p.shape));
    text += row(p.name, to_string(p.shape), cells);
  }
  if (group.device_id() == 0) fmt::print("{}", text);
  return 0;
}

}  // namespace shard
