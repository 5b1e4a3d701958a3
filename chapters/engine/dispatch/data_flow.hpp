#pragma once

/// Which modules must stay whole, from the activations that are live at each cut.

#include <set>
#include <string>
#include <vector>

#include "engine/dispatch/module_tree.hpp"

namespace shard::dispatch {

/// The activations that are live at each cut: those that a step before it has written and one behind it reads.
/// Cut i lies before step i. The last cut lies behind all steps: there the network's result is live.
std::vector<std::set<std::string>> live_at_cuts(const std::vector<Step>& flow);

/// A class whose modules stay whole.
struct KeptWhole {
  std::string class_name;
  std::string cut_behind;      ///< the module before the first cut in it that is costly
  std::set<std::string> live;  ///< there
  std::size_t at_borders = 0;  ///< the most activations that are live at its own borders

  /// One sentence.
  std::string why() const;
};

/// The smallest classes that contain all costly cuts, by name.
///
/// Lists of modules, such as the blocks of a network, are there to be cut between their elements. A cut inside
/// an element is costly if more activations are live there than at either border of the element: then more
/// must be sent. The smallest module around such a cut whose own borders have fewer stays whole. A module
/// inside another one that stays whole is not named.
std::vector<KeptWhole> kept_whole(const Network& network);

}  // namespace shard::dispatch
