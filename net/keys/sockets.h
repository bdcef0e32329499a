// Keys of CURVE as Hetu writes them (64 hexadecimal digits) and as ZeroMQ takes them; for the
// sources of ps/ and net/transport/ that speak ZeroMQ.
#pragma once
#include <array>
#include <cstddef>
#include <string>
#include <vector>
#include <zmq.hpp>

namespace hetu::curve {

/// The 32 bytes of a key. Throws Config unless it has 64 hexadecimal digits.
std::array<std::byte, 32> key_bytes(const std::string& hex);

/// Receives all parts of one message; false if there is none now.
bool receive_all(zmq::socket_t& socket, std::vector<zmq::message_t>& parts);

/// Answers ZeroMQ's question who may connect to the serving sockets of a context (its ZAP
/// protocol): whoever has the secret that belongs to one public key. Make it before they bind.
class Authenticator {
 public:
  Authenticator(zmq::context_t& context, const std::string& client_key);
  /// To be polled for input; then call admit().
  void* socket() { return socket_.handle(); }
  void admit();

 private:
  const std::array<std::byte, 32> client_key_;
  zmq::socket_t socket_;
};

/// Whether the system itself keeps everybody but this user from an endpoint: a Unix socket in a
/// folder of his whose mode lets in nobody else. Such a line needs no encryption; both of its ends
/// find the same, unless root speaks to another user's.
bool is_private(const std::string& endpoint);

/// A socket that serves with this secret and asks the authenticator. Throws as set_key does.
void serve_encrypted(zmq::socket_t& socket, const std::string& secret);

/// Sets one of ZeroMQ's key options. Throws Config as key_bytes does, and zmq::error_t.
void set_key(zmq::socket_t& socket, int option, const std::string& hex);

}  // namespace hetu::curve
