#include "engine/program/default_network.hpp"

#include <algorithm>

#include "engine/files/model_folder.hpp"

namespace shard {

namespace {

/// Options of the first network, from the default size on, that all of these variants accept with their
/// default options. Given options stay. Returns `given` if 64 networks are too few.
Options first_accepted(int devices, const std::vector<const Variant*>& variants, const Options& given) {
  constexpr int reach = 64;
  const WorkloadKind& kind = *variants.front()->workload;
  Options options = given;
  for (int i = 0; i < reach; ++i) {
    const std::shared_ptr<Workload> network = kind.make(options);
    auto accepts = [&](const Variant* v) {
      return v->workload->name() != kind.name() || v->accepts(devices, *network, Options());
    };
    if (std::ranges::all_of(variants, accepts)) return options;
    if (!kind.deepen(options, given)) break;
  }
  return given;
}

/// The options without those that say how something is divided, as `--stages 1,2,3` does. These do not decide
/// how much there is to divide.
Options without_divisions(const Variant& variant, const Options& options) {
  Options others;
  for (const std::string& name : options.names())
    if (const auto declared = variant.declared(name); !declared || declared->type != "HOW")
      others.set(name, options.given(name));
  return others;
}

}  // namespace

Options with_default_network(int devices, const Chapter& chapter, const Variant& variant,
                             const Options& given) {
  std::vector<const Variant*> all = {&variant};
  for (const Variant& v : chapter.variants)
    if (!v.is_deeper) all.push_back(&v);
  Options options = first_accepted(devices, all, given);
  auto accepts = [&] {
    return variant.accepts(devices, *variant.workload->make(options), without_divisions(variant, options));
  };
  for (int i = 0; i < 64 && !accepts(); ++i)
    if (!variant.workload->deepen(options, given)) break;
  return options;
}

std::shared_ptr<Workload> network_of(const WorkloadKind& kind, const Options& given,
                                     const std::string& config) {
  if (config.empty()) return kind.make(given);
  const std::vector<std::string> read = kind.options_beside_config();
  for (const std::vector<OptionText>& options : {kind.options(), kind.training_options()})
    for (const OptionText& o : options)
      if (given.has(o.name) && std::ranges::find(read, o.name) == read.end())
        throw Error(Code::usage, "{}: expected without --config, which says it, given {}", o.name,
                    given.given(o.name));
  return kind.described_by(read_model_config(config), given);
}

}  // namespace shard
