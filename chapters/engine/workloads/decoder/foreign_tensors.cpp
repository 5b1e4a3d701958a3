#include "engine/workloads/decoder/foreign_tensors.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "engine/basics/printable.hpp"
#include "engine/basics/ranges.hpp"

namespace shard {

namespace {

constexpr const char* head = "lm_head.weight";

/// The first row that differs between two matrices of one shape; nothing if none does. A NaN differs.
std::optional<Index> first_difference(const Checkpoint& stored, const std::string& one,
                                      const std::string& other) {
  const Shape shape = stored.shape(one);
  const Index most = std::max<Index>(1, piece_elements / std::max<Index>(1, shape[1]));
  for (Index begin = 0; begin < shape[0]; begin += most) {
    const Index end = std::min(begin + most, shape[0]);
    const std::vector<float> a = stored.read(one, 0, begin, end), b = stored.read(other, 0, begin, end);
    const auto differs = std::ranges::mismatch(a, b).in1;
    if (differs != a.end()) return begin + (differs - a.begin()) / shape[1];
  }
  return std::nullopt;
}

}  // namespace

std::string stored_table(const ForeignModel& model, const std::vector<std::string>& names) {
  if (model.parameters)
    for (const std::string& name : names)
      if (model.parameters->contains(name)) return name;
  return names.front();
}

void require_one_table(const ForeignModel& model, const std::vector<std::string>& names) {
  const std::string first = stored_table(model, names);
  if (!model.parameters || !model.parameters->contains(first)) return;
  const Shape shape = model.parameters->shape(first);
  for (const std::string& other : names) {
    if (other == first || !model.parameters->contains(other)) continue;
    const Shape given = model.parameters->shape(other);
    if (given != shape || shape.size() != 2)
      throw Error(Code::file,
                  "{}: {}: expected a matrix with the shape {} of {}, as they are one table, given {}",
                  model.source, other, to_string(shape), first, to_string(given));
    if (const std::optional<Index> row = first_difference(*model.parameters, first, other))
      throw Error(
          Code::file,
          "{}: {}: expected the values of {}, as they are one table, given others, the first in row {}",
          model.source, other, first, *row);
  }
}

bool has_tied_head(const ForeignModel& model, const std::vector<std::string>& embedding, bool config_ties) {
  if (!config_ties || !model.parameters || !model.parameters->contains(head)) return config_ties;
  const std::string table = stored_table(model, embedding);
  if (!model.parameters->contains(table)) return true;  // the head is the only copy
  const Shape shape = model.parameters->shape(table);
  return shape.size() == 2 && model.parameters->shape(head) == shape &&
         !first_difference(*model.parameters, table, head);
}

void require_tensors(const ForeignModel& model, const std::vector<Parameter>& parameters,
                     const ForeignNames& names, bool (*is_ignored)(const std::string& name)) {
  std::set<std::string> known = {head};  // a tied head may be stored
  for (const Parameter& p : parameters) {
    const ForeignName& stored = names.at(p.name);
    known.insert(stored.name);
    const Shape expected = stored.stored_shape(p.shape);
    const Shape given = model.parameters->shape(stored.name);
    if (given != expected)
      throw Error(Code::file, "{}: {}: expected {}, which config.json says, given {}", model.source,
                  stored.name, to_string(expected), to_string(given));
  }
  for (const std::string& name : model.parameters->names())
    if (!known.contains(name) && !is_ignored(name))
      throw Error(Code::file, "{}: {}: expected the parameters of a {} alone, given another one",
                  model.source, printable(name, 120), model.hyper_parameter("model_type", "none"));
}

}  // namespace shard
