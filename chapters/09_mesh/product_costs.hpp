#pragma once

#include <map>
#include <string>

#include "costs.hpp"

namespace shard::meshes {

/// What a product of blocks sends and computes, and the most that it holds beside its factors. The result is
/// among it.
struct ProductCosts {
  std::map<std::pair<std::string, Collective>, Traffic> sent;  ///< along an axis
  Index flops = 0;
  Peak most;

  void send_along(const Along& axis, Collective c, const Traffic& traffic) {
    sent[{axis.name, c}] += traffic;
  }
};

/// A layer's sizes on device (i, j). Its input a is (B, K), its weights are (K, N), its output is (B, N).
/// b, k and n are parts: b and k_rows over the axis rows, k and n over columns.
struct BlockLayer {
  Along rows, columns;
  Index B, K, N, b, k_rows, k, n;

  BlockLayer(const MlpSetting& s, const MeshShape& mesh, Index layer)
      : rows(mesh, "rows", s.device),
        columns(mesh, "columns", s.device),
        B(s.batch),
        K(s.model.width(layer)),
        N(s.model.width(layer + 1)),
        b(rows.part_of(B)),
        k_rows(rows.part_of(K)),
        k(columns.part_of(K)),
        n(columns.part_of(N)) {}
};

/// One message, if it has content.
inline Traffic one_message(Index elements) {
  return elements > 0 ? Traffic{1, elements * bytes_per_element} : Traffic{};
}

}  // namespace shard::meshes
