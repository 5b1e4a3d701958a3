#pragma once

/// What this device is doing, in memory that outlives its process. If the device is lost, its launcher reads
/// there how far it came; while it runs, the launcher sees whether it waits.

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/device/call_site.hpp"

namespace shard::runtime {

/// One device's record: the file device_ID in the folder that SHARDBOOK_RECORDS names. chapters/launch.py
/// reads it. Without that folder, on another host say, nothing is recorded.
class FlightRecord {
 public:
  enum class State : std::int64_t { runs, waits, polls, has_ended };
  /// The file's content. Texts end in zeros.
  struct Content {
    std::int64_t process;
    std::int64_t state;
    std::int64_t since;  ///< of the state, in milliseconds of the system's clock
    std::int64_t calls;
    std::int64_t line;  ///< where the last call was made, in `file`
    char call[80];      ///< "all_reduce in group {0, 1}"
    char file[168];
  };

  static FlightRecord& instance();

  /// Begins this device's record.
  void begin(int device);
  void note_call(std::int64_t number, std::string_view call, SourceLine where);
  void note_state(State state);
  /// Who prints the error that ends the job: the first device of this host that asks. Unknown where there are
  /// no records.
  enum class Speaker { this_device, another_device, unknown };
  Speaker claim_last_words() const;
  /// Leaves that error's code and text in the file last_words, once it is printed. The launcher then ends the
  /// devices of this host, and the job's code is this one.
  void leave_last_words(int code, const std::string& text) const;
  /// Adds a line to the file differences: a result that differs from its reference.
  void note_difference(const std::string& line) const;

 private:
  std::string folder_;
  Content nowhere_{};
  Content* content_ = &nowhere_;
};

}  // namespace shard::runtime
