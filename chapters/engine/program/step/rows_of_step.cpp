#include "engine/program/step/rows_of_step.hpp"

#include <algorithm>
#include <set>

#include "engine/device/gathered.hpp"
#include "engine/workloads/other_versions.hpp"

namespace shard {

namespace {

constexpr std::size_t most_pieces = 16;  // that are tried one by one

/// The rows without those that are there twice, in order, and joined where they follow one another.
std::vector<Range> joined(std::vector<Range> rows) {
  std::ranges::sort(rows, {}, &Range::begin);
  std::vector<Range> all;
  for (const Range& r : rows)
    if (r.size() > 0) {
      if (!all.empty() && r.begin <= all.back().end)
        all.back().end = std::max(all.back().end, r.end);
      else
        all.push_back(r);
    }
  return all;
}

Index count(const std::vector<Range>& rows) {
  Index all = 0;
  for (const Range& r : rows) all += r.size();
  return all;
}

bool is_equal(const std::vector<OutputRows>& output, const HostTensor& expected) {
  const Index width = expected.shape.at(1);
  return std::ranges::all_of(output, [&](const OutputRows& piece) {
    const auto first = static_cast<std::size_t>(piece.first_row * width);
    return first + piece.rows.values.size() <= expected.values.size() &&
           std::equal(piece.rows.values.begin(), piece.rows.values.end(),
                      expected.values.begin() + static_cast<std::ptrdiff_t>(first));
  });
}

std::string ordinal(std::size_t k, std::size_t count) {
  if (k == 0) return "first";
  if (k + 1 == count) return "last";
  return std::to_string(k + 1) + (k == 1 ? "nd" : k == 2 ? "rd" : "th");
}

}  // namespace

Index moved_so_far() {
  Index messages = 0;
  for (const Collective call : {Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all})
    messages += ledger().traffic(call).messages;
  return messages;
}

RowsOfStep::RowsOfStep(Communicator& group, const ExactProblem& problem,
                       const std::vector<OutputRows>& output, const std::map<std::string, Placed>& gradients,
                       const Solution& expected, bool moves)
    : group_(group), problem_(problem) {
  Rows mine;
  for (const OutputRows& piece : output)
    mine.push_back({piece.first_row, piece.first_row + piece.rows.shape.at(0)});
  seen_.pieces = gather_for_all(group, "rows of the loss", mine);
  seen_.are_outputs_right =
      std::ranges::min(group.exchange("right outputs", is_equal(output, expected.at("output")) ? 1 : 0)) == 1;
  seen_.moves = std::ranges::max(group.exchange("rows moved", moves ? 1 : 0)) == 1;
  std::map<std::string, Rows> worked;
  for (const auto& [name, gradient] : gradients)
    if (gradient.is_here()) worked[name] = rows_for(gradient);
  for (const std::map<std::string, Rows>& of_device : gather_for_all(group, "rows of gradients", worked))
    for (const auto& [name, gradient] : gradients) {
      const auto found = of_device.find(name);
      seen_.worked[name].push_back(found == of_device.end() ? Rows() : found->second);
    }
}

/// The rows that this device's part of a gradient is made of before it is reduced. The owner of a parameter has worked
/// on the rows of all devices for which it owns it.
RowsOfStep::Rows RowsOfStep::rows_for(const Placed& gradient) const {
  const Placement& placement = gradient.placement();
  const Communicator* owners = placement.kind == Placement::Kind::owned ? &gradient.group() : placement.along;
  const std::vector<int>& ids = group_.members();
  Rows rows;
  for (std::size_t d = 0; d < ids.size(); ++d) {
    const bool is_mine = static_cast<int>(d) == group_.device_id();
    if (is_mine ||
        (owners != nullptr && std::ranges::find(owners->members(), ids[d]) != owners->members().end()))
      rows.insert(rows.end(), seen_.pieces[d].begin(), seen_.pieces[d].end());
  }
  rows = joined(std::move(rows));
  const Index all = problem_.output_grad.shape.at(0);
  const bool is_on_all =
      placement.kind == Placement::Kind::replicated && gradient.group().num_devices() == group_.num_devices();
  if (seen_.moves && is_on_all && count(rows) == all)
    return {part(all, group_.num_devices(), group_.device_id())};
  return rows;
}

std::vector<RowsAlone> RowsOfStep::by_device(const std::string& gradient) {
  const auto found = seen_.worked.find(gradient);
  if (!seen_.are_outputs_right || found == seen_.worked.end() || gradient == Gradients::input_grad) return {};
  std::vector<RowsAlone> all;
  std::set<const WholeResults*> known;
  Index counted = 0;
  const int me = group_.device_id();
  for (int i = 0; i < group_.num_devices(); ++i) {
    const int d = i == 0 ? me : i <= me ? i - 1 : i;
    const Rows& rows = found->second[static_cast<std::size_t>(d)];
    if (rows.empty()) continue;
    const WholeResults* results = solved(rows);
    if (!known.insert(results).second) continue;
    counted += count(rows);
    all.push_back({std::to_string(group_.members()[static_cast<std::size_t>(d)]), count(rows), results});
  }
  if (all.size() < 2 || counted != problem_.output_grad.shape.at(0)) return {};
  return all;
}

/// In a micro-batch a device has the rows that follow those of the micro-batch before. (The runs of tokens of a divided
/// sequence leave gaps.)
std::vector<RowsAlone> RowsOfStep::by_piece(const std::string& result) {
  if (!seen_.are_outputs_right || result == "output") return {};
  std::size_t pieces = 0;
  for (const Rows& mine : seen_.pieces) {
    if (joined(mine).size() > 1) return {};
    pieces = std::max(pieces, mine.size());
  }
  if (pieces < 2 || pieces > most_pieces) return {};
  std::vector<RowsAlone> all;
  for (std::size_t k = 0; k < pieces; ++k) {
    Rows rows;
    for (const Rows& mine : seen_.pieces)
      if (k < mine.size()) rows.push_back(mine[k]);
    rows = joined(std::move(rows));
    if (!rows.empty()) all.push_back({ordinal(k, pieces), count(rows), solved(rows)});
  }
  return all;
}

const WholeResults* RowsOfStep::solved(const Rows& counted) {
  std::vector<std::pair<Index, Index>> key;
  for (const Range& r : counted) key.emplace_back(r.begin, r.end);
  auto found = solved_.find(key);
  if (found == solved_.end()) found = solved_.emplace(key, solve(of_rows(problem_, counted), group_)).first;
  return &found->second;
}

Background background_of(const ExactProblem& problem, RowsOfStep& rows, Communicator& group) {
  return {.addends = [&rows](const std::string& name) { return rows.by_device(name); },
          .pieces = [&rows](const std::string& name) { return rows.by_piece(name); },
          .others = [&problem, &group] { return other_versions(problem, group); },
          .has_log_losses = problem.workload->kind().has_tokens()};
}

}  // namespace shard
