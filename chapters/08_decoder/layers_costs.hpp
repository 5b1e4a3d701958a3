#pragma once

#include "flops.hpp"
#include "layers_split.hpp"

namespace shard::decoders {

/// `layers`: what one device sends, computes and holds of a network whose blocks are divided like this.
///
/// - Sends: between two devices, every token goes forward as an activation and back as its gradient, D elements
///   each way, in a message for each micro-batch that has sequences. The first device sends the labels to the
///   last one. A table that is used twice goes there after each step, and the last device's gradient comes
///   back.
/// - Computes: the products of its blocks, in any schedule; the last device also those of the head.
inline Costs layers_costs(const Setting& setting, const std::vector<Range>& parts, Index micro_batches) {
  const DecoderSetting s(setting);
  const DecoderModel& m = s.model;
  const Range mine = parts[static_cast<std::size_t>(s.device)];
  const bool is_first = s.device == 0, is_last = s.device + 1 == s.devices;
  const Index tokens = s.batch * s.length, table = m.vocabulary * m.model_dim;
  Costs costs;
  Index elements = mine.size() * elements_of_block(m) + (is_first ? table : 0) +
                   (is_last ? m.model_dim + (m.is_tied ? 0 : table) : 0);
  costs.trained_bytes = elements * bytes_per_element;
  costs.parameter_bytes = *costs.trained_bytes;
  costs.flops = mine.size() * block_flops(m, s.batch, s.length) + (is_last ? head_flops(m, tokens) : 0);
  if (s.devices == 1) return costs;
  const Traffic stream = {std::min(s.batch, micro_batches), tokens * m.model_dim * bytes_per_element};
  costs[Collective::send] = (is_last ? 0 : 1) * stream + (is_first ? 0 : 1) * stream;
  if (is_first) costs[Collective::send] += {1, tokens * bytes_per_element};
  if (!m.is_tied) return costs;
  const Traffic whole_table = {1, table * bytes_per_element};
  if (is_first) costs.after_step(Collective::send) = whole_table;
  if (is_last) costs[Collective::send] += whole_table;
  if (is_last) costs.parameter_bytes += whole_table.bytes;  // the copy
  return costs;
}

}  // namespace shard::decoders
