#include <fmt/format.h>

#include <cstring>

#include "engine/files/file_checkpoint.hpp"
#include "engine/files/regular_file.hpp"
#include "engine/files/safetensors.hpp"
#include "engine/program/commands.hpp"
#include "engine/program/parameters.hpp"

namespace shard {

namespace {

/// The batch's `input` and `output_grad`, of one number of rows and the network's widths.
void require_batch(const Checkpoint& batch, const Workload& network, const Parameters& params) {
  const Shape input = batch.shape("input");
  const Index rows = input.empty() ? 0 : input[0];
  auto require = [&](const char* name, const Shape& expected, const std::string& hint) {
    const Shape given = batch.shape(name);
    if (given != expected)
      throw Error(
          Code::file,
          fmt::format("{}: {}: expected {}, given {}{}", batch.source(), name, to_string(expected),
                      to_string(given),
                      hint.empty() ? "" : fmt::format(" ({}: {})", params.checkpoint->source(), hint)));
  };
  require("input", network.input_shape(rows), input.size() == 2 ? params.input_hint(network, input[1]) : "");
  require("output_grad", network.output_shape(rows), "");
}

/// Rows of one tensor of the batch.
Tensor read_rows(const Checkpoint& batch, const std::string& name, Range rows) {
  Tensor t = batch.slice(name, 0, rows.begin, rows.end);
  t.charge_to(Purpose::activations);
  return t;
}

/// Pieces of the output as they come, then whole on device 0.
class OutputPieces {
 public:
  void add(const Tensor& output, Index first_row) {
    std::vector<float> values = output.to_host();
    std::vector<Index> header = {first_row * output.extent(1), static_cast<Index>(values.size())};
    bytes_.append(reinterpret_cast<const char*>(header.data()), header.size() * sizeof(Index));
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }

  HostTensor gather(Communicator& group, const Shape& shape) const {
    HostTensor whole{shape, std::vector<float>(static_cast<std::size_t>(num_elements(shape)))};
    for (const std::string& theirs : group.gather("the output", bytes_)) {
      for (std::size_t at = 0; at < theirs.size();) {
        std::array<Index, 2> header{};
        std::memcpy(header.data(), theirs.data() + at, sizeof header);
        at += sizeof header;
        auto bytes = static_cast<std::size_t>(header[1]) * sizeof(float);
        if (bytes > 0) std::memcpy(whole.values.data() + header[0], theirs.data() + at, bytes);
        at += bytes;
      }
    }
    return whole;
  }

 private:
  std::string bytes_;
};

}  // namespace

int gradients(Communicator& group, const Variant& variant, const Arguments& arguments) {
  if (group.device_id() == 0) require_replaceable(arguments.out);
  const Parameters params = open_parameters(*variant.workload, arguments);
  std::unique_ptr<Checkpoint> batch = open_checkpoint(arguments.batch_file);
  const std::shared_ptr<Workload> network = variant.workload->read(*params.checkpoint, arguments.options);
  if (variant.require) variant.require(group.num_devices(), *network, arguments.options);
  require_batch(*batch, *network, params);
  const Index rows = batch->shape("input")[0];

  std::unique_ptr<ShardedEngine> engine = variant.make(group, *network, arguments.options);
  engine->load_checkpoint(*params.checkpoint);
  engine->want_input_grad(true);
  OutputPieces output;
  Gradients result = engine->forward_backward(
      read_rows(*batch, "input", engine->input_rows(rows)), [&](const Tensor& out, Index first_row) {
        output.add(out, first_row);
        return read_rows(*batch, "output_grad", {first_row, first_row + out.extent(0)});
      });

  std::map<std::string, HostTensor> whole;
  whole["output"] = output.gather(group, network->output_shape(rows));
  for (auto& [name, gradient] : result) {
    Tensor t = engine->whole(std::move(gradient));
    whole.insert(params.as_stored(name, {t.shape(), t.to_host()}));
  }
  if (group.device_id() == 0) write_safetensors(arguments.out, whole);
  return 0;
}

}  // namespace shard
