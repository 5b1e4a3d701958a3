# The library `cuda`, if the CUDA Toolkit and NCCL are found; otherwise one line says so.

find_package(CUDAToolkit 12 QUIET)
find_path(SHARDBOOK_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} DOC "The folder of nccl.h")
find_library(SHARDBOOK_NCCL NAMES nccl HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/lib
  PATH_SUFFIXES lib lib64 DOC "NCCL")
if(NOT (CUDAToolkit_FOUND AND SHARDBOOK_NCCL AND SHARDBOOK_NCCL_INCLUDE))
  message(STATUS "cuda: left out, for want of the CUDA Toolkit (12 or later) or NCCL")
  return()
endif()

set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
set(CMAKE_CUDA_ARCHITECTURES 80 90 CACHE STRING "The GPUs that kernels are compiled for")
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION) # older releases of CMake do not know nvcc's option
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()

file(GLOB kernels CONFIGURE_DEPENDS cuda/kernels/*.cpp)
# Without the definition, fmt 9 takes nvcc for a compiler without constexpr, and is wrong in its own headers.
set_source_files_properties(${kernels} PROPERTIES LANGUAGE CUDA COMPILE_DEFINITIONS FMT_USE_CONSTEXPR=1)
add_library(cuda OBJECT ${cuda_sources})
target_include_directories(cuda PUBLIC ${CMAKE_SOURCE_DIR} SYSTEM PRIVATE ${SHARDBOOK_NCCL_INCLUDE})
target_link_libraries(cuda PUBLIC fmt::fmt MPI::MPI_CXX CUDA::cudart CUDA::cublas ${SHARDBOOK_NCCL} ${CMAKE_DL_LIBS})
add_custom_target(chapters_cuda)
set(cuda_backends cuda)
message(STATUS "cuda: CUDA ${CUDAToolkit_VERSION}, NCCL ${SHARDBOOK_NCCL}")
