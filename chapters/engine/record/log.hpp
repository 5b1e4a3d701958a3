#pragma once

/// What a device writes down while it runs: one entry after the other, which never change. So they may be
/// written to a file at once, and are there when the device is killed. record.hpp makes the record of them.

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/device/split.hpp"

namespace shard {

/// An entry is an object. `is` says what happened; `t` when, in microseconds. The other fields, by `is`:
///
///     section    name; held: the tensors that the device has, {tensor, purpose, bytes, line, name}
///     operation  function, from and to: {tensor, shape}, flops; where it is, as below
///     computed   the operation before is done
///     call       event, number, function, op, axes, group, peer, from, into; where it is
///     waits      event: the caller waits for this call
///     arrived    event; to: the result
///     sent       event, to, messages, bytes
///     made       tensor, purpose, bytes, line
///     freed      tensor, line
///     moved      tensor, purpose, line
///     laid       tensor, group, axes, letters, whole, mine
///     named      tensor, name
///     value      tensor, values
///     group      group, members, or its name
///
/// Where it is: line, and phase, micro_batch and stage as far as they are known.
using Entry = nlohmann::ordered_json;
using Log = std::vector<Entry>;

/// The log of a device: the sections that are to stay, and later ones until they are forgotten.
class LogBook {
 public:
  /// `path`: a file that has a line for each entry, for the launcher; empty: none.
  explicit LogBook(const std::string& path);

  /// Lets all sections so far stay.
  void keep();
  /// Forgets the sections that are not to stay.
  void forget();
  void add(Entry entry) { later_.push_back(std::move(entry)); }
  /// Brings the file up to date.
  void flush();
  /// The sections that stay, or all.
  Log all(bool with_later) const;

 private:
  Log kept_, later_;
  std::size_t flushed_ = 0;  // of later_, entries that the file has
  long kept_bytes_ = 0;      // of the file
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

/// The log that such a file has; empty if there is none. A last line that is cut off does not count.
Log log_in(const std::string& path);

}  // namespace shard
