#include "tree.hpp"

#include <algorithm>
#include <set>

#include "engine/files/safetensors/element_types.hpp"

namespace shard::dispatch {

namespace {

template <class Visit>
void visit(const Module& module, const std::string& path, const Visit& act) {
  act(module, path);
  for (const Module& child : module.children) visit(child, path_of(path, child.name), act);
}

}  // namespace

std::string path_of(const std::string& parent, const std::string& name) {
  return parent.empty() ? name : parent + '.' + name;
}

std::string parent_of(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

bool is_within(const std::string& path, const std::string& module) {
  return module.empty() || path == module || path.starts_with(module + '.');
}

const Module* find_module(const Module& root, const std::string& path) {
  if (path.empty()) return &root;
  const std::size_t dot = path.find('.');
  const auto child = std::ranges::find(root.children, path.substr(0, dot), &Module::name);
  if (child == root.children.end()) return nullptr;
  return dot == std::string::npos ? &*child : find_module(*child, path.substr(dot + 1));
}

std::vector<std::string> all_modules(const Module& root) {
  std::vector<std::string> all;
  visit(root, "", [&](const Module&, const std::string& path) { all.push_back(path); });
  return all;
}

std::vector<std::pair<std::string, const ModuleTensor*>> all_tensors(const Module& root) {
  std::vector<std::pair<std::string, const ModuleTensor*>> all;
  visit(root, "", [&](const Module& module, const std::string& path) {
    for (const ModuleTensor& tensor : module.tensors) all.emplace_back(path_of(path, tensor.name), &tensor);
  });
  return all;
}

namespace {

/// Tensors that are tied to a tensor before them.
std::set<std::string> repeated_tensors(const Network& network) {
  std::set<std::string> repeated;
  for (const std::vector<std::string>& group : network.tied) {
    bool is_first = true;
    for (const auto& [path, tensor] : all_tensors(network.root)) {
      if (std::ranges::find(group, path) == group.end()) continue;
      if (!is_first) repeated.insert(path);
      is_first = false;
    }
  }
  return repeated;
}

}  // namespace

ModuleSizes::ModuleSizes(const Network& network, const std::optional<std::string>& dtype) {
  const std::set<std::string> repeated = repeated_tensors(network);
  for (const bool is_buffer : {false, true})
    for (const auto& [path, tensor] : all_tensors(network.root)) {
      if (tensor->is_buffer != is_buffer || repeated.contains(path)) continue;
      std::uint64_t bytes = safetensors::element_bytes(tensor->dtype);
      if (dtype && safetensors::is_floating(tensor->dtype))
        bytes = std::min(bytes, safetensors::element_bytes(*dtype));
      add(path, tensor->elements * static_cast<Index>(bytes));
    }
}

void ModuleSizes::add(const std::string& tensor, Index bytes) {
  auto add_to = [&](const std::string& path) {
    const auto [place, is_new] = bytes_.try_emplace(path, 0);
    if (is_new) paths_.push_back(path);
    place->second += bytes;
  };
  add_to("");
  for (std::size_t dot = tensor.find('.'); dot != std::string::npos; dot = tensor.find('.', dot + 1))
    add_to(tensor.substr(0, dot));
  add_to(tensor);
}

Index ModuleSizes::operator[](const std::string& path) const {
  const auto found = bytes_.find(path);
  return found == bytes_.end() ? 0 : found->second;
}

Index ModuleSizes::mean_of_leaves() const {
  std::vector<std::string> left(paths_.begin() + 1, paths_.end());  // without the root
  auto leaves = [&] {
    std::set<std::string> parents;
    for (const std::string& path : left)
      if (path.find('.') != std::string::npos) parents.insert(parent_of(path));
    std::vector<std::string> all;
    std::ranges::copy_if(left, std::back_inserter(all),
                         [&](const auto& path) { return !parents.contains(path); });
    return all;
  };
  const std::vector<std::string> tensors = leaves();
  std::erase_if(left, [&](const auto& path) { return std::ranges::find(tensors, path) != tensors.end(); });
  const std::vector<std::string> modules = leaves();
  Index sum = 0;
  for (const std::string& path : modules) sum += (*this)[path];
  return sum / static_cast<Index>(std::max<std::size_t>(modules.size(), 1));
}

}  // namespace shard::dispatch
