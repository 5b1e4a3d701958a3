/// The communicator of both backends. It checks arguments, counts calls, and starts collectives on the
/// stream.

#include "engine/device/runtime/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "engine/device/collective_costs.hpp"
#include "engine/device/runtime/collective_bodies.hpp"
#include "engine/device/runtime/flight_record.hpp"
#include "engine/device/runtime/message_counts.hpp"
#include "engine/device/runtime/tensor_memory.hpp"
#include "engine/device/this_device.hpp"

namespace shard {

namespace runtime {
namespace {

/// A started operation, as the future sees it.
class StartedOperation : public Pending {
 public:
  explicit StartedOperation(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}

  /// A program may ask in a loop, so it must notice a failed device, and a call that can never be done.
  bool test() override { return stream().poll(operation_); }
  void wait() override { stream().wait_for(*operation_); }
  Tensor take_result() override { return std::move(operation_->tensor); }
  void dropped() noexcept override {
    const std::string line =
        fmt::format("device {}: the future of {} ({}) was dropped without waiting for it\n", this_device(),
                    operation_->call, place_of_call(operation_->number, operation_->where));
    std::fwrite(line.data(), 1, line.size(), stderr);  // as one piece
  }

 private:
  std::shared_ptr<Operation> operation_;
};

Future<Tensor> future_of(std::shared_ptr<Operation> operation) {
  return {std::make_shared<StartedOperation>(std::move(operation)), [](Tensor t) { return t; }};
}

void require_rank(const char* call, int rank) {
  if (rank > Header::most_axes)
    refuse(Code::argument, call, fmt::format("at most {} axes", Header::most_axes), fmt::to_string(rank));
}

/// What each device announces.
Task announced_numbers(Call call, std::vector<Index>& numbers) {
  call.announce(MayDiffer::all());
  co_await call.agreement();
  for (int d = 0; d < call.devices(); ++d) numbers.push_back(call.agreement().number_of(d));
}

/// While it lives, this device makes a group. It begins before the last exchange, when all members are in
/// split.
struct MakingGroup {
  MakingGroup() { stream().is_making_a_group = true; }
  ~MakingGroup() { stream().is_making_a_group = false; }
  MakingGroup(const MakingGroup&) = delete;
  MakingGroup& operator=(const MakingGroup&) = delete;
};

class GroupCommunicator : public Communicator {
 public:
  explicit GroupCommunicator(std::shared_ptr<Group> group) : group_(std::move(group)) {
    group_->data_plane = make_data_plane(*group_);
  }

  int device_id() const override { return group_->device_id(); }
  int num_devices() const override { return group_->num_devices(); }
  const std::vector<int>& members() const override { return group_->members(); }
  Index group_id() const override { return group_->id(); }

 protected:
  std::unique_ptr<Communicator> do_split(std::optional<Index> color, Index key) override {
    const std::vector<Index> has_color = announce("split", color ? 1 : 0);
    const std::vector<Index> colors = announce("split", color.value_or(0));
    const std::vector<Index> keys = announce("split", key);
    const MakingGroup making;
    const Index id = std::ranges::max(announce("split", next_group_id()));
    next_group_id() = id + 1;
    if (!color) return nullptr;
    std::vector<int> places;
    for (int d = 0; d < num_devices(); ++d) {
      const auto i = static_cast<std::size_t>(d);
      if (has_color[i] && colors[i] == *color) places.push_back(d);
    }
    std::ranges::stable_sort(places, {}, [&](int d) { return keys[static_cast<std::size_t>(d)]; });
    return make_communicator(group_->part(id, places));
  }

  void do_barrier() override {
    start(Collective::barrier, Tensor(), [&](Operation& o) {
      return runtime::barrier(call(Collective::barrier, {}), o);
    }).get();
  }

  void do_send(int dest_id, const Tensor& t) override {
    require_peer("send", dest_id, false);
    require_rank("send", t.rank());
    stream().count_call();
    run(sending("send", dest_id, TensorMemory::share(t)),
        [&](Operation& o) { return runtime::send(group_, o, dest_id); });
  }

  Tensor do_receive(int src_id) override {
    require_peer("receive", src_id, false);
    stream().count_call();
    return run(receiving("receive", src_id, Tensor()),
               [&](Operation& o) { return runtime::receive(group_, o, src_id); });
  }

  Future<> do_post_send(int dest_id, Tensor&& t) override {
    require_peer("post_send", dest_id, false);
    require_rank("post_send", t.rank());
    stream().count_call();
    return post(sending("post_send", dest_id, std::move(t)),
                [&](Operation& o) { return runtime::post_send(group_, o, dest_id); })
        .then([](Tensor) {});
  }

  Future<Tensor> do_post_receive(int src_id, const Shape& shape) override {
    require_peer("post_receive", src_id, false);
    require_rank("post_receive", static_cast<int>(shape.size()));
    stream().count_call();
    return post(receiving("post_receive", src_id, Tensor::uninitialized(shape)),
                [&](Operation& o) { return runtime::post_receive(group_, o, src_id); });
  }

  Future<> do_send_async(const Tensor& src, Tensor& dst, std::optional<int> target_device_id) override {
    if (target_device_id) require_peer("send_async", *target_device_id, true);
    if (TensorMemory::overlap(src, dst))
      refuse(Code::argument, "send_async", "src and dst to be different tensors", "the same memory twice");
    Header header;
    header.number = target_device_id.value_or(-1);
    Future<Tensor> started = start(Collective::send_async, Tensor(), [&](Operation& o) {
      return runtime::send_async(call(Collective::send_async, header), o, TensorMemory::share(src),
                                 TensorMemory::share(dst), target_device_id);
    });
    return std::move(started).then([](Tensor) {});
  }

  Future<Tensor> do_all_gather(Tensor&& slice, int axis, const std::optional<Shape>& whole) override {
    require_axis("all_gather", slice.shape(), axis);
    return start(Collective::all_gather, std::move(slice), [&](Operation& o) {
      Tensor room;
      if (whole && num_devices() > 1) room = room_for_slices(num_elements(*whole), axis);
      return runtime::all_gather(call(Collective::all_gather, header_of(o.tensor, axis)), o, axis,
                                 std::move(room));
    });
  }

  Future<Tensor> do_all_gather(const Tensor& slice, int axis, const std::optional<Shape>& whole) override {
    return all_gather_async(num_devices() == 1 ? slice.clone() : TensorMemory::share(slice), axis, whole);
  }

  Future<Tensor> do_all_reduce(Tensor&& argument, ReduceOp op) override {
    return start(Collective::all_reduce, std::move(argument), [&](Operation& o) {
      Tensor buffer = ring_buffer_of(ring_buffer(o.tensor.size(), num_devices()));
      return runtime::all_reduce(call(Collective::all_reduce, header_of(o.tensor, 0, op)), o, op,
                                 std::move(buffer));
    });
  }

  Future<Tensor> do_reduce_scatter(Tensor&& argument, ReduceOp op, int axis) override {
    require_axis("reduce_scatter", argument.shape(), axis);
    Header header = header_of(argument, axis, op);
    if (num_devices() == 1)
      return start(Collective::reduce_scatter, std::move(argument), [&](Operation& o) {
        return runtime::reduce_scatter(call(Collective::reduce_scatter, header), o, op,
                                       {{0, o.tensor.size()}}, Tensor());
      });
    const std::vector<Range> slices = cut(argument.extent(axis), num_devices());
    const Index slice_of_one = num_elements(with_extent(argument.shape(), axis, 1));
    std::vector<Range> elements = slices;
    for (Range& r : elements) r = {r.begin * slice_of_one, r.end * slice_of_one};
    const Range mine = elements[static_cast<std::size_t>(device_id())];
    const Shape shape =
        with_extent(argument.shape(), axis, slices[static_cast<std::size_t>(device_id())].size());
    auto body = [&](Operation& o) {
      o.tensor = packed(std::move(o.tensor), axis, slices);
      Tensor buffer = ring_buffer_of(elements[0].size());
      return runtime::reduce_scatter(call(Collective::reduce_scatter, header), o, op, elements,
                                     std::move(buffer));
    };
    auto finish = [mine, shape](Tensor& row) {
      const Index all = row.size();
      row = slice(std::move(row).reshaped({all}), 0, mine.begin, mine.end).reshaped(shape);
    };
    return start(Collective::reduce_scatter, std::move(argument), body, finish);
  }

  Future<Tensor> do_all_to_all(Tensor&& t, int split_axis, int concat_axis) override {
    require_axis("all_to_all", t.shape(), split_axis);
    require_axis("all_to_all", t.shape(), concat_axis);
    std::vector<Range> parts = cut(t.extent(split_axis), num_devices());
    return start_all_to_all(std::move(t), split_axis, concat_axis, std::move(parts));
  }

  Future<Tensor> do_all_to_all(Tensor&& t, const std::vector<Index>& counts, int axis) override {
    require_axis("all_to_all", t.shape(), axis);
    bool fits = counts.size() == static_cast<std::size_t>(num_devices()) &&
                std::ranges::all_of(counts, [](Index c) { return c >= 0; }) &&
                std::accumulate(counts.begin(), counts.end(), Index{0}) == t.extent(axis);
    if (!fits)
      refuse(Code::argument, "all_to_all",
             fmt::format("{} counts that add up to {}", num_devices(), t.extent(axis)), to_string(counts));
    return start_all_to_all(std::move(t), axis, axis, cut(counts));
  }

  Future<Tensor> do_broadcast(Tensor&& argument, int root) override {
    require_peer("broadcast", root, true);
    return start(Collective::broadcast, std::move(argument), [&](Operation& o) {
      Header header = header_of(o.tensor, 0);
      header.root = root;
      return runtime::broadcast(call(Collective::broadcast, std::move(header)), o, root);
    });
  }

  void do_synchronize() override {
    stream().drain();
    finish_device();
  }

  std::vector<Index> do_exchange(const char* what, Index mine) override {
    return announce(fmt::format("an exchange of \"{}\"", what), mine);
  }

  std::vector<std::string> do_gather(const char* what, const std::string& mine, bool for_all) override {
    stream().stop_polling();
    Header header;
    header.what = fmt::format("a gather {}of \"{}\"", for_all ? "for all " : "", what);
    header.call = stream().calls();
    header.where = current_call_site();
    FlightRecord::instance().note_call(header.call, header.what, header.where);
    return group_->gather(header, mine, for_all);
  }

  void do_verify_replicated(const Tensor&) override {}

 private:
  /// What the next group to be split off may be called: larger than any that this device is in.
  static Index& next_group_id() {
    struct Next {
      Index id = 1;
    };
    return device().part<Next>().id;
  }

  static Header header_of(const Tensor& t, int axis, ReduceOp op = ReduceOp::sum) {
    Header header;
    header.op = static_cast<Index>(op);
    header.axis = axis;
    header.shape = t.shape();
    return header;
  }

  Call call(Collective collective, Header header) const {
    header.call = stream().calls();
    header.where = current_call_site();
    return Call(group_, collective, std::move(header));
  }

  /// The numbers of all members. Errors call this `name`.
  std::vector<Index> announce(std::string name, Index mine) const {
    Header header;
    header.what = std::move(name);
    header.number = mine;
    header.call = stream().calls();
    header.where = current_call_site();
    std::vector<Index> numbers;
    std::shared_ptr<Operation> operation = make_operation(header.name(), Tensor());
    operation->collective_of = group_;
    run(std::move(operation),
        [&](Operation&) { return announced_numbers(Call(group_, std::move(header)), numbers); });
    return numbers;
  }

  void require_peer(const char* what, int id, bool may_be_me) const {
    if (id >= 0 && id < num_devices() && (may_be_me || id != device_id())) return;
    refuse(Code::argument, what + group_->in_group(),
           fmt::format("a device of 0 to {}{}", num_devices() - 1, may_be_me ? "" : " but oneself"),
           fmt::format("device {}", id));
  }

  std::shared_ptr<Operation> make_operation(std::string_view what, Tensor&& argument) const {
    auto operation = std::make_shared<Operation>();
    operation->call = what;
    operation->call += group_->in_group();
    operation->number = stream().calls();
    operation->where = current_call_site();
    operation->tensor = std::move(argument);
    FlightRecord::instance().note_call(operation->number, operation->call, operation->where);
    return operation;
  }

  std::shared_ptr<Operation> sending(const char* what, int dest_id, Tensor&& t) const {
    auto operation = make_operation(what, std::move(t));
    MessageCounts::instance().note_sent(group_->member(dest_id), operation->call, operation->number,
                                        operation->where);
    return operation;
  }

  std::shared_ptr<Operation> receiving(const char* what, int src_id, Tensor&& memory) const {
    MessageCounts::instance().note_received(group_->member(src_id));
    return make_operation(what, std::move(memory));
  }

  /// Starts `body(operation)` on the stream. `finish` makes the result of what the body leaves.
  template <class Body>
  Future<Tensor> start(Collective collective, Tensor&& argument, const Body& body,
                       std::function<void(Tensor&)> finish = nullptr) const {
    stream().count_call();
    std::shared_ptr<Operation> operation = make_operation(name(collective), std::move(argument));
    operation->collective_of = group_;
    operation->body = body(*operation);
    operation->finish = std::move(finish);
    stream().start(operation);
    return future_of(std::move(operation));
  }

  Future<Tensor> start_all_to_all(Tensor&& argument, int split_axis, int concat_axis,
                                  std::vector<Range>&& parts) const {
    return start(Collective::all_to_all, std::move(argument), [&](Operation& o) {
      Header header = header_of(o.tensor, split_axis);
      header.concat_axis = concat_axis;
      return runtime::all_to_all(call(Collective::all_to_all, std::move(header)), o, split_axis, concat_axis,
                                 std::move(parts));
    });
  }

  /// Starts an operation and returns when it is done.
  template <class Body>
  static Tensor run(std::shared_ptr<Operation> operation, const Body& body) {
    operation->body = body(*operation);
    stream().start(operation);
    stream().wait_for(*operation);
    return std::move(operation->tensor);
  }

  /// Lets an operation go on outside of the stream's order.
  template <class Body>
  static Future<Tensor> post(std::shared_ptr<Operation> operation, const Body& body) {
    operation->body = body(*operation);
    stream().post(operation);
    return future_of(std::move(operation));
  }

  std::shared_ptr<Group> group_;
};

}  // namespace

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Group> group) {
  return std::make_unique<GroupCommunicator>(std::move(group));
}

}  // namespace runtime
}  // namespace shard
