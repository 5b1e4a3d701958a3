#include "engine/record/section.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace shard {

namespace {

/// "layer_0" of "layer_0/weights"; empty for a name without a folder.
std::string block_of(const std::string& name) {
  const std::size_t slash = name.find('/');
  return slash == std::string::npos ? "" : name.substr(0, slash);
}

Index tensor_in(const Entry& reference) {
  return reference.at("tensor").get<Index>();
}

/// The numbers that have these bits, each with as few digits as tell it apart from other float32's.
Entry numbers_of(const Entry& all_bits) {
  Entry numbers = Entry::array();
  for (const Entry& bits : all_bits) {
    const auto value = std::bit_cast<float>(bits.get<std::uint32_t>());
    numbers.push_back(std::isfinite(value) ? std::stod(fmt::format("{}", value))
                                           : static_cast<double>(value));
  }
  return numbers;
}

}  // namespace

Section::Section(int device, const Entry& begins, Tables& tables, Layouts& layouts)
    : device_(device), tables_(tables), layouts_(layouts), name_(begins.at("name")) {
  known_.emplace(-1, Known{-1});  // a tensor without elements
  for (const Entry& group : begins.at("groups")) add_group(group);
  for (const Entry& held : begins.at("held")) hold(held);
}

Section::Known& Section::known(Index tensor) {
  return known_.try_emplace(tensor, Known{static_cast<Index>(known_.size()) - 1}).first->second;
}

void Section::hold(const Entry& held) {
  Known& tensor = known(tensor_in(held));
  tensor.name = held.value("name", "");
  if (held.contains("laid")) lay(tensor_in(held), held.at("laid"));
  Entry one = {{"tensor", tensor.id}, {"purpose", held.at("purpose")}, {"bytes", held.at("bytes")}};
  if (held.contains("shape")) one["shape"] = held.at("shape");
  if (tensor.layout) one["layout"] = *tensor.layout;
  if (!tensor.name.empty()) one["name"] = tensor.name;
  if (const auto line = tables_.line(held.at("line"))) one["line"] = *line;
  held_.push_back(std::move(one));
}

void Section::add(const Entry& entry) {
  const std::string& is = entry.at("is").get_ref<const std::string&>();
  if (is == "operation") add_operation(entry);
  if (is == "computed" && computing_)
    events_[*computing_].took = entry.at("t").get<Index>() - events_[*computing_].t;
  if (is == "call") add_call(entry);
  if (is == "waits") add_wait(entry);
  if (is == "arrived") add_arrival(entry);
  if (is == "sent") add_messages(entry);
  if (is == "made" || is == "freed" || is == "moved") add_memory(entry);
  if (is == "laid") lay(tensor_in(entry), entry.at("how"));
  if (is == "value" || is == "sketch")
    (is == "value" ? values_ : sketches_)
        .push_back({std::ssize(events_) - 1, known(tensor_in(entry)).id, numbers_of(entry.at("values"))});
  if (is == "named" && tensor_in(entry) >= 0) known(tensor_in(entry)).name = entry.at("name");
  if (is == "group") add_group(entry);
}

Section::Event& Section::begin(const Entry& entry, const char* is) {
  Event& event = events_.emplace_back();
  event.what = {{"is", is}};
  event.t = entry.at("t");
  for (const char* field : {"phase", "micro_batch", "stage"})
    if (entry.contains(field)) event.context[field] = entry.at(field);
  if (const auto line = tables_.line(entry.value("line", ""))) event.what["line"] = *line;
  return event;
}

Entry Section::as_operand(const Entry& reference) {
  Entry operand = reference;
  operand.erase("tensor");
  const Known& tensor = known(tensor_in(reference));
  if (tensor.layout && layouts_.fits(device_, *tensor.layout, reference.at("shape")))
    operand["layout"] = *tensor.layout;
  return operand;
}

/// The result of an event. An operation in a tensor's memory keeps its layout, unless it is laid anew.
void Section::write(std::size_t event, const Entry& reference, bool keeps_layout) {
  Known& tensor = known(tensor_in(reference));
  if (!keeps_layout) tensor.layout = {};
  tensor.writer = event;
  events_[event].to = tensor_in(reference);
  events_[event].what["to"] = as_operand(reference);
}

void Section::lay(Index number, const Entry& how) {
  Known& tensor = known(number);
  Entry axes = how.at("axes");
  if (axes.empty()) axes.push_back(axis_of(how.at("group")));
  tensor.layout = layouts_.number_of(device_, axes, how.at("letters"), how.at("whole"), how.at("mine"));
  if (!tensor.writer) return;
  Entry& to = events_[*tensor.writer].what["to"];
  to["layout"] = *tensor.layout;
  tensor.writer = {};  // later layouts are claims about it
}

void Section::add_operation(const Entry& entry) {
  Event& event = begin(entry, "operation");
  event.what["function"] = entry.at("function");
  event.what["from"] = Entry::array();
  for (const Entry& reference : entry.at("from")) {
    event.what["from"].push_back(as_operand(reference));
    event.from.push_back(tensor_in(reference));
  }
  if (entry.contains("flops")) event.what["flops"] = entry.at("flops");
  computing_ = events_.size() - 1;
  waiting_ = {};
  if (!entry.contains("to")) return;
  const bool is_in_place = std::ranges::find(event.from, tensor_in(entry.at("to"))) != event.from.end();
  write(*computing_, entry.at("to"), is_in_place);
}

void Section::add_call(const Entry& entry) {
  Event& event = begin(entry, "call");
  for (const char* field : {"function", "what", "op", "axes", "peer"})
    if (entry.contains(field)) event.what[field] = entry.at(field);
  event.what["group"] = tables_.groups.number_of(group_of(entry.at("group")));
  if (!entry.at("is_counted").get<bool>()) event.what["is_control"] = true;
  event.number = entry.at("number");
  if (entry.contains("from")) {
    event.what["from"] = as_operand(entry.at("from"));
    event.from.push_back(tensor_in(entry.at("from")));
  }
  waiting_ = events_.size() - 1;
  calls_[entry.at("event")] = *waiting_;
  if (entry.contains("into")) write(*waiting_, entry.at("into"), true);
}

/// A call that the caller waits for at once is one event; else its wait is another one.
void Section::add_wait(const Entry& entry) {
  const std::size_t call = calls_.at(entry.at("event"));
  if (waiting_ == call) {
    events_[call].took = -1;
    return;
  }
  Event& event = begin(entry, "wait");
  event.of = call;
  event.took = -1;
  waiting_ = events_.size() - 1;
}

void Section::add_arrival(const Entry& entry) {
  const std::size_t call = calls_.at(entry.at("event"));
  const auto waits = std::ranges::find_if(events_, [&](const Event& e) {
    return e.took == -1 && (e.of == call || (!e.of && &e == &events_[call]));
  });
  if (waits != events_.end()) waits->took = entry.at("t").get<Index>() - waits->t;
  const std::string& function = events_[call].what.at("function").get_ref<const std::string&>();
  if (entry.contains("to") && !function.starts_with("send") && function != "post_send")
    write(call, entry.at("to"), false);
}

void Section::add_messages(const Entry& entry) {
  const auto call = calls_.find(entry.at("event"));
  if (call == calls_.end()) return;  // begun in the section before
  Entry& sends = events_[call->second].sends;
  const auto same = std::ranges::find_if(sends, [&](const Entry& s) { return s[0] == entry.at("to"); });
  Entry& to = same != sends.end() ? *same : sends.emplace_back(Entry{entry.at("to"), 0, 0});
  to[1] = to[1].get<Index>() + entry.at("messages").get<Index>();
  to[2] = to[2].get<Index>() + entry.at("bytes").get<Index>();
}

void Section::add_memory(const Entry& entry) {
  Event& event = begin(entry, entry.at("is").get_ref<const std::string&>().c_str());
  event.from.push_back(tensor_in(entry));
  for (const char* field : {"purpose", "bytes"})
    if (entry.contains(field)) event.what[field] = entry.at(field);
  known(event.from.front());
}

void Section::add_group(const Entry& entry) {
  Entry& group = groups_[entry.at("group")];
  for (const char* field : {"name", "members"})
    if (entry.contains(field)) group[field] = entry.at(field);
}

std::string Section::axis_of(Index group) const {
  const auto found = groups_.find(group);
  const std::string other = group == 0 ? "world" : "group";
  return found == groups_.end() ? other : found->second.value("name", other);
}

Entry Section::group_of(Index id) const {
  const auto found = groups_.find(id);
  return {{"name", axis_of(id)},
          {"members", found == groups_.end() ? Entry::array() : found->second.at("members")}};
}

/// An event belongs to the block of a parameter, or a gradient, that it reads or writes, or to that of the event
/// before in the same pass, else of the event after. What a call makes of a parameter is in the parameter's block, too.
void Section::find_blocks() {
  std::map<std::string, std::string> last;  // by pass
  for (Event& event : events_) {
    if (event.what["is"] == "made" || event.what["is"] == "freed" || event.what["is"] == "moved") continue;
    std::string& before = last[event.context.dump()];
    const Event& call = event.of ? events_[*event.of] : event;
    std::vector<Index> tensors = call.from;
    if (call.to) tensors.push_back(*call.to);
    for (const Index tensor : tensors) {
      const Known& t = known(tensor);
      if (event.block.empty()) event.block = t.name.empty() ? t.block : block_of(t.name);
    }
    if (event.block.empty()) event.block = before;
    if (event.what["is"] == "call" && event.to && event.from.size() == 1 &&
        !known(event.from[0]).name.empty())
      known(*event.to).block = event.block;
    before = event.block;
  }
  std::map<std::string, std::string> next;
  for (auto event = events_.rbegin(); event != events_.rend(); ++event) {
    std::string& after = next[event->context.dump()];
    if (event->block.empty()) event->block = after;
    after = event->block;
  }
}

Entry Section::row_of(const Event& event, Index origin) {
  const std::string& is = event.what.at("is").get_ref<const std::string&>();
  Entry row = {tables_.what.number_of(event.what)};
  auto id = [&](std::optional<Index> tensor) { return tensor ? Entry(known(*tensor).id) : Entry(); };
  if (is == "made" || is == "freed" || is == "moved") {
    row.push_back(known(event.from.front()).id);
    return row;
  }
  Entry context = event.context;
  if (!event.block.empty()) context["block"] = event.block;
  row.push_back(tables_.contexts.number_of(context));
  row.push_back(event.t - origin);
  row.push_back(event.took ? Entry(*event.took) : Entry());
  if (is == "wait") {
    row.push_back(*event.of);
    return row;
  }
  if (is == "call") {
    row.push_back(event.from.empty() ? Entry() : id(event.from.front()));
    row.push_back(id(event.to));
    row.push_back(event.number);
    row.push_back(tables_.sends.number_of(event.sends));
    return row;
  }
  Entry from = Entry::array();
  for (const Index tensor : event.from) from.push_back(id(tensor));
  row.push_back(std::move(from));
  row.push_back(id(event.to));
  return row;
}

Entry Section::finish(Index origin) {
  find_blocks();
  Entry names = Entry::object();
  for (const auto& [number, tensor] : known_)
    if (!tensor.name.empty()) names[std::to_string(tensor.id)] = tensor.name;
  Entry rows = Entry::array();
  for (const Event& event : events_) rows.push_back(row_of(event, origin));
  return {{"name", name_},  {"held", held_},     {"names", names},
          {"events", rows}, {"values", values_}, {"sketches", sketches_}};
}

}  // namespace shard
