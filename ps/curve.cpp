#include "ps/curve.h"

#include <charconv>

#include "graph/base/error.h"
#include "ps/serve.h"

namespace hetu::ps {

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
  if (!ok) fail(Code::Config, "a key of the coordinator must have 64 hexadecimal digits");
  return bytes;
}

void set_key(zmq::socket_t& socket, int option, const std::string& hex) {
  const std::array<std::byte, 32> bytes = key_bytes(hex);
  if (zmq_setsockopt(socket.handle(), option, bytes.data(), bytes.size()) != 0) {
    throw zmq::error_t();
  }
}

std::string coordinator_address(const std::string& endpoints, const std::string& server_public,
                                const CurveKeys& worker) {
  return endpoints + "@" + server_public + worker.public_key + worker.secret_key;
}

}  // namespace hetu::ps
