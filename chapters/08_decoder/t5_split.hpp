#pragma once

/// Which blocks of an encoder-decoder each device has, where blocks are divided, and who reads the tables that
/// several devices need.

#include <array>

#include "engine/workloads/t5_model.hpp"
#include "layers_split.hpp"

namespace shard::decoders {

/// What blocks on several devices may read: the embedding, and the bias of each stack.
enum class Table { embedding, encoder_bias, decoder_bias };
inline constexpr std::array all_tables = {Table::embedding, Table::encoder_bias, Table::decoder_bias};
inline Table bias_table(Side side) {
  return side == Side::encoder ? Table::encoder_bias : Table::decoder_bias;
}
std::string table_name(Table table);
/// (V, D), or (buckets, H).
Shape table_shape(const T5Model& m, Table table);

/// A table of one device, and another device that has a copy.
struct TableCopy {
  Table table;
  int owner, reader;
};

/// The blocks of both stacks, the encoder's first, in one contiguous part for each device.
class T5Split {
 public:
  /// `how`: see split_blocks. The embedding, and a stack's bias, lie with the first block that reads them. The
  /// first block of the decoder, and the head, have a copy of the embedding. \throws Error usage
  T5Split(const T5Model& m, int devices, const std::string& how);

  int devices() const { return static_cast<int>(parts_.size()); }
  int last() const { return devices() - 1; }
  /// A stack's blocks that a device has.
  Range blocks(Side side, int device) const;
  bool has(Side side, int device) const { return blocks(side, device).size() > 0; }
  bool has_first(Side side, int device) const;
  bool has_last(Side side, int device) const;
  int device_of_first(Side side) const;
  int device_of_last(Side side) const;
  /// Whether the decoder begins before this device. Then its residual stream arrives there.
  bool is_within_decoder(int device) const;

  /// The devices that read a table. The first one owns it, and the others have copies.
  std::vector<int> readers(Table table) const;
  /// All copies, table by table.
  std::vector<TableCopy> copies() const;

 private:
  Index num_blocks(Side side) const { return side == Side::encoder ? encoder_blocks_ : decoder_blocks_; }

  Index encoder_blocks_, decoder_blocks_;
  bool is_tied_;
  std::vector<Range> parts_;
};

}  // namespace shard::decoders
