#include "engine/record/recorder.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
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

/// What is left of a large tensor's numbers: two random signed sums, and the root of the sum of squares. The difference
/// of such a sum of two tensors is as large, on average, as the norm of their difference (Alon, Matias and Szegedy 1996).
std::vector<float> sketch_of(const std::vector<float>& numbers) {
  double first = 0, second = 0, squares = 0;
  std::uint64_t random = 1;
  for (const double x : numbers) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    first += (random >> 63 & 1) != 0 ? x : -x;
    second += (random >> 62 & 1) != 0 ? x : -x;
    squares += x * x;
  }
  return {static_cast<float>(first), static_cast<float>(second), static_cast<float>(std::sqrt(squares))};
}

}  // namespace

Recorder::Line::Line(Recorder& recorder, std::string_view is) : Written(recorder.book_.text(), "}\n") {
  add("is", is);
  add("t", now());
}

Recorder::Recorder(Index steps, const std::string& path) : book_(path), steps_(steps), observation_(*this) {
  section("start", false);
}

Recorder::Held* Recorder::find(const void* memory) {
  const auto found = held_.find(memory);
  return found == held_.end() ? nullptr : &found->second;
}

Index Recorder::id_of(const void* memory) const {
  const auto found = held_.find(memory);
  return found == held_.end() ? -1 : found->second.id;
}

void Recorder::write_tensor(Text& text, const Tensor& t, bool is_transposed) const {
  Written tensor(text);
  tensor.add("tensor", id_of(t.memory()));
  tensor.add("shape", t.shape());
  if (is_transposed) tensor.add("transposed", true);
}

void Recorder::note_value(const Tensor& t) {
  const bool is_small = t.size() <= most_values;
  if (!tensors_have_elements() || !(is_small || is_kept())) return;
  Held* held = find(t.memory());
  if (held == nullptr) return;
  held->has_value = true;
  std::vector<std::uint32_t> bits;
  for (const float value : is_small ? t.to_host() : sketch_of(t.to_host()))
    bits.push_back(std::bit_cast<std::uint32_t>(value));
  Line entry(*this, is_small ? "value" : "sketch");
  entry.add("tensor", held->id);
  entry.add("values", bits);
}

void Recorder::note_first_value(const Tensor& t) {
  if (const Held* held = find(t.memory()); held != nullptr && !held->has_value) note_value(t);
}

void Recorder::add_line(Written& entry, SourceLine line) {
  const auto [file, is_new] = files_.try_emplace(line.file_name());
  if (is_new) {
    file->second = to_string(line);
    file->second.resize(file->second.rfind(':') + 1);
  }
  Text& text = entry.begin("line");
  text.add('"');
  text.add(file->second);
  if (line.is_known()) text.add(line.line());
  text.add('"');
}

void Recorder::add_place(Written& entry) {
  const Doing& doing = Doing::now();
  add_line(entry, current_call_site());
  if (doing.phase != Phase::none) entry.add("phase", name(doing.phase));
  if (doing.micro_batch) entry.add("micro_batch", *doing.micro_batch);
  if (doing.stage) entry.add("stage", *doing.stage);
}

void Recorder::add_held(Written& entry) {
  std::vector<Held*> all;
  for (auto& [memory, held] : held_) all.push_back(&held);
  std::ranges::sort(all, {}, &Held::id);
  Text& text = entry.begin("held");
  text.add('[');
  for (Held* held : all) {
    if (held != all.front()) text.add(',');
    Written one(text);
    one.add("tensor", held->id);
    one.add("purpose", name(held->purpose));
    one.add("bytes", held->bytes);
    add_line(one, held->line);
    if (!held->how_laid.empty()) one.begin("laid").add(held->how_laid);
    if (held->shape) one.add("shape", *held->shape);
    if (!held->name.empty()) one.add("name", held->name);
    held->has_value = false;
  }
  text.add(']');
}

void Recorder::section(const std::string& name, bool is_step) {
  if (is_step_ && steps_-- > 0)
    book_.keep();
  else if (is_step || !is_step_)
    book_.forget();
  is_step_ = is_step;
  Line begins(*this, "section");
  begins.add("name", name);
  begins.begin("groups").add("[" + groups_ + "]");
  add_held(begins);
}

void Recorder::called(Request& request, const Communicator& group) {
  if (request.is_counted()) ++calls_;
  note_first_value(request.tensor);
  request.event = next_event_++;
  {
    Line entry(*this, "call");
    entry.add("event", request.event);
    entry.add("number", calls_);
    entry.add("function", name(request.function));
    entry.add("is_counted", request.is_counted());
    if (!request.what.empty()) entry.add("what", request.what);
    if (request.op) entry.add("op", name(*request.op));
    if (request.concat_axis)
      entry.add("axes", std::vector{*request.axis, *request.concat_axis});
    else if (request.axis)
      entry.add("axes", std::vector{*request.axis});
    if (request.peer) entry.add("peer", group.members().at(static_cast<std::size_t>(*request.peer)));
    entry.add("group", group.group_id());
    if (request.tensor.memory() != nullptr) write_tensor(entry.begin("from"), request.tensor);
    if (request.into) write_tensor(entry.begin("into"), *request.into);
    add_place(entry);
  }
  book_.flush();  // this device may wait in the call for ever
}

void Recorder::waits_for(Index event) {
  {
    Line entry(*this, "waits");
    entry.add("event", event);
    add_place(entry);
  }
  book_.flush();
}

void Recorder::arrived(Index event, const Tensor& result) {
  {
    Line entry(*this, "arrived");
    entry.add("event", event);
    if (result.memory() != nullptr) write_tensor(entry.begin("to"), result);
  }
  note_value(result);
}

template <std::size_t N, class T>
void Recorder::note_group(Index group, const char (&field)[N], const T& value) {
  Text json;
  {
    Written entry(json);
    entry.add("is", "group");
    entry.add("group", group);
    entry.add(field, value);
  }
  book_.text().add(json.view());
  book_.text().add('\n');
  groups_ += groups_.empty() ? "" : ",";
  groups_ += json.view();
}

void Recorder::joined(const Communicator& group) {
  note_group(group.group_id(), "members", group.members());
}

void Recorder::group_named(Index group, const std::string& name) {
  note_group(group, "name", name);
}

void Recorder::begins(const Operation& operation) {
  for (const Tensor* t : operation.from) note_first_value(*t);
  Line entry(*this, "operation");
  entry.add("function", operation.function);
  Text& text = entry.begin("from");
  text.add('[');
  for (std::size_t i = 0; i < operation.from.size(); ++i) {
    if (i > 0) text.add(',');
    write_tensor(text, *operation.from[i], i < operation.transposed.size() && operation.transposed[i]);
  }
  text.add(']');
  if (operation.to != nullptr) write_tensor(entry.begin("to"), *operation.to);
  if (operation.flops > 0) entry.add("flops", operation.flops);
  add_place(entry);
}

void Recorder::computed(const Operation& operation) {
  Line(*this, "computed");
  if (operation.to != nullptr) note_value(*operation.to);
}

void Recorder::made(const void* memory, Purpose purpose, Index bytes) {
  Held& held = held_[memory];
  held = {.id = next_id_++, .purpose = purpose, .bytes = bytes, .line = current_call_site()};
  Line entry(*this, "made");
  entry.add("tensor", held.id);
  entry.add("purpose", name(purpose));
  entry.add("bytes", bytes);
  add_line(entry, held.line);
}

void Recorder::freed(const void* memory) {
  if (std::uncaught_exceptions() > 0) return;  // after an error, all tensors go
  Line entry(*this, "freed");
  entry.add("tensor", id_of(memory));
  add_line(entry, current_call_site());
  held_.erase(memory);
}

void Recorder::moved(const void* memory, Purpose to) {
  Line entry(*this, "moved");
  entry.add("tensor", id_of(memory));
  entry.add("purpose", name(to));
  add_line(entry, current_call_site());
  if (Held* held = find(memory)) held->purpose = to;
}

void Recorder::sent(Index event, int to, const Traffic& messages) {
  Line entry(*this, "sent");
  entry.add("event", event);
  entry.add("to", to);
  entry.add("messages", messages.messages);
  entry.add("bytes", messages.bytes);
}

void Recorder::laid(const Tensor& local, const Lying& lying) {
  Line entry(*this, "laid");
  entry.add("tensor", id_of(local.memory()));
  Text& text = entry.begin("how");
  const std::size_t begin = text.size();
  {
    Written how(text);
    how.add("group", lying.group);
    how.add("axes", lying.axes);
    how.add("letters", lying.letters);
    how.add("whole", lying.whole);
    how.add("mine", lying.mine);
  }
  if (Held* held = find(local.memory())) {
    held->how_laid = text.view().substr(begin);
    held->shape = local.shape();
  }
}

void Recorder::named(const Tensor& tensor, const std::string& name) {
  Line entry(*this, "named");
  entry.add("tensor", id_of(tensor.memory()));
  entry.add("name", name);
  if (Held* held = find(tensor.memory())) {
    held->name = name;
    held->shape = tensor.shape();
  }
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
