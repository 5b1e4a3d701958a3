#pragma once

/// The control plane: what devices tell each other beside tensor data, over MPI in both backends. Shapes,
/// checks, reports and bad news travel here; nothing of it is counted.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/error.hpp"
#include "engine/device/split.hpp"

namespace shard {

/// What a blocked device waits for. A slot counts what a device has posted to one queue (sends to device 1,
/// say); a need is met when device `peer` has posted `entries` to its `slot`.
struct Blocked {
  struct Need {
    Index peer;
    Index slot;
    Index entries;
    bool operator==(const Need&) const = default;
  };
  /// Of one operation: it goes on when all are met.
  using Needs = std::vector<Need>;
  std::string call;              ///< "all_reduce (call 3), for device 1"
  std::vector<Needs> in_flight;  ///< nothing goes on before one of these operations does
};

class ControlPlane {
 public:
  static ControlPlane& instance();

  int id() const { return id_; }
  int size() const { return size_; }

  /// What this device has posted to a slot. Slot 0 counts control collectives; others are the backend's.
  Index& posted(Index slot);

  /// What a backend has in flight goes on while a device waits in a control collective: others may need it
  /// before they come there. `advance` must not wait; `in_flight` as in Blocked.
  void keep_going(std::function<void()> advance, std::function<std::vector<Blocked::Needs>()> in_flight);

  /// Everybody's text, on device 0 in device order; elsewhere nothing. A collective.
  std::vector<std::string> gather(const char* what, const std::string& mine);
  /// Everybody's number, on every device. A collective.
  std::vector<Index> all_gather(const char* what, Index mine);

  /// Patience of one wait. Construct it when a wait begins and call `idle` as long as nothing happens.
  class Wait {
   public:
    /// Spins, then yields; looks for other devices' bad news; after a second or so helps to find out whether
    /// everybody waits for everybody. \throws Error deadlock when that is so, with what each device waits
    /// for.
    template <class Describe>
    void idle(const Describe& describe) {
      if (++spins_ % spins_before_a_look == 0) look(describe);
    }

   private:
    static constexpr int spins_before_a_look = 64;
    void look(const std::function<Blocked()>& describe);

    int spins_ = 0;
    std::chrono::steady_clock::time_point since_{};
  };

  /// Ends the whole job with the error's code; its line is printed once, by device 0 if that still answers.
  [[noreturn]] void fail(Code code, const std::string& line);

 private:
  friend int run_on_devices(int& argc, char**& argv, const std::function<int()>& body);
  struct Answer;    // one device's state in a round of questions
  struct Messages;  // the MPI side

  ControlPlane();
  ~ControlPlane();
  void start(int& argc, char**& argv);
  int finish(int exit_code);
  void hear_of_failures();
  void hear_of_deadlock();
  void answer_question(const Blocked& mine);
  void ask_around(const Blocked& mine);
  void judge();
  Answer my_answer(const Blocked& mine) const;

  std::unique_ptr<Messages> messages_;
  struct Meeting;  // a collective that all devices must enter
  void wait_for(const char* what, Meeting meeting);

  int id_ = 0;
  int size_ = 1;
  std::function<void()> advance_ = [] {};
  std::function<std::vector<Blocked::Needs>()> in_flight_ = [] { return std::vector<Blocked::Needs>(); };
  std::vector<Index> posted_;
  std::vector<Answer> answers_;          // device 0: of this round of questions
  std::vector<Answer> earlier_answers_;  // and of the one before
  Index round_ = 0;
  int missing_answers_ = 0;
  std::chrono::steady_clock::time_point asked_{};
};

/// A program of many devices: starts this process's device, runs `body` and returns its exit code, the
/// largest of all devices. An Error ends every device with its code and one line; so does any other
/// exception.
int run_on_devices(int& argc, char**& argv, const std::function<int()>& body);

}  // namespace shard
