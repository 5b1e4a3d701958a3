#include "engine/record/recording.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string_view>

#include "engine/files/regular_file.hpp"
#include "engine/record/record.hpp"
#include "engine/record/recorder.hpp"

namespace shard {

namespace {

/// The recorders of this process by device. All devices may share it.
std::map<int, Recorder*>& recorders() {
  static std::map<int, Recorder*> all;
  return all;
}

struct Registered {
  explicit Registered(Recorder& recorder) { recorders()[this_device()] = &recorder; }
  ~Registered() { recorders().erase(this_device()); }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;
};

/// The launcher's folder, in which devices that are processes leave their logs; empty without one.
std::string folder_of_logs() {
  const char* folder = std::getenv("SHARDBOOK_RECORDS");
  const bool is_there = !devices_share_a_process() && folder != nullptr && access(folder, W_OK) == 0;
  return is_there ? folder : "";
}
std::string file_of_log(const std::string& folder, int device) {
  return folder.empty() ? "" : folder + "/recorded_" + std::to_string(device);
}
std::string job_in(const std::string& folder) {
  return folder + "/recorded_job";
}

/// What the record needs beside the logs: {path, job}.
Entry header_of(const Recording& recording) {
  return {{"path", std::filesystem::absolute(recording.path)}, {"job", recording.job()}};
}

void write_record(const Entry& header, const Ending& ending, const std::vector<Log>& logs) {
  replace_file(header.at("path"), record_of(header.at("job"), ending, logs).dump() + '\n');
}

/// Writes the record of a run that ends in this error if all devices share this process; else this device's log.
void write_failed(int devices, const Recording& recording, const Ending& ending) try {
  if (!devices_share_a_process()) return recorders().at(this_device())->flush();
  std::vector<Log> logs(static_cast<std::size_t>(devices));
  for (const auto& [device, recorder] : recorders())
    logs.at(static_cast<std::size_t>(device)) = log_of(recorder->log(true));
  write_record(header_of(recording), ending, logs);
} catch (const Error&) {  // the run's own error says more
}

}  // namespace

int run_recorded(Communicator& group, const Recording& recording,
                 const std::function<int(Communicator& group)>& body) {
  if (recording.path.empty()) return body(group);
  const bool writes = group.device_id() == 0;
  if (writes) require_replaceable(recording.path);
  const std::string folder = folder_of_logs();
  if (writes && !folder.empty()) replace_file(job_in(folder), header_of(recording).dump());
  // A device that fails at once ends the others: by then this one has written what the launcher needs.
  group.exchange("the record", 0);
  Recorder recorder(recording.steps, file_of_log(folder, this_device()));
  const Registered registered(recorder);
  try {
    RecordedCommunicator recorded(group, recorder);
    const int code = body(recorded);
    note_section("end", false);
    std::vector<Log> logs;
    for (const std::string& text : group.gather("the record", recorder.log(false)))
      logs.push_back(log_of(text));
    std::string report;
    for (const std::string& theirs : group.gather("differences", recorder.differences())) report += theirs;
    if (!report.empty()) report.pop_back();
    if (writes) write_record(header_of(recording), {code, report}, logs);
    if (writes && !folder.empty()) std::filesystem::remove(job_in(folder));
    return code;
  } catch (const Error& error) {
    write_failed(group.num_devices(), recording, {error.exit_code(), error.what()});
    throw;
  } catch (const std::exception& error) {
    write_failed(group.num_devices(), recording, {static_cast<int>(Code::internal), error.what()});
    throw;
  }
}

std::optional<int> join_record(int argc, char** argv) {
  if (argc != 5 || std::string_view(argv[1]) != "--join-record") return {};
  const std::string folder = argv[2];
  const Log headers = log_in(job_in(folder));
  if (headers.empty()) return 0;
  const Entry& header = headers.front();
  std::vector<Log> logs;
  for (int d = 0; d < header.at("job").at("devices").get<int>(); ++d)
    logs.push_back(log_in(file_of_log(folder, d)));
  try {
    write_record(header, {std::atoi(argv[3]), argv[4]}, logs);
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
  }
  return 0;
}

}  // namespace shard
