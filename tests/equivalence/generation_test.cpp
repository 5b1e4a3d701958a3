/// Generation by each language model of a chapter, with the keys and values that it keeps: the tokens are those
/// of whole passes of the variant that it is held against, where nothing is kept. A part of the suite of
/// equivalence_test.cpp.

#include <algorithm>

#include "engine/layers/greedy.hpp"
#include "engine/workloads/random.hpp"
#include "tests/equivalence/equivalence.hpp"
#include "tests/harness/catch.hpp"

namespace shard::testing {

namespace {

constexpr Index prompt_length = 4, count = 6;

/// A sequence without labels.
HostTensor sequence_of(const std::vector<Index>& tokens) {
  std::vector<float> numbers(tokens.begin(), tokens.end());
  numbers.resize(2 * tokens.size(), static_cast<float>(Tokens::no_label));
  return {{1, static_cast<Index>(numbers.size())}, numbers};
}

/// The tokens behind a prompt, by an engine that has all logits: each the first of the largest, after a pass
/// over all tokens before it.
std::vector<Index> by_whole_passes(LanguageModel& engine, std::vector<Index> tokens) {
  InferenceMode no_tape;
  std::vector<float> last;
  engine.see_logits([&](const Tensor& logits, const Tokens&, Index) {
    last = slice(logits, 0, logits.extent(0) - 1, logits.extent(0)).to_host();
  });
  for (Index i = 0; i < count; ++i) {
    const HostTensor input = sequence_of(tokens);
    engine.forward(Tensor::from_host(input.shape, input.values));
    tokens.push_back(std::ranges::max_element(last) - last.begin());
  }
  engine.see_logits({});
  return {tokens.end() - count, tokens.end()};
}

/// The variant that another one is held against.
const Variant& reference_of(const Variant& variant) {
  const auto& all = only_chapter().variants;
  const auto found = std::ranges::find(all, variant.reference, &Variant::name);
  REQUIRE(found != all.end());
  return *found;
}

/// The losses of the tokens of an input.
std::vector<float> losses_of(ShardedEngine& engine, const HostTensor& input) {
  InferenceMode no_tape;
  return engine.whole(engine.forward(input_of(engine, input))).to_host();
}

std::vector<Index> prompt_of(const Case& c, std::uint64_t seed) {
  const HostTensor input = c.network->random_input(1, seed);
  const std::size_t known = std::min<std::size_t>(prompt_length, input.values.size() / 2);
  return {input.values.begin(), input.values.begin() + static_cast<std::ptrdiff_t>(known)};
}

}  // namespace

TEST_CASE("generated tokens are those of whole passes, in which nothing is kept, prompt after prompt") {
  for (const Variant& variant : only_chapter().variants) {
    if (!variant.workload->has_tokens()) continue;
    for (const Case& c : cases(variant)) {
      CAPTURE(c.describe());
      const ExactProblem problem = c.exact_problem(3);
      const auto engine = c.engine(problem, false);
      auto& model = dynamic_cast<LanguageModel&>(*engine);
      const Case whole{reference_of(variant), {}, c.network, c.batch};
      const auto reference = whole.engine(problem, false);
      const std::vector<float> before = losses_of(*engine, problem.input);
      for (std::uint64_t seed : {5, 6}) {
        const std::vector<Index> prompt = prompt_of(c, seed);
        CHECK(generate_greedily(model, prompt, count) ==
              by_whole_passes(dynamic_cast<LanguageModel&>(*reference), prompt));
      }
      CHECK(losses_of(*engine, problem.input) == before);  // nothing is kept for other inputs
      if (is_to_end()) return;
    }
  }
}

}  // namespace shard::testing
