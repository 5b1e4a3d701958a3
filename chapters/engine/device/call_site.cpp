#include "engine/device/call_site.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/device/this_device.hpp"

namespace shard {

namespace {

/// Where the last component `folder` of a path begins, or npos.
std::size_t last_folder(std::string_view path, std::string_view folder) {
  for (std::size_t at = path.rfind(folder); at != std::string_view::npos; at = path.rfind(folder, at - 1)) {
    if (at == 0 || path[at - 1] == '/') return at;
  }
  return std::string_view::npos;
}

}  // namespace

CallSite::CallSite(SourceLine where) noexcept : outer_(device().open_call) {
  if (!outer_.is_known()) device().open_call = where;
}
CallSite::~CallSite() {
  device().open_call = outer_;
}

CallSite::Resumed::Resumed(SourceLine earlier) noexcept
    : outer_(std::exchange(device().open_call, earlier)) {}
CallSite::Resumed::~Resumed() {
  device().open_call = outer_;
}

SourceLine current_call_site() {
  return device().open_call;
}

std::string to_string(SourceLine where) {
  if (!where.is_known()) return {};
  const std::string_view path = where.file_name();
  std::size_t begin = 0;
  for (const std::string_view folder : {"chapters/", "tests/"})
    if (const std::size_t at = last_folder(path, folder); at != std::string_view::npos)
      begin = std::max(begin, at);
  return fmt::format("{}:{}", path.substr(begin), where.line());
}

}  // namespace shard
