// The traffic and the buffers of collectives in the ledger, compared with sums over the messages of their
// algorithms, and with the closed forms of engine/proof/costs.hpp.

#include <numeric>

#include "engine/proof/costs.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

using namespace shard;
using namespace shard::testing;

RUNS_ON(.in_one_process = {1, 2, 3, 4, 5, 8}, .with_all = {6, 7}, .processes = {1, 2, 3, 4, 5, 8},
        .on_cuda = {1, 2, 3, 4});

namespace {

int rank_of(const Shape& shape) {
  return static_cast<int>(shape.size());
}
Index extent(const Shape& shape, int axis) {
  return shape[static_cast<std::size_t>(axis)];
}

/// One message with this number of elements. Empty messages are not sent.
Traffic message(Index elements) {
  return elements == 0 ? Traffic{} : Traffic{1, 4 * elements};
}

/// The number of elements of each device's slice, if the rule of split.hpp cuts the axis.
std::vector<Index> slice_sizes(const Shape& shape, int axis) {
  std::vector<Index> sizes;
  for (int d = 0; d < devices(); ++d)
    sizes.push_back(num_elements(with(shape, axis, part(extent(shape, axis), devices(), d).size())));
  return sizes;
}

/// One message of each size, except for that of one device.
Traffic all_but(const std::vector<Index>& sizes, int left_out) {
  Traffic sent;
  for (int d = 0; d < devices(); ++d)
    if (d != left_out) sent += message(sizes[static_cast<std::size_t>(d)]);
  return sent;
}

/// The number of devices to which this one forwards a broadcast. Places are counted from the root. In each
/// round the distance is halved, and a device at a multiple of the old distance sends over the new one.
int children(int root) {
  const int place = (me() - root + devices()) % devices();
  int found = 0;
  int distance = 1;
  while (distance < devices()) distance *= 2;
  for (; distance > 1; distance /= 2)
    if (place % distance == 0 && place + distance / 2 < devices()) ++found;
  return found;
}

/// Checks a call's traffic, of no other call, and the most memory of its buffers.
void check_sent(Collective collective, const std::function<void()>& call, Traffic sent,
                Index buffer_elements = 0) {
  CHECK(measured(collective, call) == Measured{sent, {}, 4 * buffer_elements});
}

}  // namespace

TEST_CASE("all_reduce sends every chunk but mine, then every one but my right neighbour's") {
  for (const Shape& shape : shapes) {
    CAPTURE(to_string(shape));
    const Index size = num_elements(shape);
    const std::vector<Index> chunks = slice_sizes({size}, 0);
    const Traffic sent = all_but(chunks, me()) + all_but(chunks, right());
    CHECK(ring_all_reduce(size, devices(), me()) == sent);
    const Index buffer = devices() == 1 ? 0 : chunks[0];
    CHECK(ring_buffer(size, devices()) == buffer);
    check_sent(
        Collective::all_reduce, [&] { engine().all_reduce(Tensor(shape)); }, sent, buffer);
  }
}

TEST_CASE("reduce_scatter sends every slice but mine") {
  for (const Shape& shape : shapes)
    for (int axis = 0; axis < rank_of(shape); ++axis) {
      CAPTURE(to_string(shape), axis);
      const std::vector<Index> sizes = slice_sizes(shape, axis);
      const Traffic sent = all_but(sizes, me());
      CHECK(ring_reduce_scatter(sizes, me()) == sent);
      const Index buffer = devices() == 1 ? 0 : sizes[0] + (axis == 0 ? 0 : num_elements(shape));
      const auto call = [&] { engine().reduce_scatter(Tensor(shape), ReduceOp::sum, axis); };
      check_sent(Collective::reduce_scatter, call, sent, buffer);
    }
}

TEST_CASE("all_gather sends every slice but my right neighbour's") {
  for (const Shape& shape : shapes)
    for (int axis = 0; axis < rank_of(shape); ++axis) {
      CAPTURE(to_string(shape), axis);
      const std::vector<Index> sizes = slice_sizes(shape, axis);
      const Traffic sent = devices() == 1 ? Traffic{} : all_but(sizes, right());
      CHECK(ring_all_gather(sizes, me()) == sent);
      const Index buffer = devices() == 1 || axis == 0 ? 0 : num_elements(shape);
      const Shape mine = with(shape, axis, part(extent(shape, axis), devices(), me()).size());
      check_sent(
          Collective::all_gather, [&] { engine().all_gather(Tensor(mine), axis); }, sent, buffer);
    }
}

TEST_CASE("all_to_all sends every part but the one I keep") {
  for (const Shape& shape : shapes)
    for (int split_axis = 0; split_axis < rank_of(shape); ++split_axis)
      for (int concat_axis = 0; concat_axis < rank_of(shape); ++concat_axis) {
        CAPTURE(to_string(shape), split_axis, concat_axis);
        const std::vector<Index> sizes = slice_sizes(shape, split_axis);
        const Traffic sent = all_but(sizes, me());
        CHECK(pairwise_all_to_all(sizes, me()) == sent);
        const Index result = devices() * sizes[static_cast<std::size_t>(me())];
        const Index cutting = split_axis == 0 ? 0 : num_elements(shape);
        const Index joining = concat_axis == 0 ? 0 : result;
        const auto call = [&] { engine().all_to_all(Tensor(shape), split_axis, concat_axis); };
        check_sent(Collective::all_to_all, call, sent, devices() == 1 ? 0 : cutting + joining);
      }
}

TEST_CASE("all_to_all with counts sends just what they say") {
  std::vector<Index> counts, sizes;
  for (int d = 0; d < devices(); ++d) {
    counts.push_back((me() + 2 * d) % 3);
    sizes.push_back(5 * counts.back());
  }
  const Index all = std::accumulate(counts.begin(), counts.end(), Index{0});
  const Traffic sent = all_but(sizes, me());
  CHECK(pairwise_all_to_all(sizes, me()) == sent);
  check_sent(
      Collective::all_to_all,
      [&] {
        engine().all_to_all(Tensor({all, 5}), counts);
      },
      sent);
}

TEST_CASE("broadcast sends the tensor to each of my children in the tree") {
  Index messages = 0;
  for (const Shape& shape : shapes)
    for (int root = 0; root < devices(); ++root) {
      CAPTURE(to_string(shape), root);
      const Traffic sent = children(root) * message(num_elements(shape));
      CHECK(tree_broadcast(num_elements(shape), devices(), me(), root) == sent);
      const auto call = [&] { engine().broadcast(me() == root ? Tensor(shape) : Tensor(), root); };
      check_sent(Collective::broadcast, call, sent);
      messages += num_elements(shape) == 0 ? 0 : ledger().traffic(Collective::broadcast).messages;
    }
  const std::vector<Index> all = group().exchange("messages", messages);
  const Index with_content =
      std::ranges::count_if(shapes, [](const Shape& s) { return num_elements(s) > 0; });
  CHECK(std::accumulate(all.begin(), all.end(), Index{0}) == with_content * devices() * (devices() - 1));
}

TEST_CASE("a barrier goes up and down a tree in messages without content") {
  const Traffic form = tree_barrier(devices(), me());
  CHECK(form == Traffic{children(0) + (me() == 0 ? 0 : 1), 0});
  check_sent(
      Collective::barrier, [] { engine().barrier(); }, form);
  const std::vector<Index> all = group().exchange("messages", form.messages);
  CHECK(std::accumulate(all.begin(), all.end(), Index{0}) == 2 * (devices() - 1));
}

TEST_CASE("send and receive are one message on the sender's side") {
  for (const Shape& shape : shapes) {
    CAPTURE(to_string(shape));
    const auto call = [&] {
      if (devices() == 1 || me() > 1) return;
      if (me() == 0) return engine().send(1, Tensor(shape));
      engine().receive(0);
    };
    const Traffic sent = devices() > 1 && me() == 0 ? message(num_elements(shape)) : Traffic{};
    check_sent(Collective::send, call, sent);
  }
}

TEST_CASE("send_async is one message to a target that is another device") {
  for (const Shape& shape : shapes) {
    CAPTURE(to_string(shape));
    const Tensor src(shape);
    Tensor dst(shape);
    const auto send_to = [&](std::optional<int> target, const Traffic& sent) {
      check_sent(
          Collective::send_async, [&] { engine().send_async(src, dst, target).wait(); }, sent);
    };
    send_to(std::nullopt, {});
    send_to(me(), {});
    send_to(right(), devices() == 1 ? Traffic{} : message(num_elements(shape)));
  }
}

TEST_CASE("control messages are not counted") {
  check_sent(Collective::barrier, [] { group().exchange("a number", 1); }, {});
}

TEST_CASE("collectives hold nothing beyond their results") {
  const Index before = ledger().live();
  {
    const Tensor whole = engine().all_gather(Tensor({3, 2}), 1);
    const Tensor sum = engine().all_reduce(Tensor({7}));
    const Tensor part_of_sum = engine().reduce_scatter(Tensor({4, devices()}), ReduceOp::sum, 1);
    const Tensor turned = engine().all_to_all(Tensor({devices(), 3}), 0, 1);
    CHECK(ledger().live() - before == whole.bytes() + sum.bytes() + part_of_sum.bytes() + turned.bytes());
    CHECK(ledger().live(Purpose::buffers) == 0);
  }
  CHECK(ledger().live() == before);
}
