/// A wire over MPI.

#include "engine/device/runtime/processes/mpi_wire.hpp"

#include <fmt/format.h>

#include <limits>

#include "engine/device/runtime/processes/shared_memory.hpp"

namespace shard::runtime {

void require_success(int result, const char* what, Code code, const char* expected) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(result, text, &length);
  refuse(code, what, expected, std::string(text, static_cast<std::size_t>(length)));
}

namespace {

bool mpi_is_over() {
  int is_over = 0;
  MPI_Finalized(&is_over);
  return is_over != 0;
}

/// The number of elements as an int. \throws Error argument when it is too large.
template <class T>
int count_of(std::span<T> elements) {
  if (elements.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    refuse(Code::argument, "message", "fewer than 2^31 elements", fmt::to_string(elements.size()));
  return static_cast<int>(elements.size());
}

class MpiTransfer : public Transfer {
 public:
  MpiTransfer() = default;
  bool test() override {
    int done = 0;
    require_success(MPI_Test(&mpi, &done, MPI_STATUS_IGNORE), "wait");
    return done != 0;
  }
  bool give_up() override {
    if (mpi == MPI_REQUEST_NULL || mpi_is_over()) return false;  // it has failed, or MPI has ended
    if (is_receive) MPI_Cancel(&mpi);
    MPI_Request_free(&mpi);
    return is_receive;
  }

  MPI_Request mpi = MPI_REQUEST_NULL;
  bool is_receive = false;
  std::vector<int> lengths, offsets;  // of a gather of texts: MPI reads them until it is complete
};

/// Makes a request, and starts it by calling `start`.
template <class Start>
std::unique_ptr<MpiTransfer> started(const char* what, const Start& start) {
  auto request = std::make_unique<MpiTransfer>();
  require_success(start(&request->mpi), what);
  return request;
}

class MpiWire : public Wire {
 public:
  explicit MpiWire(MPI_Comm comm) : comm_(comm) {
    require_success(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "group");
    require_success(MPI_Comm_rank(comm_, &place_), "group");
    require_success(MPI_Comm_size(comm_, &size_), "group");
    words_ = SharedMemory::instance().words_of(comm_);
  }
  ~MpiWire() override {
    if (!mpi_is_over()) MPI_Comm_free(&comm_);
  }

  MPI_Comm comm() const { return comm_; }
  int place() const override { return place_; }
  int size() const override { return size_; }

  std::unique_ptr<Wire> subgroup(Index, const std::vector<int>& places) override {
    MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    require_success(MPI_Comm_group(comm_, &all), "split");
    require_success(MPI_Group_incl(all, static_cast<int>(places.size()), places.data(), &some), "split");
    const int result = MPI_Comm_create_group(comm_, some, 0, &comm);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    require_success(result, "split", Code::missing, "that MPI can make one more group");
    return std::make_unique<MpiWire>(comm);
  }

  Started send(int to, int tag, std::span<const Index> numbers, bool synchronous) override {
    return sent(synchronous ? MPI_Issend : MPI_Isend, to, tag, numbers, MPI_INT64_T);
  }
  Started send(int to, int tag, std::span<const float> values) override {
    return sent(MPI_Isend, to, tag, values, MPI_FLOAT);
  }
  Started receive(int from, int tag, std::span<Index> numbers) override {
    return received(from, tag, numbers, MPI_INT64_T);
  }
  Started receive(int from, int tag, std::span<float> values) override {
    return received(from, tag, values, MPI_FLOAT);
  }
  Started agree(std::span<const Index> mine, std::span<Index> all, bool) override {
    return words_ == nullptr ? nullptr : words_->tell(mine, all);
  }

  Started all_gather(std::span<const Index> mine, std::span<Index> all) override {
    return started("gather", [&](MPI_Request* request) {
      return MPI_Iallgather(mine.data(), count_of(mine), MPI_INT64_T, all.data(), count_of(mine), MPI_INT64_T,
                            comm_, request);
    });
  }
  Started all_to_all(std::span<const Index> for_each, std::span<Index> of_each) override {
    return started("exchange", [&](MPI_Request* request) {
      return MPI_Ialltoall(for_each.data(), 1, MPI_INT64_T, of_each.data(), 1, MPI_INT64_T, comm_, request);
    });
  }
  Started gather(std::span<const char> mine, const std::vector<int>& lengths, std::span<char> all,
                 bool for_all) override {
    auto request = std::make_unique<MpiTransfer>();
    request->lengths = lengths;
    for (int end = 0; int length : lengths) request->offsets.push_back(std::exchange(end, end + length));
    const int *of = request->lengths.data(), *at = request->offsets.data();
    const int count = count_of(mine);
    require_success(for_all ? MPI_Iallgatherv(mine.data(), count, MPI_BYTE, all.data(), of, at, MPI_BYTE,
                                              comm_, &request->mpi)
                            : MPI_Igatherv(mine.data(), count, MPI_BYTE, all.data(), of, at, MPI_BYTE, 0,
                                           comm_, &request->mpi),
                    "gather");
    return request;
  }

 private:
  template <class T>
  Started sent(decltype(&MPI_Isend) send, int to, int tag, std::span<const T> elements, MPI_Datatype type) {
    return started("send", [&](MPI_Request* request) {
      return send(elements.data(), count_of(elements), type, to, tag, comm_, request);
    });
  }
  template <class T>
  Started received(int from, int tag, std::span<T> elements, MPI_Datatype type) {
    auto receive = started("receive", [&](MPI_Request* request) {
      return MPI_Irecv(elements.data(), count_of(elements), type, from, tag, comm_, request);
    });
    receive->is_receive = true;
    return receive;
  }

  MPI_Comm comm_;
  int place_ = 0, size_ = 1;
  std::unique_ptr<SharedWords> words_;
};

}  // namespace

std::unique_ptr<Wire> wire_of_world() {
  MPI_Comm comm = MPI_COMM_NULL;
  require_success(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "group");
  return std::make_unique<MpiWire>(comm);
}

MPI_Comm comm_of(const Group& group) {
  return static_cast<const MpiWire&>(group.wire()).comm();
}

}  // namespace shard::runtime
