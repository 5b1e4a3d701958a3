//// 09.1 gathered within the product
Placed forward(Tensor input) override {
  auto a = from_outside<S<0>, S<0>>(std::move(input));
  std::vector<On<S<0>, S<0>>> inputs;
  for (std::size_t l = 0; l < shards_.size(); ++l) {
    if (relu_before(l)) a = relu(std::move(a));
    inputs.push_back(std::move(a));
    a = matmul(inputs.back(), all_gather<shards>(shards_[l]));
  }
  tape_.push(std::move(inputs));
  return a;
}
Gradients backward(Tensor dout) override {
  auto [inputs] = tape_.pop();
  Gradients gradients;
  auto d = from_outside<S<0>, S<0>>(std::move(dout));
  for (std::size_t l = shards_.size(); l-- > 0; inputs.pop_back()) {
    On<P, S<0>> mine = reduce_scatter<shards, 0>(matmul(transposed(inputs[l]), d));
    gradients.put(layer_name(l), all_reduce<replica>(std::move(mine)));
    if (l == 0 && !wants_input_grad()) return gradients;
    d = matmul(d, transposed(all_gather<shards>(shards_[l])));
    if (relu_before(l)) d = relu_backward(std::move(d), inputs[l]);
  }
  gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 09.1 weights first, the gradient then
Gradients backward(Tensor dout) override {
  auto [inputs] = tape_.pop();
  Gradients gradients;
  On<S<0>, S<0>> d = from_outside<S<0>, S<0>>(std::move(dout));
  for (std::size_t l = shards_.size(); l-- > 0; inputs.pop_back()) {
    const On<S<0>, S<0>>& a = inputs[l];
    On<S<0>, S<0>> da;
    if (l > 0 || wants_input_grad()) {
      On<R, R> w = all_gather<shards>(shards_[l]);
      da = matmul(d, transposed(w));
      w = On<R, R>();
      if (relu_before(l)) da = relu_backward(std::move(da), a);
    }
    gradients.put(layer_name(l), all_reduce<replica>(reduce_scatter<shards, 0>(matmul(transposed(a), d))));
    d = std::move(da);
  }
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 09.1 a helper for a layer
On<S<0>, S<0>> through(std::size_t l, const On<S<0>, S<0>>& a) {
  const On<R, R> w = all_gather<shards>(shards_[l]);
  return matmul(a, w);
}
Placed forward(Tensor input) override {
  On<S<0>, S<0>> a = from_outside<S<0>, S<0>>(std::move(input));
  std::vector<On<S<0>, S<0>>> inputs(shards_.size());
  for (std::size_t l = 0; l < shards_.size(); ++l) {
    inputs[l] = relu_before(l) ? relu(std::move(a)) : std::move(a);
    a = through(l, inputs[l]);
  }
  tape_.push(std::move(inputs));
  return a;
}
//// 09.1 the parts are reduced after the loop
Gradients backward(Tensor dout) override {
  auto [inputs] = tape_.pop();
  std::vector<On<P, S<0>>> parts(shards_.size());
  On<S<0>, S<0>> d = from_outside<S<0>, S<0>>(std::move(dout));
  for (std::size_t l = shards_.size(); l-- > 0; inputs.pop_back()) {
    parts[l] = reduce_scatter<shards, 0>(matmul(transposed(inputs[l]), d));
    if (l > 0 || wants_input_grad()) {
      On<R, R> w = all_gather<shards>(shards_[l]);
      d = matmul(d, transposed(w));
    }
    if (relu_before(l)) d = relu_backward(std::move(d), inputs[l]);
  }
  Gradients gradients;
  for (std::size_t l = 0; l < parts.size(); ++l)
    gradients.put(layer_name(l), all_reduce<replica>(std::move(parts[l])));
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 09.1 a helper for a sum over both axes
On<R, S<0>> summed(On<P, P> addend) {
  On<P, S<0>> mine = reduce_scatter<shards, 0>(std::move(addend));
  return all_reduce<replica>(std::move(mine));
}
Gradients backward(Tensor dout) override {
  auto [inputs] = tape_.pop();
  Gradients gradients;
  auto d = from_outside<S<0>, S<0>>(std::move(dout));
  while (!inputs.empty()) {
    const std::size_t l = inputs.size() - 1;
    gradients.put(layer_name(l), summed(matmul(transposed(inputs[l]), d)));
    if (l > 0 || wants_input_grad()) {
      const On<R, R> w = all_gather<shards>(shards_[l]);
      d = matmul(d, transposed(w));
    }
    if (relu_before(l)) d = relu_backward(std::move(d), inputs[l]);
    inputs.pop_back();
  }
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 09.1 red: weights and gradient at once
Gradients backward(Tensor dout) override {
  auto [inputs] = tape_.pop();
  Gradients gradients;
  On<S<0>, S<0>> d = from_outside<S<0>, S<0>>(std::move(dout));
  for (std::size_t l = shards_.size(); l-- > 0; inputs.pop_back()) {
    const On<S<0>, S<0>>& a = inputs[l];
    On<R, R> w = all_gather<shards>(shards_[l]);
    On<P, S<0>> mine = reduce_scatter<shards, 0>(matmul(transposed(a), d));
    gradients.put(layer_name(l), all_reduce<replica>(std::move(mine)));
    if (l > 0 || wants_input_grad()) d = matmul(d, transposed(w));
    if (relu_before(l)) d = relu_backward(std::move(d), a);
  }
  if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
  return gradients;
}
//// 09.2 panels by index
Block operator()(BlockEngine& engine, const Block& a, const Block& b) const {
  Mesh& mesh = engine.mesh();
  const Shape global = product_shape(a, b);
  const std::vector<Panel> all = panels_of(mesh, a.global_shape()[1]);
  Tensor c(my_block_of(mesh, global));
  for (std::size_t i = 0; i < all.size(); ++i) {
    Tensor of_b = spread(mesh.axis(rows::name), b.local(), 0, all[i].of_rows);
    Tensor of_a = spread(mesh.axis(columns::name), a.local(), 1, all[i].of_columns);
    matmul_accumulate(of_a, of_b, c);
  }
  return Block(mesh, std::move(c), global);
}
Block operator()(BlockEngine& engine, const Block& a, const Transposed<Block>& b) const {
  Mesh& mesh = engine.mesh();
  const Shape global = product_shape(a, b);
  std::vector<Tensor> mine;
  for (const Panel& panel : panels_of(mesh, global[1])) {
    Tensor addend;
    {
      const Tensor of_b = spread(mesh.axis(rows::name), b.matrix.local(), 0, panel.of_rows);
      addend = matmul(a.local(), transposed(of_b));
    }
    collect(mesh.axis(columns::name), std::move(addend), panel.of_columns.place, mine);
  }
  Tensor block = joined(std::move(mine), 1, my_block_of(mesh, global));
  return Block(mesh, std::move(block), global);
}
Block operator()(BlockEngine& engine, const Transposed<Block>& a, const Block& b) const {
  Mesh& mesh = engine.mesh();
  const Shape global = product_shape(a, b);
  std::vector<Tensor> mine;
  for (const Panel& panel : panels_of(mesh, global[0])) {
    Tensor addend;
    {
      const Tensor of_a = spread(mesh.axis(columns::name), a.matrix.local(), 1, panel.of_columns);
      addend = matmul(transposed(of_a), b.local());
    }
    collect(mesh.axis(rows::name), std::move(addend), panel.of_rows.place, mine);
  }
  return Block(mesh, joined(std::move(mine), 0, my_block_of(mesh, global)), global);
}
//// 09.2 red: the product of temporary panels
Block operator()(BlockEngine& engine, const Block& a, const Transposed<Block>& b) const {
  Mesh& mesh = engine.mesh();
  const Shape global = product_shape(a, b);
  Communicator& my_row = mesh.axis(columns::name);
  Communicator& my_column = mesh.axis(rows::name);
  std::vector<Tensor> mine;
  for (const auto& [of_rows, of_columns] : panels_of(mesh, global[1]))
    collect(my_row, matmul(a.local(), transposed(spread(my_column, b.matrix.local(), 0, of_rows))),
            of_columns.place, mine);
  return Block(mesh, joined(std::move(mine), 1, my_block_of(mesh, global)), global);
}
//// 09.2 a helper for a panel's product
static Tensor times_panel(Communicator& axis, const Tensor& a, const Block& b, const Piece& piece) {
  const Tensor panel = spread(axis, b.local(), 0, piece);
  return matmul(a, transposed(panel));
}
Block operator()(BlockEngine& engine, const Block& a, const Transposed<Block>& b) const {
  Mesh& mesh = engine.mesh();
  const Shape global = product_shape(a, b);
  std::vector<Tensor> mine;
  for (const Panel& panel : panels_of(mesh, global[1])) {
    Tensor addend = times_panel(mesh.axis(rows::name), a.local(), b.matrix, panel.of_rows);
    collect(mesh.axis(columns::name), std::move(addend), panel.of_columns.place, mine);
  }
  return Block(mesh, joined(std::move(mine), 1, my_block_of(mesh, global)), global);
}
//// 09.2 the first product is no sum
Block operator()(BlockEngine& engine, const Block& a, const Block& b) const {
  Mesh& mesh = engine.mesh();
  const Shape global = product_shape(a, b);
  Tensor c;
  for (const Panel& panel : panels_of(mesh, b.global_shape()[0])) {
    Tensor of_a = spread(mesh.axis(columns::name), a.local(), 1, panel.of_columns);
    Tensor of_b = spread(mesh.axis(rows::name), b.local(), 0, panel.of_rows);
    if (c.size() == 0)
      c = matmul(of_a, of_b);
    else
      matmul_accumulate(of_a, of_b, c);
  }
  return Block(mesh, std::move(c), global);
}
//// 09.2 a lambda for an addend
Block operator()(BlockEngine& engine, const Transposed<Block>& a, const Block& b) const {
  Mesh& mesh = engine.mesh();
  Communicator& my_row = mesh.axis(columns::name);
  Communicator& my_column = mesh.axis(rows::name);
  auto addend = [&](const Piece& piece) {
    const Tensor panel = spread(my_row, a.matrix.local(), 1, piece);
    return matmul(transposed(panel), b.local());
  };
  const Shape global = product_shape(a, b);
  std::vector<Tensor> mine;
  for (const auto& [of_rows, of_columns] : panels_of(mesh, global[0]))
    collect(my_column, addend(of_columns), of_rows.place, mine);
  Tensor block = joined(std::move(mine), 0, my_block_of(mesh, global));
  return Block(mesh, std::move(block), global);
}
//// 09.2 panels by a list, and by iterators
Block operator()(BlockEngine& engine, const Block& a, const Block& b) const {
  Mesh& mesh = engine.mesh();
  Communicator& along_row = mesh.axis(columns::name);
  Communicator& along_column = mesh.axis(rows::name);
  const Shape global = product_shape(a, b);
  Tensor sum(my_block_of(mesh, global));
  for (const auto& [of_rows, of_columns] : panels_of(mesh, a.global_shape()[1]))
    matmul_accumulate(spread(along_row, a.local(), 1, of_columns), spread(along_column, b.local(), 0, of_rows), sum);
  return Block(mesh, std::move(sum), global);
}
Block operator()(BlockEngine& engine, const Block& a, const Transposed<Block>& b) const {
  Mesh& mesh = engine.mesh();
  const Shape global = product_shape(a, b);
  const std::vector<Panel> list = panels_of(mesh, global[1]);
  std::vector<Tensor> mine;
  mine.reserve(list.size());
  for (auto panel = list.begin(); panel != list.end(); ++panel) {
    Tensor of_b = spread(mesh.axis(rows::name), b.matrix.local(), 0, panel->of_rows);
    Tensor addend = matmul(a.local(), transposed(std::exchange(of_b, {})));
    collect(mesh.axis(columns::name), std::move(addend), panel->of_columns.place, mine);
  }
  return Block(mesh, joined(std::move(mine), 1, my_block_of(mesh, global)), global);
}
//// 09.2 red: the panel lives on while addends travel
Block operator()(BlockEngine& engine, const Block& a, const Transposed<Block>& b) const {
  Mesh& mesh = engine.mesh();
  const Shape global = product_shape(a, b);
  std::vector<Tensor> mine;
  for (const Panel& panel : panels_of(mesh, global[1])) {
    Tensor of_b = spread(mesh.axis(rows::name), b.matrix.local(), 0, panel.of_rows);
    Tensor addend = matmul(a.local(), transposed(of_b));
    collect(mesh.axis(columns::name), std::move(addend), panel.of_columns.place, mine);
  }
  return Block(mesh, joined(std::move(mine), 1, my_block_of(mesh, global)), global);
}
Block operator()(BlockEngine& engine, const Transposed<Block>& a, const Block& b) const {
  Mesh& mesh = engine.mesh();
  const Shape global = product_shape(a, b);
  std::vector<Tensor> mine;
  for (const Panel& panel : panels_of(mesh, global[0])) {
    Tensor of_a = spread(mesh.axis(columns::name), a.matrix.local(), 1, panel.of_columns);
    Tensor addend = matmul(transposed(of_a), b.local());
    collect(mesh.axis(rows::name), std::move(addend), panel.of_rows.place, mine);
  }
  return Block(mesh, joined(std::move(mine), 0, my_block_of(mesh, global)), global);
}
