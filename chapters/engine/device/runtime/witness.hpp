#pragma once

/// What a device says of its waits: which call it waits for, and which posts of other devices that call needs. It only
/// looks at the stream.

#include "engine/device/call_site.hpp"
#include "engine/device/runtime/stream.hpp"

namespace shard::runtime {

/// A wait for this call, that is, for the first call of the stream or a nonblocking message.
Blocked wait_for_call(const Stream& stream, const Call& call);
/// A wait for any of the calls that the device polls.
Blocked wait_for_polled(const Stream& stream);
/// A wait for all calls.
Blocked wait_for_all(const Stream& stream);
/// A wait outside of the stream. `place`: "after call 3, at FILE:LINE".
Blocked wait_outside(const Stream& stream, const std::string& what, std::string place,
                     Blocked::Dependencies dependencies);
/// The state of this device, for the search for deadlocks.
DeviceState state_of_device(Blocked blocked);

}  // namespace shard::runtime
