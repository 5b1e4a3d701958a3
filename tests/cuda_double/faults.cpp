// cuda/ plants no faults. Tests that count calls anew by planting none find that here.

#include "emu/faults.hpp"

#include "engine/device/runtime/control.hpp"

namespace shard::emu {

void plant_faults(const Faults&) {
  runtime::control().count_calls_anew();
}

}  // namespace shard::emu
