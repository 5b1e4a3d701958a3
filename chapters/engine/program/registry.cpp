#include "engine/program/registry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "engine/basics/near_names.hpp"
#include "engine/basics/printable.hpp"

namespace shard {

namespace {

std::vector<Chapter>& all_chapters() {
  static std::vector<Chapter> all;
  return all;
}

/// "03" of "03_tensor_parallel"; nothing of "mine".
std::string number_of(const std::string& folder) {
  const bool has_number = folder.find_first_not_of("0123456789") == 2 && folder[2] == '_';
  return has_number ? folder.substr(0, 2) : "";
}

/// "tensor_parallel" of "03_tensor_parallel".
std::string name_of(const std::string& folder) {
  return folder.substr(number_of(folder).empty() ? 0 : 3);
}

/// "a, b or c".
std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  return text;
}

}  // namespace

bool Variant::accepts(int devices, const Workload& network, const Options& given) const {
  try {
    if (require) require(devices, network, given);
    return true;
  } catch (const Error& error) {
    if (error.code() != Code::usage) throw;
    return false;
  }
}

std::optional<OptionText> Variant::declared(const std::string& option) const {
  for (const std::vector<OptionText>& some : {options, workload->options(), workload->training_options()})
    if (auto found = std::ranges::find(some, option, &OptionText::name); found != some.end()) return *found;
  return std::nullopt;
}

const Variant& Chapter::variant(const std::string& name) const {
  std::vector<std::string> names;
  for (const Variant& v : variants) {
    if (v.name == name) return v;
    names.push_back(v.name);
  }
  throw Error(Code::usage, "--variant: expected {}, given {}{}", listed(names), printable(name, 60),
              did_you_mean(name, names));
}

RegisteredChapter::RegisteredChapter(Chapter chapter, SourceLine where) {
  chapter.folder = std::filesystem::path(where.file_name()).parent_path().filename();
  chapter.number = number_of(chapter.folder);
  if (chapter.title.empty()) {
    chapter.title = name_of(chapter.folder);
    std::ranges::replace(chapter.title, '_', ' ');
  }
  for (Variant& v : chapter.variants) {
    if (v.workload == nullptr) v.workload = chapter.workload;
    if (v.is_reference)
      register_unsharded(*v.workload, [make = v.make](Communicator& group, const Workload& network) {
        return make(group, network, Options());
      });
  }
  std::vector<Chapter>& all = all_chapters();
  auto behind = std::ranges::find_if(all, [&](const Chapter& c) { return c.folder > chapter.folder; });
  all.insert(behind, std::move(chapter));
}

const std::vector<Chapter>& chapters() {
  return all_chapters();
}

const Chapter& only_chapter() {
  if (chapters().size() != 1)
    refuse(Code::internal, "program", "one chapter", fmt::format("{} chapters", chapters().size()));
  return chapters().front();
}

const Chapter& find_chapter(const std::string& name) {
  const Chapter* found = nullptr;
  std::vector<std::string> folders;
  for (const Chapter& c : chapters()) {
    folders.push_back(c.folder);
    if (name != c.folder && name != c.number && name != name_of(c.folder)) continue;
    if (found != nullptr && name != found->folder && name != c.folder)
      throw Error(Code::usage, "chapters: expected one called {}, given {} and {}", name, found->folder,
                  c.folder);
    if (found == nullptr || name == c.folder) found = &c;
  }
  if (found != nullptr && !name.empty()) return *found;
  throw Error(Code::usage, "expected a chapter, {}, given {}{}", listed(folders),
              name.empty() ? "''" : printable(name, 60), did_you_mean(name, folders));
}

void require_distinct_strategies() {
  std::map<std::string, const Chapter*> owners;
  for (const Chapter& c : chapters())
    for (const auto& [alias, variant] : c.strategies) {
      const auto [owner, is_new] = owners.try_emplace(alias, &c);
      if (!is_new)
        throw Error(Code::usage,
                    "strategies: expected {} in one chapter, given it in {} and in {}: take it out of one "
                    "chapter.cpp",
                    alias, owner->second->folder, c.folder);
      if (std::ranges::find(c.variants, variant, &Variant::name) == c.variants.end())
        throw Error(Code::usage, "strategies of {}: expected {} to be a variant, given {}", c.folder, alias,
                    variant);
    }
}

Strategy find_strategy(const std::string& name) {
  require_distinct_strategies();
  std::set<std::string> names;
  std::vector<Strategy> found;
  for (const Chapter& c : chapters()) {
    for (const auto& [alias, variant] : c.strategies) {
      names.insert(alias);
      if (alias == name) return {&c, &c.variant(variant)};
    }
    for (const Variant& v : c.variants) {
      names.insert(v.name);
      if (v.name == name) found.push_back({&c, &v});
    }
  }
  if (found.size() == 1) return found.front();
  if (found.size() > 1)
    throw Error(Code::usage,
                "--strategy: expected a name of one chapter, given {}, a variant of {} and of {}: name the "
                "chapter, and --variant {}",
                name, found[0].chapter->folder, found[1].chapter->folder, name);
  const std::vector<std::string> all(names.begin(), names.end());
  const std::string meant = did_you_mean(name, all);
  const std::string expected = meant.empty() ? listed(all) : "a name that ./chapters/run strategies lists";
  throw Error(Code::usage, "--strategy: expected {}, given {}{}", expected, printable(name, 60), meant);
}

}  // namespace shard

template class std::vector<shard::OptionText>;
template class std::vector<shard::Options>;
template class std::vector<shard::Alias>;
template class std::vector<shard::Variant>;
