#pragma once

/// The two ends of a decoder where the axis tensor divides the vocabulary: the embedding, and the loss.

#include "08_decoder/vocabulary_loss.hpp"
#include "axes.hpp"
#include "engine/device/layer_operations.hpp"

namespace shard::meshes {

/// This device's part of a tensor. Where context divides positions, no rule says which rows these are.
template <class L>
L claimed(Mesh& mesh, Tensor mine, Shape global) {
  if constexpr (L::Axes::template has<context>)
    return L::uneven(mesh, std::move(mine), std::move(global));
  else
    return L(mesh, std::move(mine), std::move(global));
}

/// Rows (T, D) of the table for tokens, of which there are `rows` on all devices. A device along tensor has 0
/// for tokens that are not in its rows of the table: L is an addend there.
template <class L, class Table>
L embedded(const Table& table, const Tokens& t, Index rows) {
  Tensor mine = combine_rows(table.local(), in_slice(t.ids, table.ranges()[0]), 1);
  return claimed<L>(table.mesh(), std::move(mine), {rows, table.global_shape()[1]});
}
/// The gradient of a table of this vocabulary, (V/N, D), from that of its rows.
template <class Addend, class L>
Addend table_gradient(const L& d, const Tokens& t, Index vocabulary) {
  const Range here = range_after(Addend::cuts(d.mesh()), 0, vocabulary);
  const Index width = d.global_shape()[1];
  Tensor addend(Shape{here.size(), width});
  scatter_add_rows(d.local(), in_slice(t.ids, here), addend);
  return claimed<Addend>(d.mesh(), std::move(addend), {vocabulary, width});
}

/// \name The loss
/// Numbers of each token go over tensor alone, since other devices have other tokens.
/// @{
template <HasLetter<tensor, S<1>> L>
auto cross_entropy(L z, const Tokens& t, const Arithmetic& how, TokenSoftmax& kept) {
  const Index rows = z.global_shape()[0], first = z.ranges()[1].begin;
  Mesh& mesh = z.mesh();
  Tensor losses = decoders::divided_cross_entropy(std::move(z).local(), first, t, how, kept,
                                                  mesh.axis(tensor::name));  // (T, 1)
  return claimed<with_letter<L, tensor, R>>(mesh, std::move(losses), {rows, 1});
}
/// dz (T, V/N).
template <HasLetter<tensor, R> L, HasLetter<tensor, S<0>> Table>
auto cross_entropy_backward(const L& dlosses, const Table& table, const Tokens& t, const Arithmetic& how,
                            TokenSoftmax kept) {
  return claimed<with_letter<L, tensor, S<1>>>(
      dlosses.mesh(), shard::cross_entropy_backward(dlosses.local(), t, how, std::move(kept)),
      {dlosses.global_shape()[0], table.global_shape()[0]});
}
/// @}

}  // namespace shard::meshes
