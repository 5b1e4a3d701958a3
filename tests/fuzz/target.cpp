/// What a fuzzer calls with each input: one of the parsers of files that others write, chosen by the
/// environment variable PARSER. A parser may refuse the input, by one line of its own Error. What it accepts
/// must be what the text says to a plain JSON parser, and must keep the promises of the format.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/checkpoints/manifest.hpp"
#include "engine/device/error.hpp"
#include "engine/files/model_folder.hpp"
#include "engine/files/safetensors/header.hpp"
#include "engine/workloads/decoder/mistral.hpp"
#include "engine/workloads/t5/model.hpp"

namespace {

using namespace shard;
using nlohmann::json;

const std::string path = "input";

/// Ends the program, which the fuzzer takes for a crash.
void require(bool is_so, const char* promise) {
  if (is_so) return;
  fmt::print(stderr, "a promise is broken: {}\n", promise);
  std::abort();
}

/// Calls a parser. What it throws must be one line, about the file.
template <class Parser>
void refuse_or(Parser parser) {
  try {
    parser();
  } catch (const Error& error) {
    const std::string line = error.what();
    require(error.code() == Code::file, "a bad file is code 65");
    require(line.starts_with(path + ": "), "the line begins with the file");
    const bool says_both =
        line.find("expected ") != std::string::npos && line.find("given ") != std::string::npos;
    require(says_both || line.ends_with("git lfs pull"), "the line says what was expected and given");
    require(std::ranges::all_of(line, [](char c) { return c >= ' ' && c <= '~'; }),
            "the line is one line of printable characters");
    require(line.size() < 600, "the line is short");
  }
}

/// The first 8 bytes of an input are how many bytes of data follow the header, which is the rest.
void header(std::string_view input) {
  std::uint64_t data_bytes = 0;
  if (input.size() < sizeof data_bytes) return;
  std::memcpy(&data_bytes, input.data(), sizeof data_bytes);
  const std::string_view text = input.substr(sizeof data_bytes);
  const safetensors::Header accepted = safetensors::parse_header(text, data_bytes, path);

  json said = json::parse(text);
  if (const auto metadata = said.find("__metadata__"); metadata != said.end()) {
    require(*metadata == json(accepted.metadata), "metadata are those of the text");
    said.erase(metadata);
  }
  require(said.size() == accepted.entries.size(), "every tensor of the text is there");
  std::vector<std::pair<std::uint64_t, std::uint64_t>> spans;
  for (const auto& [name, entry] : accepted.entries) {
    const json& tensor = said.at(name);
    require(tensor.at("dtype") == entry.dtype && tensor.at("shape") == json(entry.shape) &&
                tensor.at("data_offsets") == json{entry.begin, entry.end},
            "a tensor is that of the text");
    require(name.find('\0') == std::string::npos, "a name has no NUL");
    require(entry.shape.size() <= safetensors::max_rank, "a tensor has at most 64 dimensions");
    unsigned __int128 bytes = safetensors::element_bytes(entry.dtype);
    require(bytes > 0, "a type is known");
    for (const std::int64_t dimension : entry.shape) {
      require(dimension >= 0, "no dimension is negative");
      bytes *= std::ranges::count(entry.shape, 0) > 0 ? 0 : static_cast<std::uint64_t>(dimension);
      require(bytes >> 63 == 0, "a size does not overflow");
    }
    require(entry.begin <= entry.end && bytes == entry.end - entry.begin, "a size fits shape and type");
    spans.emplace_back(entry.begin, entry.end);
  }
  std::ranges::sort(spans);
  std::uint64_t covered = 0;
  for (const auto& [begin, end] : spans) {
    require(begin == covered, "tensors have no hole between them, and do not overlap");
    covered = end;
  }
  require(covered == data_bytes, "tensors cover the data");
}

void index(std::string_view text) {
  const TensorIndex accepted = parse_tensor_index(text, path);
  const json said = json::parse(text);
  require(said.at("weight_map") == json(accepted.file_of), "the table is that of the text");
  require(json::parse(accepted.metadata).is_object(), "metadata are an object");
  for (const auto& [tensor, file] : accepted.file_of) {
    const std::filesystem::path inside = ("/folder/" + file).c_str();
    require(!file.empty() && file[0] != '/', "a file is in the folder");
    require(inside.lexically_normal().native().starts_with("/folder/"), "no path leads out of the folder");
  }
}

void config(std::string_view text) {
  const ForeignModel model = parse_model_config(text, path);
  require(model.config.size() >= json::parse(text).size(), "every hyper-parameter of the text is there");
  for (const Reading reading : {Reading::values, Reading::sizes}) {
    refuse_or([&] {
      const DecoderModel m = mistral_model(model, reading);
      require(m.heads % m.key_heads == 0 && m.head_dim > 0 && m.top_k <= m.experts, "heads and experts fit");
      require(std::isfinite(m.epsilon) && std::isfinite(m.rope_base), "numbers are finite");
      for (const Parameter& p : m.parameters())
        require(std::ranges::min(p.shape) > 0, "sizes are not negative, and do not overflow");
    });
    refuse_or([&] {
      const T5Model m = t5_model(model, reading);
      for (const Parameter& p : m.parameters())
        require(std::ranges::min(p.shape) > 0, "sizes are not negative, and do not overflow");
    });
  }
}

void manifest(std::string_view text) {
  const Manifest accepted = parse_manifest(text, path);
  const json said = json::parse(text);
  require(said.at("format") == accepted.format, "the format is that of the text");
  require(said.at("digests") == json(accepted.digests), "digests are those of the text");
  for (const auto& [name, tensor] : accepted.tensors) {
    std::vector<Ranges> parts;
    for (const auto& [file, ranges] : tensor.parts) {
      require(is_inside(file), "a file is in the folder");
      parts.push_back(ranges);
    }
    require(said.at("tensors").at(name).at("shape") == json(tensor.shape), "a shape is that of the text");
    require(why_no_tiling(tensor.shape, parts).empty(), "parts tile their tensor");
  }
  if (accepted.training) require(accepted.training->step >= 0, "a step is not negative");
}

using Parser = void (*)(std::string_view);

Parser chosen() {
  const char* given = std::getenv("PARSER");
  const std::string name = given == nullptr ? "none" : given;
  if (name == "header") return header;
  if (name == "index") return index;
  if (name == "config") return config;
  if (name == "manifest") return manifest;
  fmt::print(stderr, "PARSER: expected header, index, config or manifest, given {}\n", name);
  std::exit(64);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Parser parser = chosen();
  refuse_or([&] { parser({reinterpret_cast<const char*>(data), size}); });
  return 0;
}
