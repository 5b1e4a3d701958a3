#include "engine/workloads/t5/t5.hpp"
#include "t5.hpp"
#include "t5_layers.hpp"
#include "variants.hpp"

namespace shard::decoders {

namespace {

/// Makes an engine that takes nothing but the model.
template <class Engine>
std::unique_ptr<ShardedEngine> made_t5(Communicator& group, const Workload& w, const Options&) {
  return std::make_unique<Engine>(group, as_t5(w).model());
}

}  // namespace

std::vector<Variant> t5_variants() {
  return {
      {.name = "t5-single",
       .summary = "an encoder-decoder on one device: nothing is divided",
       .make = made_t5<T5Single>,
       .workload = &t5(),
       .is_reference = true},
      {.name = "t5-tensor",
       .summary = "an encoder-decoder with heads, hidden units and the vocabulary divided",
       .make = made_t5<T5Tensor>,
       .workload = &t5()},
      {.name = "t5-layers",
       .summary = "an encoder-decoder with blocks divided, the encoder's first; as layers",
       .make =
           [](Communicator& group, const Workload& w, const Options& o) {
             return std::make_unique<T5Layers>(group, as_t5(w).model(), o[split()], o[micro_batches()]);
           },
       .options = {split(), micro_batches()},
       .require = [](int devices, const Workload& w,
                     const Options& o) { T5Split(as_t5(w).model(), devices, o[split()]); },
       .workload = &t5()},
  };
}

}  // namespace shard::decoders
