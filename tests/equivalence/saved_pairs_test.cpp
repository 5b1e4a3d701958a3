/// Random pairs of strategies: one trains and saves, and the other continues, each on its own number of devices.

#include <fmt/format.h>

#include <set>

#include "engine/workloads/random.hpp"
#include "tests/equivalence/saved.hpp"
#include "tests/equivalence/tested_options.hpp"
#include "tests/harness/catch.hpp"

namespace shard::testing {

RUNS_ON(.in_one_process = {4});

namespace {

constexpr int pairs = 200, steps_of_each = 2;

/// A variant of any chapter on `devices` devices, with options that it declares for tests.
struct Strategy {
  const Chapter* chapter;
  const Variant* variant;
  int devices;
  Options options;

  std::string describe() const {
    return fmt::format("{} {} on {}{}", chapter->number, variant->name, devices,
                       options.names().empty() ? "" : " " + options.describe());
  }
  bool accepts(const Workload& network) const { return variant->accepts(devices, network, options); }
};

/// Random numbers, the same on all devices.
class Choice {
 public:
  explicit Choice(std::uint64_t seed) : random_(seed, "pairs") {}
  template <class T>
  const T& of(const std::vector<T>& all) {
    return all.at(static_cast<std::size_t>(random_.bits(number_++) % all.size()));
  }

 private:
  CounterRandom random_;
  std::uint64_t number_ = 0;
};

std::vector<std::string> kinds() {
  std::set<std::string> names;
  for (const Chapter& chapter : chapters())
    for (const Variant& variant : chapter.variants) names.insert(variant.workload->name());
  return {names.begin(), names.end()};
}

Strategy random_strategy(Choice& choice, const std::string& kind) {
  for (;;) {
    const Chapter& chapter = choice.of(chapters());
    if (chapter.variants.empty()) continue;
    const Variant& variant = choice.of(chapter.variants);
    if (variant.workload->name() != kind) continue;
    const int devices = choice.of(std::vector<int>{1, 2, 3, 4});
    const std::vector<Options> options = tested_options(variant, devices);
    if (!options.empty()) return {&chapter, &variant, devices, choice.of(options)};
  }
}

/// An exact problem, and its weights and momenta after each step of the integer optimizer with momentum.
struct Steps {
  ExactProblem problem;
  std::vector<std::map<std::string, HostTensor>> weights;
  std::vector<std::map<std::string, std::vector<float>>> momenta;
};

const Steps& steps_of(const TestCase& c) {
  static std::map<std::string, Steps> all;
  auto [found, is_new] = all.try_emplace(fmt::format("{} {}", c.workload->describe(), c.batch));
  if (!is_new) return found->second;
  ExactProblem problem = c.workload->exact_problem(c.batch, 4);
  Steps& steps = found->second;
  steps.problem = problem;
  std::map<std::string, std::vector<float>> momenta;
  for (int step = 0; step <= 2 * steps_of_each; ++step) {
    steps.weights.push_back(problem.weights);
    steps.momenta.push_back(momenta);
    integer_step(problem, solve(problem, group()), &momenta);
  }
  return steps;
}

/// A network that both accept, and whose exact problem stays exact in all steps.
std::optional<TestCase> common_network(Choice& choice, const Strategy& a, const Strategy& b) {
  std::vector<TestCase> fitting;
  for (const TestCase& c : cases_of(*a.variant->workload, [&](const Workload& w) { return a.accepts(w); }))
    if (b.accepts(*c.workload) && stays_exact(*c.workload) && is_exact(c)) fitting.push_back(c);
  return fitting.empty() ? std::nullopt : std::optional(choice.of(fitting));
}

void train(ShardedEngine& engine, Optimizer& optimizer, const ExactProblem& problem) {
  for (int step = 0; step < steps_of_each; ++step)
    optimizer.step(engine, run_step(engine, problem.input, problem.output_grad).gradients);
}

/// The first devices of a group, as a group of their own; nothing on the others.
std::unique_ptr<Communicator> first_of(Communicator& all, int devices) {
  return all.split(all.device_id() < devices ? std::optional<Index>(0) : std::nullopt, all.device_id());
}

/// Trains on the strategy's devices, from a checkpoint or from the beginning, and saves.
void train_and_save(const Strategy& strategy, const TestCase& c, const std::string& from,
                    const std::string& to, const std::string& format) {
  const std::unique_ptr<Communicator> part = first_of(group().inner(), strategy.devices);
  if (!part) return;
  const ExactProblem& problem = steps_of(c).problem;
  const auto engine = strategy.variant->make(*part, *problem.workload, strategy.options);
  engine->want_input_grad(false);
  IntegerMomentum optimizer = integer_optimizer<IntegerMomentum>(problem);
  if (from.empty())
    engine->load_checkpoint(*host_checkpoint(problem.weights, "test"));
  else
    load_training(*engine, optimizer, from, read_manifest(from));
  train(*engine, optimizer, problem);
  save_for_test(*engine, optimizer, *c.workload, to, format, optimizer.steps());
}

/// Tests a random pair. Returns its description, or nothing if the two have no network in common.
std::optional<std::string> try_pair(Choice& choice) {
  const std::string kind = choice.of(kinds());
  const Strategy a = random_strategy(choice, kind), b = random_strategy(choice, kind);
  const std::optional<TestCase> c = common_network(choice, a, b);
  if (!c) return std::nullopt;
  const std::string &first = choice.of(formats), &second = choice.of(formats);
  const std::string what = fmt::format("{}, batch {}: {} ({}), {} ({})", c->workload->describe(), c->batch,
                                       a.describe(), first, b.describe(), second);
  CAPTURE(what);
  const Steps& steps = steps_of(*c);
  const CommonFolder folder(group());
  train_and_save(a, *c, "", folder / "one", first);
  group().barrier();
  CHECK(difference_of_saved(folder / "one", first, steps.weights[2], steps.momenta[2]) == "");
  train_and_save(b, *c, folder / "one", folder / "two", second);
  group().barrier();
  CHECK(difference_of_saved(folder / "two", second, steps.weights[4], steps.momenta[4]) == "");
  group().barrier();  // all have read the folder
  return what;
}

}  // namespace

TEST_CASE("what a device holds may begin anywhere in a tensor of its own, and be rows or columns") {
  // Each device holds two columns of (5, 8), and a row of (4, 3), behind a first row that belongs to neither.
  const Index place = group().device_id();
  std::vector<float> columns = {-1, -1}, row = {-1, -1, -1}, all_columns, all_rows;
  for (Index r = 0; r < 5; ++r)
    for (Index c = 0; c < 8; ++c) all_columns.push_back(static_cast<float>(10 * r + c));
  for (Index r = 0; r < 5; ++r)
    for (Index c : {2 * place, 2 * place + 1}) columns.push_back(static_cast<float>(10 * r + c));
  for (Index i = 0; i < 12; ++i) all_rows.push_back(static_cast<float>(i));
  for (Index i = 3 * place; i < 3 * place + 3; ++i) row.push_back(static_cast<float>(i));
  Tensor a = Tensor::from_host({6, 2}, columns), b = Tensor::from_host({2, 3}, row);
  for (const std::string& format : formats) {
    CAPTURE(format);
    const CommonFolder folder(group());
    const std::vector<Trainable> held = {{"a", Rows(a, 1, 6), {5, 8}, {{0, 5}, {2 * place, 2 * place + 2}}},
                                         {"b", Rows(b, 1, 2), {4, 3}, {{place, place + 1}, {0, 3}}}};
    save_checkpoint(group(), folder / "saved", {format, 64}, {{"model", held, {"a", "b"}}}, {});
    const auto saved = open_saved(folder / "saved", read_manifest(folder / "saved"), "model");
    CHECK(saved->read("a", all_of({5, 8})) == all_columns);
    CHECK(saved->read("b", all_of({4, 3})) == all_rows);
    CHECK(saved->read("a", {{1, 3}, {3, 6}}) == std::vector<float>{13, 14, 15, 23, 24, 25});
    CHECK(saved->read("b", {{1, 3}, {1, 2}}) == std::vector<float>{4, 7});
    group().barrier();
  }
}

TEST_CASE(
    "saved by one strategy, continued by another: 200 random pairs, bit for bit the unsharded network") {
  int tried = 0;
  for (std::uint64_t seed = 1; tried < pairs; ++seed) {
    Choice choice(seed);
    if (const std::optional<std::string> what = try_pair(choice)) {
      ++tried;
      if (me() == 0) fmt::print("{}\n", *what);
    }
    if (is_to_end()) return;
  }
}

}  // namespace shard::testing
