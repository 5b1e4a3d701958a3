#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/device/books/ledger.hpp"
#include "engine/program/step/step.hpp"

namespace shard {

/// The costs of a training step on one device: bytes, and operations.
struct CostsOfStep {
  Index parameters = 0;
  Index gradients = 0;    ///< the most held at a time
  Index state = 0;        ///< of the optimizer
  Index activations = 0;  ///< the most held at a time
  Index buffers = 0;      ///< the most held at a time
  Index peak = 0;         ///< the most of all kinds together, held at a time
  Index operations = 0;   ///< of matrix products
  Traffic sent = {};
  std::map<std::string, Traffic> along = {};  ///< what is sent, by axes of a mesh

  bool operator==(const CostsOfStep&) const = default;
};

/// Runs a step on each device. Returns the costs of all devices, in order, on device 0. Tokens choose experts in turn.
/// \throws Error usage when the variant cannot train this network on them
std::vector<CostsOfStep> costs_of_step(const Run& run);
/// The same on this number of devices. If the run has one device, that one makes a job of them, of devices whose tensors
/// have no elements. \throws Error usage also where the run has other devices, and where tensors have elements
std::vector<CostsOfStep> costs_of_step(const Run& run, int devices);

}  // namespace shard
