/// How chapter 08 divides sequences over devices: zigzag balances attention. (The suite sees whether each token has one
/// device.)

#include "engine/program/commands/costs_of_step.hpp"
#include "engine/workloads/decoder/decoder.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

namespace shard::testing {

RUNS_ON(.in_one_process = {1, 2, 3, 8});

namespace {

/// The number of scores that each device computes in a step, less those of device 0. A score costs seven products
/// of the head's width, forward and backward. Empty on other devices than 0.
std::vector<Index> more_scores(const std::string& balance, Index length) {
  DecoderModel m;
  m.num_blocks = 1, m.model_dim = 4, m.heads = 1, m.key_heads = 1, m.head_dim = 2, m.hidden_dim = 3;
  m.vocabulary = 5;
  const Decoder network(m, length);
  Options options;
  options.set("--balance", balance);
  std::vector<Index> more;
  const auto all =
      costs_of_step({group(), find_chapter("08").variant("context"), network, options, {.batch = 1}});
  for (const CostsOfStep& costs : all)
    more.push_back((costs.operations - all[0].operations) / (7 * product_flops(1, m.head_dim, 1)));
  return more;
}

}  // namespace

TEST_CASE("zigzag balances attention: devices compute as many scores, the last one a block more") {
  const Index part = 4;  // tokens of a part of a zigzag: a block has part² scores
  const Index length = 2 * group().num_devices() * part;
  const std::vector<Index> contiguous = more_scores("contiguous", length);
  const std::vector<Index> zigzag = more_scores("zigzag", length);
  for (std::size_t device = 1; device < zigzag.size(); ++device) {
    const bool is_last = device + 1 == zigzag.size();  // its two parts touch, and make one run
    CHECK(contiguous[device] == 4 * static_cast<Index>(device) * part * part);
    CHECK(zigzag[device] == (is_last ? 1 : 0) * part * part);
  }
}

}  // namespace shard::testing
