/// Each language model generates tokens with a key-value cache. They must equal those of the unsharded network,
/// which has no cache, and makes a pass over all tokens for each new one. Part of the suite of equivalence_test.cpp.

#include <algorithm>

#include "engine/layers/tokens/language_model.hpp"
#include "engine/workloads/random.hpp"
#include "tests/equivalence/each_case.hpp"

RUNS_ON(.in_one_process = {1, 2, 3, 4}, .with_all = {5, 6, 8, 12, 16}, .processes = {3},
        .on_cuda = {1, 2, 3, 4, 8});

namespace shard::testing {

namespace {

constexpr std::ptrdiff_t prompt_length = 4;
constexpr Index count = 6;

/// The input for a sequence without labels, after its source if it has one.
HostTensor sequence_of(const Prompt& sequence) {
  std::vector<float> numbers;
  if (sequence.source) {
    numbers = {static_cast<float>(sequence.source->size())};
    numbers.insert(numbers.end(), sequence.source->begin(), sequence.source->end());
  }
  numbers.insert(numbers.end(), sequence.tokens.begin(), sequence.tokens.end());
  numbers.insert(numbers.end(), sequence.tokens.size(), float{Tokens::no_label});
  return {{1, static_cast<Index>(numbers.size())}, numbers};
}

/// The tokens after a prompt, by an engine that has all logits. Each takes a pass over all tokens before it.
std::vector<Index> by_whole_passes(LanguageModel& engine, Prompt sequence) {
  InferenceMode no_tape;
  std::vector<float> last;
  engine.see_logits([&](const Tensor& logits, const Tokens&, Index) {
    last = slice(logits, 0, logits.extent(0) - 1, logits.extent(0)).to_host();
  });
  for (Index i = 0; i < count; ++i) {
    const HostTensor input = sequence_of(sequence);
    engine.forward(Tensor::from_host(input.shape, input.values));
    sequence.tokens.push_back(std::ranges::max_element(last) - last.begin());
  }
  engine.see_logits({});
  return {sequence.tokens.end() - count, sequence.tokens.end()};
}

std::vector<float> losses_of(ShardedEngine& engine, const HostTensor& input) {
  InferenceMode no_tape;
  return engine.whole(engine.forward(input_of(engine, input))).to_host();
}

Prompt prompt_of(const Case& c, std::uint64_t seed) {
  const std::vector<float> input = c.network->random_input(1, seed).values;
  const bool has_source = c.network->kind().reads_sources();  // an input begins with its length
  const std::ptrdiff_t ids = has_source ? static_cast<std::ptrdiff_t>(input[0]) : std::ssize(input) / 2;
  const auto first = input.begin() + (has_source ? 1 : 0);
  return c.network->tokens().prompt_of({first, first + std::min(prompt_length, ids)});
}

/// Two prompts, and the tokens after each, by the unsharded network.
std::vector<std::pair<Prompt, std::vector<Index>>> continued(const Case& c) {
  const ExactProblem& problem = solved<3>(c).problem;
  const auto engine = problem.workload->unsharded(group());
  engine->load_checkpoint(*host_checkpoint(problem.weights, "test"));
  std::vector<std::pair<Prompt, std::vector<Index>>> all;
  for (std::uint64_t seed : {5, 6}) {
    const Prompt prompt = prompt_of(c, seed);
    all.emplace_back(prompt, by_whole_passes(dynamic_cast<LanguageModel&>(*engine), prompt));
  }
  return all;
}

}  // namespace

TEST_CASE("generated tokens are those of whole passes, in which nothing is kept, prompt after prompt",
          "[suite]") {
  for_each_case([](const Case& c) {
    if (!c.network->kind().has_tokens()) return;
    const ExactProblem& problem = solved<3>(c).problem;
    const auto engine = c.engine(problem, false);
    auto& model = dynamic_cast<LanguageModel&>(*engine);
    const std::vector<float> before = losses_of(*engine, problem.input);
    for (const auto& [prompt, expected] : once(c, continued)) {
      CHECK(generate_greedily(model, prompt, count) == expected);
      const auto end = std::ranges::find(expected, expected.back());
      CHECK(generate_greedily(model, prompt, count, {-1, expected.back()}) ==
            std::vector(expected.begin(), end + 1));
    }
    Prompt unknown = prompt_of(c, 5);
    unknown.tokens.back() = 1 << 20;  // no token of any network here
    if (devices() == 1) CHECK_THROWS_AS(generate_greedily(model, unknown, count), Error);
    for (int pass = 0; pass < 2; ++pass)  // the cache does not change other passes
      CHECK(losses_of(*engine, problem.input) == before);
  });
}

}  // namespace shard::testing
