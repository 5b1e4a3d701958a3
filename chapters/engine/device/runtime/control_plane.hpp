#pragma once

/// The control plane: messages between devices that are no tensor data, such as shapes, checks, reports and
/// errors. Both backends send them over MPI. The ledger does not count them.

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/error.hpp"
#include "engine/device/split.hpp"

namespace shard::runtime {

/// What a blocked device waits for. A slot of a group counts what a device has posted to one of its channels
/// (sends to member 1, say); a need is met when device `peer` of the job has posted `entries` to that slot.
struct Blocked {
  struct Need {
    Index peer;
    Index group;
    Index slot;
    Index entries;
    bool operator==(const Need&) const = default;
  };
  /// The needs of one operation. It goes on when all of them are met.
  using Needs = std::vector<Need>;
  std::string call;              ///< "all_reduce (call 3), for device 1"
  std::vector<Needs> in_flight;  ///< the device can go on only if one of these operations can
};

class ControlPlane {
 public:
  static ControlPlane& instance();

  int id() const { return id_; }
  int size() const { return size_; }

  /// What this device posts in a group, by slot: counted there, read here, until the group is removed.
  void add(Index group, const std::vector<Index>& posted) { posted_[group] = &posted; }
  void remove(Index group) { posted_.erase(group); }

  /// What a backend has in flight goes on while a device waits in a control collective: others may need it
  /// before they come there. `advance` must not wait; `in_flight` as in Blocked.
  void keep_going(std::function<void()> advance, std::function<std::vector<Blocked::Needs>()> in_flight);

  /// Returns when `is_done`. What is in flight goes on meanwhile. \throws Error deadlock
  void wait_for(const std::string& what, Blocked::Needs needs, const std::function<bool()>& is_done);

  /// Patience of one wait. Construct it when a wait begins and call `idle` as long as nothing happens.
  class Wait {
   public:
    /// Spins at first, later yields the core. Ends this device if another one has reported an error. After
    /// about a second, takes part in the search for a deadlock. \throws Error deadlock, which says what each
    /// device waits for, when there is one.
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

  /// Ends the whole job with the error's code. The error's line is printed once, by device 0 if it still
  /// runs.
  [[noreturn]] void fail(Code code, const std::string& line);

  /// Begins the job: before any group is made.
  void start(int& argc, char**& argv);
  /// Ends it: when all groups have gone.
  void finish();

 private:
  struct Answer;    // one device's state in a round of questions
  struct Messages;  // the MPI side

  ControlPlane();
  ~ControlPlane();
  void hear_of_failures();
  void hear_of_deadlock();
  void answer_question(const Blocked& mine);
  void ask_around(const Blocked& mine);
  void judge();
  Answer my_answer(const Blocked& mine) const;

  std::unique_ptr<Messages> messages_;
  int id_ = 0;
  int size_ = 1;
  std::function<void()> advance_ = [] {};
  std::function<std::vector<Blocked::Needs>()> in_flight_ = [] { return std::vector<Blocked::Needs>(); };
  std::map<Index, const std::vector<Index>*> posted_;  // by group
  std::vector<Answer> answers_;                        // device 0: of this round of questions
  std::vector<Answer> earlier_answers_;                // and of the one before
  Index round_ = 0;
  int missing_answers_ = 0;
  std::chrono::steady_clock::time_point asked_{};
};

}  // namespace shard::runtime
