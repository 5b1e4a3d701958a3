// The properties of the double's GPUs. Their number is CUDA_DOUBLE_GPUS, or 8.

#include <cstdlib>
#include <cstring>

#include "double.hpp"

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    default:
      return "an error planted in the test double";
  }
}

cudaError_t cudaGetDeviceCount(int* count) {
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

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::strcpy(properties->name, "no GPU, but a test double");
  return cudaSuccess;
}
