// A library that is preloaded into the mpirun of a job on one host (python/hetu/launch/mpirun.py).
// The ports of mpirun trust any process that speaks Open MPI's protocols. This library opens all of
// them on the loopback interface. Ports for daemons on other hosts receive nothing. Ports for the
// workers accept connections of this user only. The library links nothing of Hetu.
//
// It replaces bind, accept and accept4 and calls the real functions behind them (RTLD_NEXT).
#include <dlfcn.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace {

constexpr int kEstablished = 1;  // the state's number in /proc/net/tcp

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

/// Replaces an address that other hosts can reach by the loopback address. Returns true if the
/// address was "all interfaces". Open MPI uses that address for connections of its daemons on other
/// hosts. The workers of Open MPI 5 connect to the address of one interface, which they read back
/// from the socket.
bool to_loopback(sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    auto& own = reinterpret_cast<sockaddr_in&>(address);
    const std::uint32_t given = ntohl(own.sin_addr.s_addr);
    if (given >> IN_CLASSA_NSHIFT != IN_LOOPBACKNET) own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return given == INADDR_ANY;
  }
  if (address.ss_family == AF_INET6) {
    auto& own = reinterpret_cast<sockaddr_in6&>(address);
    const bool any = std::memcmp(&own.sin6_addr, &in6addr_any, sizeof in6addr_any) == 0;
    own.sin6_addr = in6addr_loopback;
    return any;
  }
  return false;
}

/// Drops all incoming packets, if the system allows this user to attach a filter; some systems
/// allow it for root only. There, admitted() accepts this user and refuses all others.
void drop_all(int fd) {
  sock_filter nothing = {BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog program = {1, &nothing};
  setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

/// Returns true if an IPv4 connection comes from a socket of this user on this host. The connection
/// of a process that has ended belongs to no user.
bool is_own(const sockaddr_in& here, const sockaddr_in& peer) {
  std::FILE* table = std::fopen("/proc/net/tcp", "re");
  if (table == nullptr) return false;
  bool own = false;
  char line[512];
  while (!own && std::fgets(line, sizeof line, table) != nullptr) {
    unsigned from, from_port, to, to_port, state, user;
    own = std::sscanf(line, " %*d: %8X:%4X %8X:%4X %2X %*8X:%*8X %*2X:%*8X %*8X %u", &from,
                      &from_port, &to, &to_port, &state, &user) == 6 &&
          from == peer.sin_addr.s_addr && from_port == ntohs(peer.sin_port) &&
          to == here.sin_addr.s_addr && to_port == ntohs(here.sin_port) && state == kEstablished &&
          user == geteuid();
  }
  std::fclose(table);
  return own;
}

bool may_stay(int fd) {
  sockaddr_storage here{};
  sockaddr_storage peer{};
  socklen_t here_size = sizeof here;
  socklen_t peer_size = sizeof peer;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&here), &here_size) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) {
    return false;
  }
  if (here.ss_family == AF_UNIX) return true;  // its folder belongs to the user
  return here.ss_family == AF_INET && is_own(reinterpret_cast<const sockaddr_in&>(here),
                                             reinterpret_cast<const sockaddr_in&>(peer));
}

/// Returns an accepted connection. Closes it and returns -1, as if there were no connection, if it
/// belongs to another user.
int admitted(int fd) {
  if (fd < 0 || may_stay(fd)) return fd;
  close(fd);
  errno = EAGAIN;
  return -1;
}

}  // namespace

extern "C" {

int bind(int fd, const sockaddr* address, socklen_t size) {
  static auto* const real = next<int(int, const sockaddr*, socklen_t)>("bind");
  sockaddr_storage own{};
  if (address == nullptr || size > sizeof own) return real(fd, address, size);
  std::memcpy(&own, address, size);
  if (to_loopback(own)) drop_all(fd);
  return real(fd, reinterpret_cast<const sockaddr*>(&own), size);
}

int accept(int fd, sockaddr* address, socklen_t* size) {
  static auto* const real = next<int(int, sockaddr*, socklen_t*)>("accept");
  return admitted(real(fd, address, size));
}

int accept4(int fd, sockaddr* address, socklen_t* size, int flags) {
  static auto* const real = next<int(int, sockaddr*, socklen_t*, int)>("accept4");
  return admitted(real(fd, address, size, flags));
}

}  // extern "C"
