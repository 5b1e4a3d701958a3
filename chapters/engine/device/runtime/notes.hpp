#pragma once

/// Backends report operations and allocations here, for the ledger and the device's observers.

#include <optional>

#include "engine/device/books/ledger.hpp"
#include "engine/device/books/observer.hpp"

namespace shard::runtime {

void note_allocation(const void* memory, Purpose purpose, Index bytes);
void note_release(const void* memory, Purpose purpose, Index bytes);
void note_move(const void* memory, Purpose from, Purpose to, Index bytes);
/// Messages of a call, to a device of the job, or to devices that a library chooses.
void note_sent(const Request& call, std::int64_t group, Collective collective, const Traffic& messages,
               std::optional<int> to = {});

/// An operation that is computed while this object lives. Those of `from` that are null do not count.
class Noted {
 public:
  /// An operation by elements or rows on this number of elements.
  Noted(std::string_view function, Index elements, std::span<const Tensor* const> from, const Tensor* to);
  Noted(std::string_view function, Index elements, std::initializer_list<const Tensor*> from,
        const Tensor* to)
      : Noted(function, elements, std::span(from.begin(), from.size()), to) {}
  /// c = a b or c += a b.
  Noted(Operand a, Operand b, const Tensor& c, bool accumulates, Index flops);
  ~Noted();
  Noted(const Noted&) = delete;
  Noted& operator=(const Noted&) = delete;

 private:
  /// For observers, if there are any.
  void begin(std::string_view function, std::span<const Tensor* const> from, const Tensor* to,
             Index flops = 0, std::vector<bool> transposed = {});

  /// What observers are told.
  struct Told {
    std::vector<const Tensor*> from;
    Operation operation;
  };
  std::optional<Told> told_;
};

}  // namespace shard::runtime
