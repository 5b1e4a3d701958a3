#pragma once

/// What a block of an encoder-decoder holds and computes, part by part, as a trace.

#include "engine/proof/layer_traces.hpp"
#include "engine/workloads/t5.hpp"

namespace shard::decoders {

/// The arguments of a closed form, for an encoder-decoder.
struct T5Setting : Setting {
  T5Model m;
  Index source_length, length;  ///< S_e and S

  T5Setting(const Setting& s)  // a conversion, so that a form can be given the general one
      : Setting(s),
        m(as_t5(*s.workload).model()),
        source_length(as_t5(*s.workload).source_length()),
        length(as_t5(*s.workload).length()) {}

  /// This device's part of an extent.
  Index mine(Index extent) const { return part(extent, devices, device).size(); }
  /// Elements of an input of so many sequences.
  Index input(Index sequences) const { return sequences * (1 + source_length + 2 * length); }
};

/// The sizes of the stacks on a device: B sequences, some heads and some hidden units.
struct T5Sizes {
  Index B, source_length, length;
  Index D, H, d, F, buckets;
  bool has_gate;

  /// B sequences, with heads and hidden units like these.
  T5Sizes(const T5Setting& s, Index sequences, Index heads, Index hidden)
      : B(sequences),
        source_length(s.source_length),
        length(s.length),
        D(s.m.model_dim),
        H(heads),
        d(s.m.head_dim),
        F(hidden),
        buckets(s.m.buckets),
        has_gate(s.m.has_gate()) {}

  Index length_of(Side side) const { return side == Side::encoder ? source_length : length; }
  /// Rows of a stack: T_e or T.
  Index rows(Side side) const { return B * length_of(side); }
  /// Columns of queries, keys and values.
  Index Q() const { return H * d; }
  /// Elements of a stack's bias.
  Index bias(Side side) const { return length_of(side) * length_of(side) * H; }
  /// \name Elements of parameters
  /// @{
  Index table_of_bias() const { return buckets * H; }
  Index attention_parameters() const { return D + 4 * D * Q(); }
  Index block_parameters(Side side) const {
    return (side == Side::encoder ? 1 : 2) * attention_parameters() + D + (has_gate ? 3 : 2) * D * F;
  }
  /// @}
};

/// A block in a step. By default nothing is sent, as in `t5-single`.
class T5BlockTrace {
 public:
  T5BlockTrace(Trace& trace, const T5Sizes& sizes, Side side) : t(trace), z(sizes), side_(side) {}
  virtual ~T5BlockTrace() = default;

  void forward();
  /// Holds the gradients of the weights at the end, as `put` leaves them. In the decoder, adds to the gradient
  /// of what the encoder returned; this is not held before if the block `begins_sum`.
  void backward(bool begins_sum);

 protected:
  /// The sum of what a part of a block returns, or of the gradient of what it reads, over the devices.
  virtual void reduce(Index /*elements*/) {}
  /// What happens to a weight's gradient when it has been computed.
  virtual void put(Index /*elements*/) {}

  Trace& t;
  T5Sizes z;

 private:
  enum class Keys { own, of_source };
  Index T() const { return z.rows(side_); }
  Index rows_of(Keys keys) const { return keys == Keys::own ? T() : z.rows(Side::encoder); }
  traces::AttentionSizes attention(Keys keys) const;
  std::vector<Range> runs_of(Keys keys) const;

  void attend(Keys keys);
  void attend_backward(Keys keys, bool begins_sum);
  void think();
  void think_backward();
  void norm_backward();

  Side side_;
  Index kept_ = 0;
};

}  // namespace shard::decoders
