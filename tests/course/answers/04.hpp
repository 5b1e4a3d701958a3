//// 04.1 micro-batches outside
inline Work gpipe(int devices, Index micro_batches) {
  Work work(static_cast<std::size_t>(devices));
  for (Index m = 0; m < micro_batches; ++m)
    for (int d = 0; d < devices; ++d)
      work[static_cast<std::size_t>(d)].push_back({Action::Kind::forward, m, d});
  for (Index m = micro_batches - 1; m >= 0; --m)
    for (int d = 0; d < devices; ++d)
      work[static_cast<std::size_t>(d)].push_back({Action::Kind::backward, m, d});
  return work;
}
//// 04.1 one loop of 2 M
inline Work gpipe(int devices, Index micro_batches) {
  Work work;
  for (int stage = 0; stage < devices; ++stage) {
    std::vector<Action> mine;
    for (Index i = 0; i < 2 * micro_batches; ++i) {
      const bool is_forward = i < micro_batches;
      mine.push_back({is_forward ? Action::Kind::forward : Action::Kind::backward,
                      is_forward ? i : 2 * micro_batches - 1 - i, stage});
    }
    work.push_back(std::move(mine));
  }
  return work;
}
//// 04.1 backwards are the forwards in reverse
inline Work gpipe(int devices, Index micro_batches) {
  Work work(static_cast<std::size_t>(devices));
  int d = 0;
  for (auto& mine : work) {
    for (Index m = 0; m < micro_batches; ++m) mine.push_back({Action::Kind::forward, m, d});
    for (std::size_t i = mine.size(); i-- > 0;) {
      Action back = mine[i];
      back.kind = Action::Kind::backward;
      mine.push_back(back);
    }
    ++d;
  }
  return work;
}
//// 04.1 a helper for a device
inline std::vector<Action> all_of_device(int stage, Index micro_batches) {
  std::vector<Action> list(static_cast<std::size_t>(2 * micro_batches));
  for (Index m = 0; m < micro_batches; ++m) {
    list[static_cast<std::size_t>(m)] = {Action::Kind::forward, m, stage};
    list[static_cast<std::size_t>(2 * micro_batches - 1 - m)] = {Action::Kind::backward, m, stage};
  }
  return list;
}
inline Work gpipe(int devices, Index micro_batches) {
  Work work;
  for (int d = 0; d < devices; ++d) work.emplace_back(all_of_device(d, micro_batches));
  return work;
}
//// 04.1 a lambda for a round
inline Work gpipe(int devices, Index micro_batches) {
  Work work;
  work.resize(static_cast<std::size_t>(devices));
  auto round = [&](Action::Kind kind, Index m) {
    int stage = 0;
    for (std::vector<Action>& mine : work) mine.push_back(Action{kind, m, stage++});
  };
  Index m = 0;
  while (m < micro_batches) round(Action::Kind::forward, m++);
  while (m > 0) round(Action::Kind::backward, --m);
  return work;
}
//// 04.1 red: backwards in ascending order
inline Work gpipe(int devices, Index micro_batches) {
  Work work(static_cast<std::size_t>(devices));
  for (int d = 0; d < devices; ++d) {
    for (Index m = 0; m < micro_batches; ++m) work[std::size_t(d)].push_back({Action::Kind::forward, m, d});
    for (Index m = 0; m < micro_batches; ++m) work[std::size_t(d)].push_back({Action::Kind::backward, m, d});
  }
  return work;
}
//// 04.2 three loops
inline Work one_forward_one_backward(int devices, Index micro_batches) {
  Work work(static_cast<std::size_t>(devices));
  for (int d = 0; d < devices; ++d) {
    auto& mine = work[static_cast<std::size_t>(d)];
    const Index warm_up = std::min<Index>(devices - 1 - d, micro_batches);
    Index next = 0, back = 0;
    while (next < warm_up) mine.push_back({Action::Kind::forward, next++, d});
    while (next < micro_batches) {
      mine.push_back({Action::Kind::forward, next++, d});
      mine.push_back({Action::Kind::backward, back++, d});
    }
    while (back < micro_batches) mine.push_back({Action::Kind::backward, back++, d});
  }
  return work;
}
//// 04.2 by what is held
inline Work one_forward_one_backward(int devices, Index micro_batches) {
  Work work(static_cast<std::size_t>(devices));
  for (int d = 0; d < devices; ++d) {
    Index forwards = 0, backwards = 0;
    while (backwards < micro_batches) {
      const bool has_room = forwards - backwards < devices - d;
      if (forwards < micro_batches && has_room)
        work[static_cast<std::size_t>(d)].push_back({Action::Kind::forward, forwards++, d});
      else
        work[static_cast<std::size_t>(d)].push_back({Action::Kind::backward, backwards++, d});
    }
  }
  return work;
}
//// 04.2 a longer warm-up, then backward before forward
inline Work one_forward_one_backward(int devices, Index micro_batches) {
  Work work(static_cast<std::size_t>(devices));
  for (int d = 0; d < devices; ++d) {
    std::vector<Action>& mine = work[static_cast<std::size_t>(d)];
    const Index first = std::min<Index>(micro_batches, devices - d);
    for (Index m = 0; m < first; ++m) mine.push_back({Action::Kind::forward, m, d});
    for (Index m = 0; m < micro_batches; ++m) {
      mine.push_back({Action::Kind::backward, m, d});
      if (m + first < micro_batches) mine.push_back({Action::Kind::forward, m + first, d});
    }
  }
  return work;
}
//// 04.2 a helper, and lists that are put together
inline std::vector<Action> in_turns(int d, Index ahead, Index micro_batches) {
  std::vector<Action> list;
  for (Index i = 0; i < micro_batches + ahead; ++i) {
    if (i < micro_batches) list.push_back(Action{Action::Kind::forward, i, d});
    if (i >= ahead) list.push_back(Action{Action::Kind::backward, i - ahead, d});
  }
  return list;
}
inline Work one_forward_one_backward(int devices, Index micro_batches) {
  Work work;
  for (int d = 0; d < devices; ++d)
    work.push_back(in_turns(d, std::min<Index>(devices - d - 1, micro_batches), micro_batches));
  return work;
}
//// 04.2 a queue of what is held
inline Work one_forward_one_backward(int devices, Index micro_batches) {
  Work work;
  for (int d = 0; d < devices; ++d) {
    std::vector<Action> mine;
    std::vector<Index> held;
    for (Index m = 0; m < micro_batches; ++m) {
      mine.push_back({Action::Kind::forward, m, d});
      held.push_back(m);
      if (std::ssize(held) < devices - d) continue;
      mine.push_back({Action::Kind::backward, held.front(), d});
      held.erase(held.begin());
    }
    for (Index m : held) mine.push_back({Action::Kind::backward, m, d});
    work.push_back(std::move(mine));
  }
  return work;
}
//// 04.2 red: a micro-batch more is held
inline Work one_forward_one_backward(int devices, Index micro_batches) {
  Work work(static_cast<std::size_t>(devices));
  for (int d = 0; d < devices; ++d) {
    std::vector<Action>& mine = work[static_cast<std::size_t>(d)];
    const Index ahead = std::min<Index>(micro_batches, devices - d);
    for (Index m = 0; m < ahead; ++m) mine.push_back({Action::Kind::forward, m, d});
    for (Index m = 0; m < micro_batches; ++m) {
      if (m + ahead < micro_batches) mine.push_back({Action::Kind::forward, m + ahead, d});
      mine.push_back({Action::Kind::backward, m, d});
    }
  }
  return work;
}
//// 04.3 operands are moved out first
void backward_input(Index m, int s) override {
  std::vector<Owned> inputs = taken(kept_, {m, s});
  Owned d = take({Flow::gradient, m, s});
  std::vector<Half> mine;
  for (Index l = stages_.of(s).end - 1; l >= stages_.of(s).begin; --l) {
    Owned a = std::move(inputs.back());
    inputs.pop_back();
    Owned da = d_input(l, d, a);
    mine.push_back(Half{l, std::move(a), std::move(d)});
    d = std::move(da);
  }
  halves_[{m, s}] = std::move(mine);
  pass_back(m, s, std::move(d));
}
void backward_weights(Index m, int s) override {
  for (Half& half : taken(halves_, {m, s})) {
    const Owned a = std::move(half.a), d = std::move(half.d);
    accumulate(weight_grad(half.layer), matmul(transposed(a), d));
  }
}
//// 04.3 the first layers first
void backward_weights(Index m, int s) override {
  std::vector<Half> halves = taken(halves_, {m, s});
  while (!halves.empty()) {
    const Half& last = halves.back();
    accumulate(weight_grad(last.layer), matmul(transposed(last.a), last.d));
    halves.pop_back();
  }
}
//// 04.3 kept before it is used
void backward_input(Index m, int s) override {
  Owned d = take({Flow::gradient, m, s});
  std::vector<Owned> inputs = taken(kept_, {m, s});
  std::vector<Half>& halves = halves_[{m, s}];
  const Range layers = stages_.of(s);
  for (Index i = 0; i < layers.size(); ++i) {
    const Index l = layers.end - 1 - i;
    Half& half = halves.emplace_back(Half{l, std::move(inputs.back()), std::move(d)});
    inputs.pop_back();
    d = d_input(l, half.d, half.a);
  }
  pass_back(m, s, std::move(d));
}
void backward_weights(Index m, int s) override {
  std::vector<Half> halves = taken(halves_, {m, s});
  for (std::size_t i = 0; i < halves.size(); ++i) {
    Half half = std::move(halves[i]);
    Owned dw = matmul(transposed(half.a), half.d);
    half = Half();
    accumulate(weight_grad(halves[i].layer), std::move(dw));
  }
}
//// 04.3 a helper frees
void add_weights(auto half) {
  accumulate(weight_grad(half.layer), matmul(transposed(half.a), half.d));
}
void backward_weights(Index m, int s) override {
  auto halves = taken(halves_, {m, s});
  for (auto& half : halves) add_weights(std::move(half));
}
//// 04.3 as long as there are inputs
void backward_input(Index m, int s) override {
  Owned d = take({Flow::gradient, m, s});
  std::vector<Owned> inputs = taken(kept_, {m, s});
  std::vector<Half> mine;
  for (Index l = stages_.of(s).end - 1; !inputs.empty(); --l, inputs.pop_back()) {
    Owned da = d_input(l, d, inputs.back());
    mine.push_back({l, std::move(inputs.back()), std::exchange(d, std::move(da))});
  }
  halves_.emplace(std::pair(m, s), std::move(mine));
  pass_back(m, s, std::move(d));
}
void backward_weights(Index m, int s) override {
  auto halves = taken(halves_, {m, s});
  for (auto half = halves.begin(); half != halves.end(); ++half) {
    Owned dw = matmul(transposed(half->a), half->d);
    half->a = {}, half->d = {};
    accumulate(weight_grad(half->layer), std::move(dw));
  }
}
//// 04.3 red: operands live to the end
void backward_weights(Index m, int s) override {
  std::vector<Half> halves = taken(halves_, {m, s});
  for (const auto& [l, a, d] : halves) accumulate(weight_grad(l), matmul(transposed(a), d));
}
