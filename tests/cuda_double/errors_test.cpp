// How cuda/ reports an error of CUDA, cuBLAS or NCCL: the code, the failed call, file and line. Also how slow
// the double is.

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <new>
#include <numeric>
#include <thread>

#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

using namespace shard;
using namespace shard::testing;
using cuda_double::plant;

RUNS_ON(.in_one_process = {}, .on_cuda = {1, 2, 3});

namespace {

void check_refused(Code code, const std::string& words, const std::function<void()>& action) {
  const Refusal refused = refusal(action);
  CHECK(refused.code == static_cast<int>(code));
  CHECK_THAT(refused.message, contains("device " + std::to_string(this_device()) + ": cuda/"));
  CHECK_THAT(refused.message, contains(words));
}

bool is_alone() {
  return group().num_devices() == 1;
}

}  // namespace

TEST_CASE("an error of CUDA names call, file and line") {
  plant("cudaMemsetAsync", 0, cudaErrorInvalidValue);
  check_refused(Code::internal, "expected success of cudaMemsetAsync(TensorMemory::data(t), 0, ",
                [] { Tensor({3}); });
  plant("cudaEventQuery", 0, cudaErrorInvalidValue);
  check_refused(Code::internal, "cuda/gpu.cpp:", [] { Tensor({3}).to_host(); });
  CHECK(difference(Tensor({2}), {{2}, {0, 0}}) == "");
}

TEST_CASE("an error of the GPU is found where a barrier waits for it") {
  plant("cudaEventQuery", 0, cudaErrorInvalidValue);
  check_refused(Code::internal, "cuda/gpu.cpp:", [] { group().barrier(); });
}

TEST_CASE("an error of cuBLAS") {
  plant("cublasGemmEx_64", 0, CUBLAS_STATUS_EXECUTION_FAILED);
  check_refused(Code::internal, "cuda/kernels/cublas_product.cpp:", [] {
    matmul(Tensor({2, 2}), Tensor({2, 2}));
  });
}

TEST_CASE("errors of NCCL: a peer that is lost, and any other") {
  if (is_alone()) return;
  plant("ncclAllReduce", 0, ncclInvalidUsage);
  check_refused(Code::internal, "expected success of ncclAllReduce(",
                [] { group().all_reduce_async(Tensor({3}), ReduceOp::sum).get(); });
  plant("ncclAllReduce", 0, ncclSystemError);  // no room in /dev/shm, say
  check_refused(Code::internal, "an error planted in the test double: words of the test double",
                [] { group().all_reduce_async(Tensor({3}), ReduceOp::sum).get(); });
  plant("ncclSend", 0, ncclRemoteError);
  check_refused(Code::lost, "expected success of ncclSend(", [] {
    const Tensor src({3});
    Tensor dst({3});
    group().send_async(src, dst, (group().device_id() + 1) % group().num_devices()).wait();
  });
}

TEST_CASE("a message of another shape is refused, and its devices go on") {
  const int me = group().device_id(), last = group().num_devices() - 1, next = me == last ? 0 : me + 1;
  for (const Shape& sent : {Shape{7}, Shape{2, 2}, Shape{0}}) {
    Tensor dst({3});
    auto to_next = [&](const Tensor& src) { group().send_async(src, dst, next).wait(); };
    CHECK(refusal([&] { to_next(Tensor(sent)); }).code == static_cast<int>(Code::mismatch));
    to_next(Tensor::from_host({3}, std::vector<float>(3, 5)));
    CHECK(difference(dst, {{3}, {5, 5, 5}}) == "");
    if (is_alone() || (me > 0 && me < last)) continue;
    for (const int sender : {0, last}) {
      const int other = last - me;
      if (me == sender)
        group().post_send(other, Tensor(sent)).wait();
      else
        CHECK(refusal([&] { group().post_receive(other, {3}).get(); }).code ==
              static_cast<int>(Code::mismatch));
    }
  }
  CHECK(group().all_reduce_async(Tensor({3}), ReduceOp::sum).get().to_host()[0] == 0);
}

TEST_CASE("memory that is short: cached blocks are given back first") {
  Tensor({300});
  plant("cudaMalloc", 0, cudaErrorMemoryAllocation);
  CHECK(scale(Tensor({300000}), 2).to_host()[5] == 0);
  plant("cudaMalloc", 0, cudaErrorMemoryAllocation);
  plant("cudaMalloc", 0, cudaErrorMemoryAllocation);
  CHECK_THROWS_AS(Tensor({400000}), std::bad_alloc);
  CHECK(scale(Tensor({3}), 2).to_host()[2] == 0);
}

TEST_CASE("memory that is short: copies that can be made again are given back, too") {
  plant("cudaMalloc", 0, cudaErrorMemoryAllocation);
  Tensor({700});  // gives back all that earlier tests left
  set_precision(Precision::bf16);
  const Tensor t = Tensor::from_host({128, 128}, std::vector<float>(128 * 128, 2));
  const std::vector<Index> at(4096, 5);
  auto product = [&] { return matmul(t, t); };
  auto rows = [&] { return gather_rows(t, at); };
  const Tensor some[] = {product(), rows()};
  std::size_t free, all;
  cudaMemGetInfo(&free, &all);
  cuda_double::memory_of_gpu = all - free;
  CHECK_NOTHROW(Tensor({60 * 256}));  // of 64 KiB: 32 of t in bf16, and 32 of the rows' numbers
  cuda_double::memory_of_gpu = all;
  CHECK((product().to_host() == some[0].to_host()));
  CHECK((rows().to_host() == some[1].to_host()));
  set_precision(Precision::float32);
}

TEST_CASE("a reduction of squares and a search for numbers that are not finite see every element") {
  std::vector<float> values(10000, 1.0F);
  const Index size = static_cast<Index>(values.size());
  CHECK(sum_of_squares(Tensor::from_host({size}, values)) == 10000);
  CHECK(all_finite(Tensor::from_host({size}, values)));
  for (std::size_t at : {std::size_t{0}, std::size_t{4095}, std::size_t{4096}, values.size() - 1})
    for (float bad : {NAN, INFINITY, -INFINITY}) {
      values[at] = bad;
      CHECK_FALSE(all_finite(Tensor::from_host({size}, values)));
      values[at] = 1;
    }
}

TEST_CASE("large copies go in pieces, in both directions, while the GPU waits for another device") {
  Future<Tensor> sum = group().all_reduce_async(Tensor({3}), ReduceOp::sum);
  if (group().device_id() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  sum.get();  // the stream waits for the devices that sleep
  std::vector<float> values(18 << 18);
  std::iota(values.begin(), values.end(), 0.0F);
  CHECK((Tensor::from_host({std::ssize(values)}, values).to_host() == values));
  for (Index width : {300000, 3000}) {
    const std::vector<float> some(values.begin(), values.begin() + 4 * 300000);
    const Index rows = std::ssize(some) / width;
    Tensor t({rows, 2 * width});
    t.write(1, width, 2 * width, some);
    CHECK((slice(t, 1, width, 2 * width).to_host() == some));
  }
}

TEST_CASE("the double's GPU is slow: the host finds what it has waited for, and nothing earlier") {
  cudaStream_t stream;
  cudaEvent_t done;
  void* data;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
  cudaMalloc(&data, sizeof(float));
  cudaMemsetAsync(data, 0, sizeof(float), stream);
  float value = 1;
  cudaMemcpyAsync(&value, data, sizeof value, cudaMemcpyDeviceToHost, stream);
  CHECK(std::isnan(value));
  cudaEventRecord(done, stream);
  for (int questions = 0; questions < 3; ++questions) {  // all events together need one to three
    cudaEventRecord(done, stream);
    CHECK(cudaEventQuery(done) == cudaErrorNotReady);
    CHECK(std::isnan(value));
  }
  int questions = 2;
  for (; cudaEventQuery(done) == cudaErrorNotReady; ++questions) CHECK(std::isnan(value));
  CHECK(questions <= 4);
  CHECK(value == 0);
  cudaEventRecord(done, stream);
  cudaStreamSynchronize(stream);
  CHECK(cudaEventQuery(done) == cudaSuccess);
  cudaFree(data);
  cudaEventDestroy(done);
  cudaStreamDestroy(stream);
}
