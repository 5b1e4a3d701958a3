#include "engine/dispatch/modules/tree.hpp"

#include <algorithm>

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

}  // namespace shard::dispatch
