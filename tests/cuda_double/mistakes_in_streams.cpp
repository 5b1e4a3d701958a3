// Mistakes with memory, streams and events.

#include <cublas_v2.h>

#include <cstdio>
#include <cstring>

#include "mistakes.hpp"

namespace {

struct Fill {
  void operator()(std::int64_t i, float* to) const { to[i] = 1; }
};
/// The first thread of a team does not come to the exchange.
struct FillByOthers {
  struct InTeams {
    static constexpr int size = 32;
  };
  void operator()(std::int64_t i, float* to) const {
    if (i > 0) to[0] = __shfl_xor_sync(~0U, 1.0F, 1);
  }
};

}  // namespace

const std::vector<Case> mistakes_in_streams = {
    caught("host_reads", 1, "device memory was touched on the host", [] { std::printf("%g\n", *memory()); }),
    caught("host_writes", 1, "device memory was touched on the host", [] { *memory() = 1; }),
    caught("host_memory_in_a_kernel", 1, "a kernel uses what is no device memory",
           [] {
             float value = 0;
             cuda_double::launch_kernel(Fill(), 1, new_stream(), &value);
           }),
    caught("device_memory_as_the_hosts", 1, "device memory given as the host's",
           [] { cudaMemcpyAsync(memory(), memory(), 4, cudaMemcpyHostToDevice, new_stream()); }),
    caught("beyond_the_end", 1, "cudaMemsetAsync goes beyond the end of its memory",
           [] { cudaMemsetAsync(memory(8), 0, 33, new_stream()); }),
    caught("kernel_beyond_the_end", 1, "a kernel goes beyond the end of its memory",
           [] { cuda_double::launch_kernel(Fill(), 9, new_stream(), memory(8)); }),
    caught("thread_that_leaves_its_team", 1, "a thread of a team does not come to an exchange of the others",
           [] { cuda_double::launch_kernel(FillByOthers(), 32, new_stream(), memory(8)); }),
    caught("copy_onto_a_part_of_itself", 1, "a copy onto a part of itself",
           [] {
             float* data = memory(8);
             cudaMemcpyAsync(data, data + 1, 4 * sizeof(float), cudaMemcpyDeviceToDevice, new_stream());
           }),
    caught("host_writes_what_a_copy_still_reads", 1,
           "the host has written memory that a copy to the GPU may still read",
           [] {
             void* numbers;
             cudaMallocHost(&numbers, 32);
             std::memset(numbers, 0, 32);
             cudaStream_t in = new_stream();
             cudaMemcpyAsync(memory(), numbers, 32, cudaMemcpyHostToDevice, in);
             std::memset(numbers, 1, 32);  // on the double the copy is done, which the host does not know
             cudaStreamSynchronize(in);
           }),
    caught("reads_without_waiting", 1,
           "reads memory that another stream writes (cudaMemsetAsync), without waiting for it",
           [] {
             float* data = memory();
             clear(data, new_stream());
             cudaMemcpyAsync(memory(), data, 4, cudaMemcpyDeviceToDevice, new_stream());
           }),
    caught("writes_without_waiting_for_a_writer", 1, "writes memory that another stream writes",
           [] {
             float* data = memory();
             clear(data, new_stream());
             clear(data, new_stream());
           }),
    caught("writes_without_waiting_for_a_reader", 1, "writes memory that another stream reads",
           [] {
             float* data = memory();
             cudaStream_t reader = new_stream();
             cudaMemcpyAsync(memory(), data, 4, cudaMemcpyDeviceToDevice, reader);
             clear(data, new_stream());
           }),
    caught("kernel_in_the_wrong_stream", 1, "a kernel writes memory that another stream writes",
           [] {
             float* data = memory();
             clear(data, new_stream());
             cuda_double::launch_kernel(Fill(), 8, new_stream(), data);
           }),
    caught("waits_for_an_earlier_record", 1, "writes memory that another stream writes",
           [] {
             float* data = memory();
             cudaStream_t first = new_stream(), second = new_stream();
             cudaEvent_t event;
             cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
             cudaEventRecord(event, first);
             clear(data, first);  // launched after the record, so the other stream does not wait for it
             cudaStreamWaitEvent(second, event, 0);
             clear(data, second);
           }),
    caught("event_never_recorded", 1, "an event that was never recorded",
           [] {
             cudaEvent_t event;
             cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
             cudaStreamWaitEvent(new_stream(), event, 0);
           }),
    caught("query_of_an_event_never_recorded", 1, "an event that was never recorded",
           [] {
             cudaEvent_t event;
             cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
             cudaEventQuery(event);
           }),
    caught("freed_while_in_use", 1, "cudaFree of memory that a stream still uses",
           [] {
             float* data = memory();
             clear(data, new_stream());
             cudaFree(data);
           }),
    caught("freed_twice", 1, "cudaFree: not one of memory",
           [] {
             float* data = memory();
             cudaFree(data);
             cudaFree(data);
           }),
    caught("used_after_it_was_freed", 1, "uses what is no device memory",
           [] {
             float* data = memory();
             cudaFree(data);
             clear(data, new_stream());
           }),
    caught("stream_used_after_it_was_destroyed", 1, "no such stream",
           [] {
             cudaStream_t in = new_stream();
             cudaStreamDestroy(in);
             clear(memory(), in);
           }),
    caught("leaks_memory", 1, "not given back: 1 memory", [] { memory(); }),
    caught("leaks_a_stream", 1, "not given back: 1 streams", [] { new_stream(); }),
    caught("matrix_of_the_wrong_distance", 1, "a of 2 rows and 2 columns at a distance of 1", [] {
      cublasHandle_t blas;
      cublasCreate(&blas);
      cublasSetStream(blas, new_stream());
      const float one = 1;
      cublasGemmEx_64(blas, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, memory(), CUDA_R_32F, 1, memory(),
                      CUDA_R_32F, 2, &one, memory(), CUDA_R_32F, 2, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    })};
