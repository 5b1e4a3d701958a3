/// The collectives. Members agree on each call, and book what the emulator would send, by its closed form. Tensors
/// and buffers are made and freed in the emulator's order.

#include "engine/device/runtime/collectives/collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "emu/meta/memory.hpp"
#include "engine/device/books/memory.hpp"
#include "engine/device/books/products_by.hpp"
#include "engine/device/runtime/backend.hpp"
#include "engine/device/runtime/groups/tree.hpp"

namespace shard::runtime {

/// The number that a member announces: 1 if the host has written its tensor.
Index is_written(const Tensor& t) {
  return meta::host_values(t).empty() ? 0 : 1;
}

/// Sends values that the host has written, since engines read numbers of rows that arrive in this way. `leave` and
/// `arrive`: the ranges of the parts for each member and from each. A member without elements announces 0.
class HostValues {
 public:
  HostValues(Call& call, const Tensor& t, const std::vector<Range>& leave, const std::vector<Range>& arrive) {
    for (int d = 0; d < call.devices(); ++d) is_written_ |= call.agreement().number_of(d) == 1;
    if (!is_written_) return;
    leaves_ = t.to_host();
    arrives_.resize(static_cast<std::size_t>(arrive.back().end));
    Group& group = call.group();
    auto part = [](std::vector<float>& row, Range r) {
      return std::span(row).subspan(static_cast<std::size_t>(r.begin), static_cast<std::size_t>(r.size()));
    };
    for (int d = 0; d < call.devices(); ++d) {
      const std::span<const float> to = part(leaves_, leave[static_cast<std::size_t>(d)]);
      const std::span<float> from = part(arrives_, arrive[static_cast<std::size_t>(d)]);
      const int tag = group.tag(Channel::data);
      group.track(call.messages(), group.wire().send(d, tag, to), Side::sending, Channel::data, d);
      group.track(call.messages(), group.wire().receive(d, tag, from), Side::receiving, Channel::data, d);
    }
  }
  void write_to(Tensor& row) {
    if (is_written_ && row.size() > 0) meta::storage(row).from_host = one_of_equal(std::move(arrives_));
  }

 private:
  std::vector<float> leaves_, arrives_;
  bool is_written_ = false;
};

namespace {

/// `is_even`: every member sends as much.
void book(const Call& call, bool is_even) {
  if (!is_even) call.group().wire().treats_members_differently();
  book(call);
}

bool are_equal(const std::vector<Range>& slices) {
  return std::ranges::adjacent_find(slices, std::ranges::not_equal_to(), &Range::size) == slices.end();
}

/// The reverse of `packed`: slices one behind the other become a tensor.
Tensor unpacked(Tensor&& row, Shape shape, int axis) {
  if (axis == 0) return std::move(row).reshaped(std::move(shape));
  Tensor t = TensorMemory::make(std::move(shape));
  row = Tensor();
  return t;
}

}  // namespace

void set_up_device() {}
std::unique_ptr<DataPlane> make_data_plane(const Group&) {
  return nullptr;
}
std::unique_ptr<Awaited> enter_device(const Call&) {
  return nullptr;
}
void finish_device() {}

Tensor ring_buffer_of(Index elements) {
  return TensorMemory::buffer(elements);
}

Tensor packed(Tensor&& t, int axis, const std::vector<Range>&) {
  if (axis == 0) return std::move(t);
  Tensor row = TensorMemory::buffer(t.size());
  t = Tensor();
  return row;
}

Task all_reduce(Call& call) {
  call.announce(MayDiffer::nothing());
  co_await call.agreement();
  book(call, call.tensor.size() % call.devices() == 0);
}

Task reduce_scatter(Call& call) {
  call.announce(MayDiffer::nothing());
  co_await call.agreement();
  book(call, are_equal(call.slices));
}

Task all_gather(Call& call) {
  const int axis = *call.request.axis;
  call.announce(MayDiffer::along(axis), is_written(call.tensor));
  co_await call.agreement();
  if (call.devices() == 1) co_return;
  const std::vector<Range>& slices = call.slices = gathered_slices(call);
  const Shape whole = with_extent(call.tensor.shape(), axis, slices.back().end);
  const bool has_room = num_elements(whole) > 0 && call.buffer.size() == num_elements(whole);
  Tensor row = has_room ? std::move(call.buffer) : room_for_slices(num_elements(whole), axis);
  const std::vector<Range> elements = scaled(slices, num_elements(with_extent(whole, axis, 1)));
  const Range all = {0, call.tensor.size()};
  HostValues values(call, call.tensor, std::vector<Range>(slices.size(), all), elements);
  co_await call.messages();
  if (axis == 0) values.write_to(row);
  book(call, are_equal(elements));
  call.tensor = Tensor();
  call.tensor = unpacked(std::move(row), whole, axis);
}

Task all_to_all(Call& call) {
  const int split_axis = *call.request.axis, concat_axis = *call.request.concat_axis;
  const std::vector<Range>& mine = call.slices;
  call.announce(MayDiffer::along(concat_axis), is_written(call.tensor));
  call.exchange_counts();
  co_await call.agreement();
  co_await call.messages();
  if (call.devices() == 1) co_return;
  const Arrivals incoming = arrivals(call, call.tensor.shape(), split_axis, concat_axis);
  const Index total = incoming.elements.back().end;
  const std::vector<Range> elements =
      scaled(mine, num_elements(with_extent(call.tensor.shape(), split_axis, 1)));
  HostValues values(call, call.tensor, elements, incoming.elements);
  co_await call.messages();
  Tensor outgoing = packed(std::move(call.tensor), split_axis, mine);
  Tensor row = concat_axis == 0 ? TensorMemory::make({total}) : TensorMemory::buffer(total);
  if (split_axis == 0 && concat_axis == 0) values.write_to(row);
  book(call, false);
  outgoing = Tensor();
  call.tensor = unpacked(std::move(row), incoming.result, concat_axis);
}

Task broadcast(Call& call) {
  const int root = call.peer();
  call.announce(MayDiffer::all());
  co_await call.agreement();
  const Tree tree(call.me(), call.devices(), root);
  call.take_shape(tree, call.tensor.shape());
  co_await call.messages();
  call.pass_on_shape(tree);
  co_await call.messages();
  if (call.me() != root) call.tensor = TensorMemory::make(call.received_shape());
  book(call, false);
}

Task barrier(Call& call) {
  call.announce(MayDiffer::all());
  co_await call.agreement();
  book(call, false);
}

Task send_async(Call& call) {
  const Tensor& src = call.tensor;
  const std::optional<int> target = call.request.peer;
  call.announce(MayDiffer::all());
  co_await call.agreement();
  const std::optional<int> source = source_of(call);
  call.exchange_shapes(src.shape(), target, source);
  co_await call.messages();
  if (source) require_same_shape(call, *source, call.request.into->shape());
  if (target && *target != call.me()) book(call, false);
}

Task send(Call& call) {
  const Tensor& t = call.tensor;
  const std::vector<Index> numbers = numbers_of(t.shape());
  const bool is_rendezvous = call.request.function == Request::send;
  call.group().post(call.messages(), Channel::message_shape, call.peer(), numbers, is_rendezvous);
  book(call);
  co_await call.messages();
}

Task receive(Call& call) {
  std::vector<Index> numbers(most_shape_numbers);
  call.group().post_receive(call.messages(), Channel::message_shape, call.peer(), numbers);
  co_await call.messages();
  const Shape shape = shape_from(numbers);
  if (call.is_posted() && shape != call.tensor.shape())
    refuse(Code::mismatch, call.name, to_string(call.tensor.shape()),
           fmt::format("{} from device {}", to_string(shape), call.group().member(call.peer())));
  if (!call.is_posted()) call.tensor = TensorMemory::make(shape);
}

}  // namespace shard::runtime

bool shard::traffic_is_booked() {
  return true;
}

std::string shard::products_by() {
  return "nothing: these tensors have no elements";
}

std::optional<double> shard::peak_of_products() {
  return {};
}
