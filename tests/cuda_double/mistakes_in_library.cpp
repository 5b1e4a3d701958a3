// Mistakes within cuda/, by a call that is left out there, and what cuda/ does when the GPU or its driver fails.

#include <nccl.h>
#include <nvtx3/nvToolsExt.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "engine/device/books/observer.hpp"
#include "engine/device/books/products_by.hpp"
#include "engine/device/device.hpp"
#include "engine/device/layer_operations.hpp"
#include "mistakes.hpp"

using namespace shard;
using cuda_double::left_out;
using cuda_double::plant;

namespace {

Tensor some() {
  return Tensor({6, 4});
}

/// Leaves out the k-th of these calls in the action.
void in_library(const char* call, int k, const std::function<void()>& action) {
  plant(call, k, left_out);
  action();
  group().synchronize();
}
/// While a message is in flight to device 1, both devices begin the first collective of a group. Device 0
/// continues both when device 1 already waits in the collective. Either may be first.
template <class Collective>
void messages_beside(const Collective& collective) {
  std::vector<std::unique_ptr<Communicator>> parts;
  for (int i = 0; i < 6; ++i) {
    Communicator& part = *parts.emplace_back(group().split(0, me()));
    Future<> sent;
    Future<Tensor> received;
    if (me() == 0) sent = part.post_send(1, some());
    if (me() == 1) received = part.post_receive(0, {6, 4});
    Future<Tensor> result = collective(part);
    if (me() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    result.get();
    if (me() == 0) sent.wait();
    if (me() == 1) received.get();
  }
  group().synchronize();
}
/// A message and a collective are in flight. Each device waits for one of them, and then makes a call in which the
/// driver may wait for the GPU. The other operation ends only if the other device continues, which may not yet
/// have launched its part.
void beside_both(const std::vector<std::function<void()>>& calls) {
  for (const auto& call : calls) {
    Future<> sent;
    Future<Tensor> received;
    if (me() == 0) sent = group().post_send(1, some());
    if (me() == 1) received = group().post_receive(0, {6, 4});
    Future<Tensor> sum = group().all_reduce_async(some(), ReduceOp::sum);
    if (me() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    me() == 0 ? sent.wait() : static_cast<void>(sum.get());
    call();
    static_cast<void>(me() == 0 ? sum.get() : received.get());
  }
  group().synchronize();
}
/// Device 0 launches a gather late, after it has freed a block behind a message. Device 1 computes what this message
/// says from the same gather: if the gather takes the block, each waits for the other.
void late_block() {
  using namespace std::chrono_literals;
  auto gather = [] { return group().all_gather_async(Tensor({400, 4}), 0); };
  Tensor whole = gather().get();  // its block is the communication stream's
  if (me() == 0) {
    Future<> sent = group().post_send(1, std::move(whole));
    Future<Tensor> received = group().post_receive(1, {3});
    std::this_thread::sleep_for(300ms);
    Future<Tensor> again = gather();
    for (const auto end = std::chrono::steady_clock::now() + 900ms; std::chrono::steady_clock::now() < end;)
      static_cast<void>(received.ready());
    sent.wait();  // frees the block
    again.get().to_host(), received.get().to_host();
  } else if (me() == 1) {
    Tensor got = group().receive(0);
    group().post_send(0, slice(gather().get().reshaped({4800}), 0, 0, 3)).wait();
  } else {
    Future<Tensor> again = gather();
    std::this_thread::sleep_for(2s);
    again.get();
  }
  group().synchronize();
}
/// Device 0 launches more than a queue has room for, behind a message that device 1 sends a little later.
void launches_behind_a_message() {
  using namespace std::chrono_literals;
  me() == 0 ? static_cast<void>(group().receive(1)) : group().send(0, some());  // connects them
  if (me() == 0) {
    Tensor t = group().post_receive(1, {6, 4}).get();
    for (int i = 0; i < 3000; ++i) t = scale(std::move(t), 1);
  } else {
    Future<> sent = group().post_send(0, some());
    std::this_thread::sleep_for(300ms);
    sent.wait();
  }
  group().synchronize();
}
/// Device 0 waits for messages of four devices and in a collective, and computes meanwhile.
void messages_of_all_beside_a_collective() {
  using namespace std::chrono_literals;
  if (me() == 0) {
    std::this_thread::sleep_for(300ms);  // the others' hosts are away by then, and launch nothing
    std::vector<Future<Tensor>> received;
    for (int from = 1; from < group().num_devices(); ++from)
      received.push_back(group().post_receive(from, {6, 4}));
    Future<Tensor> sum = group().all_reduce_async(some(), ReduceOp::sum);
    sum.get().to_host();
    for (Future<Tensor>& t : received) t.get();
  } else {
    Future<> sent = group().post_send(0, some());
    Future<Tensor> sum = group().all_reduce_async(some(), ReduceOp::sum);
    std::this_thread::sleep_for(1s);  // all are in flight on device 0
    sum.get(), sent.wait();
  }
  group().synchronize();
}
/// Device 0's GPU sends a message when both make a group, and device 1's host may not have seen its position yet.
void messages_beside_new_groups() {
  std::vector<std::unique_ptr<Communicator>> parts;
  for (int i = 0; i < 120; ++i) {
    Future<> sent;
    Future<Tensor> received;
    if (me() == 0) sent = group().post_send(1, some());
    if (me() == 1) received = group().post_receive(0, {6, 4});
    parts.push_back(group().split(0, me()));  // kept: each has a communicator of its own
    if (me() == 0) sent.wait();
    if (me() == 1) received.get();
  }
  group().synchronize();
}
void reduce() {
  Tensor t = scale(some(), 2);
  scale(group().all_reduce_async(std::move(t), ReduceOp::sum).get(), 2);
}

}  // namespace

const std::vector<Case> mistakes_in_library = {
    caught("library_collective_does_not_wait_for_its_argument", 2,
           "ncclAllReduce reads memory that another stream writes (a kernel)",
           [] { in_library("cudaStreamWaitEvent", 0, reduce); }),
    caught("library_computation_does_not_wait_for_a_collective", 2,
           "a kernel writes memory that another stream writes (ncclAllReduce)",
           [] { in_library("cudaStreamWaitEvent", 1, reduce); }),
    caught("library_does_not_record_its_argument", 2, "cudaStreamWaitEvent: an event that was never recorded",
           [] { in_library("cudaEventRecord", 1, reduce); }),
    caught("library_does_not_close_a_group", 2, "in an open group",
           [] { in_library("ncclGroupEnd", 0, [] { group().all_to_all_async(some(), 0, 0).get(); }); }),
    caught(
        "library_block_is_taken_while_another_stream_uses_it", 2,
        "cudaMemsetAsync writes memory that another stream writes (ncclAllReduce)",
        [] {
          // Freed while its collective may still run, so the next user of the block must wait for it.
          group().all_reduce_async(Tensor({500}), ReduceOp::sum).get();  // makes free blocks of these sizes
          Future<Tensor> given_up = group().all_reduce_async(Tensor({500}), ReduceOp::sum);
          group().exchange("it is in its stream", 0);  // no host has waited for it
          try {
            Future<Tensor> lost = std::move(given_up);
            throw 1;
          } catch (int) {
          }
          plant("cudaStreamWaitEvent", 0, left_out);
          Tensor({500});
          group().synchronize();
        }),
    {"library_chooses_no_gpu",
     {2},
     70,
     {"two ranks on GPU 0 of one machine"},
     [] {},
     Where::emulator,
     {},
     [] { plant("cudaSetDevice", 0, left_out); }},
    caught("library_keeps_an_event", 2, "not given back: 1 events",
           [] { in_library("cudaEventDestroy", 0, reduce); }),
    caught("library_keeps_memory", 2, "not given back: 1 memory", [] { plant("cudaFree", 0, left_out); }),
    caught("library_keeps_a_stream", 2, "not given back: 1 streams",
           [] { plant("cudaStreamDestroy", 0, left_out); }),
    caught("library_keeps_its_handle", 2, "not given back: 1 cuBLAS handles",
           [] { plant("cublasDestroy", 0, left_out); }),
    caught("library_keeps_a_communicator", 2, "not given back: 1 communicators",
           [] { plant("ncclCommDestroy", 0, left_out); }),
    {"product",
     {3},
     0,
     {},
     [] { matmul(some(), transposed(some())).to_host(); },
     Where::cuda_too,
     {{"CUDA_DOUBLE_GPUS", "2"}}},
    {"nccl_on_a_shared_gpu",
     {2},
     0,
     {},
     reduce,
     Where::cuda_too,
     {{"CUDA_DOUBLE_GPUS", "1"}, {"SHARDBOOK_NCCL_ON_SHARED_GPUS", "1"}}},
    // As Slurm gives each of its tasks.
    {"each_process_sees_one_gpu",
     {3},
     0,
     {},
     reduce,
     Where::emulator,
     {{"CUDA_DOUBLE_GPUS", "1"}, {"CUDA_DOUBLE_OWN_GPUS", "1"}}},
    // For MPI, each container is a machine.
    {"two_containers_with_one_gpu",
     {2},
     0,
     {},
     reduce,
     Where::emulator,
     {{"CUDA_DOUBLE_GPUS", "1"}, {"CUDA_DOUBLE_CONTAINERS", "1"}}},
    {"gpu_that_another_process_has_for_itself",
     {2},
     69,
     {"to be free, given another process that has it for itself"},
     reduce,
     Where::emulator,
     {},
     [] { plant("cudaSetDevice", 0, cudaErrorDevicesUnavailable); }},
    accepted("call_while_an_error_ends_another", 2,
             [] {
               struct AtEnd {
                 Tensor* sum;
                 ~AtEnd() { *sum = group().all_reduce_async(Tensor({500}), ReduceOp::sum).get(); }
               };
               Tensor sum;
               try {
                 const AtEnd at_end{&sum};
                 throw 1;
               } catch (int) {
               }
               sum.to_host();
             }),
    {"memory_of_nccl",
     {2},
     0,
     {},
     [] {  // 32 channels to the other device for collectives, 4 for messages
       const std::string said = products_by();
       if (said.find("beside NCCL 2.28.3 with 432 MiB") != said.npos) return 0;
       std::fprintf(stderr, "%s\n", said.c_str());
       return static_cast<int>(Code::differs);
     }},
    {"peak_of_a_gpu",
     {1},
     0,
     {},
     [] {  // 132 multiprocessors, 128 sums and products in each of 1.98e9 cycles
       const std::optional<double> peak = peak_of_products();
       set_precision(Precision::bf16);
       return peak == 132 * 128 * 2 * 1.98e9 && !peak_of_products() ? 0 : static_cast<int>(Code::differs);
     }},
    {"gpu_breaks_before_a_product",
     {1},
     70,
     {"cuda/kernels/cublas_product.cpp:", "expected success of cublasGemmEx_64("},
     [] {
       const Tensor a({4, 6}), b({6, 4});
       matmul(a, b);  // leaves a block of memory for the next result
       plant("cudaMemsetAsync", 0, cudaErrorLaunchFailure);
       try {
         Tensor({3});
       } catch (const Error&) {
       }
       matmul(a, b);
     }},
    {"old_driver",
     {2},
     69,
     {"given none: CUDA driver version is insufficient for CUDA runtime version (driver 12.4, runtime 13.0)"},
     reduce,
     Where::emulator,
     {},
     [] { plant("cudaGetDeviceCount", 0, cudaErrorInsufficientDriver); }},
    accepted("messages_beside_first_all_reduces", 2,
             [] {
               messages_beside(
                   [](Communicator& part) { return part.all_reduce_async(some(), ReduceOp::sum); });
             }),
    accepted("messages_beside_first_all_to_alls", 2,
             [] { messages_beside([](Communicator& part) { return part.all_to_all_async(some(), 0, 0); }); }),
    {"nccl_finds_out_later_that_a_peer_is_gone",
     {2},
     83,
     {"expected every device to be there, given NCCL's", "words of the test double"},
     [] {
       Tensor sum = group().all_reduce_async(some(), ReduceOp::sum).get();
       plant("cudaEventQuery", 0, cudaErrorNotReady);  // so the host waits at least once
       plant("asynchronous error", 0, ncclRemoteError);
       sum.to_host();
     }},
    accepted("large_copies_beside_a_message_and_a_collective", 2,
             [] {
               const std::vector<float> much(300000);
               auto copies = [&] {
                 for (int i = 0; i < 10; ++i) Tensor::from_host({300000}, much);
               };
               beside_both(std::vector<std::function<void()>>(12, copies));
             }),
    accepted("first_launches_beside_a_message_and_a_collective", 2,
             [] {
               beside_both({[] { scale(some(), 2); }, [] { relu(some()); }, [] { silu(some()); },
                            [] { gelu(some()); }, [] { sigmoid(some()); }, [] { hyperbolic_tangent(some()); },
                            [] { multiply(some(), some()); }, [] { all_finite(some()); },
                            [] { sum_of_squares(some()); }, [] { column_sums(some()); },
                            [] { row_sums(some()); }, [] { softmax(some()); }});
             }),
    accepted("messages_beside_new_groups", 2, messages_beside_new_groups),
    accepted("messages_of_four_devices_beside_a_collective", 5, messages_of_all_beside_a_collective),
    accepted("more_launches_than_a_queue_has_room_for", 2, launches_behind_a_message),
    accepted("a_block_freed_behind_a_message_that_waits_for_the_gather", 3, late_block),
    accepted("no_room_beside_a_message_and_a_collective", 2,
             [] {
               Index elements = 0;
               auto takes = [&] {
                 plant("cudaMalloc", 0, cudaErrorMemoryAllocation);  // cached blocks are freed first
                 Tensor::uninitialized({elements += 1000});          // a size that no block has
               };
               beside_both(std::vector<std::function<void()>>(12, takes));
             }),
    // Other programs need this variable. Here, collectives and messages would wait for one another.
    {"one_queue_for_all_streams",
     {2},
     0,
     {},
     reduce,
     Where::emulator,
     {{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}}},
    {"float32_where_the_environment_allows_tf32",
     {1},
     0,
     {},
     [] {
       const std::vector<float> values = {1 + 1.0F / (1 << 20)};
       const Tensor a = Tensor::from_host({1, 1}, values), one = Tensor::from_host({1, 1}, std::vector{1.0F});
       return matmul(a, one).to_host() == values ? 0 : static_cast<int>(Code::differs);
     },
     Where::emulator,
     {{"NVIDIA_TF32_OVERRIDE", "1"}}},
    {"ranges_for_a_profiler",
     {2},
     0,
     {},
     [] {
       const std::string place = " tests/cuda_double/mistakes_in_library.cpp:";
       note_section("step 1", true);
       const Tensor a({6, 4});
       const std::vector<std::string> expected = {"step 1", "  matmul" + place + std::to_string(__LINE__ + 2),
                                                  "  all_reduce" + place + std::to_string(__LINE__ + 2)};
       Tensor t = matmul(a, transposed(a));
       group().all_reduce_async(std::move(t), ReduceOp::sum).get();
       if (cuda_double::ranges() == expected) return 0;
       for (const std::string& range : cuda_double::ranges()) std::fprintf(stderr, "%s\n", range.c_str());
       return static_cast<int>(Code::differs);
     },
     Where::emulator,
     {{"SHARDBOOK_NVTX", "1"}}},
    // `cuda_double.slow_gpu` tests what it prints.
    accepted("host_is_away", 2,
             [] {
               using std::chrono::milliseconds;
               // Who calls last launches at once. So device 1 calls first, and is away when all agree.
               if (me() == 0) std::this_thread::sleep_for(milliseconds(300));
               Future<Tensor> sum = group().all_reduce_async(some(), ReduceOp::sum);
               if (me() == 1) std::this_thread::sleep_for(milliseconds(2500));
               sum.get().to_host();
             }),
    // 0: one process without a launcher. It frees the GPU when it ends.
    {"gpu_breaks_while_a_collective_uses_memory",
     {0, 2},
     70,
     {"cuda/gpu.cpp:",
      "expected success of cudaEventQuery(event_), given an error planted in the test double"},
     [] {
       Tensor sum = group().all_reduce_async(some(), ReduceOp::sum).get();
       plant("cudaEventQuery", 0, cudaErrorLaunchFailure);
       sum.to_host();
     }}};
