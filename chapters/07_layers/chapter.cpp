///     ./chapters/run 07
///
/// Chapter 07: for each kind of layer, along which axes it may be cut, what each cut sends, and what a naive
/// cut computes instead.

#include "claims.hpp"
#include "engine/program/command_line.hpp"
#include "engine/program/registry.hpp"
#include "table.hpp"
#include "verdicts.hpp"

namespace shard::layer_cuts {

/// Holds every claim of these layers against what happens. Device 0 prints the table.
int hold_all(Communicator& group, const std::string& only) {
  const std::unique_ptr<Communicator> alone = group.split(group.device_id(), 0);
  const bool prints = group.device_id() == 0;
  bool is_right = true;
  if (prints) print_head();
  for (const LayerCase& layer : all_layers()) {
    if (!only.empty() && layer.name != only) continue;
    const Results expected = results_of(layer, *alone, grid());
    for (const Claim& claim : layer.claims) {
      const Finding finding = find(layer, claim, expected, group, grid());
      if (prints) print_row(&claim == &layer.claims[0] ? layer.name : "", claim, finding);
      is_right = is_right && finding.is_as_claimed;
    }
  }
  if (prints) print_foot(group.num_devices(), is_right);
  return is_right ? 0 : static_cast<int>(Code::differs);
}

int parse_and_hold(Communicator& world, const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const LayerCase& layer : all_layers()) names.push_back(layer.name);
  std::string only;
  const std::vector<TextOption> options = {{"--only", "One layer instead of all", "NAME", names, &only}};
  const bool goes_on = parse_options(
      world, "07_layers", words,
      "Chapter 07 of shardbook: along which axes a layer may be cut, what each cut sends, and what a naive\n"
      "cut computes instead",
      options, "Exit code 0 when everything is as the table claims, otherwise 86.");
  return goes_on ? hold_all(world, only) : 0;
}

const RegisteredChapter chapter({.command = parse_and_hold});

}  // namespace shard::layer_cuts
