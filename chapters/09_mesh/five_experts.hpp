#pragma once

/// The experts of a mixture on the axis expert. (Part of five.hpp.)

#include "08_decoder/experts_here.hpp"
#include "five_network.hpp"

namespace shard::meshes {

/// How the five axes divide a block: as DecoderParts, with experts over expert (08_decoder/experts_here.hpp).
/// The devices along tensor have the same tokens, so they choose the same experts, and each sends to its own
/// parts of these. An answer is an addend over tensor, and an expert's gradient one over data and context,
/// where its copies are. Over expert it is whole: all tokens of this copy came here.
template <class K>
struct FiveDivision : DecoderParts<OnFiveAxes, K> {
  using DecoderParts<OnFiveAxes, K>::DecoderParts;
  using Mine = FeedForward<ExpertWeight<S<1>>, ExpertWeight<S<0>>>;

  Communicator& owners() const { return this->mesh().axis(experts::name); }
  std::span<const Mine> my_experts(const FiveBlock<Weight, ExpertWeight, K>& w) const {
    return mine_of(w.routed);
  }
  Routed<R> for_expert(Tensor rows) const {
    Shape shape = rows.shape();
    return Routed<R>::uneven(this->mesh(), std::move(rows), std::move(shape));
  }
  Activation<P> like(Tensor rows, const Activation<R>& f) const {
    Shape shape = {f.global_shape()[0], rows.extent(1)};
    return Activation<P>::uneven(this->mesh(), std::move(rows), std::move(shape));
  }
  /// Adds the gradients of this device's experts to their sums.
  template <class Sums, class Gradients>
  void add_to_mine(std::vector<Sums>& all, std::vector<Gradients> dw) const {
    all.resize(static_cast<std::size_t>(this->m.experts));
    auto sums = mine_of(all).begin();
    for (Gradients& of : dw) {
      accumulate(sums->gate, std::move(of.gate));      // (D, F/N)
      accumulate(sums->up, std::move(of.up));          // (D, F/N)
      accumulate((sums++)->down, std::move(of.down));  // (F/N, D)
    }
  }

 private:
  auto mine_of(auto& all) const {
    const Range mine = part(this->m.experts, owners().num_devices(), owners().device_id());
    return std::span(all).subspan(static_cast<std::size_t>(mine.begin),
                                  static_cast<std::size_t>(mine.size()));
  }
};
template <class K>
using FiveBlockKept =
    decoders::AskedKept<typename DecoderParts<OnFiveAxes, K>::Kept, Routed<R>, ExpertWeight<S<1>>>;

}  // namespace shard::meshes
