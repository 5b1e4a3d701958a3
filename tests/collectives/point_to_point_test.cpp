// send, receive and send_async.

#include <chrono>
#include <thread>

#include "engine/device/books/ledger.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

using namespace shard;
using namespace shard::testing;

RUNS_ON(.in_one_process = {1, 2, 3, 4, 5, 8}, .with_all = {6, 7}, .processes = {1, 2, 3, 4, 5, 8},
        .on_cuda = {1, 2, 3, 4});

TEST_CASE("send and receive carry tensors of any shape around the ring") {
  if (devices() == 1) return;
  for (const Shape& shape : shapes) {
    CAPTURE(to_string(shape));
    CHECK(difference(pass_on(to_device(integers(shape, me()))), integers(shape, left())) == "");
  }
}

TEST_CASE("the receiver learns the shape from the sender") {
  if (devices() == 1) return;
  CHECK(difference(pass_on(to_device(integers({me(), 2}, me()))), integers({left(), 2}, left())) == "");
}

TEST_CASE("messages between two devices do not overtake one another") {
  for (int sender = 0; sender < devices(); ++sender)
    for (int receiver = 0; receiver < devices(); ++receiver)
      for (int k = 0; sender != receiver && k < 6; ++k) {
        const HostTensor letter = integers({k % 2 == 0 ? 3000 : 2, k}, sender, k);
        if (me() == sender) engine().send(receiver, to_device(letter));
        if (me() == receiver) CHECK(difference(engine().receive(sender), letter) == "");
      }
}

TEST_CASE(
    "posted messages carry tensors of any shape around the ring, and nobody waits for anybody to begin") {
  if (devices() == 1) return;
  for (const Shape& shape : shapes) {
    CAPTURE(to_string(shape));
    Future<> sent = group().post_send(right(), to_device(integers(shape, me())));
    Future<Tensor> received = group().post_receive(left(), shape);
    CHECK(difference(received.get(), integers(shape, left())) == "");
    sent.wait();
  }
}

TEST_CASE("posted messages and letters between two devices do not overtake one another") {
  if (devices() == 1) return;
  const Shape large = {3000, 2};
  std::vector<Future<>> sent;
  for (int k = 0; k < 5; ++k) sent.push_back(group().post_send(right(), to_device(integers(large, me(), k))));
  std::vector<Future<Tensor>> received;
  for (int k = 0; k < 3; ++k) received.push_back(group().post_receive(left(), large));
  for (int k = 2; k >= 0; --k) {
    CAPTURE(k);
    CHECK(difference(received[static_cast<std::size_t>(k)].get(), integers(large, left(), k)) == "");
  }
  for (int k = 3; k < 5; ++k) CHECK(difference(engine().receive(left()), integers(large, left(), k)) == "");
  for (Future<>& s : sent) s.wait();
}

TEST_CASE("a posted message goes on while a collective is in flight") {
  if (devices() == 1) return;
  Future<> sent = group().post_send(right(), to_device(integers({700, 9}, me())));
  Future<Tensor> sum = group().all_reduce_async(to_device(integers({5}, me())), ReduceOp::sum);
  CHECK(difference(group().post_receive(left(), {700, 9}).get(), integers({700, 9}, left())) == "");
  CHECK(difference(sum.get(), reduced(on_each(integers, {5}), ReduceOp::sum)) == "");
  sent.wait();
}

TEST_CASE("posted messages are counted as sent, and hold their memory until they are waited for") {
  if (devices() == 1) return;
  ledger().reset();
  const std::int64_t before = ledger().live();
  Future<> sent = group().post_send(right(), to_device(integers({50, 2}, me())));
  Future<Tensor> received = group().post_receive(left(), {50, 2});
  CHECK(ledger().live() == before + 800);
  while (!received.ready() || !sent.ready()) {
  }
  CHECK(ledger().live() == before + 800);
  sent.wait();
  CHECK(ledger().live() == before + 400);
  CHECK(received.get().size() == 100);
  CHECK(ledger().live() == before);
  CHECK(ledger().traffic() == Traffic{1, 400});
}

TEST_CASE("posted messages of both directions keep one order, whichever of them is looked at first") {
  if (devices() == 1) return;
  if (me() == 0) engine().send(1, Tensor({1}));  // the first message may open a connection
  if (me() == 1) engine().receive(0);
  auto meet = [] { group().gather("a meeting", ""); };  // does not advance a message
  auto sent_by = [](int device) { return integers({40}, device); };
  Future<> sent;
  Future<Tensor> received;
  if (me() < 2) sent = group().post_send(1 - me(), to_device(sent_by(me())));
  if (me() == 1) received = group().post_receive(0, {40});
  meet();
  for (int i = 0; me() == 1 && i < 100; ++i) sent.ready();  // device 0 learns that a message can come
  meet();
  if (me() == 0) received = group().post_receive(1, {40});  // its own message is first, this one second
  meet();
  if (me() == 1) sent.wait();  // has started the second message first
  if (me() < 2) {
    CHECK(difference(received.get(), sent_by(1 - me())) == "");
    sent.wait();
  }
}

TEST_CASE("one device receives from all others, in whatever order it likes") {
  if (me() != 0) engine().send(0, to_device(integers({4}, me())));
  for (int d = devices() - 1; me() == 0 && d > 0; --d)
    CHECK(difference(engine().receive(d), integers({4}, d)) == "");
}

TEST_CASE("send returns after its receiver has begun to receive") {
  const auto now = [] {
    return static_cast<Index>(std::chrono::steady_clock::now().time_since_epoch().count());
  };
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{10, 10}, Shape{300, 100}}) {
    Index moment = 0;  // when the receiver arrived, or the sender returned
    if (devices() > 1 && me() == 0) {
      engine().send(1, Tensor(shape));
      moment = now();
    } else if (me() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      moment = now();
      engine().receive(0);
    }
    const std::vector<Index> moments = group().exchange("moments", moment);
    if (devices() > 1) CHECK(moments[0] >= moments[1]);
  }
}

TEST_CASE("letters and collectives in flight do not meet") {
  if (devices() == 1) return;
  Future<Tensor> gathered = group().all_gather_async(to_device(integers({50, 40}, me())), 0);
  CHECK(difference(pass_on(to_device(integers({3}, me(), 1))), integers({3}, left(), 1)) == "");
  CHECK(difference(gathered.get(), joined(on_each(integers, {50, 40}), 0)) == "");
}

TEST_CASE("send_async copies along any permutation of the devices") {
  for (const Shape& shape : shapes)
    for (int shift = 0; shift < devices(); ++shift) {
      CAPTURE(to_string(shape), shift);
      const Tensor src = to_device(integers(shape, me()));
      Tensor dst(shape);
      engine().send_async(src, dst, (me() + shift) % devices()).wait();
      CHECK(difference(dst, integers(shape, (me() + devices() - shift) % devices())) == "");
      CHECK(difference(src, integers(shape, me())) == "");
      engine().send_async(src, dst, devices() - 1 - me()).wait();
      CHECK(difference(dst, integers(shape, devices() - 1 - me())) == "");
    }
}

TEST_CASE("send_async leaves dst alone where nobody targets it") {
  for (int source = 0; source < devices(); ++source)
    for (int target = 0; target < devices(); ++target) {
      CAPTURE(source, target);
      const Tensor src = to_device(integers({3, 3}, me()));
      Tensor dst = to_device(integers({3, 3}, me(), 1));
      engine().send_async(src, dst, me() == source ? std::optional(target) : std::nullopt).wait();
      CHECK(difference(dst, me() == target ? integers({3, 3}, source) : integers({3, 3}, me(), 1)) == "");
    }
  const Tensor src = to_device(integers({2}, me()));
  Tensor dst = to_device(integers({2}, me(), 1));
  engine().send_async(src, dst, std::nullopt).wait();
  CHECK(difference(dst, integers({2}, me(), 1)) == "");
}

TEST_CASE("send_async fits src to the target's dst alone") {
  const Tensor src = to_device(integers({me() + 1, 2}, me()));
  Tensor dst({left() + 1, 2});
  engine().send_async(src, dst, right()).wait();
  CHECK(difference(dst, integers({left() + 1, 2}, left())) == "");
}

TEST_CASE("a future of send_async shares the buffers") {
  Tensor dst({100, 70});
  Future<> future = [&] {
    const Tensor src = to_device(integers({100, 70}, me()));  // destroyed before the wait
    return engine().send_async(src, dst, right());
  }();
  const Tensor moved = std::move(dst);  // the same memory, in another tensor
  future.wait();
  CHECK(difference(moved, integers({100, 70}, left())) == "");
}

TEST_CASE("several of send_async are in flight at a time") {
  std::vector<Tensor> dst;
  std::vector<Future<>> futures;
  for (int shift = 0; shift < devices(); ++shift) dst.emplace_back(Shape{5, 9});
  for (int shift = 0; shift < devices(); ++shift)
    futures.push_back(engine().send_async(to_device(integers({5, 9}, me(), shift)),
                                          dst[static_cast<std::size_t>(shift)], (me() + shift) % devices()));
  for (int shift = devices() - 1; shift >= 0; --shift) {
    futures[static_cast<std::size_t>(shift)].wait();
    CHECK(difference(dst[static_cast<std::size_t>(shift)],
                     integers({5, 9}, (me() + devices() - shift) % devices(), shift)) == "");
  }
}
