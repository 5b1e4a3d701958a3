#include "scene.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/device/device.hpp"

namespace shard::primer {

Scene::Scene(Communicator& group, std::string name) : group_(group) {
  outcome_.name = std::move(name);
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
  Row row{label, {}, is_boxed};
  for (const std::string& text : group_.gather("drawing", mine)) row.cells.push_back(split_lines(text));
  rows_.push_back(std::move(row));
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
  notes(mistake);
}

void Scene::sends(const std::string& form, const Traffic& traffic) {
  const Traffic measured = ledger().traffic();
  form_ = form;
  outcome_.messages = gather_figure(group_, "messages", measured.messages, traffic.messages);
  outcome_.bytes = gather_figure(group_, "bytes", measured.bytes, traffic.bytes);
  writes("", "\n");
  writes("messages", fmt::to_string(measured.messages));
  writes("closed form", fmt::to_string(traffic.messages));
  writes("bytes sent", fmt::to_string(measured.bytes));
  writes("closed form", fmt::to_string(traffic.bytes));
  std::string mistake;
  if (measured != traffic)
    mistake = fmt::format("messages {:+}, bytes {:+} against the closed form",
                          measured.messages - traffic.messages, measured.bytes - traffic.bytes);
  notes(mistake);
}

Outcome Scene::ends() {
  if (group_.device_id() != 0) return outcome_;
  fmt::print("──── {} {}\n{}\n{}\n\n", outcome_.name,
             repeated("─", drawing_columns() - 6 - width_of(outcome_.name)), for_reader(call_),
             wrapped(sentences_, drawing_columns()));
  fmt::print("{}{}\n", draw(rows_, group_.num_devices()),
             for_reader(fmt::format("{:{}}{}", "", label_width, form_)));
  for (const std::string& mistake : mistakes_) fmt::print("DIFFERS     {}\n", mistake);
  fmt::print("{}\n", outcome_.is_right
                         ? "ok          every value is right, every figure is the closed form's\n"
                         : "");
  return outcome_;
}

void Scene::notes(const std::string& mine) {
  const std::vector<Index> sizes = group_.exchange("mistakes", static_cast<Index>(mine.size()));
  outcome_.is_right = outcome_.is_right && std::ranges::all_of(sizes, [](Index size) { return size == 0; });
  const std::vector<std::string> texts = group_.gather("mistakes", mine);
  for (std::size_t d = 0; d < texts.size(); ++d)
    if (!texts[d].empty()) mistakes_.push_back(fmt::format("device {}: {}", d, texts[d]));
}

}  // namespace shard::primer
