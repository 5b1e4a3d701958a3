/// How a device begins and ends a job, with a result or with an error.

#include "engine/device/runtime/job.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "engine/device/runtime/backend.hpp"
#include "engine/device/runtime/stream.hpp"
#include "engine/device/runtime/watchdog/message_counts.hpp"

namespace shard::runtime {
namespace {

/// Call it at the end of the program. \throws Error mismatch, on device 0, when messages were not received
void require_all_received(Group& all) {
  MessageCounts& counts = MessageCounts::instance();
  const std::vector<Index> received = all.exchange_at_end(counts.received(all.num_devices()));
  Request request{.function = Request::gather, .what = "the messages that are left over"};
  request.text = counts.unreceived(received);
  std::string lines;
  for (const std::string& text : all.gather(request)) lines += text;
  if (!lines.empty()) throw Error(Code::mismatch, "messages were sent that nobody received:" + lines);
}

}  // namespace

int run_in_world(const std::function<int(Communicator& world)>& body) {
  set_up_device();
  const std::shared_ptr<Group> all = Group::world();
  const std::unique_ptr<Communicator> world = make_communicator(all);
  ControlPlane::instance().connect_stream([] { stream().advance(); }, [] { return stream().in_flight(); },
                                          [] { return stream().calls(); });
  const int exit_code = body(*world);
  if (exit_code < 0 || exit_code > 125)  // shells and launchers use the other codes
    refuse(Code::argument, "the program", "to return 0 to 125", fmt::to_string(exit_code));
  world->synchronize();
  std::fflush(stdout);
  ControlPlane::instance().is_at_end();
  const Index largest = all->max_at_end(exit_code);
  ControlPlane::instance().all_are_at_end();
  if (largest == 0) require_all_received(*all);
  return static_cast<int>(largest);
}

int run_as_device(const std::function<int(Communicator& world)>& body) {
  ControlPlane& plane = ControlPlane::instance();
  try {
    const int exit_code = run_in_world(body);
    plane.finish(exit_code);
    return exit_code;
  } catch (const Error& error) {
    plane.fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    plane.fail(Code::missing, fmt::format("device {}: out of memory", plane.id()));
  } catch (const std::exception& error) {
    const std::string what = error.what();
    plane.fail(Code::internal,
               fmt::format("device {}: {}", plane.id(), what.empty() ? "an exception without a text" : what));
  } catch (...) {
    plane.fail(Code::internal, fmt::format("device {}: an exception of an unknown type", plane.id()));
  }
}

}  // namespace shard::runtime
