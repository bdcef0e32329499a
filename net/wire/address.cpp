// Addresses of the form "tcp://A.B.C.D:PORT,…@KEYS" or "ipc://PATH@KEYS". KEYS are 3 * 64
// hexadecimal digits: the server's public key, and the public and secret key of its clients.
#include "net/wire/address.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "base/error.h"

namespace hetu::ps {

namespace {

constexpr std::size_t kKeyDigits = 64;
constexpr int kProbe_s = 5;

/// Returns the address of "tcp://A.B.C.D:PORT", or nullopt if the endpoint has another form.
std::optional<sockaddr_in> address_of(const std::string& endpoint) {
  sockaddr_in address{};
  const std::size_t colon = endpoint.rfind(':');
  if (endpoint.rfind("tcp://", 0) != 0 || colon < 6) return std::nullopt;
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(endpoint.c_str() + colon + 1)));
  if (inet_pton(AF_INET, endpoint.substr(6, colon - 6).c_str(), &address.sin_addr) != 1) {
    return std::nullopt;
  }
  return address;
}

/// Returns true if something accepts connections at the endpoint.
bool listens(const std::string& endpoint) {
  const std::optional<sockaddr_in> address = address_of(endpoint);
  if (!address) return false;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit{kProbe_s, 0};  // SO_SNDTIMEO limits connect(), too
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  const bool there =
      connect(fd, reinterpret_cast<const sockaddr*>(&*address), sizeof *address) == 0;
  close(fd);
  return there;
}

}  // namespace

Address parse_address(const std::string& text, const char* variable) {
  const std::size_t at = text.rfind('@');
  if (at == std::string::npos || at == 0 || text.size() - at - 1 != 3 * kKeyDigits) {
    fail(Code::Config, "{} must hold endpoints and three keys, as heturun sets it, but {}",
         variable, text.empty() ? "is not set; start the command under heturun" : "does not");
  }
  Address address;
  const bool is_path = text.rfind("ipc://", 0) == 0;  // a path may contain a comma
  for (std::size_t start = 0; start <= at;) {
    const std::size_t end = is_path ? at : std::min(text.find(',', start), at);
    address.endpoints.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  const auto key = [&](std::size_t i) { return text.substr(at + 1 + i * kKeyDigits, kKeyDigits); };
  address.server_key = key(0);
  address.public_key = key(1);
  address.secret_key = key(2);
  return address;
}

// A path may contain a semicolon, too. Only a semicolon after three keys separates addresses.
std::vector<Address> parse_addresses(const std::string& text, const char* variable) {
  std::vector<Address> all;
  std::size_t start = 0;
  for (std::size_t end = text.find(';'); end != std::string::npos; end = text.find(';', end + 1)) {
    constexpr std::size_t kKeys = 3 * kKeyDigits;
    if (end - start <= kKeys || text[end - kKeys - 1] != '@') continue;
    all.push_back(parse_address(text.substr(start, end - start), variable));
    start = end + 1;
  }
  all.push_back(parse_address(text.substr(start), variable));
  return all;
}

std::string write_address(const std::string& endpoints, const std::string& server_key,
                          const std::string& public_key, const std::string& secret_key) {
  return endpoints + "@" + server_key + public_key + secret_key;
}

std::string own_address_towards(const std::string& endpoint) {
  const std::optional<sockaddr_in> address = address_of(endpoint);
  sockaddr_in own{};
  socklen_t size = sizeof own;
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool known =
      address && fd >= 0 &&
      connect(fd, reinterpret_cast<const sockaddr*>(&*address), sizeof *address) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0;
  if (fd >= 0) close(fd);
  char text[INET_ADDRSTRLEN];
  if (!known || inet_ntop(AF_INET, &own.sin_addr, text, sizeof text) == nullptr)
    fail(Code::Comm, "this host has no address from which it can reach {}", endpoint);
  return text;
}

std::string choose_endpoint(const std::vector<std::string>& endpoints) {
  for (const std::string& endpoint : endpoints) {
    if (endpoints.size() == 1 || listens(endpoint)) return endpoint;
  }
  return endpoints.back();
}

}  // namespace hetu::ps
