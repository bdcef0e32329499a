// A library with NCCL's entry points, for workers that are threads of one process; its stream is a
// Queue. As strict as NCCL: a communicator does its groups one after the other, a group occupies
// its stream until all of it is done, a send ends only when its receive is reached, calls return
// before they are done, nobody hears of a peer's death.
#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "executor/device/device.h"

// Named: functions of C's linkage must not lose theirs by types that no other file can name.
namespace fake {

using hetu::Queue;
using hetu::Reach;

constexpr int kSuccess = 0, kInvalidUsage = 5, kInProgress = 7;

struct UniqueId {
  char internal[128];
};
struct Config {
  std::size_t size;
  unsigned magic, version;
  int blocking;
};

struct Move {
  bool is_send;
  int peer;
  void* data;
  std::size_t bytes;
  bool over = false;
};
struct Launch {
  std::vector<Move> moves;
  bool begun = false;  // its stream has come to it: the moves' addresses are reached
  bool aborted = false;
  bool over() const {
    return std::all_of(moves.begin(), moves.end(), [](const Move& m) { return m.over; });
  }
};

struct Comm;
struct World {
  std::vector<Comm*> ranks;
  int joined = 0;
};
struct Comm {
  World* world;
  int rank;
  std::deque<std::shared_ptr<Launch>> launched;  // and not over
  bool busy = false;                             // tells once that a call is under way
};

struct All {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::unique_ptr<World>> worlds;
  int live = 0, made = 0, error = kSuccess;
  long moved = 0;
};
All& all() {
  static All one;
  return one;
}

struct Pending {
  Comm* comm;
  Move move;
  Queue* stream;
};
thread_local std::vector<Pending> in_group;
thread_local int depth = 0;

Move* first_between(Comm& comm, bool is_send, int peer) {
  if (comm.launched.empty() || !comm.launched.front()->begun) return nullptr;
  for (Move& move : comm.launched.front()->moves)
    if (!move.over && move.is_send == is_send && move.peer == peer) return &move;
  return nullptr;
}

void match(World& world) {
  for (Comm* from : world.ranks) {
    for (Comm* to : world.ranks) {
      if (from == nullptr || to == nullptr) continue;
      for (;;) {
        Move* const send = first_between(*from, true, to->rank);
        Move* const receive = first_between(*to, false, from->rank);
        if (send == nullptr || receive == nullptr || send->bytes != receive->bytes) break;
        std::memcpy(receive->data, send->data, send->bytes);
        send->over = receive->over = true;
        ++all().moved;
      }
    }
  }
  for (Comm* comm : world.ranks)
    if (comm != nullptr && !comm->launched.empty() && comm->launched.front()->over())
      comm->launched.pop_front();
  all().changed.notify_all();
}

// What a stream does when it comes to a group.
void carry_out(World& world, Launch& launch, Reach at) {
  std::unique_lock lock(all().mutex);
  if (launch.aborted) return;
  for (Move& move : launch.moves) move.data = at(move.data);
  launch.begun = true;
  match(world);
  all().changed.wait(lock, [&] { return launch.aborted || launch.over(); });
}

int put(Comm* comm, const Move& move, void* stream);

}  // namespace fake

using namespace fake;

extern "C" {

int ncclGetUniqueId(UniqueId* id) {
  const std::lock_guard lock(all().mutex);
  std::memset(id, 0, sizeof *id);
  const std::string name = "fake " + std::to_string(++all().made);
  std::memcpy(id->internal, name.data(), name.size());
  return kSuccess;
}

int ncclCommInitRankConfig(Comm** comm, int ranks, UniqueId id, int rank, Config* config) {
  if (config->size != 24 || config->magic != 0xcafebeef || config->blocking != 0)
    return kInvalidUsage;
  const std::lock_guard lock(all().mutex);
  auto& world = all().worlds[id.internal];
  if (!world) {
    world = std::make_unique<World>();
    world->ranks.resize(static_cast<std::size_t>(ranks));
  }
  *comm = new Comm{world.get(), rank, {}, true};
  world->ranks[static_cast<std::size_t>(rank)] = *comm;
  ++world->joined;
  ++all().live;
  return kInProgress;
}

int ncclCommGetAsyncError(Comm* comm, int* result) {
  const std::lock_guard lock(all().mutex);
  const bool there = comm->world->joined == static_cast<int>(comm->world->ranks.size());
  *result = all().error != kSuccess ? all().error : !there || comm->busy ? kInProgress : kSuccess;
  if (there) comm->busy = false;
  return kSuccess;
}

int ncclCommFinalize(Comm* comm) {
  const std::lock_guard lock(all().mutex);
  if (!comm->launched.empty()) return kInvalidUsage;  // here: whoever finishes has seen the ends
  comm->busy = true;
  return kInProgress;
}

int ncclCommAbort(Comm* comm) {
  const std::lock_guard lock(all().mutex);
  for (const auto& launch : comm->launched) launch->aborted = true;
  comm->world->ranks[static_cast<std::size_t>(comm->rank)] = nullptr;
  --all().live;
  delete comm;
  all().changed.notify_all();
  return kSuccess;
}

int ncclGroupStart() {
  ++depth;
  return kSuccess;
}

int ncclGroupEnd() {
  if (depth == 0) return kInvalidUsage;
  if (--depth > 0 || in_group.empty()) return kSuccess;
  auto launch = std::make_shared<Launch>();
  for (const Pending& pending : in_group) launch->moves.push_back(pending.move);
  Comm* const comm = in_group.front().comm;
  Queue* const stream = in_group.front().stream;
  in_group.clear();
  {
    const std::lock_guard lock(all().mutex);
    if (comm->busy) return kInvalidUsage;  // the call before is not over
    comm->launched.push_back(launch);
    comm->busy = true;
  }
  stream->run([world = comm->world, launch](Reach at) { carry_out(*world, *launch, at); });
  return kInProgress;
}

int ncclSend(const void* data, std::size_t bytes, int type, int peer, Comm* comm, void* stream) {
  if (type != 0) return kInvalidUsage;
  return put(comm, {true, peer, const_cast<void*>(data), bytes}, stream);
}

int ncclRecv(void* data, std::size_t bytes, int type, int peer, Comm* comm, void* stream) {
  if (type != 0) return kInvalidUsage;
  return put(comm, {false, peer, data, bytes}, stream);
}

const char* ncclGetErrorString(int result) { return result == 6 ? "remote error" : "an error"; }

int fake_nccl_live() {
  const std::lock_guard lock(all().mutex);
  return all().live;
}

int fake_nccl_made() {
  const std::lock_guard lock(all().mutex);
  return all().made;
}

long fake_nccl_moved() {
  const std::lock_guard lock(all().mutex);
  return all().moved;
}

void fake_nccl_fail(int result) {
  const std::lock_guard lock(all().mutex);
  all().error = result;
}

}  // extern "C"

int fake::put(Comm* comm, const Move& move, void* stream) {
  if (ncclGroupStart() != kSuccess) return kInvalidUsage;
  in_group.push_back({comm, move, static_cast<Queue*>(stream)});
  return ncclGroupEnd();
}
