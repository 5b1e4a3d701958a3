#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "commands.hpp"
#include "engine/basics/printable.hpp"
#include "engine/basics/ranges.hpp"
#include "engine/checkpoints/saved_checkpoint.hpp"
#include "engine/checkpoints/split.hpp"
#include "engine/files/folder_replacement.hpp"
#include "engine/files/json_file.hpp"
#include "engine/files/model_folder.hpp"
#include "engine/files/safetensors/element_types.hpp"
#include "engine/files/safetensors/writer.hpp"
#include "stored.hpp"

namespace shard::checkpoints {

namespace {

/// The type that a tensor will have.
std::string new_dtype(const Stored& tensor, const NewForm& form) {
  return form.dtype && safetensors::is_floating(tensor.dtype) ? *form.dtype : tensor.dtype;
}

/// Refuses to convert what has scales: they are tensors of their own, and would no longer fit. Says which other
/// tensors have no floating type, and stay as they are. \throws Error file
void require_convertible(const StoredCheckpoint& from) {
  const bool is_folder = std::filesystem::is_directory(from.path());
  const bool is_quantized = is_folder && has_model_config(from.path()) &&
                            !read_model_config(from.path() + "/config.json")
                                 .hyper_parameter("quantization_config", "{}")
                                 .starts_with("{}");
  std::map<std::string, std::vector<std::string>> others;  // by type
  for (const auto& [name, tensor] : from.tensors())
    if (!safetensors::is_floating(tensor.dtype)) others[tensor.dtype].push_back(name);
  for (const auto& [type, names] : others) {
    const std::string which = fmt::format("{} tensor{} of {}, the first \"{}\"", names.size(),
                                          names.size() == 1 ? "" : "s", type, printable(names.front()));
    if (is_quantized || type.starts_with("F8") || type == "I8")
      throw Error(
          Code::file,
          "{}: --dtype: expected tensors of F64, F32, F16 or BF16 alone, given {}: numbers of few bits "
          "have scales, which would not fit other types",
          one_line(from.path()), which);
    fmt::print(stderr, "{}: {}: not converted, since only floating types are\n", one_line(from.path()),
               which);
  }
}

/// Copies a tensor, piece by piece. Returns how many finite values became infinite.
std::int64_t copy(const StoredCheckpoint& from, const SafetensorsLine& to, SafetensorsWriter& writer) {
  const Stored& tensor = from.tensors().at(to.name);
  std::int64_t overflows = 0;
  for (std::uint64_t done = 0; done < tensor.bytes; done += piece_bytes) {
    std::vector<std::byte> piece =
        from.read(to.name, done, std::min<std::uint64_t>(piece_bytes, tensor.bytes - done));
    if (to.dtype != tensor.dtype) piece = safetensors::converted(piece, tensor.dtype, to.dtype, overflows);
    writer.write(piece.data(), piece.size());
  }
  return overflows;
}

/// Lets config.json say which type the files have now, where it says one.
void write_config(const std::string& from, const std::string& to, const std::string& dtype) {
  static const std::map<std::string, std::string> names = {
      {"F64", "float64"}, {"F32", "float32"}, {"F16", "float16"}, {"BF16", "bfloat16"}};
  nlohmann::json config = read_json_object(from + "/config.json");
  for (const char* key : {"dtype", "torch_dtype"})
    if (config.contains(key)) config[key] = names.at(dtype);
  replace_file(to + "/config.json", config.dump(2) + '\n');
}

/// Writes files into a new folder, and notes their digests.
class Rewriting {
 public:
  Rewriting(const StoredCheckpoint& from, std::string folder, const NewForm& form)
      : from_(from), folder_(std::move(folder)), form_(form) {
    manifest_.format = form.format;
    if (from.manifest()) static_cast<Records&>(manifest_) = *from.manifest();
  }

  void write(const std::string& stem) {
    std::vector<NamedSize> sizes;
    std::uint64_t total = 0;
    for (const auto& [name, tensor] : from_.tensors()) {
      if (tensor.stem() != stem) continue;
      sizes.push_back({name, SafetensorsLine{name, new_dtype(tensor, form_), tensor.shape}.bytes()});
      total += sizes.back().bytes;
    }
    if (sizes.empty()) return;
    sort_for_files(sizes);
    const auto files = split_by_size(sizes, form_.format == "sharded" ? form_.most_bytes : UINT64_MAX);
    for (std::size_t f = 0; f < files.size(); ++f)
      write_file(form_.format == "distributed" ? device_file_name(stem, 0, 1)
                                               : shard_file_name(stem, f, files.size()),
                 files[f]);
    if (files.size() > 1)
      replace_file(folder_ + '/' + stem + ".safetensors.index.json",
                   index_text(stem == "model" ? from_.index_metadata() : "{}", stem, files, total));
    bytes_ += total;
  }

  const Manifest& manifest() const { return manifest_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  void write_file(const std::string& file, const std::vector<std::string>& names) {
    std::vector<SafetensorsLine> lines;
    for (const std::string& name : names) {
      const Stored& tensor = from_.tensors().at(name);
      lines.push_back({name, new_dtype(tensor, form_), tensor.shape});
      if (form_.format == "distributed")
        manifest_.tensors[name] = {tensor.shape, {{file, all_of(tensor.shape)}}};
    }
    SafetensorsWriter writer(folder_ + '/' + file, std::move(lines), from_.metadata());
    for (const SafetensorsLine& line : writer.order())
      if (const std::int64_t overflows = copy(from_, line, writer); overflows > 0)
        fmt::print(stderr, "warning: tensor \"{}\": {} values are too large for {} and became infinite\n",
                   printable(line.name), with_commas(overflows), line.dtype);
    writer.commit();
    manifest_.digests[file] = writer.digest();
  }

  const StoredCheckpoint& from_;
  std::string folder_;
  const NewForm& form_;
  Manifest manifest_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

int reshard(const std::string& from, const std::string& to, const NewForm& form) {
  const StoredCheckpoint stored(from);
  stored.require_whole();
  if (form.dtype) require_convertible(stored);
  if (stored.manifest() && form.is_unverified) say_not_verified(from, *stored.manifest());
  if (stored.manifest() && !form.is_unverified)
    for (const auto& [file, digest] : stored.manifest()->digests) verify_digest(from, file, digest);
  FolderReplacement folder(to);
  Rewriting rewriting(stored, folder.folder(), form);
  for (const char* stem : {"model", "optimizer"}) rewriting.write(stem);
  const Manifest& manifest = rewriting.manifest();
  replace_file(folder.folder() + '/' + Manifest::file_name, manifest_text(manifest));
  if (form.dtype && has_model_config(from)) write_config(from, folder.folder(), *form.dtype);
  if (std::filesystem::is_directory(from)) folder.keep_others(from, is_checkpoint_file);
  folder.commit(is_checkpoint_file);
  fmt::print("{}: {} tensors, {} bytes, in {} file{}\n", to, stored.tensors().size(),
             with_commas(static_cast<std::int64_t>(rewriting.bytes())), manifest.digests.size(),
             manifest.digests.size() == 1 ? "" : "s");
  return 0;
}

}  // namespace shard::checkpoints
