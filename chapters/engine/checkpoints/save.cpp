#include "engine/checkpoints/save.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>

#include "engine/basics/ranges.hpp"
#include "engine/checkpoints/split.hpp"
#include "engine/checkpoints/writing_plan.hpp"
#include "engine/device/gathered.hpp"
#include "engine/files/folder_replacement.hpp"
#include "engine/files/safetensors/element_types.hpp"
#include "engine/files/safetensors/writer.hpp"

namespace shard {

namespace {

using Plan = std::map<std::string, PlannedTensor>;

const Trainable* part_of(const SavedTensors& saved, const std::string& name) {
  const auto found = std::ranges::find(saved.held, name, &Trainable::name);
  return found == saved.held.end() ? nullptr : &*found;
}

/// A tensor's line in a file's header, and its name in the engine.
struct Line {
  std::string name;
  SafetensorsLine stored;
  bool is_transposed = false;
};

Line line_of(const SavedTensors& saved, const Plan& plan, const std::string& name) {
  const Shape& shape = plan.at(name).shape;
  const auto foreign = saved.stored_as.find(name);
  if (foreign == saved.stored_as.end()) return {name, {name, "F32", shape}, false};
  const ForeignName& theirs = foreign->second;
  const auto type = saved.types.find(theirs.name);
  const bool is_floating = type != saved.types.end() && safetensors::is_floating(type->second);
  return {name,
          {theirs.name, is_floating ? type->second : "F32", theirs.stored_shape(shape)},
          theirs.is_transposed};
}

void write(SafetensorsWriter& writer, std::span<const float> values, const std::string& dtype = "F32") {
  if (dtype == "F32") return writer.write(values.data(), values.size_bytes());
  const std::span<const std::byte> bytes = std::as_bytes(values);
  std::int64_t overflows = 0;  // stays 0: the values were read from this type
  const std::vector<std::byte> elements =
      safetensors::converted({bytes.begin(), bytes.end()}, "F32", dtype, overflows);
  writer.write(elements.data(), elements.size());
}

/// Writes files into a new folder, and collects their digests.
class Writing {
 public:
  Writing(Communicator& group, std::string folder, const SaveForm& form)
      : group_(group), folder_(std::move(folder)), form_(form) {
    manifest_.format = form.format;
  }

  void write_all(const SavedTensors& saved) {
    const Plan plan = plan_writing(group_, saved.held);
    if (form_.format == "distributed") return write_mine(saved, plan);
    std::vector<NamedSize> sizes;
    std::uint64_t total = 0;
    std::map<std::string, std::string> ours;
    for (const std::string& name : saved.order) {
      const Line line = line_of(saved, plan, name);
      sizes.push_back({line.stored.name, line.stored.bytes()});
      total += sizes.back().bytes;
      ours[line.stored.name] = name;
    }
    if (!saved.stored_as.empty()) sort_for_files(sizes);
    const auto files = split_by_size(sizes, form_.format == "sharded" ? form_.most_bytes : UINT64_MAX);
    for (std::size_t f = 0; f < files.size(); ++f) {
      std::map<std::string, Line> lines;
      for (const std::string& theirs : files[f]) lines[theirs] = line_of(saved, plan, ours.at(theirs));
      write_gathered(saved, plan, shard_file_name(saved.stem, f, files.size()), lines);
    }
    if (files.size() > 1 && group_.device_id() == 0)
      replace_file(folder_ + '/' + saved.stem + ".safetensors.index.json",
                   index_text("{}", saved.stem, files, total));
  }

  /// The manifest, with the digests of all devices' files, on device 0. A collective.
  Manifest manifest() {
    for (const auto& theirs : gather(group_, "digests", manifest_.digests))
      manifest_.digests.insert(theirs.begin(), theirs.end());
    return manifest_;
  }

 private:
  /// Writes a file of whole tensors on device 0.
  void write_gathered(const SavedTensors& saved, const Plan& plan, const std::string& file,
                      const std::map<std::string, Line>& lines) {
    std::vector<SafetensorsLine> stored;
    for (const auto& [theirs, line] : lines) stored.push_back(line.stored);
    std::unique_ptr<SafetensorsWriter> writer;
    std::map<std::string, std::string> metadata;  // older versions of transformers refuse a file without it
    if (!saved.stored_as.empty()) metadata = {{"format", "pt"}};
    if (group_.device_id() == 0)
      writer = std::make_unique<SafetensorsWriter>(folder_ + '/' + file, stored, metadata);
    for (const SafetensorsLine& next : in_file_order(stored)) {
      const Line& line = lines.at(next.name);
      const PlannedTensor& tensor = plan.at(line.name);
      std::vector<float> turned;
      gather_on_first(group_, tensor, part_of(saved, line.name), [&](std::span<const float> values) {
        if (!line.is_transposed) return write(*writer, values, next.dtype);
        turned.insert(turned.end(), values.begin(), values.end());
      });
      if (writer && line.is_transposed)
        write(*writer, transposed({tensor.shape, std::move(turned)}).values, next.dtype);
    }
    if (writer) finish(*writer, file);
  }

  /// Writes a file of this device's parts.
  void write_mine(const SavedTensors& saved, const Plan& plan) {
    std::vector<SafetensorsLine> lines;
    for (const auto& [name, tensor] : plan) {
      StoredParts& stored = manifest_.tensors[name];
      stored.shape = tensor.shape;
      for (const auto& [ranges, writer] : tensor.parts) {
        stored.parts.push_back({device_file_name(saved.stem, writer, group_.num_devices()), ranges});
        if (writer == group_.device_id()) lines.push_back({name, "F32", shape_of(ranges)});
      }
    }
    if (lines.empty()) return;
    const std::string file = device_file_name(saved.stem, group_.device_id(), group_.num_devices());
    SafetensorsWriter writer(folder_ + '/' + file, std::move(lines));
    std::vector<float> values(piece_elements);
    for (const SafetensorsLine& line : writer.order()) {
      const Rows& rows = part_of(saved, line.name)->parameter;
      const Index row = num_elements({line.shape.begin() + 1, line.shape.end()});
      const Index end = rows.end * row;
      for (Index at = rows.begin * row; at < end; at += piece_elements) {
        const std::span<float> piece(values.data(),
                                     static_cast<std::size_t>(std::min(piece_elements, end - at)));
        rows.tensor->read(at, piece);
        write(writer, piece);
      }
    }
    finish(writer, file);
  }

  void finish(SafetensorsWriter& writer, const std::string& file) {
    writer.commit();
    manifest_.digests[file] = writer.digest();
  }

  Communicator& group_;
  std::string folder_;
  const SaveForm& form_;
  Manifest manifest_;
};

/// The path of device 0's folder, on every device. (All devices share the file system.)
std::string common_folder(Communicator& group, const std::unique_ptr<FolderReplacement>& folder) {
  return group.gather_for_all("folder", folder ? folder->folder() : "")[0];
}

/// If a device could not write, device 0 removes the new folder, and then the failed device ends the job.
void agree(Communicator& group, const std::exception_ptr& failure,
           std::unique_ptr<FolderReplacement>& folder) {
  const std::vector<Index> failed = group.exchange("whether all is written", failure ? 1 : 0);
  if (std::ranges::max(failed) == 0) return;
  folder.reset();
  group.barrier();
  if (failure) std::rethrow_exception(failure);
  group.barrier();  // does not return: the failed device's error ends the job
}

}  // namespace

void save_checkpoint(Communicator& group, const std::string& path, const SaveForm& form,
                     const std::vector<SavedTensors>& all, const Records& records,
                     const std::string& beside) {
  const bool is_first = group.device_id() == 0;
  std::unique_ptr<FolderReplacement> folder;
  if (is_first) folder = std::make_unique<FolderReplacement>(path);
  Writing writing(group, common_folder(group, folder), form);
  std::exception_ptr failure;
  try {
    for (const SavedTensors& saved : all) writing.write_all(saved);
  } catch (const Error&) {
    if (form.format != "distributed") throw;  // other devices wait for this one
    failure = std::current_exception();
  }
  agree(group, failure, folder);
  Manifest manifest = writing.manifest();
  static_cast<Records&>(manifest) = records;
  if (is_first) {
    replace_file(folder->folder() + '/' + Manifest::file_name, manifest_text(manifest));
    if (!beside.empty()) folder->keep_others(beside, is_checkpoint_file);
    folder->commit(is_checkpoint_file);
  }
  group.barrier();
}

}  // namespace shard
