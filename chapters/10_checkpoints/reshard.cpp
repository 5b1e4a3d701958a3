#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "engine/files/element_types.hpp"
#include "engine/files/folder_replacement.hpp"
#include "engine/files/safetensors_writer.hpp"
#include "engine/files/tensor_index.hpp"
#include "engine/printable.hpp"
#include "split.hpp"
#include "stored.hpp"

namespace shard::checkpoints {

namespace {

constexpr std::uint64_t piece_bytes = 16 << 20;  // read, converted and written at a time

/// The type that a tensor will have.
std::string new_dtype(const Stored& tensor, const NewForm& form) {
  return form.dtype && safetensors::is_floating(tensor.dtype) ? *form.dtype : tensor.dtype;
}

/// Copies a tensor, piece by piece. Returns how many finite values became infinite.
std::int64_t copy(const StoredCheckpoint& from, const SafetensorsLine& to, SafetensorsWriter& writer) {
  const Stored& tensor = from.tensors().at(to.name);
  std::int64_t overflows = 0;
  for (std::uint64_t done = 0; done < tensor.bytes; done += piece_bytes) {
    std::vector<std::byte> piece = from.read(to.name, done, std::min(piece_bytes, tensor.bytes - done));
    if (to.dtype != tensor.dtype) piece = safetensors::converted(piece, tensor.dtype, to.dtype, overflows);
    writer.write(piece.data(), piece.size());
  }
  return overflows;
}

void write_file(const StoredCheckpoint& from, const std::string& path, const std::vector<std::string>& names,
                const NewForm& form) {
  std::vector<SafetensorsLine> lines;
  for (const std::string& name : names)
    lines.push_back({name, new_dtype(from.tensors().at(name), form), from.tensors().at(name).shape});
  SafetensorsWriter writer(path, std::move(lines), from.metadata());
  for (const SafetensorsLine& line : writer.order())
    if (const std::int64_t overflows = copy(from, line, writer); overflows > 0)
      fmt::print(stderr, "warning: tensor \"{}\": {} values are too large for {} and became infinite\n",
                 printable(line.name), with_commas(overflows), line.dtype);
  writer.commit();
}

/// The index, as huggingface_hub 2.4 writes it: tensors file by file. What the old one said beside the total
/// size is kept.
std::string index_text(const std::string& metadata, const std::vector<std::vector<std::string>>& files,
                       std::uint64_t total) {
  nlohmann::ordered_json index = {{"metadata", nlohmann::ordered_json::parse(metadata)},
                                  {"weight_map", nlohmann::ordered_json::object()}};
  index["metadata"]["total_size"] = total;
  for (std::size_t f = 0; f < files.size(); ++f)
    for (const std::string& name : files[f]) index["weight_map"][name] = file_name(f, files.size());
  return index.dump(2, ' ', true);
}

}  // namespace

int reshard(const std::string& from, const std::string& to, const NewForm& form) {
  const StoredCheckpoint stored(from);
  stored.require_whole();
  std::vector<NamedSize> sizes;
  std::uint64_t total = 0;
  for (const auto& [name, tensor] : stored.tensors()) {
    sizes.push_back({name, SafetensorsLine{name, new_dtype(tensor, form), tensor.shape}.bytes()});
    total += sizes.back().bytes;
  }
  const auto files = split_by_size(sizes, form.is_sharded ? form.most_bytes : UINT64_MAX);
  FolderReplacement folder(to);
  for (std::size_t f = 0; f < files.size(); ++f)
    write_file(stored, folder.folder() + '/' + file_name(f, files.size()), files[f], form);
  if (files.size() > 1)
    replace_file(folder.folder() + '/' + TensorIndex::file_name,
                 index_text(stored.index_metadata(), files, total));
  folder.commit(is_file_of_model);
  fmt::print("{}: {} tensors, {} bytes, in {} file{}\n", to, sizes.size(),
             with_commas(static_cast<std::int64_t>(total)), files.size(), files.size() == 1 ? "" : "s");
  return 0;
}

}  // namespace shard::checkpoints
