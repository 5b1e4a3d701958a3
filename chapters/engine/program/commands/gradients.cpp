#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "engine/files/file_checkpoint.hpp"
#include "engine/files/regular_file.hpp"
#include "engine/files/safetensors/writer.hpp"
#include "engine/program/commands.hpp"
#include "engine/program/parameters.hpp"

namespace shard {

int gradients(Communicator& group, const Variant& variant, const Arguments& arguments) {
  if (group.device_id() == 0) require_replaceable(arguments.out);
  const Parameters params = open_parameters(group, *variant.workload, arguments);
  std::unique_ptr<Checkpoint> file = open_checkpoint(arguments.batch_file);
  const std::shared_ptr<Workload> network = params.network_of(*variant.workload, arguments.options);
  if (variant.require) variant.require(group.num_devices(), *network, arguments.options);
  const std::unique_ptr<GivenBatch> batch = network->given_batch(std::move(file), [&](Index width) {
    const std::string hint = params.input_hint(*network, width);
    return hint.empty() ? "" : fmt::format("{}: {}", params.checkpoint->source(), hint);
  });

  std::unique_ptr<ShardedEngine> engine = variant.make(group, *network, arguments.options);
  engine->load_checkpoint(*params.checkpoint);
  engine->want_input_grad(true);
  batch->watch(*engine);
  Gradients result = engine->forward_backward(
      batch->input(engine->input_rows(batch->rows())),
      [&](const Tensor& out, Index first_row) { return batch->output_grad(out, first_row); });

  std::set<std::string> wanted;
  for (const Parameter& p : network->parameters()) wanted.insert(p.name);
  if (!network->kind().has_tokens()) wanted.insert(Gradients::input_grad);
  for (const std::string& name : wanted)
    if (!result.contains(name)) refuse(Code::argument, "gradients", "one of each name", "none for " + name);
  for (const auto& [name, gradient] : result)
    if (!wanted.contains(name))
      refuse(Code::argument, "gradients", fmt::format("those of {}", fmt::join(wanted, ", ")), name);

  std::map<std::string, HostTensor> whole = batch->results(group);
  for (auto& [name, gradient] : result) {
    Tensor t = engine->whole(std::move(gradient));
    whole.insert(params.as_stored(name, {t.shape(), t.to_host()}));
  }
  if (group.device_id() == 0) write_safetensors(arguments.out, whole);
  return 0;
}

}  // namespace shard
