#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/device/device.hpp"

namespace shard {

/// One figure of every device: the number of the ledger and of the closed form.
struct Figure {
  std::vector<Index> measured;
  std::vector<Index> formula = {};  ///< empty: no closed form
  bool is_booked = false;           ///< the backend computed the ledger's number from its own closed form

  bool has_form() const { return !formula.empty(); }
  /// Whether the ledger's number equals the closed form's on every device.
  bool is_met() const { return !has_form() || measured == formula; }
  Index largest() const;
};

/// The results of one scene of chapter 00.
struct Outcome {
  std::string name;
  Figure messages;       ///< sent
  Figure bytes;          ///< sent
  bool is_right = true;  ///< whether values and figures are right
};

/// Gathers the measured number of each device, and the closed form's if there is one. A collective.
Figure gather_figure(Communicator& group, const char* what, Index measured,
                     std::optional<Index> formula = std::nullopt);

}  // namespace shard
