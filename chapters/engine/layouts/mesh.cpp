#include "engine/layouts/mesh.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <numeric>
#include <set>

#include "engine/basics/near_names.hpp"
#include "engine/basics/options.hpp"
#include "engine/basics/ranges.hpp"
#include "engine/device/books/observer.hpp"
#include "engine/device/this_device.hpp"
#include "engine/layouts/layout_types.hpp"

namespace shard {

namespace {

[[noreturn]] void refuse_mesh(const std::string& expected, const std::string& given) {
  throw Error(Code::usage, "mesh: expected {}, given {}", expected, given);
}

/// All ways to write n as a product of `count` factors, in any order.
std::vector<std::vector<int>> factorisations(int n, std::size_t count) {
  if (count == 0) return n == 1 ? std::vector<std::vector<int>>{{}} : std::vector<std::vector<int>>{};
  std::vector<std::vector<int>> all;
  for (int first = 1; first <= n; ++first) {
    if (n % first != 0) continue;
    for (std::vector<int>& factors : factorisations(n / first, count - 1)) {
      factors.insert(factors.begin(), first);
      all.push_back(std::move(factors));
    }
  }
  return all;
}

/// The factorisation with the least sum, larger factors first.
std::vector<int> even_factors(int n, std::size_t count) {
  auto sum = [](const std::vector<int>& factors) {
    return std::accumulate(factors.begin(), factors.end(), 0);
  };
  std::vector<int> factors = std::ranges::min(factorisations(n, count), {}, sum);
  std::ranges::sort(factors, std::greater());
  return factors;
}

/// "tensor=2", or "tensor" with the size 0.
MeshAxis parsed(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos) return {word, 0};
  const std::string size = word.substr(equals + 1);
  if (!is_number(size, [](Index n) { return n >= 1 && n <= 1 << 20; }))
    refuse_mesh("a size of 1 or more for " + word.substr(0, equals), size.empty() ? "nothing" : size);
  return {word.substr(0, equals), std::stoi(size)};
}

std::vector<MeshAxis> parsed_axes(const std::string& text, const std::vector<std::string>& known) {
  std::vector<MeshAxis> axes;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    axes.push_back(parsed(text.substr(begin, end - begin)));
    const std::string& name = axes.back().name;
    if (!name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) != 0)
      refuse_mesh(fmt::format("the name of each axis, as in {}=2", fmt::join(known, "=2,")), name);
    if (std::ranges::find(known, name) == known.end())
      refuse_mesh(fmt::format("axes that this variant cuts over, {}", fmt::join(known, " and ")),
                  name.empty() ? "an empty name" : name + did_you_mean(name, known));
    begin = end + 1;
  }
  return axes;
}

}  // namespace

MeshShape::MeshShape(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {
  std::set<std::string> names;
  for (const MeshAxis& axis : axes_) {
    if (axis.size < 1) refuse_mesh("a size of 1 or more for " + axis.name, std::to_string(axis.size));
    if (!names.insert(axis.name).second) refuse_mesh("each axis once", axis.name + " twice");
  }
}

int MeshShape::num_devices() const {
  int product = 1;
  for (const MeshAxis& axis : axes_) product *= axis.size;
  return product;
}

std::size_t MeshShape::index(const std::string& axis) const {
  auto found = std::ranges::find(axes_, axis, &MeshAxis::name);
  if (found == axes_.end()) refuse_mesh("an axis of " + describe(), axis);
  return static_cast<std::size_t>(found - axes_.begin());
}

int MeshShape::place(const std::string& axis, int device) const {
  const std::size_t wanted = index(axis);
  for (std::size_t i = axes_.size(); --i > wanted;) device /= axes_[i].size;
  return device % axes_[wanted].size;
}

std::string MeshShape::describe() const {
  std::vector<std::string> words;
  for (const MeshAxis& axis : axes_) words.push_back(fmt::format("{}={}", axis.name, axis.size));
  return fmt::to_string(fmt::join(words, ","));
}

Option<std::string> mesh_option(const std::vector<std::string>& axes) {
  return {"--mesh", fmt::to_string(fmt::join(axes, ",")),
          "Axes, the last varies fastest, with sizes or without: data=2,tensor=2", "AXES"};
}

MeshShape mesh_shape(const std::string& text, const std::vector<std::string>& known, int devices) {
  std::vector<MeshAxis> axes = parsed_axes(text, known);
  Index given = 1;
  std::size_t open = 0;  // axes without a size
  for (const MeshAxis& axis : axes) {
    if (axis.size == 0)
      ++open;
    else
      given = std::min<Index>(given * axis.size, 1 << 20);
  }
  if (devices % given != 0 || (open == 0 && given != devices))
    refuse_mesh(fmt::format("sizes whose product is the number of devices, {}", devices), text);
  const std::vector<int> sizes = even_factors(devices / static_cast<int>(given), open);
  auto next = sizes.begin();
  for (MeshAxis& axis : axes)
    if (axis.size == 0) axis.size = *next++;
  for (const std::string& name : known)
    if (std::ranges::find(axes, name, &MeshAxis::name) == axes.end()) axes.push_back({name, 1});
  return MeshShape(axes);
}

Mesh::Mesh(Communicator& group, const MeshShape& shape, SourceLine where)
    : WrappedCommunicator(group), shape_(shape) {
  if (shape_.num_devices() != num_devices())
    throw Error(Code::usage, "mesh: expected sizes whose product is the number of devices, {}, given {}",
                num_devices(), shape_.describe());
  for (const MeshAxis& axis : shape_.axes()) axes({axis.name}, where);
}

Communicator& Mesh::axis(const std::string& name) const {
  shape_.size(name);  // throws unless the axis exists
  return *groups_.at(name);
}

Index Mesh::pieces(const std::string& axis) const {
  const auto set = pieces_.find(axis);
  if (set == pieces_.end())
    refuse(Code::argument, "mesh", fmt::format("a number of pieces for the axis {}", axis), "none");
  return set->second;
}

Communicator& Mesh::joined(const std::vector<std::string>& names) const {
  const std::string name = fmt::to_string(fmt::join(names, ","));
  const auto made = groups_.find(name);
  if (made == groups_.end()) refuse(Code::argument, "mesh", "axes that were joined before", name);
  return *made->second;
}

Communicator& Mesh::axes(const std::vector<std::string>& names, SourceLine where) {
  const std::string name = fmt::to_string(fmt::join(names, ","));
  if (auto made = groups_.find(name); made != groups_.end()) return *made->second;
  std::vector<MeshAxis> joined;
  for (const std::string& name : names) joined.push_back({name, size(name)});
  const MeshShape refuses_twice(joined);
  // All members send the text of their mesh. Members with another shape or other axes make this a mismatch.
  const std::string mesh = fmt::format("the mesh {} along {}", shape_.describe(), name);
  exchange(mesh.c_str(), 0, where);
  Index key = 0, color = 0;  // places on the joined axes, and on the others
  for (const MeshAxis& axis : joined) key = key * axis.size + place(axis.name);
  for (const MeshAxis& axis : shape_.axes())
    if (std::ranges::find(joined, axis) == joined.end()) color = color * axis.size + place(axis.name);
  Communicator& made = *(groups_[name] = split(color, key, where));
  if (device().is_observed) note_group(made.group_id(), name);
  return made;
}

std::map<std::string, Traffic> Mesh::sent_along() const {
  std::map<std::string, Traffic> sent;
  for (const auto& [name, group] : groups_)
    if (group->num_devices() > 1) sent[name] = ledger().traffic_in(group->group_id());
  sent["all"] = ledger().traffic_in(group_id());
  return sent;
}

Range range_after(const std::vector<MeshCut>& cuts, int dimension, Index extent) {
  Range range{0, extent};
  for (const auto& [along, over, pieces] : cuts) {
    if (along != dimension) continue;
    if (pieces > 0 && range.size() % pieces != 0)
      refuse(Code::argument, "cut", fmt::format("an extent of {} equal pieces", pieces),
             std::to_string(range.size()));
    const Index width = pieces > 0 ? range.size() / pieces : 1;
    const Range mine = part(range.size() / std::max<Index>(width, 1), over->num_devices(), over->device_id());
    range = {range.begin + mine.begin * width, range.begin + mine.end * width};
  }
  return range;
}

Ranges ranges_after(const std::vector<MeshCut>& cuts, const Shape& whole) {
  for (const MeshCut& cut : cuts)
    if (cut.dimension >= static_cast<int>(whole.size()))
      refuse(Code::argument, "cut", fmt::format("a tensor with a dimension {}", cut.dimension),
             to_string(whole));
  Ranges ranges;
  for (std::size_t d = 0; d < whole.size(); ++d)
    ranges.push_back(range_after(cuts, static_cast<int>(d), whole[d]));
  return ranges;
}

Shape shape_after(const std::vector<MeshCut>& cuts, const Shape& whole) {
  return shape_of(ranges_after(cuts, whole));
}

}  // namespace shard
