#include <algorithm>
#include <deque>
#include <iterator>

#include "device_map.hpp"
#include "engine/device/error.hpp"

namespace shard::dispatch {

namespace {

/// Something that has no place yet: a module, or a tensor of a module that was divided.
struct Item {
  std::string path;
  const Module* module;  // null for a tensor
};
using Items = std::deque<Item>;

class Filling {
 public:
  Filling(const Network& network, const MapSettings& settings)
      : network_(network), settings_(settings), sizes_(network, settings.dtype), places_(settings.memory) {
    if (places_.empty() || places_.back().place != disk_place) places_.push_back({disk_place, 0});
    items_ = parts_of({"", &network.root});
    find_largest(items_);
  }

  FilledMap run() {
    while (!items_.empty()) {
      const Item item = items_.front();
      items_.pop_front();
      forget_largest(item.path);
      const std::vector<std::string> elsewhere = tied_elsewhere(item.path);
      if (put(item, elsewhere)) continue;
      const bool fits_alone = used_ + sizes_[item.path] <= limit();
      if (fits_alone && !elsewhere.empty() && divide_a_tied_module(item, elsewhere)) continue;
      if (used_ + sizes_[item.path] >= limit() && is_divisible(item)) {
        divide(item);
        continue;
      }
      items_.push_front(item);
      next_place();
    }
    if (keeps_free()) result_.kept_free[place()] = largest_;
    return std::move(result_);
  }

 private:
  const std::string& place() const { return places_[current_].place; }
  bool is_disk() const { return place() == disk_place; }
  /// Modules that lie elsewhere run on the first device or the host, so both keep room for the largest layer.
  bool keeps_free() const {
    return !is_disk() && (place() == host_place || place() == places_.front().place);
  }
  Index limit() const { return places_[current_].bytes - (keeps_free() ? largest_ : 0); }

  /// Tensors outside the item that are tied to a tensor inside it.
  std::vector<std::string> tied_elsewhere(const std::string& path) const {
    std::vector<std::string> others;
    for (const std::vector<std::string>& group : network_.tied) {
      std::vector<std::string> outside;
      std::ranges::copy_if(group, std::back_inserter(outside),
                           [&](const std::string& tensor) { return !is_within(tensor, path); });
      if (outside.size() < group.size()) others.insert(others.end(), outside.begin(), outside.end());
    }
    return others;
  }
  Items::iterator holder(const std::string& tensor) {
    const auto found = std::ranges::find_if(
        items_, [&](const Item& item) { return item.path != tensor && is_within(tensor, item.path); });
    if (found == items_.end())
      refuse(Code::internal, "map", "tied tensors to be placed together", tensor + " elsewhere");
    return found;
  }

  /// Places an item here, and the modules with tensors tied to it, if all of them fit. False if they do not.
  bool put(const Item& item, const std::vector<std::string>& elsewhere) {
    Index bytes = sizes_[item.path];
    std::vector<std::string> with;
    for (const std::string& tensor : elsewhere) {
      with.push_back(holder(tensor)->path);
      bytes += sizes_[with.back()];  // a tied tensor counts once, where it comes first
    }
    if (!is_disk() && used_ + bytes > limit()) return false;
    used_ += bytes;
    result_.map.push_back({item.path, place()});
    for (const std::string& path : with)
      if (std::erase_if(items_, [&](const Item& other) { return other.path == path; }) > 0)
        result_.map.push_back({path, place()});
    return true;
  }

  bool is_divisible(const Item& item) const {
    return item.module != nullptr && !item.module->children.empty() &&
           std::ranges::find(settings_.whole_classes, item.module->class_name) ==
               settings_.whole_classes.end();
  }
  /// The item's parameters and children. Buffers of a divided module have no place of their own.
  static Items parts_of(const Item& item) {
    Items parts;
    for (const ModuleTensor& tensor : item.module->tensors)
      if (!tensor.is_buffer) parts.push_back({path_of(item.path, tensor.name), nullptr});
    for (const Module& child : item.module->children)
      parts.push_back({path_of(item.path, child.name), &child});
    return parts;
  }
  void divide(const Item& item) {
    const Items parts = parts_of(item);
    items_.insert(items_.begin(), parts.begin(), parts.end());
    find_largest(items_);
  }
  /// Divides one of the modules with tied tensors, so that less must be placed with the item.
  bool divide_a_tied_module(const Item& item, const std::vector<std::string>& elsewhere) {
    for (const std::string& tensor : elsewhere) {
      const auto found = holder(tensor);
      if (!is_divisible(*found)) continue;
      const Items parts = parts_of(*found);
      items_.insert(items_.erase(found), parts.begin(), parts.end());
      items_.push_front(item);
      find_largest(items_);
      return true;
    }
    return false;
  }

  void next_place() {
    if (keeps_free()) result_.kept_free[place()] = largest_;
    ++current_;
    used_ = 0;
  }

  /// Finds the largest of the layers, which are the modules that are not divided.
  void find_largest(const Items& items) {
    largest_ = 0;
    largest_paths_.clear();
    for (const Item& item : items)
      if (item.module != nullptr) visit_layers(item);
  }
  void visit_layers(const Item& item) {
    if (is_divisible(item)) {
      for (const Module& child : item.module->children)
        visit_layers({path_of(item.path, child.name), &child});
      return;
    }
    const Index bytes = sizes_[item.path];
    if (bytes > largest_) largest_paths_.clear();
    if (bytes >= largest_) largest_paths_.push_back(item.path);
    largest_ = std::max(largest_, bytes);
  }
  void forget_largest(const std::string& path) {
    std::erase_if(largest_paths_, [&](const std::string& layer) { return is_within(layer, path); });
    if (largest_paths_.empty()) find_largest(items_);
  }

  const Network& network_;
  const MapSettings& settings_;
  ModuleSizes sizes_;
  Memory places_;
  std::size_t current_ = 0;
  Index used_ = 0;  // bytes at the current place
  Items items_;
  Index largest_ = 0;
  std::vector<std::string> largest_paths_;
  FilledMap result_;
};

/// The position of each module and tensor in the tree.
std::map<std::string, std::size_t> order_of(const Module& root) {
  std::map<std::string, std::size_t> order;
  for (const std::string& module : all_modules(root)) {
    order.emplace(module, order.size());
    for (const ModuleTensor& tensor : find_module(root, module)->tensors)
      order.emplace(path_of(module, tensor.name), order.size());
  }
  return order;
}

/// Joins the lines of a module whose children have one place, from the root downwards.
void join(DeviceMap& map, const std::string& module) {
  const std::string before = module.empty() ? "" : module + '.';
  std::vector<std::string> inside, children;
  const std::string* place = nullptr;
  bool is_one_place = true;
  for (const MapLine& line : map) {
    if (!line.path.starts_with(before)) continue;
    inside.push_back(line.path);
    if (place != nullptr && *place != line.place) is_one_place = false;
    place = &line.place;
    children.push_back(line.path.substr(0, line.path.find('.', before.size())));
  }
  if (is_one_place && inside.size() > 1) {
    const auto first = std::ranges::find(map, inside.front(), &MapLine::path);
    *first = {module, first->place};
    std::erase_if(map,
                  [&](const MapLine& line) { return line.path != module && line.path.starts_with(before); });
    return;
  }
  children.erase(std::unique(children.begin(), children.end()), children.end());
  for (const std::string& child : children)
    if (inside.size() > 1) join(map, child);
}

}  // namespace

FilledMap fill_places(const Network& network, const MapSettings& settings) {
  FilledMap filled = Filling(network, settings).run();
  const std::map<std::string, std::size_t> order = order_of(network.root);
  std::ranges::sort(filled.map, {}, [&](const MapLine& line) { return order.at(line.path); });
  join(filled.map, "");
  return filled;
}

}  // namespace shard::dispatch
