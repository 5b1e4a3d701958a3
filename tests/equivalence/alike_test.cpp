// Devices that stand for others that do the same, on tensors without elements.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <string>
#include <vector>

#include "engine/device/books/ledger.hpp"
#include "engine/device/books/memory.hpp"
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

/// A job in which devices are alike or are found not to be.
struct Row {
  const char* name;
  int devices;
  AlikeDevices alike;
  std::string (*body)(Communicator& world);
  std::optional<Results> results;
};

const Row rows[] = {
    {"a sum in even parts", 4, {4, 1}, [](Communicator& w) { return sum(w, 8); }, Results(4, "48")},
    {"a sum in uneven parts", 4, {4, 1}, [](Communicator& w) { return sum(w, 6); }, std::nullopt},
    {"groups across, which miss devices",
     6,
     {3, 2},
     [](Communicator& w) { return sum(*w.split(w.device_id() % 2, w.device_id()), 3); },
     Results(6, "16")},
    {"groups in reverse order",
     6,
     {3, 2},
     [](Communicator& w) {
       const auto part = w.split(w.device_id() % 2, -w.device_id());
       return std::to_string(part->members()[1]) + " of " + std::to_string(part->num_devices());
     },
     Results{"2 of 3", "3 of 3", "2 of 3", "3 of 3", "2 of 3", "3 of 3"}},
    {"groups of devices that run",
     6,
     {3, 2},
     [](Communicator& w) { return sum(*w.split(w.device_id() / 2, 0), 4); },
     Results(6, "16")},
    {"groups that alike devices number unevenly",
     8,
     {4, 2},
     [](Communicator& w) { return sum(*w.split(w.device_id() / 6, 0), 4); },
     std::nullopt},
    {"messages between devices that run",
     6,
     {3, 2},
     [](Communicator& w) {
       if (w.device_id() % 2 == 0) return w.send(w.device_id() + 1, Tensor({2})), sent();
       return w.receive(w.device_id() - 1), sent();
     },
     Results{"8", "0", "8", "0", "8", "0"}},
    {"a message to a device for which another stands",
     3,
     {3, 1},
     [](Communicator& w) {
       if (w.device_id() == 0) w.send(1, Tensor({2}));
       if (w.device_id() == 1) w.receive(0);
       return std::string();
     },
     std::nullopt},
    {"a message from such a device",
     3,
     {3, 1},
     [](Communicator& w) {
       if (w.device_id() == 1) w.send(2, Tensor({2}));
       if (w.device_id() == 2) w.receive(1);
       return std::string();
     },
     std::nullopt},
    {"keys between which no whole number lies",
     3,
     {3, 1},
     [](Communicator& w) {
       const Index keys[] = {0, 5, 1};
       w.split(0, keys[w.device_id()]);
       return std::string();
     },
     std::nullopt},
    {"a group without the last",
     3,
     {3, 1},
     [](Communicator& w) {
       w.split(w.device_id() == 2 ? std::nullopt : std::optional<Index>(0), 0);
       return std::string();
     },
     std::nullopt},
    {"slices that differ",
     3,
     {3, 1},
     [](Communicator& w) {
       return w.all_gather_async(Tensor({w.device_id() == 0 ? 2 : 1}), 0).get(), std::string();
     },
     std::nullopt},
    {"slices of the same size",
     3,
     {3, 1},
     [](Communicator& w) {
       return std::to_string(w.all_gather_async(Tensor({2, 5}), 0).get().extent(0));
     },
     Results(3, "6")},
    {"a tree", 3, {3, 1}, [](Communicator& w) { return w.barrier(), std::string(); }, std::nullopt},
    {"numbers that differ",
     3,
     {3, 1},
     [](Communicator& w) { return w.exchange("rows", w.device_id()), std::string(); },
     std::nullopt},
    {"results that differ",
     3,
     {3, 1},
     [](Communicator& w) { return std::to_string(w.device_id()); },
     std::nullopt},
    {"an error",
     3,
     {3, 1},
     [](Communicator& w) -> std::string { return sum(w, w.device_id()); },
     std::nullopt},
};

bool is_right(const Row& row) {
  const Results none = {"not alike"};
  const Results expected = row.results.value_or(none);
  const Results given = results_of_alike(row.devices, row.alike, row.body).value_or(none);
  if (given != expected) fmt::print("{}: expected {}, given {}\n", row.name, expected, given);
  return given == expected;
}

}  // namespace
}  // namespace shard

int main() {
  bool are_right = true;
  for (const shard::Row& row : shard::rows) are_right &= is_right(row);
  return are_right ? 0 : 1;
}
