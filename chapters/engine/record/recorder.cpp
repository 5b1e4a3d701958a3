#include "engine/record/recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>

#include "engine/device/books/doing.hpp"
#include "engine/device/books/memory.hpp"

namespace shard {

namespace {

/// Microseconds of this host's clock.
Index now() {
  using namespace std::chrono;
  return duration_cast<microseconds>(steady_clock::now().time_since_epoch()).count();
}

constexpr Index most_values = 64;  // of a tensor

/// With as few digits as tell the number apart from other float32's.
double shortest(float value) {
  return std::isfinite(value) ? std::stod(fmt::format("{}", value)) : static_cast<double>(value);
}

Entry pairs_of(const std::vector<Range>& ranges) {
  Entry pairs = Entry::array();
  for (const Range& r : ranges) pairs.push_back({r.begin, r.end});
  return pairs;
}

}  // namespace

Recorder::Recorder(Index steps, const std::string& path) : book_(path), steps_(steps), observation_(*this) {
  section("start", false);
}

Index Recorder::id_of(const void* memory) const {
  const auto found = held_.find(memory);
  return found == held_.end() ? -1 : found->second.id;
}

Entry Recorder::reference(const Tensor& t) const {
  return {{"tensor", id_of(t.memory())}, {"shape", t.shape()}};
}

void Recorder::note_value(const Tensor& t) {
  const auto found = held_.find(t.memory());
  if (found == held_.end() || t.size() > most_values || !tensors_have_elements()) return;
  found->second.has_value = true;
  Entry e = entry("value");
  e["tensor"] = found->second.id;
  e["values"] = Entry::array();
  for (const float value : t.to_host()) e["values"].push_back(shortest(value));
  book_.add(std::move(e));
}

void Recorder::note_first_value(const Tensor& t) {
  const auto found = held_.find(t.memory());
  if (found != held_.end() && !found->second.has_value) note_value(t);
}

Entry Recorder::entry(const char* is) {
  return {{"is", is}, {"t", now()}};
}

void Recorder::add_place(Entry& entry) {
  const Doing& doing = Doing::now();
  entry["line"] = to_string(current_call_site());
  if (doing.phase != Phase::none) entry["phase"] = name(doing.phase);
  if (doing.micro_batch) entry["micro_batch"] = *doing.micro_batch;
  if (doing.stage) entry["stage"] = *doing.stage;
}

void Recorder::section(const std::string& name, bool is_step) {
  Entry begins = entry("section");
  begins["name"] = name;
  std::vector<const Held*> all;
  for (auto& [memory, held] : held_) {
    held.has_value = false;
    all.push_back(&held);
  }
  std::ranges::sort(all, {}, &Held::id);
  begins["held"] = Entry::array();
  for (const Held* held : all) begins["held"].push_back(held->of_section);
  begins["groups"] = groups_;
  if (is_step_ && steps_-- > 0)
    book_.keep();
  else if (is_step || !is_step_)
    book_.forget();
  book_.add(std::move(begins));
  is_step_ = is_step;
}

void Recorder::called(Request& request, const Communicator& group) {
  if (request.is_counted()) ++calls_;
  note_first_value(request.tensor);
  request.event = next_event_++;
  Entry e = entry("call");
  e["event"] = request.event;
  e["number"] = calls_;
  e["function"] = name(request.function);
  e["is_counted"] = request.is_counted();
  if (!request.what.empty()) e["what"] = request.what;
  if (request.function == Request::all_reduce || request.function == Request::reduce_scatter)
    e["op"] = name(request.op);
  if (request.function == Request::all_gather || request.function == Request::reduce_scatter)
    e["axes"] = {request.axis};
  if (request.function == Request::all_to_all) e["axes"] = {request.axis, request.concat_axis};
  if (request.peer) e["peer"] = group.members().at(static_cast<std::size_t>(*request.peer));
  e["group"] = group.group_id();
  if (request.tensor.memory() != nullptr) e["from"] = reference(request.tensor);
  if (request.into) e["into"] = reference(*request.into);
  add_place(e);
  book_.add(std::move(e));
  book_.flush();  // this device may wait in the call for ever
}

void Recorder::waits_for(Index event) {
  Entry e = entry("waits");
  e["event"] = event;
  add_place(e);
  book_.add(std::move(e));
  book_.flush();
}

void Recorder::arrived(Index event, const Tensor& result) {
  Entry e = entry("arrived");
  e["event"] = event;
  if (result.memory() != nullptr) e["to"] = reference(result);
  book_.add(std::move(e));
  note_value(result);
}

void Recorder::joined(const Communicator& group) {
  Entry e = entry("group");
  e["group"] = group.group_id();
  e["members"] = group.members();
  groups_.push_back(e);
  book_.add(std::move(e));
}

void Recorder::group_named(Index group, const std::string& name) {
  Entry e = entry("group");
  e["group"] = group;
  e["name"] = name;
  groups_.push_back(e);
  book_.add(std::move(e));
}

void Recorder::begins(const Operation& operation) {
  for (const Tensor* t : operation.from) note_first_value(*t);
  Entry e = entry("operation");
  e["function"] = operation.function;
  e["from"] = Entry::array();
  for (std::size_t i = 0; i < operation.from.size(); ++i) {
    Entry one = reference(*operation.from[i]);
    if (i < operation.transposed.size() && operation.transposed[i]) one["transposed"] = true;
    e["from"].push_back(std::move(one));
  }
  if (operation.to != nullptr) e["to"] = reference(*operation.to);
  if (operation.flops > 0) e["flops"] = operation.flops;
  add_place(e);
  book_.add(std::move(e));
}

void Recorder::computed(const Operation& operation) {
  book_.add(entry("computed"));
  if (operation.to != nullptr) note_value(*operation.to);
}

void Recorder::made(const void* memory, Purpose purpose, Index bytes) {
  Entry e = entry("made");
  e["tensor"] = next_id_;
  e["purpose"] = name(purpose);
  e["bytes"] = bytes;
  e["line"] = to_string(current_call_site());
  held_[memory] = {next_id_++, e, false};
  book_.add(std::move(e));
}

void Recorder::freed(const void* memory) {
  if (std::uncaught_exceptions() > 0) return;  // after an error, all tensors go
  Entry e = entry("freed");
  e["tensor"] = id_of(memory);
  e["line"] = to_string(current_call_site());
  held_.erase(memory);
  book_.add(std::move(e));
}

void Recorder::moved(const void* memory, Purpose to) {
  Entry e = entry("moved");
  e["tensor"] = id_of(memory);
  e["purpose"] = name(to);
  e["line"] = to_string(current_call_site());
  if (const auto found = held_.find(memory); found != held_.end())
    found->second.of_section["purpose"] = name(to);
  book_.add(std::move(e));
}

void Recorder::sent(Index event, int to, const Traffic& messages) {
  Entry e = entry("sent");
  e["event"] = event;
  e["to"] = to;
  e["messages"] = messages.messages;
  e["bytes"] = messages.bytes;
  book_.add(std::move(e));
}

void Recorder::laid(const Tensor& local, const Lying& lying) {
  Entry e = entry("laid");
  e["tensor"] = id_of(local.memory());
  e["group"] = lying.group;
  e["axes"] = lying.axes;
  e["letters"] = lying.letters;
  e["whole"] = lying.whole;
  e["mine"] = pairs_of(lying.mine);
  if (const auto found = held_.find(local.memory()); found != held_.end()) {
    found->second.of_section["laid"] = e;
    found->second.of_section["shape"] = local.shape();
  }
  book_.add(std::move(e));
}

void Recorder::named(const Tensor& tensor, const std::string& name) {
  Entry e = entry("named");
  e["tensor"] = id_of(tensor.memory());
  e["name"] = name;
  if (const auto found = held_.find(tensor.memory()); found != held_.end()) {
    found->second.of_section["name"] = name;
    found->second.of_section["shape"] = tensor.shape();
  }
  book_.add(std::move(e));
}

namespace {

/// A recorded call in progress.
class RecordedCall : public Pending {
 public:
  RecordedCall(Future<CallResult> call, Index event, Recorder& recorder)
      : call_(std::move(call)), event_(event), recorder_(recorder) {}

  bool test() override { return call_.ready(SourceLine()); }
  void wait() override {
    recorder_.waits_for(event_);
    result_ = call_.get(SourceLine());
    recorder_.arrived(event_, result_.tensor);
  }
  CallResult take_result() override { return std::move(result_); }
  void dropped() noexcept override {}  // so is the future in it, which says so

 private:
  Future<CallResult> call_;
  CallResult result_;
  Index event_;
  Recorder& recorder_;
};

}  // namespace

RecordedCommunicator::RecordedCommunicator(Communicator& inner, Recorder& recorder)
    : WrappedCommunicator(inner), recorder_(recorder) {
  recorder_.joined(*this);
}
RecordedCommunicator::RecordedCommunicator(std::unique_ptr<Communicator> part, Recorder& recorder)
    : WrappedCommunicator(std::move(part)), recorder_(recorder) {
  recorder_.joined(*this);
}

Future<CallResult> RecordedCommunicator::call(Request&& request) {
  if (request.function == Request::verify_replicated) return WrappedCommunicator::call(std::move(request));
  recorder_.called(request, *this);
  const Index event = request.event;
  const Request::Function f = request.function;
  if (f == Request::split || f == Request::synchronize || f == Request::gather ||
      f == Request::gather_for_all) {  // those wait in the call itself
    recorder_.waits_for(event);
    CallResult result = WrappedCommunicator::call(std::move(request)).get(SourceLine());
    recorder_.arrived(event, result.tensor);
    return done(std::move(result));
  }
  return {std::make_shared<RecordedCall>(WrappedCommunicator::call(std::move(request)), event, recorder_),
          [](CallResult result) { return result; }};
}

}  // namespace shard
