#include "net/wire/listen.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/words.h"

namespace hetu::ps {

namespace {

constexpr int kBacklog = 1024;

[[noreturn]] void cannot(const std::string& endpoint) {
  const std::string why = errno == EADDRINUSE ? "it is in use" : std::strerror(errno);
  fail(Code::Comm, "cannot listen at {}: {}", shortened(endpoint), why);
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

/// Returns true if a server has left a socket at this path that no process serves.
bool is_left_behind(const sockaddr_un& address) {
  struct stat found {};
  if (lstat(address.sun_path, &found) != 0 || !S_ISSOCK(found.st_mode)) return false;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool is_refused =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      errno == ECONNREFUSED;
  close(fd);
  return is_refused;
}

}  // namespace

Listener::Listener(const std::string& endpoint) : endpoint_(endpoint) {
  const std::size_t colon = endpoint.rfind(':');
  if (endpoint.rfind("ipc://", 0) == 0) {
    listen_path(endpoint.substr(6));
  } else if (endpoint.rfind("tcp://", 0) == 0 && colon > 5) {
    listen_tcp(endpoint.substr(6, colon - 6), endpoint.substr(colon + 1));
  } else {
    fail(Code::InvalidArgument, "an endpoint must be tcp://ADDRESS:PORT or ipc://PATH, got '{}'",
         shortened(endpoint));
  }
}

Listener::~Listener() {
  if (fd_ >= 0) close(fd_);
  if (!path_.empty()) unlink(path_.c_str());
}

void Listener::listen_tcp(const std::string& host, const std::string& port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  require(inet_pton(AF_INET, host.c_str(), &address.sin_addr) == 1,
          "'{}' of {} is not an IPv4 address; give an address of this host, such as 127.0.0.1, or "
          "0.0.0.0 for all",
          shortened(host), shortened(endpoint_));
  address.sin_port =
      htons(port == "*" ? 0 : static_cast<std::uint16_t>(to_integer(port, 0, 65535)));
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  socklen_t bytes = sizeof address;
  if (fd_ < 0 || setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      bind(fd_, reinterpret_cast<const sockaddr*>(&address), bytes) != 0 ||
      listen(fd_, kBacklog) != 0 ||
      getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    cannot(endpoint_);
  }
  endpoint_ = fmt::format("tcp://{}:{}", host, ntohs(address.sin_port));
}

void Listener::listen_path(const std::string& path) {
  sockaddr_un address = address_of(path);
  require(!path.empty() && path.size() < sizeof address.sun_path,
          "the path of an ipc:// endpoint must have 1 to {} bytes, got {}",
          sizeof address.sun_path - 1, path.size());
  fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto binds = [&] {
    return bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  };
  bool bound = fd_ >= 0 && binds();
  if (!bound && errno == EADDRINUSE) {
    if (is_left_behind(address)) {
      unlink(path.c_str());
      bound = binds();
    } else {
      errno = EADDRINUSE;
    }
  }
  if (!bound) cannot(endpoint_);
  path_ = path;
  if (chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0 || listen(fd_, kBacklog) != 0) cannot(endpoint_);
}

std::vector<std::string> Listener::reached_at() const {
  const std::string everywhere = "tcp://0.0.0.0:";
  if (endpoint_.rfind(everywhere, 0) != 0) return {endpoint_};
  const std::string port = endpoint_.substr(everywhere.size());
  std::vector<std::string> found;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) cannot(endpoint_);
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN];
    const auto* address = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
    inet_ntop(AF_INET, &address->sin_addr, text, sizeof text);
    // Loopback comes last: on another host, another process may answer at that address.
    const bool is_loop = std::strncmp(text, "127.", 4) == 0;
    found.insert(is_loop ? found.end() : found.begin(), fmt::format("tcp://{}:{}", text, port));
  }
  freeifaddrs(all);
  return found;
}

}  // namespace hetu::ps
