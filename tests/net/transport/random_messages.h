// Messages between workers in random order, over any transport. Used by
// tests/net/transport/comm_test.cpp with threads and by tests/ranks/comm_ranks.cpp over MPI.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "base/error.h"
#include "net/transport/transport.h"

namespace hetu::comm {

// Returns bytes that depend on the key. They are copied from a table, because sanitizers would slow
// down their computation.
inline std::vector<std::byte> pattern(std::size_t bytes, unsigned key) {
  constexpr std::size_t kTable = 65521;
  static const std::vector<std::byte> table = [] {
    std::vector<std::byte> t(2 * kTable);
    std::mt19937 rng(1);
    for (std::size_t i = 0; i < kTable; ++i) t[i] = t[i + kTable] = static_cast<std::byte>(rng());
    return t;
  }();
  std::vector<std::byte> data(bytes);
  const std::byte* from = table.data() + key * 7919 % kTable;
  for (std::size_t at = 0; at < bytes; at += kTable) {
    std::memcpy(data.data() + at, from, std::min(kTable, bytes - at));
  }
  return data;
}

/// Sends `each` messages between all pairs, self included. Both workers of a pair compute the same
/// list of messages, and each posts its sends and receives in an order of its own. Throws if a
/// received message differs from the message that was sent.
inline void exchange_at_random(Transport& t, unsigned seed, int each,
                               const std::vector<std::size_t>& sizes) {
  struct Message {
    bool send;
    int peer, index;
    std::size_t bytes;
  };
  const auto bytes_of = [&](int from, int to, int index) {
    std::minstd_rand r(seed * 7 + from * 31 + to * 17 + index * 101 + 1);
    r.discard(3);
    return sizes[r() % sizes.size()];
  };
  std::vector<Message> messages;
  for (int peer = 0; peer < t.workers(); ++peer) {
    for (int i = 0; i < each; ++i) {
      messages.push_back({true, peer, i, bytes_of(t.worker(), peer, i)});
      messages.push_back({false, peer, i, bytes_of(peer, t.worker(), i)});
    }
  }
  std::mt19937 rng(seed * 100 + t.worker());
  std::shuffle(messages.begin(), messages.end(), rng);
  const auto content = [&](const Message& m) {
    return pattern(m.bytes, (m.send ? t.worker() : m.peer) * 1000 + m.index);
  };
  std::vector<std::vector<std::byte>> buffers;
  std::vector<std::unique_ptr<Request>> requests;
  for (const Message& m : messages) {
    buffers.push_back(m.send ? content(m) : std::vector<std::byte>(m.bytes));
    const Tag tag = make_tag(2, m.send ? t.worker() : m.peer, m.index, 0, static_cast<int>(seed));
    requests.push_back(m.send ? t.send(m.peer, tag, buffers.back().data(), m.bytes)
                              : t.recv(m.peer, tag, buffers.back().data(), m.bytes));
    if (rng() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(rng() % 300));
  }
  std::shuffle(requests.begin(), requests.end(), rng);
  for (auto& r : requests) t.wait(*r, "a random message");
  for (std::size_t k = 0; k < messages.size(); ++k) {
    require(buffers[k] == content(messages[k]),
            "worker {}: message {} {} worker {} is wrong (seed {})", t.worker(), messages[k].index,
            messages[k].send ? "to" : "from", messages[k].peer, seed);
  }
}

}  // namespace hetu::comm
