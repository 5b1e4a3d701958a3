#pragma once

/// config.json of a network that another library has written.

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <set>

#include "engine/foreign_model.hpp"
#include "engine/printable.hpp"
#include "engine/workloads/initial_values.hpp"

namespace shard {

/// Reads hyper-parameters, and knows which it was asked for: the others must be harmless.
class ForeignConfig {
 public:
  explicit ForeignConfig(const ForeignModel& model) : model_(model) {}

  /// A number of the family's config class, which has `otherwise` where the file says nothing.
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
  /// Refuses sizes with which a product would overflow, or a list of all parameters would not fit into
  /// memory. `matrices` is about how many the network has, and `numbers` how many numbers they hold.
  void require_countable(double matrices, double numbers) const;
  /// What the file says; `otherwise` for nothing, or null.
  std::string text(const std::string& name, const std::string& otherwise) {
    known_.insert(name);
    return model_.hyper_parameter(name, otherwise);
  }
  bool is_null(const std::string& name) const {
    const auto found = model_.config.find(name);
    return found != model_.config.end() && found->second == "null";
  }
  /// One that must have this value, as nothing else is computed here.
  void require(const std::string& name, const std::string& expected) {
    const std::string given = text(name, expected);
    if (given != expected) refuse_value(name, expected, given);
  }
  /// The network's family, `model_type`, which must be one of these. \throws Error file naming the variants
  /// that read another one
  std::string require_family(const std::vector<std::string>& families);
  /// Refuses what nobody has asked for, unless it changes no result of a forward and a backward pass.
  void require_known() const;

  [[noreturn]] void refuse_value(const std::string& name, const std::string& expected,
                                 const std::string& given) const {
    throw Error(Code::file, fmt::format("{}: config.json: {}: expected {}, given {}", model_.source,
                                        printable(name, 60), expected, printable(given, 60)));
  }

 private:
  const ForeignModel& model_;
  std::set<std::string> known_;
};

/// Whether the head is the embedding, of this name in the files, as transformers 5 decides: where config.json
/// ties them, and the files have no `lm_head.weight` with other values. \throws Error file where it cannot be read
bool has_tied_head(const ForeignModel& model, const std::string& embedding, bool config_ties);

/// \throws Error file unless the model has these parameters, under these names, in these shapes, and no others but
/// a head that is tied and those for which `is_ignored` is true
void require_tensors(const ForeignModel& model, const std::vector<Parameter>& parameters,
                     const ForeignNames& names, bool (*is_ignored)(const std::string& name));

}  // namespace shard
