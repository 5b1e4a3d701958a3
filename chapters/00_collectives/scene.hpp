#pragma once

/// One scene: what the devices hold before and after a call, what each of them sent, and what it ought to
/// have sent. All that is drawn is gathered from the devices at the end, behind what the scene shows; device 0 writes.

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "drawing.hpp"
#include "engine/device/books/collective_costs.hpp"
#include "engine/device/books/figures.hpp"

namespace shard::primer {

/// All devices call each member function, each with its own data. `ends` is a collective.
class Scene {
 public:
  Scene(Communicator& group, std::string name);

  /// The call, and what it does in a sentence or two.
  void tells(const std::string& call, const std::string& sentences);

  /// A row of the picture: a matrix of each device. `arrived`: the row of it that has just come.
  void draws(const std::string& label, const Tensor& t, Ink ink = Ink::numbers, Index arrived = -1);
  /// A row of the picture: a text of each device.
  void writes(const std::string& label, const std::string& mine, bool is_boxed = false);

  /// What `t` must be: its shape (rows, columns), and the value in row i and column j. `said_of` says more of the
  /// first wrong value, which is in this row.
  void expects(
      const Tensor& t, const Shape& shape, const std::function<Index(Index, Index)>& value,
      const std::function<std::string(Index row, Index given)>& said_of = [](Index, Index) { return ""; });

  /// Whether all devices have what they must have, so far. A collective.
  bool is_right_everywhere();

  /// What I must have sent since the scene began; `form` says it in words.
  void sends(const std::string& form, const Traffic& traffic);

  /// Gathers it all, and writes it down, on device 0.
  Outcome ends();

 private:
  Communicator& group_;
  std::string name_, call_, sentences_, form_;
  std::vector<Row> rows_;
  std::vector<std::string> cells_;  ///< this device's of each row
  Lines mistakes_;                  ///< this device's; "" is none
  Traffic measured_, closed_form_;
};

inline bool all_right(const std::vector<Outcome>& outcomes) {
  return std::ranges::all_of(outcomes, &Outcome::is_right);
}

}  // namespace shard::primer
