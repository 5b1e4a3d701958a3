#pragma once

/// Which modules must stay whole, from the activations that are live at each cut.

#include <set>
#include <string>
#include <vector>

#include "tree.hpp"

namespace shard::dispatch {

/// The activations that are live at each cut: written by a step before the cut, and read by a step behind it.
/// Cut i lies before step i. The last cut lies behind all steps; the network's result is live there.
std::vector<std::set<std::string>> live_at_cuts(const std::vector<Step>& flow);

/// A class whose modules stay whole.
struct KeptWhole {
  std::string class_name;
  std::string cut_behind;      ///< the module before the first costly cut inside
  std::set<std::string> live;  ///< the live activations at this cut
  std::size_t at_borders = 0;  ///< the most live activations at the module's own borders

  /// The reason, in one sentence.
  std::string why() const;
};

/// The smallest classes that contain all costly cuts, by name.
///
/// Lists of modules, such as the blocks of a network, may be cut between their elements. A cut inside an
/// element is costly if more activations are live there than at either border of the element, since more must
/// be sent. Then the smallest enclosing module with fewer live activations at its borders stays whole.
/// Modules inside such a module are not named.
std::vector<KeptWhole> kept_whole(const Network& network);

}  // namespace shard::dispatch
