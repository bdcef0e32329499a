// A library with NCCL's entry points. Workers are threads of one process, or processes of one
// machine. The library is as strict as NCCL:
//
// - A communicator runs its groups one after the other.
// - A group occupies its stream until the whole group is done.
// - A send ends only when its matching receive starts. Opposing sends outside a group
//   therefore block until they are aborted.
// - Calls return before their work is done. A busy communicator rejects further calls.
// - Nobody is notified of a peer's death.
//
// It also reports two mistakes. The sizes on the two sides may differ, or the memory of a message
// may be written after its stream has started the message and before the transfer. It has no
// collectives and no blocking communicators.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "executor/direct/nccl_library.h"
#include "tests/stand_ins/fake_nccl_launch.h"

namespace fake {

using hetu::comm::kNcclBytes;
using hetu::comm::kNcclInProgress;
using hetu::comm::kNcclSuccess;
using hetu::comm::NcclComm;
using hetu::comm::NcclConfig;
using hetu::comm::NcclUniqueId;

constexpr int kInvalidArgument = 4, kInvalidUsage = 5, kUnhandledCuda = 1;

std::atomic<int> live = 0, made = 0, error = kNcclSuccess;
std::atomic<long> moved = 0;

struct Pending {
  NcclComm comm;
  Move move;
  void* stream;
};
thread_local std::vector<Pending> in_group;
thread_local int depth = 0;

void Launch::begin(const ResolveAddress& resolve) {
  if (rank_->links.is_cut()) return;
  for (Move& move : moves_) move.data = resolve(move.data, move.bytes, what_of(move));
}

void Launch::finish() {
  {
    std::unique_lock lock(rank_->mutex);
    rank_->changed.wait(lock,
                        [&] { return rank_->links.is_cut() || rank_->launched.front() == this; });
  }
  if (rank_->links.is_cut()) return;
  const std::string problem = rank_->links.carry_out(moves_);
  moved += std::count_if(moves_.begin(), moves_.end(),
                         [](const Move& move) { return !move.is_send && move.over; });
  std::unique_lock lock(rank_->mutex);
  if (!problem.empty()) {
    std::fprintf(stderr, "stand-in for NCCL: %s\n", problem.c_str());
    rank_->error = kInvalidArgument;
    // hangs, as a GPU does after such an error
    rank_->changed.wait(lock, [&] { return rank_->links.is_cut(); });
  }
  rank_->launched.pop_front();
  rank_->changed.notify_all();
}

int add(const Pending& pending, int type);

}  // namespace fake

struct hetu::comm::NcclCommOpaque {
  const int ranks, rank;
  const std::shared_ptr<fake::Rank> held;
};

using namespace fake;

extern "C" {

int ncclGetUniqueId(NcclUniqueId* id) {
  static std::atomic<unsigned> drawn = std::random_device()();
  *id = {};
  ++made;
  fmt::format_to_n(id->internal.data(), id->internal.size() - 1, "fake-nccl-{}-{:x}", getpid(),
                   ++drawn);
  return kNcclSuccess;
}

int ncclCommInitRankConfig(NcclComm* comm, int ranks, NcclUniqueId id, int rank,
                           NcclConfig* config) {
  if (config->size != 24 || config->magic != 0xcafebeef || config->blocking != 0)
    return kInvalidUsage;
  if (rank < 0 || rank >= ranks) return kInvalidArgument;
  *comm = new hetu::comm::NcclCommOpaque{ranks, rank,
                                         std::make_shared<Rank>(id.internal.data(), ranks, rank)};
  ++live;
  return kNcclInProgress;
}

int ncclCommGetAsyncError(NcclComm comm, int* result) {
  Rank& rank = *comm->held;
  const std::lock_guard lock(rank.mutex);
  if (!rank.joined) rank.joined = rank.links.join();
  const int failed = error != kNcclSuccess ? error.load() : rank.error;
  *result = failed != kNcclSuccess      ? failed
            : !rank.joined || rank.busy ? kNcclInProgress
                                        : kNcclSuccess;
  if (rank.joined) rank.busy = false;
  return kNcclSuccess;
}

int ncclCommFinalize(NcclComm comm) {
  const std::lock_guard lock(comm->held->mutex);
  // This library counts a call on a communicator with unfinished launches as misuse: the caller
  // must have waited for the ends of all launches.
  if (!comm->held->launched.empty()) return kInvalidUsage;
  comm->held->busy = true;
  return kNcclInProgress;
}

int ncclCommAbort(NcclComm comm) {
  {
    const std::lock_guard lock(comm->held->mutex);
    comm->held->links.cut();
  }
  comm->held->changed.notify_all();
  --live;
  delete comm;
  return kNcclSuccess;
}

int ncclGroupStart() {
  ++depth;
  return kNcclSuccess;
}

int ncclGroupEnd() {
  if (depth == 0) return kInvalidUsage;
  if (--depth > 0 || in_group.empty()) return kNcclSuccess;
  const Pending first = in_group.front();
  std::vector<Move> moves;
  bool alike = true;
  for (const Pending& pending : in_group) {
    moves.push_back(pending.move);
    alike &= pending.comm == first.comm && pending.stream == first.stream;
  }
  in_group.clear();
  if (!alike) return kInvalidUsage;  // NCCL allows mixed groups, but Hetu never uses them.
  const auto launch = std::make_shared<Launch>(first.comm->held, std::move(moves));
  {
    const std::lock_guard lock(first.comm->held->mutex);
    if (first.comm->held->busy) return kInvalidUsage;  // the previous call has not ended
    first.comm->held->launched.push_back(launch.get());
    first.comm->held->busy = true;
  }
  return put(first.stream, launch) ? kNcclInProgress : kUnhandledCuda;
}

int ncclSend(const void* data, std::size_t bytes, int type, int peer, NcclComm comm, void* stream) {
  return add({comm, {true, peer, const_cast<void*>(data), bytes}, stream}, type);
}

int ncclRecv(void* data, std::size_t bytes, int type, int peer, NcclComm comm, void* stream) {
  return add({comm, {false, peer, data, bytes}, stream}, type);
}

const char* ncclGetErrorString(int result) {
  return result == 6                  ? "remote error"
         : result == kInvalidArgument ? "invalid argument"
                                      : "an error";
}

int fake_nccl_live() { return live; }
int fake_nccl_made() { return made; }
long fake_nccl_moved() { return moved; }
void fake_nccl_fail(int result) { error = result; }

}  // extern "C"

int fake::add(const Pending& pending, int type) {
  if (type != kNcclBytes) return kInvalidUsage;
  if (pending.move.peer < 0 || pending.move.peer >= pending.comm->ranks ||
      pending.move.peer == pending.comm->rank)
    return kInvalidArgument;
  if (ncclGroupStart() != kNcclSuccess) return kInvalidUsage;
  in_group.push_back(pending);
  return ncclGroupEnd();
}

namespace {

// Hetu calls these functions by name. tests/cuda/nccl_abi.cpp compares the signatures with NCCL's
// header.
using L = hetu::comm::NcclLibrary;
static_assert(std::is_same_v<decltype(L::get_unique_id), decltype(&ncclGetUniqueId)>);
static_assert(
    std::is_same_v<decltype(L::comm_init_rank_config), decltype(&ncclCommInitRankConfig)>);
static_assert(std::is_same_v<decltype(L::comm_get_async_error), decltype(&ncclCommGetAsyncError)>);
static_assert(std::is_same_v<decltype(L::comm_finalize), decltype(&ncclCommFinalize)>);
static_assert(std::is_same_v<decltype(L::comm_abort), decltype(&ncclCommAbort)>);
static_assert(std::is_same_v<decltype(L::group_start), decltype(&ncclGroupStart)>);
static_assert(std::is_same_v<decltype(L::group_end), decltype(&ncclGroupEnd)>);
static_assert(std::is_same_v<decltype(L::send), decltype(&ncclSend)>);
static_assert(std::is_same_v<decltype(L::recv), decltype(&ncclRecv)>);
static_assert(std::is_same_v<decltype(L::error_string), decltype(&ncclGetErrorString)>);

}  // namespace
