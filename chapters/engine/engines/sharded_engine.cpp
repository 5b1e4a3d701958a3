#include "engine/engines/sharded_engine.hpp"

#include <fmt/format.h>

#include "engine/device/books/doing.hpp"
#include "engine/device/books/ledger.hpp"
#include "engine/device/books/observer.hpp"
#include "engine/device/this_device.hpp"
#include "engine/layouts/mesh.hpp"

namespace shard {

Gradients::Gradients() = default;
Gradients::Gradients(Gradients&&) noexcept = default;
Gradients& Gradients::operator=(Gradients&&) noexcept = default;
Gradients::~Gradients() = default;

void Gradients::put(const std::string& name, Placed gradient, SourceLine where) {
  gradient.charge_to(Purpose::gradients);
  gradient.put_at = where;
  if (device().is_observed) note_name(gradient.local(), name);
  insert_or_assign(name, std::move(gradient));
}

const Tensor& Gradients::local(const std::string& name, SourceLine where) const {
  const CallSite call(where);
  auto found = find(name);
  if (found == end()) refuse(Code::argument, "gradient", "one for every parameter", "none for " + name);
  return found->second.local();
}

const Tensor& Gradients::of_parameter(const std::string& name, const Shape& rows) const {
  const Tensor& gradient = local(name, SourceLine());
  if (gradient.shape() != rows) {
    const CallSite call(at(name).put_at);
    refuse(Code::argument, name,
           "a gradient that is divided over the devices as its parameter is, here " + to_string(rows),
           to_string(gradient.shape()));
  }
  return gradient;
}

std::map<std::string, Traffic> ShardedEngine::sent_along() const {
  const Mesh* mesh = on_mesh();
  return mesh == nullptr ? std::map<std::string, Traffic>() : mesh->sent_along();
}

Gradients ShardedEngine::forward_backward(Tensor x, const LossGradient& loss_gradient) {
  Tensor dout;
  {
    const Doing::Within within(Phase::forward);
    Placed out = forward(std::move(x));
    if (out.is_here()) dout = loss_gradient(out.local(), out.first_row());
  }  // the output is no longer needed
  const Doing::Within within(Phase::backward);
  return backward(std::move(dout));
}

/// Rounded rows are held until the caller waits, so that the bytes held do not depend on timing.
Future<ReplicatedFactor> ShardedEngine::all_gather_factor_async(const Sharded<0>& s, SourceLine where) {
  const CallSite call(where);
  Communicator& group = s.group();
  const bool is_in_bf16 = precision() == Precision::bf16;
  const auto rounded = std::make_shared<const Tensor>(is_in_bf16 ? to_bf16(s.local()) : Tensor());
  const Tensor& rows = is_in_bf16 ? *rounded : s.local();
  const Shape global = s.global_shape(), whole_shape = {global[0], rows.extent(1)};
  return group.all_gather_async(rows, 0, whole_shape)
      .then([&group, global, whole_shape, is_in_bf16, rounded](Tensor whole) {
        detail::require_result("all_gather", whole_shape, whole.shape());
        return ReplicatedFactor(group, std::move(whole), global, is_in_bf16);
      });
}

Future<Tensor> ShardedEngine::sum_of_rounded(Communicator& group, Tensor addend) {
  const Index columns = addend.extent(1), addends = group.num_devices();
  Tensor pairs = to_bf16(addend);
  addend = Tensor();
  return group.all_to_all_async(std::move(pairs), 0, 0).then([columns, addends](Tensor mine) {
    return sum_of_bf16(mine, addends, columns);
  });
}

Range ShardedEngine::input_rows(Index batch) const {
  Placement placement = input_layout();
  if (!placement.is_here(group())) return {0, 0};
  if (placement == Placement::sharded(0)) return part(batch, num_devices(), device_id());
  return range_after(placement.cuts, 0, batch);
}

Tensor ShardedEngine::whole(Placed placed, SourceLine where) {
  const CallSite call(where);
  Placement placement = placed.placement();
  Communicator& on = placed.group();
  const bool is_here = placed.is_here();
  Tensor local = std::move(placed).local();
  if (placement.kind == Placement::Kind::sharded)
    return on.all_gather_async(std::move(local), placement.axis).get();
  // inner cuts first
  for (auto cut = placement.cuts.rbegin(); is_here && cut != placement.cuts.rend(); ++cut)
    local = cut->over->all_gather_async(std::move(local), cut->dimension).get();
  if (placement.along != nullptr)
    return placement.along->broadcast_async(std::move(local), placement.owner).get();
  if (placement.kind == Placement::Kind::owned)
    return on.broadcast_async(std::move(local), placement.owner).get();
  return local;
}

void ShardedEngine::inference_loop(InputStream& input, OutputStream& output) {
  InferenceMode no_tape;
  for (;;) {
    std::optional<Tensor> rows;
    if (device_id() == 0) rows = input.next();
    Tensor batch = broadcast(rows ? std::move(*rows) : Tensor(), 0);
    if (batch.size() == 0) return;  // the input has ended; every device sees this
    Range mine = input_rows(batch.extent(0));
    Tensor result = whole(forward(slice(batch, 0, mine.begin, mine.end)));
    if (device_id() == 0) output.write(result);
  }
}

Future<Replicated> ShardedEngine::all_reduce_async(Partial&& p, SourceLine where) {
  const CallSite call(where);
  Communicator& group = p.group();
  Shape global = p.global_shape();
  return group.all_reduce_async(detail::Access::take(std::move(p)), ReduceOp::sum)
      .then([&group, global](Tensor sum) {
        return detail::Access::make<Replicated>(group, std::move(sum), global, 0);
      });
}

Replicated ShardedEngine::broadcast(Owned&& o, SourceLine where) {
  const CallSite call(where);
  Communicator& group = o.group();
  Shape global = o.global_shape();
  Tensor whole = group.broadcast_async(detail::Access::take(std::move(o)), o.owner()).get();
  return detail::Access::make<Replicated>(group, std::move(whole), global, 0);
}

Sharded<0> ShardedEngine::my_rows(Tensor rows, SourceLine where) {
  const CallSite call(where);
  std::vector<Index> extents = group().exchange("rows of the input", rows.extent(0));
  Shape global = rows.shape();
  Index offset = 0;
  global[0] = 0;
  for (int d = 0; d < num_devices(); ++d) {
    if (d == device_id()) offset = global[0];
    global[0] += extents[static_cast<std::size_t>(d)];
  }
  return Sharded<0>(group(), std::move(rows), std::move(global), offset);
}

std::vector<Index> ShardedEngine::all_gather(const std::vector<Index>& numbers, SourceLine where) {
  const CallSite call(where);
  const std::vector<float> mine(numbers.begin(), numbers.end());
  const auto count = static_cast<Index>(mine.size());
  const Tensor gathered = all_gather(Tensor::from_host({1, count}, mine));
  detail::require_result("all_gather", {num_devices(), count}, gathered.shape());
  const std::vector<float> all = gathered.to_host();
  return {all.begin(), all.end()};
}

Sharded<0> ShardedEngine::my_rows(Tensor rows, const Sharded<0>& like, SourceLine where) const {
  const CallSite call(where);
  Shape global = rows.shape();
  global.at(0) = like.global_shape()[0];
  return Sharded<0>(like.group(), std::move(rows), std::move(global), like.offset());
}

Replicated ShardedEngine::load_replicated(const Checkpoint& checkpoint, const std::string& name,
                                          SourceLine where) const {
  const CallSite call(where);
  return Replicated(group(), checkpoint.whole(name));
}

Replicated ShardedEngine::as_parameter(Replicated gathered) {
  gathered.parameter().charge_to(Purpose::parameters);
  return gathered;
}

Owned ShardedEngine::load_owned(const Checkpoint& checkpoint, const std::string& name, int owner,
                                SourceLine where) const {
  const CallSite call(where);
  Tensor mine = owner == device_id() ? checkpoint.whole(name) : Tensor();
  return Owned(group(), std::move(mine), checkpoint.shape(name), owner);
}

/// \cond
template class Future<Replicated>;
template class Future<ReplicatedFactor>;
template class Future<Sharded<0>>;
template class Future<Sharded<1>>;
template Future<Sharded<0>> ShardedEngine::reduce_scatter_async<0>(Partial&&, SourceLine);
template Future<Sharded<1>> ShardedEngine::reduce_scatter_async<1>(Partial&&, SourceLine);
template Future<Replicated> ShardedEngine::all_gather_async<0>(Sharded<0>&&, SourceLine);
template Future<Replicated> ShardedEngine::all_gather_async<1>(Sharded<1>&&, SourceLine);
template Future<Replicated> ShardedEngine::all_gather_async<0>(const Sharded<0>&, SourceLine);
template Future<Replicated> ShardedEngine::all_gather_async<1>(const Sharded<1>&, SourceLine);
template Sharded<0> ShardedEngine::load_sharded<0>(const Checkpoint&, const std::string&, SourceLine) const;
template Sharded<1> ShardedEngine::load_sharded<1>(const Checkpoint&, const std::string&, SourceLine) const;
/// \endcond

Sharded<0> ShardedEngine::in_pieces(Sharded<0> x, Index pieces, const LossGradient& loss_gradient,
                                    const std::function<Placed(Sharded<0>)>& forward,
                                    const std::function<Sharded<0>(Tensor)>& backward) {
  auto there_and_back = [&](Sharded<0> piece, Index micro_batch) {
    Tensor dout;
    {
      const Doing::Within within(Phase::forward, micro_batch);
      Placed out = forward(std::move(piece));
      dout = loss_gradient(out.local(), out.first_row());
    }  // the output is no longer needed
    const Doing::Within within(Phase::backward, micro_batch);
    return backward(std::move(dout));
  };
  if (pieces == 1) return there_and_back(std::move(x), 0);
  Sharded<0> dx;
  if (wants_input_grad()) dx = my_rows(Tensor::uninitialized(x.local().shape()), x);  // (b, D)
  for (int m = 0; m < pieces; ++m) {
    Range rows = part(x.local().extent(0), static_cast<int>(pieces), m);
    Tensor piece;  // (b/M, D)
    {
      const Doing::Within within(Phase::forward, m);
      piece = slice(x.local(), 0, rows.begin, rows.end);
    }
    Sharded<0> dpiece =
        there_and_back({x.group(), std::move(piece), x.global_shape(), x.offset() + rows.begin}, m);
    if (wants_input_grad()) assign(Rows(dx.parameter(), rows.begin, rows.end), dpiece.local());
  }
  return dx;
}

}  // namespace shard
