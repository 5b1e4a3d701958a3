// Mistakes within cuda/: a call there is left out.

#include "engine/device/device.hpp"
#include "mistakes.hpp"

using namespace shard;
using cuda_double::left_out;
using cuda_double::plant;

namespace {

Tensor some() {
  return Tensor({6, 4});
}

/// Leaves out the k-th call from now on, or lets it fail.
void in_library(const char* call, int k, const std::function<void()>& action) {
  plant(call, k, left_out);
  action();
  group().synchronize();
}
void reduce() {
  Tensor t = scale(some(), 2);
  scale(group().all_reduce_async(std::move(t), ReduceOp::sum).get(), 2);
}

}  // namespace

const std::vector<Case> mistakes_in_library = {
    {"library_collective_does_not_wait_for_its_argument",
     {2},
     70,
     {"ncclAllReduce reads memory that another stream writes (a kernel)"},
     [] { in_library("cudaStreamWaitEvent", 0, reduce); }},
    {"library_computation_does_not_wait_for_a_collective",
     {2},
     70,
     {"a kernel writes memory that another stream writes (ncclAllReduce)"},
     [] { in_library("cudaStreamWaitEvent", 1, reduce); }},
    {"library_does_not_record_its_argument",
     {2},
     70,
     {"cudaStreamWaitEvent: an event that was never recorded"},
     [] { in_library("cudaEventRecord", 1, reduce); }},
    {"library_does_not_close_a_group",
     {2},
     70,
     {"in an open group"},
     [] { in_library("ncclGroupEnd", 0, [] { group().all_to_all_async(some(), 0, 0).get(); }); }},
    {"library_block_is_taken_while_another_stream_uses_it",
     {2},
     70,
     {"cudaMemsetAsync writes memory that another stream writes (ncclAllReduce)"},
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
     }},
    {"library_chooses_no_gpu",
     {2},
     70,
     {"two ranks on GPU 0 of one machine"},
     [] {},
     Where::emulator,
     {},
     [] { plant("cudaSetDevice", 0, left_out); }},
    {"library_keeps_an_event",
     {2},
     70,
     {"not given back: 1 events"},
     [] { in_library("cudaEventDestroy", 0, reduce); }},
    {"library_keeps_memory", {2}, 70, {"not given back: 1 memory"}, [] { plant("cudaFree", 0, left_out); }},
    {"library_keeps_a_stream",
     {2},
     70,
     {"not given back: 1 streams"},
     [] { plant("cudaStreamDestroy", 0, left_out); }},
    {"library_keeps_its_handle",
     {2},
     70,
     {"not given back: 1 cuBLAS handles"},
     [] { plant("cublasDestroy", 0, left_out); }},
    {"library_keeps_a_communicator",
     {2},
     70,
     {"not given back: 1 communicators"},
     [] { plant("ncclCommDestroy", 0, left_out); }},
    {"product",
     {3},
     0,
     {},
     [] { matmul(some(), transposed(some())).to_host(); },
     Where::cuda_too,
     {{"CUDA_DOUBLE_GPUS", "2"}, {"SHARDBOOK_SHARE_GPUS", "1"}}},
    {"nothing",
     {4},
     64,
     {"expected a GPU for each of the 4 processes of this machine, given 2; SHARDBOOK_SHARE_GPUS=1"},
     reduce,
     Where::cuda_too,
     {{"CUDA_DOUBLE_GPUS", "2"}}}};
