#include "engine/workloads/mlp/model.hpp"

#include <fmt/format.h>

#include <charconv>

#include "engine/basics/printable.hpp"
#include "engine/weights/checkpoint.hpp"

namespace shard {

Index Model::weights() const {
  Index sum = 0;
  for (Index layer = 0; layer < num_layers; ++layer) sum += weights(layer);
  return sum;
}

double stack_elements(const Model& model) {
  return static_cast<double>(model.num_layers) * static_cast<double>(model.model_dim) *
         static_cast<double>(model.hidden_dim);
}

std::string layer_name(Index layer) {
  return fmt::format("layer_{}/weights", layer);
}

void refuse_parameter(const Checkpoint& from, const std::string& name, const std::string& expected,
                      const std::string& given) {
  throw Error(Code::file, "{}: {}: expected {}, given {}", from.source(), name, expected, given);
}

void require_parameter(const Checkpoint& from, const std::string& name, const Shape& expected) {
  const Shape given = from.shape(name);
  if (given == expected) return;
  const bool is_transposed = given == Shape(expected.rbegin(), expected.rend());
  refuse_parameter(from, name, to_string(expected),
                   to_string(given) + (is_transposed ? ": PyTorch stores (out, in)?" : ""));
}

Shape matrix_shape(const Checkpoint& checkpoint, const std::string& name) {
  const Shape shape = checkpoint.shape(name);
  if (shape.size() != 2 || shape[0] == 0 || shape[1] == 0)
    refuse_parameter(checkpoint, name, "a matrix of at least 1 by 1", to_string(shape));
  return shape;
}

namespace {

bool is_layer_name(const std::string& name, Index num_layers) {
  constexpr std::string_view before = "layer_";
  Index layer = -1;
  if (name.starts_with(before))
    std::from_chars(name.data() + before.size(), name.data() + name.size(), layer);
  return layer >= 0 && layer < num_layers && name == layer_name(layer);
}

}  // namespace

Model model_of(const Checkpoint& checkpoint) {
  Model model;
  model.num_layers = static_cast<Index>(checkpoint.names().size());
  if (model.num_layers == 0) refuse_parameter(checkpoint, layer_name(0), "a matrix", "no parameter at all");
  for (const std::string& name : checkpoint.names())
    if (!is_layer_name(name, model.num_layers))
      refuse_parameter(
          checkpoint, "parameters",
          "layer_0/weights, layer_1/weights, ... without a gap, and no other (layers have no biases)",
          fmt::format("{}, one of them named {}, which is unknown", model.num_layers, printable(name, 60)));
  const Shape first = matrix_shape(checkpoint, layer_name(0));
  model.model_dim = first[0];
  model.hidden_dim = first[1];
  for (Index layer = 0; layer < model.num_layers; ++layer)
    require_parameter(checkpoint, layer_name(layer), model.shape(layer));
  return model;
}

std::vector<std::string> layer_names(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (Index l = 0; l < model_of(checkpoint).num_layers; ++l) names.push_back(layer_name(l));
  return names;
}

Index layers_in_blocks(const Checkpoint& checkpoint) {
  const Index layers = model_of(checkpoint).num_layers;
  if (layers % 2 != 0)
    throw Error(Code::file,
                "{}: tensor parallel cuts blocks of two layers: expected an even number of layers, given {}",
                checkpoint.source(), layers);
  return layers;
}

}  // namespace shard
