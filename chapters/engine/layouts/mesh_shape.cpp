#include "engine/layouts/mesh_shape.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <set>

namespace shard {

namespace {

[[noreturn]] void refuse_mesh(const std::string& expected, const std::string& given) {
  throw Error(Code::usage, fmt::format("mesh: expected {}, given {}", expected, given));
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
    if (std::ranges::find(known, axes.back().name) == known.end())
      refuse_mesh(fmt::format("axes that this variant cuts over, {}", fmt::join(known, " and ")),
                  axes.back().name.empty() ? "an empty name" : axes.back().name);
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
  Option<std::string> option("--mesh", fmt::to_string(fmt::join(axes, ",")),
                             "Axes, the last varies fastest, with sizes or without: data=2,tensor=2");
  option.type = "AXES";
  return option;
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

std::vector<std::string> mesh_texts(const std::vector<std::string>& axes, int devices) {
  std::vector<std::string> texts;
  for (const std::vector<int>& sizes : factorisations(devices, axes.size())) {
    std::vector<MeshAxis> all;
    for (std::size_t i = 0; i < axes.size(); ++i) all.push_back({axes[i], sizes[i]});
    texts.push_back(MeshShape(all).describe());
  }
  return texts;
}

}  // namespace shard
