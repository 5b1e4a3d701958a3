#include "engine/device/runtime/call.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace shard::runtime {

namespace {

constexpr std::size_t fixed_numbers = 7;
constexpr std::size_t most_numbers = fixed_numbers + Header::most_axes;

void append_numbers(const Header& h, std::vector<Index>& numbers) {
  numbers.insert(numbers.end(), {h.collective, h.op, h.axis, h.concat_axis, h.peer, h.for_you,
                                 static_cast<Index>(h.shape.size())});
  numbers.insert(numbers.end(), h.shape.begin(), h.shape.end());
}

Header from_numbers(std::span<const Index> n) {
  auto extents = n.subspan(fixed_numbers, static_cast<std::size_t>(n[fixed_numbers - 1]));
  return {n[0], n[1], n[2], n[3], n[4], n[5], Shape(extents.begin(), extents.end())};
}

/// The d-th of equally long pieces.
std::span<Index> piece(std::vector<Index>& row, int d, std::size_t length) {
  return std::span(row).subspan(static_cast<std::size_t>(d) * length, length);
}

bool shapes_fit(const Shape& a, const Shape& b, MayDiffer difference) {
  if (difference.axis == MayDiffer::all().axis) return true;
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (static_cast<int>(i) != difference.axis && a[i] != b[i]) return false;
  return true;
}

}  // namespace

std::string Header::describe(const Group& group) const {
  if (collective == no_call) return "a control message";
  auto call = static_cast<Collective>(collective);
  std::string text(name(call));
  switch (call) {
    case Collective::all_reduce:
      return text + fmt::format("({}) of {}", name(static_cast<ReduceOp>(op)), to_string(shape));
    case Collective::reduce_scatter:
      return text +
             fmt::format("({}) of {} along axis {}", name(static_cast<ReduceOp>(op)), to_string(shape), axis);
    case Collective::all_gather:
      return text + fmt::format(" of {} along axis {}", to_string(shape), axis);
    case Collective::all_to_all:
      return text + fmt::format(" of {} from axis {} to axis {}", to_string(shape), axis, concat_axis);
    case Collective::broadcast:
      return text + fmt::format(" from device {}", group.member(static_cast<int>(peer)));
    default:
      return text;
  }
}

Call::Call(std::shared_ptr<Group> group, Collective collective, Header mine)
    : group_(std::move(group)), collective_(collective), mine_(std::move(mine)) {
  mine_.collective = static_cast<Index>(collective);
  if (mine_.shape.size() > Header::most_axes)
    refuse(Code::argument, name(collective), fmt::format("at most {} axes", Header::most_axes),
           fmt::to_string(mine_.shape.size()));
}

Posts& Call::announce() {
  return announce(std::vector<Index>(static_cast<std::size_t>(devices()), mine_.for_you));
}

Posts& Call::announce(const std::vector<Index>& for_each) {
  const auto count = static_cast<std::size_t>(devices());
  const std::size_t length = fixed_numbers + mine_.shape.size();
  incoming_.resize(count * most_numbers);
  outgoing_.reserve(count * length);
  for (Index number : for_each) {
    mine_.for_you = number;
    append_numbers(mine_, outgoing_);
  }
  std::ranges::copy(piece(outgoing_, me(), length), piece(incoming_, me(), most_numbers).begin());
  for (int d = 0; d < devices(); ++d)
    if (d != me()) group_->post_receive(posts_, Channel::header, d, piece(incoming_, d, most_numbers));
  for (int d = 0; d < devices(); ++d)
    if (d != me()) group_->post(posts_, Channel::header, d, piece(outgoing_, d, length));
  return posts_;
}

void Call::read_announcements() {
  theirs_.reserve(static_cast<std::size_t>(devices()));
  for (int d = 0; d < devices(); ++d) theirs_.push_back(from_numbers(piece(incoming_, d, most_numbers)));
}

void Call::require_agreement(MayDiffer difference) {
  read_announcements();
  for (int d = 0; d < devices(); ++d) {
    const Header& h = said_by(d);
    bool same_call = h.collective == mine_.collective && h.op == mine_.op && h.axis == mine_.axis &&
                     h.concat_axis == mine_.concat_axis;
    bool peer_matters = mine_.collective == static_cast<Index>(Collective::broadcast);
    if (same_call && (!peer_matters || h.peer == mine_.peer) && shapes_fit(h.shape, mine_.shape, difference))
      continue;
    const std::string ours = mine_.describe(*group_);
    const std::string theirs = h.describe(*group_);
    const std::string_view call = mine_.collective == Header::no_call ? "control message" : name(collective_);
    refuse(Code::mismatch, std::string(call) + group_->in_group(),
           "the same call on fitting shapes on every device",
           fmt::format("{} here and {} on device {}", ours,
                       theirs == ours ? "another one" : theirs,  // control messages
                       group_->member(d)));
  }
}

}  // namespace shard::runtime
