#pragma once

#include <string>

namespace shard::runtime {

/// The folder for Open MPI's temporary files of a process that no launcher has started. Without one of their
/// own, processes that start at the same time race for a common folder, and some of them fail. The process holds
/// a lock of it (flock): chapters/job_folder.py removes the folder of a process that was killed.
class OwnFolder {
 public:
  /// Makes the folder and names it to Open MPI, unless a launcher or the user has chosen one. Call it before
  /// MPI_Init.
  void make();
  /// Call it after MPI_Finalize.
  void remove();

 private:
  std::string path_;
};

}  // namespace shard::runtime
