#include "engine/device/runtime/notes.hpp"

#include "engine/device/books/memory.hpp"
#include "engine/device/runtime/stream.hpp"
#include "engine/device/runtime/watchdog/flight_record.hpp"
#include "engine/device/this_device.hpp"

namespace shard {

namespace {

std::vector<Observer*>& observers() {
  return device().part<std::vector<Observer*>>();
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
  for (Observer* o : observers()) o->laid(local, lying);
}
void note_name(const Tensor& tensor, const std::string& name) {
  for (Observer* o : observers()) o->named(tensor, name);
}
void note_group(Index group, const std::string& name) {
  for (Observer* o : observers()) o->group_named(group, name);
}
void note_section(const std::string& name, bool is_step) {
  for (Observer* o : observers()) o->section(name, is_step);
}
void note_difference(const std::string& line) {
  runtime::FlightRecord::instance().note_difference(line);
  for (Observer* o : observers()) o->differs(line);
}

namespace runtime {

void note_allocation(const void* memory, Purpose purpose, Index bytes) {
  ledger().allocated(purpose, bytes);
  for (Observer* o : observers()) {
    o->allocated(purpose, bytes);
    o->made(memory, purpose, bytes);
  }
}

void note_release(const void* memory, Purpose purpose, Index bytes) {
  ledger().released(purpose, bytes);
  for (Observer* o : observers()) {
    o->released(purpose, bytes);
    o->freed(memory);
  }
}

void note_move(const void* memory, Purpose from, Purpose to, Index bytes) {
  ledger().moved(from, to, bytes);
  for (Observer* o : observers()) {
    o->released(from, bytes);
    o->allocated(to, bytes);
    o->moved(memory, to);
  }
}

void note_sent(const Request& call, std::int64_t group, Collective collective, const Traffic& messages,
               std::optional<int> to) {
  ledger().sent(group, collective, messages);
  for (Observer* o : observers()) o->sent(call.event, to.value_or(-1), messages);
}

Noted::Noted(std::string_view function, Index elements, std::span<const Tensor* const> from, const Tensor* to)
    : is_observed_(device().is_observed) {
  if (!is_observed_) return;
  for (Observer* o : observers()) o->elementwise(function, elements);
  begin(function, from, to);
}

Noted::Noted(Operand a, Operand b, const Tensor& c, bool accumulates, Index flops)
    : is_observed_(device().is_observed) {
  ledger().computed(flops);
  if (!is_observed_) return;
  for (Observer* o : observers()) o->product(a, b, c, accumulates);
  const std::array<const Tensor*, 3> from = {a.tensor, b.tensor, accumulates ? &c : nullptr};
  begin("matmul", from, &c, flops, {a.is_transposed, b.is_transposed});
}

void Noted::begin(std::string_view function, std::span<const Tensor* const> from, const Tensor* to,
                  Index flops, std::vector<bool> transposed) {
  for (const Tensor* t : from)
    if (t != nullptr) from_.push_back(t);
  operation_ = {function, from_, to, flops, std::move(transposed)};
  for (Observer* o : observers()) o->begins(operation_);
}

Noted::~Noted() {
  if (!is_observed_) return;
  for (Observer* o : observers()) o->computed(operation_);
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
    const bool is_same = held() == before && runtime::stream().calls() == calls && observers().empty();
    if (is_same && !tensors_have_elements())
      return ledger().computed((n - 1 - k) * (books.flops() - operations));
  }
}

}  // namespace shard
