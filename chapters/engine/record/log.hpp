#pragma once

/// What a device writes down while it runs: one entry after the other, which never change. So they may be
/// written to a file at once, and are there when the device is killed. record.hpp makes the record of them.

#include <charconv>
#include <concepts>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/device/split.hpp"

namespace shard {

/// An entry is an object, and a line of the log. `is` says what happened; `t` when, in microseconds. The other fields,
/// by `is`:
///
///     section    name; groups: entries about them; held: the tensors that the device has, {tensor, purpose, bytes,
///                line, shape, laid, name}
///     operation  function, from and to: {tensor, shape}, flops; where it is, as below
///     computed   the operation before is done
///     call       event, number, function, op, axes, group, peer, from, into; where it is
///     waits      event: the caller waits for this call
///     arrived    event; to: the result
///     sent       event, to, messages, bytes
///     made       tensor, purpose, bytes, line
///     freed      tensor, line
///     moved      tensor, purpose, line
///     laid       tensor, how: {group, axes, letters, whole, mine}
///     named      tensor, name
///     value      tensor, values: the bits of each float32
///     group      group, members, or its name
///
/// Where it is: line, and phase, micro_batch and stage as far as they are known.
using Entry = nlohmann::ordered_json;
using Log = std::vector<Entry>;

/// Text that grows at its end. Entries are made while the run goes on, so it is written without a tree of JSON, and
/// without a call for each character.
class Text {
 public:
  std::string_view view() const { return {bytes_.data(), size_}; }
  std::size_t size() const { return size_; }
  void clear() { size_ = 0; }

  void add(char c) { *room(1) = c, ++size_; }
  void add(std::string_view more) {
    std::memcpy(room(more.size()), more.data(), more.size());
    size_ += more.size();
  }
  void add(std::integral auto number) {
    char* begin = room(most_digits);
    size_ += static_cast<std::size_t>(std::to_chars(begin, begin + most_digits, number).ptr - begin);
  }

 private:
  static constexpr std::size_t most_digits = 20;

  /// Where the next characters go: there is room for so many.
  char* room(std::size_t more) {
    if (bytes_.size() - size_ < more) grow(more);
    return bytes_.data() + size_;
  }
  void grow(std::size_t more);

  std::vector<char> bytes_;
  std::size_t size_ = 0;
};

/// \name Writes a value as JSON
/// @{
void write_json(Text& text, std::string_view value);
inline void write_json(Text& text, const std::string& value) {
  write_json(text, std::string_view(value));
}
inline void write_json(Text& text, const char* value) {
  write_json(text, std::string_view(value));
}
inline void write_json(Text& text, bool value) {
  text.add(std::string_view(value ? "true" : "false"));
}
inline void write_json(Text& text, std::integral auto value) {
  text.add(value);
}
template <class T>
void write_json(Text& text, const std::vector<T>& values) {
  text.add('[');
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text.add(',');
    write_json(text, values[i]);
  }
  text.add(']');
}
inline void write_json(Text& text, Range value) {
  text.add('[');
  text.add(value.begin);
  text.add(',');
  text.add(value.end);
  text.add(']');
}
/// @}

/// An object that is written at the end of a text, field by field; this object's end is its end.
class Written {
 public:
  explicit Written(Text& text, std::string_view end = "}") : text_(text), end_(end) {}
  ~Written() { text_.add(end_); }
  Written(const Written&) = delete;
  Written& operator=(const Written&) = delete;

  template <std::size_t N, class T>
  void add(const char (&field)[N], const T& value) {
    write_json(begin(field), value);
  }
  /// Begins a field. The caller writes its value at the end of the text.
  template <std::size_t N>
  Text& begin(const char (&field)[N]) {
    text_.add(std::exchange(is_first_, false) ? '{' : ',');
    text_.add('"');
    text_.add(std::string_view(field, N - 1));
    text_.add(std::string_view("\":"));
    return text_;
  }

 private:
  Text& text_;
  std::string_view end_;
  bool is_first_ = true;
};

/// The log of a device: the sections that are to stay, and later ones until they are forgotten.
class LogBook {
 public:
  /// `path`: a file that has the same, for the launcher; empty: none.
  explicit LogBook(const std::string& path);

  /// Lets all sections so far stay.
  void keep();
  /// Forgets the sections that are not to stay.
  void forget();
  /// Where the next entries are written, a line each.
  Text& text() { return later_; }
  /// Brings the file up to date.
  void flush();
  /// The sections that stay, or all.
  std::string all(bool with_later) const { return with_later ? kept_ + std::string(later_.view()) : kept_; }

 private:
  std::string kept_;
  Text later_;
  std::size_t flushed_ = 0;  // of later_, what the file has
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

/// The log of such a text. A last line that is cut off does not count.
Log log_of(const std::string& text);
/// The log that such a file has; empty if there is none.
Log log_in(const std::string& path);

}  // namespace shard
