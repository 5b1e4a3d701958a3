#include <cstdio>
#include <iostream>

#include "engine/program/commands.hpp"
#include "engine/program/commands/rows.hpp"
#include "engine/program/parameters.hpp"

namespace shard {

int infer(Communicator& group, const Variant& variant, const Arguments& arguments) {
  const Parameters params = open_parameters(group, *variant.workload, arguments);
  const std::shared_ptr<Workload> network = params.network_of(*variant.workload, arguments.options);
  if (variant.require) variant.require(group.num_devices(), *network, arguments.options);
  std::unique_ptr<ShardedEngine> engine = variant.make(group, *network, arguments.options);
  engine->load_checkpoint(*params.checkpoint);
  const Streams streams =
      network->kind().has_tokens()
          ? rows_of_tokens(std::cin, *network, arguments.batch)
          : rows_of_numbers(std::cin, network->input_shape(1).at(1), arguments.batch,
                            [&](Index width) { return params.input_hint(*network, width); });
  engine->inference_loop(*streams.input, *streams.output);
  if (group.device_id() == 0 && std::ferror(stdin) != 0)
    throw Error(Code::file, "standard input: expected rows of numbers, given an error of the system");
  return 0;
}

}  // namespace shard
