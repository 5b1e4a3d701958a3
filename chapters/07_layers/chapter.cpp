///     ./chapters/run 07
///
/// Chapter 07: for each kind of layer, along which axes it may be cut, what each cut sends, and what a naive
/// cut computes instead.

#include <fmt/format.h>

#include "engine/basics/printable.hpp"
#include "engine/basics/terminal.hpp"
#include "engine/program/command_line.hpp"
#include "engine/program/registry.hpp"
#include "verdicts.hpp"

namespace shard::layer_cuts {

namespace {

/// Whether the table is too wide. Then a layer has a line of its own, and the last two columns are left out.
bool is_narrow() {
  return output_columns(125) < 125;
}

void print_head() {
  if (is_narrow()) return fmt::print("layer, and how it is cut {:>55}\n", "bytes sent, or how far off");
  fmt::print("{:24} {:16} {:6} {:44} {:>10}   {:9} {}\n", "layer", "cut along", "",
             "what it sends, or leaves out", "bytes sent", "differs", "shown at");
}

bool is_form(const Finding& finding) {
  return finding.bytes.is_met() && finding.messages.is_met();
}

void print_row(const std::string& layer, const Claim& claim, const Finding& finding) {
  const char* verdict = claim.verdict == Verdict::free    ? "free"
                        : claim.verdict == Verdict::exact ? "exact"
                                                          : "naive";
  const std::string path = to_string(claim.shown_at);
  const bool has_form = claim.verdict != Verdict::differs;
  if (is_narrow()) {
    const std::string result =
        has_form ? fmt::format("{} {}", with_commas(finding.bytes.largest()), is_form(finding) ? '=' : '!')
                 : fmt::format("off by {:.2g}", finding.relative);
    const int room = 56 - width_of(claim.price);
    fmt::print("{}  {:15} {:5} {}{:>{}}{}\n", layer.empty() ? "" : layer + '\n', claim.axis, verdict,
               claim.price, result, room, finding.is_as_claimed ? "" : "\n    NOT AS CLAIMED");
  } else
    fmt::print("{:24} {:16} {:6} {:44} {:>10} {} {:<9.2g} {}{}\n", layer, claim.axis, verdict, claim.price,
               has_form ? with_commas(finding.bytes.largest()) : "–",
               !has_form          ? ' '
               : is_form(finding) ? '='
                                  : '!',
               finding.relative, path.substr(path.rfind('/') + 1),
               finding.is_as_claimed ? "" : "   NOT AS CLAIMED");
  if (!finding.is_as_claimed && has_form && !finding.difference.empty())
    fmt::print("    {}\n", finding.difference);
}

void print_foot(int devices, bool is_right) {
  const std::string notes[] = {
      "free: forward and backward send nothing; the gradients of weights are summed, where they are sums.",
      "exact: with what is sent, all results are the whole layer's, bit for bit.",
      "naive: a cut that people try, and what it leaves out.",
      "Bytes sent are those of the device that sends most, forward and backward. \"=\": the bytes and "
      "messages of each "
      "device are the closed form's. differs: the largest difference of the output or a gradient, relative "
      "to the "
      "tensor's largest element."};
  fmt::print("\nOn {} device{}.\n", devices, devices == 1 ? "" : "s");
  for (const std::string& note : notes) fmt::print("{}\n", wrapped(note, drawing_columns()));
  if (devices == 1) fmt::print("On one device nothing is cut: run it with -n 4.\n");
  if (!is_right) fmt::print("something above is not as it is claimed\n");
}

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
      if (prints && !finding.is_as_claimed)
        note_difference(fmt::format("{}, {}: not as claimed", layer.name, claim.axis));
    }
  }
  if (prints) print_foot(group.num_devices(), is_right);
  return is_right ? 0 : static_cast<int>(Code::differs);
}

int parse_and_hold(Communicator& world, const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const LayerCase& layer : all_layers()) names.push_back(layer.name);
  std::string only, record;
  const bool goes_on = parse_options(
      world, "07_layers", words,
      "Chapter 07 of shardbook: along which axes a layer may be cut, what each cut sends, and what a naive\n"
      "cut computes instead",
      {{"--only", "One layer instead of all", "NAME", names, &only}, record_option(record)},
      "Exit code 0 when everything is as the table claims, otherwise 86.");
  if (!goes_on) return 0;
  return run_recorded_command(world, record, "layers", only,
                              [&](Communicator& group) { return hold_all(group, only); });
}

const RegisteredChapter chapter({.command = parse_and_hold});

}  // namespace

}  // namespace shard::layer_cuts
