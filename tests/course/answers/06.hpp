//// 06.1 by index, in ascending order
void after_step() override {
  for (std::size_t l = 0; l < weights_.size(); ++l) {
    Sharded<0> updated = shard<0>(weights_[l]);
    weights_[l] = Replicated();
    weights_[l] = as_parameter(all_gather(std::move(updated)));
  }
}
Gradients reduce(std::vector<Partial> dw, Sharded<0> dx) {
  Gradients gradients;
  for (std::size_t l = 0; l < dw.size(); ++l) {
    Sharded<0> mine = reduce_scatter<0>(std::move(dw[l]));
    gradients.put(layer_name(l), std::move(mine));
  }
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(dx));
  return gradients;
}
//// 06.1 without as_parameter
void after_step() override {
  for (Replicated& w : weights_) {
    Sharded<0> mine = shard<0>(std::exchange(w, {}));
    w = all_gather(std::move(mine));
  }
}
//// 06.1 red: all reductions in flight
Gradients reduce(std::vector<Partial> dw, Sharded<0> dx) {
  std::vector<Future<Sharded<0>>> sums;
  for (Partial& addend : dw) sums.push_back(reduce_scatter_async<0>(std::move(addend)));
  Gradients gradients;
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(dx));
  for (std::size_t l = 0; l < sums.size(); ++l) gradients.put(layer_name(l), sums[l].get());
  return gradients;
}
//// 06.1 a helper for a matrix
Replicated whole_again(Replicated old) {
  Sharded<0> mine = shard<0>(old);
  old = Replicated();
  return as_parameter(all_gather(std::move(mine)));
}
void after_step() override {
  for (auto w = weights_.rbegin(); w != weights_.rend(); ++w) *w = whole_again(std::move(*w));
}
Gradients reduce(std::vector<Partial> dw, Sharded<0> dx) {
  Gradients gradients;
  for (; !dw.empty(); dw.pop_back())
    gradients.put(layer_name(dw.size() - 1), reduce_scatter<0>(std::move(dw.back())));
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(dx));
  return gradients;
}
//// 06.1 dL/dx is put in first
void after_step() override {
  std::size_t l = weights_.size();
  while (l-- > 0) {
    Sharded<0> mine = shard<0>(weights_[l]);
    weights_[l] = Replicated();
    Replicated whole = all_gather(std::move(mine));
    weights_[l] = as_parameter(std::move(whole));
  }
}
Gradients reduce(std::vector<Partial> dw, Sharded<0> dx) {
  Gradients gradients;
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(dx));
  std::size_t l = 0;
  for (Partial& addend : dw) gradients.put(layer_name(l++), reduce_scatter<0>(std::move(addend)));
  return gradients;
}
//// 06.1 futures that are awaited at once
void after_step() override {
  for (auto& w : weights_) {
    auto mine = shard<0>(w);
    w = {};
    Future<Replicated> whole = all_gather_async(std::move(mine));
    w = as_parameter(whole.get());
  }
}
Gradients reduce(std::vector<Partial> dw, Sharded<0> dx) {
  Gradients gradients;
  for (std::size_t l = dw.size(); l > 0; --l) {
    Future<Sharded<0>> mine = reduce_scatter_async<0>(std::move(dw[l - 1]));
    gradients.put(layer_name(l - 1), mine.get());
  }
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(dx));
  return gradients;
}
//// 06.1 red: the old matrix lives on
void after_step() override {
  for (Replicated& w : weights_) {
    Sharded<0> mine = shard<0>(w);
    w = as_parameter(all_gather(std::move(mine)));
  }
}
//// 06.2 red: dL/da first
Sharded<0> backward_rows(Tensor dout, std::vector<Sharded<0>>& dw) {
  auto [inputs] = tape_.pop();
  Sharded<0> d = my_rows(std::move(dout), inputs[0]);
  for (std::size_t l = weights_.size(); l-- > 0;) {
    Sharded<0> a = std::move(inputs[l]);
    inputs.pop_back();
    Sharded<0> da;
    if (l > 0 || wants_input_grad()) {
      da = matmul(d, transposed(weights_[l]));
      if (relu_before(l)) da = relu_backward(std::move(da), a);
    }
    Sharded<0> mine = reduce_scatter<0>(matmul(transposed(a), d));
    accumulate(dw[l], std::move(mine));
    d = std::move(da);
  }
  return d;
}
void after_step() override {
  for (std::size_t l = weights_.size(); l-- > 0;) {
    Sharded<0> mine = shard<0>(weights_[l]);
    weights_[l] = {};
    weights_[l] = as_parameter(all_gather(std::move(mine)));
  }
}
//// 06.2 an if in the place of accumulate
Sharded<0> backward_rows(Tensor dout, std::vector<Sharded<0>>& dw) {
  std::vector<Sharded<0>> inputs = std::get<0>(tape_.pop());
  Sharded<0> d = my_rows(std::move(dout), inputs.front());
  for (std::size_t l = weights_.size(); l-- > 0; inputs.pop_back()) {
    Sharded<0> mine = reduce_scatter<0>(matmul(transposed(inputs.back()), d));
    if (dw[l].is_empty())
      dw[l] = std::move(mine);
    else
      dw[l] = std::move(dw[l]) + mine;
    if (l == 0 && !wants_input_grad()) return {};
    d = matmul(d, transposed(weights_[l]));
    if (relu_before(l)) d = relu_backward(std::move(d), inputs.back());
  }
  return d;
}
//// 06.2 the sum is awaited at once
Sharded<0> backward_rows(Tensor dout, std::vector<Sharded<0>>& dw) {
  auto [inputs] = tape_.pop();
  Sharded<0> d = my_rows(std::move(dout), inputs[0]);
  for (std::size_t l = weights_.size(); l-- > 0; inputs.pop_back()) {
    Future<Sharded<0>> sum = reduce_scatter_async<0>(matmul(transposed(inputs[l]), d));
    accumulate(dw[l], sum.get());
    if (l > 0 || wants_input_grad()) d = matmul(d, transposed(weights_[l]));
    if (relu_before(l)) d = relu_backward(std::move(d), inputs[l]);
  }
  if (!wants_input_grad()) return Sharded<0>();
  return d;
}
void after_step() override {
  auto whole_again = [this](Replicated& w) {
    auto mine = shard<0>(w);
    w = Replicated();
    w = as_parameter(all_gather(std::move(mine)));
  };
  for (auto& w : weights_) whole_again(w);
}
//// 06.2 a helper, and layer 0 by itself
void keep_mine(Sharded<0>& sum, const Sharded<0>& a, const Sharded<0>& d) {
  Partial addend = matmul(transposed(a), d);
  accumulate(sum, reduce_scatter<0>(std::move(addend)));
}
Sharded<0> backward_rows(Tensor dout, std::vector<Sharded<0>>& dw) {
  auto [inputs] = tape_.pop();
  Sharded<0> d = my_rows(std::move(dout), inputs[0]);
  for (std::size_t l = weights_.size() - 1; l > 0; --l) {
    keep_mine(dw[l], inputs[l], d);
    d = matmul(d, transposed(weights_[l]));
    if (relu_before(l)) d = relu_backward(std::move(d), inputs[l]);
    inputs.pop_back();
  }
  keep_mine(dw[0], inputs[0], d);
  return wants_input_grad() ? matmul(d, transposed(weights_[0])) : Sharded<0>();
}
//// 06.2 as long as there are inputs
Sharded<0> backward_rows(Tensor dout, std::vector<Sharded<0>>& dw) {
  auto [inputs] = tape_.pop();
  Sharded<0> d = my_rows(std::move(dout), inputs[0]);
  while (!inputs.empty()) {
    const std::size_t l = inputs.size() - 1;
    {
      Partial addend = matmul(transposed(inputs[l]), d);
      Sharded<0> mine = reduce_scatter<0>(std::move(addend));
      accumulate(dw[l], std::move(mine));
    }
    if (l > 0 || wants_input_grad()) {
      Sharded<0> da = matmul(d, transposed(weights_[l]));
      d = relu_before(l) ? relu_backward(std::move(da), inputs[l]) : std::move(da);
    }
    inputs.pop_back();
  }
  if (wants_input_grad()) return d;
  return {};
}
//// 06.2 a signed counter, and matrices from the last one
Sharded<0> backward_rows(Tensor dout, std::vector<Sharded<0>>& dw) {
  std::vector<Sharded<0>> inputs = std::get<0>(tape_.pop());
  Sharded<0> d = my_rows(std::move(dout), inputs.front());
  for (Index i = static_cast<Index>(weights_.size()) - 1; i >= 0; --i) {
    const auto l = static_cast<std::size_t>(i);
    const Sharded<0> a = std::move(inputs.back());
    inputs.pop_back();
    accumulate(dw[l], reduce_scatter<0>(matmul(transposed(a), d)));
    if (i == 0 && !wants_input_grad()) return Sharded<0>();
    d = matmul(d, transposed(weights_[l]));
    if (relu_before(l)) d = relu_backward(std::move(d), a);
  }
  return d;
}
void after_step() override {
  for (auto w = weights_.rbegin(); w != weights_.rend(); ++w) {
    Sharded<0> updated = shard<0>(*w);
    *w = Replicated();
    Replicated whole = all_gather(std::move(updated));
    *w = as_parameter(std::move(whole));
  }
}
//// 06.2 red: addends are reduced at the end
Sharded<0> backward_rows(Tensor dout, std::vector<Sharded<0>>& dw) {
  auto [inputs] = tape_.pop();
  Sharded<0> d = my_rows(std::move(dout), inputs[0]);
  std::vector<Partial> addends(weights_.size());
  for (std::size_t l = weights_.size(); l-- > 0; inputs.pop_back()) {
    addends[l] = matmul(transposed(inputs[l]), d);
    if (l > 0 || wants_input_grad()) d = matmul(d, transposed(weights_[l]));
    if (relu_before(l)) d = relu_backward(std::move(d), inputs[l]);
  }
  for (std::size_t l = weights_.size(); l-- > 0;) accumulate(dw[l], reduce_scatter<0>(std::move(addends[l])));
  return wants_input_grad() ? std::move(d) : Sharded<0>();
}
//// 06.3 gathered within the product
Placed forward_rows(Sharded<0> a) {
  std::vector<Sharded<0>> inputs;
  for (std::size_t l = 0; l < shards_.size(); ++l) {
    if (relu_before(l)) a = relu(std::move(a));
    Sharded<0> out = matmul(a, all_gather_factor(shards_[l]));
    inputs.push_back(std::move(a));
    a = std::move(out);
  }
  tape_.push(std::move(inputs));
  return a;
}
Sharded<0> backward_rows(Tensor dout, std::vector<Sharded<0>>& dw) {
  auto [inputs] = tape_.pop();
  Sharded<0> d = my_rows(std::move(dout), inputs[0]);
  for (std::size_t l = shards_.size(); l-- > 0; inputs.pop_back()) {
    accumulate(dw[l], reduce_scatter<0>(matmul(transposed(inputs[l]), d)));
    if (l == 0 && !wants_input_grad()) return {};
    d = matmul(d, transposed(all_gather_factor(shards_[l])));
    if (relu_before(l)) d = relu_backward(std::move(d), inputs[l]);
  }
  return d;
}
//// 06.3 with all_gather
Placed forward_rows(Sharded<0> a) {
  std::vector<Sharded<0>> inputs;
  for (std::size_t l = 0; l < shards_.size(); ++l) {
    if (relu_before(l)) a = relu(std::move(a));
    inputs.push_back(std::move(a));
    Replicated w = all_gather(shards_[l]);
    a = matmul(inputs.back(), w);
  }
  tape_.push(std::move(inputs));
  return a;
}
//// 06.3 red: dL/da first, the gradient then
Sharded<0> backward_rows(Tensor dout, std::vector<Sharded<0>>& dw) {
  auto [inputs] = tape_.pop();
  Sharded<0> d = my_rows(std::move(dout), inputs[0]);
  for (std::size_t l = shards_.size(); l-- > 0; inputs.pop_back()) {
    const Sharded<0>& a = inputs[l];
    Sharded<0> da;
    if (l > 0 || wants_input_grad()) {
      ReplicatedFactor w = all_gather_factor(shards_[l]);
      da = matmul(d, transposed(w));
      w = ReplicatedFactor();
      if (relu_before(l)) da = relu_backward(std::move(da), a);
    }
    accumulate(dw[l], reduce_scatter<0>(matmul(transposed(a), d)));
    d = std::move(da);
  }
  return wants_input_grad() ? std::move(d) : Sharded<0>();
}
//// 06.3 helpers
Sharded<0> times_whole(const Sharded<0>& a, std::size_t l) {
  const ReplicatedFactor w = all_gather_factor(shards_[l]);
  return matmul(a, w);
}
Placed forward_rows(Sharded<0> a) {
  std::vector<Sharded<0>> inputs(shards_.size());
  for (std::size_t l = 0; l < shards_.size(); ++l) {
    inputs[l] = relu_before(l) ? relu(std::move(a)) : std::move(a);
    a = times_whole(inputs[l], l);
  }
  tape_.push(std::move(inputs));
  return a;
}
void add_mine(Sharded<0>& sum, Partial addend) {
  accumulate(sum, reduce_scatter<0>(std::move(addend)));
}
Sharded<0> backward_rows(Tensor dout, std::vector<Sharded<0>>& dw) {
  auto [inputs] = tape_.pop();
  Sharded<0> d = my_rows(std::move(dout), inputs[0]);
  for (auto l = static_cast<Index>(shards_.size()) - 1; l >= 0; --l) {
    const auto layer = static_cast<std::size_t>(l);
    add_mine(dw[layer], matmul(transposed(inputs[layer]), d));
    if (l == 0 && !wants_input_grad()) break;
    {
      ReplicatedFactor w = all_gather_factor_async(shards_[layer]).get();
      d = matmul(d, transposed(w));
    }
    if (relu_before(layer)) d = relu_backward(std::move(d), inputs[layer]);
    inputs.pop_back();
  }
  return wants_input_grad() ? std::move(d) : Sharded<0>();
}
//// 06.3 scopes free the weights
Placed forward_rows(Sharded<0> a) {
  std::vector<Sharded<0>> inputs;
  std::size_t l = 0;
  for (const Sharded<0>& shard_of_w : shards_) {
    if (relu_before(l++)) a = relu(std::move(a));
    Sharded<0> out;
    {
      ReplicatedFactor w = all_gather_factor(shard_of_w);
      out = matmul(a, w);
    }
    inputs.push_back(std::exchange(a, std::move(out)));
  }
  tape_.push(std::move(inputs));
  return a;
}
Sharded<0> backward_rows(Tensor dout, std::vector<Sharded<0>>& dw) {
  auto [inputs] = tape_.pop();
  Sharded<0> d = my_rows(std::move(dout), inputs[0]);
  while (!inputs.empty()) {
    const std::size_t l = inputs.size() - 1;
    {
      Sharded<0> mine = reduce_scatter<0>(matmul(transposed(inputs[l]), d));
      accumulate(dw[l], std::move(mine));
    }
    if (l > 0 || wants_input_grad()) {
      ReplicatedFactor w = all_gather_factor(shards_[l]);
      d = matmul(d, transposed(w));
    }
    if (relu_before(l)) d = relu_backward(std::move(d), inputs[l]);
    inputs.pop_back();
  }
  if (!wants_input_grad()) return {};
  return d;
}
//// 06.3 futures that are awaited at once, and layer 0 by itself
Placed forward_rows(Sharded<0> a) {
  std::vector<Sharded<0>> inputs(shards_.size());
  for (std::size_t l = 0; l != shards_.size(); l++) {
    if (relu_before(l)) a = relu(std::move(a));
    inputs[l] = std::move(a);
    a = matmul(inputs[l], all_gather_factor_async(shards_[l]).get());
  }
  tape_.push(std::move(inputs));
  return a;
}
Sharded<0> backward_rows(Tensor dout, std::vector<Sharded<0>>& dw) {
  auto [inputs] = tape_.pop();
  Sharded<0> d = my_rows(std::move(dout), inputs[0]);
  for (std::size_t l = shards_.size() - 1; l > 0; --l) {
    Future<Sharded<0>> mine = reduce_scatter_async<0>(matmul(transposed(inputs[l]), d));
    accumulate(dw[l], mine.get());
    d = matmul(d, transposed(all_gather_factor_async(shards_[l]).get()));
    if (relu_before(l)) d = relu_backward(std::move(d), inputs[l]);
    inputs.pop_back();
  }
  accumulate(dw[0], reduce_scatter<0>(matmul(transposed(inputs[0]), d)));
  if (!wants_input_grad()) return {};
  return matmul(d, transposed(all_gather_factor(shards_[0])));
}
//// 06.3 red: weights and gradient at once
Sharded<0> backward_rows(Tensor dout, std::vector<Sharded<0>>& dw) {
  auto [inputs] = tape_.pop();
  Sharded<0> d = my_rows(std::move(dout), inputs[0]);
  for (std::size_t l = shards_.size(); l-- > 0; inputs.pop_back()) {
    const Sharded<0>& a = inputs[l];
    ReplicatedFactor w;
    if (l > 0 || wants_input_grad()) w = all_gather_factor(shards_[l]);
    accumulate(dw[l], reduce_scatter<0>(matmul(transposed(a), d)));
    if (l > 0 || wants_input_grad()) d = matmul(d, transposed(w));
    if (relu_before(l)) d = relu_backward(std::move(d), a);
  }
  return wants_input_grad() ? std::move(d) : Sharded<0>();
}
