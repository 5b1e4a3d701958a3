#pragma once

/// The five schedules: in which order the devices of a pipeline work. K devices, M micro-batches.

#include <algorithm>

#include "engine/schedules/schedule.hpp"

namespace shard::pipeline {

/// ## naive
/// One micro-batch at a time, through all stages and back. While one device works all others wait.
inline Work naive(int devices, Index micro_batches) {
  Work work(static_cast<std::size_t>(devices));
  for (int d = 0; d < devices; ++d)
    for (Index m = 0; m < micro_batches; ++m) {
      work[static_cast<std::size_t>(d)].push_back({Action::Kind::forward, m, d});
      work[static_cast<std::size_t>(d)].push_back({Action::Kind::backward, m, d});
    }
  return work;
}

/// ## GPipe
/// All forwards, then all backwards (Huang et al. 2019, figure 2c). A device idles K-1 times a forward and a
/// backward, however many micro-batches there are, and holds the activations of all M.
inline Work gpipe(int devices, Index micro_batches) {
  Work work(static_cast<std::size_t>(devices));
  for (int d = 0; d < devices; ++d) {
    std::vector<Action>& mine = work[static_cast<std::size_t>(d)];
    for (Index m = 0; m < micro_batches; ++m) mine.push_back({Action::Kind::forward, m, d});
    for (Index m = micro_batches; m-- > 0;) mine.push_back({Action::Kind::backward, m, d});
  }
  return work;
}

/// ## 1F1B
/// One forward, one backward (Narayanan et al. 2019, "PipeDream", section 3.2; 2021, figure 4): after a
/// warm-up that is the longer the earlier the stage. Idles as long as GPipe, but holds min(M, K - stage)
/// micro-batches.
inline Work one_forward_one_backward(int devices, Index micro_batches) {
  Work work(static_cast<std::size_t>(devices));
  for (int d = 0; d < devices; ++d) {
    std::vector<Action>& mine = work[static_cast<std::size_t>(d)];
    const Index ahead = std::min<Index>(micro_batches, devices - d - 1);
    for (Index m = 0; m < ahead; ++m) mine.push_back({Action::Kind::forward, m, d});
    for (Index m = 0; m < micro_batches; ++m) {
      if (m + ahead < micro_batches) mine.push_back({Action::Kind::forward, m + ahead, d});
      mine.push_back({Action::Kind::backward, m, d});
    }
  }
  return work;
}

/// ## interleaved
/// 1F1B with v stages a device (Narayanan et al. 2021, "Megatron-LM", section 2.2): a micro-batch comes by v
/// times, each time for a v-th of the work, so that the pipeline fills v times as fast. Costs v times the
/// messages, and holds 2(K - device - 1) + (v - 1)K + 1 stages' activations. Micro-batches go in groups of K;
/// a last group that is smaller leaves out what is not there.
inline Work interleaved(int devices, int virtual_stages, Index micro_batches) {
  const Index groups = (micro_batches + devices - 1) / devices;
  const Index total = groups * devices * virtual_stages;
  auto nth = [&](Index i, bool is_forward) {  // micro-batch and stage on device 0 of the i-th piece of work
    const Index group = i / (devices * virtual_stages);
    const int chunk = static_cast<int>(i / devices % virtual_stages);
    return Action{is_forward ? Action::Kind::forward : Action::Kind::backward, group * devices + i % devices,
                  devices * (is_forward ? chunk : virtual_stages - 1 - chunk)};
  };
  Work work(static_cast<std::size_t>(devices));
  for (int d = 0; d < devices; ++d) {
    auto add = [&](Action action) {
      action.stage += d;
      if (action.micro_batch < micro_batches) work[static_cast<std::size_t>(d)].push_back(action);
    };
    const Index ahead = std::min<Index>(total, 2 * (devices - d - 1) + (virtual_stages - 1) * devices);
    for (Index i = 0; i < ahead; ++i) add(nth(i, true));
    for (Index i = 0; i < total; ++i) {
      if (i + ahead < total) add(nth(i + ahead, true));
      add(nth(i, false));
    }
  }
  return work;
}

/// ## zero-bubble
/// ZB-H1 (Qi et al. 2024, section 3): 1F1B with the backward pass in its two halves. The stage before waits
/// for dL/da only, so dL/dw is put off, on device d by d micro-batches, and fills what would be idle time.
/// Holds at most K micro-batches until their second half is done.
inline Work zero_bubble(int devices, Index micro_batches) {
  Work work(static_cast<std::size_t>(devices));
  for (int d = 0; d < devices; ++d) {
    std::vector<Action>& mine = work[static_cast<std::size_t>(d)];
    const Index ahead = std::min<Index>(micro_batches, devices - d - 1);
    for (Index m = 0; m < ahead; ++m) mine.push_back({Action::Kind::forward, m, d});
    for (Index m = 0; m < micro_batches; ++m) {
      if (m + ahead < micro_batches) mine.push_back({Action::Kind::forward, m + ahead, d});
      mine.push_back({Action::Kind::backward_input, m, d});
      if (m >= d) mine.push_back({Action::Kind::backward_weights, m - d, d});
    }
    for (Index m = std::max<Index>(micro_batches - d, 0); m < micro_batches; ++m)
      mine.push_back({Action::Kind::backward_weights, m, d});
  }
  return work;
}

}  // namespace shard::pipeline
