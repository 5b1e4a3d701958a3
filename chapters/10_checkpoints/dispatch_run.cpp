#include <fmt/format.h>

#include <set>

#include "10_checkpoints/dispatch/families.hpp"
#include "commands.hpp"
#include "dispatched_decoder.hpp"
#include "dispatched_t5.hpp"
#include "engine/basics/options.hpp"
#include "engine/basics/printable.hpp"
#include "engine/program/command_line.hpp"
#include "engine/program/commands/with_parameters.hpp"
#include "engine/workloads/decoder/decoder.hpp"
#include "engine/workloads/t5/t5.hpp"
#include "map.hpp"

namespace shard::checkpoints {

using namespace dispatch;

namespace {

/// The place of all that is in a module. \throws Error usage where the map divides it
std::string only_place(const DeviceMap& map, const Network& network, const std::string& module) {
  std::set<std::string> places;
  for (const auto& [path, tensor] : all_tensors(network.root))
    if (!tensor->is_buffer && is_within(path, module)) places.insert(*place_of(map, path));
  if (places.size() != 1)
    throw Error(Code::usage, "--device-map: expected {} in one place, given it in {} and in {}", module,
                *places.begin(), *places.rbegin());
  return *places.begin();
}

/// The places of a network's parts.
std::vector<std::string> places_of(const DeviceMap& map, const Network& network,
                                   const std::vector<std::string>& parts, int devices) {
  std::vector<std::string> places;
  for (const std::string& part : parts) {
    places.push_back(only_place(map, network, part));
    if (is_device(places.back()) && std::stoi(places.back()) >= devices)
      throw Error(Code::usage, "--device-map: expected devices below the {} that run, given {} for {}",
                  devices, places.back(), part);
  }
  return places;
}

template <class Engine, class Model>
std::unique_ptr<ShardedEngine> engine_of(Communicator& group, const Model& m, const DeviceMap& map,
                                         const Network& network) {
  return std::make_unique<Engine>(group, m, places_of(map, network, Engine::modules(m), group.num_devices()));
}

/// The engine as a variant, for the commands of chapters that have variants.
Variant dispatched_by(const MapRequest& request) {
  const Network network = read_network(request.params);
  const DeviceMap map = make_map(request, network).filled.map;
  Variant variant{"dispatched", "parts of the network where a map says"};
  const bool is_t5 = network.root.class_name == "T5ForConditionalGeneration";
  variant.workload = is_t5 ? &t5() : &decoder();
  variant.make = [map, network, is_t5](Communicator& group, const Workload& w, const Options&) {
    return is_t5 ? engine_of<DispatchedT5>(group, as_t5(w).model(), map, network)
                 : engine_of<DispatchedDecoder>(group, as_decoder(w).model(), map, network);
  };
  return variant;
}

Index positive_number(const std::string& option, const std::string& text) {
  const auto numbers = numbers_in(text, [](Index n) { return n > 0; });
  if (!numbers || numbers->size() != 1)
    throw Error(Code::usage, "{}: expected a positive whole number, given {}", option, printable(text, 60));
  return numbers->front();
}

}  // namespace

int run_dispatched(Communicator& group, const std::string& command, const std::vector<std::string>& words) {
  const bool infers = command == "infer";
  MapRequest request;
  InferCommand infer;
  GenerateCommand generate;
  std::string number = infers ? "1" : "32", record;
  std::vector<TextOption> options = request.options();
  bool unverified = false;
  options.push_back({"--no-verify",
                     "Do not compare a checkpoint's files with their digests",
                     "",
                     {},
                     nullptr,
                     &unverified});
  if (infers) {
    options.push_back({"--batch", "Sequences that go through the network together", "N=1", {}, &number});
  } else {
    options.push_back({"--ids", "The prompt: tokens, such as 5,17,2", "LIST", {}, &generate.ids});
    options.push_back(
        {"--tokens", "How many to write, unless one ends the sequence (eos_token_id)", "N=32", {}, &number});
  }
  options.push_back(record_option(record));
  if (!parse_options(group, "10_checkpoints " + command, words,
                     "Run a network by a map of modules and places", options,
                     "A device of the map is a process: -n says how many there are."))
    return 0;
  (infers ? infer.batch : generate.tokens) = positive_number(infers ? "--batch" : "--tokens", number);
  if (request.params.empty()) throw Error(Code::usage, command + ": expected --params DIR, given none");
  infer.params = generate.params = {.path = request.params, .unverified = unverified};
  const Variant variant = dispatched_by(request);
  return run_recorded_command(group, record, command, variant.name, [&](Communicator& recorded) {
    return infers ? infer.run_with(recorded, variant) : generate.run_with(recorded, variant);
  });
}

}  // namespace shard::checkpoints
