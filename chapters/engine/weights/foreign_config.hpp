#pragma once

/// Reads the config.json of a network of another library, so that nothing in it changes results unnoticed.

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <set>

#include "engine/basics/printable.hpp"
#include "engine/weights/foreign_model.hpp"

namespace shard {

/// What a family of networks has where its config.json does not say it.
struct FamilyDefaults {
  Index end_token = 2;
  bool ties_the_head = false;
};
/// Those of a `model_type`.
FamilyDefaults defaults_of_family(const std::string& name);

/// Reads hyper-parameters, and records their names: all others must not change results.
class ForeignConfig {
 public:
  explicit ForeignConfig(const ForeignModel& model, Reading reading = Reading::values)
      : model_(model), reading_(reading) {}

  /// A number; `otherwise`, the default of the family's config class, if the file does not have it.
  template <class Number>
  Number number(const std::string& name, Number otherwise, Number least,
                Number most = std::numeric_limits<Number>::max()) {
    const std::string given = text(name, "");
    if (given.empty()) return otherwise;
    Number value{};
    const auto [stop, error] = std::from_chars(given.data(), given.data() + given.size(), value);
    const bool is_read = error == std::errc() && stop == given.data() + given.size();
    if (!is_read || !(value >= least) || value > std::numeric_limits<Number>::max())
      refuse_value(name, fmt::format("a number of {} or more", least), given);
    if (value > most) refuse_value(name, fmt::format("a number of at most {}", most), given);
    return value;
  }
  /// A positive number, which cannot be null.
  Index count(const std::string& name, Index otherwise) {
    if (is_null(name)) refuse_value(name, "a number of 1 or more", "null");
    return count_or_null(name, otherwise);
  }
  Index count_or_null(const std::string& name, Index otherwise) { return number<Index>(name, otherwise, 1); }
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
  /// The same for what changes results, but neither a shape, nor an operation, nor a byte.
  void require_for_values(const std::string& name, const std::string& expected) {
    if (reading_ == Reading::values) return require(name, expected);
    text(name, expected);
  }
  /// Refuses what is neither an object nor null.
  void require_object(const std::string& name);
  /// Refuses a list other than one of `length` times the same text. Returns the text; nothing without a list.
  std::string same_in_each(const std::string& name, Index length);
  /// Refuses another name of a number, unless it has the number's value.
  void require_same(const std::string& other_name, Index value) {
    if (const std::string given = text(other_name, ""); !given.empty() && given != fmt::to_string(value))
      refuse_value(other_name, fmt::to_string(value), given);
  }
  /// The network's family, `model_type`: a T5, or one of the decoders. \throws Error file for another one,
  /// with all that this reading takes
  std::string require_family(bool is_t5);
  /// Refuses hyper-parameters that were not read, unless they change no result of forward or backward: their
  /// names say so, or their values, which are empty, or those of a network without what they name.
  void require_known() const;

  [[noreturn]] void refuse_value(const std::string& name, const std::string& expected,
                                 const std::string& given) const {
    throw Error(Code::file, "{}: config.json: {}: expected {}, given {}", model_.source, printable(name, 60),
                expected, printable(given, 60));
  }

 private:
  const ForeignModel& model_;
  Reading reading_;
  std::set<std::string> known_;
};

}  // namespace shard
