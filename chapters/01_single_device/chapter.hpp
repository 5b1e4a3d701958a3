#pragma once

#include "costs.hpp"
#include "engine/program/chapter.hpp"
#include "single_device.hpp"

namespace shard {

inline Chapter this_chapter() {
  return {"01",
          "single device",
          {{"single", "everything on one device",
            [](Communicator& group, const EngineOptions&) { return std::make_unique<SingleDevice>(group); }, single_device_costs}}};
}

}  // namespace shard
