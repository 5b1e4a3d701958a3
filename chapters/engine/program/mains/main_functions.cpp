#include "engine/program/mains/main_functions.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <system_error>

#include "engine/device/books/products_by.hpp"
#include "engine/program/registry.hpp"
#include "engine/program/report.hpp"
#include "engine/program/table/run_chapter.hpp"
#include "engine/record/recording.hpp"

namespace shard {

namespace {

nlohmann::ordered_json told(const OptionText& o) {
  return {{"initial", o.initial}, {"expected", o.expected}, {"type", o.type}, {"help", o.help}};
}

/// The options that a variant's network has, by name.
nlohmann::ordered_json network_options(const Variant& variant) {
  nlohmann::ordered_json all = nlohmann::ordered_json::object();
  for (const bool is_size : {true, false})
    for (const OptionText& o : is_size ? variant.workload->training_options() : variant.workload->options())
      if (!o.is_of_data) {
        all[o.name] = told(o);
        all[o.name]["is_size"] = is_size;
      }
  return all;
}

/// The options that the variant itself has.
nlohmann::ordered_json own_options(const Variant& variant) {
  nlohmann::ordered_json all = nlohmann::ordered_json::object();
  for (const OptionText& o : variant.options) all[o.name] = told(o);
  return all;
}

/// Prints all chapters of this program as JSON, on device 0.
int list_chapters(const Communicator& group) {
  require_distinct_strategies();
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Chapter& c : chapters()) {
    nlohmann::ordered_json variants = nlohmann::ordered_json::array();
    for (const Variant& v : c.variants)
      variants.push_back({{"name", v.name},
                          {"summary", v.summary},
                          {"has_closed_forms", static_cast<bool>(v.costs)},
                          {"workload", v.workload->name()},
                          {"network_options", network_options(v)},
                          {"options", own_options(v)},
                          {"steps", v.workload->training_defaults().steps},
                          {"batch", v.workload->training_defaults().batch}});
    nlohmann::ordered_json strategies = nlohmann::ordered_json::object();
    for (const auto& [alias, variant] : c.strategies) strategies[alias] = variant;
    all.push_back({{"folder", c.folder},
                   {"number", c.number},
                   {"title", c.title},
                   {"variants", variants},
                   {"strategies", strategies}});
  }
  if (group.device_id() == 0) fmt::print("{}\n", all.dump(1));
  return 0;
}

constexpr const char* usage =
    "shardbook CHAPTER WORDS...           a chapter, by number or name: shardbook 03 train --steps 50\n"
    "shardbook --strategy NAME WORDS...   a strategy, by any name of the field: ddp, tp, fsdp, 1f1b, moe, "
    "...\n"
    "shardbook list                       all chapters with their variants and strategies, as JSON\n"
    "shardbook summary REPORT...          one table of the reports that `train --report` wrote\n"
    "shardbook --version                  the version, and the library and kernels of matrix products\n";

/// Inserts --variant behind the command, if there is a command.
std::vector<std::string> with_variant(std::vector<std::string> words, const std::string& variant) {
  const bool has_command = !words.empty() && !words.front().starts_with('-');
  words.insert(words.begin() + (has_command ? 1 : 0), {"--variant", variant});
  return words;
}

int run_shardbook(Communicator& group, std::vector<std::string> words) {
  if (prints_version(group, words)) return 0;
  const std::string first = words.empty() ? "--help" : words.front();
  if (!words.empty()) words.erase(words.begin());
  if (first == "--help" || first == "-h") {
    if (group.device_id() == 0) fmt::print("{}", usage);
    return 0;
  }
  if (first == "list") return list_chapters(group);
  if (first == "summary") return group.device_id() == 0 ? summarize(words) : 0;
  if (first != "--strategy") return run_chapter(group, find_chapter(first), words);
  if (words.empty()) throw Error(Code::usage, "--strategy: expected a name, given nothing");
  const Strategy strategy = find_strategy(words.front());
  words.erase(words.begin());
  return run_chapter(group, *strategy.chapter, with_variant(words, strategy.variant->name));
}

}  // namespace

bool prints_version(const Communicator& group, const std::vector<std::string>& words) {
  if (words != std::vector<std::string>{"--version"}) return false;
  if (group.device_id() == 0) fmt::print("shardbook {}\nproducts by {}\n", SHARDBOOK_VERSION, products_by());
  return true;
}

int written(const std::function<int()>& body) try {
  const int code = body();
  if (std::fflush(stdout) == 0) return code;
  throw std::system_error(errno, std::generic_category());
} catch (const std::system_error& error) {  // also thrown by fmt::print
  throw Error(Code::file, "standard output: expected to write the results, given {}", error.code().message());
}

int shardbook_main(int argc, char** argv) {
  if (const std::optional<int> code = join_record(argc, argv)) return *code;
  return run_on_devices(argc, argv, [&](Communicator& group) {
    return written([&] { return run_shardbook(group, {argv + 1, argv + argc}); });
  });
}

}  // namespace shard
