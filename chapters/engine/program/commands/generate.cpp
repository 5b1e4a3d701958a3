#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/basics/printable.hpp"
#include "engine/files/model_folder.hpp"
#include "engine/layers/tokens/greedy.hpp"
#include "engine/program/commands.hpp"
#include "engine/program/parameters.hpp"

namespace shard {

namespace {

/// \throws Error usage
std::vector<Index> prompt_of(const Workload& network, const Arguments& arguments) {
  if (arguments.ids.empty() == arguments.text.empty())
    throw Error(Code::usage, fmt::format("generate: expected --ids or --text, given {}",
                                         arguments.ids.empty() ? "neither" : "both"));
  if (arguments.ids.empty()) return network.tokens_of(arguments.text);
  const auto ids = numbers_in(arguments.ids, [](Index) { return true; });
  if (!ids)
    throw Error(Code::usage, fmt::format("--ids: expected tokens separated by commas, given '{}'",
                                         printable(arguments.ids, 60)));
  return *ids;
}

}  // namespace

int generate(Communicator& group, const Variant& variant, const Arguments& arguments) {
  if (!variant.workload->has_tokens())
    throw Error(Code::usage, fmt::format("generate: expected a variant that goes on with a prompt, given {}",
                                         variant.name));
  const Parameters params = open_parameters(group, *variant.workload, arguments);
  const std::shared_ptr<Workload> network = params.network_of(*variant.workload, arguments.options);
  if (variant.require) variant.require(group.num_devices(), *network, arguments.options);
  const std::vector<Index> prompt = prompt_of(*network, arguments);
  if (const std::string why = network->why_no_sequence(prompt, arguments.tokens); !why.empty())
    throw Error(Code::usage, "generate: " + why);
  std::unique_ptr<ShardedEngine> engine = variant.make(group, *network, arguments.options);
  engine->load_checkpoint(*params.checkpoint);
  const std::vector<Index> generated =
      generate_greedily(dynamic_cast<LanguageModel&>(*engine), network->prompt_of(prompt), arguments.tokens,
                        params.foreign ? end_tokens(arguments.params) : std::vector<Index>());
  if (group.device_id() != 0) return 0;
  if (arguments.text.empty())
    fmt::print("{}\n", fmt::join(generated, ","));
  else
    fmt::print("{}{}\n", arguments.text, network->text_of(generated));
  return 0;
}

}  // namespace shard
