#pragma once

/// Options of a variant or a workload: declared where they are used, shown by --help, refused elsewhere.
///
///     const Option<Index> micro_batches{"--micro-batches", 1, "Pieces in which a device works"};
///     options[micro_batches]  // what the command line says, or 1

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/device/device.hpp"

namespace shard {

/// An option as the command line sees it: everything is text.
struct OptionText {
  std::string name;     ///< "--micro-batches"
  std::string initial;  ///< its value by default
  std::string help;
  std::string type;      ///< "N", "X", "NAME", "HOW" ... for --help
  std::string expected;  ///< "a whole number from 1 to 2^30": what the message for another text expects
  std::function<bool(const std::string& text)> accepts;
  bool is_of_data = false;  ///< says what a network learns from, and is no part of the network
};

/// A whole number from 1 to 2^30; a number of 0 or more; any text.
/// @{
OptionText option_text(const std::string& name, Index initial, const std::string& help);
OptionText option_text(const std::string& name, double initial, const std::string& help);
OptionText option_text(const std::string& name, const std::string& initial, const std::string& help);
/// @}

/// An option whose value is an Index, a double or a std::string.
template <class T>
struct Option : OptionText {
  /// `of_type`: its type in --help, if not that of all such values.
  Option(const std::string& option, const T& value, const std::string& help_text,
         const std::string& of_type = "")
      : OptionText(option_text(option, value, help_text)) {
    if (!of_type.empty()) type = of_type;
  }
};

/// An option of the data.
template <class T>
Option<T> of_data(Option<T> option) {
  option.is_of_data = true;
  return option;
}

/// The values that were given for options, by their names.
class Options {
 public:
  /// The value that was given for this option, or its initial value.
  Index operator[](const Option<Index>& option) const;
  double operator[](const Option<double>& option) const;
  std::string operator[](const Option<std::string>& option) const { return text(option); }

  /// These options and one more: `Options().with(micro_batches, 3)`.
  template <class T>
  Options with(const Option<T>& option, const std::type_identity_t<T>& value) const {
    Options more = *this;
    more.set(option.name, option_text(option.name, value, "").initial);
    return more;
  }

  bool has(const std::string& name) const { return given_.contains(name); }
  /// The text that was given for an option. `has` must be true.
  const std::string& given(const std::string& name) const;
  /// The names of all options that were given.
  std::vector<std::string> names() const;
  /// `text` must be one that the option accepts.
  void set(const std::string& name, const std::string& text) { given_[name] = text; }
  /// "--micro-batches 3", for messages.
  std::string describe() const;

 private:
  const std::string& text(const OptionText& option) const {
    return has(option.name) ? given(option.name) : option.initial;
  }

  std::map<std::string, std::string> given_;  // by name
};

/// Whether the whole text is a number, and one for which `is_good` is true.
/// @{
bool is_number(const std::string& text, bool (*is_good)(Index));
bool is_number(const std::string& text, bool (*is_good)(double));
/// @}
/// Whether two texts have the same value: they are equal, or numbers that are: 1e4 and 10000.
bool is_same_value(const std::string& one, const std::string& other);
/// The numbers of "3,1,1", if `is_good` is true for each; nothing for any other text.
std::optional<std::vector<Index>> numbers_in(const std::string& text, bool (*is_good)(Index));

/// The bytes that a text names, rounded down, at most 9·10^18: "2GB", "1.5 GiB", "64KiB", "1000B" or a plain
/// number. Nothing for any other text. Case does not matter.
std::optional<std::int64_t> bytes_in(const std::string& text);

}  // namespace shard
