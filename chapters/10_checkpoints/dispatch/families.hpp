#pragma once

/// The module trees of the supported families: Llama, Mistral, Mixtral, Qwen2, Gemma, T5 and GPT-2, as in
/// transformers 5.24.

#include <map>

#include "engine/workloads/decoder/model.hpp"
#include "engine/workloads/t5/model.hpp"
#include "tree.hpp"

namespace shard::dispatch {

inline Module linear(const std::string& name, Index rows, Index columns, bool has_bias = false) {
  Module module{name, "Linear", {{"weight", rows * columns}}};
  if (has_bias) module.tensors.push_back({"bias", rows});
  return module;
}
inline Module embedding(const std::string& name, Index rows, Index columns) {
  return {name, "Embedding", {{"weight", rows * columns}}};
}
inline Module vector(const std::string& name, const std::string& class_name, Index elements) {
  return {name, class_name, {{"weight", elements}}};
}

/// Appends the steps of a part whose modules are children of `parent`.
inline void append(std::vector<Step>& flow, const std::string& parent, const std::vector<Step>& part) {
  for (const Step& step : part)
    flow.push_back({step.module.empty() ? parent : path_of(parent, step.module), step.reads, step.writes});
}

/// A Mixtral if it has experts; else a network of this family. Most differ in their classes' names alone.
Network decoder_network(const DecoderModel& model, const std::string& family = "mistral");
Network t5_network(const T5Model& model);
/// A GPT-2, which no engine runs. \throws Error file for hyper-parameters that could change its sizes
Network gpt2_network(const ForeignModel& model);

/// The network of a folder with config.json, or of that file alone. If the folder has parameters, the files'
/// headers give the types of elements, otherwise config.json does. \throws Error file as the reader of
/// chapter 08 does, and for another family
Network read_network(const std::string& path);
}  // namespace shard::dispatch
