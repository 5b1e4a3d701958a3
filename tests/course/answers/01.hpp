//// 01.1 the vector has the input
Placed forward(Tensor input) override {
  const std::size_t layers = weights_.size();
  std::vector<Replicated> inputs;
  inputs.reserve(layers + 1);
  inputs.push_back(Replicated(group(), std::move(input)));
  for (std::size_t l = 0; l < layers; l++) {
    if (relu_before(l)) inputs[l] = relu(std::move(inputs[l]));
    inputs.push_back(matmul(inputs[l], weights_[l]));
  }
  Replicated out = std::move(inputs.back());
  inputs.pop_back();
  tape_.push(std::move(inputs));
  return out;
}
//// 01.1 the ReLU stands behind the product
Placed forward(Tensor input) override {
  Replicated a(group(), std::move(input));
  std::vector<Replicated> kept;
  std::size_t l = 0;
  while (true) {
    Replicated z = matmul(a, weights_[l]);
    kept.push_back(std::move(a));
    if (++l == weights_.size()) {
      tape_.push(std::move(kept));
      return z;
    }
    a = relu_before(l) ? relu(std::move(z)) : std::move(z);
  }
}
//// 01.1 a helper for a layer
Replicated through(std::size_t l, Replicated a, std::vector<Replicated>& inputs) {
  if (relu_before(l)) a = relu(std::move(a));
  inputs.push_back(std::move(a));
  return matmul(inputs.back(), weights_[l]);
}
Placed forward(Tensor input) override {
  std::vector<Replicated> inputs;
  Replicated x(group(), std::move(input));
  for (std::size_t l = 0; l != weights_.size(); ++l) x = through(l, std::move(x), inputs);
  tape_.push(std::move(inputs));
  return x;
}
//// 01.1 by iterators
Placed forward(Tensor input) override {
  auto inputs = std::vector<Replicated>(weights_.size());
  auto kept = inputs.begin();
  Replicated now = Replicated(group(), std::move(input));
  for (const Replicated& w : weights_) {
    const auto l = static_cast<std::size_t>(kept - inputs.begin());
    if (relu_before(l)) now = relu(std::move(now));
    *kept = std::move(now);
    now = matmul(*kept, w);
    ++kept;
  }
  tape_.push(std::move(inputs));
  return now;
}
//// 01.1 a lambda keeps, and the last layer by itself
Placed forward(Tensor input) override {
  std::vector<Replicated> inputs;
  auto kept = [&](std::size_t l, Replicated a) -> const Replicated& {
    inputs.push_back(relu_before(l) ? relu(std::move(a)) : std::move(a));
    return inputs.back();
  };
  Replicated x(group(), std::move(input));
  const std::size_t last = weights_.size() - 1;
  for (std::size_t l = 0; l < last; ++l) x = matmul(kept(l, std::move(x)), weights_[l]);
  Replicated out = matmul(kept(last, std::move(x)), weights_[last]);
  tape_.push(std::move(inputs));
  return out;
}
//// 01.1 red: a copy of each input
Placed forward(Tensor input) override {
  Replicated a(group(), std::move(input));
  std::vector<Replicated> inputs;
  for (std::size_t l = 0; l < weights_.size(); ++l) {
    if (relu_before(l)) a = relu(std::move(a));
    Replicated out = matmul(a, weights_[l]);
    inputs.push_back(Replicated(group(), a.local().clone()));
    a = std::move(out);
  }
  tape_.push(std::move(inputs));
  return a;
}
//// 01.2 the inputs go one by one
Gradients backward(Tensor dout) override {
  auto [inputs] = tape_.pop();
  Gradients gradients;
  Replicated d(group(), std::move(dout));
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const std::size_t l = weights_.size() - 1 - i;
    Replicated a = std::move(inputs.back());
    inputs.pop_back();
    Replicated dw = matmul(transposed(a), d);
    gradients.put(layer_name(l), std::move(dw));
    if (l == 0 && !wants_input_grad()) break;
    Replicated da = matmul(d, transposed(weights_[l]));
    d = relu_before(l) ? relu_backward(std::move(da), a) : std::move(da);
  }
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 01.2 down to layer 1, and layer 0 by itself
Gradients backward(Tensor dout) override {
  auto kept = tape_.pop();
  std::vector<Replicated>& inputs = std::get<0>(kept);
  Gradients gradients;
  Replicated d(group(), std::move(dout));
  for (std::size_t l = weights_.size() - 1; l > 0; --l) {
    gradients.put(layer_name(l), matmul(transposed(inputs[l]), d));
    d = matmul(d, transposed(weights_[l]));
    if (relu_before(l)) d = relu_backward(std::move(d), inputs[l]);
    inputs.pop_back();
  }
  gradients.put(layer_name(0), matmul(transposed(inputs[0]), d));
  inputs.clear();
  if (wants_input_grad()) gradients.put(Gradients::input_grad, matmul(d, transposed(weights_[0])));
  return gradients;
}
//// 01.2 a signed counter and a reference to the last input
Gradients backward(Tensor dout) override {
  std::vector<Replicated> inputs = std::get<0>(tape_.pop());
  Replicated grad(group(), std::move(dout));
  Gradients all;
  for (int l = static_cast<int>(weights_.size()) - 1; l >= 0; --l) {
    const auto layer = static_cast<std::size_t>(l);
    const Replicated& x = inputs.back();
    all.put(layer_name(layer), matmul(transposed(x), grad));
    const bool goes_on = l > 0 || wants_input_grad();
    if (goes_on) grad = matmul(grad, transposed(weights_[layer]));
    if (goes_on && relu_before(layer)) grad = relu_backward(std::move(grad), x);
    inputs.pop_back();
  }
  if (wants_input_grad()) all.put(Gradients::input_grad, std::move(grad));
  return all;
}
//// 01.2 a helper for the gradient of an input
Replicated of_input(std::size_t l, const Replicated& d, const Replicated& a) {
  Replicated da = matmul(d, transposed(weights_[l]));
  if (!relu_before(l)) return da;
  return relu_backward(std::move(da), a);
}
Gradients backward(Tensor dout) override {
  auto [inputs] = tape_.pop();
  Replicated d(group(), std::move(dout));
  Gradients gradients;
  while (!inputs.empty()) {
    const std::size_t l = inputs.size() - 1;
    gradients.put(layer_name(l), matmul(transposed(inputs[l]), d));
    if (l > 0 || wants_input_grad()) d = of_input(l, d, inputs[l]);
    inputs.pop_back();
  }
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 01.2 gradients in a vector, then in ascending order
Gradients backward(Tensor dout) override {
  auto [inputs] = tape_.pop();
  std::vector<Replicated> dw(weights_.size());
  Replicated d(group(), std::move(dout));
  for (std::size_t l = weights_.size(); l-- > 0;) {
    dw[l] = matmul(transposed(inputs.back()), d);
    if (l > 0 || wants_input_grad()) d = matmul(d, transposed(weights_[l]));
    if (relu_before(l)) d = relu_backward(std::move(d), inputs.back());
    inputs.pop_back();
  }
  Gradients gradients;
  for (std::size_t l = 0; l < dw.size(); ++l) gradients.put(layer_name(l), std::move(dw[l]));
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 01.2 red: inputs live to the end
Gradients backward(Tensor dout) override {
  auto [inputs] = tape_.pop();
  Replicated d(group(), std::move(dout));
  Gradients gradients;
  for (std::size_t l = weights_.size(); l-- > 0;) {
    gradients.put(layer_name(l), matmul(transposed(inputs[l]), d));
    if (l > 0 || wants_input_grad()) d = matmul(d, transposed(weights_[l]));
    if (relu_before(l)) d = relu_backward(std::move(d), inputs[l]);
  }
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
