//// 02.1 red: the next gradient first
Gradients backward(Tensor dout) override {
  auto [inputs] = tape_.pop();
  Sharded<0> d = my_rows(std::move(dout), inputs.front());
  Gradients gradients;
  for (std::size_t l = weights_.size(); l-- > 0;) {
    Sharded<0> a = std::move(inputs[l]);
    inputs.pop_back();
    Sharded<0> before;
    if (l > 0 || wants_input_grad()) {
      before = matmul(d, transposed(weights_[l]));
      if (relu_before(l)) before = relu_backward(std::move(before), a);
    }
    gradients.put(layer_name(l), all_reduce(matmul(transposed(a), d)));
    d = std::move(before);
  }
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 02.1 red: all sums in flight
Gradients backward(Tensor dout) override {
  auto [inputs] = tape_.pop();
  Sharded<0> d = my_rows(std::move(dout), inputs[0]);
  std::vector<Future<Replicated>> sums;
  for (std::size_t l = weights_.size(); l-- > 0; inputs.pop_back()) {
    sums.push_back(all_reduce_async(matmul(transposed(inputs[l]), d)));
    if (l > 0 || wants_input_grad()) d = matmul(d, transposed(weights_[l]));
    if (relu_before(l)) d = relu_backward(std::move(d), inputs[l]);
  }
  Gradients gradients;
  for (std::size_t i = 0; i < sums.size(); ++i)
    gradients.put(layer_name(weights_.size() - 1 - i), sums[i].get());
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 02.1 addends first, then the sums in ascending order
Gradients backward(Tensor dout) override {
  auto [inputs] = tape_.pop();
  Sharded<0> d = my_rows(std::move(dout), inputs[0]);
  std::vector<Partial> addends(weights_.size());
  for (std::size_t l = weights_.size(); l-- > 0; inputs.pop_back()) {
    addends[l] = matmul(transposed(inputs[l]), d);
    if (l > 0 || wants_input_grad()) d = matmul(d, transposed(weights_[l]));
    if (relu_before(l)) d = relu_backward(std::move(d), inputs[l]);
  }
  Gradients gradients;
  for (std::size_t l = 0; l < addends.size(); ++l)
    gradients.put(layer_name(l), all_reduce(std::move(addends[l])));
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 02.1 a helper, and rows by their own count
Replicated summed_product(const Sharded<0>& a, const Sharded<0>& d) {
  Partial mine = matmul(transposed(a), d);
  return all_reduce(std::move(mine));
}
Gradients backward(Tensor dout) override {
  auto [inputs] = tape_.pop();
  Sharded<0> d = my_rows(std::move(dout));
  Gradients gradients;
  int l = static_cast<int>(inputs.size());
  while (--l >= 0) {
    const auto layer = static_cast<std::size_t>(l);
    gradients.put(layer_name(layer), summed_product(inputs.back(), d));
    if (l > 0 || wants_input_grad()) d = matmul(d, transposed(weights_[layer]));
    if (relu_before(layer)) d = relu_backward(std::move(d), inputs.back());
    inputs.pop_back();
  }
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 02.1 a future that is awaited at once
Gradients backward(Tensor dout) override {
  auto [inputs] = tape_.pop();
  Gradients gradients;
  Sharded<0> d = my_rows(std::move(dout), inputs[0]);
  while (!inputs.empty()) {
    const std::size_t l = inputs.size() - 1;
    Future<Replicated> sum = all_reduce_async(matmul(transposed(inputs[l]), d));
    gradients.put(layer_name(l), sum.get());
    if (l > 0 || wants_input_grad()) d = matmul(d, transposed(weights_[l]));
    if (relu_before(l)) d = relu_backward(std::move(d), inputs[l]);
    inputs.pop_back();
  }
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 02.1 down to layer 1, and layer 0 by itself
Gradients backward(Tensor dout) override {
  std::vector<Sharded<0>> inputs = std::get<0>(tape_.pop());
  Gradients gradients;
  Sharded<0> d = my_rows(std::move(dout), inputs[0]);
  for (std::size_t l = weights_.size() - 1; l > 0; --l) {
    Partial addend = matmul(transposed(inputs[l]), d);
    Replicated sum = all_reduce(std::move(addend));
    gradients.put(layer_name(l), std::move(sum));
    d = matmul(d, transposed(weights_[l]));
    if (relu_before(l)) d = relu_backward(std::move(d), inputs[l]);
    inputs.pop_back();
  }
  gradients.put(layer_name(0), all_reduce(matmul(transposed(inputs[0]), d)));
  if (wants_input_grad()) gradients.put(Gradients::input_grad, matmul(d, transposed(weights_[0])));
  return gradients;
}
//// 02.1 inputs go one by one, and the loop breaks
Gradients backward(Tensor dout) override {
  auto [inputs] = tape_.pop();
  Sharded<0> d = my_rows(std::move(dout), inputs[0]);
  Gradients all;
  for (int i = static_cast<int>(weights_.size()) - 1; i >= 0; --i) {
    const auto l = static_cast<std::size_t>(i);
    const Sharded<0> a = std::move(inputs.back());
    inputs.pop_back();
    all.put(layer_name(l), all_reduce(matmul(transposed(a), d)));
    if (i == 0 && !wants_input_grad()) break;
    Sharded<0> da = matmul(d, transposed(weights_[l]));
    d = relu_before(l) ? relu_backward(std::move(da), a) : std::move(da);
  }
  if (wants_input_grad()) all.put(Gradients::input_grad, std::move(d));
  return all;
}
//// 02.1 red: inputs live to the end
Gradients backward(Tensor dout) override {
  auto [inputs] = tape_.pop();
  Sharded<0> d = my_rows(std::move(dout), inputs[0]);
  Gradients gradients;
  for (std::size_t l = weights_.size(); l-- > 0;) {
    gradients.put(layer_name(l), all_reduce(matmul(transposed(inputs[l]), d)));
    if (l > 0 || wants_input_grad()) d = matmul(d, transposed(weights_[l]));
    if (relu_before(l)) d = relu_backward(std::move(d), inputs[l]);
  }
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 02.2 the bucket is sent after the loop's product
Gradients backward(Tensor dout) override {
  auto [inputs] = tape_.pop();
  Sharded<0> d = my_rows(std::move(dout), inputs[0]);
  Gradients gradients;
  std::vector<InFlight> on_their_way;
  Bucket bucket;
  for (Index l = static_cast<Index>(weights_.size()) - 1; l >= 0; --l) {
    const auto layer = static_cast<std::size_t>(l);
    const Sharded<0> a = std::move(inputs[layer]);
    inputs.pop_back();
    bucket.add(layer, matmul(transposed(a), d));
    if (bucket.bytes >= bucket_bytes_) {
      on_their_way.push_back(send_off(std::move(bucket)));
      bucket = Bucket();
    }
    if (l == 0 && !wants_input_grad()) break;
    d = matmul(d, transposed(weights_[layer]));
    if (relu_before(layer)) d = relu_backward(std::move(d), a);
  }
  if (!bucket.layers.empty()) on_their_way.push_back(send_off(std::move(bucket)));
  for (auto& flying : on_their_way) collect(flying, gradients);
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
InFlight send_off(Bucket bucket) {
  InFlight flying;
  flying.layers = bucket.layers;
  if (bucket.layers.size() > 1)
    flying.sum = all_reduce_async(pack(std::move(bucket.addends)));
  else
    flying.sum = all_reduce_async(std::move(bucket.addends.front()));
  return flying;
}
void collect(InFlight& bucket, Gradients& gradients) {
  if (bucket.layers.size() > 1) {
    std::vector<Shape> shapes;
    for (const std::size_t l : bucket.layers) shapes.emplace_back(weights_[l].global_shape());
    auto parts = unpack(bucket.sum.get(), shapes);
    auto l = bucket.layers.begin();
    for (Replicated& part : parts) gradients.put(layer_name(*l++), std::move(part));
  } else {
    gradients.put(layer_name(bucket.layers.front()), bucket.sum.get());
  }
}
//// 02.2 the last bucket is collected first
Gradients backward(Tensor dout) override {
  auto [inputs] = tape_.pop();
  Sharded<0> d = my_rows(std::move(dout), inputs[0]);
  Bucket filling;
  std::vector<InFlight> in_flight;
  for (std::size_t l = weights_.size(); l-- > 0; inputs.pop_back()) {
    filling.add(l, matmul(transposed(inputs[l]), d));
    const bool is_full = filling.bytes >= bucket_bytes_;
    if (is_full || l == 0) {
      in_flight.push_back(send_off(std::move(filling)));
      filling = {};
    }
    if (l > 0 || wants_input_grad()) {
      Sharded<0> da = matmul(d, transposed(weights_[l]));
      d = relu_before(l) ? relu_backward(std::move(da), inputs[l]) : std::move(da);
    }
  }
  Gradients gradients;
  while (!in_flight.empty()) {
    collect(in_flight.back(), gradients);
    in_flight.pop_back();
  }
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 02.2 a helper for shapes
std::vector<Shape> shapes_of(const std::vector<std::size_t>& layers) const {
  std::vector<Shape> shapes;
  for (std::size_t l : layers) shapes.push_back(weights_[l].global_shape());
  return shapes;
}
void collect(InFlight& bucket, Gradients& gradients) {
  Replicated sum = bucket.sum.get();
  std::vector<Replicated> parts;
  if (bucket.layers.size() == 1)
    parts.push_back(std::move(sum));
  else
    parts = unpack(std::move(sum), shapes_of(bucket.layers));
  for (std::size_t i = 0; i < parts.size(); ++i)
    gradients.put(layer_name(bucket.layers[i]), std::move(parts[i]));
}
InFlight send_off(Bucket bucket) {
  const bool is_one = bucket.addends.size() == 1;
  Partial whole = is_one ? std::move(bucket.addends.back()) : pack(std::move(bucket.addends));
  Future<Replicated> sum = all_reduce_async(std::move(whole));
  return InFlight{std::move(bucket.layers), std::move(sum)};
}
//// 02.2 dL/dx is put in first
Gradients backward(Tensor dout) override {
  auto [inputs] = tape_.pop();
  Sharded<0> d = my_rows(std::move(dout), inputs[0]);
  Bucket filling;
  std::vector<InFlight> in_flight;
  for (std::size_t l = weights_.size(); l-- > 0;) {
    Sharded<0> a = std::move(inputs[l]);
    inputs.resize(l);
    filling.add(l, matmul(transposed(a), d));
    if (l == 0 || filling.bytes >= bucket_bytes_)
      in_flight.emplace_back(send_off(std::exchange(filling, Bucket{})));
    if (l > 0 || wants_input_grad()) d = matmul(d, transposed(weights_[l]));
    if (relu_before(l)) d = relu_backward(std::move(d), a);
  }
  Gradients gradients;
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  for (std::size_t b = 0; b < in_flight.size(); ++b) collect(in_flight[b], gradients);
  return gradients;
}
//// 02.2 a loop over buckets
Gradients backward(Tensor dout) override {
  auto [inputs] = tape_.pop();
  Sharded<0> d = my_rows(std::move(dout), inputs[0]);
  std::vector<InFlight> in_flight;
  std::size_t l = weights_.size();
  while (l > 0) {
    Bucket bucket;
    for (bool is_full = false; !is_full; inputs.pop_back()) {
      --l;
      bucket.add(l, matmul(transposed(inputs[l]), d));
      is_full = l == 0 || bucket.bytes >= bucket_bytes_;
      if (is_full) in_flight.push_back(send_off(std::move(bucket)));
      if (l > 0 || wants_input_grad()) d = matmul(d, transposed(weights_[l]));
      if (relu_before(l)) d = relu_backward(std::move(d), inputs[l]);
    }
  }
  Gradients gradients;
  for (InFlight& bucket : in_flight) collect(bucket, gradients);
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 02.2 red: one gradient is packed, too
InFlight send_off(Bucket bucket) {
  return {std::move(bucket.layers), all_reduce_async(pack(std::move(bucket.addends)))};
}
void collect(InFlight& bucket, Gradients& gradients) {
  std::vector<Shape> shapes;
  for (std::size_t l : bucket.layers) shapes.push_back(weights_[l].global_shape());
  std::vector<Replicated> dw = unpack(bucket.sum.get(), shapes);
  for (std::size_t i = 0; i < dw.size(); ++i) gradients.put(layer_name(bucket.layers[i]), std::move(dw[i]));
}
