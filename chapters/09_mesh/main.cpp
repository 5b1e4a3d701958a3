/// Chapter 09 in one main: data parallel along one axis of a mesh, tensor parallel along the other.
///
///     cmake --build build --target 09_mesh.main
///     mpirun --oversubscribe -n 4 build/mains/09_mesh
///     mpirun --oversubscribe -n 6 build/mains/09_mesh 4 96      (four layers, 96 wide)
///     mpirun --oversubscribe -n 1 build/mains/09_mesh

#include "data_tensor.hpp"
#include "engine/engines/optimizer.hpp"
#include "engine/program/mains/shown.hpp"
#include "engine/workloads/mlp/mlp.hpp"

using namespace shard;
using namespace shard::meshes;

/// The engine, which shows how it loads its parts.
struct ByHand : DataTensor {
  using DataTensor::DataTensor, DataTensor::from_outside, DataTensor::load;
};

int main(int argc, char** argv) {
  return run_on_devices(argc, argv, [&](Communicator& world) {
    constexpr Index rows = 13, model_dim = 64, batch_rows = 64, steps = 200;
    // 1. The network, from the command line, and a problem whose sums are exact in float32 in any order.
    const std::vector<Index> given = numbers_of(argc, argv, {{"layers", 2}, {"hidden", 128}});
    Mlp network(Model{.num_layers = given[0], .model_dim = model_dim, .hidden_dim = given[1]});
    const ExactProblem problem = network.exact_problem(rows, 0);
    // 2. The unsharded engine, which each device has for itself, and this chapter's, on one checkpoint.
    const auto checkpoint = host_checkpoint(problem.weights, "an exact problem");
    const auto alone = world.split(world.device_id(), 0);
    const auto unsharded = network.unsharded(*alone);
    unsharded->load_checkpoint(*checkpoint);
    ByHand engine(world, mesh_shape("data,tensor", {"data", "tensor"}, world.num_devices()));
    engine.load_checkpoint(*checkpoint);
    // 3. What each device owns: what chapter 03 divides along tensor; the same along data.
    show_owned(engine);
    // 4. The chapter's two lines by hand, and what the second one sends, over tensor alone.
    ledger().reset();
    const auto x =
        engine.from_outside<S<0>, R>(rows_on_device(problem.input, engine.input_rows(rows)));  // (b, D)
    const auto w0 = engine.load<R, S<1>>(*checkpoint, layer_name(0));                          // (D, F/N)
    const auto w1 = engine.load<R, S<0>>(*checkpoint, layer_name(1));                          // (F/N, D)
    OnMesh<DataTensorAxes, S<0>, P> addend = matmul(relu(matmul(x, w0)), w1);  // (S0, S1)·(R, S0) = (S0, P)
    const Index mine = addend.ranges()[0].size();                              // b
    OnMesh<DataTensorAxes, S<0>, R> out = engine.all_reduce<tensor>(std::move(addend));  // (S0, P) → (S0, R)
    auto ring = [&](const std::string& axis, Index elements) {
      return ring_all_reduce(elements, engine.mesh().size(axis), engine.mesh().place(axis));
    };
    show_sent(world, "all_reduce<tensor>, (S0, P) → (S0, R)", ring("tensor", mine * model_dim));
    // 5. A step of both. Gradients are equal in every bit; they are summed over data, activations over tensor.
    const Gradients gradients = step_of(engine, problem);
    Traffic of_step = (given[0] - 1) * ring("tensor", mine * model_dim);
    for (Index l = 0; l < given[0]; l += 2) {
      const Index columns = engine.load<R, S<1>>(*checkpoint, layer_name(l)).ranges()[1].size();  // F/N
      of_step += 2 * ring("data", model_dim * columns);
    }
    show_sent(world, "a whole step", of_step);
    show_equal(world, gradients, step_of(*unsharded, problem));
    // 6. Training: digits, a new network, an optimizer whose state is divided as the weights are.
    network.open_data();
    engine.load_checkpoint(*generate_checkpoint(network.parameters(), 0));
    Adam adam({.rate = 0.003F});
    for (Index step = 1; step <= steps; ++step) {
      const auto batch = network.batch(batch_rows, 0, step);
      adam.step(engine, step_of(engine, *batch, batch_rows));
      show_loss(world, step, steps, *batch);
    }
    return 0;
  });
}
