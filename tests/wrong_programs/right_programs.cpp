/// Right programs that look suspicious: nobody may be accused.

#include <algorithm>
#include <stdexcept>

#include "tests/wrong_programs/calls.hpp"

namespace shard::testing {

namespace {

using namespace std::chrono_literals;

/// Sleeps for longer than a device waits before it searches for a deadlock.
void be_late() {
  std::this_thread::sleep_for(120ms);
}

using Action = std::function<void()>;
/// Adds a program of a call.
using Add = std::function<void(const char* class_, const Action& action)>;

/// Programs in which all devices make one call.
void add_in_world(const Add& add, const CollectiveCall& call) {
  const Form& form = call.form;
  add("from different lines", [&] {
    const CallSite here(me() == odd ? SourceLine::current() : form.where);
    form.make();
  });
  add("one device is late", [&] {
    if (me() == odd) be_late();
    form.make();
  });
  add("in a loop on one device", [&] {
    if (me() == odd) {
      for (int i = 0; i < 3; ++i) form.make();
      return;
    }
    form.make();
    form.make();
    form.make();
  });
}

/// Programs in which a device also does something else.
void add_beside_others(const Add& add, const CollectiveCall& call) {
  const Form& form = call.form;
  const Form& other = another_call(call);
  add("under a condition that all fulfil", [&] {
    if (devices() > 1) form.make();
    other.make();
  });
  add("before the only call of another kind", [&] {
    form.make();
    other.make();
    form.make();
  });
  add("after an exception that a device has caught", [&] {
    try {
      if (me() == odd) throw std::runtime_error("no such file");
    } catch (const std::runtime_error&) {
      be_late();
    }
    form.make();
  });
  add("after a message that only two devices exchange", [&] {
    if (me() == 0) group().send(1, Tensor({3}));
    if (me() == 1) group().receive(0);
    form.make();
  });
}

/// Programs in which the members of a group make one call.
void add_in_groups(const Add& add, const CollectiveCall& call) {
  const Form& form = call.form;
  const Form& other = another_call(call);
  add("in groups, other calls in each", [&] {
    const std::unique_ptr<Communicator> part = group().split(me() == 2 ? 1 : 0, me());
    (me() == 2 ? other : form).make(*part);
  });
  add("in a group in reverse order", [&] {
    const std::unique_ptr<Communicator> part = group().split(0, -me());
    form.make(*part);
  });
  add("in a group of one device", [&] {
    const std::unique_ptr<Communicator> part = group().split(me(), 0);
    form.make(*part);
  });
  add("more often in one group than in another", [&] {
    const std::unique_ptr<Communicator> part = group().split(me() == 0 ? 1 : 0, 0);
    for (int i = 0; i < (me() == 0 ? 1 : 4); ++i) form.make(*part);
  });
  add("in two groups that share a device", [&] {
    const std::unique_ptr<Communicator> first =
        group().split(me() < 2 ? std::optional<Index>(0) : std::nullopt, 0);
    const std::unique_ptr<Communicator> last =
        group().split(me() > 0 ? std::optional<Index>(0) : std::nullopt, 0);
    if (first) form.make(*first);
    if (last) form.make(*last);
  });
}

/// Programs that start a call, and await it later.
void add_of_future(const Add& add, const CollectiveCall& call) {
  const Form& form = call.form;
  const Form& other = another_call(call);
  add("polled while one device is late", [&] {
    if (me() == odd) be_late();
    const InProgress started = form.start(group());
    while (!started.ready()) continue;
    started.get();
  });
  add("awaited in another order", [&] {
    const InProgress a = form.start(group()), b = form.start(group());
    me() == odd ? (b.get(), a.get()) : (a.get(), b.get());
  });
  add("awaited after another call", [&] {
    const InProgress started = form.start(group());
    if (me() == odd) started.get();
    other.make();
    if (me() != odd) started.get();
  });
  add("awaited where it was moved to", [&] {
    std::vector<InProgress> started;
    for (int i = 0; i < 3; ++i) started.push_back(form.start(group()));
    if (me() == odd) std::ranges::reverse(started);
    for (const InProgress& call : started) call.get();
  });
  add("of two groups, in one order", [&] {
    const std::unique_ptr<Communicator> twin = group().split(0, 0);
    const InProgress a = form.start(group()), b = form.start(*twin);
    me() == odd ? (b.get(), a.get()) : (a.get(), b.get());
  });
}

/// Programs of calls whose arguments differ between devices.
void add_uneven(const std::function<Add(const char* call)>& of) {
  of("all_gather")("slices of other extents", [] { group().all_gather_async(Tensor({me(), 2}), 0).get(); });
  of("all_to_all, counts")("other counts and extents", [] {
    std::vector<Index> counts = {0, 0, 0};
    counts[static_cast<std::size_t>(right())] = me();
    group().all_to_all_async(Tensor({me(), 2}), counts, 0).get();
  });
  of("broadcast")("others pass nothing", [] {
    group().broadcast_async(me() == 2 ? Tensor({4, 2}) : Tensor(), 2).get();
  });
  of("send_async")("a device without a target", [] {
    const Tensor src({3});
    Tensor dst({3});
    group().send_async(src, dst, me() == 2 ? std::nullopt : std::optional(right())).wait();
  });
  of("split")("a device without a color",
              [] { group().split(me() == odd ? std::nullopt : std::optional<Index>(4), 0); });
  of("reduce_scatter")("fewer rows than devices", [] {
    group().reduce_scatter_async(Tensor({2, 3}), ReduceOp::sum, 0).get();
  });
  of("gather")("texts of other lengths",
               [] { group().gather("texts", std::string(static_cast<std::size_t>(100 * me()), 'x')); });
  of("exchange")("another number on each device", [] { group().exchange("places", me()); });
  for (const Shape& empty : {Shape{0}, Shape{0, 3}, Shape{3, 0}}) {
    of("all_gather")("empty tensors", [empty] { group().all_gather_async(Tensor(empty), 0).get(); });
    of("all_reduce")("empty tensors",
                     [empty] { group().all_reduce_async(Tensor(empty), ReduceOp::sum).get(); });
    of("reduce_scatter")("empty tensors",
                         [empty] { group().reduce_scatter_async(Tensor(empty), ReduceOp::max, 0).get(); });
    of("all_to_all")("empty tensors", [empty] { group().all_to_all_async(Tensor(empty), 0, 0).get(); });
    of("broadcast")("empty tensors", [empty] { group().broadcast_async(Tensor(empty), 1).get(); });
    of("send, receive")("empty tensors", [empty] {
      if (me() == 0) group().send(1, Tensor(empty));
      if (me() == 1) group().receive(0);
    });
  }
}

/// Sends that are posted long before their receives, or in another order.
void add_posts(const Add& add) {
  add("one device receives first in a ring", [] {
    if (me() == 0)
      group().send(right(), group().receive(left()));
    else
      group().send(right(), Tensor({3})), group().receive(left());
  });
  add("all post their sends first", [] {
    Future<> sent = group().post_send(right(), Tensor({100'000}));
    group().receive(left());
    sent.wait();
  });
  add("posts that nobody waits for until the end", [] {
    std::vector<Future<>> sent;
    for (int i = 0; i < 8; ++i) sent.push_back(group().post_send(right(), Tensor({1000})));
    for (int i = 0; i < 8; ++i) group().receive(left());
    for (Future<>& future : sent) future.wait();
  });
  add("small messages are received after their senders have gone on", [] {
    for (int i = 0; i < 4; ++i) group().post_send(right(), Tensor({3})).wait();
    group().barrier();
    for (int i = 0; i < 4; ++i) group().receive(left());
  });
}

/// Receives that are posted before their messages are sent.
void add_posted_receives(const Add& add) {
  add("receives posted before any send", [] {
    Future<Tensor> received = group().post_receive(left(), {3});
    be_late();
    group().send(right(), Tensor({3}));
    received.get();
  });
  add("receives awaited in another order", [] {
    Future<Tensor> a = group().post_receive(left(), {3}), b = group().post_receive(left(), {3});
    group().send(right(), Tensor({3})), group().send(right(), Tensor({3}));
    b.get(), a.get();
  });
  add("a receive across a collective", [] {
    Future<Tensor> received = group().post_receive(left(), {3});
    group().barrier();
    group().send(right(), Tensor({3}));
    received.get();
  });
}

/// Messages for which a device is late.
void add_late_messages(const Add& add) {
  add("two devices talk while the third is late", [] {
    for (int i = 0; i < 4 && me() != 2; ++i)
      if ((me() + i) % 2 == 0)
        group().send(1 - me(), Tensor({3}));
      else
        group().receive(1 - me());
    if (me() == 2) be_late();
    group().barrier();
  });
  add("polled while the sender is late", [] {
    if (me() == 0) be_late(), group().send(1, Tensor({3}));
    if (me() != 1) return;
    Future<Tensor> received = group().post_receive(0, {3});
    while (!received.ready()) continue;
    received.get();
  });
  add("the sender is late", [] {
    if (me() == 0) be_late(), group().send(1, Tensor({3}));
    if (me() == 1) group().receive(0);
  });
  add("the receiver is late", [] {
    if (me() == 0) group().send(1, Tensor({3}));
    if (me() == 1) be_late(), group().receive(0);
  });
}

}  // namespace

Programs right_programs() {
  Programs programs;
  const auto of = [&](const std::string& call) -> Add {
    return [&programs, call](const char* class_, const Action& action) {
      programs.push_back(together(call, class_, 0, {}, action));
    };
  };
  for (const CollectiveCall& call : collective_calls()) {
    const Add add = of(call.name);
    add_in_world(add, call);
    add_beside_others(add, call);
    add_in_groups(add, call);
    if (call.is_async) add_of_future(add, call);
  }
  add_uneven(of);
  const Add add = of("send, receive");
  add_posts(add);
  add_posted_receives(add);
  add_late_messages(add);
  return programs;
}

}  // namespace shard::testing
