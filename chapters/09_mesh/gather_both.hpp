#pragma once

/// The naive product of blocks: each device gathers all rows and columns that its block depends on.

#include "blocks.hpp"

namespace shard::meshes {

class GatherBoth {
 public:
  /// ## Gather both
  /// A block of the result depends on rows of the left factor, (S0, R), and columns of the right one,
  /// (R, S1). A transposed factor is cut over the wrong axis first, so an all-to-all moves the cut.
  Block operator()(BlockEngine& engine, const Block& a, const Block& b) const {
    On<S<0>, R> my_rows = engine.all_gather<columns>(a);  // (m, K)
    On<R, S<1>> my_columns = engine.all_gather<rows>(b);  // (K, n)
    return matmul(my_rows, my_columns);                   // (m, n)   (S0, R)·(R, S1) = (S0, S1)
  }
  Block operator()(BlockEngine& engine, const Block& a, const Transposed<Block>& b) const {
    On<S<0>, R> my_rows = engine.all_gather<columns>(a);                             // (m, N)
    On<R, S<1>> gathered = engine.all_gather<rows>(b.matrix);                        // (K, n)
    On<R, S<0>> my_columns = engine.all_to_all<columns, 1, 0>(std::move(gathered));  // (k, N)
    return matmul(my_rows, transposed(my_columns));  // (m, k)   (S0, R)·(R, S0)ᵀ = (S0, S1)
  }
  Block operator()(BlockEngine& engine, const Transposed<Block>& a, const Block& b) const {
    On<S<0>, R> gathered = engine.all_gather<columns>(a.matrix);               // (m, K)
    On<S<1>, R> my_rows = engine.all_to_all<rows, 0, 1>(std::move(gathered));  // (M, k)
    On<R, S<1>> my_columns = engine.all_gather<rows>(b);                       // (M, n)
    return matmul(transposed(my_rows), my_columns);  // (k, n)   (S1, R)ᵀ·(R, S1) = (S0, S1)
  }

 private:
  template <class... Letters>
  using On = OnMesh<BlockAxes, Letters...>;
};

/// gather_both(engine, a, b), and so with either factor transposed.
inline constexpr GatherBoth gather_both{};

}  // namespace shard::meshes
