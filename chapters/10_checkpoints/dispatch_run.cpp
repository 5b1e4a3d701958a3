#include <fmt/format.h>

#include <set>

#include "commands.hpp"
#include "dispatched.hpp"
#include "engine/dispatch/families.hpp"
#include "engine/files/model_folder.hpp"
#include "engine/options.hpp"
#include "engine/printable.hpp"
#include "engine/program/commands.hpp"
#include "engine/workloads/decoder.hpp"
#include "map_request.hpp"

namespace shard::checkpoints {

using namespace dispatch;

namespace {

/// The place of all that is in a module. \throws Error usage where the map divides it
std::string only_place(const DeviceMap& map, const Network& network, const std::string& module) {
  std::set<std::string> places;
  for (const auto& [path, tensor] : all_tensors(network.root))
    if (!tensor->is_buffer && is_within(path, module)) places.insert(*place_of(map, path));
  if (places.size() != 1)
    throw Error(Code::usage, fmt::format("--device-map: expected {} in one place, given it in {} and in {}",
                                         module, *places.begin(), *places.rbegin()));
  return *places.begin();
}

DecoderPlaces places_of(const DeviceMap& map, const Network& network, Index blocks, int devices) {
  auto place = [&](const std::string& module) {
    const std::string only = only_place(map, network, module);
    if (is_device(only) && std::stoi(only) >= devices)
      throw Error(Code::usage,
                  fmt::format("--device-map: expected devices below the {} that run, given {} for {}",
                              devices, only, module));
    return only;
  };
  DecoderPlaces places{place("model.embed_tokens"), {}, place("model.norm"), place("lm_head")};
  for (Index b = 0; b < blocks; ++b) places.blocks.push_back(place(fmt::format("model.layers.{}", b)));
  return places;
}

/// The engine as a variant, for the commands of chapters that have variants.
Variant dispatched_by(const MapRequest& request) {
  const Network network = read_network(request.params);
  const DeviceMap map = make_map(request, network).filled.map;
  Variant variant{"dispatched", "blocks where a map says"};
  variant.workload = &decoder();
  variant.make = [map, network](Communicator& group, const Workload& workload, const Options&) {
    const DecoderModel& m = as_decoder(workload).model();
    return std::make_unique<DispatchedDecoder>(group, m,
                                               places_of(map, network, m.num_blocks, group.num_devices()));
  };
  return variant;
}

Index positive_number(const std::string& option, const std::string& text) {
  const auto numbers = numbers_in(text, [](Index n) { return n > 0; });
  if (!numbers || numbers->size() != 1)
    throw Error(Code::usage,
                fmt::format("{}: expected a positive whole number, given {}", option, printable(text, 60)));
  return numbers->front();
}

/// A folder with config.json and the parameters. \throws Error usage, file
void require_decoder(const std::string& command, const MapRequest& request) {
  if (request.params.empty()) throw Error(Code::usage, command + ": expected --params DIR, given none");
  const ForeignModel config = read_model_config(request.params + "/config.json");
  if (config.hyper_parameter("model_type", "") == "t5")
    throw Error(Code::usage, command + ": expected a mistral or a mixtral, given a t5");
}

}  // namespace

int run_dispatched(Communicator& group, const std::string& command, const std::vector<std::string>& words) {
  MapRequest request;
  Arguments arguments;
  std::string number = command == "infer" ? "1" : "32";
  std::vector<TextOption> options = request.options();
  if (command == "infer") {
    options.push_back({"--batch", "Sequences that go through the network together", "N=1", {}, &number});
  } else {
    options.push_back({"--ids", "The prompt: tokens, such as 5,17,2", "LIST", {}, &arguments.ids});
    options.push_back({"--tokens", "How many to write", "N=32", {}, &number});
  }
  if (!parse_options(group, "10_checkpoints " + command, words,
                     "Run a decoder by a map of modules and places", options,
                     "A device of the map is a process: -n says how many there are."))
    return 0;
  (command == "infer" ? arguments.batch : arguments.tokens) =
      positive_number(command == "infer" ? "--batch" : "--tokens", number);
  require_decoder(command, request);
  arguments.params = request.params;
  const Variant variant = dispatched_by(request);
  return command == "infer" ? infer(group, variant, arguments) : generate(group, variant, arguments);
}

}  // namespace shard::checkpoints
