// Keys on ZeroMQ sockets. ZeroMQ asks the socket at inproc://zeromq.zap.01 about each new client
// (ZAP 1.0, ZeroMQ RFC 27). A request has seven frames: version, request id, domain, address,
// identity, mechanism ("CURVE"), and the client's public key. The reply has six frames: version,
// request id, status (200 or 400), text, user id, metadata.
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "net/keys/keys.h"
#include "net/keys/sockets.h"

namespace hetu::curve {

KeyPair make_key_pair() {
  char public_key[41];
  char secret_key[41];
  if (zmq_curve_keypair(public_key, secret_key) != 0) {
    fail(Code::Unsupported,
         "this build's ZeroMQ cannot encrypt (CURVE); install one with libsodium");
  }
  const auto hex = [](const char* z85) {
    std::array<std::uint8_t, 32> bytes;
    zmq_z85_decode(bytes.data(), z85);
    return fmt::format("{:02x}", fmt::join(bytes, ""));
  };
  return {hex(public_key), hex(secret_key)};
}

std::array<std::byte, 32> key_bytes(const std::string& hex) {
  std::array<std::byte, 32> bytes{};
  bool ok = hex.size() == 2 * bytes.size();
  for (std::size_t i = 0; ok && i < bytes.size(); ++i) {
    unsigned value = 0;
    const char* first = hex.data() + 2 * i;
    const auto [end, error] = std::from_chars(first, first + 2, value, 16);
    ok = error == std::errc() && end == first + 2;
    bytes[i] = static_cast<std::byte>(value);
  }
  if (!ok)
    fail(Code::Config,
         "a key of the job must consist of 64 hexadecimal digits, got a text of {} characters",
         hex.size());
  return bytes;
}

void set_key(zmq::socket_t& socket, int option, const std::string& hex) {
  const std::array<std::byte, 32> bytes = key_bytes(hex);
  if (zmq_setsockopt(socket.handle(), option, bytes.data(), bytes.size()) != 0) {
    throw zmq::error_t();
  }
}

bool receive_all(zmq::socket_t& socket, std::vector<zmq::message_t>& parts) {
  parts.clear();
  do {
    zmq::message_t part;
    if (!socket.recv(part, zmq::recv_flags::dontwait)) return false;
    parts.push_back(std::move(part));
  } while (parts.back().more());
  return true;
}

Authenticator::Authenticator(zmq::context_t& context, const std::string& client_key)
    : client_key_(key_bytes(client_key)), socket_(context, zmq::socket_type::rep) {
  socket_.set(zmq::sockopt::linger, 0);
  socket_.bind("inproc://zeromq.zap.01");
}

void Authenticator::admit() {
  std::vector<zmq::message_t> parts;
  while (receive_all(socket_, parts)) {
    const bool known = parts.size() == 7 && parts[5].to_string_view() == "CURVE" &&
                       parts[6].size() == client_key_.size() &&
                       std::memcmp(parts[6].data(), client_key_.data(), client_key_.size()) == 0;
    if (!known) log(Level::Warning, "refused a connection from a process without the job's key");
    const auto say = [&](std::string_view text, bool last = false) {
      socket_.send(zmq::buffer(text), last ? zmq::send_flags::none : zmq::send_flags::sndmore);
    };
    say("1.0");
    say(parts.size() > 1 ? parts[1].to_string_view() : "");
    say(known ? "200" : "400");
    say("");
    say("");
    say("", true);
  }
}

bool is_private(const std::string& endpoint) {
  constexpr std::string_view kUnix = "ipc://";
  if (endpoint.rfind(kUnix, 0) != 0) return false;
  const std::filesystem::path path = endpoint.substr(kUnix.size());
  struct stat folder {};
  return path.is_absolute() && stat(path.parent_path().c_str(), &folder) == 0 &&
         folder.st_uid == geteuid() && (folder.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

void serve_encrypted(zmq::socket_t& socket, const std::string& secret) {
  socket.set(zmq::sockopt::curve_server, 1);
  set_key(socket, ZMQ_CURVE_SECRETKEY, secret);
  socket.set(zmq::sockopt::zap_domain, "hetu");
}

}  // namespace hetu::curve
