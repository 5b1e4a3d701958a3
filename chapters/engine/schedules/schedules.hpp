#pragma once

/// The five schedules that chapter 04 explains. A schedule says in which order each device of a pipeline
/// works. N devices, of which k is one, and M micro-batches.

#include <algorithm>

#include "engine/schedules/schedule.hpp"

namespace shard {

/// ## naive
/// One micro-batch at a time goes through all stages and back. While one device works, all others wait.
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
/// All forwards, then all backwards (Huang et al. 2019, figure 2c). A device idles for N-1 forwards and N-1
/// backwards, for any number of micro-batches, and holds the activations of all M.
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
/// One forward, one backward, in turns (Narayanan et al. 2019, "PipeDream", section 3.2; 2021, figure 4).
/// Before that comes a warm-up of forwards, which is longer for earlier stages. A device idles as long as in
/// GPipe, but holds only min(M, N - k) micro-batches.
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
/// 1F1B with v stages on each device (Narayanan et al. 2021, "Megatron-LM", section 2.2). A micro-batch comes
/// to each device v times, each time for a v-th of the work, so that the pipeline fills v times as fast. This
/// costs v times as many messages. A device holds the activations of 2(N - k - 1) + (v - 1)N + 1 stages.
/// Micro-batches go in groups of N. If the last group is smaller, the micro-batches that it lacks are
/// skipped.
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
/// ZB-H1 (Qi et al. 2024, section 3): 1F1B with the backward pass in two halves, dL/da and dL/dw. The stage
/// before waits for dL/da only. So device d computes dL/dw later, by d micro-batches, at a time when it would
/// idle. A device holds at most N micro-batches until their second half is done.
inline Work zero_bubble(int devices, Index micro_batches) {
  Work work = one_forward_one_backward(devices, micro_batches);
  for (int d = 0; d < devices; ++d) {
    std::vector<Action> mine;
    for (const Action& action : work[static_cast<std::size_t>(d)]) {
      mine.push_back(action);
      if (action.kind != Action::Kind::backward) continue;
      mine.back().kind = Action::Kind::backward_input;
      const Index m = action.micro_batch - d;
      if (m >= 0) mine.push_back({Action::Kind::backward_weights, m, d});
    }
    for (Index m = std::max<Index>(micro_batches - d, 0); m < micro_batches; ++m)
      mine.push_back({Action::Kind::backward_weights, m, d});
    work[static_cast<std::size_t>(d)] = std::move(mine);
  }
  return work;
}

/// A schedule that takes one micro-batch forward through all stages, or backward through all.
inline Schedule one_micro_batch(Action::Kind kind, int devices, int stages) {
  Work work(static_cast<std::size_t>(devices));
  for (int i = 0; i < stages; ++i) {
    const int s = kind == Action::Kind::forward ? i : stages - 1 - i;
    work[static_cast<std::size_t>(s % devices)].push_back({kind, 0, s});
  }
  return with_messages(stages, 1, work);
}

}  // namespace shard
