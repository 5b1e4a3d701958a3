//// 03.1 product and ReLU apart
Placed forward(Tensor input) override {
  std::vector<Kept> kept;
  Replicated x(group(), std::move(input));
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    Sharded<1> z = matmul(x, blocks_[i].w0);
    Sharded<1> h = relu(std::move(z));
    Replicated out = all_reduce(matmul(h, blocks_[i].w1));
    kept.push_back(Kept{std::move(x), std::move(h)});
    x = std::move(out);
  }
  tape_.push(std::move(kept));
  return x;
}
//// 03.1 kept first, used from there
Placed forward(Tensor input) override {
  Replicated x(group(), std::move(input));
  std::vector<Kept> kept;
  kept.reserve(blocks_.size());
  for (const auto& [w0, w1] : blocks_) {
    Kept& mine = kept.emplace_back();
    mine.x = std::move(x);
    mine.h = relu(matmul(mine.x, w0));
    x = all_reduce(matmul(mine.h, w1));
  }
  tape_.push(std::move(kept));
  return x;
}
//// 03.1 a helper for a block
Sharded<1> hidden(const auto& block, const Replicated& x) {
  Sharded<1> z = matmul(x, block.w0);
  return relu(std::move(z));
}
Placed forward(Tensor input) override {
  Replicated x(group(), std::move(input));
  std::vector<Kept> all;
  for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
    Sharded<1> h = hidden(*block, x);
    all.push_back({std::move(x), std::move(h)});
    Partial addend = matmul(all.back().h, block->w1);
    x = all_reduce(std::move(addend));
  }
  tape_.push(std::move(all));
  return x;
}
//// 03.1 the sum is awaited later
Placed forward(Tensor input) override {
  Replicated x(group(), std::move(input));
  std::vector<Kept> kept;
  for (const Block& block : blocks_) {
    Sharded<1> h = relu(matmul(x, block.w0));
    Future<Replicated> out = all_reduce_async(matmul(h, block.w1));
    kept.push_back({std::move(x), std::move(h)});
    x = out.get();
  }
  tape_.push(std::move(kept));
  return x;
}
//// 03.1 places that are filled
Placed forward(Tensor input) override {
  std::vector<Kept> kept(blocks_.size());
  Replicated x(group(), std::move(input));
  for (std::size_t i = 0; i < kept.size(); ++i) {
    kept[i].h = relu(matmul(x, blocks_[i].w0));
    Partial out = matmul(kept[i].h, blocks_[i].w1);
    kept[i].x = std::move(x);
    x = all_reduce(std::move(out));
  }
  tape_.push(std::move(kept));
  return x;
}
//// 03.1 red: a copy of each input is kept
Placed forward(Tensor input) override {
  Replicated x(group(), std::move(input));
  std::vector<Kept> kept;
  for (const Block& block : blocks_) {
    Sharded<1> h = relu(matmul(x, block.w0));
    Partial out = matmul(h, block.w1);
    kept.push_back({Replicated(group(), x.local().clone()), std::move(h)});
    x = all_reduce(std::move(out));
  }
  tape_.push(std::move(kept));
  return x;
}
//// 03.2 dz first, then the gradients
Gradients backward(Tensor dout) override {
  auto [kept] = tape_.pop();
  Replicated d(group(), std::move(dout));
  Gradients gradients;
  for (Index i = num_blocks(); i-- > 0;) {
    Kept here = std::move(kept.back());
    kept.pop_back();
    const auto& [w0, w1] = blocks_[static_cast<std::size_t>(i)];
    Sharded<1> dz = relu_backward(matmul(d, transposed(w1)), here.h);
    gradients.put(layer_name(2 * i + 1), matmul(transposed(here.h), d));
    gradients.put(layer_name(2 * i), matmul(transposed(here.x), dz));
    if (i > 0 || wants_input_grad()) d = all_reduce(matmul(dz, transposed(w0)));
  }
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 03.2 dL/dx travels meanwhile
Gradients backward(Tensor dout) override {
  auto [kept] = tape_.pop();
  Replicated d(group(), std::move(dout));
  Gradients gradients;
  for (Index i = num_blocks() - 1; i >= 0; --i, kept.pop_back()) {
    const Kept& here = kept.back();
    const Block& block = blocks_[static_cast<std::size_t>(i)];
    gradients.put(layer_name(2 * i + 1), matmul(transposed(here.h), d));
    Sharded<1> dz = relu_backward(matmul(d, transposed(block.w1)), here.h);
    Future<Replicated> sum;
    if (i > 0 || wants_input_grad()) sum = all_reduce_async(matmul(dz, transposed(block.w0)));
    gradients.put(layer_name(2 * i), matmul(transposed(here.x), dz));
    if (i > 0 || wants_input_grad()) d = sum.get();
  }
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 03.2 a helper, and the last block by itself
Sharded<1> of_block(std::size_t i, const auto& kept, const Replicated& d, Gradients& gradients) {
  gradients.put(layer_name(2 * i + 1), matmul(transposed(kept.h), d));
  Sharded<1> dh = matmul(d, transposed(blocks_[i].w1));
  dh = relu_backward(std::move(dh), kept.h);
  gradients.put(layer_name(2 * i), matmul(transposed(kept.x), dh));
  return dh;
}
Gradients backward(Tensor dout) override {
  auto [kept] = tape_.pop();
  Gradients gradients;
  Replicated d(group(), std::move(dout));
  for (std::size_t i = blocks_.size() - 1; i > 0; --i) {
    Sharded<1> dz = of_block(i, kept[i], d, gradients);
    kept.pop_back();
    d = all_reduce(matmul(dz, transposed(blocks_[i].w0)));
  }
  Sharded<1> dz = of_block(0, kept[0], d, gradients);
  if (wants_input_grad())
    gradients.put(Gradients::input_grad, all_reduce(matmul(dz, transposed(blocks_[0].w0))));
  return gradients;
}
//// 03.2 scopes free what is used up
Gradients backward(Tensor dout) override {
  auto [kept] = tape_.pop();
  Replicated d(group(), std::move(dout));
  Gradients gradients;
  for (Index i = num_blocks() - 1; i >= 0; --i) {
    const Block& block = blocks_[static_cast<std::size_t>(i)];
    Sharded<1> dz;
    {
      Sharded<1> h = std::move(kept.back().h);
      gradients.put(layer_name(2 * i + 1), matmul(transposed(h), d));
      dz = relu_backward(matmul(d, transposed(block.w1)), h);
    }
    {
      Replicated x = std::move(kept.back().x);
      gradients.put(layer_name(2 * i), matmul(transposed(x), dz));
    }
    kept.pop_back();
    if (i == 0 && !wants_input_grad()) break;
    d = all_reduce(matmul(dz, transposed(block.w0)));
  }
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 03.2 each block's inputs are taken out
Gradients backward(Tensor dout) override {
  auto [kept] = tape_.pop();
  Gradients gradients;
  auto d = Replicated(group(), std::move(dout));
  while (!kept.empty()) {
    const Kept here = std::move(kept.back());
    kept.pop_back();
    const std::size_t i = kept.size();
    const auto& [w0, w1] = blocks_[i];
    gradients.put(layer_name(2 * i + 1), matmul(transposed(here.h), d));
    Sharded<1> dz = matmul(d, transposed(w1));
    dz = relu_backward(std::move(dz), here.h);
    gradients.put(layer_name(2 * i), matmul(transposed(here.x), dz));
    if (i > 0 || wants_input_grad()) d = all_reduce(matmul(dz, transposed(w0)));
  }
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 03.2 red: kept to the end
Gradients backward(Tensor dout) override {
  auto [kept] = tape_.pop();
  Replicated d(group(), std::move(dout));
  Gradients gradients;
  for (Index i = num_blocks() - 1; i >= 0; --i) {
    const auto& [x, h] = kept[static_cast<std::size_t>(i)];
    const Block& block = blocks_[static_cast<std::size_t>(i)];
    gradients.put(layer_name(2 * i + 1), matmul(transposed(h), d));
    Sharded<1> dz = relu_backward(matmul(d, transposed(block.w1)), h);
    gradients.put(layer_name(2 * i), matmul(transposed(x), dz));
    if (i == 0 && !wants_input_grad()) continue;
    d = all_reduce(matmul(dz, transposed(block.w0)));
  }
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 03.3 gathered in scopes
Placed forward(Tensor input) override {
  Sharded<0> x = my_rows(std::move(input));
  std::vector<Kept> kept;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    Sharded<1> h;
    {
      Replicated whole = all_gather(x);
      h = relu(matmul(whole, block.w0));
    }
    Sharded<0> out = reduce_scatter<0>(matmul(h, block.w1));
    kept.push_back({std::move(x), std::move(h)});
    x = std::move(out);
  }
  tape_.push(std::move(kept));
  return x;
}
Sharded<0> backward_block(Index i, const Kept& kept, Sharded<0> mine, Gradients& gradients) {
  const Block& block = blocks_[static_cast<std::size_t>(i)];
  Replicated whole = all_gather(std::move(mine));
  Sharded<1> dz = relu_backward(matmul(whole, transposed(block.w1)), kept.h);
  gradients.put(layer_name(2 * i + 1), matmul(transposed(kept.h), whole));
  whole = Replicated();
  whole = all_gather(kept.x);
  gradients.put(layer_name(2 * i), matmul(transposed(whole), dz));
  whole = Replicated();
  if (i > 0 || wants_input_grad()) return reduce_scatter<0>(matmul(dz, transposed(block.w0)));
  return {};
}
//// 03.3 temporary values
Placed forward(Tensor input) override {
  std::vector<Kept> kept;
  Sharded<0> x = my_rows(std::move(input));
  for (const auto& [w0, w1] : blocks_) {
    Kept& k = kept.emplace_back();
    k.h = relu(matmul(all_gather(x), w0));
    k.x = std::move(x);
    x = reduce_scatter<0>(matmul(k.h, w1));
  }
  tape_.push(std::move(kept));
  return x;
}
Sharded<0> backward_block(Index i, const Kept& kept, Sharded<0> mine, Gradients& gradients) {
  const auto& [w0, w1] = blocks_[static_cast<std::size_t>(i)];
  auto of_output = [&](const Replicated& d) {
    gradients.put(layer_name(2 * i + 1), matmul(transposed(kept.h), d));
    return relu_backward(matmul(d, transposed(w1)), kept.h);
  };
  const Sharded<1> dz = of_output(all_gather(std::move(mine)));
  const bool is_last = i == 0 && !wants_input_grad();
  gradients.put(layer_name(2 * i), matmul(transposed(all_gather(kept.x)), dz));
  return is_last ? Sharded<0>() : reduce_scatter<0>(matmul(dz, transposed(w0)));
}
//// 03.3 waits for the futures at once
Placed forward(Tensor input) override {
  Sharded<0> x = my_rows(std::move(input));
  std::vector<Kept> kept;
  for (const Block& block : blocks_) {
    Sharded<1> h = relu(matmul(all_gather_async(x).get(), block.w0));
    Future<Sharded<0>> mine = reduce_scatter_async<0>(matmul(h, block.w1));
    kept.push_back({std::move(x), std::move(h)});
    x = mine.get();
  }
  tape_.push(std::move(kept));
  return x;
}
//// 03.3 dL/dx before the gradient of w0
Sharded<0> backward_block(Index i, const Kept& kept, Sharded<0> mine, Gradients& gradients) {
  const Block& block = blocks_[static_cast<std::size_t>(i)];
  Sharded<1> dz;
  {
    Replicated d = all_gather(std::move(mine));
    gradients.put(layer_name(2 * i + 1), matmul(transposed(kept.h), d));
    dz = relu_backward(matmul(d, transposed(block.w1)), kept.h);
  }
  Sharded<0> dx;
  if (i > 0 || wants_input_grad()) dx = reduce_scatter<0>(matmul(dz, transposed(block.w0)));
  gradients.put(layer_name(2 * i), matmul(transposed(all_gather(kept.x)), dz));
  return dx;
}
//// 03.3 a helper for the hidden columns
Sharded<1> hidden_of(const auto& block, const Sharded<0>& x) {
  const Replicated whole = all_gather(x);
  return relu(matmul(whole, block.w0));
}
Placed forward(Tensor input) override {
  Sharded<0> x = my_rows(std::move(input));
  std::vector<Kept> kept(blocks_.size());
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    kept[i].h = hidden_of(blocks_[i], x);
    kept[i].x = std::move(x);
    Partial out = matmul(kept[i].h, blocks_[i].w1);
    x = reduce_scatter<0>(std::move(out));
  }
  tape_.push(std::move(kept));
  return x;
}
//// 03.3 red: both gathered tensors at once
Sharded<0> backward_block(Index i, const Kept& kept, Sharded<0> mine, Gradients& gradients) {
  const Block& block = blocks_[static_cast<std::size_t>(i)];
  Replicated d = all_gather(std::move(mine));
  Replicated x = all_gather(kept.x);
  gradients.put(layer_name(2 * i + 1), matmul(transposed(kept.h), d));
  Sharded<1> dz = relu_backward(matmul(d, transposed(block.w1)), kept.h);
  gradients.put(layer_name(2 * i), matmul(transposed(x), dz));
  if (i == 0 && !wants_input_grad()) return {};
  return reduce_scatter<0>(matmul(dz, transposed(block.w0)));
}
//// 03.4 every step by itself
Placed forward(Tensor input) override {
  Replicated whole(group(), std::move(input));
  Sharded<1> x = shard<1>(whole);
  whole = Replicated();
  std::vector<Kept> kept;
  for (const Block& block : blocks_) {
    Replicated z = all_reduce(matmul(x, block.w0));
    Replicated h = relu(std::move(z));
    Sharded<1> out = matmul(h, block.w1);
    kept.push_back({std::move(x), std::move(h)});
    x = std::move(out);
  }
  tape_.push(std::move(kept));
  return all_gather(std::move(x));
}
Gradients backward(Tensor dout) override {
  auto [kept] = tape_.pop();
  Gradients gradients;
  Sharded<1> d;
  {
    const Replicated whole(group(), std::move(dout));
    d = shard<1>(whole);
  }
  for (Index i = num_blocks() - 1; i >= 0; --i) {
    const Block& block = blocks_[static_cast<std::size_t>(i)];
    Kept here = std::move(kept.back());
    kept.pop_back();
    Partial addend = matmul(d, transposed(block.w1));
    gradients.put(layer_name(2 * i + 1), matmul(transposed(here.h), d));
    Replicated dz = relu_backward(all_reduce(std::move(addend)), here.h);
    gradients.put(layer_name(2 * i), matmul(transposed(here.x), dz));
    if (i == 0 && !wants_input_grad()) continue;
    d = matmul(dz, transposed(block.w0));
  }
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 03.4 kept first
Placed forward(Tensor input) override {
  Sharded<1> x = shard<1>(Replicated(group(), std::move(input)));
  std::vector<Kept> kept;
  for (const auto& [w0, w1] : blocks_) {
    kept.push_back({std::move(x), Replicated()});
    kept.back().h = relu(all_reduce(matmul(kept.back().x, w0)));
    x = matmul(kept.back().h, w1);
  }
  tape_.push(std::move(kept));
  Replicated out = all_gather(std::move(x));
  return out;
}
//// 03.4 the sum travels while the device computes
Gradients backward(Tensor dout) override {
  auto [kept] = tape_.pop();
  Gradients gradients;
  Sharded<1> d = shard<1>(Replicated(group(), std::move(dout)));
  for (Index i = num_blocks() - 1; i >= 0; --i, kept.pop_back()) {
    const auto& [x, h] = kept.back();
    const Block& block = blocks_[static_cast<std::size_t>(i)];
    Future<Replicated> dh = all_reduce_async(matmul(d, transposed(block.w1)));
    gradients.put(layer_name(2 * i + 1), matmul(transposed(h), d));
    Replicated dz = relu_backward(dh.get(), h);
    gradients.put(layer_name(2 * i), matmul(transposed(x), dz));
    if (i > 0 || wants_input_grad()) d = matmul(dz, transposed(block.w0));
  }
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 03.4 dL/dx before the gradient of w0
Gradients backward(Tensor dout) override {
  auto [kept] = tape_.pop();
  Gradients gradients;
  Sharded<1> d = shard<1>(Replicated(group(), std::move(dout)));
  for (std::size_t i = blocks_.size(); i-- > 0; kept.pop_back()) {
    gradients.put(layer_name(2 * i + 1), matmul(transposed(kept[i].h), d));
    Replicated dz = relu_backward(all_reduce(matmul(d, transposed(blocks_[i].w1))), kept[i].h);
    if (i > 0 || wants_input_grad()) d = matmul(dz, transposed(blocks_[i].w0));
    gradients.put(layer_name(2 * i), matmul(transposed(kept[i].x), dz));
  }
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 03.4 places that are filled, and blocks from the last one
Placed forward(Tensor input) override {
  Sharded<1> x = shard<1>(Replicated(group(), std::move(input)));
  std::vector<Kept> kept(blocks_.size());
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    kept[i].h = relu(all_reduce(matmul(x, blocks_[i].w0)));
    kept[i].x = std::move(x);
    x = matmul(kept[i].h, blocks_[i].w1);
  }
  tape_.push(std::move(kept));
  return all_gather(std::move(x));
}
Gradients backward(Tensor dout) override {
  auto [kept] = tape_.pop();
  Gradients gradients;
  Sharded<1> d = shard<1>(Replicated(group(), std::move(dout)));
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block, kept.pop_back()) {
    const std::size_t i = kept.size() - 1;
    gradients.put(layer_name(2 * i + 1), matmul(transposed(kept[i].h), d));
    Replicated dz = all_reduce(matmul(d, transposed(block->w1)));
    dz = relu_backward(std::move(dz), kept[i].h);
    gradients.put(layer_name(2 * i), matmul(transposed(kept[i].x), dz));
    if (i == 0 && !wants_input_grad()) return gradients;
    d = matmul(dz, transposed(block->w0));
  }
  gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 03.4 red: the whole input lives on
Placed forward(Tensor input) override {
  Replicated whole(group(), std::move(input));
  Sharded<1> x = shard<1>(whole);
  std::vector<Kept> kept;
  for (const Block& block : blocks_) {
    Replicated h = relu(all_reduce(matmul(x, block.w0)));
    Sharded<1> out = matmul(h, block.w1);
    kept.push_back({std::move(x), std::move(h)});
    x = std::move(out);
  }
  tape_.push(std::move(kept));
  return all_gather(std::move(x));
}
