/// A decoder that runs by a map: wherever its blocks are, losses and tokens are those of one device, bit for
/// bit.

#include "10_checkpoints/dispatched.hpp"

#include "08_decoder/single.hpp"
#include "engine/host_checkpoint.hpp"
#include "engine/layers/greedy.hpp"
#include "engine/workloads/decoder.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

using namespace shard;
using namespace shard::checkpoints;
using namespace shard::testing;

namespace {

const RunsOn runs_on({1, 3});

DecoderModel small(bool is_tied, Index experts) {
  DecoderModel m;
  m.vocabulary = 13, m.model_dim = 8, m.heads = 4, m.key_heads = 2, m.head_dim = 4, m.hidden_dim = 5;
  m.num_blocks = 4, m.is_tied = is_tied, m.experts = experts, m.top_k = experts > 0 ? 2 : 0;
  m.how = Arithmetic::real(m.head_dim);
  return m;
}

std::unique_ptr<Checkpoint> weights_of(const DecoderModel& m) {
  std::map<std::string, HostTensor> weights;
  int seed = 0;
  for (const Parameter& p : m.parameters()) weights[p.name] = reals(p.shape, 0, ++seed);
  return host_checkpoint(std::move(weights), "test");
}

/// Two sequences of five tokens with labels.
Tensor input() {
  const std::vector<float> rows = {1, 5, 12, 0, 3, 5, 12, 0, 3, -100, 7, 7, 2, 9, 4, 7, 2, 9, 4, 11};
  return Tensor::from_host({2, 10}, rows);
}

struct Said {
  std::vector<float> losses;
  std::vector<Index> tokens;
  std::size_t choices = 0;  ///< of experts that this device noted
  bool operator==(const Said&) const = default;
};

Said said_by(LanguageModel& engine, const Checkpoint& weights) {
  engine.load_checkpoint(weights);
  InferenceMode no_tape;
  Said said;
  for (int pass = 0; pass < 2; ++pass) said.losses = engine.whole(engine.forward(input())).to_host();
  said.choices = engine.chosen_experts().size();
  said.tokens = generate_greedily(engine, {.tokens = {1, 5, 12}}, 6);
  return said;
}

/// Places on as many devices as run: "2" is the last one, at most.
std::string on(int device) {
  return std::to_string(std::min(device, devices() - 1));
}

std::vector<DecoderPlaces> some_places() {
  const std::string zero = on(0), one = on(1), two = on(2);
  return {{zero, {zero, one, one, two}, two, two},
          {two, {one, zero, one, two}, zero, two},
          {zero, {zero, "cpu", "disk", "disk"}, one, zero},
          {one, {"disk", two, "cpu", "disk"}, "disk", one},
          {"disk", {"disk", "disk", "disk", "disk"}, "cpu", "disk"},
          {"cpu", {"cpu", "cpu", "cpu", "cpu"}, "cpu", "cpu"}};
}

}  // namespace

TEST_CASE("dispatched: losses and tokens are those of one device, wherever blocks are") {
  for (const bool is_tied : {false, true})
    for (const Index experts : {0, 3}) {
      const DecoderModel m = small(is_tied, experts);
      const std::unique_ptr<Checkpoint> weights = weights_of(m);
      decoders::SingleDecoder single(group(), m);
      const Said expected = said_by(single, *weights);
      for (DecoderPlaces places : some_places()) {
        if (is_tied) places.head = places.embedding;
        CAPTURE(is_tied, experts, places.embedding, places.blocks, places.head);
        DispatchedDecoder engine(group(), m, places);
        const Said given = said_by(engine, *weights);
        CHECK(given.losses == expected.losses);
        CHECK(given.tokens == expected.tokens);
      }
    }
}

TEST_CASE("dispatched: a device holds the blocks of its place, and a block from elsewhere while it runs") {
  const DecoderModel m = small(false, 0);
  const std::unique_ptr<Checkpoint> weights = weights_of(m);
  Index block = 0, table = 4 * m.vocabulary * m.model_dim;
  for (const Parameter& p : m.parameters())
    if (p.name.starts_with("block_0/")) block += 4 * num_elements(p.shape);
  auto check_held = [&](const DecoderPlaces& places, Index resident, Index most) {
    const Index before = ledger().live(Purpose::parameters);
    DispatchedDecoder engine(group(), m, places);
    engine.load_checkpoint(*weights);
    CHECK(ledger().live(Purpose::parameters) - before == resident);
    ledger().reset();
    InferenceMode no_tape;
    engine.forward(input());
    CHECK(ledger().peak(Purpose::parameters) - before == most);
    CHECK(ledger().live(Purpose::parameters) - before == resident);
  };
  const bool is_main = me() == 0, is_last = me() == devices() - 1;
  const Index norm = 4 * m.model_dim, last = is_last ? table + norm + block : 0;
  const Index mine = (is_main ? table : 0) + last;
  check_held({"0", {"disk", "cpu", "disk", on(2)}, on(2), on(2)}, mine, mine + (is_main ? block : 0));
  const Index brought = is_main ? std::max(block, table) : 0;
  check_held({"disk", {"disk", "disk", "cpu", "disk"}, "cpu", "disk"}, 0, brought);
}

TEST_CASE("dispatched: an activation is sent where the next block is elsewhere, and nowhere else") {
  const DecoderModel m = small(true, 0);
  DispatchedDecoder engine(group(), m, {on(0), {on(0), on(1), on(1), on(0)}, on(0), on(0)});
  engine.load_checkpoint(*weights_of(m));
  ledger().reset();
  engine.forward(input());
  const Index sends = me() < 2 && devices() > 1 ? 1 : 0;
  CHECK(ledger().traffic(Collective::send) == Traffic{sends, sends * 4 * 2 * 5 * m.model_dim});
}

TEST_CASE("dispatched: it does not train") {
  const DecoderModel m = small(true, 0);
  DispatchedDecoder engine(group(), m, {"0", {"0", "0", "0", "0"}, "0", "0"});
  CHECK(engine.trainable().empty());
  CHECK(refusal([&] { engine.backward(Tensor()); }).code == static_cast<int>(Code::argument));
}
