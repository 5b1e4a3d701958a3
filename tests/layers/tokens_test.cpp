/// Tokens, their text, the mean of their losses, and the experts that they choose.

#include "engine/layers/tokens/tokens.hpp"

#include <cmath>

#include "engine/device/layer_operations.hpp"
#include "engine/engines/loss.hpp"
#include "engine/layers/mixture_of_experts.hpp"
#include "engine/workloads/data/characters.hpp"
#include "engine/workloads/decoder/decoder.hpp"
#include "engine/workloads/t5/t5.hpp"
#include "tests/harness/text_file.hpp"
#include "tests/operations/small_tensors.hpp"

namespace shard::testing {

namespace {

Indices listed(std::span<const Index> tokens) {
  return {tokens.begin(), tokens.end()};
}

}  // namespace

TEST_CASE("tokens: a row has the ids of a sequence, then its labels") {
  const Tokens t = Tokens::read(matrix(2, 6, {1, 0, 4, 0, 4, -100, 2, 3, 3, 3, -100, 1}), 5, 10);
  CHECK(t.sequences == 2);
  CHECK(t.length == 3);
  CHECK(t.rows() == 6);
  CHECK(listed(t.ids) == Indices{1, 0, 4, 2, 3, 3});
  CHECK(listed(t.labels) == Indices{0, 4, no_slot, 3, no_slot, 1});
  CHECK(t.positions == Indices{10, 11, 12});
  CHECK(t.first_sequence == 0);
}

TEST_CASE("tokens: places of each sequence, in any order") {
  Tokens t = Tokens::read(matrix(2, 6, {1, 0, 4, 0, 4, -100, 2, 3, 3, 3, -100, 1}), 5, 10);
  t.first_sequence = 7;
  const Tokens some = t.at({2, 0});
  CHECK(some.sequences == 2);
  CHECK(some.length == 2);
  CHECK(listed(some.ids) == Indices{4, 1, 3, 2});
  CHECK(listed(some.labels) == Indices{no_slot, 0, 1, 3});
  CHECK(some.positions == Indices{12, 10});
  CHECK(some.first_sequence == 7);
  CHECK(t.at({}).rows() == 0);
}

TEST_CASE("tokens: what is no token is refused, and said") {
  auto read = [](const Values& values) {
    return [values] { Tokens::read(matrix(1, static_cast<Index>(values.size()), values), 5); };
  };
  check_refused(read({5, 0}), "input_ids: expected tokens from 0 to 4, given 5");
  check_refused(read({-1, 0}), "input_ids");
  check_refused(read({-100, 0}), "given -100");
  check_refused(read({1.5F, 0}), "given 1.5");
  check_refused(read({NAN, 0}), "given nan");
  check_refused(read({0, 5}), "labels: expected tokens from 0 to 4, or -100 for none, given 5");
  check_refused(read({0, -1}), "labels");
  check_refused(read({0, 1, 2}), "ids and labels of sequences, (B, 2 S)");
  check_refused([] { Tokens::read(Tensor({4}), 5); }, "(B, 2 S)");
  check_refused([] { SourceAndTarget::read(Tensor({4}), 5); }, "(B, 1 + n + 2 S), given (4,)");
  const Tensor of_two_lengths = Tensor::from_host({2, 4}, std::vector<float>{1, 0, 0, 0, 3, 0, 0, 0});
  check_refused([&] { SourceAndTarget::read(of_two_lengths, 5); }, "sources of one length");
}

TEST_CASE("tokens in a slice of the vocabulary are counted from its first") {
  CHECK(listed(in_slice(Indices{0, 3, 5, 4, -100, 3}, {3, 5})) ==
        Indices{no_slot, 0, no_slot, 1, no_slot, 0});
  CHECK(listed(in_slice(Indices{0, 1}, {1, 1})) == Indices{no_slot, no_slot});
}

TEST_CASE("characters: a text's characters in ascending order are its vocabulary") {
  const TextFile file("beda \nbc");
  const Characters text(file.path());
  CHECK(text.vocabulary() == 7);
  CHECK(text.size() == 8);
  const std::string letters = "\n abcde";
  for (Index token = 0; token < 7; ++token) {
    CHECK(text.letter(token) == letters[static_cast<std::size_t>(token)]);
    CHECK(text.token_of(letters[static_cast<std::size_t>(token)]) == token);
  }
  CHECK(text.token_of('z') == no_slot);
  CHECK(text.token(0) == 3);
  CHECK(text.token(7) == 4);
  check_refused([&] { text.letter(7); }, "expected 0 to 6, given 7");
  check_refused([&] { text.letter(-1); }, "given -1");
  check_refused([&] { Characters("/nowhere/text"); }, "/nowhere/text: expected a text", Code::file);
  const TextFile same("aaa");
  check_refused([&] { Characters(same.path()); }, "two different characters or more, given 1", Code::file);
}

TEST_CASE("characters: another text has tokens if all of its characters are in the first") {
  const TextFile file("beda \nbc");
  const Characters text(file.path(), 7);
  CHECK(text.tokens_of("abba") == Indices{2, 3, 3, 2});
  CHECK(text.text_of({2, 3, 3, 2}) == "abba");
  check_refused([&] { text.tokens_of("abz"); }, "given 'z'", Code::usage);
  check_refused([&] { Characters(file.path(), 8); }, "of 7 tokens, the characters of", Code::usage);
}

TEST_CASE(
    "prompts of an encoder-decoder are sources; targets begin as in training, or with the start token") {
  const TextFile file("abcdefghijklmnopqrstuvwxyz");
  T5Model model;
  model.vocabulary = 26;
  T5 made(model, 4, 3, file.path());
  made.open_data();
  const Values row =
      made.batch(2, 1, 1)->input({1, 2}).to_host();  // 4, the source, the ids and labels of its target
  const Indices source(row.begin() + 1, row.begin() + 5);
  CHECK(made.prompt_of(source).source == source);
  CHECK(made.prompt_of(source).tokens == Indices{static_cast<Index>(row[5])});
  model.start_token = 9;
  CHECK(T5(model, 4, 3, file.path()).prompt_of(source).tokens == Indices{9});
}

TEST_CASE("pieces of a text: each character's label is the next; a row depends on seed, step and row alone") {
  const TextFile file("abcdefghijklmnopqrstuvwxyz");
  const Characters text(file.path());
  const HostTensor all = pieces_of_text(text, {0, 9}, 5, 1, 2);
  CHECK(all.shape == Shape{9, 10});
  for (std::size_t row = 0; row < 9; ++row)
    for (std::size_t i = 0; i < 5; ++i) CHECK(all.values[row * 10 + 5 + i] == all.values[row * 10 + i] + 1);
  const HostTensor some = pieces_of_text(text, {3, 5}, 5, 1, 2);
  CHECK(some.values == Values(all.values.begin() + 30, all.values.begin() + 50));
  CHECK(pieces_of_text(text, {0, 9}, 5, 1, 3).values != all.values);
  CHECK(pieces_of_text(text, {0, 9}, 5, 2, 2).values != all.values);
  CHECK(pieces_of_text(text, {0, 9}, 25, 1, 1).values[0] == 0);  // the only piece there is
  const Range one = {0, 1};
  check_refused([&] { pieces_of_text(text, one, 26, 1, 1); }, "a length below the text's 26, given 26",
                Code::usage);
}

TEST_CASE("the mean loss of tokens is over those with a label; pieces count once") {
  MeanTokenLoss loss(4);
  const Tensor first = loss.gradient(matrix(3, 1, {1, 0, 2}), 0);
  CHECK(first.to_host() == Values{0.25F, 0.25F, 0.25F});
  CHECK(first.shape() == Shape{3, 1});
  loss.gradient(matrix(2, 1, {5, 0}), 3);
  loss.gradient(matrix(3, 1, {1, 0, 2}), 0);  // the same rows, as from another device
  CHECK(loss.gradient(Tensor({0, 1}), 3).size() == 0);
  CHECK(loss.value(group()) == 2);
}

namespace {

constexpr float much = 30;  // other powers vanish beside e^30

Indices listed(const shard::Indices& all) {
  return {all.begin(), all.end()};
}

ExpertChoice some_choice(const Arithmetic& how) {
  return choose_experts(matrix(3, 4, {0, much, 2, 2, 3, 1, 0, 3, 0, 0, -much, 1}), 2, how);
}

}  // namespace

TEST_CASE("experts: those of the largest logits, the lower of equal ones; gates are their softmax") {
  const ExpertChoice choice = some_choice(Arithmetic::real(1));
  CHECK(choice.rows() == 3);
  CHECK(choice.top_k() == 2);
  CHECK(listed(choice.experts()) == Indices{1, 2, 0, 3, 3, 0});
  const Values gates = choice.gates.to_host();
  for (std::size_t token = 0; token < 3; ++token)
    CHECK(std::abs(gates[2 * token] + gates[2 * token + 1] - 1) < 0x1p-22F);
  CHECK(gates[0] == 1);
  CHECK(gates[2] == 0.5F);
  CHECK(std::abs(double{gates[4]} - 1 / (1 + std::exp(-1.0))) < 0x1p-22);
}

TEST_CASE("experts: the tokens of each in ascending order, the places of choices by expert, and counts") {
  const ExpertChoice choice = some_choice(Arithmetic::real(1));
  CHECK(listed(choice.tokens_of(0)) == Indices{1, 2});
  CHECK(listed(choice.tokens_of(1)) == Indices{0});
  CHECK(listed(choice.tokens_of(2)) == Indices{0});
  CHECK(listed(choice.tokens_of(3)) == Indices{1, 2});
  CHECK(listed(choice.lists->in_order) == Indices{2, 5, 0, 1, 3, 4});
  CHECK(listed(choice.lists->tokens) == Indices{1, 2, 0, 0, 1, 2});
  CHECK(listed(choice.lists->slots) == Indices{2, 3, 0, 4, 5, 1});
  CHECK(choice.lists->counts == Indices{2, 1, 1, 2});
}

TEST_CASE(
    "experts on the grid: logits become exponents of 2 before they are compared, and gates are rounded") {
  const Arithmetic grid{.unit = 0x1p-3F, .limit = 64, .base = ExponentialBase::two};
  const ExpertChoice choice = choose_experts(matrix(2, 3, {5, 9, 4.4F, 1.4F, 0, 0.6F}), 2, grid);
  CHECK(listed(choice.experts()) == Indices{0, 1, 0, 2});  // 4, 4, 4 and 1, 0, 1
  CHECK(choice.gates.to_host() == Values{0.5F, 0.5F, 0.5F, 0.5F});
  const ExpertChoice thirds = choose_experts(matrix(1, 2, {1, 0}), 2, grid);
  CHECK(thirds.gates.to_host() == Values{0.625F, 0.375F});  // 2/3 and 1/3
  const Tensor d = choose_experts_backward(matrix(1, 2, {8, -8}), thirds, grid);
  CHECK(d.to_host() == Values{3.75F, -3.75F});  // p (d − 2)
  const Tensor none = choose_experts_backward(matrix(2, 2, {1, 1, 1, -1}), choice, grid);
  CHECK(none.to_host() == Values{0, 0, 0, 0.5F, 0, -0.5F});
}

TEST_CASE("sentences: behind a full stop there is padding, and no label") {
  const TextFile file("ab.cd.ef.gh.ab.cd.ef.gh.ab");
  const Characters text(file.path());
  HostTensor pieces = pieces_of_text(text, {0, 20}, 5, 1, 1);
  const HostTensor whole = pieces;
  end_with_sentence(text, pieces);
  const Index stop = text.token_of('.');
  for (std::size_t row = 0; row < 20; ++row) {
    bool is_over = false;
    for (std::size_t i = row * 10; i < row * 10 + 5; ++i) {
      CHECK(pieces.values[i] == (is_over ? 0 : whole.values[i]));
      is_over = is_over || whole.values[i] == static_cast<float>(stop);
      CHECK(pieces.values[i + 5] == (is_over ? float{Tokens::no_label} : whole.values[i + 5]));
    }
  }
}

TEST_CASE("sentences: each label has the same weight, whichever device has it") {
  const TextFile file("ab.cdefghij.kl.mnopqrstuvwxyz");
  DecoderModel model;
  model.vocabulary = 27;
  Decoder made(model, 7, file.path(), true);
  made.open_data();
  const auto batch = made.batch(9, 1, 1);
  const Values input = batch->input({0, 9}).to_host();
  const auto missing = std::ranges::count(input, float{Tokens::no_label});
  CHECK(missing > 0);
  for (const Range& rows : {Range{0, 9}, Range{2, 3}, Range{3, 9}}) {
    const Tensor losses({rows.size() * 7, 1});
    for (float weight : batch->loss_gradient(losses, rows.begin * 7).to_host())
      CHECK(weight == 1 / static_cast<float>(63 - missing));
  }
}

}  // namespace shard::testing
