/// wrong_programs: the programs of the catalogue.
///
///     wrong_programs --list        all of them, as JSON, in one process and without MPI
///     wrong_programs --together    those that need no job of their own; device 0 prints what is said
///     wrong_programs NUMBER        one of them, by its place in the list

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tests/wrong_programs/program.hpp"

namespace shard::testing {
namespace {

const Programs& catalogue() {
  static const Programs programs = [] {
    Programs all;
    for (const auto part :
         {mismatches, bad_arguments, deadlocks, messages, lost_devices, dropped_futures, right_programs})
      for (Program& program : part()) all.push_back(std::move(program));
    return all;
  }();
  return programs;
}

int print_list() {
  nlohmann::json list = nlohmann::json::array();
  for (const Program& p : catalogue())
    list.push_back({{"call", p.call},
                    {"class", p.class_},
                    {"code", p.code},
                    {"says", p.says},
                    {"alone", p.runs == Runs::alone}});
  std::cout << list.dump() << std::endl;
  return 0;
}

/// Runs the program's body. Device 0 prints what each device says of it.
void run_and_tell(std::size_t number, const Program& program) {
  const Refusal refused = refusal([&] { program.body(); });
  const nlohmann::json mine = {{"code", refused.code}, {"text", refused.message}};
  nlohmann::json said = nlohmann::json::array();
  for (const std::string& text : group().gather("what is said", mine.dump()))
    said.push_back(nlohmann::json::parse(text));
  if (me() == 0) std::cout << nlohmann::json{{"number", number}, {"said", said}}.dump() << std::endl;
}

int run(const std::string& word) {
  const Programs& programs = catalogue();
  if (word != "--together") return programs.at(std::stoul(word)).body();
  for (std::size_t i = 0; i < programs.size(); ++i)
    if (programs[i].runs == Runs::together) run_and_tell(i, programs[i]);
  return 0;
}

}  // namespace
}  // namespace shard::testing

int main(int argc, char** argv) {
  using namespace shard::testing;
  const std::string word = argc == 2 ? argv[1] : "";
  if (word == "--list") return print_list();
  return shard::run_on_devices(argc, argv, [&](shard::Communicator& world) {
    group().set_inner(world);
    return run(word);
  });
}
