/// The functions of a communicator. Each fills a Request.

#include "engine/device/device.hpp"

#include <fmt/format.h>

#include "engine/device/books/memory.hpp"

namespace shard {

namespace {

/// A call that is done.
class Done : public Pending {
 public:
  explicit Done(CallResult result) : result_(std::move(result)) {}
  bool test() override { return true; }
  void wait() override {}
  CallResult take_result() override { return std::move(result_); }
  void dropped() noexcept override {}

 private:
  CallResult result_;
};

Tensor tensor_of(CallResult result) {
  return std::move(result.tensor);
}

}  // namespace

Collective Request::collective() const {
  return function <= broadcast ? function : send;
}

std::string Request::name() const {
  const std::string_view of_function = shard::name(function);
  const bool has_subject = function == exchange || function == gather || function == gather_for_all;
  return has_subject ? fmt::format("{} of \"{}\"", of_function, what) : std::string(of_function);
}

std::string place_of_call(Index number, SourceLine where, bool is_counted) {
  if (!where.is_known()) return fmt::format("{}call {}", is_counted ? "" : "after ", number);
  return is_counted ? fmt::format("call {} at {}", number, to_string(where))
                    : fmt::format("after call {}, at {}", number, to_string(where));
}

std::string_view backend() {
  if (devices_share_a_process()) return tensors_have_elements() ? "local" : "meta";
  return traffic_is_booked() ? "cuda" : "emu";
}

Future<CallResult> done(CallResult result) {
  return {std::make_shared<Done>(std::move(result)), [](CallResult given) { return given; }};
}

Future<CallResult> Communicator::ask(Request::Function function, SourceLine where, Request&& request) {
  const CallSite line(where);
  request.function = function;
  request.where = current_call_site();
  return call(std::move(request));
}

std::unique_ptr<Communicator> Communicator::split(std::optional<Index> color, Index key, SourceLine where) {
  return ask(Request::split, where, {.color = color, .number = key}).get(where).part;
}

void Communicator::barrier(SourceLine where) {
  ask(Request::barrier, where, {}).get(where);
}

void Communicator::send(int dest_id, const Tensor& t, SourceLine where) {
  ask(Request::send, where, {.tensor = share(t), .is_shared = true, .peer = dest_id}).get(where);
}

Tensor Communicator::receive(int src_id, SourceLine where) {
  return ask(Request::receive, where, {.peer = src_id}).get(where).tensor;
}

Future<> Communicator::post_send(int dest_id, Tensor&& t, SourceLine where) {
  return ask(Request::post_send, where, {.tensor = std::move(t), .peer = dest_id}).then([](CallResult) {});
}

Future<Tensor> Communicator::post_receive(int src_id, const Shape& shape, SourceLine where) {
  return ask(Request::post_receive, where, {.peer = src_id, .arrives = shape}).then(tensor_of);
}

Future<> Communicator::send_async(const Tensor& src, Tensor& dst, std::optional<int> target_device_id,
                                  SourceLine where) {
  return ask(Request::send_async, where,
             {.tensor = share(src), .is_shared = true, .into = share(dst), .peer = target_device_id})
      .then([](CallResult) {});
}

Future<Tensor> Communicator::all_gather_async(Tensor&& slice, int axis, const std::optional<Shape>& whole,
                                              SourceLine where) {
  return ask(Request::all_gather, where, {.tensor = std::move(slice), .axis = axis, .arrives = whole})
      .then(tensor_of);
}

Future<Tensor> Communicator::all_gather_async(const Tensor& slice, int axis,
                                              const std::optional<Shape>& whole, SourceLine where) {
  return ask(Request::all_gather, where,
             {.tensor = share(slice), .is_shared = true, .axis = axis, .arrives = whole})
      .then(tensor_of);
}

Future<Tensor> Communicator::all_reduce_async(Tensor&& t, ReduceOp op, SourceLine where) {
  return ask(Request::all_reduce, where, {.tensor = std::move(t), .op = op}).then(tensor_of);
}

Future<Tensor> Communicator::reduce_scatter_async(Tensor&& t, ReduceOp op, int axis, SourceLine where) {
  return ask(Request::reduce_scatter, where, {.tensor = std::move(t), .op = op, .axis = axis})
      .then(tensor_of);
}

Future<Tensor> Communicator::all_to_all_async(Tensor&& t, int split_axis, int concat_axis, SourceLine where) {
  return ask(Request::all_to_all, where,
             {.tensor = std::move(t), .axis = split_axis, .concat_axis = concat_axis})
      .then(tensor_of);
}

Future<Tensor> Communicator::all_to_all_async(Tensor&& t, const std::vector<Index>& counts, int axis,
                                              SourceLine where) {
  return ask(Request::all_to_all, where,
             {.tensor = std::move(t), .axis = axis, .concat_axis = axis, .counts = counts})
      .then(tensor_of);
}

Future<Tensor> Communicator::broadcast_async(Tensor&& t, int root, SourceLine where) {
  return ask(Request::broadcast, where, {.tensor = std::move(t), .peer = root}).then(tensor_of);
}

void Communicator::synchronize(SourceLine where) {
  ask(Request::synchronize, where, {}).get(where);
}

std::vector<Index> Communicator::exchange(const char* what, Index mine, SourceLine where) {
  return ask(Request::exchange, where, {.number = mine, .what = what}).get(where).numbers;
}

std::vector<std::string> Communicator::gather(const char* what, const std::string& mine, SourceLine where) {
  return ask(Request::gather, where, {.what = what, .text = mine}).get(where).texts;
}

std::vector<std::string> Communicator::gather_for_all(const char* what, const std::string& mine,
                                                      SourceLine where) {
  return ask(Request::gather_for_all, where, {.what = what, .text = mine}).get(where).texts;
}

void Communicator::verify_replicated(const Tensor& t, SourceLine where) {
  ask(Request::verify_replicated, where, {.tensor = share(t), .is_shared = true}).get(where);
}

}  // namespace shard
