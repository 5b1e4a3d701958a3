#include "engine/proof/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/basics/larger.hpp"

namespace shard {

namespace {

constexpr std::int64_t farthest = std::numeric_limits<std::int64_t>::max();

/// A float32 as an integer, in the same order; equal for 0 and −0.
std::int64_t ordered(float value) {
  auto bits = std::bit_cast<std::int32_t>(value);
  return bits >= 0 ? std::int64_t{bits} : std::int64_t{std::numeric_limits<std::int32_t>::min()} - bits;
}

/// "(3, 7)": the index, in the whole tensor, of element i of a part that begins at `begin`.
std::string index_of(Index element, const Shape& shape, const Shape& begin) {
  Shape index = place_of(element, shape);
  for (std::size_t axis = 0; axis < std::min(index.size(), begin.size()); ++axis) index[axis] += begin[axis];
  return to_string(index);
}

/// A difference that is not between elements: "w on device 1: TEXT".
Comparison unlike(const std::string& name, const std::string& text, Cause cause) {
  return {.max_ulp = farthest,
          .relative = std::numeric_limits<double>::infinity(),
          .first_difference = fmt::format("{} on device {}: {}", name, this_device(), text),
          .cause = cause};
}
Comparison unlike(const std::string& name, const Diagnosis& says) {
  return unlike(name, says.text, says.cause);
}

Comparison wrong_shape(const std::string& name, const Shape& given, const Shape& expected) {
  const bool is_transposed = given == Shape(expected.rbegin(), expected.rend());
  const Diagnosis says(is_transposed ? Cause::reversed_shape : Cause::unknown);
  return unlike(name,
                fmt::format("expected shape {}, given {}{}", to_string(expected), to_string(given),
                            is_transposed ? ": " + says.text : ""),
                says.cause);
}

/// Compares the arrays of the evidence. The rest of the evidence is computed only if they differ.
Comparison compare(const std::string& name, Evidence& e, const Shape& begin,
                   const std::function<void(Evidence&)>& complete) {
  const HostTensor& given = e.given;
  const HostTensor& expected = e.expected;
  if (given.shape != expected.shape) return wrong_shape(name, given.shape, expected.shape);
  Comparison result;
  double difference = 0;
  double largest = 0;
  std::size_t first = given.values.size();
  for (std::size_t i = 0; i < given.values.size(); ++i) {
    largest = larger(largest, std::abs(double{expected.values[i]}));
    const std::int64_t distance = ulp_distance(given.values[i], expected.values[i]);
    if (distance == 0) continue;
    first = std::min(first, i);
    result.max_ulp = std::max(result.max_ulp, distance);
    difference = larger(difference, std::abs(double{given.values[i]} - double{expected.values[i]}));
  }
  if (result.max_ulp == 0) return result;
  const double relative = difference / largest;
  result.relative = std::isnan(relative) ? std::numeric_limits<double>::infinity() : relative;
  complete(e);
  Diagnosis diagnosis = diagnose(e);
  result.cause = diagnosis.cause;
  result.first_difference =
      fmt::format("{} on device {} at {}: expected {}, given {}: {}", name, this_device(),
                  index_of(static_cast<Index>(first), given.shape, begin), expected.values[first],
                  given.values[first], diagnosis.text);
  return result;
}

/// Evidence::slices of a whole tensor, for slices of `extent` indices along an axis.
std::vector<HostTensor> slices_of(const HostTensor& whole, int axis, int devices, Index extent) {
  const Tensor t = Tensor::from_host(whole.shape, whole.values);
  std::vector<HostTensor> slices;
  for (int d = 0; d < devices; ++d) {
    const Index begin = part(t.extent(axis), devices, d).begin;
    const Tensor piece = slice(t, axis, begin, std::min(begin + extent, t.extent(axis)));
    slices.push_back({piece.shape(), piece.to_host()});
  }
  return slices;
}

std::string names_of(const WholeResults& tensors) {
  std::string names;
  for (const auto& [name, tensor] : tensors)
    if (name != "output") names += (names.empty() ? "" : ", ") + name;
  return names;
}

/// This device's part of a result.
struct Piece {
  std::string name;
  HostTensor given;
  Shape begin;                                        ///< in the whole tensor
  std::function<HostTensor(const HostTensor&)> mine;  ///< the same part of another whole tensor
  const Placed* placed = nullptr;

  bool is_of(const HostTensor& whole) const { return given.values == mine(whole).values; }
};

HostTensor on_host(const Tensor& t) {
  return {t.shape(), t.to_host()};
}

Piece piece_of_output(const OutputRows& output) {
  auto mine = [&output](const HostTensor& whole) {
    const Index first = output.first_row;
    return on_host(
        slice(Tensor::from_host(whole.shape, whole.values), 0, first, first + output.rows.shape[0]));
  };
  return {"output", output.rows, {output.first_row, 0}, mine};
}

Piece piece_of(const std::string& name, const Placed& placed) {
  auto mine = [&placed](const HostTensor& whole) {
    return on_host(placed.slice_of(Tensor::from_host(whole.shape, whole.values)));
  };
  return {name, on_host(placed.local()), placed.begin(), mine, &placed};
}

/// Compares a part with the same part of the expected whole.
Comparison compare(const Communicator& group, const Piece& piece, const HostTensor& whole,
                   const std::function<void(Evidence&)>& complete) {
  Evidence evidence{.given = piece.given,
                    .expected = piece.mine(whole),
                    .num_devices = group.num_devices(),
                    .place = group.device_id()};
  return compare(piece.name, evidence, piece.begin, [&](Evidence& e) {
    if (piece.placed && piece.placed->placement().kind == Placement::Kind::sharded)
      e.slices = slices_of(whole, piece.placed->placement().axis, group.num_devices(),
                           e.given.shape.at(static_cast<std::size_t>(piece.placed->placement().axis)));
    complete(e);
  });
}

/// The other results, sorted by the number of this device's parts that they explain, most first.
std::vector<OtherResults> likeliest_first(const std::vector<Piece>& pieces, const Background& background) {
  if (!background.others) return {};
  std::vector<OtherResults> others = background.others();
  auto fits = [&](const OtherResults& other) {
    return std::ranges::count_if(pieces, [&](const Piece& p) { return p.is_of(other.results.at(p.name)); });
  };
  std::ranges::stable_sort(others, std::greater(), fits);
  return others;
}

}  // namespace

std::int64_t ulp_distance(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return farthest;
  return std::abs(ordered(a) - ordered(b));
}

bool is_far(std::int64_t distance) {
  return distance == farthest;
}

Comparison compare(const std::string& name, const HostTensor& actual, const HostTensor& expected,
                   int num_devices, int axis, Index offset) {
  Evidence evidence{.given = actual, .expected = expected, .num_devices = num_devices};
  Shape begin(actual.shape.size(), 0);
  if (static_cast<std::size_t>(axis) < begin.size()) begin[static_cast<std::size_t>(axis)] = offset;
  return compare(name, evidence, begin, [](Evidence&) {});
}

Comparison compare(const std::string& name, const Placed& actual, const HostTensor& expected,
                   const Diagnosis& known) {
  if (actual.global_shape() != expected.shape)
    return wrong_shape(name, actual.global_shape(), expected.shape);
  return compare(actual.group(), piece_of(name, actual), expected, [&](Evidence& e) { e.known = known; });
}

std::vector<Comparison> compare_all(const Communicator& group, const std::vector<OutputRows>& output,
                                    const std::map<std::string, Placed>& gradients,
                                    const WholeResults& expected, const Background& background) {
  std::vector<Comparison> all;
  std::vector<Piece> pieces;
  for (const auto& [name, gradient] : gradients)
    if (!expected.contains(name))
      all.push_back(unlike(name, name == "input_grad" ? Diagnosis(Cause::not_wanted)
                                                      : Diagnosis(Cause::other_name, {names_of(expected)})));
  for (const OutputRows& rows : output) pieces.push_back(piece_of_output(rows));
  for (const auto& [name, whole] : expected) {
    if (name == "output") continue;
    const auto found = gradients.find(name);
    if (found == gradients.end())
      all.push_back(unlike(name, Diagnosis(Cause::left_out)));
    else if (found->second.global_shape() != whole.shape)
      all.push_back(wrong_shape(name, found->second.global_shape(), whole.shape));
    else if (found->second.is_here())
      pieces.push_back(piece_of(name, found->second));
  }

  std::optional<std::vector<OtherResults>> others;
  for (const Piece& piece : pieces)
    all.push_back(compare(group, piece, expected.at(piece.name), [&](Evidence& e) {
      auto mine = [&](const WholeResults& results) { return piece.mine(results.at(piece.name)); };
      e.was_right_with_input_grad = background.was_right_with_input_grad;
      e.is_log_loss = background.has_log_losses && piece.name == "output";
      for (auto [list, made] : {std::pair{&e.addends, &background.addends}, {&e.pieces, &background.pieces}})
        if (*made)
          for (const RowsAlone& alone : (*made)(piece.name))
            list->push_back({alone.of, alone.rows, mine(*alone.results)});
      if (!others) others = likeliest_first(pieces, background);
      for (const OtherResults& other : *others) e.others.push_back({other.says, mine(other.results)});
    }));
  return all;
}

}  // namespace shard
