#include "engine/files/safetensors/writer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "engine/basics/printable.hpp"
#include "engine/device/error.hpp"
#include "engine/files/safetensors/header.hpp"

namespace shard {

namespace {

[[noreturn]] void refuse_tensor(const std::string& path, const std::string& name, std::string_view expected,
                                std::string_view given) {
  throw Error(Code::argument, "write {}: tensor \"{}\": expected {}, given {}", one_line(path),
              printable(name), expected, given);
}

/// Checks the rules of the reader, so that every written file can be read.
void check_line(const std::string& path, const SafetensorsLine& line) {
  if (line.name == "__metadata__" || line.name.find('\0') != std::string::npos)
    refuse_tensor(path, line.name, "a name other than __metadata__, without NUL", "this one");
  if (line.shape.size() > safetensors::max_rank)
    refuse_tensor(path, line.name, fmt::format("at most {} dimensions", safetensors::max_rank),
                  std::to_string(line.shape.size()));
}

/// A text in its JSON form.
std::string spelt(const std::string& path, const std::string& name) {
  const std::optional<std::string> text = safetensors::json_string(name);
  if (!text) refuse_tensor(path, name, "a name in UTF-8", "other bytes");
  if (text->size() > safetensors::max_string_bytes)
    refuse_tensor(path, name, fmt::format("a name of at most {} bytes", safetensors::max_string_bytes),
                  "more");
  return *text;
}

std::string header_of(const std::string& path, const std::vector<SafetensorsLine>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::vector<std::string> parts, strings;
  for (const auto& [key, value] : metadata) strings.push_back(spelt(path, key) + ":" + spelt(path, value));
  if (!strings.empty()) parts.push_back(fmt::format(R"("__metadata__":{{{}}})", fmt::join(strings, ",")));
  std::uint64_t begin = 0;
  for (const SafetensorsLine& line : tensors) {
    check_line(path, line);
    const std::uint64_t end = begin + line.bytes();
    parts.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                spelt(path, line.name), line.dtype, fmt::join(line.shape, ","), begin, end));
    begin = end;
  }
  std::string text = fmt::format("{{{}}}", fmt::join(parts, ","));
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > safetensors::max_header_bytes)
    throw Error(Code::argument, "write {}: header, expected at most {} bytes, given {}", one_line(path),
                safetensors::max_header_bytes, text.size());
  return text;
}

}  // namespace

std::vector<SafetensorsLine> in_file_order(std::vector<SafetensorsLine> tensors) {
  std::ranges::sort(tensors, {}, [](const SafetensorsLine& line) {
    return std::tuple(safetensors::file_order(line.dtype), line.name);
  });
  return tensors;
}

std::uint64_t SafetensorsLine::bytes() const {
  const std::uint64_t element = safetensors::element_bytes(dtype);
  const auto all = element > 0 ? safetensors::tensor_bytes(shape, element) : std::nullopt;
  if (!all)
    throw Error(Code::argument, "tensor \"{}\": expected a size below 2^63 bytes, given {} [{}]",
                printable(name), printable(dtype), fmt::join(shape, ", "));
  return *all;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<SafetensorsLine> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path), tensors_(in_file_order(std::move(tensors))), file_(path) {
  const std::string header = header_of(path_, tensors_, metadata);
  const std::uint64_t length = header.size();
  for (const SafetensorsLine& line : tensors_) left_ += line.bytes();
  add(&length, sizeof length);
  add(header.data(), length);
}

void SafetensorsWriter::add(const void* data, std::uint64_t bytes) {
  digest_.add(data, bytes);
  file_.write(data, bytes);
}

void SafetensorsWriter::write(const void* data, std::uint64_t bytes) {
  left_ -= std::min(left_, bytes);
  add(data, bytes);
}

void SafetensorsWriter::commit() {
  if (left_ > 0)
    throw Error(Code::internal, "write {}: expected all data, {} bytes are missing", one_line(path_), left_);
  file_.commit();
}

void write_safetensors(const std::string& path, const std::map<std::string, HostTensor>& tensors) {
  std::vector<SafetensorsLine> lines;
  for (const auto& [name, tensor] : tensors) {
    lines.push_back({name, "F32", tensor.shape});
    const auto bytes =
        safetensors::tensor_bytes(tensor.shape, sizeof(float));  // too large for a negative dimension
    check_line(path, lines.back());
    if (!bytes || *bytes != tensor.values.size() * sizeof(float))
      refuse_tensor(path, name,
                    fmt::format("as many values as shape [{}] says", fmt::join(tensor.shape, ", ")),
                    std::to_string(tensor.values.size()));
  }
  SafetensorsWriter writer(path, std::move(lines));
  for (const auto& [name, tensor] : tensors)
    writer.write(tensor.values.data(), tensor.values.size() * sizeof(float));
  writer.commit();
}

}  // namespace shard
