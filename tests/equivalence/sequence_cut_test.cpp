/// How chapter 08 divides sequences over devices: every token has one device, and zigzag balances attention.

#include "08_decoder/sequence_cut.hpp"

#include "08_decoder/context_costs.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

namespace shard::testing {

const testing::RunsOn runs_on({1});

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

TEST_CASE("zigzag balances attention: devices compute as many scores, the last one a block more") {
  for (int devices : {2, 3, 8}) {
    CAPTURE(devices);
    const Index n = devices, part = 4;  // parts of a zigzag; a block has part² scores
    const SequenceCut contiguous = SequenceCut::contiguous(1, 2 * n * part, devices);
    const SequenceCut zigzag = SequenceCut::zigzag(1, 2 * n * part, devices);
    for (int device = 0; device < devices; ++device) {
      const bool is_last = device == devices - 1;  // its two parts touch, and make one run
      CHECK(ring_scores(contiguous, device, std::nullopt) == 4 * (device + 1) * part * part);
      CHECK(ring_scores(zigzag, device, std::nullopt) == (2 * n + 1 + (is_last ? 1 : 0)) * part * part);
    }
  }
}

}  // namespace shard::testing
