#include "engine/program/recorded_network.hpp"

#include <algorithm>

#include "engine/basics/printable.hpp"
#include "engine/files/regular_file.hpp"

namespace shard {

namespace {

/// An option of a network, and whether it is one of its sizes.
struct NetworkOption {
  OptionText text;
  bool is_size;
};

std::vector<NetworkOption> network_options(const WorkloadKind& kind) {
  std::vector<NetworkOption> all;
  for (const OptionText& o : kind.training_options())
    if (!o.is_of_data) all.push_back({o, true});
  for (const OptionText& o : kind.options())
    if (!o.is_of_data) all.push_back({o, false});
  return all;
}

bool names_file(const OptionText& option) {
  return option.type == "FILE";
}

}  // namespace

NetworkRecord record_of(const std::string& network, const WorkloadKind& kind, const Options& options,
                        SizesFrom sizes) {
  NetworkRecord record{network, {}};
  for (const auto& [o, is_size] : network_options(kind)) {
    const bool is_given = options.has(o.name);
    const bool may_be_missing = names_file(o) || (is_size && sizes == SizesFrom::shapes);
    if (is_given || !may_be_missing) record.options[o.name] = is_given ? options.given(o.name) : o.initial;
  }
  return record;
}

Options with_network_of(const Manifest& manifest, const std::string& folder, const WorkloadKind& kind,
                        const std::string& variant, Options given, SizesFrom sizes) {
  if (!manifest.network) return given;
  const auto& [workload, recorded] = *manifest.network;
  const std::string where = one_line(folder);
  if (!kind.makes(workload))
    throw Error(Code::usage, "{}: expected a checkpoint of the workload {}, which {} trains, given one of {}",
                where, kind.name(), variant, printable(workload, 60));
  const std::vector<NetworkOption> known = network_options(kind);
  for (const auto& [name, text] : recorded) {
    const auto found = std::ranges::find(known, name, [](const NetworkOption& o) { return o.text.name; });
    if (found == known.end())
      bad_file(folder + '/' + Manifest::file_name, "network", "options of a " + kind.name(), printable(name));
    const OptionText& o = found->text;
    if (!o.accepts(text))
      throw Error(Code::usage, "{}: the network has {} {}: expected {} with the variant {}, given {}", where,
                  name, printable(text, 60), o.expected, variant, printable(text, 60));
    if (!given.has(name))
      given.set(name, text);
    else if (!is_same_value(given.given(name), text) && !names_file(o))
      throw Error(Code::usage, "{}: expected {}, as in {}, given {}", name, text, where,
                  printable(given.given(name)));
  }
  for (const auto& [o, is_size] : known)
    if (!given.has(o.name) && !names_file(o) && !(is_size && sizes == SizesFrom::shapes))
      throw Error(Code::usage, "{}: expected on the command line, as {} does not say it, given none", o.name,
                  where);
  return given;
}

}  // namespace shard
