//// 07.1 sums in a new tensor
std::pair<Tensor, Tensor> means_of(Tensor a, Tensor b) {
  const Index rows = a.extent(0);
  Tensor both = Tensor::uninitialized({2 * rows});
  assign(Rows(both, 0, rows), a);
  assign(Rows(both, rows, 2 * rows), b);
  if constexpr (is_naive) {
    both = scale(std::move(both), 1 / static_cast<float>(w_.local().size()));
  } else {
    Replicated sum = all_reduce(Partial(group(), std::move(both)));
    both = scale(std::move(sum).local(), 1 / static_cast<float>(w_.global_shape()[0]));
  }
  return {slice(both, 0, 0, rows), slice(both, 0, rows, 2 * rows)};
}
Gradients backward(Tensor dy) override {
  Gradients gradients;
  Tensor dw = column_dots(dy, x_hat_.local());
  Tensor db = column_sums(dy);
  gradients.put("bias", as(b_, std::move(db)));
  gradients.put("weights", as(w_, std::move(dw)));
  Tensor dx_hat = scale_columns(std::move(dy), w_.local());
  Tensor sum = row_sums(dx_hat), dot = row_dots(dx_hat, x_hat_.local());
  auto means = means_of(std::move(sum), std::move(dot));
  Tensor minus_mean = rounded(scale(std::move(means.first), -1));
  Tensor along = rounded(scale_rows(x_hat_.local().clone(), rounded(std::move(means.second))));
  Tensor dx = add_to_columns(subtract(std::move(dx_hat), along), minus_mean);
  gradients.put(Gradients::input_grad, as(x_hat_, rounded(scale_rows(std::move(dx), r_))));
  return gradients;
}
//// 07.1 the plain all-reduce
std::pair<Tensor, Tensor> means_of(Tensor a, Tensor b) {
  const Index rows = a.size();
  Tensor sums = Tensor::uninitialized({2, rows});
  assign(Rows(sums, 0, 1), std::move(a).reshaped({1, rows}));
  assign(Rows(sums, 1, 2), std::move(b).reshaped({1, rows}));
  const Index features = is_naive ? w_.local().size() : w_.global_shape()[0];
  if (!is_naive) sums = all_reduce(std::move(sums), ReduceOp::sum);
  sums = scale(std::move(sums), 1 / static_cast<float>(features));
  return {slice(sums, 0, 0, 1).reshaped({rows}), slice(sums, 0, 1, 2).reshaped({rows})};
}
//// 07.1 the mean goes first
Gradients backward(Tensor dy) override {
  Gradients gradients;
  gradients.put("weights", as(w_, column_dots(dy, x_hat_.local())));
  gradients.put("bias", as(b_, column_sums(dy)));
  const Tensor d_hat = scale_columns(std::move(dy), w_.local());
  auto [mean, dot] = means_of(row_sums(d_hat), row_dots(d_hat, x_hat_.local()));
  Tensor dx = add_to_columns(d_hat.clone(), rounded(scale(std::move(mean), -1)));
  dx = subtract(std::move(dx), rounded(scale_rows(x_hat_.local().clone(), rounded(std::move(dot)))));
  dx = scale_rows(std::move(dx), r_);
  gradients.put(Gradients::input_grad, as(x_hat_, rounded(std::move(dx))));
  return gradients;
}
//// 07.1 a minus goes into the factor
Gradients backward(Tensor dy) override {
  Gradients gradients;
  gradients.put("weights", as(w_, column_dots(dy, x_hat_.local())));
  gradients.put("bias", as(b_, column_sums(dy)));
  Tensor d = scale_columns(std::move(dy), w_.local());
  auto [mean, dot] = means_of(row_sums(d), row_dots(d, x_hat_.local()));
  mean = rounded(scale(std::move(mean), -1));
  dot = rounded(scale(std::move(dot), -1));
  d = add(std::move(d), rounded(scale_rows(x_hat_.local().clone(), dot)));
  d = add_to_columns(std::move(d), mean);
  gradients.put(Gradients::input_grad, as(x_hat_, rounded(scale_rows(std::move(d), r_))));
  return gradients;
}
//// 07.1 the second sum first
std::pair<Tensor, Tensor> means_of(Tensor a, Tensor b) {
  const Index rows = b.size();
  const Tensor* const both[] = {&b, &a};
  Tensor sums = concatenate(both, 0);
  Index features = w_.local().size();
  if constexpr (!is_naive) {
    features = w_.global_shape()[0];
    sums = all_reduce(std::move(sums));
  }
  const float part = 1 / static_cast<float>(features);
  Tensor second = scale(slice(sums, 0, 0, rows), part);
  Tensor first = scale(slice(sums, 0, rows, 2 * rows), part);
  return {std::move(first), std::move(second)};
}
//// 07.1 red: rounded once, at the end
Gradients backward(Tensor dy) override {
  Gradients gradients;
  gradients.put("weights", as(w_, column_dots(dy, x_hat_.local())));
  gradients.put("bias", as(b_, column_sums(dy)));
  Tensor d = scale_columns(std::move(dy), w_.local());
  auto [mean, dot] = means_of(row_sums(d), row_dots(d, x_hat_.local()));
  d = subtract(std::move(d), scale_rows(x_hat_.local().clone(), dot));
  d = add_to_columns(std::move(d), scale(std::move(mean), -1));
  gradients.put(Gradients::input_grad, as(x_hat_, rounded(scale_rows(std::move(d), r_))));
  return gradients;
}
//// 07.1 red: two all-reduces
std::pair<Tensor, Tensor> means_of(Tensor a, Tensor b) {
  if constexpr (is_naive) {
    const float part = 1 / static_cast<float>(w_.local().size());
    return {scale(std::move(a), part), scale(std::move(b), part)};
  } else {
    const float part = 1 / static_cast<float>(w_.global_shape()[0]);
    a = all_reduce(std::move(a));
    b = all_reduce(std::move(b));
    return {scale(std::move(a), part), scale(std::move(b), part)};
  }
}
//// 07.2 the label first
Placed forward(Tensor logits) override {
  const Sharded<1> z = my_slice<1>(std::move(logits));
  const Index begin = z.offset(), end = z.offset() + z.local().extent(1);
  kept_.labels = in_slice(tokens_.labels, {begin, end});
  Tensor label = over_devices(take_columns(z.local(), kept_.labels, 1), ReduceOp::sum);
  Tensor most = over_devices(row_max(z.local()), ReduceOp::max);
  Tensor powers = exponentials(z.local().clone(), most, how().base);
  Tensor sums = over_devices(row_sums(powers), ReduceOp::sum);
  Tensor losses = token_losses(most, sums, label, tokens_, how());
  kept_.p = divide_rows(std::move(powers), sums);
  return Replicated(group(), column_sums(losses));
}
//// 07.2 the softmax in its own place
Placed forward(Tensor logits) override {
  const Sharded<1> z = my_slice<1>(std::move(logits));
  kept_.labels = in_slice(tokens_.labels, {z.offset(), z.offset() + z.local().extent(1)});
  const Tensor largest = over_devices(row_max(z.local()), ReduceOp::max);
  kept_.p = exponentials(z.local().clone(), largest, how().base);
  const Tensor sums = over_devices(row_sums(kept_.p), ReduceOp::sum);
  kept_.p = divide_rows(std::move(kept_.p), sums);
  const Tensor of_labels = over_devices(take_columns(z.local(), kept_.labels, 1), ReduceOp::sum);
  Tensor loss = column_sums(token_losses(largest, sums, of_labels, tokens_, how()));
  return Replicated(group(), std::move(loss));
}
//// 07.2 a helper for the largest
Tensor largest_of(const Tensor& z) {
  Tensor mine = row_max(z);
  return over_devices(std::move(mine), ReduceOp::max);
}
Placed forward(Tensor logits) override {
  const Sharded<1> z = my_slice<1>(std::move(logits));
  const Tensor& mine = z.local();
  kept_.labels = in_slice(tokens_.labels, Range{z.offset(), z.offset() + mine.extent(1)});
  const Tensor largest = largest_of(mine);
  const Tensor of_labels = over_devices(take_columns(mine, kept_.labels, 1), ReduceOp::sum);
  Tensor p = exponentials(mine.clone(), largest, how().base);
  const Tensor sums = over_devices(row_sums(p), ReduceOp::sum);
  p = divide_rows(std::move(p), sums);
  kept_.p = std::move(p);
  return Replicated(group(), column_sums(token_losses(largest, sums, of_labels, tokens_, how())));
}
//// 07.2 a copy of the powers is kept
Placed forward(Tensor logits) override {
  const Sharded<1> z = my_slice<1>(std::move(logits));
  kept_.labels = in_slice(tokens_.labels, {z.offset(), z.offset() + z.local().extent(1)});
  Tensor largest = row_max(z.local());
  largest = over_devices(std::move(largest), ReduceOp::max);
  const Tensor powers = exponentials(z.local().clone(), largest, how().base);
  Tensor sums = row_sums(powers);
  sums = over_devices(std::move(sums), ReduceOp::sum);
  Tensor of_labels = take_columns(z.local(), kept_.labels, 1);
  of_labels = over_devices(std::move(of_labels), ReduceOp::sum);
  kept_.p = divide_rows(powers.clone(), sums);
  return Replicated(group(), column_sums(token_losses(largest, sums, of_labels, tokens_, how())));
}
//// 07.2 a lambda for a sum
Placed forward(Tensor logits) override {
  auto summed = [this](Tensor mine) { return over_devices(std::move(mine), ReduceOp::sum); };
  const Sharded<1> z = my_slice<1>(std::move(logits));
  const Index first = z.offset();
  kept_.labels = in_slice(tokens_.labels, {first, first + z.local().extent(1)});
  const Tensor largest = over_devices(row_max(z.local()), ReduceOp::max);
  Tensor powers = exponentials(z.local().clone(), largest, how().base);
  const Tensor of_labels = summed(take_columns(z.local(), kept_.labels, 1));
  const Tensor sums = summed(row_sums(powers));
  Tensor loss = column_sums(token_losses(largest, sums, of_labels, tokens_, how()));
  kept_.p = divide_rows(std::move(powers), sums);
  return Replicated(group(), std::move(loss));
}
//// 07.2 red: both sums travel together
Placed forward(Tensor logits) override {
  const Sharded<1> z = my_slice<1>(std::move(logits));
  kept_.labels = in_slice(tokens_.labels, {z.offset(), z.offset() + z.local().extent(1)});
  const Tensor largest = over_devices(row_max(z.local()), ReduceOp::max);
  Tensor powers = exponentials(z.local().clone(), largest, how().base);
  const Index rows = z.local().extent(0);
  Tensor two = Tensor::uninitialized({2, rows});
  assign(Rows(two, 0, 1), row_sums(powers).reshaped({1, rows}));
  assign(Rows(two, 1, 2), take_columns(z.local(), kept_.labels, 1).reshaped({1, rows}));
  two = over_devices(std::move(two), ReduceOp::sum);
  const Tensor sums = slice(two, 0, 0, 1).reshaped({rows});
  const Tensor of_labels = slice(two, 0, 1, 2).reshaped({rows, 1});
  kept_.p = divide_rows(std::move(powers), sums);
  return Replicated(group(), column_sums(token_losses(largest, sums, of_labels, tokens_, how())));
}
