/// Gradient accumulation: a device's rows in pieces.

#include "engine/engines/sharded_engine.hpp"

namespace shard {

Sharded<0> ShardedEngine::in_pieces(Sharded<0> x, Index pieces, const LossGradient& loss_gradient,
                                    const std::function<Placed(Sharded<0>)>& forward,
                                    const std::function<Sharded<0>(Tensor)>& backward) {
  auto there_and_back = [&](Sharded<0> piece) {
    Tensor dout;
    {
      Placed out = forward(std::move(piece));
      dout = loss_gradient(out.local(), out.first_row());
    }  // the output is no longer needed
    return backward(std::move(dout));
  };
  if (pieces == 1) return there_and_back(std::move(x));
  Sharded<0> dx;
  if (wants_input_grad()) dx = my_rows(Tensor::uninitialized(x.local().shape()), x);  // (b, D)
  for (int m = 0; m < pieces; ++m) {
    Range rows = part(x.local().extent(0), static_cast<int>(pieces), m);
    Tensor piece = slice(x.local(), 0, rows.begin, rows.end);  // (b/M, D)
    Sharded<0> dpiece =
        there_and_back({x.group(), std::move(piece), x.global_shape(), x.offset() + rows.begin});
    if (wants_input_grad()) assign(Rows(dx.parameter(), rows.begin, rows.end), dpiece.local());
  }
  return dx;
}

}  // namespace shard
