#include "engine/device/runtime/processes/own_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <cstdlib>
#include <filesystem>

namespace shard::runtime {

void OwnFolder::make() {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("OMPI_MCA_orte_tmpdir_base") != nullptr)
    return;
  std::error_code ignored;
  std::string path = std::filesystem::temp_directory_path(ignored) / "shardbook-job-1_XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) return;  // Open MPI will report the error
  ::flock(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), LOCK_EX | LOCK_NB);
  path_ = path;
  ::setenv("OMPI_MCA_orte_tmpdir_base", path_.c_str(), 1);
}

void OwnFolder::remove() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace shard::runtime
