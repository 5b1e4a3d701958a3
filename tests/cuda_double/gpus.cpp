// What the double says of its GPUs. A process sees CUDA_DOUBLE_GPUS of them, or 8: with CUDA_DOUBLE_OWN_GPUS,
// those that no other process sees.

#include <cstdlib>
#include <cstring>
#include <map>

#include "double.hpp"

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    default:
      return "an error planted in the test double";
  }
}

cudaError_t cudaGetDeviceCount(int* count) {
  PLANTED("cudaGetDeviceCount");
  const char* given = std::getenv("CUDA_DOUBLE_GPUS");
  *count = given == nullptr ? 8 : std::atoi(given);
  return cudaSuccess;
}

static int chosen = 0;

cudaError_t cudaSetDevice(int device) {
  PLANTED("cudaSetDevice");
  int count;
  cudaGetDeviceCount(&count);
  if (device < 0 || device >= count) return cudaErrorInvalidDevice;
  chosen = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = chosen;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = 12040;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  PLANTED("cudaGetDeviceProperties");
  std::strcpy(properties->name, "no GPU, but a test double");
  const char* process = std::getenv("CUDA_DOUBLE_OWN_GPUS") ? std::getenv("OMPI_COMM_WORLD_RANK") : nullptr;
  properties->uuid = {};
  properties->uuid.bytes[0] = static_cast<char>(1 + device);
  properties->uuid.bytes[1] = static_cast<char>(process == nullptr ? 0 : 1 + std::atoi(process));
  return cudaSuccess;
}

/// An H200's.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  PLANTED("cudaDeviceGetAttribute");
  static const std::map<cudaDeviceAttr, int> values = {{cudaDevAttrClockRate, 1980000},
                                                       {cudaDevAttrMultiProcessorCount, 132},
                                                       {cudaDevAttrComputeCapabilityMajor, 9},
                                                       {cudaDevAttrComputeCapabilityMinor, 0}};
  *value = values.at(attribute);
  return cudaSuccess;
}
