// For each call of NCCL: the data that it sends to each rank, and its result.

#include <fmt/format.h>

#include <cstring>

#include "transfers.hpp"

namespace cuda_double {

const char* name_of(Kind kind) {
  static constexpr const char* names[] = {"ncclAllReduce",     "ncclReduce",    "ncclBroadcast",
                                          "ncclReduceScatter", "ncclAllGather", "ncclSend or ncclRecv"};
  return names[static_cast<int>(kind)];
}

std::string Line::describe() const {
  return fmt::format("{} of {} elements of type {}, operation {}, root {}, in place {}", name_of(kind), count,
                     type, op, root, place);
}

std::size_t bytes_of(std::int64_t count, std::int64_t type) {
  return static_cast<std::size_t>(count) * (type == ncclFloat64 ? 8 : type == ncclInt8 ? 1 : 4);
}

bool sends_to(const Call& c, int other) {
  const bool is_root = c.line.root == c.comm->rank;
  switch (c.line.kind) {
    case Kind::send:
      return c.from != nullptr && other == c.peer;
    case Kind::reduce:
      return other == c.line.root;
    case Kind::broadcast:
      return is_root;
    default:
      return true;
  }
}
bool receives_from(const Call& c, int other) {
  const bool is_root = c.line.root == c.comm->rank;
  switch (c.line.kind) {
    case Kind::send:
      return c.to != nullptr && other == c.peer;
    case Kind::reduce:
      return is_root;
    case Kind::broadcast:
      return other == c.line.root;
    default:
      return true;
  }
}

namespace {

template <class T>
T combined(T a, T b, ncclRedOp_t op) {
  switch (op) {
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    case ncclProd:
      return a * b;
    default:
      return a + b;
  }
}

template <class T>
void reduced(const std::vector<std::vector<char>>& addends, ncclRedOp_t op, char* to, std::size_t bytes) {
  std::vector<T> sum(bytes / sizeof(T)), next(sum.size());
  std::memcpy(sum.data(), addends[0].data(), bytes);
  for (std::size_t d = 1; d < addends.size(); ++d) {
    std::memcpy(next.data(), addends[d].data(), bytes);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = combined(sum[i], next[i], op);
  }
  std::memcpy(to, sum.data(), bytes);
}

}  // namespace

void put_together(const Call& c, const std::vector<std::vector<char>>& arrived) {
  char* to = c.to == nullptr ? nullptr : static_cast<char*>(kept_at(c.to));
  const std::size_t bytes = bytes_of(c.line.count, c.line.type);
  switch (c.line.kind) {
    case Kind::all_gather:
      for (std::size_t d = 0; d < arrived.size(); ++d) std::memcpy(to + d * bytes, arrived[d].data(), bytes);
      return;
    case Kind::send:
      if (to != nullptr) std::memcpy(to, arrived[static_cast<std::size_t>(c.peer)].data(), bytes);
      return;
    case Kind::broadcast:
      std::memcpy(to, arrived[static_cast<std::size_t>(c.line.root)].data(), bytes);
      return;
    default:
      if (arrived[0].empty()) return;
      auto* reduce = c.line.type == ncclFloat     ? reduced<float>
                     : c.line.type == ncclFloat64 ? reduced<double>
                                                  : reduced<std::int32_t>;
      reduce(arrived, static_cast<ncclRedOp_t>(c.line.op), to, bytes);
  }
}

}  // namespace cuda_double
