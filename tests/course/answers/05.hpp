//// 05.1 what is left of all experts
inline RoutedCounts give_slots(std::vector<Index> chosen, int devices, Index top_k, Index num_experts,
                               Index capacity) {
  std::vector<Index> left(static_cast<std::size_t>(num_experts), capacity);
  std::vector<Index> kept(chosen.size(), 0);
  for (Index r = 0; r < top_k; ++r) {
    for (int d = 0; d < devices; ++d) {
      for (Index e = 0; e < num_experts; ++e) {
        const auto i = static_cast<std::size_t>((d * top_k + r) * num_experts + e);
        Index& free = left[static_cast<std::size_t>(e)];
        kept[i] = chosen[i] < free ? chosen[i] : free;
        free -= kept[i];
      }
    }
  }
  return RoutedCounts{devices, top_k, num_experts, std::move(chosen), std::move(kept)};
}
//// 05.1 what is used
inline RoutedCounts give_slots(std::vector<Index> chosen, int devices, Index top_k, Index num_experts,
                               Index capacity) {
  RoutedCounts counts;
  counts.devices = devices;
  counts.top_k = top_k;
  counts.num_experts = num_experts;
  counts.chosen = chosen;
  counts.kept = chosen;
  for (Index e = 0; e < num_experts; ++e) {
    Index used = 0;
    for (Index r = 0; r < top_k; ++r)
      for (Index d = 0; d < devices; ++d) {
        Index& kept = counts.kept[static_cast<std::size_t>((d * top_k + r) * num_experts + e)];
        if (used + kept > capacity) kept = capacity - used;
        used += kept;
      }
  }
  return counts;
}
//// 05.1 one by one
inline RoutedCounts give_slots(std::vector<Index> chosen, int devices, Index top_k, Index num_experts,
                               Index capacity) {
  RoutedCounts counts{devices, top_k, num_experts, std::move(chosen), {}};
  counts.kept.assign(counts.chosen.size(), 0);
  std::vector<Index> used(static_cast<std::size_t>(num_experts));
  for (Index rank = 0; rank < top_k; ++rank)
    for (int device = 0; device < devices; ++device)
      for (Index expert = 0; expert < num_experts; ++expert)
        for (Index i = 0; i < counts.at(counts.chosen, device, rank, expert); ++i)
          if (used[std::size_t(expert)] < capacity) {
            ++used[std::size_t(expert)];
            ++counts.kept[std::size_t((device * top_k + rank) * num_experts + expert)];
          }
  return counts;
}
//// 05.1 sums of those before
inline Index before(const std::vector<Index>& chosen, int devices, Index top_k, Index num_experts, Index rank,
                    int device, Index expert) {
  Index sum = 0;
  for (Index r = 0; r <= rank; ++r)
    for (int d = 0; d < (r < rank ? devices : device); ++d)
      sum += chosen[static_cast<std::size_t>((d * top_k + r) * num_experts + expert)];
  return sum;
}
inline RoutedCounts give_slots(std::vector<Index> chosen, int devices, Index top_k, Index num_experts,
                               Index capacity) {
  std::vector<Index> kept;
  for (int d = 0; d < devices; ++d)
    for (Index r = 0; r < top_k; ++r)
      for (Index e = 0; e < num_experts; ++e) {
        const Index free =
            std::max<Index>(0, capacity - before(chosen, devices, top_k, num_experts, r, d, e));
        kept.push_back(std::min(free, chosen[kept.size()]));
      }
  return {devices, top_k, num_experts, std::move(chosen), std::move(kept)};
}
//// 05.1 std::clamp, and a lambda for places
inline RoutedCounts give_slots(std::vector<Index> chosen, int devices, Index top_k, Index num_experts,
                               Index capacity) {
  RoutedCounts counts{devices, top_k, num_experts, std::move(chosen), {}};
  counts.kept = std::vector<Index>(static_cast<std::size_t>(devices * top_k * num_experts));
  auto place = [&](Index d, Index r, Index e) {
    return static_cast<std::size_t>(d * top_k * num_experts + r * num_experts + e);
  };
  for (Index e = num_experts - 1; e >= 0; --e)
    for (Index i = 0, free = capacity; i < top_k * devices; ++i) {
      const Index r = i / devices, d = i % devices;
      const Index kept = std::clamp<Index>(counts.chosen[place(d, r, e)], 0, free);
      counts.kept[place(d, r, e)] = kept;
      free -= kept;
    }
  return counts;
}
//// 05.2 other names, each step by itself
Placed forward(Tensor input) override {
  Sharded<0> x = my_rows(std::move(input));
  const Sharded<0> logits = matmul(x, router_);
  Choices choices = choose(logits.local().clone(), rule_);
  const Index experts = model_.num_experts;
  std::vector<Index> mine = count_choices(choices.experts, rule_.top_k, experts);
  std::vector<Index> of_all = all_gather(mine);
  const Index capacity = rule_.capacity(x.global_shape()[0], experts);
  counts_ = give_slots(of_all, num_devices(), rule_.top_k, experts, capacity);
  Route route = make_route(counts_, device_id());
  Plan plan = make_plan(choices.experts, counts_, device_id());
  std::vector<std::vector<Owned>> inputs(static_cast<std::size_t>(experts));
  Tensor arrived = all_to_all(gather_rows(x.local(), plan.tokens), route.to);
  Tensor answers = forward_experts(std::move(arrived), route, inputs);
  Tensor y = all_to_all(std::move(answers), route.from);
  Tensor combined = combine_rows(y, plan.slots, choices.gates);
  Sharded<0> out = my_rows(std::move(combined), x);
  Kept kept{std::move(x),     std::move(choices), counts_,     std::move(plan),
            std::move(route), std::move(inputs),  std::move(y)};
  tape_.push(std::move(kept));
  return out;
}
//// 05.2 what is kept comes first
Placed forward(Tensor input) override {
  Kept kept;
  kept.x = my_rows(std::move(input));
  kept.choices = choose(matmul(kept.x, router_).local(), rule_);
  const Index k = rule_.top_k, E = model_.num_experts, B = kept.x.global_shape()[0];
  kept.counts = give_slots(all_gather(count_choices(kept.choices.experts, k, E)), num_devices(), k, E,
                           rule_.capacity(B, E));
  counts_ = kept.counts;
  kept.plan = make_plan(kept.choices.experts, kept.counts, device_id());
  kept.route = make_route(kept.counts, device_id());
  kept.inputs.resize(experts_.size());
  Tensor t = gather_rows(kept.x.local(), kept.plan.tokens);
  t = all_to_all(std::move(t), kept.route.to);
  t = forward_experts(std::move(t), kept.route, kept.inputs);
  kept.y = all_to_all(std::move(t), kept.route.from);
  Sharded<0> out = my_rows(combine_rows(kept.y, kept.plan.slots, kept.choices.gates), kept.x);
  tape_.push(std::move(kept));
  return out;
}
//// 05.2 a helper asks the experts
Tensor answers_of(Tensor tokens, const Route& route, std::vector<std::vector<Owned>>& inputs) {
  tokens = all_to_all(std::move(tokens), route.to);
  tokens = forward_experts(std::move(tokens), route, inputs);
  return all_to_all(std::move(tokens), route.from);
}
Placed forward(Tensor input) override {
  Sharded<0> x = my_rows(std::move(input));
  Choices choices = choose(matmul(x, router_).local(), rule_);
  counts_ =
      give_slots(all_gather(count_choices(choices.experts, rule_.top_k, model_.num_experts)), num_devices(),
                 rule_.top_k, model_.num_experts, rule_.capacity(x.global_shape()[0], model_.num_experts));
  Plan plan = make_plan(choices.experts, counts_, device_id());
  Route route = make_route(counts_, device_id());
  std::vector<std::vector<Owned>> inputs(experts_.size());
  Tensor y = answers_of(gather_rows(x.local(), plan.tokens), route, inputs);
  Sharded<0> out = my_rows(combine_rows(y, plan.slots, choices.gates), x);
  tape_.push({std::move(x), std::move(choices), counts_, std::move(plan), std::move(route), std::move(inputs),
              std::move(y)});
  return out;
}
//// 05.2 slots are given by the group's own all-gather
Placed forward(Tensor input) override {
  Sharded<0> x = my_rows(std::move(input));
  Choices choices = choose(matmul(x, router_).local(), rule_);
  const auto [B, k, E] = std::array<Index, 3>{x.global_shape()[0], rule_.top_k, model_.num_experts};
  const std::vector<Index> mine = count_choices(choices.experts, k, E);
  std::vector<Index> all = all_gather(mine);
  counts_ = give_slots(std::move(all), num_devices(), k, E, rule_.capacity(B, E));
  const int me = device_id();
  auto plan = make_plan(choices.experts, counts_, me);
  auto route = make_route(counts_, me);
  std::vector<std::vector<Owned>> inputs(experts_.size());
  Tensor leaving = gather_rows(x.local(), plan.tokens);
  Tensor arriving = all_to_all(std::move(leaving), route.to);
  Tensor answers = all_to_all(forward_experts(std::move(arriving), route, inputs), route.from);
  Sharded<0> out = my_rows(combine_rows(answers, plan.slots, choices.gates), x);
  tape_.push({std::move(x), std::move(choices), counts_, std::move(plan), std::move(route), std::move(inputs),
              std::move(answers)});
  return out;
}
//// 05.2 tokens are sent as a copy
Placed forward(Tensor input) override {
  Sharded<0> x = my_rows(std::move(input));
  Choices choices = choose(matmul(x, router_).local(), rule_);
  const Index B = x.global_shape()[0], k = rule_.top_k, E = model_.num_experts;
  counts_ =
      give_slots(all_gather(count_choices(choices.experts, k, E)), num_devices(), k, E, rule_.capacity(B, E));
  Plan plan = make_plan(choices.experts, counts_, device_id());
  Route route = make_route(counts_, device_id());
  Tensor tokens = gather_rows(x.local(), plan.tokens);
  Tensor arrived = all_to_all(tokens.clone(), route.to);
  std::vector<std::vector<Owned>> inputs(experts_.size());
  Tensor worked = forward_experts(arrived.clone(), route, inputs);
  Tensor y = all_to_all(worked.clone(), route.from);
  Sharded<0> out = my_rows(combine_rows(y, plan.slots, choices.gates), x);
  tape_.push({std::move(x), std::move(choices), counts_, std::move(plan), std::move(route), std::move(inputs),
              std::move(y)});
  return out;
}
//// 05.3 two functions
inline Tensor of_one(const Tensor& dgates, const Choices& c, const std::vector<float>& balance) {
  Tensor dp = put_columns(dgates, c.experts, c.probabilities.extent(1));
  dp = add_to_rows(std::move(dp), balance);
  return softmax_backward(std::move(dp), c.probabilities);
}
inline Tensor choose_backward(Tensor dgates, const Choices& c, const std::vector<float>& balance) {
  if (c.gates.extent(1) == 1) return of_one(dgates, c, balance);
  const Tensor dchosen = softmax_backward(std::move(dgates), c.gates);
  Tensor of_balance =
      softmax_backward(add_to_rows(Tensor(c.probabilities.shape()), balance), c.probabilities);
  return add(std::move(of_balance), put_columns(dchosen, c.experts, c.probabilities.extent(1)));
}
//// 05.3 the balance by itself
inline Tensor choose_backward(Tensor dgates, const Choices& c, const std::vector<float>& balance) {
  const Index num_experts = c.probabilities.extent(1);
  Tensor dbalance = add_to_rows(Tensor(c.probabilities.shape()), balance);
  dbalance = softmax_backward(std::move(dbalance), c.probabilities);
  Tensor dlogits;
  if (c.gates.extent(1) > 1)
    dlogits = put_columns(softmax_backward(std::move(dgates), c.gates), c.experts, num_experts);
  else
    dlogits = softmax_backward(put_columns(dgates, c.experts, num_experts), c.probabilities);
  return add(std::move(dlogits), dbalance);
}
//// 05.3 several first
inline Tensor choose_backward(Tensor dgates, const Choices& c, const std::vector<float>& balance) {
  const bool has_several = c.gates.extent(1) > 1;
  if (has_several) dgates = softmax_backward(std::move(dgates), c.gates);
  Tensor of_chosen = put_columns(dgates, c.experts, c.probabilities.extent(1));
  Tensor dp = has_several ? Tensor(c.probabilities.shape()) : std::move(of_chosen);
  dp = softmax_backward(add_to_rows(std::move(dp), balance), c.probabilities);
  return has_several ? add(std::move(dp), of_chosen) : std::move(dp);
}
//// 05.3 the balance as a tensor
inline Tensor choose_backward(Tensor dgates, const Choices& c, const std::vector<float>& balance) {
  const Index b = c.probabilities.extent(0), E = c.probabilities.extent(1);
  std::vector<float> values;
  for (Index i = 0; i < b; ++i) values.insert(values.end(), balance.begin(), balance.end());
  Tensor dp = Tensor::from_host({b, E}, values);
  if (c.gates.extent(1) == 1) {
    dp = add(std::move(dp), put_columns(dgates, c.experts, E));
    return softmax_backward(std::move(dp), c.probabilities);
  }
  Tensor dlogits = softmax_backward(std::move(dp), c.probabilities);
  dgates = softmax_backward(std::move(dgates), c.gates);
  return add(std::move(dlogits), put_columns(dgates, c.experts, E));
}
//// 05.3 a sum of two tensors
inline Tensor choose_backward(Tensor dgates, const Choices& c, const std::vector<float>& balance) {
  const Tensor& p = c.probabilities;
  Tensor dp = add_to_rows(Tensor(p.shape()), balance);
  if (c.gates.extent(1) == 1)
    return softmax_backward(add(std::move(dp), put_columns(dgates, c.experts, p.extent(1))), p);
  dp = softmax_backward(std::move(dp), p);
  const Tensor of_gates = softmax_backward(std::move(dgates), c.gates);
  return add(std::move(dp), put_columns(of_gates, c.experts, p.extent(1)));
}
