#include "engine/device/runtime/call.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "engine/device/runtime/groups/tree.hpp"
#include "engine/device/runtime/stream.hpp"

namespace shard::runtime {

bool Task::run_until_it_waits() {
  while (!body_.done()) {
    Awaited*& awaited = body_.promise().awaited;
    if (awaited != nullptr && !awaited->test()) return false;
    awaited = nullptr;
    body_.resume();
  }
  return true;
}

std::vector<Index> numbers_of(const Shape& shape) {
  std::vector<Index> numbers = {static_cast<Index>(shape.size())};
  numbers.insert(numbers.end(), shape.begin(), shape.end());
  return numbers;
}

Shape shape_from(const std::vector<Index>& numbers) {
  return Shape(numbers.begin() + 1, numbers.begin() + 1 + numbers[0]);
}

bool is_message(Collective function) {
  return function == Request::send || function == Request::receive || function == Request::post_send ||
         function == Request::post_receive;
}

Call::Call(std::shared_ptr<Group> group, Request&& asked)
    : request(std::move(asked)),
      name(request.name() + group->in_group()),
      tensor(std::move(request.tensor)),
      group_(std::move(group)) {
  request.shape = tensor.shape();
}

bool Call::is_posted() const {
  return request.function == Request::post_send || request.function == Request::post_receive;
}

bool Call::test() {
  return stream().poll(shared_from_this());
}

void Call::wait() {
  stream().wait_for(*this);
}

CallResult Call::take_result() {
  return {std::move(tensor), std::move(numbers)};
}

void Call::dropped() noexcept {
  const std::string line =
      fmt::format("device {}: the future of {} ({}) was dropped without waiting for it\n", this_device(),
                  name, place_of_call(request.call, request.where));
  std::fwrite(line.data(), 1, line.size(), stderr);  // as one piece
}

void Call::close() {
  agreement_.give_up();
  posts_.give_up();
  body = Task();  // not earlier: it holds the memory of its messages
  request.into.reset();
  buffer = Tensor();
}

void Call::exchange_counts() {
  if (!request.counts) return;
  counts_ = *request.counts;
  auto number = [](std::vector<Index>& row, int d) {
    return std::span(row).subspan(static_cast<std::size_t>(d), 1);
  };
  for (int d = 0; d < devices(); ++d)
    if (d != me()) group_->post_receive(posts_, Channel::counts, d, number(counts_, d));
  for (int d = 0; d < devices(); ++d)
    if (d != me()) group_->post(posts_, Channel::counts, d, number(*request.counts, d));
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

void Call::take_shape(const Tree& tree, const Shape& of_root) {
  received_shape_ = numbers_of(of_root);
  if (tree.parent < 0) return;
  received_shape_.resize(most_shape_numbers);
  group_->post_receive(posts_, Channel::shape, tree.parent, received_shape_);
}

void Call::pass_on_shape(const Tree& tree) {
  const auto length = static_cast<std::size_t>(1 + received_shape_[0]);
  for (int child : tree.children)
    group_->post(posts_, Channel::shape, child, std::span(received_shape_).first(length));
}

}  // namespace shard::runtime
