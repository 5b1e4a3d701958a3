/// Networks whose modules a map dispatches to places: losses and tokens equal those of one device, bit for bit.

#include "08_decoder/single.hpp"
#include "08_decoder/t5.hpp"
#include "10_checkpoints/dispatched_decoder.hpp"
#include "10_checkpoints/dispatched_t5.hpp"
#include "engine/layers/tokens/language_model.hpp"
#include "engine/weights/checkpoint.hpp"
#include "engine/workloads/decoder/decoder.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

using namespace shard;
using namespace shard::checkpoints;
using namespace shard::testing;

namespace {

RUNS_ON(.in_one_process = {1, 3});

DecoderModel small(bool is_tied, Index experts) {
  DecoderModel m;
  m.vocabulary = 13, m.model_dim = 8, m.heads = 4, m.key_heads = 2, m.head_dim = 4, m.hidden_dim = 5;
  m.num_blocks = 4, m.is_tied = is_tied, m.experts = experts, m.top_k = experts > 0 ? 2 : 0;
  m.how = Arithmetic::real(m.head_dim);
  return m;
}

T5Model small_t5(bool is_tied, Hidden hidden) {
  T5Model m;
  m.vocabulary = 13, m.model_dim = 8, m.heads = 2, m.head_dim = 3, m.hidden_dim = 5, m.buckets = 4;
  m.encoder_blocks = 2, m.decoder_blocks = 2, m.is_tied = is_tied, m.hidden = hidden, m.start_token = 0;
  m.max_distance = 6;
  return m;
}

template <class Model>
std::unique_ptr<Checkpoint> weights_of(const Model& m) {
  std::map<std::string, HostTensor> weights;
  int seed = 0;
  for (const Parameter& p : m.parameters()) weights[p.name] = reals(p.shape, 0, ++seed);
  return host_checkpoint(std::move(weights), "test");
}

/// Two sequences of five tokens with labels; for a T5, two sources of three, with targets of two.
Tensor input_of(const T5Model&) {
  const std::vector<float> rows = {3, 1, 5, 12, 0, 3, 5, 12, 3, 7, 7, 2, 9, 4, 7, 2};
  return Tensor::from_host({2, 8}, rows);
}
Tensor input_of(const DecoderModel&) {
  const std::vector<float> rows = {1, 5, 12, 0, 3, 5, 12, 0, 3, -100, 7, 7, 2, 9, 4, 7, 2, 9, 4, 11};
  return Tensor::from_host({2, 10}, rows);
}

using Places = std::vector<std::string>;

struct Said {
  std::vector<float> losses;
  std::vector<Index> tokens;
};

template <class Model>
Said said_by(LanguageModel& engine, const Model& m, const Checkpoint& weights, const Prompt& prompt) {
  engine.load_checkpoint(weights);
  InferenceMode no_tape;
  Said said;
  for (int pass = 0; pass < 2; ++pass) said.losses = engine.whole(engine.forward(input_of(m))).to_host();
  said.tokens = generate_greedily(engine, prompt, 6);
  return said;
}

/// The place of a device, or of the last one if there are fewer.
std::string on(int device) {
  return std::to_string(std::min(device, devices() - 1));
}

std::vector<Places> some_places() {
  const std::string zero = on(0), one = on(1), two = on(2);
  return {{zero, zero, one, one, two, two, two},
          {two, one, zero, one, two, zero, two},
          {zero, zero, "cpu", "disk", "disk", one, zero},
          {one, "disk", two, "cpu", "disk", "disk", one},
          {"disk", "disk", "disk", "disk", "disk", "cpu", "disk"},
          {"cpu", "cpu", "cpu", "cpu", "cpu", "cpu", "cpu"}};
}

}  // namespace

TEST_CASE("dispatched: losses and tokens are those of one device, wherever blocks are") {
  for (const bool is_tied : {false, true})
    for (const Index experts : {0, 3}) {
      const DecoderModel m = small(is_tied, experts);
      const std::unique_ptr<Checkpoint> weights = weights_of(m);
      decoders::SingleDecoder single(group(), m);
      const Said expected = said_by(single, m, *weights, {.tokens = {1, 5, 12}});
      for (Places places : some_places()) {
        if (is_tied) places.back() = places.front();
        CAPTURE(is_tied, experts, places);
        DispatchedDecoder engine(group(), m, places);
        const Said given = said_by(engine, m, *weights, {.tokens = {1, 5, 12}});
        CHECK(given.losses == expected.losses);
        CHECK(given.tokens == expected.tokens);
      }
    }
}

TEST_CASE("dispatched: a T5 may be cut between any two residual blocks, also within a block") {
  const std::string zero = on(0), one = on(1), two = on(2), cpu = "cpu", disk = "disk";
  // Encoder: embedding, two blocks of two parts, norm. Decoder: embedding, two blocks of three, norm, head.
  const std::vector<Places> some = {
      {zero, zero, one, one, two, two, zero, zero, zero, one, two, two, one, two, zero},
      {two, one, two, one, zero, one, two, zero, two, one, two, one, zero, zero, two},
      {disk, disk, disk, disk, disk, disk, disk, disk, disk, disk, disk, disk, disk, disk, disk},
      {one, cpu, disk, one, disk, two, one, disk, cpu, disk, zero, two, disk, cpu, one},
      {cpu, cpu, one, cpu, disk, disk, cpu, disk, disk, zero, cpu, disk, disk, disk, cpu}};
  for (const bool is_tied : {false, true})
    for (const Hidden hidden : {Hidden::relu, Hidden::geglu}) {
      const T5Model m = small_t5(is_tied, hidden);
      const std::unique_ptr<Checkpoint> weights = weights_of(m);
      const Prompt prompt{.tokens = {0}, .source = std::vector<Index>{1, 5, 12, 4}};
      decoders::T5Single single(group(), m);
      const Said expected = said_by(single, m, *weights, prompt);
      for (const Places& places : some) {
        CAPTURE(is_tied, places);
        REQUIRE(places.size() == DispatchedT5::modules(m).size());
        DispatchedT5 engine(group(), m, places);
        const Said given = said_by(engine, m, *weights, prompt);
        CHECK(given.losses == expected.losses);
        CHECK(given.tokens == expected.tokens);
      }
    }
}

TEST_CASE("dispatched: the encoder's result and the bias of positions go to each device once") {
  T5Model m = small_t5(true, Hidden::relu);
  m.decoder_blocks = 3;
  // The decoder's modules from its first cross attention on are on device 1. There, three cross attentions read
  // the encoder's output, and two self-attentions the bias.
  Places places(DispatchedT5::modules(m).size(), on(1));
  std::fill_n(places.begin(), 8, on(0));
  DispatchedT5 engine(group(), m, places);
  engine.load_checkpoint(*weights_of(m));
  ledger().reset();
  engine.forward(input_of(m));
  const Index x = 2 * 2 * m.model_dim, bias = 2 * 2 * m.heads, encoded = 2 * 3 * m.model_dim;
  const Traffic expected = me() == 0 && devices() > 1 ? Traffic{3, 4 * (x + bias + encoded)} : Traffic{};
  CHECK(ledger().traffic(Collective::send) == expected);
}

TEST_CASE("dispatched: a device holds the blocks of its place, and a block from elsewhere while it runs") {
  const DecoderModel m = small(false, 0);
  const std::unique_ptr<Checkpoint> weights = weights_of(m);
  Index block = 0, table = 4 * m.vocabulary * m.model_dim;
  for (const Parameter& p : m.parameters())
    if (p.name.starts_with("block_0/")) block += 4 * num_elements(p.shape);
  auto check_held = [&](const Places& places, Index resident, Index most) {
    const Index before = ledger().live(Purpose::parameters);
    DispatchedDecoder engine(group(), m, places);
    engine.load_checkpoint(*weights);
    CHECK(ledger().live(Purpose::parameters) - before == resident);
    ledger().reset();
    InferenceMode no_tape;
    engine.forward(input_of(m));
    CHECK(ledger().peak(Purpose::parameters) - before == most);
    CHECK(ledger().live(Purpose::parameters) - before == resident);
  };
  const bool is_main = me() == 0, is_last = me() == devices() - 1;
  const Index norm = 4 * m.model_dim, last = is_last ? table + norm + block : 0;
  const Index mine = (is_main ? table : 0) + last;
  check_held({"0", "disk", "cpu", "disk", on(2), on(2), on(2)}, mine, mine + (is_main ? block : 0));
  const Index brought = is_main ? std::max(block, table) : 0;
  check_held({"disk", "disk", "disk", "cpu", "disk", "cpu", "disk"}, 0, brought);
}

TEST_CASE("dispatched: an activation is sent where the next block is elsewhere, and nowhere else") {
  const DecoderModel m = small(true, 0);
  DispatchedDecoder engine(group(), m, {on(0), on(0), on(1), on(1), on(0), on(0), on(0)});
  engine.load_checkpoint(*weights_of(m));
  ledger().reset();
  engine.forward(input_of(m));
  const Index sends = me() < 2 && devices() > 1 ? 1 : 0;
  CHECK(ledger().traffic(Collective::send) == Traffic{sends, sends * 4 * 2 * 5 * m.model_dim});
}

TEST_CASE("dispatched: it does not train") {
  const DecoderModel m = small(true, 0);
  DispatchedDecoder engine(group(), m, {"0", "0", "0", "0", "0", "0", "0"});
  CHECK(engine.trainable().empty());
  CHECK(refusal([&] { engine.backward(Tensor()); }).code == static_cast<int>(Code::argument));
}
