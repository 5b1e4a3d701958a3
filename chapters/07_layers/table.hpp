#pragma once

/// The table of this chapter: a row for each claim.

#include <fmt/format.h>

#include "claims.hpp"
#include "engine/basics/printable.hpp"
#include "verdicts.hpp"

namespace shard::layer_cuts {

inline void print_head() {
  fmt::print("{:24} {:16} {:6} {:44} {:>10}   {:9} {}\n", "layer", "cut along", "",
             "what it sends, or leaves out", "bytes sent", "differs", "shown at");
}

inline void print_row(const std::string& layer, const Claim& claim, const Finding& finding) {
  const char* verdict = claim.verdict == Verdict::free    ? "free"
                        : claim.verdict == Verdict::exact ? "exact"
                                                          : "naive";
  const std::string path = to_string(claim.shown_at);
  const bool has_form = claim.verdict != Verdict::differs;
  fmt::print("{:24} {:16} {:6} {:44} {:>10} {} {:<9.2g} {}{}\n", layer, claim.axis, verdict, claim.price,
             has_form ? with_commas(finding.bytes.largest()) : "–",
             !has_form                                             ? ' '
             : finding.bytes.is_met() && finding.messages.is_met() ? '='
                                                                   : '!',
             finding.relative, path.substr(path.rfind('/') + 1),
             finding.is_as_claimed ? "" : "   NOT AS CLAIMED");
  if (!finding.is_as_claimed && has_form && !finding.difference.empty())
    fmt::print("    {}\n", finding.difference);
}

inline void print_foot(int devices, bool is_right) {
  fmt::print(
      "\nOn {} device{}.\n"
      "free: forward and backward send nothing; the gradients of weights are summed, where they are sums.\n"
      "exact: with what is sent, all results are the whole layer's, bit for bit.\n"
      "naive: a cut that people try, and what it leaves out.\n"
      "Bytes sent are those of the device that sends most, forward and backward. \"=\": the bytes and "
      "messages\n"
      "of each device are the closed form's. differs: the largest difference of the output or a gradient,\n"
      "relative to the tensor's largest element.\n",
      devices, devices == 1 ? "" : "s");
  if (devices == 1) fmt::print("On one device nothing is cut: run it with -n 4.\n");
  if (!is_right) fmt::print("something above is not as it is claimed\n");
}

}  // namespace shard::layer_cuts
