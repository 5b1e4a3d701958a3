// expect: success
// The mistakes beside it are made of this.
#include "engine/layouts.hpp"
#include "engine/tape.hpp"

using namespace shard;

void keep(Tape<Replicated>& tape, Replicated&& x) {
  tape.push(std::move(x));
}
