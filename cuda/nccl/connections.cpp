#include "cuda/nccl/connections.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>

#include "cuda/gpu_memory.hpp"
#include "cuda/success.hpp"
#include "engine/device/runtime/processes/mpi_wire.hpp"

namespace shard::cuda {

namespace {

/// The connections of all groups that this device has ever been in, by group id. Never destroyed, as the Gpu.
std::map<Index, Connections>& all_connections() {
  static auto* all = new std::map<Index, Connections>;
  return *all;
}

/// This device's links, by both ids in the job, the lower one first. Never destroyed.
std::map<std::pair<int, int>, Link>& links() {
  static auto* all = new std::map<std::pair<int, int>, Link>;
  return *all;
}

/// The last calls of each stream. Never destroyed, as the Gpu.
struct Launched {
  std::string name;
  SourceLine where;
  std::shared_ptr<Event> end;
};
std::map<cudaStream_t, std::deque<Launched>>& last_launched() {
  static auto* all = new std::map<cudaStream_t, std::deque<Launched>>;
  return *all;
}

constexpr int id_tag = runtime::first_free_tag;  // a tag that control messages do not use

/// NCCL takes up to 32 multiprocessors for a message between two GPUs, also while it waits, and 12 MiB for each.
constexpr int multiprocessors_of_link = 4;
/// In a larger job, two devices connect at their first message.
constexpr int most_devices_with_all_links = 8;

/// Adds to taken_by_nccl the memory of the GPU that is taken during its lifetime. NCCL takes its buffers when it makes a
/// communicator and at the first messages, and tells nobody how much.
Index taken = 0;
class MemoryOfNccl {
 public:
  ~MemoryOfNccl() { taken += std::max<Index>(0, before_ - free_memory()); }

 private:
  static Index free_memory() {
    std::size_t free = 0, all = 0;
    return cudaMemGetInfo(&free, &all) == cudaSuccess ? static_cast<Index>(free) : 0;
  }
  Index before_ = free_memory();
};

ncclComm_t connect(const ncclUniqueId& id, int devices, int rank, ncclConfig_t config) {
  ncclComm_t comm = nullptr;
  SHARDBOOK_CHECK(ncclCommInitRankConfig(&comm, devices, id, rank, &config));
  return comm;
}

/// Makes a communicator of all members. A collective of the group.
///
/// NCCL connects two members at their first message, and the host waits there for the other host. Later, such
/// waits could form a cycle. So all members send one another a message here, where none waits for anything
/// else.
ncclComm_t connect_all(const Group& group, cudaStream_t stream) {
  const MemoryOfNccl counted;
  ncclUniqueId id;
  if (group.device_id() == 0) SHARDBOOK_CHECK(ncclGetUniqueId(&id));
  runtime::require_success(MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, runtime::comm_of(group)), "split");
  ncclComm_t comm = connect(id, group.num_devices(), group.device_id(), NCCL_CONFIG_INITIALIZER);
  Workspace bytes(2 * group.num_devices(), stream);
  NcclGroupCall together;
  for (int d = 0; d < group.num_devices(); ++d) {
    if (d == group.device_id()) continue;
    SHARDBOOK_CHECK(ncclSend(bytes.data<char>() + 2 * d, 1, ncclInt8, d, comm, stream));
    SHARDBOOK_CHECK(ncclRecv(bytes.data<char>() + 2 * d + 1, 1, ncclInt8, d, comm, stream));
  }
  return comm;
}

/// The id of an earlier group whose connections all members can reuse, or 0 (the world's, which exists until
/// the end). Each member offers its first destroyed group of the same members. The offers must be equal.
Index group_to_reuse(const Group& group) {
  Index offered = 0;
  for (const auto& [id, connections] : all_connections())
    if (offered == 0 && !connections.is_in_use && connections.members == group.members()) offered = id;
  std::array<Index, 2> least = {offered, -offered};
  runtime::require_success(
      MPI_Allreduce(MPI_IN_PLACE, least.data(), 2, MPI_INT64_T, MPI_MIN, runtime::comm_of(group)), "split");
  return least[0] == -least[1] ? offered : 0;
}

Connections& connections_for(const Group& group) {
  const bool is_alone = group.num_devices() == 1;
  if (const Index earlier = is_alone ? 0 : group_to_reuse(group); earlier != 0) {
    Connections& again = all_connections().at(earlier);
    again.is_in_use = true;
    return again;
  }
  Connections& made = all_connections()[group.id()];
  made.members = group.members();
  made.collectives.stream = gpu().communication();
  if (!is_alone) made.collectives.comm = connect_all(group, made.collectives.stream);
  return made;
}

template <class Action>
void for_each_communicator(const Action& action) {
  for (auto& [group, connections] : all_connections())
    if (connections.collectives.comm != nullptr) action(connections.collectives.comm);
  for (auto& [ids, link] : links())
    if (link.comm() != nullptr) action(link.comm());
}

}  // namespace

NcclDataPlane::NcclDataPlane(const Group& group) : connections_(connections_for(group)) {
  if (group.id() != 0 || group.num_devices() > most_devices_with_all_links) return;  // 0: all devices
  // In each round a device has one partner, or none.
  const int devices = group.num_devices(), me = group.device_id();
  for (int round = 0; round < devices; ++round)
    if (const int peer = (round + devices - me) % devices; peer != me)
      pair_with(group, peer).link.connected(group, peer);
}

runtime::Task NcclDataPlane::body_of(runtime::Call& call) {
  static const std::map<Request::Function, runtime::Task (*)(runtime::Call&)> bodies = {
      {Request::barrier, barrier},       {Request::send, send},
      {Request::post_send, send},        {Request::receive, receive},
      {Request::post_receive, receive},  {Request::send_async, send_async},
      {Request::all_gather, all_gather}, {Request::all_reduce, all_reduce},
      {Request::all_to_all, all_to_all}, {Request::reduce_scatter, reduce_scatter},
      {Request::broadcast, broadcast}};
  const auto found = bodies.find(call.request.function);
  return found == bodies.end() ? runtime::definition_of(call.request.function).body(call)  // sends no tensor
                               : found->second(call);
}

Pair& NcclDataPlane::pair_with(const Group& group, int peer) {
  const auto [lower, higher] = std::minmax({this_device(), group.member(peer)});
  Link& link = links().try_emplace({lower, higher}, this_device() == lower).first->second;
  return connections_.pairs.try_emplace(peer, Pair{link}).first->second;
}

const NcclCommunicator& collectives_of(const Group& group) {
  return static_cast<const NcclDataPlane&>(*group.data_plane).collectives();
}

Pair& pair_with(const Group& group, int peer) {
  return static_cast<NcclDataPlane&>(*group.data_plane).pair_with(group, peer);
}

cudaStream_t Link::stream() {
  if (communicator_.stream == nullptr) communicator_.stream = new_stream(true);
  return communicator_.stream;
}

/// In a small job all call this at the start, in rounds of pairs. In a larger one, the device with the lower id calls
/// it when it has sent the first message's position, and the other one when it has received it. So only lower devices
/// wait here, for higher ones, which makes no cycle. A message in each direction connects both, so that no host waits
/// later.
const NcclCommunicator& Link::connected(const Group& group, int peer) {
  if (communicator_.comm != nullptr) return communicator_;
  const MemoryOfNccl counted;
  ncclUniqueId id;
  if (decides_order_) {
    SHARDBOOK_CHECK(ncclGetUniqueId(&id));
    MPI_Ssend(&id, sizeof id, MPI_BYTE, peer, id_tag,
              runtime::comm_of(group));  // until the other device calls this
  } else {
    MPI_Recv(&id, sizeof id, MPI_BYTE, peer, id_tag, runtime::comm_of(group), MPI_STATUS_IGNORE);
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.maxCTAs = multiprocessors_of_link;
  communicator_.comm = connect(id, 2, 1 - rank_of_peer(), config);
  Workspace byte(1, stream());
  for (const bool is_mine : {decides_order_, !decides_order_})
    if (is_mine)
      SHARDBOOK_CHECK(ncclSend(byte.data<char>(), 1, ncclInt8, rank_of_peer(), communicator_.comm, stream()));
    else
      SHARDBOOK_CHECK(ncclRecv(byte.data<char>(), 1, ncclInt8, rank_of_peer(), communicator_.comm, stream()));
  return communicator_;
}

void Link::close() {
  if (communicator_.comm != nullptr) ncclCommDestroy(communicator_.comm);
  if (communicator_.stream != nullptr) cudaStreamDestroy(communicator_.stream);
}

/// Ends whatever the other devices do: a message has a position when both hosts have called, and then waits for no host.
void launch_ordered_messages() {
  while (!std::ranges::all_of(links(), [](const auto& link) { return link.second.has_launched_all(); }))
    runtime::stream().resume_ready();
}

OperationEvents& events_of(runtime::Call& call) {
  return static_cast<OperationEvents&>(*call.on_device);
}

void note_launch(cudaStream_t stream, const runtime::Call& call, std::shared_ptr<Event> end) {
  constexpr std::size_t most = 64;
  std::deque<Launched>& calls = last_launched()[stream];
  calls.push_back({call.name, call.request.where, std::move(end)});
  if (calls.size() > most) calls.pop_front();
}

std::string first_call_in(cudaStream_t stream) {
  const std::deque<Launched>& calls = last_launched()[stream];
  const auto first = std::ranges::find_if(calls, [](const Launched& call) { return !call.end->test(); });
  return first == calls.end() ? "" : fmt::format(" ({} {})", first->name, to_string(first->where));
}

NcclGroupCall::NcclGroupCall() {
  SHARDBOOK_CHECK(ncclGroupStart());
}

NcclGroupCall::~NcclGroupCall() noexcept(false) {
  const ncclResult_t result = ncclGroupEnd();
  if (std::uncaught_exceptions() == errors_before_) SHARDBOOK_CHECK(result);
}

void check_connections() {
  ncclResult_t failure = ncclSuccess;
  for_each_communicator([&](ncclComm_t comm) {
    ncclResult_t state = ncclSuccess;
    SHARDBOOK_CHECK(ncclCommGetAsyncError(comm, &state));
    if (state != ncclSuccess) failure = state;
  });
  if (failure == ncclSuccess) return;
  const bool is_lost = failure == ncclRemoteError;
  throw Error(is_lost ? Code::lost : Code::internal,
              fmt::format("device {}: expected {}, given NCCL's {}: {}", this_device(),
                          is_lost ? "every device to be there" : "NCCL to go on", ncclGetErrorString(failure),
                          ncclGetLastError(nullptr)));
}

std::vector<std::pair<std::string, cudaStream_t>> streams() {
  std::vector<std::pair<std::string, cudaStream_t>> all = {{"collectives", gpu().communication()}};
  for (auto& [ids, link] : links())
    all.emplace_back(fmt::format("messages of devices {} and {}", ids.first, ids.second), link.stream());
  all.emplace_back("computation", gpu().computation());
  return all;
}

Index taken_by_nccl() {
  return taken;
}

void close_connections() {
  last_launched().clear();
  for (auto& [group, connections] : all_connections())
    if (connections.collectives.comm != nullptr) ncclCommDestroy(connections.collectives.comm);
  for (auto& [ids, link] : links()) link.close();
}

}  // namespace shard::cuda
