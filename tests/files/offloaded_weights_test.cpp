/// Weights on the host and on the disk: the memory that they take on the host while a network runs.

#include "10_checkpoints/dispatch/offloaded_weights.hpp"

#include "10_checkpoints/dispatched_decoder.hpp"
#include "engine/basics/ranges.hpp"
#include "engine/files/safetensors/safetensors.hpp"
#include "tests/files/safetensors_files.hpp"
#include "tests/harness/devices.hpp"

using namespace shard;
using namespace shard::dispatch;
using namespace shard::testing;

namespace {

/// Eight blocks of about 1.5 MB each, with small tables.
DecoderModel deep() {
  DecoderModel m;
  m.vocabulary = 11, m.model_dim = 128, m.heads = 4, m.key_heads = 4, m.head_dim = 32, m.hidden_dim = 800;
  m.num_blocks = 8;
  m.how = Arithmetic::real(m.head_dim);
  return m;
}

void write_weights(const std::string& path, const DecoderModel& m) {
  std::map<std::string, HostTensor> weights;
  for (const Parameter& p : m.parameters())
    weights[p.name] = reals(p.shape, 0, static_cast<int>(weights.size()));
  write_safetensors(path, weights);
}

/// The most bytes of weights that the host and the device together hold during a forward pass.
std::size_t most_held(const DecoderModel& m, const Checkpoint& weights, const std::string& place) {
  const std::vector<std::string> places(static_cast<std::size_t>(m.num_blocks) + 3, place);
  const std::size_t before = allocated::now;
  const Index live = ledger().live(Purpose::parameters);
  checkpoints::DispatchedDecoder engine(group(), m, places);
  engine.load_checkpoint(weights);
  allocated::reset();
  ledger().reset();
  InferenceMode no_tape;
  const std::vector<float> row = {1, 2, 3, 2, 3, 4};
  engine.forward(Tensor::from_host({1, 6}, row));
  return allocated::peak - before + static_cast<std::size_t>(ledger().peak(Purpose::parameters) - live);
}

}  // namespace

TEST_CASE("offloaded: of a network on the disk, two blocks are in memory at most; on the host, all are") {
  const Folder folder;
  const DecoderModel m = deep();
  write_weights(folder / "weights", m);
  const std::unique_ptr<Checkpoint> weights = open_checkpoint(folder / "weights");
  std::size_t block = 0, all = 0;
  for (const Parameter& p : m.parameters()) {
    const std::size_t bytes = 4 * static_cast<std::size_t>(num_elements(p.shape));
    all += bytes;
    if (p.name.starts_with("block_0/")) block += bytes;
  }
  const std::size_t slack = block / 10;  // requests, tokens, scores, the tables
  most_held(m, *weights, disk_place);    // the library of products keeps what it makes at the first one
  CHECK(most_held(m, *weights, disk_place) <= 2 * block + slack + piece_bytes);
  CHECK(most_held(m, *weights, disk_place) > block);
  CHECK(most_held(m, *weights, host_place) >= all + block);
  CHECK(most_held(m, *weights, host_place) <= all + block + slack);
}

TEST_CASE("offloaded: parts come whole and in their order; a part behind others waits for its turn") {
  const Folder folder;
  const HostTensor large = reals({300, 700}, 0);  // several pieces
  write_safetensors(folder / "weights", {{"a", large}, {"b", {{1}, {3}}}, {"c", {{1}, {4}}}});
  const std::unique_ptr<Checkpoint> weights = open_checkpoint(folder / "weights");
  OffloadedWeights offloaded(*weights);
  const std::size_t a = offloaded.add({"a", "c"}, true), b = offloaded.add({"b"}, false),
                    c = offloaded.add({"c"}, true);
  std::string brought;
  auto bring_in = [&](std::size_t part) {
    offloaded.bring_in(part, [&](const std::string& name, const HostTensor& t) {
      brought += name;
      CHECK(t.values == weights->read(name, 0, 0, t.shape[0]));
    });
  };
  for (int pass = 0; pass < 2; ++pass) {
    offloaded.begin_pass(a);
    for (const std::size_t part : {a, b, c}) bring_in(part);
  }
  CHECK(brought == "acbcacbc");
  offloaded.begin_pass(a);
  CHECK(refusal([&] { bring_in(c); }).code == static_cast<int>(Code::internal));
}

TEST_CASE("offloaded: what is wrong with a part on the disk is said when its turn comes") {
  const Folder folder;
  write_safetensors(folder / "weights", {{"a", {{1}, {1}}}, {"b", {{1}, {std::nanf("")}}}});
  const std::unique_ptr<Checkpoint> weights = open_checkpoint(folder / "weights");
  OffloadedWeights offloaded(*weights);
  const std::size_t a = offloaded.add({"a"}, true), b = offloaded.add({"b"}, true);
  auto ignore = [](const std::string&, const HostTensor&) {};
  offloaded.begin_pass(a);
  offloaded.bring_in(a, ignore);
  check_error([&] { offloaded.bring_in(b, ignore); }, Code::not_finite, "weights", "b: expected");
}
