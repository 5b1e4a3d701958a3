#include "scene.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/device/books/observer.hpp"
#include "engine/device/device.hpp"

namespace shard::primer {

Scene::Scene(Communicator& group, std::string name) : group_(group), name_(std::move(name)) {
  note_section(name_, true);
  ledger().reset();
}

void Scene::tells(const std::string& call, const std::string& sentences) {
  call_ = call;
  sentences_ = sentences;
}

void Scene::draws(const std::string& label, const Tensor& t, Ink ink, Index arrived) {
  writes(label, written(t, ink, group_.num_devices(), arrived), /*is_boxed=*/true);
}

void Scene::writes(const std::string& label, const std::string& mine, bool is_boxed) {
  rows_.push_back({label, {}, is_boxed});
  cells_.push_back(mine);
}

void Scene::expects(const Tensor& t, const Shape& shape, const std::function<Index(Index, Index)>& value,
                    const std::function<std::string(Index, Index)>& said_of) {
  std::string mistake;
  if (t.shape() != shape)
    mistake = fmt::format("expected {}, given {}", to_string(shape), to_string(t.shape()));
  const std::vector<float> given = t.to_host();
  for (std::size_t at = 0; mistake.empty() && at < given.size(); ++at) {
    const Index i = static_cast<Index>(at) / shape[1];
    const Index j = static_cast<Index>(at) % shape[1];
    if (given[at] != static_cast<float>(value(i, j)))
      mistake = fmt::format("expected {} in row {}, column {}, given {}{}", value(i, j), i, j, given[at],
                            said_of(i, static_cast<Index>(given[at])));
  }
  mistakes_.push_back(mistake);
}

bool Scene::is_right_everywhere() {
  const bool is_right = std::ranges::all_of(mistakes_, &std::string::empty);
  return std::ranges::min(group_.exchange("right", is_right ? 1 : 0)) == 1;
}

void Scene::sends(const std::string& form, const Traffic& traffic) {
  measured_ = ledger().traffic();
  note_section("after " + name_, false);
  closed_form_ = traffic;
  form_ = form;
  writes("", "\n");
  writes("messages", fmt::to_string(measured_.messages));
  writes("closed form", fmt::to_string(traffic.messages));
  writes("bytes sent", fmt::to_string(measured_.bytes));
  writes("closed form", fmt::to_string(traffic.bytes));
  mistakes_.push_back(measured_ == traffic ? ""
                                           : fmt::format("messages {:+}, bytes {:+} against the closed form",
                                                         measured_.messages - traffic.messages,
                                                         measured_.bytes - traffic.bytes));
}

Outcome Scene::ends() {
  Outcome outcome;
  outcome.name = name_;
  outcome.messages = gather_figure(group_, "messages", measured_.messages, closed_form_.messages);
  outcome.bytes = gather_figure(group_, "bytes", measured_.bytes, closed_form_.bytes);
  outcome.is_right = is_right_everywhere();
  for (std::size_t i = 0; i < rows_.size(); ++i)
    for (const std::string& text : group_.gather("drawing", cells_[i]))
      rows_[i].cells.push_back(split_lines(text));
  Lines mistakes;
  for (const std::string& mine : mistakes_) {
    const std::vector<std::string> texts = group_.gather("mistakes", mine);
    for (std::size_t d = 0; d < texts.size(); ++d)
      if (!texts[d].empty()) mistakes.push_back(fmt::format("device {}: {}", d, texts[d]));
  }
  if (group_.device_id() != 0) return outcome;
  fmt::print("──── {} {}\n{}\n{}\n\n", name_, repeated("─", drawing_columns() - 6 - width_of(name_)),
             for_reader(call_), wrapped(sentences_, drawing_columns()));
  fmt::print("{}{}\n", draw(rows_, group_.num_devices()),
             for_reader(fmt::format("{:{}}{}", "", label_width, form_)));
  for (const std::string& mistake : mistakes) {
    fmt::print("DIFFERS     {}\n", mistake);
    note_difference(fmt::format("{}: {}", name_, mistake));
  }
  fmt::print("{}\n",
             outcome.is_right ? "ok          every value is right, every figure is the closed form's\n" : "");
  return outcome;
}

}  // namespace shard::primer
