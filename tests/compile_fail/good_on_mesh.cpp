// expect: success
// The mistakes beside it are made of this.
#include "engine/on_mesh.hpp"

using namespace shard;
using namespace shard::letters;

struct data {
  static constexpr const char* name = "data";
};
struct tensor {
  static constexpr const char* name = "tensor";
};
using Grid = MeshAxes<data, tensor>;

OnMesh<Grid, S<0>, P> block(const OnMesh<Grid, S<0>, R>& x, const OnMesh<Grid, R, S<1>>& w0,
                            const OnMesh<Grid, R, S<0>>& w1) {
  OnMesh<Grid, S<0>, S<1>> z = matmul(x, w0);
  return matmul(relu(std::move(z)), w1);
}
