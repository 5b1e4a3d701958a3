#pragma once

/// Reads the config.json of a network of another library.

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <set>

#include "engine/basics/printable.hpp"
#include "engine/weights/foreign_model.hpp"
#include "engine/workloads/initial_values.hpp"

namespace shard {

/// Reads hyper-parameters, and records their names: all others must not change results.
class ForeignConfig {
 public:
  explicit ForeignConfig(const ForeignModel& model) : model_(model) {}

  /// A number; `otherwise`, the default of the family's config class, if the file does not have it.
  template <class Number>
  Number number(const std::string& name, Number otherwise, Number least) {
    const std::string given = text(name, "");
    if (given.empty()) return otherwise;
    Number value{};
    const auto [stop, error] = std::from_chars(given.data(), given.data() + given.size(), value);
    const bool is_read = error == std::errc() && stop == given.data() + given.size();
    if (!is_read || !(value >= least) || value > std::numeric_limits<Number>::max())
      refuse_value(name, fmt::format("a number of {} or more", least), given);
    return value;
  }
  Index count(const std::string& name, Index otherwise) { return number<Index>(name, otherwise, 1); }
  /// Refuses sizes for which a product would overflow, or a list of all parameters would not fit into memory.
  /// `matrices` and `numbers` are about the number of matrices of the network, and of their elements.
  void require_countable(double matrices, double numbers) const;
  /// A text; `otherwise` if it is missing or null.
  std::string text(const std::string& name, const std::string& otherwise) {
    known_.insert(name);
    return model_.hyper_parameter(name, otherwise);
  }
  bool truth(const std::string& name, bool otherwise) {
    const std::string given = text(name, otherwise ? "true" : "false");
    if (given != "true" && given != "false") refuse_value(name, "true or false", given);
    return given == "true";
  }
  bool is_null(const std::string& name) const {
    const auto found = model_.config.find(name);
    return found != model_.config.end() && found->second == "null";
  }
  /// Refuses another value than this one, since nothing else is computed here.
  void require(const std::string& name, const std::string& expected) {
    const std::string given = text(name, expected);
    if (given != expected) refuse_value(name, expected, given);
  }
  /// The network's family, `model_type`, which must be one of these. \throws Error file that names the
  /// variants for another family
  std::string require_family(const std::vector<std::string>& families);
  /// Refuses hyper-parameters that were not read, unless they change no result of forward or backward.
  void require_known() const;

  [[noreturn]] void refuse_value(const std::string& name, const std::string& expected,
                                 const std::string& given) const {
    throw Error(Code::file, "{}: config.json: {}: expected {}, given {}", model_.source, printable(name, 60),
                expected, printable(given, 60));
  }

 private:
  const ForeignModel& model_;
  std::set<std::string> known_;
};

/// Whether the head is tied to the embedding, whose stored name is given, by the rule of transformers 5:
/// config.json ties them, and no `lm_head.weight` has other values. \throws Error file when it cannot be read
bool has_tied_head(const ForeignModel& model, const std::string& embedding, bool config_ties);

/// \throws Error file unless the model has exactly these parameters, under these names and in these shapes. A
/// tied head and names for which `is_ignored` is true may be there, too
void require_tensors(const ForeignModel& model, const std::vector<Parameter>& parameters,
                     const ForeignNames& names, bool (*is_ignored)(const std::string& name));

}  // namespace shard
