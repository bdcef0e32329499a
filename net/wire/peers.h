// Numbers for the connections of a ROUTER socket, for the ZeroMQ servers of ps/.
#pragma once
#include <cstdint>
#include <zmq.hpp>

namespace hetu::ps {

/// Returns the number of a connection. ZeroMQ identifies connections by five bytes, the first of
/// which is 0. Returns 0 for any other identity, which a peer has chosen itself.
inline std::uint64_t peer_of(const zmq::message_t& identity) {
  const auto* bytes = identity.data<unsigned char>();
  if (identity.size() != 5 || bytes[0] != 0) return 0;
  std::uint64_t peer = 1;
  for (int i = 1; i < 5; ++i) peer = peer << 8 | bytes[i];
  return peer;
}

/// Returns the ZeroMQ identity of a connection number.
inline zmq::message_t identity_of(std::uint64_t peer) {
  zmq::message_t identity(5);
  auto* bytes = identity.data<unsigned char>();
  bytes[0] = 0;
  for (int i = 4; i > 0; --i, peer >>= 8) bytes[i] = static_cast<unsigned char>(peer);
  return identity;
}

}  // namespace hetu::ps
