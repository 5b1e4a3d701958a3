#pragma once

/// A random legal program: which calls the devices make, in which order, and when each device waits for
/// them. Every device makes the whole plan from the same random numbers, so each knows what all others do.

#include <cstdint>
#include <string>
#include <vector>

#include "engine/basics/ranges.hpp"
#include "engine/device/device.hpp"

namespace shard::testing {

enum class What {
  all_reduce,
  all_gather,
  all_gather_of_copy,
  reduce_scatter,
  all_to_all,
  all_to_all_of_counts,
  broadcast,
  barrier,
  send_async,
  exchange,
  gather,
  split,
  message
};

/// Calls of several devices that belong together: a collective of a group, or a message. Lists are in the
/// order of places in the group.
struct Item {
  What what;
  int group;  ///< index of Plan::groups
  ReduceOp op = ReduceOp::sum;
  int axis = 0;  ///< all_to_all: the one that is split
  int concat_axis = 0;
  int root = 0;
  std::vector<Shape> shapes = {};               ///< what each member passes; of a message: what is sent
  std::vector<std::vector<Index>> counts = {};  ///< all_to_all_of_counts
  std::vector<Index> targets = {};              ///< send_async: -1 for none
  std::vector<Index> colors = {}, keys = {};    ///< split: color -1 for none
  std::vector<int> parts = {};                  ///< of a split: index of each member's new group, -1 for none
  int from = 0, to = 0;                         ///< a message: places of its sender and its receiver
  bool is_posted_send = false, is_posted_receive = false;
};

/// The next action of one device.
struct Action {
  enum class Kind { start, poll, wait, synchronize, pause, work } kind;
  int item = -1;
  int amount = 0;  ///< of a poll, pause or work: the most microseconds
};

struct Plan {
  std::uint64_t seed;
  Index program;
  int devices;
  std::vector<std::vector<int>> groups;  ///< members, as ids in the job; the first group is the world
  std::vector<Item> items;
  std::vector<std::vector<Action>> actions;  ///< by device
};

Plan generate_plan(std::uint64_t seed, Index program, int devices);

/// A member's place in a group, -1 for a device that is not in it.
int place_in(const std::vector<int>& members, int device);
/// Whether the call returns when it is done; otherwise it returns a future.
bool is_blocking(const Item& item, bool is_sender);
/// Whether a fault can happen at the call, since FaultyCommunicator counts it.
bool is_counted(const Item& item);
/// The number of a device's calls that FaultyCommunicator counts.
Index calls_of(const Plan& plan, int device);

/// "all_reduce(sum) of (2, 3) in group {2, 0}".
std::string describe(const Plan& plan, const Item& item);
/// The plan as text, a paragraph for each device.
std::string describe(const Plan& plan);

/// The argument of member `place` of a call: random integers. Sums and products over 8 devices are exact.
HostTensor input_of(const Plan& plan, int item, int place);
/// The expected result of member `place`, computed on the host from the arguments of all members.
HostTensor expected_result(const Plan& plan, int item, int place, const std::vector<HostTensor>& inputs);
std::vector<HostTensor> inputs_of(const Plan& plan, int item);

}  // namespace shard::testing
