#include "engine/program/step/step_figures.hpp"

#include <fmt/format.h>

#include "engine/basics/printable.hpp"
#include "engine/device/gathered.hpp"

namespace shard {

namespace {

/// "all_reduce 98,304 and not 0": what was sent by each collective that the closed form has otherwise.
std::string by_collective(const Costs& costs, std::int64_t Traffic::*figure) {
  std::string text;
  for (std::size_t c = 0; c < num_collectives; ++c) {
    const Index expected = (costs.sent[c] + costs.sent_after_step[c]).*figure;
    const Index given = ledger().traffic(static_cast<Collective>(c)).*figure;
    if (given != expected)
      text += fmt::format("{} {} {} and not {}", text.empty() ? "" : ",", name(static_cast<Collective>(c)),
                          with_commas(given), with_commas(expected));
  }
  return ":" + text;
}

}  // namespace

void WorstStep::add(Index step_now, Index measured_now, std::optional<Index> formula_now,
                    const std::function<std::string()>& explain) {
  const Index form = formula_now.value_or(measured_now);
  if (measured != formula) return;
  if (measured_now != form || measured_now >= measured)
    *this = {measured_now, form, step_now, measured_now == form ? "" : explain()};
}

void StepFigures::add(const Run& run, const ShardedEngine& engine, const Optimizer& optimizer, Index step) {
  auto costs_with = [&](bool input_grad) {
    return run.variant.costs({.workload = &run.network,
                              .batch = run.training.batch,
                              .input_grad = input_grad,
                              .devices = run.group.num_devices(),
                              .device = run.group.device_id(),
                              .data = run.network.step_data(engine),
                              .precision = precision()},
                             run.options);
  };
  std::optional<Costs> costs;
  if (run.variant.costs) costs = costs_with(false);
  auto form = [&](auto of) { return costs ? std::optional<Index>(of(*costs)) : std::nullopt; };
  bytes_.add(step, ledger().traffic().bytes, form([](const Costs& c) { return c.total().bytes; }),
             [&] { return by_collective(*costs, &Traffic::bytes); });
  messages_.add(step, ledger().traffic().messages, form([](const Costs& c) { return c.total().messages; }),
                [&] { return by_collective(*costs, &Traffic::messages); });
  flops_.add(step, ledger().flops(), form([](const Costs& c) { return c.flops; }), [&] {
    const Costs with = costs_with(true);
    const bool is_as_with = ledger().flops() == with.flops && ledger().traffic() == with.total();
    return is_as_with ? ": as many as with dL/dx, which this step does not want" : "";
  });
  peak_.add(step, ledger().peak(),
            form([&](const Costs& c) { return c.step_peak_bytes(optimizer.state_per_element(), step == 1); }),
            [] {
              const std::string line =
                  to_string(ledger().peak_line());  // for the optimizer's state, a line of the C++ library
              return line.empty() || line.starts_with('/') ? "" : ": most at " + line;
            });
  for (const auto& [axes, sent] : engine.sent_along()) {
    Traffic& most = along_[axes];
    most = {std::max(most.messages, sent.messages), std::max(most.bytes, sent.bytes)};
  }
  all_flops_ += ledger().flops();
}

void StepFigures::gather_into(Report& report, const Run& run) const {
  auto gather = [&](const char* what, const WorstStep& w) {
    return gather_figure(run.group, what, w.measured,
                         run.variant.costs ? std::optional(w.formula) : std::nullopt);
  };
  report.bytes = gather("bytes", bytes_);
  report.messages = gather("messages", messages_);
  report.bytes.is_booked = report.messages.is_booked = traffic_is_booked();
  for (const auto& [axes, most] : along_) {
    report.along.push_back({axes, gather_figure(run.group, "bytes along an axis", most.bytes),
                            gather_figure(run.group, "messages along an axis", most.messages)});
    report.along.back().bytes.is_booked = report.along.back().messages.is_booked = traffic_is_booked();
  }
  report.flops = gather("flops", flops_);
  report.peak = gather("peak", peak_);
}

std::vector<std::string> StepFigures::misses(const Run& run) const {
  std::vector<std::string> mine, lines;
  auto add = [&](const char* what, const WorstStep& w) {
    if (w.measured != w.formula)
      mine.push_back(fmt::format("device {}, step {}: {}: measured {}, formula {}{}", this_device(), w.step,
                                 what, with_commas(w.measured), with_commas(w.formula), w.why));
  };
  add("bytes sent", bytes_);
  add("messages", messages_);
  add("operations", flops_);
  add("bytes held", peak_);
  for (const auto& theirs : gather(run.group, "figures", mine))
    lines.insert(lines.end(), theirs.begin(), theirs.end());
  return lines;
}

}  // namespace shard
