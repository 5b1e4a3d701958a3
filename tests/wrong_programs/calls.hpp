#pragma once

/// The collective calls of a communicator, each in its usual form, and in forms that do not match it.

#include <functional>
#include <memory>
#include <type_traits>

#include "tests/wrong_programs/program.hpp"

namespace shard::testing {

/// A call in progress: a future of any type, or nothing if the call is done.
class InProgress {
 public:
  InProgress() = default;
  template <class T>
  InProgress(Future<T>&& future) {
    auto shared = std::make_shared<Future<T>>(std::move(future));
    ready_ = [shared] { return shared->ready(); };
    get_ = [shared] { shared->get(); };
  }
  bool ready() const { return !ready_ || ready_(); }
  void get() const {
    if (get_) get_();
  }

 private:
  std::function<bool()> ready_;
  std::function<void()> get_;
};

/// A call, and its source line.
struct Form {
  template <class Action>
  Form(std::string name_in_errors, SourceLine line, Action action)
      : text(std::move(name_in_errors)), where(line), start([action](Communicator& g) -> InProgress {
          if constexpr (std::is_constructible_v<InProgress, decltype(action(g))>)
            return action(g);
          else
            return (void)action(g), InProgress();
        }) {}

  void make(Communicator& g = group()) const { start(g).get(); }

  std::string text;  ///< as a mismatch names it: "all_reduce(sum) of (3,)"
  SourceLine where;
  std::function<InProgress(Communicator&)> start;
};

/// A call with another argument, which does not fit.
struct OtherForm {
  std::string class_;  ///< "another shape"
  Form form;
};

struct CollectiveCall {
  std::string name;       ///< "all_gather, kept"
  std::string in_errors;  ///< as a deadlock names it: "all_gather"
  bool is_async;
  bool is_agreed;  ///< whether another call in its place is a mismatch; with a gather, the members wait
  Form form;
  std::vector<OtherForm> others;
};

const std::vector<CollectiveCall>& collective_calls();
const Form& another_call(const CollectiveCall& call);

/// One device makes the call and another one in a sequence of its own: it comes to `its` where the others come to
/// `theirs`.
struct OtherSequence {
  const char* class_;  ///< "left out in the middle"
  int culprit;
  const Form &its, &theirs;
  Body body;
};
std::vector<OtherSequence> other_sequences(const CollectiveCall& call);

}  // namespace shard::testing
