// mistakes CASE: makes one mistake with CUDA, cuBLAS or NCCL, either here or within cuda/, where a call is left out. The
// test double must end the program.

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <nccl.h>

#include <cstdio>
#include <cstring>
#include <map>

#include "engine/control_plane.hpp"
#include "engine/device.hpp"

using namespace shard;
using cuda_double::left_out;
using cuda_double::plant;

namespace {

int me() {
  return world().device_id();
}

float* memory(std::size_t elements = 8) {
  void* data;
  cudaMalloc(&data, elements * sizeof(float));
  return static_cast<float*>(data);
}
cudaStream_t queue() {
  cudaStream_t made;
  cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
  return made;
}
void clear(float* data, cudaStream_t in) {
  cudaMemsetAsync(data, 0, 8 * sizeof(float), in);
}
struct Fill {
  void operator()(std::int64_t i, float* to) const { to[i] = 1; }
};

/// A communicator of all devices, and memory and a queue to use it with.
struct Together {
  ncclComm_t comm;
  cudaStream_t in = queue();
  float* data = memory(64);

  Together() {
    ncclUniqueId id{};
    if (me() == 0) ncclGetUniqueId(&id);
    for (std::size_t i = 0; i < sizeof id.internal; i += sizeof(Index)) {
      Index word;
      std::memcpy(&word, id.internal + i, sizeof word);
      word = world().exchange("id", word)[0];
      std::memcpy(id.internal + i, &word, sizeof word);
    }
    ncclCommInitRank(&comm, world().num_devices(), id, me());
    cudaMemsetAsync(data, 0, 64 * sizeof(float), in);
  }
  void finish() { cudaStreamSynchronize(in); }
};

Tensor some() {
  return Tensor({6, 4});
}

/// With a call left out or failing, the k-th from here.
void in_library(const char* call, int k, const std::function<void()>& action) {
  plant(call, k, left_out);
  action();
  world().synchronize();
}
void reduce() {
  Tensor t = scale(some(), 2);
  scale(world().all_reduce_async(std::move(t), ReduceOp::sum).get(), 2);
}

const std::map<std::string, std::function<void()>> cases = {
    {"host_reads", [] { std::printf("%g\n", *memory()); }},
    {"host_writes", [] { *memory() = 1; }},
    {"host_memory_in_a_kernel",
     [] {
       float value = 0;
       cuda_double::launch(Fill(), 1, queue(), &value);
     }},
    {"device_memory_as_the_hosts",
     [] { cudaMemcpyAsync(memory(), memory(), 4, cudaMemcpyHostToDevice, queue()); }},
    {"beyond_the_end", [] { cudaMemsetAsync(memory(8), 0, 33, queue()); }},
    {"reads_without_waiting",
     [] {
       float* data = memory();
       clear(data, queue());
       cudaMemcpyAsync(memory(), data, 4, cudaMemcpyDeviceToDevice, queue());
     }},
    {"writes_without_waiting_for_a_writer",
     [] {
       float* data = memory();
       clear(data, queue());
       clear(data, queue());
     }},
    {"writes_without_waiting_for_a_reader",
     [] {
       float* data = memory();
       cudaStream_t reader = queue();
       cudaMemcpyAsync(memory(), data, 4, cudaMemcpyDeviceToDevice, reader);
       clear(data, queue());
     }},
    {"kernel_in_the_wrong_queue",
     [] {
       float* data = memory();
       clear(data, queue());
       cuda_double::launch(Fill(), 8, queue(), data);
     }},
    {"waits_for_an_earlier_record",
     [] {
       float* data = memory();
       cudaStream_t first = queue(), second = queue();
       cudaEvent_t event;
       cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
       cudaEventRecord(event, first);
       clear(data, first);  // behind the record: it is not waited for
       cudaStreamWaitEvent(second, event, 0);
       clear(data, second);
     }},
    {"event_never_recorded",
     [] {
       cudaEvent_t event;
       cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
       cudaStreamWaitEvent(queue(), event, 0);
     }},
    {"query_of_an_event_never_recorded",
     [] {
       cudaEvent_t event;
       cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
       cudaEventQuery(event);
     }},
    {"freed_while_in_use",
     [] {
       float* data = memory();
       clear(data, queue());
       cudaFree(data);
     }},
    {"freed_twice",
     [] {
       float* data = memory();
       cudaFree(data);
       cudaFree(data);
     }},
    {"used_after_it_was_freed",
     [] {
       float* data = memory();
       cudaFree(data);
       clear(data, queue());
     }},
    {"queue_used_after_it_was_destroyed",
     [] {
       cudaStream_t in = queue();
       cudaStreamDestroy(in);
       clear(memory(), in);
     }},
    {"leaks_memory", [] { memory(); }},
    {"leaks_a_queue", [] { queue(); }},
    {"matrix_of_the_wrong_distance",
     [] {
       cublasHandle_t blas;
       cublasCreate(&blas);
       cublasSetStream(blas, queue());
       const float one = 1;
       cublasGemmEx_64(blas, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, memory(), CUDA_R_32F, 1, memory(),
                       CUDA_R_32F, 2, &one, memory(), CUDA_R_32F, 2, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
     }},
    {"group_closed_but_not_opened", [] { ncclGroupEnd(); }},
    {"wrong_count",
     [] {
       Together t;
       ncclAllReduce(t.data, t.data, me() == 1 ? 4 : 5, ncclFloat, ncclSum, t.comm, t.in);
       t.finish();
     }},
    {"wrong_type",
     [] {
       Together t;
       ncclAllReduce(t.data, t.data, 4, me() == 1 ? ncclInt32 : ncclFloat, ncclSum, t.comm, t.in);
       t.finish();
     }},
    {"wrong_operation",
     [] {
       Together t;
       ncclAllReduce(t.data, t.data, 4, ncclFloat, me() == 1 ? ncclMax : ncclSum, t.comm, t.in);
       t.finish();
     }},
    {"wrong_call",
     [] {
       Together t;
       if (me() == 1) ncclAllGather(t.data, t.data + 32, 4, ncclFloat, t.comm, t.in);
       if (me() != 1) ncclAllReduce(t.data, t.data, 4, ncclFloat, ncclSum, t.comm, t.in);
       t.finish();
     }},
    {"wrong_root",
     [] {
       Together t;
       ncclBroadcast(t.data, t.data, 4, ncclFloat, me() == 2 ? 0 : 1, t.comm, t.in);
       t.finish();
     }},
    {"swapped_peer",  // everybody should send to the right
     [] {
       Together t;
       ncclGroupStart();
       ncclSend(t.data, 4, ncclFloat, (me() + (me() == 1 ? 2 : 1)) % 3, t.comm, t.in);
       ncclRecv(t.data + 8, 4, ncclFloat, (me() + 2) % 3, t.comm, t.in);
       ncclGroupEnd();
       t.finish();
     }},
    {"peer_that_is_not_there",
     [] {
       Together t;
       ncclSend(t.data, 4, ncclFloat, 3, t.comm, t.in);
     }},
    {"nobody_receives",
     [] {
       Together t;
       if (me() == 0) ncclSend(t.data, 4, ncclFloat, 1, t.comm, t.in);
       t.finish();
     }},
    {"both_send_first",  // not in a group: each waits for the other's receive
     [] {
       Together t;
       ncclSend(t.data, 4, ncclFloat, 1 - me(), t.comm, t.in);
       ncclRecv(t.data + 8, 4, ncclFloat, 1 - me(), t.comm, t.in);
       t.finish();
     }},
    {"waits_in_an_open_group",
     [] {
       Together t;
       ncclGroupStart();
       ncclAllReduce(t.data, t.data, 4, ncclFloat, ncclSum, t.comm, t.in);
       t.finish();
     }},
    {"communicator_used_after_it_was_destroyed",
     [] {
       Together t;
       ncclCommDestroy(t.comm);
       ncclAllReduce(t.data, t.data, 4, ncclFloat, ncclSum, t.comm, t.in);
     }},
    // Within cuda/, a call left out.
    {"library_collective_does_not_wait_for_its_argument",
     [] { in_library("cudaStreamWaitEvent", 0, reduce); }},
    {"library_computation_does_not_wait_for_a_collective",
     [] { in_library("cudaStreamWaitEvent", 1, reduce); }},
    {"library_does_not_record_its_argument", [] { in_library("cudaEventRecord", 1, reduce); }},
    {"library_does_not_close_a_group",
     [] { in_library("ncclGroupEnd", 0, [] { world().all_to_all_async(some(), 0, 0).get(); }); }},
    {"library_block_is_taken_while_another_queue_uses_it",
     [] {
       // Freed while its collective may still run: whoever takes the block must wait for that.
       world().all_reduce_async(Tensor({500}), ReduceOp::sum).get();  // blocks of the sizes below are there
       Future<Tensor> given_up = world().all_reduce_async(Tensor({500}), ReduceOp::sum);
       world().exchange("it is in its queue", 0);  // which no host has waited for
       try {
         Future<Tensor> lost = std::move(given_up);
         throw 1;
       } catch (int) {
       }
       plant("cudaStreamWaitEvent", 0, left_out);
       Tensor({500});
       world().synchronize();
     }},
    {"library_keeps_an_event", [] { in_library("cudaEventDestroy", 0, reduce); }},
    {"library_keeps_memory", [] { plant("cudaFree", 0, left_out); }},
    {"library_keeps_a_queue", [] { plant("cudaStreamDestroy", 0, left_out); }},
    {"library_keeps_its_handle", [] { plant("cublasDestroy", 0, left_out); }},
    {"library_keeps_a_communicator", [] { plant("ncclCommDestroy", 0, left_out); }},
    {"product", [] { matmul(some(), transposed(some())).to_host(); }},
    {"nothing", [] { reduce(); }}};

}  // namespace

int main(int argc, char** argv) {
  return run_on_devices(argc, argv, [&] {
    world();
    const auto named = cases.find(argc == 2 ? argv[1] : "");
    if (named == cases.end()) throw Error(Code::usage, "expected a case");
    named->second();
    return 0;
  });
}
