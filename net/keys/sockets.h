// CURVE keys on ZeroMQ sockets. Hetu writes keys as 64 hexadecimal digits, and ZeroMQ takes 32
// bytes. For the ZeroMQ sources of ps/ and net/transport/.
#pragma once
#include <array>
#include <cstddef>
#include <string>
#include <vector>
#include <zmq.hpp>

namespace hetu::curve {

/// Returns the 32 bytes of a key. Throws Config unless `hex` has 64 hexadecimal digits.
std::array<std::byte, 32> key_bytes(const std::string& hex);

/// Receives all parts of one message. Returns false if no message is there.
bool receive_all(zmq::socket_t& socket, std::vector<zmq::message_t>& parts);

/// Answers ZeroMQ's ZAP requests, which ask whether a client may connect to the serving sockets of
/// a context. Accepts clients that have the secret key for one public key. Create it before those
/// sockets bind.
class Authenticator {
 public:
  Authenticator(zmq::context_t& context, const std::string& client_key);
  /// Returns the socket to poll for input. Call admit() when it is readable.
  void* socket() { return socket_.handle(); }
  /// Answers all waiting requests.
  void admit();

 private:
  const std::array<std::byte, 32> client_key_;
  zmq::socket_t socket_;
};

/// Returns true if the system itself keeps all other users from an endpoint. This is the case for a
/// Unix socket in a folder of this user that no other user may access. Such a connection needs no
/// encryption. Both ends get the same answer, unless root connects to another user's process.
bool is_private(const std::string& endpoint);

/// Makes a socket a CURVE server with this secret key, which consults the Authenticator. Throws as
/// set_key does.
void serve_encrypted(zmq::socket_t& socket, const std::string& secret);

/// Sets one of ZeroMQ's key options. Throws Config as key_bytes does, and zmq::error_t.
void set_key(zmq::socket_t& socket, int option, const std::string& hex);

}  // namespace hetu::curve
