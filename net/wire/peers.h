// The connections of a ROUTER as numbers; for the ZeroMQ servers of ps/.
#pragma once
#include <cstdint>
#include <zmq.hpp>

namespace hetu::ps {

/// Connections get five bytes from ZeroMQ, the first of them 0; a name of the peer's own choice is
/// none. 0 for those.
inline std::uint64_t peer_of(const zmq::message_t& identity) {
  const auto* bytes = identity.data<unsigned char>();
  if (identity.size() != 5 || bytes[0] != 0) return 0;
  std::uint64_t peer = 1;
  for (int i = 1; i < 5; ++i) peer = peer << 8 | bytes[i];
  return peer;
}

inline zmq::message_t identity_of(std::uint64_t peer) {
  zmq::message_t identity(5);
  auto* bytes = identity.data<unsigned char>();
  bytes[0] = 0;
  for (int i = 4; i > 0; --i, peer >>= 8) bytes[i] = static_cast<unsigned char>(peer);
  return identity;
}

}  // namespace hetu::ps
