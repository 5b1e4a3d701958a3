// Devices that stand for others that do the same, on tensors without elements.

#include "emu/meta/alike.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <string>
#include <vector>

#include "engine/device/books/ledger.hpp"
#include "engine/device/device.hpp"

namespace shard {
namespace {

using Results = std::vector<std::string>;

std::string sent() {
  return std::to_string(ledger().traffic().bytes);
}

std::string sum(Communicator& group, Index elements) {
  group.all_reduce_async(Tensor({elements}), ReduceOp::sum).get();
  return sent();
}

using Body = std::string (*)(Communicator& world);

struct Row {
  const char* name;
  int devices;
  AlikeDevices alike;
  Results results;
  Body body;
};

const Results not_alike = {"not alike"};

/// A job in which devices are alike or are found not to be.
Row alike(const char* name, int devices, AlikeDevices devices_alike, const Results& results, Body body) {
  return {name, devices, devices_alike, results, body};
}
/// A job of three devices of which one runs, and is found not to stand for the others.
template <class Action>
Row unlike(const char* name, Action) {
  return alike(name, 3, {3, 1}, not_alike, [](Communicator& w) { return Action()(w), std::string(); });
}

const Row rows[] = {
    alike("a sum in even parts", 4, {4, 1}, Results(4, "48"), [](Communicator& w) { return sum(w, 8); }),
    alike("a sum in uneven parts", 4, {4, 1}, not_alike, [](Communicator& w) { return sum(w, 6); }),
    alike("groups across, which miss devices", 6, {3, 2}, Results(6, "16"),
          [](Communicator& w) { return sum(*w.split(w.device_id() % 2, w.device_id()), 3); }),
    alike("groups in reverse order", 6, {3, 2}, {"2 of 3", "3 of 3", "2 of 3", "3 of 3", "2 of 3", "3 of 3"},
          [](Communicator& w) {
            const auto part = w.split(w.device_id() % 2, -w.device_id());
            return std::to_string(part->members()[1]) + " of " + std::to_string(part->num_devices());
          }),
    alike("groups of devices that run", 6, {3, 2}, Results(6, "16"),
          [](Communicator& w) { return sum(*w.split(w.device_id() / 2, 0), 4); }),
    alike("groups that alike devices number unevenly", 8, {4, 2}, not_alike,
          [](Communicator& w) { return sum(*w.split(w.device_id() / 6, 0), 4); }),
    alike("messages between devices that run", 6, {3, 2}, {"8", "0", "8", "0", "8", "0"},
          [](Communicator& w) {
            if (w.device_id() % 2 == 0) return w.send(w.device_id() + 1, Tensor({2})), sent();
            return w.receive(w.device_id() - 1), sent();
          }),
    alike("slices of the same size", 3, {3, 1}, Results(3, "6"),
          [](Communicator& w) {
            return std::to_string(w.all_gather_async(Tensor({2, 5}), 0).get().extent(0));
          }),
    alike("results that differ", 3, {3, 1}, not_alike,
          [](Communicator& w) { return std::to_string(w.device_id()); }),
    unlike("a message to a device for which another stands",
           [](Communicator& w) {
             if (w.device_id() == 0) w.send(1, Tensor({2}));
             if (w.device_id() == 1) w.receive(0);
           }),
    unlike("a message from such a device",
           [](Communicator& w) {
             if (w.device_id() == 1) w.send(2, Tensor({2}));
             if (w.device_id() == 2) w.receive(1);
           }),
    unlike("keys between which no whole number lies",
           [](Communicator& w) {
             const Index keys[] = {0, 5, 1};
             w.split(0, keys[w.device_id()]);
           }),
    unlike("a group without the last",
           [](Communicator& w) { w.split(w.device_id() == 2 ? std::nullopt : std::optional<Index>(0), 0); }),
    unlike("slices that differ",
           [](Communicator& w) { w.all_gather_async(Tensor({w.device_id() == 0 ? 2 : 1}), 0).get(); }),
    unlike("a tree", [](Communicator& w) { w.barrier(); }),
    unlike("numbers that differ", [](Communicator& w) { w.exchange("rows", w.device_id()); }),
    unlike("an error", [](Communicator& w) { sum(w, w.device_id()); }),
};

bool is_right(const Row& row) {
  const Results given = meta::results_of_alike(row.devices, row.alike, row.body).value_or(not_alike);
  if (given != row.results) fmt::print("{}: expected {}, given {}\n", row.name, row.results, given);
  return given == row.results;
}

}  // namespace
}  // namespace shard

int main() {
  bool are_right = true;
  for (const shard::Row& row : shard::rows) are_right &= is_right(row);
  return are_right ? 0 : 1;
}
