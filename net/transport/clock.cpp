#include "net/transport/clock.h"

#include <limits>
#include <memory>

namespace hetu::comm {
namespace {

constexpr int kRoundTrips = 8;  // the first one also waits until worker 0 comes to this worker

std::int64_t received(Transport& transport, int from, Tag tag, WaitPurpose purpose) {
  std::int64_t value = 0;
  transport.wait(*transport.recv(from, tag, &value, sizeof(value)), purpose);
  return value;
}

void send(Transport& transport, int to, Tag tag, std::int64_t value, WaitPurpose purpose) {
  transport.wait(*transport.send(to, tag, &value, sizeof(value)), purpose);
}

// Answers a worker's round trips with the present time.
void answer(Transport& transport, int worker, Tag tag, WaitPurpose purpose) {
  for (int i = 0; i < kRoundTrips; ++i) {
    received(transport, worker, tag, purpose);
    send(transport, worker, second_phase(tag), now_ns(), purpose);
  }
}

// Returns worker 0's clock minus this worker's.
std::int64_t distance(Transport& transport, Tag tag, WaitPurpose purpose) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max(), found = 0;
  for (int i = 0; i < kRoundTrips; ++i) {
    const std::int64_t before = now_ns();
    send(transport, 0, tag, 0, purpose);
    const std::int64_t there = received(transport, 0, second_phase(tag), purpose);
    const std::int64_t taken = now_ns() - before;
    if (taken >= least) continue;
    least = taken;
    found = there - (before + taken / 2);
  }
  return found;
}

}  // namespace

std::int64_t common_origin(Transport& transport, Tag tag, WaitPurpose purpose) {
  if (transport.worker() == 0) {
    const std::int64_t origin = now_ns();
    for (int w = 1; w < transport.workers(); ++w) {
      send(transport, w, tag, origin, purpose);
      if (!transport.same_clock(w)) answer(transport, w, tag, purpose);
    }
    return origin;
  }
  const std::int64_t origin = received(transport, 0, tag, purpose);
  return transport.same_clock(0) ? origin : origin - distance(transport, tag, purpose);
}

}  // namespace hetu::comm
