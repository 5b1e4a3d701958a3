#include "cuda/success.hpp"

#include <fmt/format.h>

#include "engine/device/error.hpp"

namespace shard::cuda {

namespace {

[[noreturn]] void fail(Code code, const char* call, const char* what, const char* file, int line) {
  std::string_view path = file;
  if (auto at = path.rfind("cuda/"); at != path.npos) path.remove_prefix(at);
  throw Error(code, fmt::format("device {}: {}:{}: expected success of {}, given {}", this_device(), path,
                                line, call, what));
}

}  // namespace

void check(cudaError_t result, const char* call, const char* file, int line) {
  if (result != cudaSuccess) fail(Code::internal, call, cudaGetErrorString(result), file, line);
}

void check(cublasStatus_t result, const char* call, const char* file, int line) {
  if (result != CUBLAS_STATUS_SUCCESS) fail(Code::internal, call, cublasGetStatusString(result), file, line);
}

void check(ncclResult_t result, const char* call, const char* file, int line) {
  if (result == ncclSuccess) return;
  const std::string what = fmt::format("{}: {}", ncclGetErrorString(result), ncclGetLastError(nullptr));
  fail(result == ncclRemoteError ? Code::lost : Code::internal, call, what.c_str(), file, line);
}

}  // namespace shard::cuda
