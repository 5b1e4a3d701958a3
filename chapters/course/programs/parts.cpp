#include "parts.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/files/regular_file.hpp"
#include "engine/files/safetensors/writer.hpp"

namespace shard::course {

void Parts::write(const std::string& folder, int device) const {
  nlohmann::json said = {
      {"begin", nlohmann::json::object()}, {"figures", figures_}, {"described", described_}};
  std::map<std::string, HostTensor> tensors;
  for (const auto& [name, part] : parts_) {
    said["begin"][name] = part.begin;
    tensors[name] = part.values;
  }
  write_safetensors(fmt::format("{}/device_{}.safetensors", folder, device), tensors);
  replace_file(fmt::format("{}/device_{}.json", folder, device), said.dump() + "\n");
}

}  // namespace shard::course

int main(int argc, char** argv) {
  return shard::run_on_devices(argc, argv, [&](shard::Communicator& world) {
    if (argc != 3) throw shard::Error(shard::Code::usage, "expected FOLDER OUT");
    shard::course::run(world, argv[1], argv[2]);
    return 0;
  });
}
