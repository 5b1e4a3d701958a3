#pragma once

/// The keys and values of the tokens so far, so that the next token need not compute them again.

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/layouts/layouts.hpp"

namespace shard {

/// All keys and values that a block's queries may see, (n, G d), and their positions (n).
template <Layout L>
struct SeenKeys {
  const L& k;
  const L& v;
  std::span<const Index> at;
};

/// The cache of one sequence: the keys and values of each attention, for the tokens so far. They keep the
/// layout in which they are computed, so a device keeps its heads, its tokens, or its blocks. The engine
/// gives each attention a number, such as its block's.
class KeyValueCache {
 public:
  /// Whether tokens are kept. Turning it on or off forgets them.
  void keep(bool wanted) {
    is_on_ = wanted;
    attentions_.clear();
  }

  /// Appends an attention's new keys and values, if any, and returns all that it has. Without a cache, or
  /// without a number of the attention, nothing is kept, and the new ones are returned.
  template <Layout L>
  SeenKeys<L> seen(std::optional<Index> attention, const L& k, const L& v, std::span<const Index> at) {
    if (!is_on_ || !attention) return {k, v, at};
    std::shared_ptr<AnyEntry>& kept = attentions_[*attention];
    if (!kept) kept = std::make_shared<Entry<L>>();
    auto* found = dynamic_cast<Entry<L>*>(kept.get());
    if (found == nullptr)
      refuse(Code::internal, "keys of earlier tokens", "one layout for each attention", "another one");
    Entry<L>& entry = *found;
    if (at.empty() && !entry.k.is_empty()) return {entry.k, entry.v, entry.at};
    entry.k = joined(entry.k, k);
    entry.v = joined(entry.v, v);
    entry.at.insert(entry.at.end(), at.begin(), at.end());
    return {entry.k, entry.v, entry.at};
  }

 private:
  struct AnyEntry {
    virtual ~AnyEntry() = default;
  };
  template <Layout L>
  struct Entry : AnyEntry {
    L k, v;
    std::vector<Index> at;
  };

  /// The rows of a, and behind them those of b.
  template <Layout L>
  static L joined(const L& before, const L& more) {
    using detail::Access;
    const Tensor& added = Access::tensor(more);
    if (before.is_empty()) return detail::relaid(added.clone(), more);
    const std::array<const Tensor*, 2> both = {&Access::tensor(before), &added};
    Shape global = more.global_shape();
    global[0] += before.global_shape()[0];
    return Access::make<L>(more.group(), concatenate(both, 0), std::move(global), Access::place(more));
  }

  bool is_on_ = false;
  std::map<Index, std::shared_ptr<AnyEntry>> attentions_;  // each in the layout of the engine's keys
};

}  // namespace shard
