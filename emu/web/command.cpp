/// A command of a page: a function of its words. What it prints, its report and its record are files, which the page
/// gives it room for and reads (chapters/player/run/worker.js).

#include <emscripten/emscripten.h>

#include <string>
#include <vector>

#include "engine/program/mains/main_functions.hpp"

namespace {

/// Runs `shardbook` with these words, each ended by a newline. Returns the exit code; an error ends the module with it.
int run(const char* lines) {
  std::vector<std::string> words = {"shardbook", ""};
  for (; *lines != '\0'; ++lines) {
    if (*lines == '\n')
      words.emplace_back();
    else
      words.back() += *lines;
  }
  words.pop_back();
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  return shard::shardbook_main(static_cast<int>(words.size()), arguments.data());
}

}  // namespace

/// The function, for a page that calls it through WebAssembly.promising.
extern "C" EMSCRIPTEN_KEEPALIVE auto shard_command() -> int (*)(const char*) {
  return run;
}
