#include "engine/device/runtime/notes.hpp"

#include "engine/device/books/memory.hpp"
#include "engine/device/runtime/stream.hpp"
#include "engine/device/runtime/watchdog/flight_record.hpp"
#include "engine/device/this_device.hpp"

namespace shard {

namespace {

std::vector<Observer*>& observers() {
  return device().state<std::vector<Observer*>>();
}
/// Calls f(observer) for each. Without observers, it costs one question.
template <class F>
void tell(const F& f) {
  if (!device().is_observed) return;
  for (Observer* o : observers()) f(*o);
}

}  // namespace

Observation::Observation(Observer& observer) : observer_(observer) {
  observers().push_back(&observer);
  device().is_observed = true;
}
Observation::~Observation() {
  std::erase(observers(), &observer_);
  device().is_observed = !observers().empty();
}

void note_layout(const Tensor& local, const Lying& lying) {
  tell([&](Observer& o) { o.laid(local, lying); });
}
void note_name(const Tensor& tensor, const std::string& name) {
  tell([&](Observer& o) { o.named(tensor, name); });
}
void note_group(Index group, const std::string& name) {
  tell([&](Observer& o) { o.group_named(group, name); });
}
void note_section(const std::string& name, bool is_step) {
  tell([&](Observer& o) { o.section(name, is_step); });
}
void note_difference(const std::string& line) {
  runtime::FlightRecord::instance().note_difference(line);
  tell([&](Observer& o) { o.differs(line); });
}

namespace runtime {

void note_allocation(const void* memory, Purpose purpose, Index bytes) {
  ledger().allocated(purpose, bytes);
  tell([&](Observer& o) {
    o.allocated(purpose, bytes);
    o.made(memory, purpose, bytes);
  });
}

void note_release(const void* memory, Purpose purpose, Index bytes) {
  ledger().released(purpose, bytes);
  tell([&](Observer& o) {
    o.released(purpose, bytes);
    o.freed(memory);
  });
}

void note_move(const void* memory, Purpose from, Purpose to, Index bytes) {
  ledger().moved(from, to, bytes);
  tell([&](Observer& o) {
    o.released(from, bytes);
    o.allocated(to, bytes);
    o.moved(memory, to);
  });
}

void note_sent(const Request& call, std::int64_t group, Collective collective, const Traffic& messages,
               std::optional<int> to) {
  ledger().sent(group, collective, messages);
  tell([&](Observer& o) { o.sent(call.event, to.value_or(-1), messages); });
}

Noted::Noted(std::string_view function, Index elements, std::span<const Tensor* const> from,
             const Tensor* to) {
  if (!device().is_observed) return;
  tell([&](Observer& o) { o.elementwise(function, elements); });
  begin(function, from, to);
}

Noted::Noted(Operand a, Operand b, const Tensor& c, bool accumulates, Index flops) {
  ledger().computed(flops);
  if (!device().is_observed) return;
  tell([&](Observer& o) { o.product(a, b, c, accumulates); });
  const std::array<const Tensor*, 3> from = {a.tensor, b.tensor, accumulates ? &c : nullptr};
  begin("matmul", from, &c, flops, {a.is_transposed, b.is_transposed});
}

void Noted::begin(std::string_view function, std::span<const Tensor* const> from, const Tensor* to,
                  Index flops, std::vector<bool> transposed) {
  told_.emplace();
  for (const Tensor* t : from)
    if (t != nullptr) told_->from.push_back(t);
  told_->operation = {function, told_->from, to, flops, std::move(transposed)};
  tell([&](Observer& o) { o.begins(told_->operation); });
}

Noted::~Noted() {
  if (!told_) return;
  tell([&](Observer& o) { o.computed(told_->operation); });
}

}  // namespace runtime

void for_each_alike(Index n, const std::function<void(Index)>& body) {
  const Ledger& books = ledger();
  auto held = [&] {
    std::array<Index, num_purposes> bytes;
    for (int p = 0; p < num_purposes; ++p) bytes[static_cast<std::size_t>(p)] = books.live(Purpose{p});
    return bytes;
  };
  for (Index k = 0; k < n; ++k) {
    const auto before = held();
    const Index operations = books.flops(), calls = runtime::stream().calls();
    body(k);
    const bool is_same = held() == before && runtime::stream().calls() == calls && !device().is_observed;
    if (is_same && !tensors_have_elements())
      return ledger().computed((n - 1 - k) * (books.flops() - operations));
  }
}

}  // namespace shard
