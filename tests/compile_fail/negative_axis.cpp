// expect: Sharded<Axis>: an axis is counted from 0
// There are no axes counted from the end.
#include "engine/layouts.hpp"

using namespace shard;

Sharded<-1> last;
