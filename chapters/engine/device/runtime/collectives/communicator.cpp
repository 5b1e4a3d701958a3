/// The communicator of all backends. It checks arguments, counts calls, and starts them on the stream.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "engine/device/runtime/backend.hpp"
#include "engine/device/runtime/collectives/collectives.hpp"
#include "engine/device/runtime/meeting.hpp"
#include "engine/device/runtime/operations/tensor_memory.hpp"
#include "engine/device/runtime/stream.hpp"
#include "engine/device/runtime/watchdog/flight_record.hpp"
#include "engine/device/this_device.hpp"

namespace shard {

namespace runtime {
namespace {

/// While such an object lives, this device makes a group. It is made when all members have called split, before
/// their last exchange.
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

  Future<CallResult> call(Request&& request) override {
    switch (request.function) {
      case Request::split:
        return done({.part = split_off(request)});
      case Request::synchronize:
        stream().drain();
        finish_device();
        return {};
      case Request::gather:
      case Request::gather_for_all:
        stream().stop_polling();
        request.call = stream().calls();
        FlightRecord::instance().note_call(request.call, request.name(), request.where);
        return done({.texts = runtime::gather(*group_, request)});
      case Request::verify_replicated:  // a plain communicator believes the claim
        return {};
      default:
        require_fitting(request);
        return start(std::move(request));
    }
  }

 private:
  Future<CallResult> start(Request&& request) const {
    if (request.is_counted()) stream().count_call();
    request.call = stream().calls();
    auto call = std::make_shared<Call>(group_, std::move(request));
    FlightRecord::instance().note_call(call->request.call, call->name, call->request.where);
    const Definition& what = definition_of(call->request.function);
    if (what.prepare != nullptr) what.prepare(*call);
    call->body = group_->data_plane ? group_->data_plane->body_of(*call) : what.body(*call);
    stream().start(call);
    return {std::move(call), [](CallResult result) { return result; }};
  }

  std::unique_ptr<Communicator> split_off(const Request& request) const {
    auto of_all = [&](Index number, std::optional<Index> color) {
      return start({.function = Request::split, .color = color, .number = number, .where = request.where})
          .get()
          .numbers;
    };
    const std::vector<Index> keys_and_colors = of_all(request.number, request.color);
    const std::span keys = std::span(keys_and_colors).first(group_->members().size());
    const std::span colors = std::span(keys_and_colors).subspan(keys.size());
    const MakingGroup making;
    finish_device();  // all members' hosts still serve calls, which work of this device may wait for
    const Index id = std::ranges::max(of_all(next_group_id(), {}));
    next_group_id() = id + 1;
    if (!request.color) return nullptr;
    std::vector<int> places;
    for (int d = 0; d < num_devices(); ++d)
      if (colors[static_cast<std::size_t>(d)] == *request.color) places.push_back(d);
    std::ranges::stable_sort(places, {}, [&](int d) { return keys[static_cast<std::size_t>(d)]; });
    return make_communicator(group_->subgroup(id, places));
  }

  /// An id larger than those of all groups of this device. A new group gets the largest one of its members.
  static Index& next_group_id() {
    struct Next {
      Index id = 1;
    };
    return device().state<Next>().id;
  }

  /// \throws Error argument for a device or an axis that does not exist, and for shapes or counts that do not fit
  void require_fitting(const Request& r) const {
    const Tensor& t = r.tensor;
    const std::string_view what = shard::name(r.function);
    const bool may_be_me = !is_message(r.function);
    if (r.peer && (*r.peer < 0 || *r.peer >= num_devices() || (!may_be_me && *r.peer == device_id())))
      refuse(Code::argument, r.name() + group_->in_group(),
             fmt::format("a device of 0 to {}{}", num_devices() - 1, may_be_me ? "" : " but oneself"),
             fmt::format("device {}", *r.peer));
    const std::size_t rank = std::max(t.shape().size(), r.arrives ? r.arrives->size() : 0);
    if (rank > most_axes)
      refuse(Code::argument, what, fmt::format("at most {} axes", most_axes), fmt::to_string(rank));
    if (r.into && TensorMemory::overlap(t, *r.into))
      refuse(Code::argument, what, "src and dst to be different tensors", "the same memory twice");
    for (const std::optional<int> axis : {r.axis, r.concat_axis})
      if (axis) require_axis(what, t.shape(), *axis);
    if (r.counts && (r.counts->size() != static_cast<std::size_t>(num_devices()) ||
                     std::ranges::any_of(*r.counts, [](Index c) { return c < 0; }) ||
                     std::accumulate(r.counts->begin(), r.counts->end(), Index{0}) != t.extent(*r.axis)))
      refuse(Code::argument, what,
             fmt::format("{} counts that add up to {}", num_devices(), t.extent(*r.axis)),
             to_string(*r.counts));
  }

  std::shared_ptr<Group> group_;
};

}  // namespace

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Group> group) {
  return std::make_unique<GroupCommunicator>(std::move(group));
}

}  // namespace runtime
}  // namespace shard
