#include "engine/checkpoints/save.hpp"

#include "engine/checkpoints/training_checkpoint.hpp"
#include "engine/dispatch/modules/families.hpp"
#include "engine/program/commands.hpp"
#include "engine/program/parameters.hpp"

namespace shard {

int save(Communicator& group, const Variant& variant, const Arguments& arguments) {
  const Parameters params = open_parameters(group, *variant.workload, arguments);
  if (!params.stored_as.empty() && arguments.form.format == "distributed")
    throw Error(
        Code::usage,
        "--format: expected gathered or sharded for a folder of another library's, given distributed");
  const std::shared_ptr<Workload> network = params.network_of(*variant.workload, arguments.options);
  if (variant.require) variant.require(group.num_devices(), *network, arguments.options);
  const std::unique_ptr<ShardedEngine> engine = variant.make(group, *network, arguments.options);
  engine->load_checkpoint(*params.checkpoint);
  SavedTensors saved{"model", held_parameters(*engine), {}, params.stored_as};
  for (const Parameter& p : network->parameters()) saved.order.push_back(p.name);
  if (!params.stored_as.empty()) saved.types = dispatch::stored_types(arguments.params);
  save_checkpoint(group, arguments.save, arguments.form, {saved}, std::nullopt,
                  params.stored_as.empty() ? "" : arguments.params);
  return 0;
}

}  // namespace shard
