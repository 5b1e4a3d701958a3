/// The registry: a strategy's name is of one chapter. (commands/ has the names and options of all chapters.)

#include "engine/program/registry.hpp"

#include "engine/workloads/mlp/mlp.hpp"
#include "tests/harness/catch.hpp"

namespace shard::testing {

namespace {

/// The message of a call's usage error; empty without an error.
std::string complaint(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code() == Code::usage ? error.what() : "another code";
  }
  return "";
}

Variant variant(const std::string& name) {
  Variant v;
  v.name = name;
  return v;
}

}  // namespace

// What follows is as if it stood in those files.
#line 1 "/somewhere/chapters/91_first_one/chapter.cpp"
const RegisteredChapter first({.workload = &mlp(),
                               .variants = {variant("plain")},
                               .strategies = {{"fp", "plain"}}});
#line 1 "../chapters/mine/chapter.cpp"
const RegisteredChapter mine({.workload = &mlp(), .variants = {variant("plain"), variant("other")}});
#line 38 "tests/equivalence/registry_test.cpp"

TEST_CASE("a strategy's name is of one chapter, or refused") {
  CHECK(find_strategy("fp").variant->name == "plain");
  CHECK(find_strategy("fp").chapter == &chapters()[0]);
  CHECK(find_strategy("other").chapter == &chapters()[1]);
  CHECK_THAT(complaint([] { find_strategy("plain"); }), contains("a variant of 91_first_one and of mine"));
  CHECK(complaint([] { find_strategy("zz"); }) == "--strategy: expected fp, other or plain, given zz");
}

TEST_CASE("what two chapters call a strategy is refused, and both are named") {
#line 1 "chapters/92_copy/chapter.cpp"
  const RegisteredChapter copy(
      {.workload = &mlp(), .variants = {variant("plain")}, .strategies = {{"fp", "plain"}}});
#line 52 "tests/equivalence/registry_test.cpp"
  CHECK(complaint(require_distinct_strategies) ==
        "strategies: expected fp in one chapter, given it in 91_first_one and in 92_copy: take it out of one "
        "chapter.cpp");
}

}  // namespace shard::testing
