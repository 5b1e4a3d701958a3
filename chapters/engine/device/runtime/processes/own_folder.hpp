#pragma once

#include <string>

namespace shard::runtime {

/// The folder for Open MPI's temporary files, for a process without a launcher. Without a folder of their own,
/// processes that start at the same time race for a common one, and some fail. The process locks its folder
/// (flock), so that chapters/job_folder.py can recognize and remove the folder of a killed process.
class OwnFolder {
 public:
  /// Makes the folder and passes its name to Open MPI, unless a launcher or the user has chosen one. Call it
  /// before MPI_Init.
  void make();
  /// Call it after MPI_Finalize.
  void remove();

 private:
  std::string path_;
};

}  // namespace shard::runtime
