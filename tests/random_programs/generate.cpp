/// Draws a program. It is legal by construction: all calls have one order, in which every device makes its
/// own calls. A device waits for a call only when all its members have started it in that order. So there is
/// always a device that can continue: the first one in that order that has not ended.

#include <algorithm>
#include <numeric>

#include "tests/random_programs/plan.hpp"
#include "tests/random_programs/random.hpp"

namespace shard::testing {

namespace {

constexpr int most_elements = 500;        // of a usual tensor: MPI sends it eagerly
constexpr int elements_of_large = 5'000;  // too large for that
constexpr int most_in_flight = 6;

const std::vector<ReduceOp> ops = {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min,
                                   ReduceOp::prod};

class Generator {
 public:
  Generator(std::uint64_t seed, Index program, int devices)
      : random_({seed, static_cast<std::uint64_t>(program), static_cast<std::uint64_t>(devices)}),
        in_flight_(static_cast<std::size_t>(devices)) {
    plan_ = {seed, program, devices, {}, {}, {}};
    plan_.actions.resize(static_cast<std::size_t>(devices));
    plan_.groups.emplace_back(static_cast<std::size_t>(devices));
    std::iota(plan_.groups[0].begin(), plan_.groups[0].end(), 0);
  }

  Plan make() {
    const int items = random_.between(20, 40);
    const int item_of_long_pause = random_.one_in(25) ? random_.below(items) : -1;
    for (int i = 0; i < items; ++i) {
      if (i == item_of_long_pause)
        add(a_device(), {Action::Kind::pause, -1, random_.between(20'000, 100'000)});
      add_item();
      for (int d = 0; d < plan_.devices; ++d) live(d);
    }
    while (!halves_.empty()) start_later_half(0);
    for (int d = 0; d < plan_.devices; ++d)
      while (wait_for_one(d)) continue;
    return std::move(plan_);
  }

 private:
  /// A message of which one side has started.
  struct Half {
    int item;
    int group, from, to;
    bool is_sender_left;
  };

  // ---- Devices ----------------------------------------------------------------------------------------

  int a_device() { return random_.below(plan_.devices); }
  void add(int device, Action action) { plan_.actions[static_cast<std::size_t>(device)].push_back(action); }
  void start(int device, int item, bool is_blocking) {
    add(device, {Action::Kind::start, item, 0});
    if (!is_blocking) in_flight_[static_cast<std::size_t>(device)].push_back(item);
  }

  /// Adds a device's actions between two items.
  void live(int device) {
    if (random_.one_in(8)) add(device, {Action::Kind::pause, -1, random_.between(1, 200)});
    if (random_.one_in(300)) add(device, {Action::Kind::work, -1, random_.between(500, 5'000)});
    if (random_.one_in(60) && !is_in_half(device)) add(device, {Action::Kind::synchronize, -1, 0});
    if (random_.one_in(20)) poll_one(device);
    const auto& pending = in_flight_[static_cast<std::size_t>(device)];
    while (random_.one_in(3) || pending.size() > most_in_flight)
      if (!wait_for_one(device)) break;
  }

  bool is_in_half(int device) const {
    return std::ranges::any_of(halves_, [&](const Half& half) {
      const std::vector<int>& members = plan_.groups[static_cast<std::size_t>(half.group)];
      return members[static_cast<std::size_t>(half.is_sender_left ? half.to : half.from)] == device;
    });
  }

  /// Waits for any of the device's calls that all members have started. False without one.
  bool wait_for_one(int device) {
    std::vector<int>& pending = in_flight_[static_cast<std::size_t>(device)];
    std::vector<int> possible;
    for (int item : pending)
      if (std::ranges::none_of(halves_, [&](const Half& half) { return half.item == item; }))
        possible.push_back(item);
    if (possible.empty()) return false;
    const int item = random_.pick(possible);
    pending.erase(std::ranges::find(pending, item));
    if (random_.one_in(4)) add(device, {Action::Kind::poll, item, random_.between(1, 300)});
    add(device, {Action::Kind::wait, item, 0});
    return true;
  }

  /// Polls any call, maybe one that cannot be done before this device continues. Rarely it polls so long that
  /// other devices ask what it waits for.
  void poll_one(int device) {
    const std::vector<int>& pending = in_flight_[static_cast<std::size_t>(device)];
    if (pending.empty()) return;
    const bool is_long = random_.one_in(40);
    const int item = random_.pick(pending);
    add(device,
        {Action::Kind::poll, item, is_long ? random_.between(100'000, 400'000) : random_.between(1, 300)});
  }

  // ---- Shapes -----------------------------------------------------------------------------------------

  Shape shape_of_rank(int rank) {
    if (rank > 0 && random_.one_in(30)) return large_shape(rank);
    const int most = rank == 1 ? 40 : rank == 2 ? 12 : rank == 3 ? 6 : 4;
    Shape shape;
    for (int axis = 0; axis < rank; ++axis)
      shape.push_back(random_.one_in(12) ? 0 : random_.between(1, most));
    if (rank > 0 && random_.one_in(4)) stretch(shape);
    return shape;
  }
  /// Lengthens one axis to a usual extent.
  void stretch(Shape& shape) {
    const auto axis = static_cast<std::size_t>(random_.below(static_cast<int>(shape.size())));
    shape[axis] = 1;
    shape[axis] = most_elements / std::max<Index>(num_elements(shape), 1);
  }
  Shape large_shape(int rank) {
    Shape shape(static_cast<std::size_t>(rank), 1);
    shape[static_cast<std::size_t>(random_.below(rank))] = elements_of_large;
    return shape;
  }
  Shape any_shape() { return shape_of_rank(random_.between(0, 4)); }
  Shape shape_with_axis() { return shape_of_rank(random_.between(1, 4)); }

  // ---- Items ------------------------------------------------------------------------------------------

  /// A random group. The world for half of the collectives.
  int a_group() { return random_.one_in(2) ? 0 : random_.below(static_cast<int>(plan_.groups.size())); }
  int size_of(int group) const {
    return static_cast<int>(plan_.groups[static_cast<std::size_t>(group)].size());
  }

  void add_item() {
    if (!halves_.empty() && random_.one_in(2))
      return start_later_half(static_cast<std::size_t>(random_.below(static_cast<int>(halves_.size()))));
    const int kind = random_.below(100);
    if (kind < 25) return add_messages();
    if (kind < 33 && plan_.groups.size() < 8) return add_split();
    add_collective();
  }

  void add_collective() {
    static const std::vector<What> kinds = {
        What::all_reduce,           What::all_reduce,     What::all_gather,
        What::all_gather_of_copy,   What::reduce_scatter, What::all_to_all,
        What::all_to_all_of_counts, What::broadcast,      What::barrier,
        What::send_async,           What::exchange,       What::gather};
    Item item{.what = random_.pick(kinds), .group = a_group()};
    item.op = random_.pick(ops);
    const int n = size_of(item.group);
    item.root = random_.below(n);
    draw_shapes(item, n);
    if (item.what == What::send_async) draw_targets(item, n);
    start_on_all(std::move(item));
  }

  void draw_shapes(Item& item, int n) {
    const bool has_axis = item.what == What::all_gather || item.what == What::all_gather_of_copy ||
                          item.what == What::reduce_scatter || item.what == What::all_to_all ||
                          item.what == What::all_to_all_of_counts;
    const Shape shape = has_axis ? shape_with_axis() : any_shape();
    item.shapes.assign(static_cast<std::size_t>(n), shape);
    if (item.what == What::broadcast)
      for (int d = 0; d < n; ++d)
        if (d != item.root) item.shapes[static_cast<std::size_t>(d)] = {random_.below(4)};
    if (!has_axis) return;
    item.axis = item.concat_axis = random_.below(static_cast<int>(shape.size()));
    if (item.what == What::all_to_all) item.concat_axis = random_.below(static_cast<int>(shape.size()));
    if (item.what == What::reduce_scatter) return;
    for (Shape& s : item.shapes) {  // extents of slices may differ
      Index& extent = s[static_cast<std::size_t>(item.concat_axis)];
      if (random_.one_in(2)) extent = random_.below(static_cast<int>(std::min<Index>(extent, 9)) + 2);
      if (item.what == What::all_to_all_of_counts) item.counts.push_back(drawn_counts(extent, n));
    }
  }

  std::vector<Index> drawn_counts(Index extent, int n) {
    std::vector<Index> counts(static_cast<std::size_t>(n));
    Index left = extent;
    for (Index& count : counts) left -= count = random_.below(static_cast<int>(left) + 1);
    counts.back() += left;
    random_.shuffle(counts);
    return counts;
  }

  /// Draws targets for some members, maybe themselves.
  void draw_targets(Item& item, int n) {
    item.targets.resize(static_cast<std::size_t>(n));
    std::iota(item.targets.begin(), item.targets.end(), 0);
    random_.shuffle(item.targets);
    for (Index& target : item.targets)
      if (random_.one_in(4)) target = -1;
  }

  void start_on_all(Item&& item) {
    const int index = static_cast<int>(plan_.items.size());
    const bool blocks = is_blocking(item, false);
    for (int device : plan_.groups[static_cast<std::size_t>(item.group)]) start(device, index, blocks);
    plan_.items.push_back(std::move(item));
  }

  void add_split() {
    Item item{.what = What::split, .group = a_group()};
    const int n = size_of(item.group);
    const int colors = random_.between(1, 3);
    for (int d = 0; d < n; ++d) {
      item.colors.push_back(random_.one_in(5) ? -1 : random_.below(colors));
      item.keys.push_back(random_.below(3));
    }
    item.parts.assign(static_cast<std::size_t>(n), -1);
    std::vector<std::vector<int>> made;
    for (Index color = 0; color < colors; ++color) {
      std::vector<int> places;
      for (int d = 0; d < n; ++d)
        if (item.colors[static_cast<std::size_t>(d)] == color) places.push_back(d);
      std::ranges::stable_sort(places, {}, [&](int d) { return item.keys[static_cast<std::size_t>(d)]; });
      for (int place : places)
        item.parts[static_cast<std::size_t>(place)] = static_cast<int>(plan_.groups.size() + made.size());
      if (!places.empty()) made.push_back(places);
    }
    const int parent = item.group;
    start_on_all(std::move(item));
    for (std::vector<int>& places : made) {  // from places in the parent to ids in the job
      for (int& place : places)
        place = plan_.groups[static_cast<std::size_t>(parent)][static_cast<std::size_t>(place)];
      plan_.groups.push_back(std::move(places));
    }
  }

  // ---- Messages ---------------------------------------------------------------------------------------

  /// Adds one message between two devices, or several.
  void add_messages() {
    const int group = a_group();
    const int n = size_of(group);
    if (n == 1) return add_collective();
    const int from = random_.below(n);
    const int to = (from + random_.between(1, n - 1)) % n;
    for (int left = random_.one_in(4) ? random_.between(2, 5) : 1; left > 0; --left)
      add_message(group, from, to);
  }

  /// The first message of this pair with only one side started.
  std::vector<Half>::iterator first_half(int group, int from, int to) {
    return std::ranges::find_if(
        halves_, [&](const Half& half) { return half.group == group && half.from == from && half.to == to; });
  }

  void add_message(int group, int from, int to) {
    Item item{.what = What::message, .group = group};
    item.from = from;
    item.to = to;
    item.shapes = {any_shape()};
    item.is_posted_send = random_.one_in(2);
    item.is_posted_receive = random_.one_in(2);
    bool sender_waits = item.is_posted_receive && random_.one_in(2);
    bool receiver_waits = !sender_waits && item.is_posted_send && random_.one_in(2);
    // The k-th send belongs to the k-th receive, so a side must not start before an earlier one.
    if (const auto half = first_half(group, from, to); half != halves_.end()) {
      sender_waits = half->is_sender_left;
      receiver_waits = !sender_waits;
      (sender_waits ? item.is_posted_receive : item.is_posted_send) = true;
    }
    start_message(std::move(item), sender_waits, receiver_waits);
  }

  /// A side that posts may start long before the other side.
  void start_message(Item&& item, bool sender_waits, bool receiver_waits) {
    const int index = static_cast<int>(plan_.items.size());
    const std::vector<int>& members = plan_.groups[static_cast<std::size_t>(item.group)];
    if (!sender_waits) start(members[static_cast<std::size_t>(item.from)], index, !item.is_posted_send);
    if (!receiver_waits) start(members[static_cast<std::size_t>(item.to)], index, !item.is_posted_receive);
    if (sender_waits || receiver_waits)
      halves_.push_back({index, item.group, item.from, item.to, sender_waits});
    plan_.items.push_back(std::move(item));
  }

  void start_later_half(std::size_t which) {
    const auto first = first_half(halves_[which].group, halves_[which].from, halves_[which].to);
    const Half half = *first;
    halves_.erase(first);
    const Item& item = plan_.items[static_cast<std::size_t>(half.item)];
    const std::vector<int>& members = plan_.groups[static_cast<std::size_t>(half.group)];
    const int place = half.is_sender_left ? half.from : half.to;
    start(members[static_cast<std::size_t>(place)], half.item, is_blocking(item, half.is_sender_left));
  }

  Random random_;
  Plan plan_;
  std::vector<std::vector<int>> in_flight_;  // by device: its items
  std::vector<Half> halves_;
};

}  // namespace

Plan generate_plan(std::uint64_t seed, Index program, int devices) {
  return Generator(seed, program, devices).make();
}

}  // namespace shard::testing
