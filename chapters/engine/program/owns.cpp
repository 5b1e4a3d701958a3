#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/program/commands.hpp"
#include "engine/workloads/initial_values.hpp"

namespace shard {

namespace {

/// A checkpoint that notes which slices are read.
class NotedCheckpoint : public Checkpoint {
 public:
  struct Slice {
    int axis;
    Index begin, end;
    Range columns = {};  ///< of rows that are cut by columns, too
  };

  explicit NotedCheckpoint(const Checkpoint& read) : read_(read) {}

  std::vector<std::string> names() const override { return read_.names(); }
  bool contains(const std::string& name) const override { return read_.contains(name); }
  Shape shape(const std::string& name) const override { return read_.shape(name); }
  std::string source() const override { return read_.source(); }
  Tensor part(const std::string& name, const std::vector<Range>& ranges) const override {
    Tensor mine = Checkpoint::part(name, ranges);
    const Shape whole = shape(name);
    const bool cuts_both = whole.size() == 2 && ranges[0].size() < whole[0] && ranges[1].size() < whole[1];
    if (cuts_both && mine.size() == 0) slices_.erase(name);
    if (cuts_both && mine.size() > 0) slices_[name] = {0, ranges[0].begin, ranges[0].end, ranges[1]};
    return mine;
  }

  /// By parameter. Pieces that adjoin are one slice.
  const std::map<std::string, Slice>& slices() const { return slices_; }

 private:
  std::vector<float> values(const std::string& name, int axis, Index begin, Index end) const override {
    if (begin < end) {
      Slice& s = slices_.try_emplace(name, Slice{axis, begin, end}).first->second;
      if (axis != s.axis || begin > s.end || end < s.begin)
        refuse(Code::internal, "owns", "pieces of " + name + " that adjoin", "others");
      s.begin = std::min(s.begin, begin), s.end = std::max(s.end, end);
    }
    return read_.read(name, axis, begin, end);
  }

  const Checkpoint& read_;
  mutable std::map<std::string, Slice> slices_;
};

/// A device's part of one parameter, as a collective sends it.
struct Part {
  Index axis, begin, end;  ///< end 0: nothing
  Range columns;           ///< of rows that are cut by columns, too

  std::string describe(const Shape& shape) const {
    if (end == 0) return "–";
    if (columns.size() > 0)
      return fmt::format("({}-{}, {}-{})", begin, end - 1, columns.begin, columns.end - 1);
    if (end - begin == shape[static_cast<std::size_t>(axis)]) return "whole";
    const char* what = shape.size() == 1 ? "elements" : axis == 0 ? "rows" : "columns";
    return fmt::format("{} {}-{}", what, begin, end - 1);
  }
};

/// Of every device. A collective.
std::vector<Part> parts_of(Communicator& group, const std::string& name,
                           const std::map<std::string, NotedCheckpoint::Slice>& mine) {
  const auto found = mine.find(name);
  auto all = [&](const char* what, Index value) {
    return group.exchange(what, found == mine.end() ? 0 : value);
  };
  const auto [axis, begin, end, columns] = found == mine.end() ? NotedCheckpoint::Slice{} : found->second;
  const std::vector<Index> axes = all("axis", axis), begins = all("begin", begin), ends = all("end", end);
  const std::vector<Index> first = all("first column", columns.begin), last = all("last column", columns.end);
  std::vector<Part> parts;
  for (std::size_t i = 0; i < ends.size(); ++i)
    parts.push_back({axes[i], begins[i], ends[i], {first[i], last[i]}});
  return parts;
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
    cells.clear();
    for (const Part& part : parts_of(group, p.name, noted.slices())) cells.push_back(part.describe(p.shape));
    text += row(p.name, to_string(p.shape), cells);
  }
  if (group.device_id() == 0) fmt::print("{}", text);
  return 0;
}

}  // namespace shard
