#pragma once

/// The tensors of a decoder on the axes data and tensor, and its two ends, which lie over the vocabulary: the
/// embedding and the loss.

#include "08_decoder/vocabulary_loss.hpp"
#include "axes.hpp"
#include "engine/layers/embedding.hpp"
#include "engine/layers/language_model.hpp"
#include "engine/workloads/decoder_model.hpp"

namespace shard::meshes {

using MeshDecoder = MeshEngine<DataTensorAxes, LanguageModel>;
template <class... Letters>
using OnDataTensor = OnMesh<DataTensorAxes, Letters...>;

using TokenRows = OnDataTensor<W<0>, R>;    // (T, D)     T tokens, of whole sequences
using TokenAddend = OnDataTensor<W<0>, P>;  // (T, D)
using Vocabulary = OnDataTensor<R, S<0>>;   // (V/N, D)
using VocabularyAddend = OnDataTensor<P, S<0>>;

/// The tokens of this device's sequences, of an input (B, 2 S). The mesh learns that there are B.
inline Tokens tokens_of(const OnDataTensor<S<0>, R>& input, const DecoderModel& m) {
  input.mesh().keep_whole(data::name, input.global_shape()[0]);
  Tokens tokens = Tokens::read(input.local(), m.vocabulary);
  tokens.first_sequence = input.ranges()[0].begin;
  return tokens;
}

/// \name What lies over the vocabulary
/// @{
/// (T, D) of (rows, D): 0 for tokens that are in another device's rows of the table.
inline TokenAddend embedding(const Vocabulary& table, const Tokens& t, Index rows) {
  const std::vector<Index> here = in_slice(t.ids, table.ranges()[0]);
  return {table.mesh(), combine_rows(table.local(), here, 1), {rows, table.global_shape()[1]}};
}
/// (V/N, D) of a table (V, D): an addend over data.
inline VocabularyAddend embedding_backward(const TokenRows& d, const Tokens& t, Index vocabulary) {
  const Index D = d.global_shape()[1];
  const Range here = range_after(VocabularyAddend::cuts(d.mesh()), 0, vocabulary);
  Tensor sum(Shape{here.size(), D});
  scatter_add_rows(d.local(), in_slice(t.ids, here), sum);
  return {d.mesh(), std::move(sum), {vocabulary, D}};
}
/// z (T, V/N): losses (T, 1). Numbers of each token go over tensor, since other devices have other tokens.
inline TokenRows cross_entropy(OnDataTensor<W<0>, S<1>> z, const Tokens& t, const Arithmetic& how,
                               TokenSoftmax& kept) {
  Mesh& mesh = z.mesh();
  const Index rows = z.global_shape()[0], first = z.ranges()[1].begin;
  return {mesh,
          decoders::divided_cross_entropy(std::move(z).local(), first, t, how, kept, mesh.axis(tensor::name)),
          {rows, 1}};
}
/// dz (T, V/N).
inline OnDataTensor<W<0>, S<1>> cross_entropy_backward(const TokenRows& dloss, Index vocabulary,
                                                       const Tokens& t, const Arithmetic& how,
                                                       TokenSoftmax kept) {
  return {dloss.mesh(),
          shard::cross_entropy_backward(dloss.local(), t, how, std::move(kept)),
          {dloss.global_shape()[0], vocabulary}};
}
/// @}

}  // namespace shard::meshes
