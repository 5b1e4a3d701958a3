#pragma once

#include <list>
#include <tuple>

#include "engine/device/call_site.hpp"
#include "engine/device/error.hpp"

namespace shard {

/// While such an object lives, tapes keep nothing. So a forward pass holds only what it still needs.
class InferenceMode {
 public:
  InferenceMode();
  ~InferenceMode();
  InferenceMode(const InferenceMode&) = delete;
  InferenceMode& operator=(const InferenceMode&) = delete;

  static bool is_on();

 private:
  bool before_;
};

/// What a forward pass keeps for its backward pass. First in, first out: the k-th backward belongs to the
/// k-th forward, so several forwards may precede their backwards (micro-batches).
template <class... Kept>
class Tape {
 public:
  void push(Kept... kept) {
    if (!InferenceMode::is_on()) entries_.emplace_back(std::move(kept)...);
  }
  /// \throws Error argument when no forward is waiting for its backward.
  std::tuple<Kept...> pop(SourceLine where = SourceLine::current()) {
    const CallSite call(where);
    if (entries_.empty()) refuse(Code::argument, "backward", "a forward before it", "an empty tape");
    std::tuple<Kept...> oldest = std::move(entries_.front());
    entries_.pop_front();
    return oldest;
  }
  bool empty() const { return entries_.empty(); }

 private:
  std::list<std::tuple<Kept...>> entries_;
};

}  // namespace shard
