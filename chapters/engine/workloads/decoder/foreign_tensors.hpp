#pragma once

/// The tensors of a network of another library: which of them are one, and whether they are those of config.json.

#include <string>
#include <vector>

#include "engine/weights/foreign_model.hpp"
#include "engine/workloads/initial_values.hpp"

namespace shard {

/// The name under which a table is stored that has several, of which files may keep any: the first of `names`
/// that the files have; without files or tensor, the first.
std::string stored_table(const ForeignModel& model, const std::vector<std::string>& names);
/// \throws Error file when two of these are stored, and have other values: then the network has several tables
void require_one_table(const ForeignModel& model, const std::vector<std::string>& names);

/// Whether the head is tied to the embedding, whose possible names are given, by the rule of transformers 5:
/// config.json ties them, and no `lm_head.weight` has other values. \throws Error file when it cannot be read
bool has_tied_head(const ForeignModel& model, const std::vector<std::string>& embedding, bool config_ties);

/// \throws Error file unless the model has exactly these parameters, under these names and in these shapes. A
/// tied head and names for which `is_ignored` is true may be there, too
void require_tensors(const ForeignModel& model, const std::vector<Parameter>& parameters,
                     const ForeignNames& names, bool (*is_ignored)(const std::string& name));

}  // namespace shard
