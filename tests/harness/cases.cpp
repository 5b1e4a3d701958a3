#include "tests/harness/cases.hpp"

#include <iostream>
#include <nlohmann/json.hpp>

#include "tests/harness/devices.hpp"

namespace shard::testing {

namespace {

nlohmann::json described(const Case& row, Reporters reporters) {
  auto if_it_is = [&](Where other) {
    return row.where == other || row.where == Where::everywhere ? row.devices : std::vector<int>();
  };
  return {{"name", row.name},
          {"devices", row.devices},
          {"on_cuda", if_it_is(Where::cuda_too)},
          {"in_one_process", if_it_is(Where::local_too)},
          {"code", row.code},
          {"says", row.says},
          {"one_line", reporters == Reporters::one_device},
          {"environment", row.environment}};
}

}  // namespace

int run_cases(int argc, char** argv, const std::vector<std::vector<Case>>& tables, Reporters reporters) {
  const std::string name = argc == 2 ? argv[1] : "";
  if (name == "--list") {
    nlohmann::json list = nlohmann::json::array();
    for (const auto& table : tables)
      for (const Case& row : table) list.push_back(described(row, reporters));
    std::cout << list.dump(1) << std::endl;
    return 0;
  }
  for (const auto& table : tables)
    for (const Case& row : table)
      if (row.name == name) {
        if (row.before) row.before();
        return run_on_devices(argc, argv, [&](Communicator& world) {
          group().set_inner(world);
          return row.body();
        });
      }
  return run_on_devices(argc, argv, [&](Communicator&) -> int {
    throw Error(Code::usage, "expected --list or a case, given '" + name + "'");
  });
}

}  // namespace shard::testing
