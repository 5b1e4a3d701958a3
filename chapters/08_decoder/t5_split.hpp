#pragma once

/// Which blocks of an encoder-decoder each device has, where blocks are divided, and who reads the tables
/// that several devices need.

#include <algorithm>
#include <array>

#include "engine/workloads/decoder/model.hpp"
#include "engine/workloads/t5/model.hpp"
#include "layers_split.hpp"

namespace shard::decoders {

/// What blocks on several devices may read: the embedding, and the bias of each stack.
enum class Table { embedding, encoder_bias, decoder_bias };
inline constexpr std::array all_tables = {Table::embedding, Table::encoder_bias, Table::decoder_bias};
inline std::string table_name(Table table) {
  if (table == Table::embedding) return embedding_name();
  return t5_name(table == Table::encoder_bias ? Side::encoder : Side::decoder, "position_bias");
}

/// A table of one device, and another device that has a copy.
struct TableCopy {
  Table table;
  int owner, reader;
};

/// The blocks of both stacks, the encoder's first, in one contiguous part for each device.
class T5Split {
 public:
  /// `how`: see split_blocks. The embedding, and a stack's bias, lie with the first block that reads them.
  /// The first block of the decoder, and the head, have a copy of the embedding. \throws Error usage
  T5Split(const T5Model& m, int devices, const std::string& how)
      : m_(m), parts_(split_blocks(elements_of_blocks(m), devices, how)) {}

  int devices() const { return static_cast<int>(parts_.size()); }
  int last() const { return devices() - 1; }
  /// A stack's blocks that a device has.
  Range blocks(Side side, int device) const {
    const Range mine = parts_[static_cast<std::size_t>(device)];
    const Index first = side == Side::encoder ? 0 : m_.encoder_blocks;
    auto within = [&](Index block) { return std::clamp(block - first, Index{0}, m_.blocks(side)); };
    return {within(mine.begin), within(mine.end)};
  }
  bool has(Side side, int device) const { return blocks(side, device).size() > 0; }
  bool has_first(Side side, int device) const { return has(side, device) && blocks(side, device).begin == 0; }
  bool has_last(Side side, int device) const {
    return has(side, device) && blocks(side, device).end == m_.blocks(side);
  }
  /// Whether the decoder begins before this device. Then its residual stream arrives there.
  bool is_within_decoder(int device) const {
    return parts_[static_cast<std::size_t>(device)].begin > m_.encoder_blocks;
  }

  /// The device that owns a parameter: of a table, the first one that reads it.
  int owner_of(const std::string& name) const {
    for (Table table : all_tables)
      if (name == table_name(table)) return readers(table)[0];
    const Side side = name.starts_with(t5_name(Side::encoder, "")) ? Side::encoder : Side::decoder;
    int device = 0;
    auto has_parameter = [&](int d) {
      for (Index b = blocks(side, d).begin; b < blocks(side, d).end; ++b)
        if (name.starts_with(t5_name(side, b, ""))) return true;
      return has_last(side, d);  // a last norm, or the head
    };
    while (!has_parameter(device)) ++device;
    return device;
  }
  /// All copies, table by table.
  std::vector<TableCopy> copies() const {
    std::vector<TableCopy> all;
    for (Table table : all_tables)
      for (int reader : readers(table))
        if (reader != readers(table)[0]) all.push_back({table, readers(table)[0], reader});
    return all;
  }

 private:
  /// The devices that read a table.
  std::vector<int> readers(Table table) const {
    std::vector<int> all;
    for (int d = 0; d < devices(); ++d) {
      const bool reads_embedding = d == 0 || has_first(Side::decoder, d) || (m_.is_tied && d == last());
      const bool reads_bias = has(table == Table::encoder_bias ? Side::encoder : Side::decoder, d);
      if (table == Table::embedding ? reads_embedding : reads_bias) all.push_back(d);
    }
    return all;
  }
  /// The number of elements of each block, with those of tables and norms on its device.
  static std::vector<Index> elements_of_blocks(const T5Model& m) {
    std::vector<Index> elements;
    const Index table = m.vocabulary * m.model_dim, bias = m.buckets * m.heads;
    for (Side side : {Side::encoder, Side::decoder}) {
      const std::size_t first = elements.size();
      elements.resize(first + static_cast<std::size_t>(m.blocks(side)), elements_of(m, t5_name(side, 0, "")));
      elements[first] += table + bias;
      elements.back() += m.model_dim;
    }
    elements.back() += table;
    return elements;
  }

  T5Model m_;
  std::vector<Range> parts_;
};

}  // namespace shard::decoders
