#pragma once

/// What most tests include: the compiler reads it once for all of them. Each still includes what it uses.

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/equivalence/each_case.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"
