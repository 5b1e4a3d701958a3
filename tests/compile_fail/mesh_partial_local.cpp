// expect: no matching function for call to | no matching member function for call to | passing 'const
// An addend has no elements to read.
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

auto elements(const OnMesh<Grid, S<0>, P>& z) {
  return z.local().size();
}
