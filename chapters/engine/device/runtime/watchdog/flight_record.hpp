#pragma once

/// What this device is doing, in memory that outlives its process. The launcher reads the last call of a lost
/// device, and whether a device waits.

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/device/call_site.hpp"

namespace shard::runtime {

/// A device's record is the file device_ID in the folder SHARDBOOK_RECORDS, which chapters/launch.py reads.
/// Nothing is recorded if the folder does not exist, on another host for example.
class FlightRecord {
 public:
  enum class State : std::int64_t { runs, waits, polls, has_ended };
  /// The content of the file. Texts are padded with zeros.
  struct Content {
    std::int64_t process;
    std::int64_t state;
    std::int64_t since;  ///< when the state began, in milliseconds of the system clock
    std::int64_t calls;
    std::int64_t line;  ///< of the last call, in `file`
    char call[80];      ///< "all_reduce in group {0, 1}"
    char file[168];
  };

  static FlightRecord& instance();

  /// Begins this device's record.
  void begin(int device);
  void note_call(std::int64_t number, std::string_view call, SourceLine where);
  void note_state(State state);
  /// Notes that this device has ended, with the exit code on which all devices agreed: if the launcher does not end
  /// then, the job ends with this code.
  void note_end(int exit_code);
  /// Decides which device prints the error that ends the job: the first of this host that calls this. Unknown
  /// without records.
  enum class Printer { this_device, another_device, unknown };
  Printer claim_printing() const;
  /// Writes the printed error's code and text to the file last_words. The launcher then ends the devices of
  /// this host, and the job with this code.
  void leave_error(int code, const std::string& text) const;
  /// Adds a line about a result that differs from its reference to the file differences.
  void note_difference(const std::string& line) const;

 private:
  std::string folder_;
  Content nowhere_{};
  Content* content_ = &nowhere_;
};

}  // namespace shard::runtime
