#include "data_flow.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace shard::dispatch {

namespace {

std::string common_module(std::string one, const std::string& other) {
  while (!is_within(other, one)) one = parent_of(one);
  return one;
}

class Cuts {
 public:
  explicit Cuts(const Network& network) : network_(network), live_(live_at_cuts(network.flow)) {}

  /// The first costly cut of each module that must stay whole, as an index into the steps.
  std::map<std::string, std::size_t> costly() const {
    std::map<std::string, std::size_t> first;
    for (std::size_t cut = 1; cut < network_.flow.size(); ++cut) {
      std::string module = common_module(network_.flow[cut - 1].module, network_.flow[cut].module);
      const std::string element = list_element(module);
      if (element.empty() || live_[cut].size() <= at_borders(element)) continue;
      while (live_[cut].size() <= at_borders(module)) module = parent_of(module);
      first.try_emplace(module, cut);
    }
    return first;
  }
  /// The number of live activations before a module's first step or behind its last one, whichever is larger.
  std::size_t at_borders(const std::string& module) const {
    auto is_in = [&](const Step& step) { return is_within(step.module, module); };
    const auto begin = std::ranges::find_if(network_.flow, is_in);
    const auto end = std::find_if_not(begin, network_.flow.end(), is_in);
    auto live = [&](auto step) {
      return live_[static_cast<std::size_t>(step - network_.flow.begin())].size();
    };
    return std::max(live(begin), live(end));
  }
  const std::set<std::string>& live(std::size_t cut) const { return live_[cut]; }

 private:
  /// The innermost list element that contains a module, or is it; empty if there is none.
  std::string list_element(std::string module) const {
    for (; !module.empty(); module = parent_of(module))
      if (find_module(network_.root, parent_of(module))->class_name == "ModuleList") break;
    return module;
  }

  const Network& network_;
  std::vector<std::set<std::string>> live_;
};

}  // namespace

std::vector<std::set<std::string>> live_at_cuts(const std::vector<Step>& flow) {
  std::vector<std::set<std::string>> live(flow.size() + 1);
  if (!flow.empty()) live.back() = {flow.back().writes.begin(), flow.back().writes.end()};
  for (std::size_t i = flow.size(); i-- > 0;) {
    live[i] = live[i + 1];
    for (const std::string& written : flow[i].writes) live[i].erase(written);
    live[i].insert(flow[i].reads.begin(), flow[i].reads.end());
  }
  return live;
}

std::vector<KeptWhole> kept_whole(const Network& network) {
  const Cuts cuts(network);
  const std::map<std::string, std::size_t> costly = cuts.costly();
  std::map<std::string, KeptWhole> classes;
  for (const auto& [module, cut] : costly) {
    std::string outer = parent_of(module);
    while (!outer.empty() && !costly.contains(outer)) outer = parent_of(outer);
    if (!outer.empty()) continue;
    const std::string& name = find_module(network.root, module)->class_name;
    classes.try_emplace(
        name, KeptWhole{name, network.flow[cut - 1].module, cuts.live(cut), cuts.at_borders(module)});
  }
  std::vector<KeptWhole> all;
  for (auto& [name, kept] : classes) all.push_back(std::move(kept));
  return all;
}

std::string KeptWhole::why() const {
  return fmt::format("{}: behind {}, {} activations are live ({}); at its borders, {}", class_name,
                     cut_behind, live.size(), fmt::join(live, ", "), at_borders);
}

}  // namespace shard::dispatch
