/// How chapter 08 divides sequences over devices: every token has one device, and zigzag balances attention.

#include "08_decoder/sequence_cut.hpp"

#include "08_decoder/costs.hpp"
#include "engine/workloads/decoder.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

namespace shard::testing {

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

/// What a device computes in a step more than another one, as scores of one head: a score costs seven products of
/// the head's width, forward and backward.
Index more_scores(CutSequences rule, Index length, int devices, int device, int than) {
  DecoderModel m;
  m.num_blocks = 1, m.model_dim = 4, m.heads = 1, m.key_heads = 1, m.head_dim = 2, m.hidden_dim = 3;
  m.vocabulary = 5;
  const Decoder network(m, length);
  auto flops = [&](int d) {
    return decoders::context_costs(Setting{&network, 1, false, devices, d}, rule).flops;
  };
  return (flops(device) - flops(than)) / (7 * product_flops(1, m.head_dim, 1));
}

}  // namespace

TEST_CASE("zigzag balances attention: devices compute as many scores, the last one a block more") {
  for (int devices : {2, 3, 8}) {
    CAPTURE(devices);
    const Index part = 4, length = 2 * devices * part;  // parts of a zigzag; a block has part² scores
    for (int device = 1; device < devices; ++device) {
      const bool is_last = device == devices - 1;  // its two parts touch, and make one run
      CHECK(more_scores(SequenceCut::contiguous, length, devices, device, 0) == 4 * device * part * part);
      CHECK(more_scores(SequenceCut::zigzag, length, devices, device, 0) == (is_last ? 1 : 0) * part * part);
    }
  }
}

}  // namespace shard::testing
