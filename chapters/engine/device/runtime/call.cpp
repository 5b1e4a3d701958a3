#include "engine/device/runtime/call.hpp"

#include <fmt/format.h>

#include "engine/device/runtime/collective_bodies.hpp"
#include "engine/device/runtime/tree.hpp"

namespace shard::runtime {

Call::Call(std::shared_ptr<Group> group, Collective collective, Header mine)
    : group_(std::move(group)), collective_(collective), mine_(std::move(mine)) {
  mine_.collective = static_cast<Index>(collective);
  if (mine_.shape.size() > Header::most_axes)
    refuse(Code::argument, name(collective), fmt::format("at most {} axes", Header::most_axes),
           fmt::to_string(mine_.shape.size()));
}

void Call::exchange_counts(const std::vector<Index>& for_each) {
  sent_counts_ = for_each;
  counts_ = for_each;
  auto number = [](std::vector<Index>& row, int d) {
    return std::span(row).subspan(static_cast<std::size_t>(d), 1);
  };
  for (int d = 0; d < devices(); ++d)
    if (d != me()) group_->post_receive(posts_, Channel::counts, d, number(counts_, d));
  for (int d = 0; d < devices(); ++d)
    if (d != me()) group_->post(posts_, Channel::counts, d, number(sent_counts_, d));
}

void Call::exchange_shapes(const Shape& shape, std::optional<int> to, std::optional<int> from) {
  sent_shape_ = received_shape_ = numbers_of(shape);
  received_shape_.resize(most_shape_numbers);
  if (to && *to != me()) group_->post(posts_, Channel::shape, *to, sent_shape_);
  if (from && *from != me()) group_->post_receive(posts_, Channel::shape, *from, received_shape_);
}

Shape Call::received_shape() const {
  return shape_from(received_shape_);
}

RootShape::RootShape(Call& call, int root, const Shape& shape) : group_(call.group()) {
  Tree tree(call.me(), call.devices(), root);
  children_ = std::move(tree.children);
  if (tree.parent < 0) {
    numbers_ = numbers_of(shape);
    pass_on();
  } else {
    numbers_.resize(most_shape_numbers);
    group_.post_receive(posts_, Channel::shape, tree.parent, numbers_);
  }
}

void RootShape::pass_on() {
  has_passed_on_ = true;
  const auto length = static_cast<std::size_t>(1 + numbers_[0]);
  for (int child : children_) group_.post(posts_, Channel::shape, child, std::span(numbers_).first(length));
}

bool RootShape::test() {
  if (!posts_.test()) return false;
  if (!has_passed_on_) pass_on();
  return posts_.test();
}

Shape RootShape::shape() const {
  return shape_from(numbers_);
}

}  // namespace shard::runtime
