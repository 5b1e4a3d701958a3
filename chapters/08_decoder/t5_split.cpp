#include "t5_split.hpp"

#include <algorithm>

#include "engine/workloads/decoder_model.hpp"

namespace shard::decoders {

namespace {

/// Elements of the parameters of a block, or of a stack without its blocks.
Index elements_of(const T5Model& m, const std::string& name) {
  Index elements = 0;
  for (const Parameter& p : m.parameters())
    if (p.name.starts_with(name)) elements += num_elements(p.shape);
  return elements;
}

/// Elements of each block, with what lies with it.
std::vector<Index> elements_of_blocks(const T5Model& m) {
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

}  // namespace

std::string table_name(Table table) {
  if (table == Table::embedding) return embedding_name();
  return t5_name(table == Table::encoder_bias ? Side::encoder : Side::decoder, "position_bias");
}
Shape table_shape(const T5Model& m, Table table) {
  return table == Table::embedding ? Shape{m.vocabulary, m.model_dim} : Shape{m.buckets, m.heads};
}

T5Split::T5Split(const T5Model& m, int devices, const std::string& how)
    : encoder_blocks_(m.encoder_blocks),
      decoder_blocks_(m.decoder_blocks),
      is_tied_(m.is_tied),
      parts_(split_blocks(elements_of_blocks(m), devices, how)) {}

Range T5Split::blocks(Side side, int device) const {
  const Range mine = parts_[static_cast<std::size_t>(device)];
  const Index first = side == Side::encoder ? 0 : encoder_blocks_;
  auto within = [&](Index block) { return std::clamp(block - first, Index{0}, num_blocks(side)); };
  return {within(mine.begin), within(mine.end)};
}
bool T5Split::has_first(Side side, int device) const {
  return has(side, device) && blocks(side, device).begin == 0;
}
bool T5Split::has_last(Side side, int device) const {
  return has(side, device) && blocks(side, device).end == num_blocks(side);
}
int T5Split::device_of_first(Side side) const {
  int device = 0;
  while (!has_first(side, device)) ++device;
  return device;
}
int T5Split::device_of_last(Side side) const {
  int device = 0;
  while (!has_last(side, device)) ++device;
  return device;
}
bool T5Split::is_within_decoder(int device) const {
  return parts_[static_cast<std::size_t>(device)].begin > encoder_blocks_;
}

std::vector<int> T5Split::readers(Table table) const {
  std::vector<int> all;
  for (int d = 0; d < devices(); ++d) {
    const bool reads_embedding = d == 0 || has_first(Side::decoder, d) || (is_tied_ && d == last());
    const bool reads_bias = has(table == Table::encoder_bias ? Side::encoder : Side::decoder, d);
    if (table == Table::embedding ? reads_embedding : reads_bias) all.push_back(d);
  }
  return all;
}
std::vector<TableCopy> T5Split::copies() const {
  std::vector<TableCopy> all;
  for (Table table : all_tables) {
    const std::vector<int> devices = readers(table);
    for (std::size_t i = 1; i < devices.size(); ++i) all.push_back({table, devices[0], devices[i]});
  }
  return all;
}

}  // namespace shard::decoders
