/// Chapters register themselves: numbers and titles come from folders, names must be of one chapter, and what
/// a variant does not take is refused.

#include "engine/program/registry.hpp"

#include "engine/workloads/mlp/mlp.hpp"
#include "tests/harness/catch.hpp"

namespace shard::testing {

namespace {

/// The message of the usage error that a call ends in; else nothing.
std::string complaint(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code() == Code::usage ? error.what() : "another code";
  }
  return "";
}

const Option<Index> pieces("--pieces", 4, "Pieces");

Variant variant(const std::string& name) {
  Variant v;
  v.name = name;
  v.options = {pieces};
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
#line 61 "tests/equivalence/registry_test.cpp"

TEST_CASE("a chapter's number and title are its folder's") {
  REQUIRE(chapters().size() == 2);
  CHECK(chapters()[0].folder == "91_first_one");
  CHECK(chapters()[0].number == "91");
  CHECK(chapters()[0].title == "first one");
  CHECK(chapters()[1].folder == "mine");
  CHECK(chapters()[1].number.empty());
  CHECK(chapters()[1].title == "mine");
  for (const char* name : {"91", "first_one", "91_first_one"}) CHECK(&find_chapter(name) == &chapters()[0]);
  CHECK(&find_chapter("mine") == &chapters()[1]);
  CHECK(complaint([] { find_chapter("92"); }) == "expected a chapter, 91_first_one or mine, given 92");
  CHECK(complaint([] { find_chapter(""); }) == "expected a chapter, 91_first_one or mine, given ''");
}

TEST_CASE("a strategy's name is of one chapter, or refused") {
  CHECK(find_strategy("fp").variant->name == "plain");
  CHECK(find_strategy("fp").chapter == &chapters()[0]);
  CHECK(find_strategy("other").chapter == &chapters()[1]);
  CHECK_THAT(complaint([] { find_strategy("plain"); }), contains("a variant of 91_first_one and of mine"));
  CHECK(complaint([] { find_strategy("zz"); }) == "--strategy: expected fp, other or plain, given zz");
}

TEST_CASE("options are typed, and have their initial value until one is given") {
  CHECK(Options()[pieces] == 4);
  CHECK(Options().with(pieces, 7)[pieces] == 7);
  for (const char* good : {"1", "1073741824"}) CHECK(pieces.accepts(good));
  for (const char* bad : {"0", "-1", "010", "1.5", "1073741825", "", "many"})
    CHECK_FALSE(pieces.accepts(bad));
  const Variant& plain = chapters()[0].variant("plain");
  CHECK(plain.has_option("--pieces"));
  CHECK(plain.has_option("--layers"));  // its workload's
  CHECK_FALSE(plain.has_option("--top-k"));
}

TEST_CASE("what two chapters call a strategy is refused, and both are named") {
#line 1 "chapters/92_copy/chapter.cpp"
  const RegisteredChapter copy(
      {.workload = &mlp(), .variants = {variant("plain")}, .strategies = {{"fp", "plain"}}});
#line 101 "tests/equivalence/registry_test.cpp"
  CHECK(complaint(require_distinct_strategies) ==
        "strategies: expected fp in one chapter, given it in 91_first_one and in 92_copy: take it out of one "
        "chapter.cpp");
}

}  // namespace shard::testing
