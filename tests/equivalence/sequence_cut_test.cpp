/// How chapter 08 divides sequences over devices: every token has one device, and zigzag balances attention.

#include "08_decoder/sequence_cut.hpp"

#include "engine/program/commands/costs_of_step.hpp"
#include "engine/workloads/decoder/decoder.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

namespace shard::testing {

RUNS_ON(.in_one_process = {1, 2, 3, 8});

using decoders::CutSequences;
using decoders::SequenceCut;

TEST_CASE("each place of each sequence belongs to one device, and rows follow one another in device order") {
  for (CutSequences rule : {SequenceCut::contiguous, SequenceCut::zigzag})
    for (int devices : {1, 2, 3, 5, 8})
      for (Index length : {1, 2, 3, 5, 8, 16, 17}) {
        CAPTURE(devices, length);
        const SequenceCut cut = rule(2, length, devices);
        std::vector<int> taken(static_cast<std::size_t>(cut.all_rows()));
        Index row = 0;
        for (int device = 0; device < devices; ++device) {
          const std::vector<Index> rows = cut.rows_in_sequences(device);
          CHECK(cut.rows(device) == Range{row, row + static_cast<Index>(rows.size())});
          CHECK(std::ranges::is_sorted(rows));
          for (Index r : rows) ++taken.at(static_cast<std::size_t>(r));
          row += static_cast<Index>(rows.size());
        }
        CHECK(taken == std::vector<int>(taken.size(), 1));
      }
}

namespace {

/// The number of scores that each device computes in a step, less those of device 0. A score costs seven products
/// of the head's width, forward and backward. Empty on other devices than 0.
std::vector<Index> more_scores(const std::string& balance, Index length) {
  DecoderModel m;
  m.num_blocks = 1, m.model_dim = 4, m.heads = 1, m.key_heads = 1, m.head_dim = 2, m.hidden_dim = 3;
  m.vocabulary = 5;
  const Decoder network(m, length);
  Arguments arguments;
  arguments.batch = 1;
  arguments.options.set("--balance", balance);
  std::vector<Index> more;
  const auto all = costs_of_step({group(), find_chapter("08").variant("context"), network, arguments});
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
