// expect: use of deleted function | deleted constructor | implicitly-deleted copy constructor
// Activations move onto the tape.
#include "engine/layouts.hpp"
#include "engine/tape.hpp"

using namespace shard;

void keep(Tape<Replicated>& tape, const Replicated& x) {
  tape.push(x);
}
