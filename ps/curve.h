// Keys of CURVE as Hetu writes them (64 hexadecimal digits) and as ZeroMQ takes them; for the
// sources of ps/ that speak ZeroMQ.
#pragma once
#include <array>
#include <cstddef>
#include <string>
#include <zmq.hpp>

namespace hetu::ps {

/// The 32 bytes of a key. Throws Config unless it has 64 hexadecimal digits.
std::array<std::byte, 32> key_bytes(const std::string& hex);

/// Sets one of ZeroMQ's key options. Throws Config as key_bytes does, and zmq::error_t.
void set_key(zmq::socket_t& socket, int option, const std::string& hex);

}  // namespace hetu::ps
